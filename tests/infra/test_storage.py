"""Object storage: every promise against a folder and against a server that speaks S3."""

import contextlib
import csv
import hashlib
import io
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.files.storage import storages
from pytest_django import Settings

from chronos_site.infra import storage, storage_s3
from chronos_site.infra.storage import ObjectMissing, StorageError
from chronos_site.infra.storage_url import backend_of
from chronos_site.stack.processes import free_port
from chronos_site.stack.site import ROOT
from tests.proxy import Proxy
from tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server

MIB = 1024 * 1024
MOST_MEMORY = 24 * MIB
SIZE = 40 * MIB + 12_345
PIECE = bytes(range(256)) * 257


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3") / "server") as running:
        yield running


@dataclass(frozen=True)
class Place:
    """One storage, and what is in it as somebody else sees it."""

    url: str
    use: Callable[..., None]
    everything: Callable[[], list[str]]
    """The names of objects, and of what is left of unfinished ones."""


@pytest.fixture
def use(settings: Settings) -> Iterator[Callable[..., None]]:
    """Sets STORAGE_URL for this test."""

    def take(url: str, access_key: str | None = ACCESS_KEY, secret_key: str | None = SECRET_KEY) -> None:
        _close()
        entry = backend_of(url, access_key=access_key, secret_key=secret_key)
        settings.STORAGES = {**settings.STORAGES, "objects": entry}

    yield take
    _close()


def _close() -> None:
    backend: Any = storages["objects"]
    if isinstance(backend, storage_s3.S3Objects):
        backend.client.close()


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, use: Callable[..., None]) -> Place:
    if request.param == "folder":
        folder = tmp_path / "of objects"
        folder.mkdir()
        found = Place(folder.as_uri(), use, lambda: [str(path.relative_to(folder)) for path in folder.rglob("*")])
    else:
        found = _below_a_prefix(request.getfixturevalue("s3_server"), use)
    use(found.url)
    return found


def _below_a_prefix(server: S3Server, use: Callable[..., None]) -> Place:
    prefix = f"under/{uuid.uuid4()}"

    def everything() -> list[str]:
        objects = server.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        uploads = server.client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", [])
        return [found["Key"].removeprefix(f"{prefix}/") for found in (*objects, *uploads)]

    return Place(server.url(prefix), use, everything)


def pieces(size: int) -> Iterator[bytes]:
    whole, rest = divmod(size, len(PIECE))
    for number in range(whole):
        yield number.to_bytes(8) + PIECE[8:]
    yield PIECE[:rest]


def put(name: str, content: bytes) -> None:
    with storage.open_writer(name) as writer:
        writer.write(content)


def put_half(name: str, size: int) -> None:
    """A caller that fails in the middle."""
    with storage.open_writer(name) as writer:
        writer.write(bytes(size))
        raise ZeroDivisionError


def get(name: str, offset: int = 0) -> bytes:
    with storage.open_reader(name, offset=offset) as reader:
        return reader.read()


def new_name() -> str:
    return f"bulk/{uuid.uuid4()}/input.csv"


def test_a_large_object_is_written_and_read_in_pieces_in_little_memory(place: Place) -> None:
    name = new_name()
    put("bulk/first/warms-up", b"x" * 9 * MIB)
    assert len(get("bulk/first/warms-up")) == 9 * MIB
    expected, found = hashlib.sha256(), hashlib.sha256()
    tracemalloc.start()
    try:
        with storage.open_writer(name) as writer:
            for piece in pieces(SIZE):
                expected.update(piece)
                assert writer.write(piece) == len(piece)
        with storage.open_reader(name) as reader:
            while piece := reader.read(100_000):
                found.update(piece)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.digest() == expected.digest()
    assert storage.size(name) == SIZE
    assert most < MOST_MEMORY


