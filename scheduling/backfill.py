"""Backfill: the occurrences of a past range become executions now, as a recurring schedule would have made them.

Called by the API (`start_backfill`) and by the runner of `chronos_site.api.operations` (`_step`, in its transaction).
The rhythm is frozen when the operation is accepted; what is delivered is what the schedule says at the moment when it
is made. An occurrence that exists already, whatever became of it, is left and counted as skipped, so that none runs
twice; `force` runs it again under its next run number. At most `max_running` of its executions are under way at once:
the operation waits for them. They take no part in the schedule's overlap policy, which would pass most of them over.

The cursor is a nominal time, written as a UUID. Steps run under the schedule's row lock: once a cancel has answered,
nothing more is made. Dying half-way rolls a step back, cursor included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Max

from chronos_site.api.models import Operation
from chronos_site.api.operations.registry import Found, Kind, Scope, Step, TryLater, register_kind
from chronos_site.api.operations.services import start_operation
from chronos_site.infra.clock import database_now
from chronos_site.observability import tracing
from chronos_site.tenancy.models import Workspace
from execution import making, quotas
from execution.domain.states import TERMINAL, State
from execution.making import NewExecution
from execution.models import Execution
from execution.quotas import QuotaExceeded
from execution.services import Refused
from scheduling import occurrences
from scheduling.domain.rhythm import Rhythm
from scheduling.models import Schedule
from scheduling.recurring import NotRecurring
from scheduling.services import Ended

BACKFILL = "schedules.backfill"
MOST = 100_000
"""Occurrences of one backfill."""
MAX_RUNNING = 10
BATCH = 200
"""Each carries a payload."""
WAIT_S = 1.0
QUOTA_WAIT_S = 10.0
MOST_ROUNDS = 10
"""Tries to find free run numbers, while replays take them."""

NOT_ENDED = [state for state in State if state not in TERMINAL]
TIMES = ("anchor", "starts_at", "ends_at")

_INSTANT = timedelta(microseconds=1)
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)


class BadRange(Refused):
    """The range cannot be backfilled; `field` names the member, `count` how many occurrences it holds."""

    def __init__(self, text: str, *, code: str, field: str, count: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.field = field
        self.count = count


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a range holds, and the operation that was made of it; None for a dry run."""

    count: int
    first: datetime | None
    last: datetime | None
    operation: Operation | None


def register_kinds() -> None:
    """Called once, when the app is ready."""
    register_kind(Kind(name=BACKFILL, count=_count, step=_step, batch=BATCH))


def start_backfill(
    *,
    workspace: Workspace,
    schedule_id: UUID,
    begin: datetime,
    end: datetime,
    force: bool = False,
    max_running: int | None = None,
    dry_run: bool = False,
) -> Backfill:
    """From `begin` until before `end`. Raises NotRecurring, Ended where it was cancelled, BadRange, TooManyOpen."""
    schedule = Schedule.objects.get(workspace=workspace, id=schedule_id)
    if schedule.kind == Schedule.Kind.ONCE:
        raise NotRecurring("This schedule fires once: it has no past occurrences to fill in.", state=schedule.state)
    if schedule.state == Schedule.State.CANCELLED:
        raise Ended("The schedule is CANCELLED. Make a new one.", state=schedule.state)
    rhythm = occurrences.rhythm_of(schedule)
    _check_range(rhythm, begin, end)
    if max_running is None:
        max_running = MAX_RUNNING if schedule.overlap == Execution.Overlap.ALLOW else 1
    started = start_operation(
        workspace_id=workspace.id,
        kind=BACKFILL,
        filter={"schedule": [str(schedule.id)], "from": begin.isoformat(), "to": end.isoformat()},
        arguments={"force": force, "max_running": max_running, "rhythm": _frozen(rhythm)},
        dry_run=dry_run,
    )
    first, last = rhythm.after(begin - _INSTANT), next(rhythm.back(end - _INSTANT), None)
    if started.count == 0:
        first = last = None
    return Backfill(started.count, first, last, started.operation)


def _check_range(rhythm: Rhythm, begin: datetime, end: datetime) -> None:
    if end <= begin:
        raise BadRange("`to` must lie after `from`.", code="invalid", field="to")
    if end > database_now():
        raise BadRange("`to` lies in the future; the schedule itself sees to that.", code="in_the_future", field="to")
    count = rhythm.count(begin - _INSTANT, end - _INSTANT)
    if count > MOST:
        raise BadRange(
            f"The range holds {count:,} occurrences; {MOST:,} is the most of one backfill. Take a shorter one.",
            code="range_too_large",
            field="to",
            count=count,
        )


# --- the operation ---------------------------------------------------------------------------------------------------


def _count(scope: Scope) -> Found:
    rhythm, begin, end = _rhythm(scope), _time(scope, "from"), _time(scope, "to")
    total = rhythm.count(begin - _INSTANT, end - _INSTANT)
    last = next(rhythm.back(end - _INSTANT), None) if total else None
    return Found(total, None if last is None else _as_cursor(last))


