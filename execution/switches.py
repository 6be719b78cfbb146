"""The dispatch switch: operators stop the sending of everything, of one workspace, to one destination, or of one queue.

A row of `DispatchSwitch` stands for what is off. It is read by the fire loop, fan-out and the retry loop (once in each
turn), and by the engine at the claim and at the gate (at most once a second in each process). Nothing is dropped and
no attempt is charged:

- everything off: the loops do nothing, the backlog stays where it is; what a worker holds goes back into it.
- a part off: its rows leave the indexes of the loops, so that these never look at them again: PENDING rows leave their
  bucket, RETRYING rows stay what they are, and both name the switch in `held_by`. Else each tick would pass over the
  whole backlog of what is off, and rows that may go would starve behind it.

`release_held`, in the fire loop, lets go whatever names a switch that is no more. It needs no word from whoever
switched on, so a row that was held by somebody who had not yet seen that is found a second later. Rows keep their
`due_at`: they go in its order, and one whose `start_deadline` has passed meanwhile ends as it would have anyway.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from psycopg import AsyncConnection

from chronos_site.infra.kafka import parse_bootstrap
from chronos_site.infra.sql import statement
from chronos_site.tenancy.models import Workspace
from execution import buckets, publish
from execution.dispatch.destination import destination_of_target
from execution.dispatch.egress import destination_of
from execution.domain.buckets import bucket_of
from execution.models import DispatchSwitch

log = logging.getLogger(__name__)

Scope = DispatchSwitch.Scope

QUEUES = (publish.DISPATCH_QUEUE, "bulk-records", publish.NOTIFICATIONS_QUEUE)
"""The queues that can be switched off."""
SELECT = "SELECT id, scope, value FROM execution_dispatchswitch"


class UnknownPlace(ValueError):  # noqa: N818 - named for what it says
    """What is to be switched cannot be found; the text says what to do."""


# --- what is off ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Closed:
    """What is off now, as one reading of the table says."""

    everything: bool = False
    """No execution is sent: the switch of everything, or that of their queue."""
    queues: frozenset[str] = frozenset()
    """Queues of which nothing is sent."""
    workspaces: Mapping[str, int] = field(default_factory=dict)
    """Switch by workspace id."""
    destinations: Mapping[str, int] = field(default_factory=dict)
    """Switch by host:port."""

    @property
    def in_part(self) -> bool:
        return bool(self.workspaces or self.destinations)

    def holder(self, workspace_id: UUID, target: Mapping[str, Any]) -> int | None:
        """The switch that keeps this delivery from being sent, but for one that stops everything."""
        found = self.workspaces.get(str(workspace_id)) if self.workspaces else None
        if found is None and self.destinations:
            found = self.destinations.get(destination_of_target(target))
        return found

    def holders(self, rows: Iterable[tuple[UUID, UUID, Mapping[str, Any]]]) -> dict[UUID, int]:
        """The switch by row, for those of `(id, workspace_id, target)` that are held."""
        found = {row_id: self.holder(workspace_id, target) for row_id, workspace_id, target in rows}
        return {row_id: switch for row_id, switch in found.items() if switch is not None}


def read_closed() -> Closed:
    """What is off now. One small query: call it once in a turn, not for each row."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT)
        return _closed(cursor.fetchall())


async def read_closed_async(db: AsyncConnection[Any]) -> Closed:
    """The same on a connection of the engine."""
    cursor = await db.execute(SELECT)
    return _closed(await cursor.fetchall())


def _closed(rows: Sequence[tuple[Any, ...]]) -> Closed:
    by_scope: dict[str, dict[str, int]] = {scope: {} for scope in Scope.values}
    for switch_id, scope, value in rows:
        by_scope[scope][value] = switch_id
    queues = frozenset(QUEUES if by_scope[Scope.GLOBAL] else by_scope[Scope.QUEUE])
    return Closed(
        everything=publish.DISPATCH_QUEUE in queues,
        queues=queues,
        workspaces=by_scope[Scope.WORKSPACE],
        destinations=by_scope[Scope.DESTINATION],
    )


# --- off and on ----------------------------------------------------------------------------------


