"""Job definitions and executions under /v1: parse, call a service or selector, answer."""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from pymongo.errors import PyMongoError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.etag import check_if_match, set_etag
from chronos_site.api.idempotency import idempotent
from chronos_site.api.problems import Problem
from chronos_site.api.queries import CursorPage, QueryParameters
from chronos_site.infra.merge_patch import merge_patch
from chronos_site.observability import tracing
from chronos_site.tenancy.authentication import calling_key
from chronos_site.tenancy.models import Workspace
from execution import selectors, services
from execution.api.refusals import refusals_as_problems
from execution.api.serializers import (
    AttemptLogSerializer,
    AttemptSerializer,
    ExecutionSerializer,
    JobDefinitionSerializer,
    RunSerializer,
)
from execution.domain.states import State
from execution.models import Execution, JobDefinition
from execution.search import BadText, search_executions
from execution.services import Cancelled

JOB_EXAMPLE = OpenApiExample(
    "Call a web hook",
    value={
        "name": "send-invoice",
        "target": {"url": "https://hooks.example.com/invoices", "method": "POST", "headers": {"X-Team": "billing"}},
        "payload": {"kind": "monthly"},
        "timeout_s": 30,
        "tags": ["billing"],
    },
    request_only=True,
)


def cancel_answer(cancelled: Cancelled) -> Response:
    """`cancelled`; 202 `cancel_requested` where a worker holds it; 409 where it has ended otherwise."""
    if cancelled.requested:
        return Response({"status": "cancel_requested"}, status=202)
    return Response({"status": "cancelled"})


