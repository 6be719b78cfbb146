"""The look ahead: missed occurrences are judged, coming ones are made; one look at a time in each process.

Called by the task `tick`, every second, after the fire loop. A look may take seconds where very much is due at once;
the next tick's look then leaves at once, so that the worker's other threads stay free for the fire loop.
"""

import threading

from scheduling.loops.materialise import materialise_due
from scheduling.loops.misfire import judge_missed

_looking = threading.Lock()


def look_ahead() -> bool:
    """False where another look of this process is still at work."""
    if not _looking.acquire(blocking=False):
        return False
    try:
        judge_missed()
        materialise_due()
    finally:
        _looking.release()
    return True
