"""The engine: one event loop per worker process that turns claimed executions into sends and stored results.

    submit(ids): reserve slots → claim → hold until due_at → gate → send → classify → results in batches

Called by the dispatch task, which returns as soon as the rows are claimed; a slow receiver then costs a socket and a
slot, never a worker thread. What happens when the process dies: before the claim, the rows are QUEUED and found by the
monitor; after it they are RUNNING under a lease; a send whose result was not stored is an unknown outcome, and the
attempt's number says that it had begun.
"""

import asyncio
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
import uvloop
from psycopg_pool import AsyncConnectionPool

from chronos_site.infra import redis
from chronos_site.infra.secrets import SecretError, SecretStore
from execution.dispatch import attempt_span, counts
from execution.dispatch.attempt_log import AttemptLog
from execution.dispatch.credentials import CredentialSource
from execution.dispatch.egress import Network
from execution.dispatch.fence import Fence
from execution.dispatch.flow import Flow
from execution.dispatch.gate import Gate, not_sent
from execution.dispatch.heartbeat import Heartbeat
from execution.dispatch.http import HttpSender
from execution.dispatch.judgement import result_of
from execution.dispatch.kafka import KafkaSender
from execution.dispatch.places import Places
from execution.dispatch.results import ResultWriter
from execution.dispatch.sender import Answer, Sender
from execution.dispatch.slots import Slots
from execution.dispatch.source import Source
from execution.dispatch.waiting import Waiting
from execution.domain.outcome import Claim, Result
from execution.domain.targets import HTTP, KAFKA

log = logging.getLogger(__name__)

CLAIMS_AT_ONCE = 3
CLAIM_RETRY_S = 0.5
UNSENT_S = 0.5
CLAIM_PATIENCE_S = 15.0
"""Half of the lease of a QUEUED row, so that the message is back before the monitor looks for it."""


STUCK_S = 15.0
"""An event loop that has not come round for so long is stuck."""


SourceOf = Callable[[AsyncConnectionPool[Any], UUID], Source]
"""Makes a source from the engine's pool and the worker's id."""
SendersOf = Callable[[HttpSender], Mapping[str, Sender]]
"""Makes more senders, by the kind of claim that they send, which may call over the engine's own for HTTP."""


class EngineStopping(Exception):  # noqa: N818 - a state of affairs, not a fault
    """The worker is on its way out: the message belongs to another."""