@pytest.mark.parametrize("size", [0, 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 16 * MIB])
def test_an_object_is_read_as_it_was_written_whatever_its_size(place: Place, size: int) -> None:
    content = (PIECE * (size // len(PIECE) + 1))[:size]
    put("exports/one", content)
    assert get("exports/one") == content
    assert storage.size("exports/one") == size
    assert place.everything().count("exports/one") == 1


@pytest.mark.parametrize("offset", [0, 1, 70_000, 8 * MIB - 1, 8 * MIB, 9 * MIB + 5])
def test_reading_begins_at_an_offset(place: Place, offset: int) -> None:
    content = (PIECE * 160)[: 9 * MIB + 5]
    put("one", content)
    with storage.open_reader("one", offset=offset) as reader:
        assert reader.read(10) == content[offset : offset + 10]
        assert reader.read() == content[offset + 10 :]
        assert reader.read() == b""


def test_beyond_the_end_there_is_nothing_to_read(place: Place) -> None:
    put("one", b"abc")
    assert get("one", offset=3) == get("one", offset=4000) == b""


def test_lines_are_read_and_written_as_from_any_file(place: Place) -> None:
    with storage.open_writer("one") as writer:
        text = io.TextIOWrapper(writer, encoding="utf-8", newline="")
        csv.writer(text).writerows([["id", "wann"], ["1", "übermorgen"]])
        text.flush()
        text.detach()
    with io.TextIOWrapper(storage.open_reader("one"), encoding="utf-8", newline="") as lines:
        assert list(csv.reader(lines)) == [["id", "wann"], ["1", "übermorgen"]]


@pytest.mark.parametrize("size", [0, 100, 20 * MIB])
def test_a_write_that_ends_by_an_exception_leaves_nothing(place: Place, size: int) -> None:
    name = new_name()
    with pytest.raises(ZeroDivisionError):
        put_half(name, size)
    assert storage.size(name) is None
    assert place.everything() == []


@pytest.mark.parametrize("size", [0, 100, 20 * MIB])
def test_a_write_that_is_closed_without_commit_leaves_nothing(place: Place, size: int) -> None:
    writer = storage.open_writer(new_name())
    writer.write(bytes(size))
    writer.close()
    writer.close()
    assert place.everything() == []
    with pytest.raises(StorageError, match="has ended"):
        writer.commit()
    with pytest.raises(StorageError, match="has ended"):
        writer.write(b"more")


@pytest.mark.parametrize("size", [0, 100, 20 * MIB])
def test_a_forgotten_writer_leaves_nothing(place: Place, size: int) -> None:
    storage.open_writer(new_name()).write(bytes(size))
    assert place.everything() == []


def test_what_was_committed_stays_whatever_comes_after(place: Place) -> None:
    writer = storage.open_writer("one")
    writer.write(b"whole")
    writer.commit()
    writer.close()
    assert get("one") == b"whole"
    with pytest.raises(StorageError, match="has ended"):
        writer.commit()
    assert get("one") == b"whole"


@pytest.mark.parametrize("size", [10, 20 * MIB])
def test_an_object_is_replaced_as_a_whole_or_stays_as_it_was(place: Place, size: int) -> None:
    put("one", b"old")
    with pytest.raises(ZeroDivisionError):
        put_half("one", size)
    assert get("one") == b"old"
    with storage.open_writer("one") as writer:
        writer.write(bytes(size))
        assert get("one") == b"old"
    assert get("one") == bytes(size)
    assert place.everything().count("one") == 1


def test_of_two_writers_of_one_name_the_last_commit_counts(place: Place) -> None:
    first, second = storage.open_writer("one"), storage.open_writer("one")
    first.write(b"first" * 2 * MIB)
    second.write(b"second" * 2 * MIB)
    second.commit()
    first.commit()
    assert get("one") == b"first" * 2 * MIB
    assert place.everything() == ["one"]


def test_a_reader_never_mixes_an_object_with_its_successor(place: Place) -> None:
    put("one", b"a" * 20 * MIB)
    with storage.open_reader("one") as reader:
        begin = reader.read(10)
        put("one", b"b" * 20 * MIB)
        assert begin == b"a" * 10
        try:
            rest = reader.read()
        except StorageError as error:
            assert "was replaced meanwhile" in str(error)  # noqa: PT017 - a folder may well go on with the old one
        else:
            assert rest == b"a" * (20 * MIB - 10)


def test_an_object_that_is_not_there_is_told_apart(place: Place) -> None:
    assert storage.size("bulk/none") is None
    with pytest.raises(ObjectMissing, match="no object bulk/none is in the"):
        storage.open_reader("bulk/none")
    storage.delete("bulk/none")


def test_a_deleted_object_is_gone_with_all_that_was_made_for_it(place: Place) -> None:
    name = new_name()
    put(name, b"x" * 9 * MIB)
    put(f"{name}.errors", b"x")
    storage.delete(name)
    assert storage.size(name) is None
    assert get(f"{name}.errors") == b"x"
    storage.delete(f"{name}.errors")
    storage.delete(name)
    assert place.everything() == []


NO_NAMES = ["", "/", "/etc/passwd", "../out", "a/../../out", "a/..", "a/./b", "a//b", "a/", ".hidden", "a/.b.part"]
NO_NAMES += ["a\\b", "a b", "a\0b", "a\n", "ä", "C:/a", "~root/a", "a" * 201, "a/" * 250 + "bb"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_is_not_made_of_ids_is_refused(place: Place, name: str) -> None:
    for act in (storage.open_writer, storage.open_reader, storage.delete, storage.size):
        with pytest.raises(StorageError, match="is no name of an object"):
            act(name)
    assert place.everything() == []


def test_a_negative_offset_is_refused(place: Place) -> None:
    put("one", b"abc")
    with pytest.raises(StorageError, match="an offset is 0 or more"):
        storage.open_reader("one", offset=-1)


def test_threads_write_and_read_side_by_side(place: Place) -> None:
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(5):
                name, content = f"side/{number}/{turn}", str(number).encode() * 100_000
                put(name, content)
                assert get(name) == content
                storage.delete(name)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert place.everything() == []


def configured(url: str) -> str:
    """The first lines of a process of its own."""
    entry = backend_of(url, access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    return (
        f"from django.conf import settings; settings.configure(STORAGES={{'objects': {entry!r}}});"
        "from chronos_site.infra import storage;"
    )


def test_a_writer_that_is_killed_leaves_no_object(place: Place) -> None:
    code = (
        f"import os, signal; {configured(place.url)}"
        "writer = storage.open_writer('one'); writer.write(bytes(20_000_000)); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == -9
    assert storage.size("one") is None
    put("one", b"after")
    assert get("one") == b"after"


# --- a storage that is wrong or away ---------------------------------------------------------------------------------


def every_act() -> list[Callable[[], Any]]:
    return [
        lambda: put("one", b"x"),
        lambda: put("one", b"x" * 9 * MIB),
        lambda: get("one"),
        lambda: storage.size("one"),
        lambda: storage.delete("one"),
    ]


@pytest.mark.parametrize(("access_key", "secret_key"), [(ACCESS_KEY, "wrong-secret"), ("nobody", SECRET_KEY)])
def test_wrong_keys_are_told_without_naming_them(
    s3_server: S3Server, use: Callable[..., None], access_key: str, secret_key: str
) -> None:
    use(_below_a_prefix(s3_server, use).url, access_key, secret_key)
    for act in every_act():
        with pytest.raises(StorageError, match=r"access is refused \(.*check STORAGE_ACCESS_KEY") as caught:
            act()
        assert not isinstance(caught.value, ObjectMissing)
        for secret in ("wrong-secret", "nobody", SECRET_KEY):
            assert secret not in str(caught.value)


def test_a_bucket_that_is_not_there_is_told(s3_server: S3Server, use: Callable[..., None]) -> None:
    use(s3_server.url("", bucket="no-such-bucket"))
    for size in (1, 9 * MIB):
        with pytest.raises(StorageError, match="there is no such bucket; make it, or correct STORAGE_URL"):
            put("one", bytes(size))


def test_a_server_that_is_away_is_told_within_seconds(use: Callable[..., None]) -> None:
    use(f"s3://bucket?endpoint=http://127.0.0.1:{free_port()}")
    for act in every_act():
        began = time.monotonic()
        with pytest.raises(StorageError, match=r"http://127.0.0.1:\d+ does not answer"):
            act()
        assert time.monotonic() - began < 10


def test_a_server_that_says_nothing_is_given_up(use: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert storage_s3.CONNECT_TIMEOUT_S == 5
    assert storage_s3.READ_TIMEOUT_S == 30
    monkeypatch.setattr(storage_s3, "READ_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        use(f"s3://bucket?endpoint=http://127.0.0.1:{silent.getsockname()[1]}")
        for act in every_act():
            began = time.monotonic()
            with pytest.raises(StorageError, match="does not answer"):
                act()
            assert time.monotonic() - began < 10


@pytest.fixture
def link(s3_server: S3Server, use: Callable[..., None]) -> Iterator[Proxy]:
    """The way to the server, which can be broken."""
    with Proxy("127.0.0.1", urlsplit(s3_server.endpoint).port or 0) as proxy:
        use(s3_server.url(f"under/{uuid.uuid4()}").replace(s3_server.endpoint, proxy.through(s3_server.endpoint)))
        yield proxy
        _close()


def test_a_link_that_breaks_in_the_middle_of_a_part_costs_nothing(link: Proxy) -> None:
    content = PIECE * 320
    link.cut_after(11 * MIB)
    put("one", content)
    assert get("one") == content


def test_a_link_that_breaks_in_the_middle_of_a_range_costs_nothing(link: Proxy) -> None:
    content = PIECE * 160
    put("one", content)
    reader = storage.open_reader("one")
    assert reader.read(8 * MIB) == content[: 8 * MIB]
    link.delay(0.2)

    def break_it() -> None:
        time.sleep(0.7)
        link.reset()
        link.heal()

    thread = threading.Thread(target=break_it)
    thread.start()
    with reader:
        assert reader.read() == content[8 * MIB :]
    thread.join()


def test_a_commit_whose_answer_is_lost_leaves_the_whole_object_or_none(link: Proxy) -> None:
    content = PIECE * 160
    writer = storage.open_writer("one")
    writer.write(content)
    link.cut_on_reply_to(lambda chunk: b"<CompleteMultipartUpload" in chunk)
    with contextlib.suppress(StorageError):
        writer.commit()
    writer.close()
    assert storage.size("one") in {None, len(content)}
    put("one", content)
    assert get("one") == content


def put_through_an_outage(server: S3Server) -> None:
    with storage.open_writer("one") as writer:
        writer.write(bytes(9 * MIB))
        server.stop()
        with pytest.raises(StorageError, match="does not answer"):
            writer.write(bytes(9 * MIB))


def test_a_write_goes_on_failing_once_a_piece_was_lost(tmp_path: Path, use: Callable[..., None]) -> None:
    """The caller that swallows the first error must not believe that the object is there."""
    with S3Server(tmp_path / "own") as server:
        place = _below_a_prefix(server, use)
        use(place.url)
        put("small", b"x")
        with pytest.raises(StorageError, match="has ended"):
            put_through_an_outage(server)
        with pytest.raises(StorageError, match="does not answer"):
            get("small")


def test_a_folder_that_is_not_there_is_never_made(tmp_path: Path, use: Callable[..., None]) -> None:
    use((tmp_path / "not mounted").as_uri())
    for act in every_act():
        with pytest.raises(StorageError, match="not mounted is no folder; make it, mount it, or correct STORAGE_URL"):
            act()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path, use: Callable[..., None]) -> None:
    """The limit of a file's size stands in for the disk's; the system answers a write with an error in both."""
    code = (
        f"import resource, signal; {configured(tmp_path.as_uri())}"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000));"
        "writer = storage.open_writer('a/one')\n"
        "try:\n    writer.write(bytes(2_000_000))\n"
        "except storage.StorageError as error:\n    print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert told == "the object a/one could not be written in the folder of STORAGE_URL: File too large\n"
    assert list(tmp_path.iterdir()) == []


def test_without_a_storage_the_setting_is_named(settings: Settings) -> None:
    settings.STORAGES = {name: entry for name, entry in settings.STORAGES.items() if name != "objects"}
    with pytest.raises(StorageError, match="no object storage is set up here; set STORAGE_URL"):
        storage.size("one")


def test_what_is_old_can_be_named_and_what_a_dead_writer_left_be_dropped(place: Place) -> None:
    put("bulk/a/1/rows.csv", b"whole")
    put("other/rows.csv", b"of somebody else")
    left = storage.open_writer("bulk/a/2/rows.csv")
    left.write(bytes(9 * MIB))
    later = datetime.now(UTC) + timedelta(minutes=1)
    before = datetime.now(UTC) - timedelta(hours=1)
    assert list(storage.old_names("bulk", before=before)) == []
    assert storage.drop_unfinished("bulk", before=before) == 0
    assert list(storage.old_names("bulk", before=later)) == ["bulk/a/1/rows.csv"]
    assert storage.drop_unfinished("bulk", before=later) == 1
    assert storage.drop_unfinished("bulk", before=later) == 0
    assert not [name for name in place.everything() if "/2" in name]
    assert get("bulk/a/1/rows.csv") == b"whole"
    left.close()
