"""Documents are written fast, and as the slow way would write them."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from chronos_site.infra.documents import to_json


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "ä\u2028\u0000"]},
        {"beyond 64 bits": 2**70, "beside": "text"},
        {"smallest": -(2**63), "largest": 2**64 - 1, "float": 1e300, "exact": 0.1},
        [],
        "text",
        None,
    ],
)
def test_what_is_written_reads_back_the_same(value: object) -> None:
    assert json.loads(to_json(value)) == value


def test_deep_nesting_is_written_too() -> None:
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    assert to_json(deep) == b"[" * 401 + b"]" * 401


def test_ids_and_times_write_themselves_and_a_writer_may_be_given_for_what_json_does_not_know() -> None:
    at = datetime(2030, 1, 31, 9, 0, 0, 250_000, tzinfo=UTC)
    row = {"id": UUID(int=7), "at": at, "beyond": 2**70}
    assert json.loads(to_json({"id": row["id"], "at": at})) == {
        "id": str(row["id"]),
        "at": "2030-01-31T09:00:00.250000+00:00",
    }
    assert json.loads(to_json(row))["id"] == str(row["id"])
    assert json.loads(to_json({"at": at}, plain=lambda _: "as told")) == {"at": "as told"}
