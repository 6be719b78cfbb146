"""Ctrl-C, SIGTERM and SIGHUP: the first asks for a stop in order, a later one ends everything at once."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

SAME_WISH_S = 1.0
"""Signals this close together are one wish: a terminal and `make` both pass one on."""


def stop_on_signals(stopping: threading.Event, *, at_once: Callable[[], None]) -> None:
    """Set `stopping` at the first signal; call `at_once` at a later one. SIGHUP stays ignored under nohup."""
    first = 0.0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal first
        if not stopping.is_set():
            first = time.monotonic()
            stopping.set()
        elif time.monotonic() - first > SAME_WISH_S:
            at_once()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handle)
