"""Dead letters and replays under /v1: parse, call a service or selector, answer."""

from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.idempotency import idempotent
from chronos_site.api.queries import CursorPage, QueryParameters
from chronos_site.tenancy.authentication import calling_key
from execution import dead_letters
from execution.api.refusals import refusals_as_problems
from execution.api.serializers import DeadLetterSerializer, ExecutionSerializer
from execution.models import DeadLetter, Execution


class DeadLetterList(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(
        operation_id="list_dead_letters",
        parameters=[
            OpenApiParameter("status", str, many=True, enum=DeadLetter.Status.values),
            OpenApiParameter("reason", str, many=True, enum=DeadLetter.Reason.values),
            OpenApiParameter("job_definition", str, many=True),
            OpenApiParameter("created_from", str, description="Inclusive, RFC 3339."),
            OpenApiParameter("created_to", str, description="Exclusive, RFC 3339."),
        ],
        responses=DeadLetterSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Newest first."""
        query = QueryParameters(
            request,
            many={"status": DeadLetter.Status, "reason": DeadLetter.Reason, "job_definition": UUID},
            times=("created_from", "created_to"),
            page=True,
        )
        found = dead_letters.find_dead_letters(
            workspace=calling_key(request).workspace,
            statuses=query.many("status"),
            reasons=query.many("reason"),
            job_ids=query.many("job_definition"),
            created_from=query.time("created_from"),
            created_to=query.time("created_to"),
        )
        return CursorPage(query).answer(found, DeadLetterSerializer)


class DeadLetterDetail(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(operation_id="get_dead_letter", responses=DeadLetterSerializer)
    def get(self, request: Request, dead_letter_id: UUID) -> Response:
        QueryParameters(request)
        with refusals_as_problems():
            letter = dead_letters.find_dead_letters(workspace=calling_key(request).workspace).get(id=dead_letter_id)
        return Response(DeadLetterSerializer(letter).data)


class DeadLetterReplay(APIView):
    required_scopes: ClassVar = {"POST": "executions:write"}

    @extend_schema(
        operation_id="replay_dead_letter", request=None, responses={200: ExecutionSerializer, 201: ExecutionSerializer}
    )
    def post(self, request: Request, dead_letter_id: UUID) -> Response:
        """A new execution with the same snapshot, now. A second time answers the same execution, with 200."""
        with refusals_as_problems():
            made, new = dead_letters.replay_dead_letter(
                workspace=calling_key(request).workspace, dead_letter_id=dead_letter_id
            )
        return _replayed(made, status=201 if new else 200)


class DeadLetterDiscard(APIView):
    required_scopes: ClassVar = {"POST": "executions:write"}

    @extend_schema(operation_id="discard_dead_letter", request=None, responses=DeadLetterSerializer)
    def post(self, request: Request, dead_letter_id: UUID) -> Response:
        """Nothing is sent again. Safe to repeat; 409 where it was replayed."""
        with refusals_as_problems():
            letter = dead_letters.discard_dead_letter(
                workspace=calling_key(request).workspace, dead_letter_id=dead_letter_id
            )
        return Response(DeadLetterSerializer(letter).data)


class ExecutionReplay(APIView):
    required_scopes: ClassVar = {"POST": "executions:write"}

    @extend_schema(operation_id="replay_execution", request=None, responses={201: ExecutionSerializer})
    @idempotent
    def post(self, request: Request, execution_id: UUID) -> Response:
        """Run an ended execution once more, now; 409 while it is on its way."""
        with refusals_as_problems():
            made = dead_letters.replay_execution(workspace=calling_key(request).workspace, execution_id=execution_id)
        return _replayed(made, status=201)


def _replayed(made: Execution, *, status: int) -> Response:
    return Response(ExecutionSerializer(made).data, status=status, headers={"Location": f"/v1/executions/{made.id}"})
