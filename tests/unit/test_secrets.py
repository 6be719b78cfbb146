"""References, the places where secrets are kept, and the memory in front of them."""

import base64
import http.server
import json
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chronos_site.infra import secrets
from chronos_site.infra.references import Reference, parse_reference, split_value
from chronos_site.infra.secret_providers import LARGEST, Environment, Kubernetes, Mounted, Unusable
from chronos_site.infra.secrets import SecretMissing, SecretRefused, SecretStore, SecretUnavailable
from execution.domain.credentials import carries_secret, references_of, shown

TOKEN = Reference("acme", "hooks", "token")


# --- references ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["secret://acme/hooks/token", "secret://a/b.c-d/Key_1.x", "secret://0/0/0"])
def test_a_reference_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_reference(text)) == text


@pytest.mark.parametrize(
    "rest",
    ["", "a", "a/b", "a/b/", "/b/c", "a//c", "a/b/c/d", "a/b/..", "a/b/.", "../b/c", "a/../c", "A/b/c", "a/B/c",
     "-a/b/c", "a/b-/c", "a/b..c/d", "a/b/c\n", "a/b/c d", "a/b/ü", "a/b/%2e%2e", "a/b/..data", f"{'a' * 64}/b/c",
     f"a/{'b' * 254}/c", f"a/b/{'c' * 254}", "a/b/c?x=1", "a@x/b/c"],
)  # fmt: skip
def test_what_could_climb_out_of_a_folder_or_mean_two_things_is_no_reference(rest: str) -> None:
    with pytest.raises(ValueError, match="A secret is named secret://namespace/name/key"):
        parse_reference(f"secret://{rest}")


def test_a_header_holds_a_reference_alone_or_after_one_scheme_word() -> None:
    assert split_value("secret://acme/hooks/token") == ("", TOKEN)
    assert split_value("Bearer secret://acme/hooks/token") == ("Bearer ", TOKEN)
    assert split_value("no reference") is None


@pytest.mark.parametrize(
    "value",
    ["a b secret://acme/hooks/token", "Bearer  secret://acme/hooks/token", "x=secret://acme/hooks/token",
     "secret://acme/hooks/token ", "secret://a/b/c secret://a/b/c", "SECRET://acme/hooks/token", "secret://"],
)  # fmt: skip
def test_any_other_value_that_names_a_secret_is_refused_and_never_sent_as_it_is(value: str) -> None:
    with pytest.raises(ValueError, match=r"reference is the whole value|A secret is named"):
        split_value(value)


NAMES = "Authorization cookie X-Api-Key api-key APIKEY X-Auth-Token Private-Token X-Client-Secret X-Functions-Key"
NO_NAMES = "Idempotency-Key X-Partition-Key X-Monkey X-Team Accept X-Keyboard X-Tokenizer Content-Type"


def test_headers_that_are_there_for_secrets_are_known_by_their_names_and_others_are_left_alone() -> None:
    assert [name for name in NAMES.split() if not carries_secret(name)] == []
    assert [name for name in NO_NAMES.split() if carries_secret(name)] == []


def test_a_literal_from_before_is_hidden_and_references_are_shown() -> None:
    part = {"url": "u", "headers": {"Authorization": "Bearer x", "X-Api-Key": "secret://a/b/c", "X-Team": "y"}}
    assert shown(part)["headers"] == {"Authorization": "***", "X-Api-Key": "secret://a/b/c", "X-Team": "y"}
    assert [path for path, _ in references_of(part)] == [("headers", "X-Api-Key")]


# --- a mounted folder ---------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As Kubernetes mounts a Secret: the key is a link to a link to a folder with the time in its name."""
    root = tmp_path / "secrets"
    mounted = root / "acme" / "hooks"
    (mounted / "..2030_01").mkdir(parents=True)
    (mounted / "..2030_01" / "token").write_text("sesame\n")
    (mounted / "..data").symlink_to("..2030_01")
    (mounted / "token").symlink_to("..data/token")
    return root


def store_of(folder: Path) -> SecretStore:
    return SecretStore(Mounted(str(folder)), ttl_s=0)


def test_a_mounted_secret_is_read_through_kubernetes_links_without_its_last_line_end(folder: Path) -> None:
    assert store_of(folder).resolve(TOKEN) == "sesame"


