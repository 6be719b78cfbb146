"""/v1/operations, and the answer of every action by filter."""

from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.models import Operation
from chronos_site.api.operations import services
from chronos_site.api.operations.registry import kind_names
from chronos_site.api.operations.serializers import ActionSerializer, DryRunSerializer, OperationSerializer
from chronos_site.api.problems import Problem
from chronos_site.api.queries import CursorPage, QueryParameters

STARTED = {202: OperationSerializer, 200: DryRunSerializer}
"""What `start_by_filter` answers, for `extend_schema`."""


def start_by_filter(request: Request, *, kind: str, serializer: type[ActionSerializer]) -> Response:
    """202 and the Location of an operation; 200 and the count for a dry run; 409 where the count is another."""
    body = serializer(data=request.data)
    body.is_valid(raise_exception=True)
    given = body.validated_data
    try:
        started = services.start_operation(
            workspace_id=_workspace_id(request),
            kind=kind,
            filter=body.frozen_filter(),
            expect_count=given.get("expect_count"),
            dry_run=given["dry_run"],
            rate_per_s=given.get("rate_per_s"),
        )
    except services.CountMismatch as error:
        raise Problem(409, "count_mismatch", str(error), count=error.count) from error
    except services.TooManyOpen as error:
        raise Problem(
            429,
            "quota_exceeded",
            str(error),
            headers={"Retry-After": "10"},
            quota="open operations",
            limit=services.MOST_OPEN,
        ) from error
    if started.operation is None:
        return Response(DryRunSerializer({"kind": kind, "count": started.count}).data)
    location = f"/v1/operations/{started.operation.id}"
    return Response(OperationSerializer(started.operation).data, status=202, headers={"Location": location})


class OperationList(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(
        operation_id="list_operations",
        parameters=[
            OpenApiParameter("state", str, many=True, enum=Operation.State.values),
            OpenApiParameter("kind", str, many=True),
        ],
        responses=OperationSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Newest first; ended ones are kept for 30 days."""
        kinds = Enum("kinds", {name: name for name in kind_names()})  # type: ignore[misc]
        query = QueryParameters(request, many={"state": Operation.State, "kind": kinds}, page=True)
        found = services.find_operations(
            workspace_id=_workspace_id(request),
            states=query.many("state"),
            kinds=[kind.value for kind in query.many("kind")],
        )
        return CursorPage(query).answer(found, OperationSerializer)


class OperationDetail(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(operation_id="get_operation", responses=OperationSerializer)
    def get(self, request: Request, operation_id: UUID) -> Response:
        """How far it has come."""
        QueryParameters(request)
        try:
            operation = services.find_operations(workspace_id=_workspace_id(request)).get(id=operation_id)
        except Operation.DoesNotExist as error:
            raise Http404 from error
        return Response(OperationSerializer(operation).data)


class OperationAbort(APIView):
    required_scopes: ClassVar = {"POST": "executions:write"}

    @extend_schema(operation_id="abort_operation", request=None, responses=OperationSerializer)
    def post(self, request: Request, operation_id: UUID) -> Response:
        """End it where it stands: what was done stays done, and nothing more is. Safe to repeat; 409 once it ended."""
        try:
            operation = services.abort_operation(workspace_id=_workspace_id(request), operation_id=operation_id)
        except Operation.DoesNotExist as error:
            raise Http404 from error
        except services.OperationEnded as error:
            raise Problem(409, "operation_ended", str(error), state=error.state) from error
        return Response(OperationSerializer(operation).data)


def _workspace_id(request: Request) -> UUID:
    """Of the calling key. This room knows no workspaces, only that the key belongs to one."""
    key: Any = request.auth
    workspace_id: UUID = key.workspace_id
    return workspace_id
