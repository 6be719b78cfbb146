"""Whether somebody leads the site's loops, as their rows tell: each loop notes its ticks in the table."""

from django.conf import settings
from django.db import connection

LOOPS = {"notifications": ("scheduler", 2), "monitor": ("monitor", 6)}
"""By the row: the lock that its leader holds, and how many times the TTL of a lock it may be silent. The monitor's lock
lives three times as long as the scheduler's."""


def missing_leader() -> str:
    """The locks whose loops have been silent for too long, in a few words; empty where all is well.

    A site that has never ticked misses nobody, and a database that has just started tells of nobody's silence.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, extract(epoch FROM clock_timestamp() - greatest(ticked_at, pg_postmaster_start_time()))"
            " FROM execution_loop WHERE name = ANY(%s)",
            [list(LOOPS)],
        )
        silent = [LOOPS[name][0] for name, age_s in cursor.fetchall() if age_s > _patience_s(name)]
    return ", ".join(sorted(silent))


def _patience_s(name: str) -> float:
    return float(settings.CHRONOS_LEADER_TTL_S) * LOOPS[name][1]
