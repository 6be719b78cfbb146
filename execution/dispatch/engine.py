"""The engine: one event loop per worker process that turns claimed executions into sends and stored results.

    submit(ids): reserve slots → claim → hold until due_at → gate → send → classify → results in batches

Called by the dispatch task, which returns as soon as the rows are claimed; a slow receiver then costs a socket and a
slot, never a worker thread. What happens when the process dies: before the claim, the rows are QUEUED and found by the
monitor; after it they are RUNNING under a lease; a send whose result was not stored is an unknown outcome, and the
attempt's number says that it had begun.
"""

import asyncio
import heapq
import itertools
import logging
import threading
import time
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import uvloop
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from chronos_site.infra import redis
from chronos_site.infra.clock import DatabaseClock
from execution.dispatch.attempt_log import AttemptLog
from execution.dispatch.egress import Network, Verdict
from execution.dispatch.fence import Fence
from execution.dispatch.gate import Gate
from execution.dispatch.heartbeat import Heartbeat
from execution.dispatch.http import Answer, HttpSender
from execution.dispatch.results import ResultWriter
from execution.dispatch.slots import Slots
from execution.dispatch.source import ExecutionSource
from execution.domain.classify import classify
from execution.domain.decide import decide
from execution.domain.outcome import Claim, Result
from execution.domain.states import State

log = logging.getLogger(__name__)

GATE_LEAD_S = 0.05
"""The gate is passed so long before the due time; the send itself waits for it."""
WAVE = 500


class EngineStopping(Exception):  # noqa: N818 - a state of affairs, not a fault
    """The worker is on its way out: the message belongs to another."""


