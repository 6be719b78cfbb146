"""Reads. Every one is bound to a workspace, but for the one that finds it: `api_key_by_hash`."""

from uuid import UUID

from django.db.models import QuerySet

from chronos_site.tenancy.models import ApiKey, Workspace


def api_keys(*, workspace: Workspace) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(workspace=workspace)


def api_key(*, workspace: Workspace, key_id: UUID) -> ApiKey:
    """Raises ApiKey.DoesNotExist, also for another workspace's."""
    return api_keys(workspace=workspace).get(id=key_id)


def api_key_by_hash(*, key_hash: str) -> ApiKey | None:
    """The key and its workspace in one query."""
    return ApiKey.objects.select_related("workspace").filter(key_hash=key_hash).first()
