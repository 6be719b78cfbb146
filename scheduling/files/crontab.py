"""A user's crontab, read as cron reads it: bytes in, entries with their lines out. Pure, and it never raises.

What a line says is decided here (times, command, the text after `%`, the zone that holds for it); what its command does
is for `shell` and `curl`. A line that cannot be read is a `Fault` with its reason, and so is every line that depends on
one: after a zone that does not exist nobody knows when the lines below it fire.

Two comments mean something to the entry right below them (other comments may stand between, a blank line may not):

    # name: nightly-report            the entry's own name, kept when its line changes
    # chronos: {"target": {...}, …}   JSON: fields of a schedule; with `target` or `job_definition` in it the command
                                      is not read
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from scheduling.domain import cron
from scheduling.domain.errors import ScheduleError

MOST_BYTES = 10 * 1024 * 1024
MOST_LINE_BYTES = 128 * 1024
MOST_ENTRIES = 20_000

_ENVIRONMENT = re.compile(r"""(?:"([^"=]+)"|'([^'=]+)'|([^\s"'=]+))\s*=\s*(.*)""", re.DOTALL)
_MEANING = re.compile(r"#\s*(name|chronos)\s*:\s*(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_.:/=-]{1,100}")
_ENTRY = re.compile(r"(@\S+|\S+(?:[ \t]+\S+){4})[ \t]+(\S.*)", re.DOTALL)
_PROXY = re.compile(r"(?:https?|ftp|all|no)_proxy|curl_\w+|ssl_cert_(?:file|dir)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fault:
    """What cannot be read. `line` counts from 1; `key` names the schedule where that is known."""

    line: int
    text: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """What was read otherwise than it was perhaps meant."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line that fires. `zone` None: no line of the file names one."""

    line: int
    expression: str
    command: str
    stdin: str | None
    """What cron writes to the command's standard input; None where nothing is given."""
    zone: str | None
    name: str | None = None
    options: str | None = None
    """The text of the `# chronos:` comment above it."""
    options_line: int = 0


@dataclass(slots=True)
class Crontab:
    entries: list[Entry] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


@dataclass(slots=True)
class _State:
    """What the lines above say about the lines below."""

    cron_tz: str | None = None
    tz: str | None = None
    no_zone: str = ""
    """Why the zone is not known, where a line above named one that does not exist."""
    proxy: int = 0
    """The line that sets a proxy or another thing that curl obeys."""
    name: str | None = None
    name_line: int = 0
    options: str | None = None
    options_line: int = 0


def parse(raw: bytes, *, timezone: str | None = None) -> Crontab:
    """Read a whole crontab. `timezone` is cron's own zone where it is known: CRON_TZ comes before it, TZ after it."""
    found, state = Crontab(), _State()
    for number, line in _lines(raw, found):
        text = line.lstrip(" \t")
        if not text.strip():
            _drop_comments(found, state)
        elif text.startswith("#"):
            _read_comment(number, text, found, state)
        elif (variable := _ENVIRONMENT.fullmatch(text)) is not None:
            _read_variable(number, variable, found, state, timezone)
        else:
            _read_entry(number, text, found, state, timezone)
    _drop_comments(found, state)
    return found


def _lines(raw: bytes, found: Crontab) -> Iterator[tuple[int, str]]:
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if b"\0" in raw:
        number = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        found.faults.append(Fault(number, "This is no text file: it holds a NUL byte."))
        return
    for number, ended in enumerate(raw.split(b"\n"), start=1):
        line = ended.removesuffix(b"\r")
        if len(line) > MOST_LINE_BYTES:
            text = f"The line has {len(line):,} bytes; cron takes at most {MOST_LINE_BYTES:,}."
            found.faults.append(Fault(number, text))
            continue
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError as error:
            found.faults.append(Fault(number, f"The line is not UTF-8 at byte {error.start + 1}; save it as UTF-8."))


# --- comments ------------------------------------------------------------------------------------------------


def _read_comment(number: int, text: str, found: Crontab, state: _State) -> None:
    meaning = _MEANING.fullmatch(text)
    if meaning is None:
        return
    value = meaning[2].strip()
    if meaning[1] == "chronos":
        if state.options is not None:
            found.faults.append(Fault(state.options_line, "Another chronos comment follows for the same line."))
        state.options, state.options_line = value, number
    elif _NAME.fullmatch(value):
        state.name, state.name_line = value, number
    else:
        found.notes.append(Note(number, "Taken as a plain comment: a name is 1 to 100 of A-Z a-z 0-9 _ . : / = -"))


def _drop_comments(found: Crontab, state: _State) -> None:
    """A blank line or the end: what no entry has taken belongs to none."""
    if state.options is not None:
        found.faults.append(Fault(state.options_line, "No line stands right below this chronos comment."))
    if state.name is not None:
        found.notes.append(Note(state.name_line, "No line stands right below this name."))
    state.name = state.options = None


# --- variables -----------------------------------------------------------------------------------------------


def _read_variable(number: int, variable: re.Match[str], found: Crontab, state: _State, timezone: str | None) -> None:
    name = (variable[1] or variable[2] or variable[3]).strip()
    value = _unquoted(variable[4].strip())
    if name in ("CRON_TZ", "TZ"):
        _read_zone(number, name, value, found, state, timezone)
    elif name == "RANDOM_DELAY" and value not in ("", "0"):
        found.faults.append(Fault(number, "RANDOM_DELAY is not carried over; give the schedules a jitter_s instead."))
    elif _PROXY.fullmatch(name) and value:
        state.proxy = number
        found.notes.append(Note(number, f"{name} changes what curl does: the lines below cannot be carried over."))
    elif name == "MAILTO" and value:
        found.notes.append(Note(number, "MAILTO is left out: Chronos keeps the attempts and sends no mail."))


def _read_zone(number: int, name: str, value: str, found: Crontab, state: _State, timezone: str | None) -> None:
    zone: str | None = value.removeprefix(":") or None
    if zone is not None and not (name == "TZ" and timezone is not None):
        try:
            cron.check_zone(zone)
        except ScheduleError as error:
            found.faults.append(Fault(number, str(error)))
            state.no_zone = f"Its time zone is not known: {name} in line {number} cannot be read."
            return
    state.no_zone = ""
    if name == "CRON_TZ":
        state.cron_tz = zone
    else:
        state.tz = zone
        if zone is not None and timezone is None and state.cron_tz is None:
            found.notes.append(
                Note(
                    number,
                    f"TZ is taken for the zone of the times; if cron ran in another, name it "
                    f"with --timezone ({zone} is used).",
                )
            )


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


# --- entries -------------------------------------------------------------------------------------------------


def _read_entry(number: int, text: str, found: Crontab, state: _State, timezone: str | None) -> None:
    draft = Entry(
        line=number,
        expression="",
        command="",
        stdin=None,
        zone=state.cron_tz or timezone or state.tz,
        name=state.name,
        options=state.options,
        options_line=state.options_line,
    )
    state.name = state.options = None
    why_not = state.no_zone
    if state.proxy and draft.options is None:
        why_not = why_not or f"The variable in line {state.proxy} changes what curl does; that is not carried over."
    if why_not:
        found.faults.append(Fault(number, why_not))
        return
    try:
        found.entries.append(_entry(text, draft))
    except ValueError as error:
        found.faults.append(Fault(number, str(error)))


def _entry(text: str, draft: Entry) -> Entry:
    """Raises ValueError with the reason; ScheduleError is one."""
    whole = _ENTRY.fullmatch(text)
    if whole is None:
        raise ValueError("This is neither a variable nor five time fields and a command.")
    expression = re.sub(r"[ \t]+", " ", whole[1])
    if expression.lower() == "@reboot":
        raise ValueError("@reboot is no time: it fires when a machine starts.")
    cron.parse(expression)
    command, stdin = split_percent(whole[2])
    return replace(draft, expression=expression, command=command.rstrip(" \t"), stdin=stdin)


def split_percent(text: str) -> tuple[str, str | None]:
    """The command, and what cron writes to its standard input: from the first bare `%` on, each further one a newline.

    `\\%` is a percent sign. Crons differ on two backslashes in a row, so those are refused with ValueError.
    """
    if r"\\" in text:
        raise ValueError(r"Two backslashes in a row are read differently by different crons.")
    parts = re.split(r"(?<!\\)%", text)
    command, *rest = (part.replace(r"\%", "%") for part in parts)
    if not rest:
        return command, None
    stdin = "\n".join(rest)
    return command, stdin if stdin.endswith("\n") or not stdin else f"{stdin}\n"
