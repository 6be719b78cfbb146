"""What changes workspaces and keys. A key's plaintext is returned once, by the call that makes it, and kept nowhere."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from chronos_site.tenancy import keys
from chronos_site.tenancy.models import ApiKey, Scope, Workspace

OVERLAP_S = 86_400
"""How long a rotated key's old secret works on, unless it is said otherwise."""
LONGEST_OVERLAP_S = 30 * 86_400

ALL_SCOPES: tuple[str, ...] = tuple(Scope.values)


class KeyEndedError(Exception):
    """The key is revoked or expired and cannot be rotated. `code` says which."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def create_workspace(*, name: str) -> Workspace:
    """Raises Django's ValidationError where the name is taken or is no slug (letters, digits, - and _, up to 63)."""
    workspace = Workspace(name=name)
    workspace.full_clean()
    workspace.save(force_insert=True)
    return workspace


def create_api_key(
    *,
    workspace: Workspace,
    name: str,
    scopes: Sequence[str] = ALL_SCOPES,
    expires_at: datetime | None = None,
    created_by: User | None = None,
) -> tuple[ApiKey, str]:
    """The stored row and the plaintext. Raises Django's ValidationError for a scope that does not exist."""
    unknown = sorted(set(scopes) - set(ALL_SCOPES))
    if unknown or not scopes:
        raise ValidationError({"scopes": f"Choose at least one of {', '.join(ALL_SCOPES)}; not {unknown}."})
    plaintext = keys.generate_key()
    key = ApiKey.objects.create(
        workspace=workspace,
        name=name,
        prefix=keys.shown_prefix(plaintext),
        key_hash=keys.hash_key(plaintext),
        scopes=[scope for scope in ALL_SCOPES if scope in set(scopes)],
        expires_at=expires_at,
        created_by=created_by,
    )
    return key, plaintext


@transaction.atomic
def rotate_api_key(*, workspace: Workspace, key_id: UUID, overlap_s: float = OVERLAP_S) -> tuple[ApiKey, str]:
    """A new secret for the same key; the old one works on for `overlap_s`, the one before it stops at once.

    Raises ApiKey.DoesNotExist and KeyEndedError.
    """
    key = ApiKey.objects.select_for_update().get(workspace=workspace, id=key_id)
    if key.revoked_at is not None:
        raise KeyEndedError("key_revoked", "This key is revoked and stays so. Create a new one.")
    if key.expires_at is not None and key.expires_at <= timezone.now():
        raise KeyEndedError("key_expired", "This key has expired. Create a new one.")
    now = timezone.now()
    plaintext = keys.generate_key()
    key.previous_prefix = key.prefix
    # The row of a secret that has ended stays: whoever still sends it is told that it was rotated.
    key.previous_key_hash = key.key_hash
    key.previous_expires_at = now + timedelta(seconds=max(0.0, overlap_s))
    key.previous_used_at = key.last_used_at
    key.prefix = keys.shown_prefix(plaintext)
    key.key_hash = keys.hash_key(plaintext)
    key.last_used_at = None
    key.save(
        update_fields=[
            "prefix",
            "key_hash",
            "last_used_at",
            "previous_prefix",
            "previous_key_hash",
            "previous_expires_at",
            "previous_used_at",
        ]
    )
    return key, plaintext


def revoke_api_key(*, workspace: Workspace, key_id: UUID) -> None:
    """From the next request on the key is refused. Safe to repeat. Raises ApiKey.DoesNotExist."""
    mine = ApiKey.objects.filter(workspace=workspace, id=key_id)
    if not mine.filter(revoked_at=None).update(revoked_at=timezone.now()) and not mine.exists():
        raise ApiKey.DoesNotExist
