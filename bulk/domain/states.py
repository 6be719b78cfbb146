"""States of bulk jobs and of their records, with every edge as data. Pure."""

from enum import StrEnum


class JobState(StrEnum):
    UPLOADED = "UPLOADED"
    """The file is in the object storage; no row has been read."""
    INGESTING = "INGESTING"
    """Its rows are on their way into the table; nothing has been sent."""
    RUNNING = "RUNNING"
    """Rows are delivered."""
    PAUSED = "PAUSED"
    """No row is begun until somebody starts it again."""
    COMPLETED = "COMPLETED"
    """Every row was delivered."""
    PARTIAL_FAILURE = "PARTIAL_FAILURE"
    """Some rows were delivered, others failed or were never valid."""
    FAILED = "FAILED"
    """No row was delivered, or the file could not be taken."""
    CANCELLED = "CANCELLED"


class RecordState(StrEnum):
    PENDING = "PENDING"
    QUEUED = "QUEUED"
    """On its way to a worker once more; `due_at` says until when its message may take."""
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    INVALID = "INVALID"
    """The row could not be read; it was never to be sent."""


class ChunkState(StrEnum):
    WAITING = "WAITING"
    QUEUED = "QUEUED"
    """Published; `lease_until` says when somebody looks whether its rows got on."""
    DONE = "DONE"
    """Every row has ended."""


_J = JobState
JOB_ENDED = frozenset({_J.COMPLETED, _J.PARTIAL_FAILURE, _J.FAILED, _J.CANCELLED})

JOB_EDGES: frozenset[tuple[JobState, JobState]] = frozenset(
    {
        (_J.UPLOADED, _J.INGESTING),
        (_J.INGESTING, _J.RUNNING),
        (_J.INGESTING, _J.PAUSED),
        (_J.INGESTING, _J.FAILED),
        (_J.RUNNING, _J.PAUSED),
        (_J.PAUSED, _J.RUNNING),
        *((state, end) for state in (_J.RUNNING, _J.PAUSED) for end in JOB_ENDED),
        *((state, _J.CANCELLED) for state in (_J.UPLOADED, _J.INGESTING)),
        # A person has the failed rows tried again.
        *((end, _J.RUNNING) for end in (_J.PARTIAL_FAILURE, _J.FAILED)),
    }
)

_R = RecordState
RECORD_ENDED = frozenset({_R.SUCCEEDED, _R.FAILED, _R.CANCELLED, _R.INVALID})

RECORD_EDGES: frozenset[tuple[RecordState, RecordState]] = frozenset(
    {
        (_R.PENDING, _R.RUNNING),
        (_R.QUEUED, _R.RUNNING),
        (_R.RETRYING, _R.QUEUED),
        # Given back before the send, or put off by flow control, a switch or a pause.
        (_R.RUNNING, _R.QUEUED),
        (_R.RUNNING, _R.RETRYING),
        (_R.RUNNING, _R.SUCCEEDED),
        (_R.RUNNING, _R.FAILED),
        (_R.RUNNING, _R.CANCELLED),
        # A success that came late, while nobody has claimed the row since.
        (_R.QUEUED, _R.SUCCEEDED),
        (_R.RETRYING, _R.SUCCEEDED),
        *((state, _R.CANCELLED) for state in (_R.PENDING, _R.QUEUED, _R.RETRYING)),
        (_R.FAILED, _R.PENDING),
    }
)


def end_of(*, succeeded: int, failed: int, invalid: int, cancelled: bool) -> JobState:
    """What a job whose rows have all ended came to."""
    if cancelled:
        return _J.CANCELLED
    if not failed and not invalid:
        return _J.COMPLETED
    return _J.PARTIAL_FAILURE if succeeded else _J.FAILED