class Engine:
    """Start it once per process, `submit` from any thread, `stop` it before the process ends."""

    def __init__(
        self,
        *,
        conninfo: str,
        worker_id: UUID,
        name: str,
        max_in_flight: int,
        allow: Sequence[Network],
        attempt_log: AttemptLog,
    ) -> None:
        self._conninfo = conninfo
        self._worker_id = worker_id
        self._name = name
        self._allow = allow
        self._log = attempt_log
        self._max_in_flight = max_in_flight
        self._stopping = False
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._order = itertools.count()
        self._due: list[tuple[float, int, Claim, DatabaseClock]] = []
        self._delivered = 0
        self._sends: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # --- for other threads ------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the engine is ready. Raises what kept it from starting."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def submit(self, ids: Sequence[UUID]) -> None:
        """Claim these executions as slots become free. Raises EngineStopping, or psycopg's OperationalError."""
        self._call(self._take(ids)).result()

    def begin_stop(self) -> None:
        """No new claims; what has not been sent is given back."""
        self._loop.call_soon_threadsafe(self._refuse)

    def stop(self, grace_s: float) -> None:
        """Wait for sends under way, write their results, end the thread."""
        self._call(self._drain(grace_s)).result()
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        self._log.stop(5)

    def _call(self, work: Coroutine[Any, Any, None]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # --- the loop's own ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._main())
        except BaseException as error:
            self._failure = error
            log.critical("engine_ended", extra={"action": "engine"}, exc_info=error)
            raise
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._end = asyncio.Event()
        self._slots = Slots(self._max_in_flight)
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            self._conninfo, min_size=2, max_size=6, timeout=10, open=False, kwargs={"autocommit": True}
        )
        async with pool:
            client = redis.async_client()
            self._source = ExecutionSource(pool=pool, worker_id=self._worker_id)
            fence = Fence(client, worker_id=self._worker_id)
            self._sender = HttpSender()
            self._heartbeat = Heartbeat(
                pool=pool,
                worker_id=self._worker_id,
                name=self._name,
                count=lambda: (self._delivered, self._slots.total - self._slots.free),
            )
            self._results = ResultWriter(source=self._source, fence=fence, finished=self._finished)
            self._gate = Gate(
                source=self._source, fence=fence, allow=self._allow, silent=lambda: self._heartbeat.silent
            )
            self._log.start()
            writer = asyncio.create_task(self._results.run())
            others = [asyncio.create_task(self._heartbeat.run()), asyncio.create_task(self._waves())]
            self._ready.set()
            await self._end.wait()
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._results.close()
            await writer
            await self._sender.close()
            await client.aclose()

    async def _take(self, ids: Sequence[UUID]) -> None:
        """Reserve, claim, hand to the waves. A chunk larger than all slots together is taken in parts."""
        for start in range(0, len(ids), self._slots.total):
            part = ids[start : start + self._slots.total]
            reserved = await self._slots.reserve(len(part))
            claims: list[Claim] = []
            try:
                claimed = await self._source.claim(part)
                claims = claimed.claims
                for claim in claims:
                    heapq.heappush(self._due, (claim.due_at.timestamp(), next(self._order), claim, claimed.clock))
            finally:
                self._slots.release(reserved - len(claims))
            self._wake.set()

    async def _waves(self) -> None:
        """Take what is due soon through the gate, wave after wave; until cancelled."""
        while True:
            wave = self._pop_wave()
            if not wave:
                self._wake.clear()
                await self._sleep_until_due()
                continue
            try:
                if self._stopping:
                    await self._give_back(wave)
                else:
                    await self._pass_gate(wave)
            except Exception:
                log.exception("wave_failed", extra={"action": "wave", "left_to_lease": len(wave)})
                self._slots.release(len(wave))

    def _pop_wave(self) -> list[tuple[Claim, DatabaseClock]]:
        wave: list[tuple[Claim, DatabaseClock]] = []
        while self._due and len(wave) < WAVE:
            due_s, _order, claim, clock = self._due[0]
            if not self._stopping and due_s - clock.now_s() > GATE_LEAD_S:
                break
            heapq.heappop(self._due)
            wave.append((claim, clock))
        return wave

    async def _sleep_until_due(self) -> None:
        timeout = None
        if self._due:
            due_s, _order, _claim, clock = self._due[0]
            timeout = max(0.0, due_s - clock.now_s() - GATE_LEAD_S)
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _pass_gate(self, wave: list[tuple[Claim, DatabaseClock]]) -> None:
        clocks = {claim.id: clock for claim, clock in wave}
        passed = await self._gate.look([claim for claim, _clock in wave])
        for claim, verdict in passed.send:
            task = asyncio.create_task(self._send(claim, verdict, clocks[claim.id]))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)
        for result in passed.decided:
            self._results.add(result)
        self._slots.release(len(wave) - len(passed.send) - len(passed.decided))

    async def _give_back(self, wave: list[tuple[Claim, DatabaseClock]]) -> None:
        try:
            await self._source.give_back([claim for claim, _clock in wave])
        except (psycopg.OperationalError, PoolTimeout) as error:
            log.warning(
                "give_back_failed", extra={"action": "give_back", "left_to_lease": len(wave), "error": str(error)}
            )
        self._slots.release(len(wave))

    async def _send(self, claim: Claim, verdict: Verdict, clock: DatabaseClock) -> None:
        """Wait for the exact time, send, classify. Exactly one result comes of it."""
        due_s = claim.due_at.timestamp()
        while (early := due_s - clock.now_s()) > 0:
            await asyncio.sleep(early)
        began_at = datetime.now(UTC)
        try:
            answer = await self._sender.send(claim, verdict)
        except Exception as error:
            log.exception("send_failed", extra={"action": "send", "execution_id": str(claim.id)})
            answer = Answer(None, "internal", f"The worker failed at the send: {type(error).__name__}.")
        self._results.add(_result(claim, verdict, answer, began_at))

    def _finished(self, results: list[Result], _stored: set[object]) -> None:
        self._delivered += len(results)
        self._slots.release(len(results))
        self._log.add(results, worker=self._name)

    def _refuse(self) -> None:
        """From now on nothing is claimed or sent; the waves give back what they find."""
        self._stopping = True
        self._slots.close(EngineStopping(f"{self._name} is stopping"))
        self._wake.set()

    async def _drain(self, grace_s: float) -> None:
        """What waits goes back at once; sends under way may end within the grace."""
        self._refuse()
        ends = time.monotonic() + grace_s
        while (self._due or self._sends) and time.monotonic() < ends:
            await asyncio.sleep(0.02)
        for task in list(self._sends):
            task.cancel()
        try:
            await self._heartbeat.write(stopping=True)
        except (psycopg.Error, PoolTimeout) as error:
            log.warning("heartbeat_failed", extra={"action": "heartbeat", "error": str(error)[:200]})


def _result(claim: Claim, verdict: Verdict, answer: Answer, began_at: datetime) -> Result:
    finished_at = datetime.now(UTC)
    outcome = classify(
        status=answer.status, error=answer.error, headers=answer.headers, now=finished_at, policy=claim.retry
    )
    elapsed_s = (finished_at - (claim.started_at or began_at)).total_seconds()
    decision = decide(outcome, policy=claim.retry, attempt=claim.attempt, elapsed_s=elapsed_s)
    succeeded = decision.state == State.SUCCEEDED
    code = answer.error or f"http_{answer.status}"
    return Result(
        claim=claim,
        state=decision.state,
        reason="" if succeeded else code,
        status=answer.status,
        error=None if succeeded else code,
        error_text="" if succeeded else clean_text(answer.error_text or outcome.reason),
        duration_ms=answer.duration_ms,
        finished_at=finished_at,
        retry_in_s=decision.retry_in_s,
        dead_reason=decision.dead_reason,
        response_headers=answer.headers,
        response_excerpt=answer.excerpt,
        began_at=began_at,
        address=verdict.address,
    )


def clean_text(text: str) -> str:
    """A text as Postgres can hold it: no NUL, no lone surrogate, at most 500 characters."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")[:500]
