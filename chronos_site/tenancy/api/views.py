"""Workspace and API keys under /v1: parse, call a service or selector, answer."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar
from uuid import UUID

from django.conf import settings
from django.http import Http404
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.idempotency import idempotent_hiding
from chronos_site.api.problems import Problem
from chronos_site.api.queries import CursorPage, QueryParameters
from chronos_site.tenancy import quotas, selectors, services
from chronos_site.tenancy.api.serializers import (
    ApiKeySerializer,
    CreatedApiKeySerializer,
    RotationSerializer,
    WorkspaceSerializer,
)
from chronos_site.tenancy.authentication import calling_key
from chronos_site.tenancy.models import ApiKey
from chronos_site.tenancy.services import KeyEndedError

KEY_EXAMPLE = OpenApiExample(
    "A key that may only schedule",
    value={"name": "shop", "scopes": ["schedules:write", "executions:read"], "expires_at": "2031-01-01T00:00:00Z"},
    request_only=True,
)


class WorkspaceDetail(APIView):
    required_scopes: ClassVar = {"GET": "workspace:read"}

    @extend_schema(operation_id="get_workspace", responses=WorkspaceSerializer)
    def get(self, request: Request) -> Response:
        """The workspace of the key that asks, with its quotas, what is used of them, and its limits."""
        QueryParameters(request)
        workspace = calling_key(request).workspace
        workspace.rate_limit_per_s = workspace.rate_limit_per_s or settings.CHRONOS_RATE_LIMIT_PER_WORKSPACE
        workspace.usage = quotas.usage_of(workspace)  # type: ignore[attr-defined]
        return Response(WorkspaceSerializer(workspace).data)


class ApiKeyList(APIView):
    required_scopes: ClassVar = {"GET": "keys:admin", "POST": "keys:admin"}

    @extend_schema(operation_id="list_api_keys", responses=ApiKeySerializer(many=True))
    def get(self, request: Request) -> Response:
        """Newest first, revoked and expired ones among them."""
        query = QueryParameters(request, page=True)
        return CursorPage(query).answer(selectors.api_keys(workspace=calling_key(request).workspace), ApiKeySerializer)

    @extend_schema(
        operation_id="create_api_key",
        request=ApiKeySerializer,
        responses={201: CreatedApiKeySerializer},
        examples=[KEY_EXAMPLE],
    )
    @idempotent_hiding("key")
    def post(self, request: Request) -> Response:
        """The answer holds the key itself, once. A key grants no scope that it lacks."""
        QueryParameters(request)
        body = ApiKeySerializer(data=request.data)
        body.is_valid(raise_exception=True)
        _refuse_more_than_own(request, body.validated_data["scopes"])
        key, plaintext = services.create_api_key(workspace=calling_key(request).workspace, **body.validated_data)
        return _shown_once(key, plaintext, status=201)


class ApiKeyDetail(APIView):
    required_scopes: ClassVar = {"GET": "keys:admin", "DELETE": "keys:admin"}

    @extend_schema(operation_id="get_api_key", responses=ApiKeySerializer)
    def get(self, request: Request, key_id: UUID) -> Response:
        QueryParameters(request)
        with _refusals():
            key = selectors.api_key(workspace=calling_key(request).workspace, key_id=key_id)
        return Response(ApiKeySerializer(key).data)

    @extend_schema(operation_id="revoke_api_key", responses={204: None})
    def delete(self, request: Request, key_id: UUID) -> Response:
        """Revoke: from the next request on the key is refused. Safe to repeat."""
        QueryParameters(request)
        with _refusals():
            services.revoke_api_key(workspace=calling_key(request).workspace, key_id=key_id)
        return Response(status=204)


class ApiKeyRotate(APIView):
    required_scopes: ClassVar = {"POST": "keys:admin"}

    @extend_schema(operation_id="rotate_api_key", request=RotationSerializer, responses=CreatedApiKeySerializer)
    @idempotent_hiding("key")
    def post(self, request: Request, key_id: UUID) -> Response:
        """A new secret for the same key, shown once. The old one works on for a day, or as `overlap_s` says."""
        QueryParameters(request)
        body = RotationSerializer(data=request.data or {})
        body.is_valid(raise_exception=True)
        workspace = calling_key(request).workspace
        with _refusals():
            # Whoever rotates a key gets to hold it: its scopes must not be more than one's own.
            _refuse_more_than_own(request, selectors.api_key(workspace=workspace, key_id=key_id).scopes)
            key, plaintext = services.rotate_api_key(workspace=workspace, key_id=key_id, **body.validated_data)
        return _shown_once(key, plaintext, status=200)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ApiKey.DoesNotExist as error:
        raise Http404 from error
    except KeyEndedError as error:
        raise Problem(409, error.code, str(error)) from error


def _refuse_more_than_own(request: Request, scopes: Iterable[str]) -> None:
    lacking = sorted(set(scopes) - set(calling_key(request).scopes))
    if lacking:
        raise Problem(403, "missing_scope", f"Your key lacks {', '.join(lacking)} and cannot hand out what it lacks.")


def _shown_once(key: ApiKey, plaintext: str, *, status: int) -> Response:
    body = CreatedApiKeySerializer(key, context={"plaintext": plaintext}).data
    return Response(body, status=status, headers={"Location": f"/v1/api-keys/{key.id}", "Cache-Control": "no-store"})
