"""The JSON text of an event but for its id, which whoever writes it to the stream puts before it. Pure.

`"type":"schedule.paused","version":1,…}`: without the opening brace. `docs/events.md` describes the members.
"""

import json
from datetime import datetime
from typing import Any
from uuid import UUID

VERSION = 1


def body(
    kind: str,
    *,
    at: datetime,
    workspace_id: UUID,
    state: str,
    job_definition_id: UUID | None = None,
    schedule_id: UUID | None = None,
    reason: str = "",
    code: str = "",
    **others: UUID,
) -> str:
    """An event about something that is no execution; `others` names it where it has no member of its own."""
    members: dict[str, Any] = {
        "type": kind,
        "version": VERSION,
        "state": state,
        "attempt": None,
        "at": at.isoformat(),
        "due_at": None,
        "code": code or None,
        "reason": reason or None,
        "workspace": str(workspace_id),
        "job_definition": None if job_definition_id is None else str(job_definition_id),
        "schedule": None if schedule_id is None else str(schedule_id),
        "execution": None,
        "scheduled_for": None,
        **{name: str(value) for name, value in others.items()},
    }
    return json.dumps(members, separators=(",", ":"))[1:]
