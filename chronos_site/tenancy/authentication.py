"""`Authorization: Bearer chr_…` and nothing else: no session, no key in a query. Whatever is not a live key is 401."""

from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from chronos_site.observability import context
from chronos_site.tenancy import keys, selectors
from chronos_site.tenancy.models import ApiKey

LAST_USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class KeyPrincipal:
    """Who asks: a program with a key, no person. Stands where Django expects a user."""

    name: str
    is_authenticated: bool = True
    is_anonymous: bool = False
    is_active: bool = True
    is_staff: bool = False
    is_superuser: bool = False


class ApiKeyAuthentication(BaseAuthentication):
    """`request.auth` becomes the ApiKey with its workspace. Never returns None: no other way in may follow."""

    def authenticate(self, request: Request) -> tuple[KeyPrincipal, ApiKey]:
        key = key_of_header(request.headers.get("Authorization"))
        context.workspace_id.set(str(key.workspace_id))
        return KeyPrincipal(f"key {key.prefix}"), key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="chronos"'


def calling_key(request: Request) -> ApiKey:
    """The key that an authenticated request came with, and its workspace: what `request.auth` is, by its type."""
    return cast("ApiKey", request.auth)


def key_of_header(header: str | None) -> ApiKey:
    """The live key that an Authorization header holds; its use is noted. Raises AuthenticationFailed."""
    key = _live_key(_bearer(header))
    _note_use(key)
    return key


def _bearer(header: str | None) -> str:
    if header is None:
        raise AuthenticationFailed("Send an API key: Authorization: Bearer chr_…", "missing_key")
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer" or not keys.looks_valid(key):
        detail = "Authorization holds no API key of Chronos. Check that the key is whole: Bearer chr_…"
        raise AuthenticationFailed(detail, "malformed_key")
    return key


def _live_key(plaintext: str) -> ApiKey:
    key = selectors.api_key_by_hash(key_hash=keys.hash_key(plaintext))
    if key is None:
        raise AuthenticationFailed("There is no such API key.", "unknown_key")
    if key.revoked_at is not None:
        raise AuthenticationFailed("This API key is revoked.", "revoked_key")
    if key.by_previous and (key.previous_expires_at is None or key.previous_expires_at <= timezone.now()):
        raise AuthenticationFailed("This API key was rotated, and its time has ended. Use the new one.", "rotated_key")
    if key.expires_at is not None and key.expires_at <= timezone.now():
        raise AuthenticationFailed("This API key has expired.", "expired_key")
    return key


def _note_use(key: ApiKey) -> None:
    """At most one write a minute per key, however many processes see it."""
    now = timezone.now()
    name = "previous_used_at" if key.by_previous else "last_used_at"
    last = getattr(key, name)
    if last is None or last < now - LAST_USED_EVERY:
        stale = Q(**{name: None}) | Q(**{f"{name}__lt": now - LAST_USED_EVERY})
        ApiKey.objects.filter(stale, id=key.id).update(**{name: now})
