"""Who may watch over a WebSocket: whoever has a key, or a session and a membership.

Who may watch is asked on connect and again every `CHECK_S`, so that a revoked key closes its sockets within a minute.
"""

from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib import auth
from django.http import HttpRequest
from django.http.cookie import parse_cookie
from rest_framework.exceptions import AuthenticationFailed

from chronos_site.tenancy.authentication import key_of_header
from chronos_site.tenancy.models import Membership, Scope, Workspace

ENDED, FAILED = 1000, 1011
BAD_QUERY, UNAUTHENTICATED, FORBIDDEN, NOT_FOUND = 4400, 4401, 4403, 4404

CHECK_S = 20.0
UNCHECKED_S = 50.0
"""How long a socket stays open while the database cannot say whether it may."""


class CloseError(Exception):
    """The socket is to be closed with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"close {code}")
        self.code = code


class Nowhere(AsyncWebsocketConsumer):
    """Every other path."""

    async def connect(self) -> None:
        await self.close()


def workspace_of_caller(scope: dict[str, Any]) -> UUID:
    """The workspace that the caller may watch, asked on connect and again later. Raises CloseError."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    if "authorization" in headers:
        return _workspace_of_key(headers["authorization"])
    return _workspace_of_session(headers, parse_qs(scope["query_string"].decode("latin-1")))


def _workspace_of_key(header: str) -> UUID:
    try:
        key = key_of_header(header)
    except AuthenticationFailed as error:
        raise CloseError(UNAUTHENTICATED) from error
    if Scope.EXECUTIONS_READ not in key.scopes:
        raise CloseError(FORBIDDEN)
    return key.workspace_id


def _workspace_of_session(headers: dict[str, str], query: dict[str, list[str]]) -> UUID:
    user = _user_of_session(headers.get("cookie", ""))
    if not user.is_authenticated or not user.is_active:
        raise CloseError(UNAUTHENTICATED)
    # A browser sends the cookie along whichever page opens the socket; its Origin says which it was.
    if urlsplit(headers.get("origin", "")).netloc.lower() != headers.get("host", "").lower():
        raise CloseError(FORBIDDEN)
    workspace = Workspace.objects.filter(name=query.get("workspace", [""])[0]).first()
    if workspace is None:
        raise CloseError(FORBIDDEN)
    if not user.is_superuser and not Membership.objects.filter(user_id=user.pk, workspace=workspace).exists():
        raise CloseError(FORBIDDEN)
    return workspace.id


def _user_of_session(cookies: str) -> Any:
    request = HttpRequest()
    store = import_module(settings.SESSION_ENGINE).SessionStore
    request.session = store(parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME))
    return auth.get_user(request)
