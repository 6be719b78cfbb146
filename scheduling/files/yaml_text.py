"""YAML as data with its lines: the part of YAML 1.2 that JSON has, plus anchors, aliases and merge keys.

Stricter than `yaml.safe_load` where that would guess: a name given twice is refused, only `true` and `false` are flags
(`no` and `on` are texts), numbers are decimal, a time stays the text that the API takes, and tags make nothing. It is
built from the parser's events, so a hostile file costs no more than its size: nothing recurses, the depth is bounded,
and what aliases unfold to is counted before anybody walks over it.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import yaml

DEEPEST = 80
MOST_NODES = 2_000_000
MERGE = "<<"
EXACT = 2**53

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,400})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,400})(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,3})?")
_AT_CRON = re.compile(r"\s*(?:-\s+)?cron\s*:\s*[*@%?]")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_TAGS: dict[str, type] = {"tag:yaml.org,2002:str": str, "tag:yaml.org,2002:map": dict, "tag:yaml.org,2002:seq": list}

# libyaml's parser where the wheel has it: the one in Python takes a minute for ten thousand schedules.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class YamlFault(Exception):  # noqa: N818 - named for what it says of the file
    line: int
    text: str


class Mapping(dict[str, Any]):
    """An object; `lines` tells where each of its names stands, `line` where it begins."""

    __slots__ = ("line", "lines", "size")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line, self.size = line, 1
        self.lines: dict[str, int] = {}


class Sequence(list[Any]):
    """A list; `lines` tells where each of its items stands."""

    __slots__ = ("line", "lines", "size")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line, self.size = line, 1
        self.lines: list[int] = []


def read_yaml(text: str, *, twins: list[YamlFault] | None = None) -> Any:
    """The one document of `text`. Raises YamlFault.

    Names that are given twice are put into `twins`, where that is given, so that all of them can be told.
    """
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _explained(error, text) from None
    except yaml.YAMLError as error:
        raise YamlFault(
            _line_of_reader_error(error, text), "The file holds a character that YAML does not take."
        ) from None
    if builder.twins and twins is None:
        raise builder.twins[0]
    if twins is not None:
        twins += builder.twins
    return builder.root


def line_of(data: Any, path: list[str]) -> int:
    """Where the thing at `path` stands, or the last thing on the way to it that is there."""
    line = getattr(data, "line", 1)
    for step in path:
        if isinstance(data, Mapping) and step in data:
            line, data = data.lines[step], data[step]
        elif isinstance(data, Sequence) and step.isdigit() and int(step) < len(data):
            line, data = data.lines[int(step)], data[int(step)]
        else:
            break
    return line


@dataclass(slots=True)
class _Open:
    """A list or object under construction."""

    value: Mapping | Sequence
    anchor: str | None
    line: int
    name: str | None = None
    name_line: int = 0
    merges: bool = False


class _Builder:
    def __init__(self) -> None:
        self.root: Any = None
        self.open: list[_Open] = []
        self.anchors: dict[str, Any] = {}
        self.documents = 0
        self.twins: list[YamlFault] = []

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        match event:
            case yaml.ScalarEvent():
                value = _scalar(event, line)
                self._keep(event.anchor, value)
                self._place(value, line, plain=event.style in (None, ""))
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._begin(event, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self.open.pop()
                self._keep(done.anchor, done.value)
                self._place(done.value, done.line)
            case yaml.AliasEvent():
                name = str(event.anchor)
                if name not in self.anchors:
                    raise YamlFault(line, f"There is no anchor &{name[:40]} above this alias.")
                self._place(self.anchors[name], line)
            case yaml.DocumentStartEvent():
                self.documents += 1
                if self.documents > 1:
                    raise YamlFault(line, "The file holds a second document; write one.")

    def _begin(self, event: Any, line: int) -> None:
        kind: type[Mapping] | type[Sequence] = Mapping if isinstance(event, yaml.MappingStartEvent) else Sequence
        if event.tag is not None and not issubclass(kind, _TAGS.get(event.tag, type(None))):
            raise YamlFault(line, f"The tag {event.tag[:60]} is not taken; leave it out.")
        if len(self.open) >= DEEPEST:
            raise YamlFault(line, f"This is nested deeper than {DEEPEST} levels.")
        self.open.append(_Open(kind(line), event.anchor, line))

    def _keep(self, anchor: str | None, value: Any) -> None:
        if anchor is not None:
            self.anchors[anchor] = value

    def _place(self, value: Any, line: int, *, plain: bool = False) -> None:
        """Put a finished value where it belongs: name or value of an object, item of a list, or the whole."""
        if not self.open:
            self.root = value
            return
        into = self.open[-1]
        if isinstance(into.value, Sequence):
            into.value.append(value)
            into.value.lines.append(line)
        elif into.name is None:
            into.name, into.name_line = _name(value, line), line
            into.merges = plain and into.name == MERGE
            return
        elif into.merges:
            _merge(into.value, value, line)
            into.name = None
        else:
            self._set(into.value, into.name, value, into.name_line)
            into.name = None
        into.value.size += getattr(value, "size", 1)
        if into.value.size > MOST_NODES:
            raise YamlFault(line, f"The aliases unfold to more than {MOST_NODES:,} values.")

    def _set(self, into: Mapping, name: str, value: Any, line: int) -> None:
        """What was merged before yields; what was written before stays, and the second is told."""
        if name in into and into.lines[name] > 0:
            text = f"{name[:60]!r} is given twice; it stands in line {into.lines[name]} already."
            self.twins.append(YamlFault(line, text))
            return
        into[name] = value
        into.lines[name] = line


def _merge(into: Mapping, value: Any, line: int) -> None:
    """What is merged yields to what is written, wherever the merge stands, and to what was merged before."""
    for one in value if isinstance(value, Sequence) else [value]:
        if not isinstance(one, Mapping):
            raise YamlFault(line, f"{MERGE} merges objects, and lists of objects.")
        for name, inner in one.items():
            if name not in into:
                into[name] = inner
                into.lines[name] = -line


def _name(value: Any, line: int) -> str:
    if not isinstance(value, str):
        shown = "a list or an object" if isinstance(value, (Mapping, Sequence)) else repr(value)[:40]
        raise YamlFault(line, f"A name must be a text; put {shown} into quotes.")
    return value


def _scalar(event: Any, line: int) -> Any:
    if event.tag is not None:
        if event.tag != "tag:yaml.org,2002:str" and event.tag != "!":
            raise YamlFault(line, f"The tag {event.tag[:60]} is not taken; leave it out.")
        return event.value
    if event.style not in (None, ""):
        return event.value
    return plain_value(event.value)


def plain_value(text: str) -> Any:
    """What a scalar without quotes means."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        number = float(text)
        if abs(number) == float("inf"):
            return text
        # As the database keeps it: a whole number, to its last digit.
        return int(Decimal(text)) if abs(number) >= EXACT else number
    return text


def _explained(error: yaml.MarkedYAMLError, text: str) -> YamlFault:
    mark = error.problem_mark or error.context_mark
    line = (mark.line if mark else 0) + 1
    lines = text.splitlines()
    for number in (line, line - 1):
        if 0 < number <= len(lines) and _AT_CRON.match(lines[number - 1]):
            return YamlFault(
                number, 'A cron expression needs quotes, for YAML reads * and @ otherwise: cron: "*/5 * * * *".'
            )
    if 0 < line <= len(lines) and "\t" in lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]:
        return YamlFault(line, "The line is indented with a tab; YAML takes spaces only.")
    return YamlFault(line, f"This is no YAML: {str(error.problem or error.context)[:120]}.")


def _line_of_reader_error(error: yaml.YAMLError, text: str) -> int:
    position = getattr(error, "position", 0)
    before = text.encode("utf-8", "replace")[: position if isinstance(position, int) else 0]
    return before.count(b"\n") + 1
