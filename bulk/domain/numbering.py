"""Ids of rows and chunks, made of their job's id and a row's number. Pure.

A job's id is a UUIDv7; its last 40 bits, which are random, make room for the number. So a row's id is the same however
often it is read or tried, rows lie in the table's one index in the order of the file, and a job's rows are a range.
"""

from uuid import UUID

ROW_BITS = 40
MOST_ROWS = (1 << ROW_BITS) - 1
CHUNK = 100
"""Rows of one chunk, and of one message. Chunks lie at fixed places: the first holds rows 1 to 100."""

_ROW_MASK = MOST_ROWS


def row_id(job_id: UUID, number: int) -> UUID:
    """The id of a row; `number` counts from 1. 0 stands for the start of the range."""
    return UUID(int=first_id(job_id) | number)


def first_id(job_id: UUID) -> int:
    """Where the range of a job's rows begins, as a number."""
    return job_id.int & ~_ROW_MASK


def range_of(job_id: UUID) -> tuple[UUID, UUID]:
    """The ids between which all rows of a job lie, both included."""
    return UUID(int=first_id(job_id)), UUID(int=first_id(job_id) | _ROW_MASK)


def number_of(record_id: UUID) -> int:
    return record_id.int & _ROW_MASK


def chunk_of(record_id: UUID) -> UUID:
    """The id of the chunk that holds this row: that of its first row."""
    number = record_id.int & _ROW_MASK
    return UUID(int=record_id.int - (number - 1) % CHUNK)
