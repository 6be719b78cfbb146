"""Rows of CSV files: the handed cases, the grammar against a slow and obvious reader, and what stays in memory."""

import hashlib
import io
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bulk.domain import rows
from bulk.domain.rows import CsvError, Place, Row, RowError, RowReader, read_rows
from tests.unit.cases import CASES

FOLDER = CASES / "csv"
MANIFEST: list[dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))


class Dripping(io.RawIOBase):
    """A stream that gives so many bytes at a time, whatever is asked for."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size, self._at = data, size, 0

    def read(self, size: int = -1) -> bytes:
        piece = self._data[self._at : self._at + min(self._size, size)]
        self._at += len(piece)
        return piece


def content_of(case: dict[str, Any]) -> bytes:
    if "generated" in case:
        made = case["generated"]
        text: str = made["prefix"] + made["repeat"] * made["times"] + made["suffix"]
        return text.encode()
    data: bytes = (FOLDER / case["file"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == case["sha256"]
    return data


def streams(data: bytes) -> Iterator[BinaryIO]:
    yield io.BytesIO(data)
    if len(data) < 100_000:
        for size in (1, 2, 3, 7):
            yield Dripping(data, size)  # type: ignore[misc]


@pytest.mark.parametrize("case", MANIFEST, ids=[case["id"] for case in MANIFEST])
def test_the_handed_files_are_read_as_the_manifest_says(case: dict[str, Any]) -> None:
    expect = case["expect"]
    for stream in streams(content_of(case)):
        if expect["fatal"]:
            with pytest.raises(CsvError) as caught:
                list(read_rows(stream, **case.get("options", {})))
            assert caught.value.code == expect["fatal"]
            continue
        reader = read_rows(stream, **case.get("options", {}))
        found = list(reader)
        assert list(reader.columns) == expect["columns"]
        assert [each.number for each in found] == list(range(1, expect["rows"] + 1))
        errors = [{"row": each.number, "code": each.code} for each in found if isinstance(each, RowError)]
        assert errors == expect["row_errors"]
        for cell in expect.get("cells", []):
            row = found[cell["row"] - 1]
            assert isinstance(row, Row)
            assert row.values[cell["column"]] == cell["value"]


def plainly(text: str) -> list[list[str] | str]:  # noqa: C901 - one small machine, to be read in one piece
    """The grammar once more, a character at a time: records with their fields, or `unterminated_quote`."""
    found: list[list[str] | str] = []
    fields: list[str] = []
    value, quoted, was_quoted, at = "", False, False, 0
    while at < len(text):
        char = text[at]
        at += 1
        if quoted:
            if char == '"' and text[at : at + 1] == '"':
                value, at = value + '"', at + 1
            elif char == '"':
                quoted = False
            else:
                value += char
        elif char == '"' and not value and not was_quoted:
            quoted = was_quoted = True
        elif char == ",":
            fields.append(value)
            value, was_quoted = "", False
        elif char in "\r\n":
            at += char == "\r" and text[at : at + 1] == "\n"
            if fields or value or was_quoted:
                found.append([*fields, value])
            fields, value, was_quoted = [], "", False
        else:
            value += char
    if quoted:
        found.append("unterminated_quote")
    elif fields or value or was_quoted:
        found.append([*fields, value])
    return found


@settings(max_examples=500, deadline=None)
@given(
    st.text(alphabet=st.sampled_from('ab,"\r\n é🚀'), max_size=60), st.sampled_from([1, 2, 5, 64]), st.integers(1, 8)
)
def test_any_text_is_read_as_the_grammar_says_however_it_is_cut(text: str, size: int, chunk: int) -> None:
    data = ("x,y\n" + text).encode()
    patch = pytest.MonkeyPatch()
    patch.setattr(rows, "CHUNK", chunk)
    with patch.context():
        found = list(read_rows(Dripping(data, size)))  # type: ignore[arg-type]
    patch.undo()
    wanted = plainly(text)
    assert len(found) == len(wanted)
    for each, fields in zip(found, wanted, strict=True):
        if isinstance(fields, str):
            assert isinstance(each, RowError)
            assert each.code == fields
        elif len(fields) == 2:
            assert isinstance(each, Row)
            assert list(each.values.values()) == fields
        else:
            assert isinstance(each, RowError)
            assert each.code == ("too_few_fields" if len(fields) < 2 else "too_many_fields")


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from('ab,"\r\né'), max_size=60))
def test_a_reader_goes_on_behind_any_row_as_if_it_had_never_stopped(text: str) -> None:
    data = ("x,y\n" + text).encode()
    whole = list(read_rows(io.BytesIO(data)))
    for stop in range(len(whole) + 1):
        reader = read_rows(io.BytesIO(data))
        for _ in range(stop):
            next(reader)
        place = Place(reader.columns, reader.number, reader.line, reader.offset)
        stream = io.BytesIO(data)
        stream.seek(place.offset)
        assert list(RowReader(stream, after=place)) == whole[stop:]


def test_rows_say_on_which_line_of_the_file_they_begin() -> None:
    data = b'id,note\r\n\r\n1,"a\r\nb\nc"\n2,x\r3,"y\r"\n4,z'
    found = [(each.number, each.line) for each in read_rows(io.BytesIO(data))]
    assert found == [(1, 3), (2, 6), (3, 7), (4, 9)]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_file"),
        (b"\n\r\n\r", "empty_file"),
        (rows._MARK, "empty_file"),
        (b"a,\n", "blank_header"),
        (b"a, \t,b\n", "blank_header"),
        (b"a,b,a\n1,2,3\n", "duplicate_header"),
        (b'a,"b\n1,2\n', "unterminated_quote"),
        (b"a\0,b\n", "encoding"),
        ("a,b\n1,2\n".encode("utf-16"), "encoding"),
        ("a,b\n1,2\n".encode("utf-16-le"), "encoding"),
        (b"a,b\n1,\xe9\n", "encoding"),
        (b"a,b\n1,\xc3", "encoding"),
        (b"PK\x03\x04\x14\x00\x00\x00", "encoding"),
        (b"x" * (rows.LARGEST_FIELD + 1) + b"\n", "field_too_large"),
    ],
)
def test_what_is_wrong_with_the_file_stops_it_with_a_code_and_a_sentence(data: bytes, code: str) -> None:
    with pytest.raises(CsvError) as caught:
        list(read_rows(io.BytesIO(data)))
    assert caught.value.code == code
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (b'1,"' + b"x" * (rows.LARGEST_FIELD + 1) + b'",3', "field_too_large"),
        (b'1,"\0",3', "nul_byte"),
        (b"1," + b"x" * (rows.LARGEST_FIELD + 1) + b"\0,3", "nul_byte"),
        (b"1", "too_few_fields"),
        (b"1,2,3", "too_many_fields"),
        (b'1,"2",3', "too_many_fields"),
    ],
)
def test_of_several_faults_of_a_row_the_first_of_the_list_is_told_and_the_next_row_is_read(
    row: bytes, code: str
) -> None:
    found = list(read_rows(io.BytesIO(b"a,b\n" + row + b'\nok,"fine"\n')))
    assert isinstance(found[0], RowError)
    assert found[0].code == code
    assert isinstance(found[1], Row)
    assert found[1].values == {"a": "ok", "b": "fine"}


def test_a_field_of_exactly_the_limit_is_taken_quoted_or_not() -> None:
    field = "x" * rows.LARGEST_FIELD
    for text in (field, f'"{field}"'):
        [row] = list(read_rows(io.BytesIO(f"a,b\n1,{text}\n".encode())))
        assert isinstance(row, Row)
        assert row.values["b"] == field


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n", "\r", "\0", "é"])
def test_a_delimiter_that_cannot_be_one_is_refused(delimiter: str) -> None:
    with pytest.raises(ValueError, match="one ASCII character"):
        read_rows(io.BytesIO(b"a\n"), delimiter=delimiter)


class Endless(io.RawIOBase):
    """A beginning, then so many MiB of one byte."""

    def __init__(self, begin: bytes, mebibytes: int) -> None:
        self._begin, self._left = begin, mebibytes * 2**20

    def read(self, size: int = -1) -> bytes:
        if self._begin:
            begin, self._begin = self._begin, b""
            return begin
        size = min(size, self._left)
        self._left -= size
        return b"x" * size


@pytest.mark.parametrize(
    "begin", [b'a,b\n1,"', b"a,b\n1,", b"a,b\n1,2,3,"], ids=["open quote", "no end", "one field too many"]
)
def test_memory_stays_flat_however_long_a_field_is(begin: bytes) -> None:
    tracemalloc.start()
    try:
        [error] = list(read_rows(Endless(begin, 100)))  # type: ignore[arg-type]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, RowError)
    assert peak < 8 * 2**20
