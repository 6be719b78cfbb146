"""A bulk job's target and payload as a template: `{{column}}` stands for the row's value of that column.

Placeholders stand in the URL behind its host, in values of headers, in the Kafka key and in strings of the payload, and
nowhere else: where a delivery goes and what proves who sends it is the job's to say, never a row's. There is no logic,
and what a value holds is never read as a template again. `{{ column }}` means the same; a single brace is data.

A template is compiled once and rendered for every row. What holds no placeholder is handed out as it is, the same
object each time: whoever changes a rendered target or payload changes the template. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from bulk.domain.placeholders import (
    MOST_NAMED,
    Limit,
    RowRefused,
    TemplateError,
    Text,
    Values,
    compile_text,
    is_broken,
    picker,
    quoted,
    split_text,
    text_of,
)
from chronos_site.infra import header_values
from chronos_site.infra.references import names_secret
from execution.domain.credentials import pointer
from execution.domain.targets import HTTP, KAFKA, LONGEST_MESSAGE_KEY, LONGEST_URL, USUAL_METHOD, kind_of

__all__ = ["RowRefused", "Template", "TemplateError", "compile_template"]

LARGEST_PAYLOAD = 16 * 1024 * 1024
"""Characters of a payload that may come from one row: a guard of memory, where one large field is named many times."""
_OF_URL = Limit("url_too_long", LONGEST_URL)
_OF_HEADER = Limit("invalid_header_value", header_values.LONGEST)
_OF_KEY = Limit("key_too_long", LONGEST_MESSAGE_KEY)
_OF_PAYLOAD = Limit("payload_too_large", LARGEST_PAYLOAD)

# The authority is there and ends: `https:///{{host}}` has none, and some readers take what follows for it.
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\\x00-\x20]+[/?#]")
_PATH_END = re.compile(r"[?#]")
_SLASH = r"/|\\|%2f|%5c"
# Encoded slashes count, as many servers decode them before they resolve dots; so do dots before path parameters.
_DOTS = re.compile(rf"(?:^|{_SLASH})(?:\.|%2e){{1,2}}(?:$|;|%3b|{_SLASH})", re.IGNORECASE)
_WITHOUT_BODY = ("GET", "HEAD")


def compile_template(*, target: dict[str, Any], payload: Any) -> "Template":
    """`target` and `payload` as a job definition holds them. Raises TemplateError."""
    return Template(target, payload)


class Template:
    """See the module. Safe to share between threads."""

    def __init__(self, target: dict[str, Any], payload: Any) -> None:
        self._target, self._payload = target, payload
        kind = kind_of(target)
        self._url = _compile_url(target.get("url")) if kind == HTTP else None
        self._headers = _compile_headers(target.get("headers") or {})
        self._key = compile_text(target.get("key"), "/target/key", _OF_KEY) if kind == KAFKA else None
        _check_rest(target, templated={"headers", "url" if kind == HTTP else "key"})
        method = str(target.get("method") or USUAL_METHOD).upper()
        self._whole_row = payload is None and (kind == KAFKA or method not in _WITHOUT_BODY)
        """The payload is the row itself."""
        self._text, self._steps = _compile_payload(payload)
        in_payload = [self._text] if self._text else [text for step in reversed(self._steps) for _, text in step.texts]
        self._budget = _Budget(in_payload)

        apart = (self._url.whole if self._url else None, self._key)
        self._in_target = [text for text in (*apart, *(text for _, text in self._headers)) if text is not None]
        self._places: dict[str, str] = {}
        for text in (*self._in_target, *in_payload):
            for column in text.columns:
                self._places.setdefault(column, text.pointer)
        self.columns = frozenset(self._places)
        """Those that it names."""
        self._pick = picker(tuple(self._places))

    def check_columns(self, columns: Iterable[str]) -> None:
        """Whether a file with these columns has all that are named. Raises TemplateError."""
        there = list(dict.fromkeys(columns))
        for column, place in self._places.items():
            if column not in there:
                listed = ", ".join(map(quoted, there[:MOST_NAMED])) + (", …" if len(there) > MOST_NAMED else "")
                raise TemplateError(
                    "unknown_column",
                    place,
                    f"The file has no column {quoted(column)}, which {place} names. It has: {listed or 'none'}. Name"
                    " one of them, as the first line writes it.",
                )

    def render(self, values: Values) -> tuple[dict[str, Any], Any]:
        """Target and payload of a row, given by its columns. Raises RowRefused."""
        size = self._check_texts(values)
        target = self._render_target(values, size) if self._in_target else self._target
        if self._whole_row:
            return target, dict(values)
        if size > self._budget.always_fits:
            self._budget.check(values)
        if self._text is not None:
            return target, self._text.fill(values)
        if not self._steps:
            return target, self._payload
        done: list[Any] = []
        for step in self._steps:
            made = step.container.copy()
            for key, text in step.texts:
                made[key] = text.form % text.pick(values)
            for key, index in step.children:
                made[key] = done[index]
            done.append(made)
        return target, done[-1]

    def _check_texts(self, values: Values) -> int:
        """No value that is used is broken. Answers their characters, all together. Raises RowRefused."""
        try:
            joined = "".join(self._pick(values))
        except KeyError as missing:
            raise RowRefused("missing_column", f"The row has no column {quoted(missing.args[0])}.") from None
        if self._whole_row:
            joined = "".join(values) + "".join(values.values())
        if is_broken(joined):
            named = values if self._whole_row else self._places
            column = next(name for name in named if is_broken(name) or is_broken(values[name]))
            raise RowRefused(
                "invalid_text",
                f"The value of column {quoted(column)}, or its name, holds a NUL or half of a surrogate pair:"
                f" {quoted(values[column])}. Take it out.",
            )
        return len(joined)

    def _render_target(self, values: Values, size: int) -> dict[str, Any]:
        for text in self._in_target:
            if size > text.limit.longest:
                text.check_length(values)
        target = self._target.copy()
        if self._url is not None:
            target["url"] = self._url.fill(values)
        if self._headers:
            headers = target["headers"] = target["headers"].copy()
            for name, text in self._headers:
                headers[name] = _checked_header(text, text.fill(values))
        if self._key is not None:
            target["key"] = _checked_key(self._key, self._key.fill(values))
        return target


# --- the target -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Url:
    whole: Text
    segments: tuple[Text, ...]
    """Of the path, those with placeholders."""

    def fill(self, values: Values) -> str:
        encoded = {column: _encoded(values[column]) for column in self.whole.columns}
        for segment in self.segments:
            filled = segment.fill(encoded)
            if ("." in filled or "%2" in filled) and _DOTS.search(filled):
                raise RowRefused(
                    "dot_segment",
                    f"The path in {self.whole.pointer} would hold {quoted(filled)} by {segment.by}, and lead"
                    " elsewhere. Change the value.",
                )
        url = self.whole.fill(encoded)
        if len(url) > LONGEST_URL:
            raise self.whole.too_long(len(url))
        return url


def _encoded(value: str) -> str:
    return value if value.isalnum() and value.isascii() else quote(value, safe="")


def _compile_url(url: Any) -> _Url | None:
    place = "/target/url"
    if not isinstance(url, str) or "{{" not in url:
        return None
    literals, columns = split_text(url, place)
    if not _ORIGIN.match(literals[0]):
        raise TemplateError(
            "misplaced_placeholder",
            place,
            "A row may not choose the scheme or host that is called. Write the URL out up to the slash behind its host"
            " and port; placeholders may follow.",
        )
    path = _PATH_END.split("\0".join(literals), maxsplit=1)[0]
    segments, at = [], 0
    for segment in path.split("/"):
        pieces = segment.split("\0")
        end = at + len(pieces) - 1
        if end > at:
            segments.append(text_of(pieces, columns[at:end], place, _OF_URL))
        at = end
    return _Url(text_of(literals, columns, place, _OF_URL), tuple(segments))


def _compile_headers(headers: Mapping[str, Any]) -> list[tuple[str, Text]]:
    found = []
    for name, value in headers.items():
        place = "/target" + pointer(("headers", name))
        if "{{" in name:
            raise _misplaced(place, "the name of a header")
        text = compile_text(value, place, _OF_HEADER)
        if text is not None:
            found.append((name, text))
    return found


def _check_rest(target: dict[str, Any], *, templated: set[str]) -> None:
    """No placeholder in any other member: topic, method, cluster, credentials. Raises TemplateError."""
    rest = {name: value for name, value in target.items() if name not in templated}
    for node in _nodes(rest, "/target"):
        for key, value in node.members():
            if not isinstance(value, str) or "{{" not in value:
                continue
            place = node.place_of(key)
            if place.startswith(("/target/auth/", "/target/signing/")):
                raise TemplateError(
                    "placeholder_in_secret",
                    place,
                    f"{place} belongs to the credentials, which no row may choose. Take the placeholder away.",
                )
            raise _misplaced(place, f"the {key}")


def _misplaced(place: str, what: str) -> TemplateError:
    return TemplateError(
        "misplaced_placeholder",
        place,
        f"{place}: a placeholder cannot stand in {what}. It can in the URL behind the host, in values of headers, in a"
        " Kafka key and in strings of the payload.",
    )


def _checked_header(text: Text, value: str) -> str:
    if not header_values.is_value(value):
        raise RowRefused(
            "invalid_header_value",
            f"{text.pointer} would be {quoted(value)} by {text.by}. {header_values.RULE}",
        )
    return _without_secret(text, value)


def _checked_key(text: Text, value: str) -> str:
    if len(value) > LONGEST_MESSAGE_KEY:
        raise text.too_long(len(value))
    return _without_secret(text, value)


def _without_secret(text: Text, value: str) -> str:
    """What is sent under a name is looked up by the sender where it names a secret."""
    if names_secret(value):
        raise RowRefused(
            "secret_reference",
            f"{text.pointer} would name a secret by {text.by}, which no row may do. Change the value.",
        )
    return value


# --- the payload ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Node:
    """An object or a list of a JSON value, with the place of it in `parent`, which comes before it."""

    container: Any
    pointer: str
    parent: int
    key: Any

    def members(self) -> Iterable[tuple[Any, Any]]:
        """Names, or numbers, and values."""
        return self.container.items() if isinstance(self.container, dict) else enumerate(self.container)

    def place_of(self, key: Any) -> str:
        return self.pointer + pointer((str(key),))


@dataclass(frozen=True, slots=True)
class _Step:
    """An object or list that is made anew for each row, after those that lie in it."""

    container: Any
    texts: list[tuple[Any, Text]]
    children: list[tuple[Any, int]]
    """Keys, and the steps that make what stands there."""


class _Budget:
    """How much of the payload the values may fill."""

    def __init__(self, texts: list[Text]) -> None:
        self._counts: dict[str, int] = {}
        for text in texts:
            for column in text.columns:
                self._counts[column] = self._counts.get(column, 0) + 1
        self.always_fits = LARGEST_PAYLOAD // max(self._counts.values(), default=1)
        """Characters of all values together that need no closer look."""

    def check(self, values: Values) -> None:
        size = sum(count * len(values[column]) for column, count in self._counts.items())
        if size > LARGEST_PAYLOAD:
            raise RowRefused(
                "payload_too_large",
                f"The row's values would fill the payload with {size} characters; at most {LARGEST_PAYLOAD} are taken."
                " Shorten them, or name the column less often.",
            )


def _compile_payload(payload: Any) -> tuple[Text | None, list[_Step]]:
    """A text, where the payload is a string with placeholders; else what is to be made, in order: the whole comes last.

    Walks without recursion: how deep a payload lies is the caller's to limit.
    """
    if isinstance(payload, str):
        return compile_text(payload, "/payload", _OF_PAYLOAD), []
    nodes, texts = list(_nodes(payload, "/payload")), []
    for node in nodes:
        held = [(key, value) for key, value in node.members() if isinstance(value, str) and "{{" in value]
        texts.append([(key, _text_in(value, node.place_of(key))) for key, value in held])
    steps: list[_Step] = []
    children: list[list[tuple[Any, int]]] = [[] for _ in nodes]
    for index in reversed(range(len(nodes))):
        if not texts[index] and not children[index]:
            continue
        node = nodes[index]
        if node.parent >= 0:
            children[node.parent].append((node.key, len(steps)))
        steps.append(_Step(node.container, texts[index], children[index]))
    return None, steps


def _text_in(value: str, place: str) -> Text:
    return text_of(*split_text(value, place), place, _OF_PAYLOAD)


def _nodes(root: Any, place: str) -> Iterator[_Node]:
    """Every object and list, each before what lies in it. Raises TemplateError where a name holds a placeholder."""
    waiting = [_Node(root, place, -1, None)] if isinstance(root, (dict, list)) else []
    index = 0
    while waiting:
        node = waiting.pop()
        if isinstance(node.container, dict):
            for name in node.container:
                if "{{" in name:
                    raise _misplaced(node.place_of(name), "the name of a member")
        yield node
        inner = [
            _Node(value, node.place_of(key), index, key)
            for key, value in node.members()
            if isinstance(value, (dict, list))
        ]
        waiting.extend(reversed(inner))
        index += 1