def place_of(*, scope: str, value: str) -> str:
    """The value as it is stored, from what a person gives. Raises UnknownPlace."""
    if scope == Scope.GLOBAL:
        if value:
            raise UnknownPlace("The scope global takes no value: it is everything. Leave the value out.")
        return ""
    if scope == Scope.WORKSPACE:
        return str(_workspace(value).id)
    if scope == Scope.QUEUE:
        if value not in QUEUES:
            raise UnknownPlace(f"There is no queue {value!r} that can be switched. There is: {', '.join(QUEUES)}.")
        return value
    return _destination(value)


def _workspace(value: str) -> Workspace:
    found = Workspace.objects.filter(name=value).first()
    try:
        found = found or Workspace.objects.filter(id=UUID(value)).first()
    except ValueError:
        found = None
    if found is None:
        raise UnknownPlace(f"There is no workspace {value!r}. Give its name or its id.")
    return found


def _destination(value: str) -> str:
    """From `host:port`, from a URL, whose scheme may stand for the port, or from `kafka://host:port,host:port`."""
    if value.lower().startswith("kafka://"):
        try:
            return parse_bootstrap(value[len("kafka://") :])
        except ValueError as error:
            raise UnknownPlace(str(error)) from None
    if "://" in value:
        found = destination_of(value)
    else:
        _, colon, port = value.rpartition(":")
        found = destination_of(f"http://{value}/") if colon and port.isdigit() else ""
    if not found:
        raise UnknownPlace(f"{value!r} is no destination. Give host:port, as in example.com:443, or a URL.")
    return found


def close_switch(*, scope: str, value: str = "", reason: str = "", set_by: str = "") -> tuple[DispatchSwitch, bool]:
    """Switch off. Returns the switch, and whether it was on before; off again changes nothing. Raises UnknownPlace."""
    place = place_of(scope=scope, value=value)
    switch, changed = DispatchSwitch.objects.get_or_create(
        scope=scope, value=place, defaults={"reason": reason, "set_by": set_by}
    )
    if changed:
        log.warning("switched_off", extra={"action": "switch", "scope": scope, "value": place, "reason": reason})
    return switch, changed


def open_switch(*, scope: str, value: str = "", set_by: str = "") -> bool:
    """Switch on. False where it was on. The fire loop lets go what waited. Raises UnknownPlace."""
    place = place_of(scope=scope, value=value)
    gone, _ = DispatchSwitch.objects.filter(scope=scope, value=place).delete()
    if gone:
        log.warning("switched_on", extra={"action": "switch", "scope": scope, "value": place, "set_by": set_by})
    return bool(gone)


# --- what waits ----------------------------------------------------------------------------------


def release_held(*, closed: Closed, most: int) -> int:
    """Let go up to `most` executions whose switch is no more, first due first. Returns how many.

    PENDING ones go back into the bucket of their own `due_at`, however old, since the fire loop takes the oldest first.
    Called by every tick: where nothing is held, it costs one look into an empty index.
    """
    off = [*closed.workspaces.values(), *closed.destinations.values()]
    released = 0
    for switch_id in _named_switches():
        if switch_id not in off and released < most:
            released += _release(switch_id, most - released)
    if released:
        log.info("held_released", extra={"action": "switch", "released": released})
    return released


def _named_switches() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement("execution", "select_named_switches"))
        return [row[0] for row in cursor.fetchall()]


@transaction.atomic
def _release(switch_id: int, most: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, due_at, state FROM execution_execution"
            " WHERE held_by = %s AND state IN ('PENDING', 'RETRYING') ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED",
            [switch_id, most],
        )
        rows = cursor.fetchall()
        places = [
            bucket_of(row_id, due_at, settings.CHRONOS_BUCKET_SHARDS) if state == "PENDING" else None
            for row_id, due_at, state in rows
        ]
        buckets.open_buckets(place for place in places if place is not None)
        cursor.execute(
            "UPDATE execution_execution e SET held_by = NULL, bucket_id = w.bucket_id, park_reason = ''"
            " FROM unnest(%s::uuid[], %s::bigint[]) AS w(id, bucket_id)"
            " WHERE e.id = w.id AND e.held_by = %s",
            [[row[0] for row in rows], places, switch_id],
        )
        return int(cursor.rowcount)
