"""What the engine hands from step to step: a claim on a row, and the result of one attempt."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from .states import State


class Clock(Protocol):
    """The database's clock, as the worker carries it."""

    def now_s(self) -> float:
        """Unix seconds."""

    def now(self) -> datetime:
        """The same as an aware time."""


@dataclass(slots=True)
class Claim:
    """A worker's hold on one execution, with all that the send needs."""

    id: UUID
    claim_seq: int
    attempt: int
    """The number of the attempt that this claim may begin, from 1."""
    started_at: datetime | None
    """When the first send of the execution began; None before it."""
    workspace_id: UUID
    job_definition_id: UUID | None
    schedule_id: UUID | None
    scheduled_for: datetime
    due_at: datetime
    lease_until: datetime
    kind: str
    target: dict[str, Any]
    payload: Any
    timeout_s: float
    retry: dict[str, Any]
    traceparent: str
    clock: Clock
    """Every time that is compared with the database's, or stored beside it, is read here."""
    concurrency_key: str | None = None
    """Where set, another execution may wait for the end of this one."""
    secret_namespaces: tuple[str, ...] = ()
    """Namespaces whose secrets the workspace may use."""
    limits: dict[str, Any] = field(default_factory=dict)
    state_reason: str = ""
    """What the row said of itself before the claim; flow control leaves its word there."""
    span: Any = None
    """The span of this attempt, where one is recorded."""
    flow_wait_s: float = 0.0
    """Seconds that flow control has made it wait since its first send; they do not count as elapsed."""
    attempts_before: int = 0
    """Attempts that the retry policy does not count: those from before a person had it tried again."""
    about: str = ""
    """What its events have in common; `execution.domain.events` fills it in."""

    @property
    def names(self) -> dict[str, str]:
        """Whose it is, for lines of the log."""
        ids = {"execution_id": str(self.id), "workspace_id": str(self.workspace_id)}
        return {**ids, "trace_id": self.traceparent[3:35]}


@dataclass(frozen=True, slots=True)
class Postponed:
    """Flow control's word on a claim that may not be sent yet."""

    due_at: datetime
    reason: str


@dataclass(slots=True)
class Result:
    """What became of one attempt; ready to be stored."""

    claim: Claim
    state: State
    reason: str
    status: int | None
    error: str | None
    """A short code: timeout, connect, network, tls, dns, secret_missing, internal; None where the receiver answered."""
    error_text: str
    duration_ms: float
    finished_at: datetime
    retry_in_s: float | None = None
    """Seconds until the next attempt; set with RETRYING only."""
    dead_reason: str = ""
    """Why it failed for good; set with FAILED only."""
    response_headers: dict[str, str] = field(default_factory=dict)
    response_excerpt: str = ""
    """At most 4 KiB of the answer's body."""
    began_at: datetime | None = None
    address: str | None = None
    """The address connected to."""
