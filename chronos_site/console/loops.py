"""What is wrong with the loops of the house: their rows are the one source of periods, and people can edit them."""

from datetime import timedelta
from typing import Any

import psycopg

from chronos_site.beat import HOUSE_TASKS

_LOOK = (
    "SELECT p.name, p.enabled, i.every, i.period FROM django_celery_beat_periodictask p"
    " LEFT JOIN django_celery_beat_intervalschedule i ON i.id = p.interval_id WHERE p.name = ANY(%s)"
)


def loop_warnings(database: psycopg.Connection[Any]) -> list[str]:
    """A sentence for each loop that is switched off, slower than it was made, or not there."""
    rows = {
        name: (enabled, every, period)
        for name, enabled, every, period in database.execute(_LOOK, [[name for name, *_ in HOUSE_TASKS]])
    }
    warnings = []
    for name, _task, _queue, every, period in HOUSE_TASKS:
        found = rows.get(name)
        if found is None:
            warnings.append(f"{name}: it has no row; a beat makes it when it starts.")
        elif not found[0]:
            warnings.append(f"{name}: it is switched off.")
        elif found[1] is None:
            warnings.append(f"{name}: it has no interval, so it may come late; it was made for every {every} {period}.")
        elif timedelta(**{found[2]: found[1]}) > timedelta(**{str(period): every}):
            warnings.append(f"{name}: every {found[1]} {found[2]} in place of every {every} {period}.")
    return warnings