def test_a_secret_that_is_rotated_by_swapping_the_link_is_read_anew(folder: Path) -> None:
    found = store_of(folder)
    mounted = folder / "acme" / "hooks"
    assert found.resolve(TOKEN) == "sesame"
    (mounted / "..2030_02").mkdir()
    (mounted / "..2030_02" / "token").write_text("open")
    (mounted / "..tmp").symlink_to("..2030_02")
    (mounted / "..tmp").rename(mounted / "..data")
    assert found.resolve(TOKEN) == "open"


def test_only_one_line_end_is_taken_off(folder: Path) -> None:
    path = folder / "acme" / "hooks" / "lines"
    for raw, value in ((b"a\n\n", "a\n"), (b"a\r\n", "a"), (b" a ", " a ")):
        path.write_bytes(raw)
        assert store_of(folder).resolve(Reference("acme", "hooks", "lines")) == value


def test_links_that_lead_out_of_the_namespace_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("not yours")
    (folder / "globex" / "db").mkdir(parents=True)
    (folder / "globex" / "db" / "password").write_text("theirs")
    for key, leads in (("out", tmp_path / "outside"), ("theirs", "../../globex/db/password")):
        (folder / "acme" / "hooks" / key).symlink_to(leads)
        with pytest.raises(SecretRefused, match="link out of its namespace"):
            store_of(folder).resolve(Reference("acme", "hooks", key))
    (folder / "mine").symlink_to("globex")
    with pytest.raises(SecretRefused, match="link out of its namespace"):
        store_of(folder).resolve(Reference("mine", "db", "password"))


def test_what_is_no_file_or_too_large_or_no_text_or_empty_is_refused(folder: Path) -> None:
    home = folder / "acme" / "hooks"
    (home / "folder").mkdir()
    os.mkfifo(home / "pipe")
    (home / "circle").symlink_to("circle")
    (home / "large").write_bytes(b"x" * (LARGEST + 1))
    (home / "binary").write_bytes(b"\xff\xfe")
    (home / "empty").write_bytes(b"\n")
    for key in ("folder", "pipe", "circle", "large", "binary", "empty"):
        with pytest.raises(SecretRefused, match=f"secret://acme/hooks/{key} cannot be used"):
            store_of(folder).resolve(Reference("acme", "hooks", key))
    (home / "largest").write_bytes(b"x" * LARGEST)
    assert len(store_of(folder).resolve(Reference("acme", "hooks", "largest"))) == LARGEST


def test_a_secret_that_is_not_there_is_missing(folder: Path) -> None:
    for reference in (Reference("acme", "hooks", "none"), Reference("acme", "none", "k"), Reference("none", "a", "k")):
        with pytest.raises(SecretMissing, match=f"There is no {reference}"):
            store_of(folder).resolve(reference)


# --- the environment ----------------------------------------------------------------------------------------------


def test_a_variable_holds_a_secret_on_one_machine() -> None:
    found = SecretStore(Environment({"CHRONOS_SECRET_ACME_WEB_HOOKS_API_TOKEN": "sesame"}), ttl_s=0)
    assert found.resolve(Reference("acme", "web-hooks", "api.token")) == "sesame"
    with pytest.raises(SecretMissing):
        found.resolve(TOKEN)


# --- memory -------------------------------------------------------------------------------------------------------


class Counting:
    def __init__(self, value: bytes | None = b"sesame", error: Exception | None = None) -> None:
        self.value, self.error, self.reads = value, error, 0

    def read(self, reference: Reference) -> bytes | None:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.value


def test_a_value_is_remembered_until_it_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(secrets.time, "monotonic", lambda: now)
    kept = Counting()
    found = SecretStore(kept, ttl_s=30)
    assert found.peek(TOKEN) is None
    assert {found.resolve(TOKEN) for _ in range(100)} == {"sesame"}
    assert (kept.reads, found.peek(TOKEN)) == (1, "sesame")
    kept.value, now = b"open", 30.0
    assert found.peek(TOKEN) is None
    assert (found.resolve(TOKEN), kept.reads) == ("open", 2)