def _step(scope: Scope, after: UUID | None, limit: int) -> Step:
    """The next occurrences, as many as may run beside those that are under way. Raises TryLater where that is none."""
    schedule = (
        Schedule.objects.select_for_update(of=("self",), no_key=True)
        .select_related("workspace")
        .get(workspace_id=scope.workspace_id, id=scope.filter["schedule"][0])
    )
    if schedule.state == Schedule.State.CANCELLED:
        return Step(after=after, finished=True)
    room = _room(scope, schedule)
    passed = _time(scope, "from") - _INSTANT if after is None else _as_time(after)
    times = _rhythm(scope).between(passed, _time(scope, "to") - _INSTANT, limit)
    force = bool(scope.arguments["force"])
    seen, chosen = _choose(times, set() if force else _existing(schedule, times), room)
    done = _make_again(schedule, chosen) if force else _make(schedule, chosen)
    return Step(
        done=done,
        skipped=len(seen) - done,
        after=_as_cursor(seen[-1]) if seen else after,
        finished=len(seen) == len(times) < limit,
    )


def _room(scope: Scope, schedule: Schedule) -> int:
    """How many more may run now: within `max_running` and the workspace's quota. Raises TryLater for none."""
    most = int(scope.arguments["max_running"])
    under_way = Execution.objects.filter(
        workspace_id=scope.workspace_id,
        schedule_id=schedule.id,
        trigger=Execution.Trigger.BACKFILL,
        scheduled_for__gte=_time(scope, "from"),
        scheduled_for__lt=_time(scope, "to"),
        created_at__gte=scope.accepted_at,
        state__in=NOT_ENDED,
    )
    room = most - under_way[:most].count()
    if room <= 0:
        raise TryLater(f"{most} of its executions are under way, as many as max_running lets.", after_s=WAIT_S)
    while True:
        try:
            quotas.check_pending(workspace=schedule.workspace, adding=room)
        except QuotaExceeded as error:
            room //= 2
            if room == 0:
                raise TryLater(str(error), after_s=QUOTA_WAIT_S) from error
        else:
            return room


def _existing(schedule: Schedule, times: Sequence[datetime]) -> set[datetime]:
    return set(
        Execution.objects.filter(schedule_id=schedule.id, scheduled_for__in=times, run_no=0).values_list(
            "scheduled_for", flat=True
        )
    )


def _choose(times: Sequence[datetime], existing: set[datetime], room: int) -> tuple[list[datetime], list[datetime]]:
    """The times that this step passes, and those of them that it makes: `room` at most."""
    chosen: list[datetime] = []
    for place, at in enumerate(times):
        if at in existing:
            continue
        if len(chosen) == room:
            return list(times[:place]), chosen
        chosen.append(at)
    return list(times), chosen


def _make(schedule: Schedule, times: Sequence[datetime]) -> int:
    """Returns how many were made: whoever comes second to an occurrence makes nothing."""
    return len(_insert(schedule, dict.fromkeys(times, 0)))


def _make_again(schedule: Schedule, times: Sequence[datetime]) -> int:
    """Every one under its next run number; a replay may take one meanwhile."""
    missing = set(times)
    for _ in range(MOST_ROUNDS):
        if not missing:
            break
        rows = Execution.objects.filter(schedule_id=schedule.id, scheduled_for__in=missing)
        last = dict(rows.values_list("scheduled_for").annotate(Max("run_no")))
        missing -= _insert(schedule, {at: last[at] + 1 if at in last else 0 for at in sorted(missing)})
    return len(times) - len(missing)


def _insert(schedule: Schedule, runs: dict[datetime, int]) -> set[datetime]:
    """Make these runs, due now. Returns the times of those that were really made."""
    if not runs:
        return set()
    now = database_now()
    snapshot = {
        **occurrences.snapshot_of(schedule),
        "trigger": Execution.Trigger.BACKFILL,
        "on_deadline": Execution.OnDeadline.EXPIRE,
        "overlap": Execution.Overlap.ALLOW,
        "concurrency_key": None,
    }
    new = [
        NewExecution(scheduled_for=at, due_at=now, run_no=run_no, traceparent=tracing.new_trace(), **snapshot)
        for at, run_no in runs.items()
    ]
    made = making.insert_executions(new=[(schedule.workspace_id, item) for item in new], now=now)
    return {item.scheduled_for for item in new if item.id in made}


# --- what is frozen ------------------------------------------------------------------------------------------------


def _frozen(rhythm: Rhythm) -> dict[str, Any]:
    times = {name: getattr(rhythm, name) for name in TIMES}
    return {
        "expression": rhythm.expression,
        "timezone": rhythm.timezone,
        "every_s": rhythm.every_s,
        **{name: None if at is None else at.isoformat() for name, at in times.items()},
    }


def _rhythm(scope: Scope) -> Rhythm:
    frozen = dict(scope.arguments["rhythm"])
    for name in TIMES:
        frozen[name] = None if frozen[name] is None else datetime.fromisoformat(frozen[name])
    return Rhythm(**frozen)


def _time(scope: Scope, name: str) -> datetime:
    return datetime.fromisoformat(scope.filter[name])


def _as_cursor(at: datetime) -> UUID:
    return UUID(int=(at - _UNIX) // _INSTANT)


def _as_time(cursor: UUID) -> datetime:
    return _UNIX + cursor.int * _INSTANT
