"""Rows of a CSV file, read as a stream: memory stays flat however long the file, or a field in it, is.

The grammar: UTF-8, with or without a byte order mark. A quote is special at the start of a field only; there, `""` is
one quote, and line ends are data. LF, CRLF and CR end a line outside quotes, and nothing else does. Nothing is trimmed
or normalised. The first line that is not blank is the header; blank lines are no rows.

What is wrong with one row is a RowError in its place, and the next row is read. What is wrong with the file raises
CsvError: at the header, or where the bytes are no UTF-8. Pure but for the reading of the stream, which is never sought:
whoever goes on after a stop opens it at `Row.end` and says where that was (`Place`).
"""

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Self

LARGEST_FIELD = 1024 * 1024
"""Bytes of one field, without its quotes."""
CHUNK = 256 * 1024
LONGEST_CUT = 128 * 1024
"""Bytes of a record with quotes that is taken at once: no field of it is larger than the csv module takes."""
_MARK = codecs.BOM_UTF8
_QUOTE = 0x22
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r(?=[^\n]))")
_LINE_END = re.compile(rb"\r\n|\n|\r")


class CsvError(ValueError):
    """The file cannot be read as what it should be; `code` is short and stable."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class Row:
    number: int
    """From 1, the first after the header."""
    values: dict[str, str]
    """By column, in the order of the header."""
    line: int = 0
    """The line of the file that it begins on, from 1."""
    end: int = 0
    """Bytes of the file up to its end: where the next one is read from."""


@dataclass(slots=True)
class RowError:
    number: int
    code: str
    """unterminated_quote, nul_byte, field_too_large, too_few_fields or too_many_fields: the first that fits."""
    line: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where an earlier reader stopped: behind this row."""

    columns: Sequence[str]
    number: int
    line: int
    """The line that the next row begins on."""
    offset: int


def read_rows(stream: BinaryIO, *, delimiter: str = ",") -> "RowReader":
    """The rows of a file, an iterator with `columns`. Raises CsvError, here and while it is iterated; ValueError."""
    return RowReader(stream, delimiter=delimiter)


