"""New schedules of every kind in one transaction: all or none."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import transaction

from chronos_site.infra.clock import DatabaseClock
from chronos_site.tenancy.models import Workspace
from execution.making import Placed
from scheduling import recurring, services
from scheduling.models import Schedule
from scheduling.recurring import BadRhythm, Recurring
from scheduling.services import KeyTaken, NewSchedule, TooOld


@transaction.atomic
def create_schedules(
    *,
    workspace: Workspace,
    new: Sequence[NewSchedule | Recurring],
    traceparent: str,
    clock: DatabaseClock | None = None,
) -> list[tuple[Schedule, Placed | None]]:
    """In the order of `new`, each with the place of its execution where it fires once.

    `clock` is the database's as it was read for the same request, where it was.

    Raises TooOld, BadRhythm, KeyTaken (each with its `index` in `new`), quotas.QuotaExceeded, JobGone.
    """
    once = {place: item for place, item in enumerate(new) if isinstance(item, NewSchedule)}
    recurs = {place: item for place, item in enumerate(new) if isinstance(item, Recurring)}
    made: dict[int, tuple[Schedule, Placed | None]] = {}
    if once:
        with _placed(list(once)):
            pairs = services.create_schedules(
                workspace=workspace, new=list(once.values()), traceparent=traceparent, clock=clock
            )
        made.update(zip(once, pairs, strict=True))
    if recurs:
        with _placed(list(recurs)):
            schedules = recurring.create_recurrings(workspace=workspace, new=list(recurs.values()))
        made.update({place: (schedule, None) for place, schedule in zip(recurs, schedules, strict=True)})
    return [made[place] for place in range(len(new))]


@contextmanager
def _placed(places: Sequence[int]) -> Iterator[None]:
    """An error's index among some of the schedules becomes its index among all."""
    try:
        yield
    except (TooOld, BadRhythm, KeyTaken) as error:
        error.index = places[error.index]
        raise
