"""Reads. Every one is bound to a workspace, but for those that find it: `api_key_by_hash`, `workspaces_of`."""

from collections.abc import Iterable
from functools import cache
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from chronos_site.infra.clock import DatabaseClock
from chronos_site.tenancy.models import ApiKey, Membership, Workspace


def workspaces_of(*, user: Any, roles: Iterable[Membership.Role] = tuple(Membership.Role)) -> QuerySet[Workspace]:
    """The workspaces in which a person has one of these roles; all of them for a superuser."""
    if user.is_superuser:
        return Workspace.objects.all()
    return Workspace.objects.filter(memberships__user_id=user.pk, memberships__role__in=list(roles))


def api_keys(*, workspace: Workspace) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(workspace=workspace)


def api_key(*, workspace: Workspace, key_id: UUID) -> ApiKey:
    """Raises ApiKey.DoesNotExist, also for another workspace's."""
    return api_keys(workspace=workspace).get(id=key_id)


def api_key_by_hash(*, key_hash: str) -> ApiKey | None:
    """The key that has this secret, or had it before its last rotation; its workspace and the database's clock with it.

    Asked for every request of the API: written out, for Django takes longer to write it than Postgres to answer.
    """
    sql, key_names, workspace_names = _key_query()
    with connection.cursor() as cursor:
        cursor.execute(sql, [key_hash, key_hash])
        row = cursor.fetchone()
    if row is None:
        return None
    key = ApiKey.from_db(connection.alias, key_names, row[: len(key_names)])
    key.workspace = Workspace.from_db(connection.alias, workspace_names, row[len(key_names) : -1])
    key.clock = DatabaseClock(row[-1])
    key.by_previous = key.key_hash != key_hash
    return key


@cache
def _key_query() -> tuple[str, list[str], list[str]]:
    """The statement, and the names of what it answers: the key's, then the workspace's; the clock comes last."""
    names: list[list[str]] = []
    columns: list[str] = []
    for letter, model in (("k", ApiKey), ("w", Workspace)):
        fields = model._meta.concrete_fields
        names.append([str(field.attname) for field in fields])
        columns += [f"{letter}.{field.column}" for field in fields]
    sql = (
        f"SELECT {', '.join(columns)}, clock_timestamp() FROM {ApiKey._meta.db_table} k"  # noqa: S608 - names of the models' own
        f" JOIN {Workspace._meta.db_table} w ON w.id = k.workspace_id"
        " WHERE k.key_hash = %s OR k.previous_key_hash = %s"
    )
    return sql, names[0], names[1]
