import os
import time

from chronos_site.infra.ids import new_id


def test_ids_that_one_process_makes_within_a_millisecond_keep_their_order() -> None:
    ids = [new_id() for _ in range(1_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1_000


def test_an_id_is_a_uuid_of_version_7_and_tells_when_it_was_made() -> None:
    before = time.time()
    made = new_id()
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert int(before * 1000) <= made.int >> 80 <= time.time() * 1000


def test_a_forked_process_makes_other_random_bits() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"".join(new_id().bytes[8:] for _ in range(10)))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 80)
    os.close(reader)
    os.close(writer)
    ours = {new_id().bytes[8:] for _ in range(10)}
    assert len(theirs) == 80
    assert ours.isdisjoint(theirs[start : start + 8] for start in range(0, 80, 8))
