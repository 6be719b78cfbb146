"""Ctrl-C, SIGTERM and SIGHUP: the first asks for a stop in order, the second ends everything at once."""

import signal
import threading
from collections.abc import Callable
from types import FrameType


def stop_on_signals(stopping: threading.Event, *, at_once: Callable[[], None]) -> None:
    """Set `stopping` at the first signal; call `at_once` at every further one. SIGHUP stays ignored under nohup."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            at_once()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handle)