@pytest.mark.parametrize(
    ("kept", "raised"),
    [(Counting(None), SecretMissing), (Counting(error=TimeoutError("x")), SecretUnavailable),
     (Counting(error=Unusable("so it is")), SecretRefused)],
)  # fmt: skip
def test_a_failure_is_remembered_for_a_moment_only(
    kept: Counting, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(secrets.time, "monotonic", lambda: now)
    found = SecretStore(kept, ttl_s=30)
    for _ in range(50):
        with pytest.raises(raised):
            found.resolve(TOKEN)
    assert kept.reads == 1
    kept.value, kept.error, now = b"sesame", None, secrets.FAILURE_TTL_S
    assert found.resolve(TOKEN) == "sesame"


def test_memory_is_bounded_and_what_is_used_stays() -> None:
    found = SecretStore(Counting(), ttl_s=30)
    found.resolve(TOKEN)
    for number in range(secrets.MOST + 10):
        found.resolve(Reference("acme", "many", str(number)))
        found.peek(TOKEN)
    assert len(found._known) == secrets.MOST
    assert found.peek(TOKEN) == "sesame"


# --- Kubernetes ---------------------------------------------------------------------------------------------------

Answers = Callable[[str], tuple[int, bytes]]


class FakeCluster:
    """The one call of the Kubernetes API, over TLS with a CA of its own."""

    def __init__(self, home: Path, *, trusted: bool = True) -> None:
        self.folder = home / "account"
        self.folder.mkdir(parents=True)
        (self.folder / "token").write_text("first-token\n")
        self.asked: list[tuple[str, str]] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        certificate, key = _certificate(home, "served")
        shutil.copy(certificate if trusted else _certificate(home, "other")[0], self.folder / "ca.crt")
        cluster = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cluster.asked.append((self.path, self.headers["Authorization"]))
                status, body = cluster.answers.get(self.path, (404, b"{}"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def store(self) -> SecretStore:
        url = f"https://127.0.0.1:{self.server.server_address[1]}"
        return SecretStore(Kubernetes(url, folder=str(self.folder)), ttl_s=0)

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


def _certificate(home: Path, name: str) -> tuple[Path, Path]:
    certificate, key = home / f"{name}.crt", home / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    running = FakeCluster(tmp_path)
    yield running
    running.stop()


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
PATH = "/api/v1/namespaces/acme/secrets/hooks"


def secret(**data: str) -> bytes:
    return json.dumps(
        {"data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}
    ).encode()


@needs_openssl
def test_kubernetes_is_asked_as_the_pods_account_with_the_token_of_the_moment(cluster: FakeCluster) -> None:
    cluster.answers[PATH] = (200, secret(token="sesame"))
    found = cluster.store()
    assert found.resolve(TOKEN) == "sesame"
    (cluster.folder / "token").write_text("second-token")
    assert found.resolve(TOKEN) == "sesame"
    assert cluster.asked == [(PATH, "Bearer first-token"), (PATH, "Bearer second-token")]


@needs_openssl
def test_kubernetes_that_has_no_such_secret_or_key_says_missing(cluster: FakeCluster) -> None:
    with pytest.raises(SecretMissing):
        cluster.store().resolve(TOKEN)
    cluster.answers[PATH] = (200, secret(other="x"))
    with pytest.raises(SecretMissing):
        cluster.store().resolve(TOKEN)
    cluster.answers[PATH] = (200, b'{"kind": "Secret"}')
    with pytest.raises(SecretMissing):
        cluster.store().resolve(TOKEN)


@needs_openssl
@pytest.mark.parametrize(
    "answer",
    [(401, b"{}"), (403, b"{}"), (500, b"oops"), (302, b""), (200, b"no JSON"), (200, b"[]"),
     (200, b'{"data": {"token": 5}}'), (200, b'{"data": {"token": "%"}}')],
)  # fmt: skip
def test_an_answer_of_kubernetes_that_is_no_secret_may_pass_and_is_tried_again(
    cluster: FakeCluster, answer: tuple[int, bytes]
) -> None:
    cluster.answers[PATH] = answer
    with pytest.raises(SecretUnavailable, match="secret://acme/hooks/token could not be read"):
        cluster.store().resolve(TOKEN)
    assert len(cluster.asked) == 1


@needs_openssl
def test_a_server_that_another_ca_vouches_for_is_given_no_token(tmp_path: Path) -> None:
    impostor = FakeCluster(tmp_path, trusted=False)
    impostor.answers[PATH] = (200, secret(token="sesame"))
    try:
        with pytest.raises(SecretUnavailable):
            impostor.store().resolve(TOKEN)
        assert impostor.asked == []
    finally:
        impostor.stop()
