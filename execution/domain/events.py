"""Events: what became of an execution, for whoever watches. Pure.

`docs/events.md` describes the members and `docs/event.schema.json` is their schema. Of an execution's past only
short codes are told: no text of an error, no target, no payload.

An event is made as text at once, by parts that are made once for each claim: each delivery tells of several, and a dict
that is dumped would cost more than all the rest of the telling.
"""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from uuid import UUID

from chronos_site.infra.event_body import VERSION

from .outcome import Claim, Result
from .states import State


class EventType(StrEnum):
    """What may happen to an execution, with the edge of `states.EDGES` that it tells of."""

    CREATED = "execution.created"
    """→ PENDING."""
    QUEUED = "execution.queued"
    """PENDING | RETRYING → QUEUED."""
    UNQUEUED = "execution.unqueued"
    """QUEUED → PENDING | RETRYING: its message could not be published, or everything is switched off."""
    CLAIMED = "execution.claimed"
    """QUEUED → RUNNING."""
    RELEASED = "execution.released"
    """RUNNING → QUEUED: the worker stopped, or could not ask the gate, before the send began."""
    PARKED = "execution.parked"
    """RUNNING → PENDING | RETRYING: its job was paused, or a dispatch switch went off, before the send began."""
    POSTPONED = "execution.postponed"
    """RUNNING → RETRYING by flow control, before the send began."""
    RETRY_SCHEDULED = "execution.retry_scheduled"
    """RUNNING → RETRYING: the attempt failed, or its claim was lost."""
    SUCCEEDED = "execution.succeeded"
    FAILED = "execution.failed"
    """For good: there is a dead letter."""
    CANCELLED = "execution.cancelled"
    SKIPPED = "execution.skipped"
    EXPIRED = "execution.expired"
    WITHDRAWN = "execution.withdrawn"
    """A PENDING occurrence was taken back, for its schedule was edited or paused: the row is gone."""


TYPE_OF_RESULT = {
    State.SUCCEEDED: EventType.SUCCEEDED,
    State.RETRYING: EventType.RETRY_SCHEDULED,
    State.FAILED: EventType.FAILED,
    State.CANCELLED: EventType.CANCELLED,
}

# What `row_event` takes: the members that are columns, as Postgres writes them of the row `e`. A statement that returns
# this tells of its rows without another look at them.
ROW = (
    "json_build_object('state', e.state, 'attempt', e.attempt, 'at', clock_timestamp(), 'due_at', e.due_at,"
    " 'workspace', e.workspace_id, 'job_definition', e.job_definition_id, 'schedule', e.schedule_id,"
    " 'execution', e.id, 'scheduled_for', e.scheduled_for)::text"
)


def row_event(kind: EventType, row: str, *, reason: str = "", code: str = "") -> str:
    """The event that a row tells as `ROW`; without its id, as all here."""
    return f'"type":"{kind}","version":{VERSION},"code":{_text(code)},"reason":{_text(reason)},{row[1:]}'


def claimed(claim: Claim, at: datetime) -> str:
    """`attempt` counts begun sends: the one that this claim may begin is not yet among them."""
    return (
        f'"type":"execution.claimed","version":{VERSION},"state":"RUNNING","attempt":{claim.attempt - 1},'
        f'"at":"{at.isoformat()}","due_at":"{claim.due_at.isoformat()}","code":null,"reason":null,{_about(claim)}'
    )


def finished(result: Result, due_at: datetime | None) -> str:
    """What an attempt came to. `due_at`: of the next attempt, where there is one."""
    claim = result.claim
    code = result.error or ("" if result.status is None else f"http_{result.status}")
    return (
        f'"type":"{TYPE_OF_RESULT[result.state]}","version":{VERSION},"state":"{result.state}",'
        f'"attempt":{claim.attempt},"at":"{result.finished_at.isoformat()}",'
        f'"due_at":"{(due_at or claim.due_at).isoformat()}",'
        f'"code":{_text(code)},"reason":{_text(result.dead_reason or result.reason)},{_about(claim)}'
    )


def _about(claim: Claim) -> str:
    """The members that do not change while a claim is held."""
    if not claim.about:
        claim.about = (
            f'"workspace":"{_id(claim.workspace_id)}","job_definition":{_id_or_null(claim.job_definition_id)},'
            f'"schedule":{_id_or_null(claim.schedule_id)},"execution":"{claim.id}",'
            f'"scheduled_for":"{claim.scheduled_for.isoformat()}"}}'
        )
    return claim.about


_id: Callable[[UUID], str] = lru_cache(maxsize=4096)(str)


def _id_or_null(value: UUID | None) -> str:
    return "null" if value is None else f'"{_id(value)}"'


@lru_cache(maxsize=1024)
def _text(value: str) -> str:
    return _quoted(value) if value else "null"
