"""Liveness: a file that a process touches while it does its work, and the command that judges the file's age.

The rule for a worker. Its consumer asks the broker for messages with a poll that the broker answers within a second,
with a message or with nothing. Every two seconds a thread looks for proof, and touches the file if it finds any:

- the broker answered a poll since the last look (an idle queue counts), or
- all threads are at work, so that no poll is due, and the consumer's loop turns (each call in a task has a time limit
  of its own), or
- the broker does not answer a ping either: a restart would not help, and would be repeated until the broker is back, or
- the worker is on its way out and finishes what is in flight.

A worker that lost its consumer while the broker answers touches nothing, however alive its process is. Neither does one
with a part that has stopped (`watch`: the event loop of the dispatch engine). Beat touches the file on every tick.

The command reads one small file and nothing of the site: run it by its path, `python .../liveness.py FILE`. It must not
need the broker, or an outage would restart every worker. Only the standard library is imported here, so that a probe
costs the start of an interpreter.
"""

import argparse
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
TOLD_AFTER_LOOKS = 5
"""So many looks without proof are logged: a link that is made anew costs a few."""
MAX_AGE_S = 60.0
"""Older than this is dead: more than twice the time in which a worker whose link went silent makes it anew."""

ALIVE = 0
DEAD = 1
MISUSE = 2


# --- the process that lives ------------------------------------------------------------------------------------------


class HeartbeatFile:
    """One process's file. Replaced as a whole, so that a reader never finds half of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.{os.getpid()}")
        self._broken = False

    def clear(self) -> None:
        """Remove what an earlier process left: it says nothing of this one."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            self._say(error)

    def touch(self, proof: str) -> None:
        """Note `proof` of life, now. A folder that cannot be written to is logged, and the file gets old."""
        # The clock that a change of the system's time does not move. All processes of a machine share it.
        noted = {"at": time.monotonic(), "pid": os.getpid(), "proof": proof}
        try:
            self._beside.write_text(json.dumps(noted), encoding="utf-8")
            self._beside.replace(self._path)
            self._broken = False
        except OSError as error:
            self._say(error)

    def _say(self, error: OSError) -> None:
        if not self._broken:
            told = {"action": "liveness", "file": str(self._path), "error": str(error)}
            log.error("liveness_file_failed", extra=told)
        self._broken = True


class Liveness:
    """Watches one worker's consumption. `run` is for a thread; everything else may be called from any."""

    def __init__(
        self, *, file: HeartbeatFile, broker_answers: Callable[[], bool], look_every_s: float = LOOK_EVERY_S
    ) -> None:
        self._file = file
        self._broker_answers = broker_answers
        self._look_every_s = look_every_s
        self._stopped = threading.Event()
        self._polls = 0
        self._polls_seen = 0
        self._busy_turns = 0
        self._busy_turns_seen = 0
        self._stopping = False
        self._silent_looks = 0

    def note_poll(self) -> None:
        """The broker has answered a poll."""
        self._polls += 1

    def note_busy(self) -> None:
        """The consumer's loop has turned, and no poll is due because every thread is at work."""
        self._busy_turns += 1

    def note_stopping(self) -> None:
        """The process ends by itself: its length is the stop's grace, not the probe's."""
        self._stopping = True

    def start(self) -> None:
        self._file.clear()
        threading.Thread(target=self.run, name="liveness", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopped.wait(self._look_every_s):
            self.look()

    def look(self) -> None:
        """Look for proof once; touch the file where there is some."""
        stuck = [name for name, alive in _parts.items() if not alive()]
        proof = None if stuck else self._proof()
        if proof is not None:
            self._file.touch(proof)
            self._silent_looks = 0
            return
        self._silent_looks += 1
        if self._silent_looks == TOLD_AFTER_LOOKS:
            lost = f"{', '.join(stuck)} stopped" if stuck else "no poll was answered, and the broker answers"
            log.error("liveness_lost", extra={"action": "liveness", "reason": lost})

    def _proof(self) -> str | None:
        polls, busy = self._polls, self._busy_turns
        polled, worked = polls != self._polls_seen, busy != self._busy_turns_seen
        self._polls_seen, self._busy_turns_seen = polls, busy
        if self._stopping:
            return "stopping"
        if polled:
            return "polled the broker"
        if worked:
            return "all threads at work"
        return None if self._broker_answers() else "broker away"


_parts: dict[str, Callable[[], bool]] = {}


def watch(name: str, alive: Callable[[], bool]) -> None:
    """From now on the process is dead while `alive()` is false. A part that ends politely calls `unwatch`."""
    _parts[name] = alive


def unwatch(name: str) -> None:
    _parts.pop(name, None)


# --- the probe -------------------------------------------------------------------------------------------------------


def judge(path: Path, *, max_age_s: float) -> dict[str, object]:
    """What the file says: {"alive", "age_s", "proof", "pid", "reason"}; `age_s` is None where it says nothing."""
    found: dict[str, object] = {"alive": False, "age_s": None, "proof": None, "pid": None}
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
        age_s = time.monotonic() - float(noted["at"])
    except FileNotFoundError:
        reason = "does not exist: the process has not begun to work, or CHRONOS_LIVENESS_FILE names another file."
        return {**found, "reason": f"{path} {reason}"}
    except OSError as error:
        return {**found, "reason": f"{path} cannot be read: {error.strerror}. Look at the folder and its rights."}
    except (ValueError, KeyError, TypeError):
        return {**found, "reason": f"{path} is no heartbeat file: name the one that CHRONOS_LIVENESS_FILE names."}
    found |= {"age_s": round(age_s, 1), "proof": noted.get("proof"), "pid": noted.get("pid")}
    if 0 <= age_s <= max_age_s:
        return {**found, "alive": True, "reason": f"Alive {age_s:.1f} s ago: {found['proof']}."}
    if age_s > max_age_s:
        reason = f"The last sign of life is {age_s:.0f} s old, more than {max_age_s:g} s: restart the process."
        return {**found, "reason": reason}
    reason = "is from before the machine's last start: the process has not begun to work."
    return {**found, "reason": f"{path} {reason}"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 alive, 1 dead, 2 the command was called wrongly."""
    parser = argparse.ArgumentParser(
        prog="liveness.py",
        description="Says whether a worker consumes, or beat ticks, by the age of its heartbeat file.",
        epilog="Exit codes: 0 alive, 1 not alive (restart the process), 2 called wrongly.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="what CHRONOS_LIVENESS_FILE names for that process")
    parser.add_argument("--max-age", metavar="SECONDS", type=_seconds, default=MAX_AGE_S, help="default: %(default)g")
    parser.add_argument("--json", action="store_true", help="answer one JSON object in place of a sentence")
    given = parser.parse_args(arguments)
    found = judge(given.file, max_age_s=given.max_age)
    sys.stdout.write((json.dumps(found) if given.json else str(found["reason"])) + "\n")
    return ALIVE if found["alive"] else DEAD


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0.")
    return value


if __name__ == "__main__":
    sys.exit(main())
