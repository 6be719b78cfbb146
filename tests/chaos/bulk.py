"""The scenario of bulk jobs: the workers that read, deliver and write results are killed in the midst of one job.

Two of the ten kills come while the file is read, seven while rows are delivered, and one while the results are written.
The links of these workers are slow meanwhile, or the receiver is, so that there is a midst.
"""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import requests

from bulk.domain.numbering import number_of, range_of
from tests.chaos.bulk_checker import PATH, BulkEvidence, BulkRow, by_number, judge_bulk
from tests.chaos.load import RETRY
from tests.chaos.runner import Run, Scenario

WORKERS = ("bulk-1", "bulk-2")
ROWS = 10_000
PAD = "x" * 4096
"""Rows so long that a piece of the file holds but two thousand of them."""
INVALID_SHARE = 0.001
TIMEOUT_S = 8.0
KILLS_READING, KILLS_DELIVERING = 2, 7

SLOW_READING_S = 0.02
SLOW_WRITING_S = 0.1
WORK_LEASE_S = 60.0
"""So long a file that was being read, or results that were being written, wait for another worker."""
LOST_ROWS_S = 90.0
"""The heartbeat's 30 s, the lease of a chunk that was just renewed, and the sends."""
SETTLED_S = 15.0


def bulk_killed(run: Run) -> None:
    invalid = {number for number in range(1, ROWS + 1) if run.rng.random() < INVALID_SHARE} or {ROWS // 2}
    job = _Job(run, invalid)
    _kill_readers(run, job)
    _kill_senders(run, job)
    _kill_the_writer(run, job)
    run.bound("end of the bulk job after the last kill", job.wait_until_ended(), WORK_LEASE_S + SETTLED_S)
    evidence = job.evidence()
    verdict = judge_bulk(evidence)
    run.notes.append(
        f"{ROWS:,} rows, {len(invalid)} not valid: {verdict.received:,} received, {verdict.doubled} of them twice"
        f" (at most the {verdict.in_flight:,} in flight at a kill)"
    )
    run.notes += [f"FAULT {fault}" for fault in verdict.faults]


def _kill_readers(run: Run, job: "_Job") -> None:
    proxy = run.world.proxy("bulk", "postgres")
    proxy.delay(SLOW_READING_S)
    for reader in range(1, KILLS_READING + 1):
        _wait(run, job, "work_seq >= %s AND state = 'INGESTING'", [reader], WORK_LEASE_S + SETTLED_S)
        run.sleep(1, 6)
        with _kill(run, job, *WORKERS):
            run.notes.append(f"killed with {job.value('total'):,} rows read")
    proxy.heal()
    _wait(run, job, "state = 'RUNNING'", [], WORK_LEASE_S + SETTLED_S)


def _kill_senders(run: Run, job: "_Job") -> None:
    """All within the time in which what the first left is not yet taken back: no row is in flight at three of them."""
    run.receiver.mode = "slow"
    for _ in range(KILLS_DELIVERING):
        run.sleep(0.3, 2)
        with _kill(run, job, *run.rng.choice(((WORKERS[0],), (WORKERS[1],), WORKERS))):
            run.notes.append(f"killed with {job.ended():,} rows ended")
    run.receiver.mode = "ok"


def _kill_the_writer(run: Run, job: "_Job") -> None:
    took = run.wait_for(job.all_have_ended, LOST_ROWS_S)
    run.bound("rows of killed workers", took, LOST_ROWS_S)
    run.world.proxy("bulk", "postgres").delay(SLOW_WRITING_S)
    _wait(run, job, "work_lease_until IS NOT NULL OR finished_at IS NOT NULL", [], SETTLED_S)
    run.sleep(0.1, 0.5)
    with _kill(run, job, *WORKERS):
        run.notes.append(f"killed with the results {'written' if job.value('finished_at') else 'not yet written'}")
        run.world.proxy("bulk", "postgres").heal()


@contextmanager
def _kill(run: Run, job: "_Job", *names: str) -> Iterator[None]:
    """They are dead within the block, and back after it."""
    with run.fault():
        run.world.kill(*names)
        job.note_in_flight()
        yield
    run.world.start(*names)


def _wait(run: Run, job: "_Job", condition: str, params: list[Any], most_s: float) -> None:
    """Raises RuntimeError: without it the scenario would kill at another moment than it says."""
    took = run.wait_for(lambda: job.holds(condition, params), most_s)
    if took >= most_s:
        raise RuntimeError(f"the bulk job is {job.value('state')} after {most_s:g} s; waited for: {condition}")


class _Job:
    """One bulk job, uploaded through the API; what is asked past it is asked of PostgreSQL."""

    def __init__(self, run: Run, invalid: set[int]) -> None:
        self._run = run
        self._invalid = invalid
        self._in_flight: set[int] = set()
        definition = {
            "name": f"bulk-{run.rng.getrandbits(32):08x}",
            "target": {"url": run.receiver.url(PATH + "{{id}}"), "method": "POST"},
            "payload": {"number": "{{id}}"},
            "timeout_s": TIMEOUT_S,
            "retry": RETRY,
        }
        made = self._api("POST", "/v1/job-definitions", json=definition).json()
        lines = (f"{n}\n" if n in invalid else f"{n},{PAD}\n" for n in range(1, ROWS + 1))
        content = io.BytesIO(("id,pad\n" + "".join(lines)).encode())
        uploaded = self._api("POST", "/v1/bulk-jobs", data={"job": made["id"]}, files={"file": ("rows.csv", content)})
        self.id = UUID(uploaded.json()["id"])

    def holds(self, condition: str, params: list[Any]) -> bool:
        return bool(self._ask(f"SELECT 1 FROM bulk_bulkjob WHERE id = %s AND ({condition})", [self.id, *params]))

    def value(self, column: str) -> Any:
        return self._ask(f"SELECT {column} FROM bulk_bulkjob WHERE id = %s", [self.id])[0][0]

    def ended(self) -> int:
        """Rows that have ended so far, those that are not valid among them."""
        [(ended,)] = self._ask(
            "SELECT sum(succeeded + failed + invalid) FROM bulk_bulkchunk WHERE id BETWEEN %s AND %s",
            list(range_of(self.id)),
        )
        return int(ended)

    def note_in_flight(self) -> None:
        """Which rows somebody had begun to send, with no result of it stored yet."""
        found = self._ask(
            "SELECT id FROM bulk_bulkrecord WHERE id BETWEEN %s AND %s AND state = 'RUNNING' AND begun_seq = claim_seq",
            list(range_of(self.id)),
        )
        self._in_flight |= {number_of(id_) for (id_,) in found}

    def all_have_ended(self) -> bool:
        return not self._ask(
            "SELECT 1 FROM bulk_bulkchunk WHERE id BETWEEN %s AND %s AND state <> 'DONE' LIMIT 1",
            list(range_of(self.id)),
        )

    def wait_until_ended(self) -> float:
        most_s = WORK_LEASE_S + 2 * SETTLED_S
        return self._run.wait_for(lambda: self.value("finished_at") is not None, most_s)

    def evidence(self) -> BulkEvidence:
        told = self._api("GET", f"/v1/bulk-jobs/{self.id}").json()
        first, last = range_of(self.id)
        arrived = [(UUID(a.execution_id), a) for a in self._run.receiver.logged() if a.path.startswith(PATH)]
        rows = self._ask(
            "SELECT id, attempt, unknown_outcomes FROM bulk_bulkrecord WHERE id BETWEEN %s AND %s", [first, last]
        )
        return BulkEvidence(
            total=ROWS,
            invalid=self._invalid,
            arrivals=by_number([(number_of(id_), arrival) for id_, arrival in arrived if first <= id_ <= last]),
            rows={number_of(id_): BulkRow(attempt, unknown) for id_, attempt, unknown in rows},
            state=told["state"],
            counts=told["progress"],
            results=self._results(told),
            in_flight=self._in_flight,
        )

    def _results(self, told: dict[str, Any]) -> list[dict[str, Any]]:
        if told["results_bytes"] is None:
            return []
        text = self._api("GET", f"/v1/bulk-jobs/{self.id}/results").content.decode()
        return list(csv.DictReader(io.StringIO(text, newline="")))

    def _ask(self, sql: str, params: list[Any]) -> list[tuple[Any, ...]]:
        with self._run.world.database() as db:
            return db.execute(sql, params).fetchall()

    def _api(self, method: str, path: str, **given: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self._run.world.api_key}"}
        answer = requests.request(method, self._run.world.url + path, headers=headers, timeout=60, **given)
        answer.raise_for_status()
        return answer


BULK_KILLED = Scenario(
    "bulk-killed", "kill -9 of the workers of bulk jobs, ten times within one job", bulk_killed, failover_s=5
)
