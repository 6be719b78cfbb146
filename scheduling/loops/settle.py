"""The settle loop: reads from the rows of the lower room what has become of this room's schedules.

Called by the task `settle`, every few seconds. No event has to arrive for it: what a tick misses, the next one finds.
"""

from scheduling import transitions

MOST = 10_000


def settle_schedules() -> int:
    """One tick. Returns how many schedules are completed."""
    return len(transitions.complete_ended(most=MOST))
