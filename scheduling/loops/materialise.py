"""The materialising loop: every second, the occurrences of the next two minutes become executions.

Called by the task `tick`, which the leading beat replica sends. It promises that an occurrence is made exactly once:
the insert and the advance of `next_run_at` are one transaction, under the schedule's row lock and the unique
constraint. Dying before the commit has done nothing; after it, all. Two at once share the schedules (SKIP LOCKED).
After an outage it finds every schedule that fell behind by the same index, and the misfire policy says what still
fires. A schedule that cannot be followed is paused with the reason, and holds up nobody else. A tick with nothing due
is one look into an index, however many schedules there are.
"""

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import DataError, IntegrityError, transaction

from chronos_site.infra.clock import database_now
from execution.models import JobDefinition
from scheduling import occurrences, transitions
from scheduling.models import Schedule
from scheduling.occurrences import AHEAD_S, Plan, Unplannable

log = logging.getLogger(__name__)

BATCH = 1000
BUDGET_S = 5.0


@dataclass(slots=True)
class Materialised:
    """What one tick did."""

    schedules: int = 0
    made: int = 0
    judged: int = 0
    """Schedules whose misfire policy was asked."""
    paused: int = 0
    """Schedules that cannot be followed."""


def materialise_due(*, budget_s: float = BUDGET_S, batch: int = BATCH) -> Materialised:
    """One tick."""
    done = Materialised()
    ends = time.monotonic() + budget_s
    while _materialise_batch(done, batch) == batch and time.monotonic() < ends:
        continue
    if done.made or done.judged or done.paused:
        log.info(
            "materialised",
            extra={
                "action": "materialise",
                "schedules": done.schedules,
                "made": done.made,
                "judged": done.judged,
                "paused": done.paused,
            },
        )
    return done


@transaction.atomic
def _materialise_batch(done: Materialised, batch: int) -> int:
    """Returns how many schedules were looked at."""
    now = database_now()
    found = list(
        Schedule.objects.filter(state=Schedule.State.ACTIVE, next_run_at__lte=now + timedelta(seconds=AHEAD_S))
        .order_by("next_run_at")
        .defer("created_at", "updated_at", "last_misfire")  # Reading them costs more than all the others.
        .select_for_update(skip_locked=True, no_key=True)[:batch]
    )
    jobs = JobDefinition.objects.in_bulk({s.job_definition_id for s in found if s.job_definition_id is not None})
    for schedule in found:
        # One object for all schedules of a job.
        schedule.job_definition = None if schedule.job_definition_id is None else jobs[schedule.job_definition_id]
    plans: list[Plan] = []
    for planned in occurrences.plan_all(found, now=now):
        if isinstance(planned, Plan):
            plans.append(planned)
        else:
            _pause(planned, done)
    if plans:
        done.made += _write(plans, now, done)
    done.schedules += len(found)
    done.judged += sum(planned.report is not None for planned in plans)
    return len(found)


def _write(plans: list[Plan], now: datetime, done: Materialised) -> int:
    """What the tables refuse of one schedule must not keep the others from theirs: then each is written by itself."""
    try:
        with transaction.atomic():
            return occurrences.write(plans, now=now)
    except (IntegrityError, DataError) as error:
        if len(plans) > 1:
            return sum(_write([planned], now, done) for planned in plans)
        _pause(Unplannable(plans[0].schedule, error), done)
        return 0


def _pause(cannot: Unplannable, done: Materialised) -> None:
    reason = occurrences.why_not(cannot.error)
    log.error(
        "schedule_cannot_be_followed",
        extra={"action": "materialise", "schedule_id": str(cannot.schedule.id), "reason": reason},
    )
    done.paused += len(transitions.pause_active(ids=[cannot.schedule.id], reason=reason))
