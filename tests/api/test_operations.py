"""Operations: started once, done step by step, each row once, whoever runs and whatever breaks off."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from celery import current_app
from django.db import OperationalError, connection
from django_celery_beat.models import PeriodicTask

from chronos_site.api.models import IdempotencyRecord, Operation
from chronos_site.api.operations import runner, services, transitions
from chronos_site.api.operations.registry import Found, Kind, Scope, Step, TryLater, register_kind, unregister_kind
from chronos_site.api.operations.runner import run_operations
from chronos_site.beat import seed_periodic_tasks
from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.tenancy import services as tenancy
from chronos_site.tenancy.models import Workspace
from tests.clients import ApiClient
from tests.processes import wait_until
from tests.threads import in_thread, lock_waiters

pytestmark = pytest.mark.django_db

NAME = "tests.mark"
PATH = "/v1/thing"


@dataclass
class Marking:
    """A kind of the tests: for every id behind the cursor it writes a row, as work that can be counted.

    The rows are idempotency records, a table of this room that carries any text; `spoil` is called after the work.
    """

    ids: list[UUID] = field(default_factory=list)
    batch: int = 3
    before: Callable[[], None] = lambda: None
    spoil: Callable[[list[UUID]], None] = lambda ids: None

    def count(self, scope: Scope) -> Found:
        return Found(len(self.ids), max(self.ids, default=None))

    def step(self, scope: Scope, after: UUID | None, limit: int) -> Step:
        self.before()
        assert scope.up_to is not None
        ids = sorted(i for i in self.ids if (after is None or i > after) and i <= scope.up_to)[:limit]
        for row_id in ids:
            IdempotencyRecord.objects.create(
                workspace_id=scope.workspace_id,
                method="POST",
                path=PATH,
                key=f"{row_id}-{new_id()}",
                body_hash="",
                status=200,
                body=str(row_id),
            )
        self.spoil(ids)
        return Step(done=len(ids), after=ids[-1] if ids else after, finished=len(ids) < limit)

    def kind(self) -> Kind:
        return Kind(name=NAME, count=self.count, step=self.step, batch=self.batch)


def marked() -> list[UUID]:
    """The rows that were worked on, as often as they were."""
    return sorted(UUID(body) for body in IdempotencyRecord.objects.filter(path=PATH).values_list("body", flat=True))


@pytest.fixture
def marking() -> Iterator[Marking]:
    """Ten rows in steps of three."""
    made = Marking(ids=sorted(new_id() for _ in range(10)))
    register_kind(made.kind())
    yield made
    unregister_kind(NAME)


def start(workspace: Workspace, **given: Any) -> Operation:
    started = services.start_operation(workspace_id=workspace.id, kind=NAME, filter={}, **given)
    assert started.operation is not None
    return started.operation


def counters(operation: Operation) -> tuple[str, int, int, int, int]:
    operation.refresh_from_db()
    return operation.state, operation.total, operation.done, operation.skipped, operation.failed


# --- progress ------------------------------------------------------------------------------------


def test_an_operation_does_every_row_once_and_its_counts_add_up(
    api: ApiClient, workspace: Workspace, marking: Marking
) -> None:
    operation = start(workspace)
    seen: list[int] = []
    marking.before = lambda: seen.append(Operation.objects.get().done)
    assert run_operations().steps == 4
    assert marked() == marking.ids
    assert seen == [0, 3, 6, 9]
    body = api.get(f"/v1/operations/{operation.id}").json()
    assert (body["state"], body["total"], body["done"], body["skipped"], body["failed"]) == ("SUCCEEDED", 10, 10, 0, 0)
    assert body["created_at"] <= body["started_at"] <= body["finished_at"]
    assert run_operations().steps == 0


def test_an_operation_that_found_nothing_succeeds(workspace: Workspace, marking: Marking) -> None:
    marking.ids = []
    operation = start(workspace)
    run_operations()
    assert counters(operation) == ("SUCCEEDED", 0, 0, 0, 0)


def test_rows_that_match_no_longer_at_their_turn_count_as_skipped(workspace: Workspace, marking: Marking) -> None:
    operation = start(workspace)
    del marking.ids[5:7]
    run_operations()
    assert counters(operation) == ("SUCCEEDED", 10, 8, 2, 0)


def test_rows_that_come_after_the_acceptance_are_not_touched(workspace: Workspace, marking: Marking) -> None:
    operation = start(workspace)
    late = UUID(int=max(marking.ids).int + 1)
    marking.ids.append(late)
    run_operations()
    assert counters(operation) == ("SUCCEEDED", 10, 10, 0, 0)
    assert late not in marked()


def test_a_tick_with_nothing_open_costs_one_query(
    workspace: Workspace, marking: Marking, django_assert_num_queries: Any
) -> None:
    start(workspace)
    run_operations()
    with django_assert_num_queries(1):
        run_operations()


def test_workspaces_take_turns(workspace: Workspace, other_workspace: Workspace, marking: Marking) -> None:
    mine = [start(workspace) for _ in range(3)]
    theirs = start(other_workspace)
    served: list[UUID] = []
    marking.spoil = lambda ids: served.append(IdempotencyRecord.objects.filter(path=PATH).latest("id").workspace_id)
    run_operations()
    assert all(counters(operation)[0] == "SUCCEEDED" for operation in [*mine, theirs])
    assert served[:8].count(other_workspace.id) == 4


def test_the_time_of_a_tick_is_limited_and_the_next_one_goes_on(workspace: Workspace, marking: Marking) -> None:
    operation = start(workspace)
    assert run_operations(budget_s=0).steps == 0
    assert counters(operation)[0] == "QUEUED"
    run_operations()
    assert counters(operation)[0] == "SUCCEEDED"


def test_a_kind_that_this_process_does_not_know_is_left_to_one_that_does(
    workspace: Workspace, marking: Marking
) -> None:
    operation = start(workspace)
    unregister_kind(NAME)
    run_operations()
    assert counters(operation)[0] == "QUEUED"


# --- rate ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "total", "at_least_s"), [(5, 13, 1.9), (1, 3, 1.9)])
def test_a_rate_is_held(workspace: Workspace, marking: Marking, rate: int, total: int, at_least_s: float) -> None:
    marking.ids = sorted(new_id() for _ in range(total))
    marking.batch = 100
    register_kind(marking.kind())
    operation = start(workspace, rate_per_s=rate)
    times: list[Any] = []
    marking.spoil = lambda ids: times.extend(database_now() for _ in ids)

    def ended() -> bool:
        run_operations()
        return counters(operation)[0] == "SUCCEEDED"

    wait_until(ended, timeout_s=20)
    assert counters(operation) == ("SUCCEEDED", total, total, 0, 0)
    assert (times[-1] - times[0]).total_seconds() >= at_least_s
    for first in times:  # Of each second, with one more that may be made up for: never a flood.
        assert sum(first <= at < first + timedelta(seconds=0.9) for at in times) <= 2 * rate


def test_ticks_that_come_late_are_made_up_for_by_one_second_at_most(workspace: Workspace, marking: Marking) -> None:
    operation = start(workspace, rate_per_s=2)
    run_operations()
    assert counters(operation)[2] == 2
    Operation.objects.update(next_step_at=database_now() - timedelta(seconds=60))
    run_operations()
    assert counters(operation)[2] == 6


# --- what goes wrong -----------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def test_dying_in_the_middle_of_a_step_repeats_nothing_and_loses_nothing(
    workspace: Workspace, marking: Marking
) -> None:
    operation = start(workspace)

    def die_once(ids: list[UUID]) -> None:
        if marking.ids[4] in ids:
            marking.spoil = lambda ids: None
            raise Killed

    marking.spoil = die_once
    with pytest.raises(Killed):
        run_operations()
    assert counters(operation) == ("RUNNING", 10, 3, 0, 0)
    assert marked() == marking.ids[:3]
    run_operations()
    assert counters(operation) == ("SUCCEEDED", 10, 10, 0, 0)
    assert marked() == marking.ids


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_lost_in_a_step_puts_the_operation_off(workspace: Workspace, marking: Marking) -> None:
    operation = start(workspace)

    def cut_once(ids: list[UUID]) -> None:
        marking.spoil = lambda ids: None
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    marking.spoil = cut_once
    assert run_operations().put_off == 1
    assert counters(operation) == ("QUEUED", 10, 0, 0, 0)
    assert "tried again" in operation.waiting_for
    assert run_operations().steps == 0
    Operation.objects.update(next_step_at=database_now())
    run_operations()
    assert counters(operation) == ("SUCCEEDED", 10, 10, 0, 0)
    assert (operation.setbacks, operation.waiting_for) == (0, "")
    assert marked() == marking.ids


def test_a_step_that_the_database_breaks_off_every_time_ends_as_failed(workspace: Workspace, marking: Marking) -> None:
    operation = start(workspace)

    def break_off(ids: list[UUID]) -> None:
        raise OperationalError("canceling statement due to statement timeout")

    marking.spoil = break_off
    for _ in range(runner.MOST_SETBACKS + 1):
        assert counters(operation)[0] == "QUEUED"
        Operation.objects.update(next_step_at=database_now())
        run_operations()
    assert counters(operation) == ("FAILED", 10, 0, 0, 0)
    assert "6 times" in operation.error
    assert marked() == []


def test_an_unexpected_error_ends_the_operation_and_keeps_what_was_done(
    api: ApiClient, workspace: Workspace, marking: Marking, caplog: pytest.LogCaptureFixture
) -> None:
    operation = start(workspace)

    def fail_later(ids: list[UUID]) -> None:
        if marking.ids[4] in ids:
            raise ValueError("secret inside")

    marking.spoil = fail_later
    assert run_operations().failed == 1
    body = api.get(f"/v1/operations/{operation.id}").json()
    assert (body["state"], body["done"]) == ("FAILED", 3)
    assert "ValueError" in body["error"]
    assert "secret" not in body["error"]
    assert "secret inside" in caplog.text
    assert marked() == marking.ids[:3]


def test_a_step_that_passes_nothing_and_does_not_end_fails_at_once(workspace: Workspace, marking: Marking) -> None:
    operation = start(workspace)
    register_kind(
        Kind(name=NAME, count=marking.count, step=lambda scope, after, limit: Step(after=after, finished=False))
    )
    run_operations(budget_s=1)
    assert counters(operation)[0] == "FAILED"


def test_a_step_that_must_wait_says_why_and_is_tried_later(
    api: ApiClient, workspace: Workspace, marking: Marking
) -> None:
    operation = start(workspace)

    def no_room() -> None:
        raise TryLater("There is no room for more.", after_s=60)

    marking.before = no_room
    assert run_operations().put_off == 1
    body = api.get(f"/v1/operations/{operation.id}").json()
    assert (body["state"], body["waiting_for"], body["error"]) == ("QUEUED", "There is no room for more.", "")
    marking.before = lambda: None
    assert run_operations().steps == 0
    Operation.objects.update(next_step_at=database_now())
    run_operations()
    assert counters(operation) == ("SUCCEEDED", 10, 10, 0, 0)


@pytest.mark.django_db(transaction=True)
def test_two_runners_at_once_do_each_row_once(
    workspace: Workspace, other_workspace: Workspace, marking: Marking
) -> None:
    marking.ids = sorted(new_id() for _ in range(60))
    operations = [start(of) for of in (workspace, other_workspace) for _ in range(3)]
    first_steps, together = set(), threading.Barrier(2, timeout=20)

    def meet() -> None:
        """Both runners are inside a step at the same time, once."""
        if threading.get_ident() not in first_steps:
            first_steps.add(threading.get_ident())
            together.wait()

    marking.before = meet
    threads = [in_thread(run_operations) for _ in range(2)]
    for thread in threads:
        thread.join()
    marking.before = lambda: None
    run_operations()
    assert [counters(operation) for operation in operations] == [("SUCCEEDED", 60, 60, 0, 0)] * 6
    assert marked() == sorted(marking.ids * 6)
    assert len(first_steps) == 2


def test_a_process_does_one_tick_at_a_time(workspace: Workspace, marking: Marking) -> None:
    operation = start(workspace)
    with runner._one_tick:
        runner.tick_operations()
        assert counters(operation)[0] == "QUEUED"
    runner.tick_operations()
    assert counters(operation)[0] == "SUCCEEDED"


# --- abort ---------------------------------------------------------------------------------------


def test_an_abort_in_the_middle_stops_the_operation_for_good(
    api: ApiClient, workspace: Workspace, marking: Marking
) -> None:
    operation = start(workspace, rate_per_s=3)
    run_operations()
    path = f"/v1/operations/{operation.id}/abort"
    first, again = api.post(path), api.post(path)
    assert (first.status_code, first.json()["state"], first.json()["done"]) == (200, "ABORTED", 3)
    assert again.json() == first.json()
    Operation.objects.update(next_step_at=database_now())
    assert run_operations().steps == 0
    assert counters(operation) == ("ABORTED", 10, 3, 0, 0)
    assert marked() == marking.ids[:3]


def test_an_abort_before_the_first_step_leaves_everything_undone(
    api: ApiClient, workspace: Workspace, marking: Marking
) -> None:
    operation = start(workspace)
    assert api.post(f"/v1/operations/{operation.id}/abort").json()["state"] == "ABORTED"
    run_operations()
    assert counters(operation) == ("ABORTED", 10, 0, 0, 0)
    assert marked() == []


def test_an_operation_that_has_ended_otherwise_cannot_be_aborted(
    api: ApiClient, workspace: Workspace, marking: Marking
) -> None:
    operation = start(workspace)
    run_operations()
    refused = api.post(f"/v1/operations/{operation.id}/abort")
    assert (refused.status_code, refused.json()["code"], refused.json()["state"]) == (
        409,
        "operation_ended",
        "SUCCEEDED",
    )


@pytest.mark.django_db(transaction=True)
def test_nothing_is_done_after_an_abort_was_answered(workspace: Workspace, marking: Marking) -> None:
    operation = start(workspace)
    in_step, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        in_step.set()
        assert may_end.wait(20)

    marking.before = hold
    runs = in_thread(run_operations)
    assert in_step.wait(20)
    aborted: list[Operation] = []
    aborts = in_thread(
        lambda: aborted.append(services.abort_operation(workspace_id=workspace.id, operation_id=operation.id))
    )
    wait_until(lambda: lock_waiters() == 1)
    may_end.set()
    aborts.join()
    done_when_answered = aborted[0].done
    runs.join()
    assert aborted[0].state == "ABORTED"
    assert counters(operation) == ("ABORTED", 10, done_when_answered, 0, 0)
    assert 0 < done_when_answered < 10
    assert marked() == marking.ids[:done_when_answered]


# --- starting and reading ------------------------------------------------------------------------


def test_a_workspace_has_a_limited_number_of_open_operations(
    workspace: Workspace, other_workspace: Workspace, marking: Marking
) -> None:
    for _ in range(services.MOST_OPEN):
        start(workspace)
    with pytest.raises(services.TooManyOpen):
        start(workspace)
    start(other_workspace)
    Operation.objects.filter(workspace_id=workspace.id).update(state="SUCCEEDED")
    start(workspace)


def test_operations_are_listed_and_filtered_newest_first(
    api: ApiClient, workspace: Workspace, marking: Marking
) -> None:
    first = start(workspace)
    run_operations()
    second = start(workspace)
    for query, expected in {
        "": [second, first],
        "state=QUEUED": [second],
        "state=QUEUED&state=SUCCEEDED": [second, first],
        f"kind={NAME}": [second, first],
        "kind=executions.cancel": [],
    }.items():
        items = api.get(f"/v1/operations?{query}").json()["items"]
        assert {item["id"] for item in items} == {str(operation.id) for operation in expected}, query
    assert api.get("/v1/operations?limit=1").json()["next_cursor"]
    for query in ("state=DONE", "kind=nonsense", "created=1"):
        assert api.get(f"/v1/operations?{query}").status_code == 400, query


def test_another_workspaces_operation_is_404(
    api: ApiClient, other_api: ApiClient, workspace: Workspace, marking: Marking
) -> None:
    operation = start(workspace)
    assert other_api.get(f"/v1/operations/{operation.id}").status_code == 404
    assert other_api.post(f"/v1/operations/{operation.id}/abort").status_code == 404
    assert other_api.get("/v1/operations").json()["items"] == []
    assert counters(operation)[0] == "QUEUED"
    assert api.get(f"/v1/operations/{operation.id}").status_code == 200


def test_reading_and_aborting_need_their_scopes(workspace: Workspace, marking: Marking) -> None:
    operation = start(workspace)
    _, reading = tenancy.create_api_key(workspace=workspace, name="r", scopes=["executions:read"])
    _, writing = tenancy.create_api_key(workspace=workspace, name="w", scopes=["executions:write"])
    path = f"/v1/operations/{operation.id}"
    assert ApiClient(writing).get(path).status_code == 403
    assert ApiClient(writing).get("/v1/operations").status_code == 403
    assert ApiClient(reading).post(f"{path}/abort").status_code == 403
    assert ApiClient(reading).get(path).status_code == 200
    assert ApiClient(writing).post(f"{path}/abort").status_code == 200


def test_operations_that_ended_long_ago_are_purged(workspace: Workspace, marking: Marking) -> None:
    old, fresh = start(workspace), start(workspace)
    run_operations()
    still_open = start(workspace)
    Operation.objects.filter(id=old.id).update(finished_at=database_now() - services.KEPT_FOR)
    assert services.purge_operations() == 1
    assert set(Operation.objects.values_list("id", flat=True)) == {fresh.id, still_open.id}


def test_the_house_sends_the_tasks_of_operations(db: None) -> None:
    seed_periodic_tasks()
    current_app.loader.import_default_modules()
    for name in ("run_operations", "purge_operations"):
        entry = PeriodicTask.objects.get(task=f"chronos_site.api.tasks.{name}")
        assert entry.queue == "maintenance"
        assert entry.task in current_app.tasks


# --- states --------------------------------------------------------------------------------------

MOVES: dict[str, tuple[Callable[[UUID, UUID], object], dict[str, str]]] = {
    "begin": (lambda i, w: transitions.begin_operation(operation_id=i), {"QUEUED": "RUNNING"}),
    "succeed": (lambda i, w: transitions.succeed_operation(operation_id=i, gone=0), {"RUNNING": "SUCCEEDED"}),
    "abort": (
        lambda i, w: transitions.abort_operation(workspace_id=w, operation_id=i),
        {"QUEUED": "ABORTED", "RUNNING": "ABORTED"},
    ),
    "fail": (
        lambda i, w: transitions.fail_operation(operation_id=i, error="x" * 600),
        {"QUEUED": "FAILED", "RUNNING": "FAILED"},
    ),
    "advance": (
        lambda i, w: transitions.advance_operation(
            operation_id=i, after=None, done=1, skipped=0, failed=0, result={}, pace_s=None
        ),
        {"RUNNING": "RUNNING"},
    ),
    "put off": (
        lambda i, w: transitions.put_off_operation(operation_id=i, after_s=1, waiting_for=""),
        {"QUEUED": "QUEUED", "RUNNING": "RUNNING"},
    ),
    "set back": (
        lambda i, w: transitions.set_back_operation(operation_id=i, after_s=1, waiting_for=""),
        {"QUEUED": "QUEUED", "RUNNING": "RUNNING"},
    ),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("state", Operation.State.values)
def test_a_transition_changes_the_states_of_its_own_edge_and_no_others(
    workspace: Workspace, marking: Marking, move: str, state: str
) -> None:
    work, edges = MOVES[move]
    operation = start(workspace)
    Operation.objects.update(state=state)
    before = Operation.objects.values().get()
    assert bool(work(operation.id, workspace.id)) == (state in edges)
    assert counters(operation)[0] == edges.get(state, state)
    assert (Operation.objects.values().get() == before) == (state not in edges)
