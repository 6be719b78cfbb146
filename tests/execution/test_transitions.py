"""Every edge of the state table against every state: a function changes the rows of its own edge and no others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from psycopg import AsyncConnection

from chronos_site.infra.clock import DatabaseClock
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution import transitions
from execution.dispatch.runtime import conninfo
from execution.dispatch.source import claim_of
from execution.domain.outcome import Claim, Postponed, Result
from execution.domain.states import EDGES, TERMINAL, State, may_move
from execution.models import Execution
from tests.making import make_executions

pytestmark = pytest.mark.django_db(transaction=True)

Move = Callable[[UUID], Iterable[UUID]]


def on_engine(work: Callable[[AsyncConnection[Any], Claim], Awaitable[Iterable[UUID]]]) -> Move:
    """Run a coroutine of the engine's on a connection of its own, with the claim that the row carries."""

    def move(execution_id: UUID) -> Iterable[UUID]:
        row = Execution.objects.filter(id=execution_id).values().get()
        claim = claim_of({**row, "attempt": 0}, DatabaseClock(timezone.now()))

        async def run() -> Iterable[UUID]:
            async with await AsyncConnection.connect(conninfo(), autocommit=True) as db:
                return await work(db, claim)

        return asyncio.run(run())

    return move


def result(claim: Claim, state: State) -> Result:
    return Result(
        claim=claim,
        state=state,
        reason="",
        status=200,
        error=None,
        error_text="",
        duration_ms=1.0,
        finished_at=timezone.now(),
        retry_in_s=5.0 if state == State.RETRYING else None,
        dead_reason="terminal_answer" if state == State.FAILED else "",
    )


async def claim_it(db: AsyncConnection[Any], claim: Claim) -> Sequence[UUID]:
    return [row["id"] for row in await transitions.claim_queued(db, ids=[claim.id], worker_id=new_id())]


async def postpone(db: AsyncConnection[Any], claim: Claim) -> Sequence[UUID]:
    word = Postponed(timezone.now() + timedelta(seconds=5), "flow_rate_limit")
    return await transitions.postpone_running(db, claims=[claim], postponed={claim.id: word})


FUNCTIONS: dict[str, tuple[set[State], State, Move]] = {
    "queue_pending": ({State.PENDING}, State.QUEUED, lambda i: transitions.queue_pending(ids=[i])),
    "skip_pending": (
        {State.PENDING},
        State.SKIPPED,
        lambda i: transitions.skip_pending(ids=[i], reason="overlap"),
    ),
    "queue_keyed": ({State.PENDING}, State.QUEUED, lambda i: transitions.queue_keyed(ids=[i])),
    "expire_pending": ({State.PENDING}, State.EXPIRED, lambda i: transitions.expire_pending(ids=[i])),
    "cancel_waiting": (
        {State.PENDING, State.QUEUED, State.RETRYING},
        State.CANCELLED,
        lambda i: transitions.cancel_waiting(ids=[i], reason="cancelled"),
    ),
    "unqueue": ({State.QUEUED}, State.PENDING, lambda i: transitions.unqueue(ids=[i])),
    "queue_retrying": (
        {State.RETRYING},
        State.QUEUED,
        lambda i: transitions.queue_retrying(horizon_s=0, most=10),
    ),
    "queue_locked_retries": (
        {State.RETRYING},
        State.QUEUED,
        lambda i: transitions.queue_locked_retries(ids=[i]),
    ),
    "unqueue_retrying": ({State.QUEUED}, State.RETRYING, lambda i: transitions.unqueue_retrying(ids=[i])),
    "recover_lost_claims": (
        {State.RUNNING},
        State.RETRYING,
        lambda i: [lost.id for lost in transitions.recover_lost_claims(most=10, unknown_cap=3)],
    ),
    "claim_queued": ({State.QUEUED}, State.RUNNING, on_engine(claim_it)),
    "release_running": (
        {State.RUNNING},
        State.QUEUED,
        on_engine(lambda db, claim: transitions.release_running(db, claims=[claim])),
    ),
    "postpone_running": ({State.RUNNING}, State.RETRYING, on_engine(lambda db, claim: postpone(db, claim))),
    "cancel_running": (
        {State.RUNNING},
        State.CANCELLED,
        on_engine(lambda db, claim: transitions.cancel_running(db, claims=[claim])),
    ),
    "finish_running (well)": (
        {State.RUNNING, State.QUEUED, State.RETRYING},
        State.SUCCEEDED,
        on_engine(lambda db, claim: transitions.finish_running(db, results=[result(claim, State.SUCCEEDED)])),
    ),
    "finish_running (to retry)": (
        {State.RUNNING},
        State.RETRYING,
        on_engine(lambda db, claim: transitions.finish_running(db, results=[result(claim, State.RETRYING)])),
    ),
    "finish_running (badly)": (
        {State.RUNNING},
        State.FAILED,
        on_engine(lambda db, claim: transitions.finish_running(db, results=[result(claim, State.FAILED)])),
    ),
}


