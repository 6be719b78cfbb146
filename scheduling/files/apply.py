"""Make a workspace hold what a file asks for: all of it or nothing, in one transaction.

The commands call it. Two of them at once on one workspace go one after the other (an advisory lock), so the second
sees what the first made and makes nothing twice. Whoever dies half-way has changed nothing. A change by somebody else
between the look and the write is refused by the version that the write expects; the caller is told to run it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg import errors as postgres

from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution import buckets
from execution.domain.buckets import SHARD_SPACE, first_bucket_of_minute
from execution.quotas import QuotaExceeded
from execution.services import Refused
from scheduling import recurring
from scheduling.files.compare import LIVING, Kind, Step, compare
from scheduling.files.crontab import Fault
from scheduling.files.shape import Wanted
from scheduling.models import Schedule
from scheduling.occurrences import AHEAD_S
from scheduling.recurring import Recurring

TRIES = 3
"""Of the whole, where Postgres broke a deadlock with somebody else's work by ending ours."""
TELL_EVERY = 1000
LONGEST_PAUSE = "5min"

Say = Callable[[str], None]


class Interrupted(Exception):  # noqa: N818 - a state of affairs
    """Nothing was changed, for a reason that lies outside of the file. The text is one sentence for a person."""


@dataclass(slots=True)
class Outcome:
    """`faults`: nothing was changed. `applied`: the steps were taken."""

    steps: list[Step] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    applied: bool = False


def apply_wanted(
    *,
    workspace: Workspace,
    wanted: Sequence[Wanted],
    prune: str | None = None,
    remake: bool = True,
    dry_run: bool = False,
    say: Say = lambda _text: None,
) -> Outcome:
    """Compare, and unless it is a dry run or something is wrong, act. Raises Interrupted."""
    if dry_run:
        steps, faults = compare(workspace=workspace, wanted=wanted, prune=prune, remake=remake)
        return Outcome(steps, faults)
    _open_buckets_ahead()
    try:
        return _try_often(workspace, wanted, prune, remake, say)
    except (Refused, QuotaExceeded) as error:
        raise Interrupted(f"{error} Nothing was changed.") from error


def _try_often(workspace: Workspace, wanted: Sequence[Wanted], prune: str | None, remake: bool, say: Say) -> Outcome:
    for left in reversed(range(TRIES)):
        try:
            return _apply(workspace, wanted, prune, remake, say)
        except OperationalError as error:
            if not left or not isinstance(error.__cause__, postgres.DeadlockDetected):
                raise
            say("another process was in the way; trying again")
    raise AssertionError("unreachable")


@transaction.atomic
def _apply(workspace: Workspace, wanted: Sequence[Wanted], prune: str | None, remake: bool, say: Say) -> Outcome:
    _wait_for_others(workspace)
    steps, faults = compare(workspace=workspace, wanted=wanted, prune=prune, remake=remake)
    if faults:
        return Outcome(steps, faults)
    _cancel(workspace, [step for step in steps if step.kind == Kind.CANCEL], say)
    _change(workspace, [step for step in steps if step.kind == Kind.CHANGE], say)
    _make(workspace, [step for step in steps if step.kind == Kind.MAKE])
    return Outcome(steps, applied=True)


def _wait_for_others(workspace: Workspace) -> None:
    """Up to the statement timeout, for whoever else brings a file into this workspace."""
    try:
        with connection.cursor() as cursor:
            # Between two statements lies work on all the schedules: a slow machine must not lose its connection.
            cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{LONGEST_PAUSE}'")
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"schedule files {workspace.id}"])
    except OperationalError as error:
        if not isinstance(error.__cause__, postgres.QueryCanceled):
            raise
        raise Interrupted("Another file is being brought into this workspace; run this again in a minute.") from error


def _make(workspace: Workspace, steps: Sequence[Step]) -> None:
    if not steps:
        return
    ended = [step.schedule.id for step in steps if step.schedule is not None]
    Schedule.objects.filter(workspace=workspace, id__in=ended).exclude(state__in=LIVING).update(external_key=None)
    new = [Recurring(external_key=step.key, **step.wanted.values) for step in steps if step.wanted is not None]
    made = recurring.create_recurrings(workspace=workspace, new=new)
    for step, schedule in zip(steps, made, strict=True):
        step.schedule = schedule
        if step.pause:
            step.schedule = recurring.pause_schedule(workspace=workspace, schedule_id=schedule.id)


def _change(workspace: Workspace, steps: Sequence[Step], say: Say) -> None:
    """In the order of ids, as everybody locks schedules who locks several."""
    for number, step in enumerate(sorted(steps, key=_id_of), start=1):
        schedule = step.schedule
        if schedule is None:
            continue
        if step.changes:
            step.schedule = recurring.update_recurring(
                workspace=workspace, schedule_id=schedule.id, expected_version=schedule.version, changes=step.changes
            )
        if step.pause is True:
            step.schedule = recurring.pause_schedule(workspace=workspace, schedule_id=schedule.id)
        elif step.pause is False:
            step.schedule = recurring.resume_schedule(workspace=workspace, schedule_id=schedule.id)
        if number % TELL_EVERY == 0:
            say(f"changed {number:,} of {len(steps):,}")


def _cancel(workspace: Workspace, steps: Sequence[Step], say: Say) -> None:
    for number, step in enumerate(sorted(steps, key=_id_of), start=1):
        if step.schedule is not None:
            step.schedule, _ = recurring.cancel_recurring(workspace=workspace, schedule_id=step.schedule.id)
        if number % TELL_EVERY == 0:
            say(f"cancelled {number:,} of {len(steps):,}")


def _id_of(step: Step) -> str:
    return "" if step.schedule is None else str(step.schedule.id)


def _open_buckets_ahead() -> None:
    """Make and commit the buckets of the next minutes beforehand.

    A bucket that our long transaction made itself would hold up everybody who adds work to the same minute until we
    commit; buckets that are there already are only shared.
    """
    minutes = int(AHEAD_S // 60) + 2
    with transaction.atomic():
        first = first_bucket_of_minute(database_now().timestamp())
        buckets.open_buckets(
            first + minute * SHARD_SPACE + shard
            for minute in range(minutes + 1)
            for shard in range(settings.CHRONOS_BUCKET_SHARDS)
        )