class RowReader(Iterator[Row | RowError]):
    """`after` goes on where another stopped; the stream is then at that offset of the file."""

    def __init__(self, stream: BinaryIO, *, delimiter: str = ",", after: Place | None = None) -> None:
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
            raise ValueError("The delimiter is one ASCII character, and no quote, line end or NUL.")
        self._source = _Source(stream, offset=after.offset if after else 0)
        self._separator, self._delimiter = delimiter, delimiter.encode()
        self._quoted = _quoted_record(self._delimiter)
        self.line = after.line if after else 1
        """The line that the next row begins on."""
        self.number = after.number if after else 0
        """Of the row that was read last."""
        self.columns: tuple[str, ...] = tuple(after.columns) if after else self._read_header()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row | RowError:
        record = self._next_record(keep=len(self.columns))
        if record is None:
            raise StopIteration
        self.number += 1
        code = record.fault or self._wrong_count(record.count)
        if code:
            return RowError(self.number, code, record.line, self._source.offset)
        return Row(self.number, dict(zip(self.columns, record.fields, strict=True)), record.line, self._source.offset)

    @property
    def offset(self) -> int:
        """Bytes of the file that have been read as rows."""
        return self._source.offset

    # --- header ---------------------------------------------------------------------------------------

    def _read_header(self) -> tuple[str, ...]:
        self._source.skip(_MARK)
        record = self._next_record(keep=None)
        if record is None:
            raise CsvError("empty_file", "The file is empty. Its first line must name the columns.")
        if record.fault == "nul_byte":
            raise CsvError("encoding", "The header holds a NUL byte: the file is no text in UTF-8.")
        if record.fault:
            raise CsvError(record.fault, _HEADER_FAULTS[record.fault])
        names = tuple(record.fields)
        for place, name in enumerate(names, start=1):
            if not name.strip():
                raise CsvError("blank_header", f"Column {place} has no name. Name every column in the first line.")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise CsvError(
                "duplicate_header", f"The column {twice!r} is there twice. Give every column a name of its own."
            )
        return names

    # --- records --------------------------------------------------------------------------------------

    def _wrong_count(self, count: int) -> str:
        if count == len(self.columns):
            return ""
        return "too_few_fields" if count < len(self.columns) else "too_many_fields"

    def _next_record(self, *, keep: int | None) -> "_Record | None":
        """The next record that is not blank; None at the end of the file. Fields beyond `keep` are only counted."""
        while True:
            begins = self.line
            record = self._cut_line() or self._cut_quoted() or self._read_fields(keep)
            if record is None:
                return None
            self.line += record.lines
            if not record.blank:
                record.line = begins
                return record

    def _cut_line(self) -> "_Record | None":
        """A record that is one line without quotes, as most are; None where the next is another."""
        line = self._source.line()
        if line is None:
            return None
        body = line.rstrip(b"\r\n")
        if not body:
            return _Record([], lines=1, blank=True)
        fields = body.decode().split(self._separator)
        record = _Record(fields, lines=1, count=len(fields))
        if b"\0" in body:
            record.note("nul_byte")
        elif len(body) > LARGEST_FIELD and any(len(each.encode()) > LARGEST_FIELD for each in fields):
            record.note("field_too_large")
        return record

    def _cut_quoted(self) -> "_Record | None":
        """A record at hand whose quoted fields are quoted whole; None where it is not so plain, or not all there."""
        body = self._source.take(self._quoted)
        if body is None:
            return None
        text = body.decode()
        end = -2 if text.endswith("\r\n") else -1
        # One record, found by the grammar above: here the two agree on what is in it.
        [fields] = csv.reader([text[:end]], delimiter=self._separator)
        record = _Record(fields, lines=len(_LINE_END.findall(body)), count=len(fields))
        if b"\0" in body:
            record.note("nul_byte")
        return record

    def _read_fields(self, keep: int | None) -> "_Record | None":
        """A record field by field, over as many chunks as it takes."""
        source, record = self._source, _Record([])
        if source.ended:
            return None
        while True:
            started_with_quote = source.peek() == _QUOTE
            kept = keep is None or record.count < keep
            content = _Field(record, kept)
            if started_with_quote:
                source.advance(1)
                self._read_quoted(content)
            stop = self._read_plain(content)
            record.add(content)
            if stop == self._delimiter:
                continue
            record.lines += bool(stop)
            record.blank = record.count == 1 and content.size == 0 and not started_with_quote
            return record

    def _read_quoted(self, content: "_Field") -> None:
        """Up to the closing quote, or to the end of the file."""
        source = self._source
        while True:
            piece, found = source.take_until_quote()
            content.add(piece)
            content.record.lines += len(_LINE_END.findall(piece))
            if piece.endswith(b"\r") and not found and source.peek() == 0x0A:
                content.record.lines -= 1  # CRLF across two chunks is one line end.
            if not found:
                if source.ended:
                    content.record.note("unterminated_quote")
                    return
                continue
            if source.peek() != _QUOTE:
                return
            source.advance(1)
            content.add(b'"')

    def _read_plain(self, content: "_Field") -> bytes:
        """Up to a delimiter or a line end, which is taken too. Answers it; empty at the end of the file."""
        while True:
            piece, stop = self._source.take_until_stop(self._delimiter)
            content.add(piece)
            if stop or self._source.ended:
                return stop


def _quoted_record(delimiter: bytes) -> re.Pattern[bytes]:
    """Fields that are quoted whole or hold no quote, and the line end. Nothing in it is tried twice."""
    stop = re.escape(delimiter)
    one = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^"\r\n' + stop + rb"]*+)"
    return re.compile(one + rb"(?:" + stop + one + rb")*+(?:\r\n|\n|\r(?=[^\n]))")


_HEADER_FAULTS = {
    "unterminated_quote": "A quote in the header is never closed.",
    "field_too_large": f"The header holds a name of more than {LARGEST_FIELD} bytes.",
}
_ORDER = ("unterminated_quote", "nul_byte", "field_too_large")


