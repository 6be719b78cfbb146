"""Strings with placeholders, and what is said where one cannot be, or where a row's value does not fit. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from chronos_site.infra.references import names_secret

MOST_NAMED = 20
"""Columns that one message lists."""
LONGEST_QUOTE = 60
"""Characters of a value or a name that one message quotes."""

_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")

Values = Mapping[str, str]


class TemplateError(ValueError):
    """No template; `code` is short and stable, `pointer` says where: a JSON pointer such as /target/url.

    Codes: misplaced_placeholder, placeholder_in_secret, unclosed_placeholder, empty_placeholder, invalid_text;
    unknown_column.
    """

    def __init__(self, code: str, pointer: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.pointer = pointer


class RowRefused(ValueError):  # noqa: N818 - no fault of ours: what a row gets for an answer
    """A value of this row cannot stand where the template puts it; `code` is short and stable.

    Codes: dot_segment, url_too_long, invalid_header_value, key_too_long, secret_reference, payload_too_large,
    invalid_text, missing_column.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Limit:
    code: str
    longest: int
    """In characters."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string with placeholders."""

    pointer: str
    columns: tuple[str, ...]
    """In the order of the placeholders, as often as each is there."""
    form: str
    """For the operator %, with the columns' values."""
    pick: Callable[[Values], Any]
    fixed: int
    """Characters besides the placeholders."""
    limit: Limit

    def fill(self, values: Values) -> str:
        filled: str = self.form % self.pick(values)
        return filled

    def check_length(self, values: Values) -> None:
        """Before anything is built of large values. Raises RowRefused."""
        length = self.fixed + sum(len(values[column]) for column in self.columns)
        if length > self.limit.longest:
            raise self.too_long(length)

    def too_long(self, length: int) -> RowRefused:
        return RowRefused(
            self.limit.code,
            f"{self.pointer} would have {length} characters or more by {self.by}; at most {self.limit.longest} are"
            " taken. Shorten the value.",
        )

    @property
    def by(self) -> str:
        """Its columns, for a message."""
        names = list(dict.fromkeys(self.columns))
        more = ", …" if len(names) > MOST_NAMED else ""
        return f"column {', '.join(map(quoted, names[:MOST_NAMED]))}{more}"


def picker(columns: tuple[str, ...]) -> Callable[[Values], Any]:
    """The columns' values as a tuple; of one column, the value alone, with which % and join do the same."""
    return itemgetter(*columns) if columns else lambda _: ()


def text_of(literals: list[str], columns: list[str], place: str, limit: Limit) -> Text:
    form = "%s".join(literal.replace("%", "%%") for literal in literals)
    return Text(place, tuple(columns), form, picker(tuple(columns)), sum(map(len, literals)), limit)


def split_text(text: str, place: str) -> tuple[list[str], list[str]]:
    """Of a text that holds `{{`: what stands around the placeholders, and their columns. Raises TemplateError."""
    parts = _PLACEHOLDER.split(text)
    literals, columns = parts[::2], [name.strip(" ") for name in parts[1::2]]
    if any("{{" in literal for literal in literals):
        raise TemplateError(
            "unclosed_placeholder",
            place,
            f"A {{{{ in {place} is not closed, or there is a brace before its }}}}. Write a column as {{{{column}}}}.",
        )
    if not all(name.strip() for name in columns):
        raise TemplateError(
            "empty_placeholder", place, f"A placeholder in {place} names no column. Write {{{{column}}}}."
        )
    if any(map(names_secret, literals)):
        raise TemplateError(
            "placeholder_in_secret",
            place,
            f"{place} names a secret, which no row may choose. Write the reference out, or take the placeholder away.",
        )
    if is_broken(text):
        raise TemplateError(
            "invalid_text", place, f"{place} holds a NUL or half of a surrogate pair beside a placeholder. Take it out."
        )
    return literals, columns


def compile_text(text: Any, place: str, limit: Limit) -> Text | None:
    """None where no placeholder is in it. Raises TemplateError."""
    if not isinstance(text, str) or "{{" not in text:
        return None
    return text_of(*split_text(text, place), place, limit)


def is_broken(text: str) -> bool:
    if "\0" in text:
        return True
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def quoted(text: str) -> str:
    return repr(text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…")
