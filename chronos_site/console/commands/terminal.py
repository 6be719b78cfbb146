"""What the subcommands share: where they write, how a table looks, times in words, the ways to be asked wrongly."""

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, TextIO
from uuid import UUID

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chronos_site.tenancy.models import Workspace

WIDTH_OF_FILES = 200
"""Of a table that goes to no terminal."""

DONE, WRONG, ASKED_WRONGLY, AWAY, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES = (
    "Exit codes: 0 done, and nothing is wrong; 1 something is wrong, or what was asked for ended badly; 2 the command "
    "was called wrongly, or names what is not there; 3 a server that it needs is away; 130 interrupted."
)

LEVEL_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class AskedWrongly(Exception):  # noqa: N818 - named for what it says
    """What was asked for cannot be done; the text says what to give in its place."""


class Terminal:
    """Standard output and error of one command. Results go to the first, all else to the second."""

    def __init__(self, *, out: TextIO, error: TextIO, as_json: bool) -> None:
        self.as_json = as_json
        self.out = _console(out)
        self.error = _console(error)

    def json(self, value: Any) -> None:
        """One document, indented."""
        self._write(json.dumps(plain(value), ensure_ascii=False, indent=2))

    def line_json(self, value: Any) -> None:
        """One object on one line, for streams."""
        self._write(json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")))

    def say(self, text: str = "", *, style: str = "") -> None:
        self.out.print(cell(text, style), soft_wrap=True)

    def note(self, text: str, *, style: str = "") -> None:
        self.error.print(cell(text, style), soft_wrap=True)

    def _write(self, text: str) -> None:
        self.out.file.write(text + "\n")
        self.out.file.flush()


def _console(file: TextIO) -> Console:
    # Django wraps what it is given and adds line ends of its own, in the midst of what rich writes.
    file = getattr(file, "_out", file)
    return Console(
        file=file, width=None if file.isatty() else WIDTH_OF_FILES, highlight=False, markup=False, emoji=False
    )


def cell(value: Any, style: str = "") -> Text:
    """A text that steers no terminal: what people name their jobs comes from outside."""
    if isinstance(value, Text):
        return value
    text = "" if value is None else str(value)
    return Text("".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text), style)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Columns that begin with > are flushed right."""
    made = Table(title=title or None, box=SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        made.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell(value) for value in row))
    return made


# --- words ---------------------------------------------------------------------------------------


def seconds(value: float | None) -> str:
    """A length of time, short: 40 ms, 3.2 s, 4 min, 2 h 5 min, 3 d 4 h."""
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes = int(value // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"


def milliseconds(value: float | None) -> str:
    return "-" if value is None else seconds(value / 1000)


def since(at: datetime | None, now: datetime) -> str:
    return "-" if at is None else seconds(max(0.0, (now - at).total_seconds()))


def clock(at: datetime | None) -> str:
    """UTC, to the second; the date only where it is another than today."""
    if at is None:
        return "-"
    at = at.astimezone(UTC)
    return f"{at:%H:%M:%S}" if at.date() == datetime.now(UTC).date() else f"{at:%Y-%m-%d %H:%M:%S}"


def count(value: int | None, most: int | None = None) -> str:
    """With thin marks between thousands; `most`: where counting stops."""
    if value is None:
        return "-"
    return f"{value:,}" + ("+" if most is not None and value >= most else "")


def plain(value: Any) -> Any:
    """As JSON takes it: dataclasses are objects, times RFC 3339 in UTC."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


# --- arguments -----------------------------------------------------------------------------------


def add_workspace(parser: argparse.ArgumentParser, *, needed: bool = False) -> None:
    told = "its name; needed where there are several" if needed else "only what belongs to it, by its name"
    parser.add_argument("--workspace", metavar="NAME", help=told)


def workspace_of(name: str | None) -> Workspace:
    """The one that is named, or the only one there is. Raises AskedWrongly."""
    found = list(Workspace.objects.filter(name=name) if name else Workspace.objects.order_by("id")[:2])
    if len(found) == 1:
        return found[0]
    if not found and not name:
        raise AskedWrongly("There is no workspace yet. Make one in the admin.")
    names = ", ".join(Workspace.objects.order_by("name").values_list("name", flat=True)[:20])
    if name:
        raise AskedWrongly(f"There is no workspace {name!r}. There is: {names}.")
    raise AskedWrongly(f"There are several workspaces. Name one with --workspace: {names}.")


def scope_of(name: str | None) -> list[UUID] | None:
    """The workspaces that a selector reads of: None for all. Raises AskedWrongly."""
    return None if name is None else [workspace_of(name).id]


_AGO = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def moment(text: str) -> datetime:
    """For argparse: `15m`, `2h`, `3d` ago, or a time as RFC 3339 (UTC where it has no offset)."""
    found = _AGO.fullmatch(text)
    if found:
        return datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        at = datetime.fromisoformat(text.upper().replace(" ", "T"))
    except ValueError:
        at = None
    if at is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time. Give 15m, 2h or 3d (ago), or 2030-01-31T09:00:00Z.")
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def duration(text: str) -> float:
    """For argparse: seconds, or a number with s, m, h or d."""
    found = _AGO.fullmatch(text if not text.isdigit() else f"{text}s")
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time. Give seconds, or 5m, 2h, 1d.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])}).total_seconds()


def positive(text: str) -> int:
    """For argparse."""
    if not text.isdigit() or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 1,000,000.")
    return int(text)


def identifier(text: str) -> UUID:
    """For argparse."""
    try:
        return UUID(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no id. Give all of it, as the API shows it.") from None


def is_interactive() -> bool:
    return sys.stdin.isatty()
