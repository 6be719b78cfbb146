"""From the entries of a crontab to the schedules that they become; each has a key that the next import finds again.

Keys: `<prefix>:<name>` where a `# name:` comment names the entry, otherwise `<prefix>:<hash>` of its times and command.
So importing the same file again changes nothing; editing a named line changes its schedule, and editing an unnamed one
makes another, beside the old (the command tells which are no longer in the file).
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from chronos_site.api.parsers import parse_json
from chronos_site.api.problems import Problem
from scheduling.files import curl, shell
from scheduling.files.crontab import Crontab, Entry, Fault, Note
from scheduling.files.shape import ShapeReader, Wanted, hides

UTC = "UTC"
NOT_HERE = {"key", "external_key", "cron", "every", "timezone", "anchor", "run_at", "delay_s"}
"""What the line itself, or its name comment, says."""
TELL_EVERY = 1000
NO_MAX_TIME = "no --max-time"


@dataclass(slots=True)
class Imported:
    wanted: list[Wanted] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    without_zone: int = 0
    """Entries for which nothing names a zone: they are read in UTC."""
    without_limit: int = 0
    """curl calls without --max-time."""


def read_entries(crontab: Crontab, *, prefix: str, say: Callable[[str], None] = lambda _text: None) -> Imported:
    found = Imported(faults=list(crontab.faults), notes=list(crontab.notes))
    reader, keys = ShapeReader(), _Keys(prefix)
    for number, entry in enumerate(crontab.entries, start=1):
        if number % TELL_EVERY == 0:
            say(f"read {number:,} of {len(crontab.entries):,} lines")
        key = keys.of(entry)
        if isinstance(key, Fault):
            found.faults.append(key)
            continue
        read = _read(entry, key, reader, found)
        if isinstance(read, Wanted):
            found.wanted.append(read)
            found.without_zone += entry.zone is None
        else:
            found.faults += read
    found.faults.sort(key=lambda fault: fault.line)
    return found


class _Keys:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.seen: dict[str, int] = {}

    def of(self, entry: Entry) -> str | Fault:
        if entry.name is not None:
            key = f"{self.prefix}:{entry.name}"
            if key in self.seen:
                return Fault(entry.line, f"The name {entry.name!r} stands above line {self.seen[key]} already.", key)
        else:
            key = self._by_hash(entry)
        self.seen[key] = entry.line
        return key

    def _by_hash(self, entry: Entry) -> str:
        """The second of two equal lines is a schedule of its own, as cron runs both."""
        text = "\n".join([entry.expression, entry.command, entry.stdin or ""])
        base = f"{self.prefix}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        key, number = base, 1
        while key in self.seen:
            number += 1
            key = f"{base}-{number}"
        return key


def _read(entry: Entry, key: str, reader: ShapeReader, found: Imported) -> Wanted | list[Fault]:
    try:
        fields, notes = _fields(entry)
    except shell.NotPlain as error:
        return [Fault(entry.line, str(error), key)]
    except Problem as error:
        return [Fault(entry.options_line, f"The chronos comment: {error.detail}", key)]
    if NO_MAX_TIME in notes:
        notes.remove(NO_MAX_TIME)
        found.without_limit += 1
    shape = {**fields, "key": key, "cron": entry.expression, "timezone": entry.zone or UTC}
    read = reader.read(shape, line=entry.line, locate=lambda _path: entry.line)
    if isinstance(read, Wanted):
        notes += [_told_secret(name) for name, value in _headers(shape) if hides(name, value)]
        found.notes += [Note(entry.line, text) for text in notes]
    return read


def _fields(entry: Entry) -> tuple[dict[str, Any], list[str]]:
    """Raises NotPlain, Problem."""
    options = _options(entry)
    if "target" in options or "job_definition" in options:
        return options, []
    fields, notes = curl.read_curl(shell.words_of(entry.command), stdin=entry.stdin)
    delivery = options.get("delivery", {})
    if isinstance(delivery, dict):  # what is none is refused with all the rest
        delivery = {**fields["delivery"], **delivery}
        if "timeout_s" not in delivery:
            notes.append(NO_MAX_TIME)
    return {**fields, **options, "delivery": delivery}, notes


def _options(entry: Entry) -> dict[str, Any]:
    if entry.options is None:
        return {}
    options = parse_json(entry.options.encode("utf-8", "surrogatepass"))
    if not isinstance(options, dict):
        raise Problem(422, "invalid", 'It must be a JSON object, like {"tags": ["nightly"]}.')
    wrong = sorted(options.keys() & NOT_HERE)
    if wrong:
        raise Problem(422, "invalid", f"{wrong[0]} does not belong here: the line and its name comment say it.")
    return options


def _headers(shape: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for part in ("target", "delivery"):
        yield from ((shape.get(part) or {}).get("headers") or {}).items()


def _told_secret(name: str) -> str:
    return f"The header {name} looks like a secret: everybody who may read this schedule sees it."
