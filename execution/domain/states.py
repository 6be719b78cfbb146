"""The states of an execution and the edges between them, as data.

`execution.transitions` is the only writer.

PENDING → QUEUED → RUNNING → SUCCEEDED
                      ├→ RETRYING → QUEUED …
                      └→ FAILED (+ dead letter)
"""

from enum import StrEnum


class State(StrEnum):
    PENDING = "PENDING"
    """Waits for its `due_at`; in a bucket, or parked (no bucket, with a park reason)."""
    QUEUED = "QUEUED"
    """Fan-out took it; a message with its id is on the dispatch queue, or is about to be."""
    RUNNING = "RUNNING"
    """A worker holds a claim on it, until `lease_until`."""
    RETRYING = "RETRYING"
    """An attempt failed, or flow control holds it; goes back to the queue at `due_at`."""
    SUCCEEDED = "SUCCEEDED"
    """The receiver answered 2xx."""
    FAILED = "FAILED"
    """Failed for good."""
    CANCELLED = "CANCELLED"
    """Cancelled before a send began."""
    SKIPPED = "SKIPPED"
    """Overlap or misfire policy passed over it; the reason is on the row."""
    EXPIRED = "EXPIRED"
    """Its `start_deadline` passed before fan-out took it."""


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED, State.EXPIRED})

EDGES: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.QUEUED, State.CANCELLED, State.SKIPPED, State.EXPIRED}),
    # A late 2xx of the row's current claim is taken in QUEUED and RETRYING too.
    State.QUEUED: frozenset({State.RUNNING, State.PENDING, State.RETRYING, State.CANCELLED, State.SUCCEEDED}),
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.RETRYING, State.QUEUED, State.CANCELLED}),
    State.RETRYING: frozenset({State.QUEUED, State.CANCELLED, State.SUCCEEDED}),
    **{end: frozenset() for end in TERMINAL},
}


def may_move(source: State, target: State) -> bool:
    """Whether the table has an edge from `source` to `target`."""
    return target in EDGES[source]
