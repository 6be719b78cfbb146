"""The misfire loop: occurrences that were made, passed their deadline and wait are judged by their schedule's policy.

Called by the task `tick`. Fan-out parks such rows (all was down, or their job was paused); here they are judged
together with what was never made, under the schedule's lock. Those that fire go back into a bucket without a deadline,
so that they are judged once; the others end as SKIPPED with the reason. What comes back to a schedule that is paused
meanwhile (from a worker, by a dispatch switch) is withdrawn and judged on resume. A schedule that cannot be followed is
paused with the reason, and holds up nobody else. Dying half-way changes nothing.
"""

import logging
from collections import defaultdict
from datetime import datetime
from uuid import UUID

from django.db import DataError, IntegrityError, transaction

from chronos_site.infra.clock import database_now
from execution import services as execution_services
from execution import transitions as execution_transitions
from execution.models import Execution
from scheduling import occurrences, recurring
from scheduling.models import Schedule

log = logging.getLogger(__name__)

MOST_ROWS = 5000


def judge_missed() -> int:
    """One tick. Returns how many rows were judged."""
    parked = Execution.objects.filter(state="PENDING", park_reason="misfire", schedule_id__isnull=False)
    found = parked.order_by("schedule_id").values_list("schedule_id", flat=True)[:MOST_ROWS]
    schedule_ids = sorted({schedule_id for schedule_id in found if schedule_id is not None})
    judged = sum(map(_judge_schedule, schedule_ids))
    if judged:
        log.info("judged_missed", extra={"action": "misfire", "schedules": len(schedule_ids), "rows": judged})
    return judged


@transaction.atomic
def _judge_schedule(schedule_id: UUID) -> int:
    schedule = (
        Schedule.objects.filter(id=schedule_id).select_for_update(of=("self",), skip_locked=True, no_key=True).first()
    )
    now = database_now()
    rows = _lock_missed(schedule_id, now)
    if schedule is None or not rows:
        return 0
    if schedule.state == Schedule.State.PAUSED:
        recurring.withdraw_all(schedule=schedule)
        return len(rows)
    known = {} if schedule.next_run_at is None else occurrences.times_on_record([schedule])
    try:
        planned = occurrences.plan(schedule, now=now, held=list(rows), known=known.get(schedule.id, frozenset()))
    except occurrences.CANNOT_BE_FOLLOWED as error:
        return _pause(schedule, error)
    try:
        with transaction.atomic():
            occurrences.write([planned], now=now)
    except (IntegrityError, DataError) as error:
        return _pause(schedule, error)
    verdict = planned.verdict
    assert verdict is not None  # noqa: S101 - rows were held, so they were judged
    execution_services.release_missed(ids=[rows[at] for at in planned.fire if at in rows], now=now)
    skipped: dict[str, list[UUID]] = defaultdict(list)
    for at, row_id in rows.items():
        if at not in planned.fire:
            skipped[f"misfire_{verdict.reason(at)}"].append(row_id)
    for reason, ids in skipped.items():
        execution_transitions.skip_pending(ids=ids, reason=reason)
    return len(rows)


def _pause(schedule: Schedule, error: Exception) -> int:
    """Nothing was judged: its rows are withdrawn with the pause."""
    reason = occurrences.why_not(error)
    log.error(
        "schedule_cannot_be_followed",
        extra={"action": "misfire", "schedule_id": str(schedule.id), "reason": reason},
    )
    recurring.pause_failing(workspace_id=schedule.workspace_id, schedule_id=schedule.id, reason=reason)
    return 0


def _lock_missed(schedule_id: UUID, now: datetime) -> dict[datetime, UUID]:
    """The schedule's parked rows by nominal time. Those that lie ahead of a clock that was set back wait for it."""
    parked = Execution.objects.filter(schedule_id=schedule_id, state="PENDING", park_reason="misfire", run_no=0)
    return dict(
        parked.filter(scheduled_for__lte=now).order_by("id").select_for_update().values_list("scheduled_for", "id")
    )