def test_every_pair_of_states_is_decided_and_ends_are_ends() -> None:
    assert set(EDGES) == set(State)
    for source in State:
        for target in State:
            assert may_move(source, target) == (target in EDGES[source])
    assert {state for state, targets in EDGES.items() if not targets} == TERMINAL


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_follows_its_edge_from_its_states_only(name: str, workspace: Workspace) -> None:
    sources, target, move = FUNCTIONS[name]
    for state in State:
        [row] = make_executions(workspace, "http://127.0.0.1:9/")
        Execution.objects.exclude(id=row.id).delete()
        Execution.objects.filter(id=row.id).update(
            state=state, claim_seq=3, start_deadline=timezone.now() - timedelta(seconds=1), lease_until=timezone.now()
        )
        changed = list(move(row.id))
        row.refresh_from_db()
        if state in sources:
            assert may_move(state, target)
            assert (changed, row.state) == ([row.id], target)
        else:
            assert (changed, row.state) == ([], state)


@pytest.mark.parametrize("name", ["release_running", "cancel_running", "postpone_running", "finish_running (well)"])
def test_an_older_claim_changes_nothing(name: str, workspace: Workspace) -> None:
    [row] = make_executions(workspace, "http://127.0.0.1:9/")
    Execution.objects.filter(id=row.id).update(state="RUNNING", claim_seq=3, lease_until=timezone.now())
    stale = Execution.objects.filter(id=row.id).values().get()

    async def run() -> Iterable[UUID]:
        claim = claim_of({**stale, "claim_seq": 2}, DatabaseClock(timezone.now()))
        async with await AsyncConnection.connect(conninfo(), autocommit=True) as db:
            match name:
                case "release_running":
                    return await transitions.release_running(db, claims=[claim])
                case "cancel_running":
                    return await transitions.cancel_running(db, claims=[claim])
                case "postpone_running":
                    return await postpone(db, claim)
                case _:
                    return await transitions.finish_running(db, results=[result(claim, State.SUCCEEDED)])

    assert list(asyncio.run(run())) == []
    row.refresh_from_db()
    assert (row.state, row.claim_seq) == ("RUNNING", 3)


def test_no_file_but_the_transitions_writes_a_state_of_an_execution() -> None:
    """Statements that set the column stand in the files of transitions and in the .sql files that they alone read."""
    root = Path(transitions.__file__).parent.parent
    writers = set()
    for path in [*root.glob("execution/**/*.py"), *root.glob("scheduling/**/*.py"), *root.glob("*/sql/*.sql")]:
        text = path.read_text(encoding="utf-8")
        if "migrations" in path.parts:
            continue
        if "UPDATE execution_execution" in text and "SET state" in text:
            writers.add(path.relative_to(root).as_posix())
    assert writers == {
        "execution/transitions.py",
        "execution/transitions_waiting.py",
        "execution/sql/claim.sql",
        "execution/sql/write_results.sql",
        "execution/sql/recover_lost_claims.sql",
    }
