"""What a person sees of the stack: one line per event, with the time and the process; full logs go to files."""

import contextlib
import json
import threading
from datetime import datetime
from pathlib import Path
from typing import IO, TextIO

LOG_BYTES = 20_000_000
_SHOWN_LEVELS = {"ERROR", "CRITICAL"}


class Console:
    """Lines for a terminal or a file. A terminal that is gone does not stop the stack."""

    def __init__(self, stream: TextIO, *, verbose: bool) -> None:
        self.verbose = verbose
        self._stream = stream
        self._turn = threading.Lock()

    def say(self, name: str, text: str) -> None:
        """One event of one process; further lines of the text are indented below it."""
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        first, *more = text.splitlines() or [""]
        self.write("\n".join([f"{now} {name:<10} {first}", *(f"{'':19} {line}" for line in more)]))

    def write(self, text: str) -> None:
        with self._turn, contextlib.suppress(OSError, ValueError):
            self._stream.write(text + "\n")
            self._stream.flush()


class LogPump(threading.Thread):
    """Copies a process's output to its log (begun anew at 20 MB, the last one kept), and errors to the console."""

    def __init__(self, *, name: str, source: IO[bytes], log: Path, console: Console, ready_text: str) -> None:
        super().__init__(name=f"log-{name}", daemon=True)
        self.ready = threading.Event()
        """Set once the output has held `ready_text` (at once where that is empty)."""
        self._process = name
        self._source = source
        self._log = log
        self._console = console
        self._ready_text = ready_text.encode()
        if not ready_text:
            self.ready.set()

    def run(self) -> None:
        handle = self._log.open("ab")
        try:
            for line in self._source:
                if handle.tell() > LOG_BYTES:
                    handle.close()
                    self._log.replace(self._log.with_suffix(".log.1"))
                    handle = self._log.open("ab")
                handle.write(line)
                handle.flush()
                if not self.ready.is_set() and self._ready_text in line:
                    self.ready.set()
                self._show(line.decode("utf-8", "replace").rstrip())
        finally:
            handle.close()
            self._source.close()

    def _show(self, line: str) -> None:
        if self._console.verbose:
            self._console.say(self._process, line)
            return
        text = error_text(line)
        if text is not None:
            self._console.say(self._process, text)


def error_text(line: str) -> str | None:
    """What the console shows of a log line: the message of a JSON record of level ERROR or above, else nothing."""
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("level") not in _SHOWN_LEVELS:
        return None
    return f"{record['level'].lower()}: {record.get('msg', '')}"[:500]