class Engine:
    """Start it once per process, `submit` from any thread, `stop` it before the process ends."""

    def __init__(
        self,
        *,
        source: SourceOf,
        queue: str,
        conninfo: str,
        worker_id: UUID,
        name: str,
        max_in_flight: int,
        allow: Sequence[Network],
        attempt_log: AttemptLog,
        secrets: SecretStore,
        senders: SendersOf | None = None,
    ) -> None:
        self._source_of = source
        self._queue = queue
        self._conninfo = conninfo
        self._worker_id = worker_id
        self._name = name
        self._allow = allow
        self._log = attempt_log
        self._secrets = secrets
        self._senders_of = senders
        self._max_in_flight = max_in_flight
        self._stopping = False
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._in_hand = 0
        self._unsent: list[Claim] = []
        self._delivered = 0
        self._sends: set[asyncio.Task[None]] = set()
        self._turned = time.monotonic()
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

    @property
    def alive(self) -> bool:
        """Whether the event loop comes round."""
        return time.monotonic() - self._turned < STUCK_S

    @property
    def in_flight(self) -> int:
        """Claimed and not yet finished."""
        return self._slots.total - self._slots.free

    @property
    def logs_dropped(self) -> int:
        """Attempts' logs that MongoDB never took."""
        return self._log.dropped

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
        self._end = asyncio.Event()
        self._slots = Slots(self._max_in_flight)
        self._places = Places(self._max_in_flight)
        self._waiting = Waiting(self._places)
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            self._conninfo,
            min_size=2,
            max_size=8,
            timeout=10,
            # After an outage the pool would wait longer and longer, up to minutes, before it looks again.
            reconnect_timeout=5,
            # No check of each connection: after a restart the pool would sleep 1, 2, 4 s between stale ones, while
            # every caller here tries again at once.
            open=False,
            kwargs={"autocommit": True},
        )
        # Claims may wait for row locks; the gate, the results and the heartbeat must not wait behind them.
        self._claiming = asyncio.Semaphore(CLAIMS_AT_ONCE)
        async with pool:
            client = redis.async_client()
            self._source = self._source_of(pool, self._worker_id)
            fence = Fence(client, worker_id=self._worker_id)
            flow = Flow(client, places=self._places)
            http = HttpSender(allow=self._allow)
            self._senders: dict[str, Sender] = {HTTP: http, KAFKA: KafkaSender(name=self._name)}
            if self._senders_of is not None:
                self._senders.update(self._senders_of(http))
            self._credentials = CredentialSource(self._secrets)
            self._heartbeat = Heartbeat(
                pool=pool,
                worker_id=self._worker_id,
                name=self._name,
                queue=self._queue,
                count=lambda: (self._delivered, self.in_flight),
            )
            self._results = ResultWriter(source=self._source, fence=fence, flow=flow, finished=self._finished)
            self._gate = Gate(
                source=self._source,
                flow=flow,
                fence=fence,
                silent=lambda: self._heartbeat.silent,
            )
            self._log.start()
            writer = self._begin(self._results.run(), "results")
            others = [self._begin(self._heartbeat.run(), "heartbeat"), self._begin(self._waves(), "waves")]
            others.append(self._begin(self._return_unsent(), "unsent"))
            others.append(self._begin(self._turn(), "turn"))
            self._ready.set()
            await self._end.wait()
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._results.close()
            await writer
            self._credentials.close()
            for sender in self._senders.values():
                await sender.close()
            await client.aclose()

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that the engine cannot do without: if it fails, the process ends and its leases are taken over."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                log.critical("engine_task_died", extra={"action": "engine", "task": name}, exc_info=task.exception())
                os._exit(os.EX_SOFTWARE)

        task = asyncio.create_task(work, name=name)
        task.add_done_callback(ended)
        return task

    async def _turn(self) -> None:
        """Note every second that the loop comes round; until cancelled."""
        while True:
            self._turned = time.monotonic()
            await asyncio.sleep(1)

    async def _take(self, ids: Sequence[UUID]) -> None:
        """Reserve, claim, hand to the waves; in parts, as slots become free."""
        rest = list(ids)
        while rest:
            reserved = await self._slots.reserve(len(rest))
            part, rest = rest[:reserved], rest[reserved:]
            claims: list[Claim] = []
            try:
                claims = await self._claim(part)
                self._waiting.add(claims)
            finally:
                self._slots.release(reserved - len(claims))

    async def _claim(self, ids: Sequence[UUID]) -> list[Claim]:
        """A database that is away is asked again for a while; then the message goes back to the queue."""
        ends = time.monotonic() + CLAIM_PATIENCE_S
        while True:
            if self._stopping:
                raise EngineStopping(f"{self._name} is stopping")
            try:
                async with self._claiming:
                    return await self._source.claim(ids)
            except psycopg.OperationalError as error:
                log.warning("claim_waits", extra={"action": "claim", "waiting": len(ids), "error": str(error)[:200]})
                if time.monotonic() > ends:
                    raise
            await asyncio.sleep(CLAIM_RETRY_S)

    async def _waves(self) -> None:
        """Take what is due soon through the gate, wave after wave; until cancelled."""
        while True:
            wave = self._waiting.pop_all() if self._stopping else self._waiting.pop_wave()
            if not wave:
                await self._waiting.sleep()
                continue
            self._in_hand = len(wave)
            try:
                if self._stopping:
                    await self._give_back(wave)
                else:
                    await self._pass_gate(wave)
            except Exception:
                log.exception("wave_failed", extra={"action": "wave", "left_to_lease": len(wave)})
                self._slots.release(len(wave))
            finally:
                self._in_hand = 0

    async def _pass_gate(self, wave: list[Claim]) -> None:
        passed = await self._gate.look(wave)
        for claim in passed.begun:
            self._places.take(claim)
            task = asyncio.create_task(self._send(claim))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)
        for result in passed.known:
            self._results.add(result)
        self._unsent += passed.unasked
        self._slots.release(len(wave) - len(passed.begun) - len(passed.known))

    async def _return_unsent(self) -> None:
        """Claims that this worker knows it has not sent go back as soon as the database answers; until cancelled.

        Else they would wait for their leases, and after an outage longer, until the monitor takes leases again.
        """
        while True:
            await asyncio.sleep(UNSENT_S)
            if self._unsent:
                await self._return_now()

    async def _return_now(self) -> None:
        batch, self._unsent = self._unsent, []
        try:
            await self._source.give_back(batch)
            log.warning("unsent_given_back", extra={"action": "give_back", "given_back": len(batch)})
        except psycopg.Error as error:
            log.warning("give_back_waits", extra={"action": "give_back", "error": str(error)[:200]})
            self._unsent += batch

    async def _give_back(self, wave: list[Claim]) -> None:
        try:
            await self._source.give_back(wave)
        except psycopg.Error as error:
            log.warning(
                "give_back_failed", extra={"action": "give_back", "left_to_lease": len(wave), "error": str(error)}
            )
        self._slots.release(len(wave))

    async def _send(self, claim: Claim) -> None:
        begun = time.monotonic()
        try:
            await self._attempt(claim)
        finally:
            self._places.leave(claim, lasted_s=time.monotonic() - begun)

    async def _attempt(self, claim: Claim) -> None:
        """Judge the target, look up its secrets, wait for the exact time, send, classify.

        Exactly one result comes of it, or none.
        """
        sender = self._senders[claim.kind]
        verdict = await sender.judge(claim)
        if not verdict.allowed:
            self._results.add(not_sent(claim, verdict))
            return
        try:
            credentials = await self._credentials.of(claim)
        except SecretError as error:
            answer = Answer(None, error.code, str(error))
            self._results.add(result_of(claim, answer, began_at=claim.clock.now(), address=None))
            return
        due_s = claim.due_at.timestamp()
        while (early := due_s - claim.clock.now_s()) > 0:
            await asyncio.sleep(early)
        began_at = claim.clock.now()
        if self._heartbeat.silent or began_at >= claim.lease_until:
            # By now another may hold the row.
            log.error("send_too_late", extra=_about(claim))
            self._slots.release(1)
            return
        try:
            answer = await sender.send(claim, verdict, credentials)
        except Exception as error:
            # Not log.exception: the text of an error from the client may quote what was to be sent.
            told = credentials.scrub("".join(traceback.format_exception(error)))
            log.error("send_failed", extra={**_about(claim), "exception": told})
            answer = Answer(None, "internal", f"The worker failed at the send: {type(error).__name__}.")
        self._results.add(result_of(claim, answer, began_at=began_at, address=verdict.address))

    def _finished(self, results: list[Result], stored: set[object]) -> None:
        self._delivered += len(results)
        self._slots.release(len(results))
        self._log.add(results, worker=self._name)
        attempt_span.end(results)
        counts.count(results, stored, queue=self._queue)

    def _refuse(self) -> None:
        """From now on nothing is claimed or sent; the waves give back what they find."""
        self._stopping = True
        self._slots.close(EngineStopping(f"{self._name} is stopping"))
        self._waiting.wake()

    async def _drain(self, grace_s: float) -> None:
        """What waits goes back at once; sends under way may end within the grace."""
        self._refuse()
        ends = time.monotonic() + grace_s
        while (self._waiting or self._in_hand or self._sends) and time.monotonic() < ends:
            await asyncio.sleep(0.02)
        for task in list(self._sends):
            task.cancel()
        if self._unsent:
            await self._return_now()
        try:
            await self._heartbeat.write(stopping=True)
        except psycopg.Error as error:
            log.warning("heartbeat_failed", extra={"action": "heartbeat", "error": str(error)[:200]})


def _about(claim: Claim) -> dict[str, str]:
    """What a line about one send says of whose it is."""
    about = {"execution_id": str(claim.id), "workspace_id": str(claim.workspace_id)}
    return {"action": "send", **about, "trace_id": claim.traceparent[3:35]}