class JobDefinitionList(APIView):
    required_scopes: ClassVar = {"GET": "jobs:read", "POST": "jobs:write"}

    @extend_schema(
        operation_id="list_job_definitions",
        parameters=[OpenApiParameter("name", str, many=True), OpenApiParameter("tag", str, many=True)],
        responses=JobDefinitionSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        query = QueryParameters(request, many={"name": str, "tag": str}, page=True)
        found = selectors.job_definitions(
            workspace=calling_key(request).workspace, names=query.many("name"), tags=query.many("tag")
        )
        return CursorPage(query).answer(found, JobDefinitionSerializer)

    @extend_schema(
        operation_id="create_job_definition",
        request=JobDefinitionSerializer,
        responses={201: JobDefinitionSerializer},
        examples=[JOB_EXAMPLE],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        body = JobDefinitionSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        with refusals_as_problems():
            job = services.create_job_definition(workspace=calling_key(request).workspace, **body.validated_data)
        return _job_answer(job, status=201)


class JobDefinitionDetail(APIView):
    required_scopes: ClassVar = {"GET": "jobs:read", "PATCH": "jobs:write"}
    update = staticmethod(services.update_job_definition)
    """The room above puts its own in place, which sees to schedules as well."""

    @extend_schema(operation_id="get_job_definition", responses=JobDefinitionSerializer)
    def get(self, request: Request, job_id: UUID) -> Response:
        QueryParameters(request)
        with refusals_as_problems():
            return _job_answer(selectors.job_definition(workspace=calling_key(request).workspace, job_id=job_id))

    @extend_schema(
        operation_id="update_job_definition", request=JobDefinitionSerializer, responses=JobDefinitionSerializer
    )
    def patch(self, request: Request, job_id: UUID) -> Response:
        """JSON merge patch; lists are replaced whole. Raises the version; executions that exist keep their snapshot."""
        workspace = calling_key(request).workspace
        with refusals_as_problems():
            job = selectors.job_definition(workspace=workspace, job_id=job_id)
            check_if_match(request, job.version)
            JobDefinitionSerializer.refuse_foreign_fields(request.data)
            now = {
                name: getattr(job, name)
                for name in ("name", "kind", "target", "payload", "timeout_s", "retry", "limits", "tags")
            }
            body = JobDefinitionSerializer(data=merge_patch(now, request.data))
            body.is_valid(raise_exception=True)
            # The version that was merged with: an edit that came between is refused, not overwritten.
            job = self.update(workspace=workspace, job_id=job_id, expected_version=job.version, **body.validated_data)
        return _job_answer(job)


class JobDefinitionRun(APIView):
    required_scopes: ClassVar = {"POST": "jobs:write"}

    @extend_schema(operation_id="run_job_definition", request=RunSerializer, responses={201: ExecutionSerializer})
    @idempotent
    def post(self, request: Request, job_id: UUID) -> Response:
        """One execution now."""
        body = RunSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        workspace = calling_key(request).workspace
        with refusals_as_problems():
            execution = services.run_job_definition(
                workspace=workspace,
                job=selectors.job_definition(workspace=workspace, job_id=job_id),
                payload=body.validated_data.get("payload"),
                traceparent=tracing.traceparent(),
            )
        return Response(
            ExecutionSerializer(execution).data, status=201, headers={"Location": f"/v1/executions/{execution.id}"}
        )


class JobDefinitionPause(APIView):
    required_scopes: ClassVar = {"POST": "jobs:write"}

    @extend_schema(operation_id="pause_job_definition", request=None, responses=JobDefinitionSerializer)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Hold whatever has not begun; nothing is dropped."""
        with refusals_as_problems():
            return _job_answer(services.pause_job_definition(workspace=calling_key(request).workspace, job_id=job_id))


class JobDefinitionResume(APIView):
    required_scopes: ClassVar = {"POST": "jobs:write"}

    @extend_schema(operation_id="resume_job_definition", request=None, responses=JobDefinitionSerializer)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Let go what the pause held: it fires now, unless its deadline has passed (EXPIRED)."""
        with refusals_as_problems():
            return _job_answer(services.resume_job_definition(workspace=calling_key(request).workspace, job_id=job_id))


class ExecutionList(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(
        operation_id="list_executions",
        parameters=[
            OpenApiParameter("state", str, many=True, enum=[s.value for s in State]),
            OpenApiParameter("job_definition", str, many=True),
            OpenApiParameter("schedule", str, many=True),
            OpenApiParameter("tag", str, many=True),
            OpenApiParameter(
                "q",
                str,
                description="3 to 100 characters: part of a job definition's name or target, one of its tags, the begin"
                " of a schedule's external_key; or, of executions that FAILED, words of the error's code and text, the"
                " status, the host or topic, and tags.",
            ),
            OpenApiParameter("scheduled_for_from", str, description="Inclusive, RFC 3339."),
            OpenApiParameter("scheduled_for_to", str, description="Exclusive, RFC 3339."),
        ],
        responses=ExecutionSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Newest first."""
        query = QueryParameters(
            request,
            many={"state": State, "job_definition": UUID, "schedule": UUID, "tag": str},
            times=("scheduled_for_from", "scheduled_for_to"),
            texts=("q",),
            page=True,
        )
        workspace = calling_key(request).workspace
        found = selectors.executions(
            workspace=workspace,
            states=query.many("state"),
            job_ids=query.many("job_definition"),
            schedule_ids=query.many("schedule"),
            tags=query.many("tag"),
            scheduled_from=query.time("scheduled_for_from"),
            scheduled_to=query.time("scheduled_for_to"),
        )
        text = query.text("q")
        if text is not None:
            try:
                found = search_executions(
                    workspace=workspace, among=found, text=text, after=query.after, limit=query.limit
                )
            except BadText as error:
                raise Problem(400, "invalid_parameter", f"q: {error}", parameter="q") from error
        return CursorPage(query).answer(found, ExecutionSerializer)


class ExecutionDetail(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(operation_id="get_execution", responses=ExecutionSerializer)
    def get(self, request: Request, execution_id: UUID) -> Response:
        QueryParameters(request)
        return Response(ExecutionSerializer(_execution(request, execution_id)).data)


class ExecutionAttempts(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(operation_id="list_attempts", responses=AttemptSerializer(many=True))
    def get(self, request: Request, execution_id: UUID) -> Response:
        """What each attempt came to, oldest first."""
        return Response({"items": AttemptSerializer(_attempt_logs(request, execution_id), many=True).data})


class ExecutionLogs(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(operation_id="list_attempt_logs", responses=AttemptLogSerializer(many=True))
    def get(self, request: Request, execution_id: UUID) -> Response:
        """Each attempt with its request and response, oldest first."""
        return Response({"items": AttemptLogSerializer(_attempt_logs(request, execution_id), many=True).data})


class ExecutionCancel(APIView):
    required_scopes: ClassVar = {"POST": "executions:write"}

    @extend_schema(operation_id="cancel_execution", request=None, responses={200: dict, 202: dict})
    def post(self, request: Request, execution_id: UUID) -> Response:
        """`cancelled`, or 202 `cancel_requested` once a worker holds it: the final state tells."""
        execution = _execution(request, execution_id)
        cancelled = services.cancel_executions(workspace=calling_key(request).workspace, ids=[execution_id])
        if cancelled.ended:
            execution.refresh_from_db()
            refuse_ended(execution)
        return cancel_answer(cancelled)


def refuse_ended(execution: Execution) -> None:
    """A cancelled execution stays cancelled; any other end is 409."""
    if execution.state != State.CANCELLED:
        raise Problem(
            409,
            "execution_ended",
            f"The execution is {execution.state} already; there is nothing to cancel.",
            state=execution.state,
        )


def _job_answer(job: JobDefinition, *, status: int = 200) -> Response:
    response = Response(JobDefinitionSerializer(job).data, status=status)
    if status == 201:
        response["Location"] = f"/v1/job-definitions/{job.id}"
    set_etag(response, job.version)
    return response


def _execution(request: Request, execution_id: UUID) -> Execution:
    with refusals_as_problems():
        return selectors.execution(workspace=calling_key(request).workspace, execution_id=execution_id)


def _attempt_logs(request: Request, execution_id: UUID) -> list[dict[str, Any]]:
    QueryParameters(request)
    _execution(request, execution_id)
    return read_attempt_logs(calling_key(request).workspace, execution_id)


def read_attempt_logs(workspace: Workspace, execution_id: UUID) -> list[dict[str, Any]]:
    """The logs of a delivery that the caller has found in its table."""
    try:
        return selectors.attempt_logs(workspace=workspace, execution_id=execution_id)
    except PyMongoError as error:
        raise Problem(
            503,
            "logs_unavailable",
            "The log store cannot be reached. Deliveries go on; read the execution itself, or try again later.",
            headers={"Retry-After": "10"},
        ) from error