@dataclass(slots=True)
class _Record:
    """The fields of one record, as far as they are kept."""

    fields: list[str]
    count: int = 0
    lines: int = 0
    """Line ends in it and behind it."""
    blank: bool = False
    fault: str = ""
    line: int = 0

    def note(self, fault: str) -> None:
        if not self.fault or _ORDER.index(fault) < _ORDER.index(self.fault):
            self.fault = fault

    def add(self, content: "_Field") -> None:
        self.count += 1
        if content.kept:
            self.fields.append(content.data.decode())


class _Field:
    """One field while it is read; what is too large, or one too many, is counted and let go."""

    __slots__ = ("data", "kept", "record", "size")

    def __init__(self, record: _Record, kept: bool) -> None:
        self.record = record
        self.kept = kept
        self.data = bytearray()
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if b"\0" in piece:
            self.record.note("nul_byte")
        if self.size > LARGEST_FIELD:
            self.record.note("field_too_large")
            self.data.clear()
        elif self.kept:
            self.data += piece


class _Source:
    """The bytes of the stream in chunks, each of them known to be UTF-8."""

    def __init__(self, stream: BinaryIO, *, offset: int) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._buffer = b""
        self._at = 0
        self._base = offset
        """The file's offset of the buffer's first byte."""
        self._exhausted = False
        self._stops: dict[bytes, re.Pattern[bytes]] = {}

    @property
    def offset(self) -> int:
        return self._base + self._at

    @property
    def ended(self) -> bool:
        """Nothing is left."""
        return self._at >= len(self._buffer) and not self._more()

    def skip(self, mark: bytes) -> None:
        """Pass over it where the stream begins with it."""
        while len(self._buffer) - self._at < len(mark) and self._more():
            pass
        if self._buffer.startswith(mark, self._at):
            self._at += len(mark)

    def line(self) -> bytes | None:
        """The next line with its end; None where it holds a quote, or does not end in what is at hand."""
        match = _LINE.match(self._buffer, self._at)
        if match is None and self._more():
            match = _LINE.match(self._buffer, self._at)
        if match is None or b'"' in match[0]:
            return None
        self._at = match.end()
        return match[0]

    def take(self, pattern: re.Pattern[bytes]) -> bytes | None:
        """What matches here, of what is at hand."""
        match = pattern.match(self._buffer, self._at)
        if match is None or match.end() - self._at > LONGEST_CUT:
            return None
        self._at = match.end()
        return match[0]

    def peek(self) -> int:
        """The next byte; 0 at the end, which no caller takes for a NUL: it only asks for quotes and line feeds."""
        return 0 if self.ended else self._buffer[self._at]

    def advance(self, count: int) -> None:
        self._at += count

    def take_until_quote(self) -> tuple[bytes, bool]:
        """What is at hand up to a quote, and whether there was one, which is taken too."""
        if self.ended:
            return b"", False
        place = self._buffer.find(b'"', self._at)
        piece = self._buffer[self._at : place if place >= 0 else len(self._buffer)]
        self._at += len(piece) + (place >= 0)
        return piece, place >= 0

    def take_until_stop(self, delimiter: bytes) -> tuple[bytes, bytes]:
        """What is at hand up to a delimiter or line end, and that, which is taken too; empty where there is none."""
        if self.ended:
            return b"", b""
        stops = self._stops.get(delimiter)
        if stops is None:
            stops = self._stops[delimiter] = re.compile(rb"\r\n|\n|\r|" + re.escape(delimiter))
        match = stops.search(self._buffer, self._at)
        if match is None:
            piece, self._at = self._buffer[self._at :], len(self._buffer)
            return piece, b""
        if match[0] == b"\r" and match.end() == len(self._buffer) and self._more():
            match = stops.search(self._buffer, self._at)  # A line feed may follow.
            assert match is not None  # noqa: S101 - it was there before
        piece, self._at = self._buffer[self._at : match.start()], match.end()
        return piece, match[0]

    def _more(self) -> bool:
        """Read a chunk behind what is left. False at the end of the stream. Raises CsvError."""
        if self._exhausted:
            return False
        chunk = self._stream.read(CHUNK)
        try:
            self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            place = self._base + len(self._buffer) + max(0, error.start)
            raise CsvError("encoding", f"The file is no text in UTF-8, near byte {place}. Save it as UTF-8.") from None
        if not chunk:
            self._exhausted = True
            return False
        self._base += self._at
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return True
