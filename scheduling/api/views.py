"""Schedules under /v1: parse, call a service or selector, answer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema, inline_serializer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.etag import expected_version, set_etag
from chronos_site.api.idempotency import idempotent
from chronos_site.api.problems import FieldProblem, Problem, validation_problem
from chronos_site.api.queries import CursorPage, QueryParameters
from chronos_site.infra import trace
from chronos_site.tenancy.authentication import calling_key
from chronos_site.tenancy.models import Workspace
from execution.api.refusals import refusals_as_problems
from execution.api.views import JobDefinitionDetail, cancel_answer, refuse_ended
from execution.models import Execution, JobDefinition
from execution.selectors import execution, job_definitions
from scheduling import selectors, services
from scheduling.api.serializers import (
    CreatedScheduleSerializer,
    MoveSerializer,
    NewScheduleSerializer,
    ScheduleSerializer,
)
from scheduling.models import Schedule
from scheduling.services import NewSchedule, TooOld

BATCH = 1000

ONCE_EXAMPLE = OpenApiExample(
    "Once, by name",
    value={"job_definition": "send-invoice", "run_at": "2030-01-31T09:00:00Z", "payload": {"customer": 17}},
    request_only=True,
)
INLINE_EXAMPLE = OpenApiExample(
    "In thirty seconds, inline",
    value={"target": {"url": "https://hooks.example.com/ping"}, "delay_s": 30, "expires_after_s": 600},
    request_only=True,
)


class JobDefinitionWithSchedules(JobDefinitionDetail):
    """The lower room's view, plus what only this room can answer: whether schedules still need the job."""

    required_scopes: ClassVar = {**JobDefinitionDetail.required_scopes, "DELETE": "jobs:write"}

    @extend_schema(
        operation_id="delete_job_definition", parameters=[OpenApiParameter("cascade", bool)], responses={204: None}
    )
    def delete(self, request: Request, job_id: UUID) -> Response:
        """PENDING executions are cancelled, RUNNING ones go on, history stays. 409 while schedules wait."""
        query = QueryParameters(request, flags=("cascade",))
        with schedule_refusals():
            services.delete_job_definition(
                workspace=calling_key(request).workspace, job_id=job_id, cascade=query.flag("cascade")
            )
        return Response(status=204)


class ScheduleList(APIView):
    required_scopes: ClassVar = {"GET": "schedules:read", "POST": "schedules:write"}

    @extend_schema(
        operation_id="list_schedules",
        parameters=[
            OpenApiParameter("state", str, many=True, enum=Schedule.State.values),
            OpenApiParameter("job_definition", str, many=True),
            OpenApiParameter("tag", str, many=True),
        ],
        responses=ScheduleSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Newest first."""
        query = QueryParameters(request, many={"state": Schedule.State, "job_definition": UUID, "tag": str}, page=True)
        found = selectors.schedules(
            workspace=calling_key(request).workspace,
            states=query.many("state"),
            job_ids=query.many("job_definition"),
            tags=query.many("tag"),
        )
        return CursorPage(query).answer(found, ScheduleSerializer)

    @extend_schema(
        operation_id="create_schedule",
        request=NewScheduleSerializer,
        responses={201: CreatedScheduleSerializer},
        examples=[ONCE_EXAMPLE, INLINE_EXAMPLE],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Fire once, at `run_at` or `delay_s` from now."""
        body = NewScheduleSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        made = _create(request, [body.validated_data], pointer=_alone)
        answer = _created(*made[0])
        return Response(answer, status=201, headers={"Location": f"/v1/schedules/{answer['id']}", "ETag": '"1"'})


class ScheduleBatch(APIView):
    required_scopes: ClassVar = {"POST": "schedules:write"}

    @extend_schema(
        operation_id="create_schedules",
        request=inline_serializer("NewScheduleBatch", {"schedules": NewScheduleSerializer(many=True)}),
        responses={201: inline_serializer("CreatedScheduleBatch", {"items": CreatedScheduleSerializer(many=True)})},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Up to 1,000 schedules, all or none; errors point at the index."""
        items = _batch_items(request.data)
        valid = []
        problems: list[FieldProblem] = []
        for index, item in enumerate(items):
            body = NewScheduleSerializer(data=item)
            if body.is_valid():
                valid.append(body.validated_data)
            else:
                problems.extend(validation_problem(body.errors, prefix=f"/schedules/{index}").errors)
        if problems:
            raise Problem(422, "invalid", "Some schedules of the batch are not valid; none was made.", errors=problems)
        made = _create(request, valid, pointer=_in_batch)
        return Response({"items": [_created(*pair) for pair in made]}, status=201)


class ScheduleDetail(APIView):
    required_scopes: ClassVar = {"GET": "schedules:read", "PATCH": "schedules:write"}

    @extend_schema(operation_id="get_schedule", responses=ScheduleSerializer)
    def get(self, request: Request, schedule_id: UUID) -> Response:
        QueryParameters(request)
        with schedule_refusals():
            schedule = selectors.schedule(workspace=calling_key(request).workspace, schedule_id=schedule_id)
        return _answer(ScheduleSerializer(schedule).data, schedule)

    @extend_schema(operation_id="move_schedule", request=MoveSerializer, responses=CreatedScheduleSerializer)
    def patch(self, request: Request, schedule_id: UUID) -> Response:
        """Change `run_at` while the execution is PENDING; after that 409, and nothing changes."""
        body = MoveSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        with schedule_refusals():
            schedule, moved = services.move_schedule(
                workspace=calling_key(request).workspace,
                schedule_id=schedule_id,
                run_at=body.validated_data["run_at"],
                expected_version=expected_version(request),
            )
        return _answer(_created(schedule, moved), schedule)


class ScheduleCancel(APIView):
    required_scopes: ClassVar = {"POST": "schedules:write"}

    @extend_schema(operation_id="cancel_schedule", request=None, responses={200: dict, 202: dict})
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """`cancelled`, or 202 `cancel_requested` once a worker holds its execution. Safe to repeat."""
        workspace = calling_key(request).workspace
        with schedule_refusals():
            schedule, cancelled = services.cancel_schedule(workspace=workspace, schedule_id=schedule_id)
        if cancelled.ended:
            refuse_ended(execution(workspace=workspace, execution_id=schedule.execution_id))
        return cancel_answer(cancelled)


Pointer = Callable[[int], str]


def _alone(_index: int) -> str:
    """Where a schedule stands in a body that is itself the schedule."""
    return ""


def _in_batch(index: int) -> str:
    return f"/schedules/{index}"


@contextmanager
def schedule_refusals(pointer: Pointer = _alone) -> Iterator[None]:
    """Refusals of this room as problem+json, before those of the rooms below."""
    with refusals_as_problems():
        try:
            yield
        except Schedule.DoesNotExist as error:
            raise Http404 from error
        except TooOld as error:
            where = FieldProblem(f"{pointer(error.index)}/run_at", error.code, str(error))
            raise Problem(422, error.code, str(error), errors=[where]) from error


def _create(request: Request, items: Sequence[dict[str, Any]], *, pointer: Pointer) -> list[tuple[Schedule, Execution]]:
    workspace = calling_key(request).workspace
    jobs = _find_jobs(workspace, [item["job_definition"] for item in items if "job_definition" in item])
    problems = [
        FieldProblem(
            f"{pointer(index)}/job_definition",
            "not_found",
            f"There is no job definition {item['job_definition']!r} in this workspace.",
        )
        for index, item in enumerate(items)
        if "job_definition" in item and item["job_definition"] not in jobs
    ]
    if problems:
        raise Problem(422, "job_definition_not_found", problems[0].detail, errors=problems)
    new = [
        NewSchedule(
            job=jobs[item["job_definition"]] if "job_definition" in item else None,
            **{name: value for name, value in item.items() if name != "job_definition"},
        )
        for item in items
    ]
    with schedule_refusals(pointer=pointer):
        return services.create_schedules(
            workspace=workspace, new=new, traceparent=trace.parse_or_new(request.headers.get("traceparent"))
        )


def _find_jobs(workspace: Workspace, wanted: Sequence[str]) -> dict[str, JobDefinition]:
    """By id or by name, in at most two queries however many are asked for."""
    ids: dict[str, UUID] = {}
    for text in set(wanted):
        try:
            ids[text] = UUID(text)
        except ValueError:
            continue
    found = job_definitions(workspace=workspace)
    by_id = {job.id: job for job in found.filter(id__in=ids.values())} if ids else {}
    jobs = {text: by_id[job_id] for text, job_id in ids.items() if job_id in by_id}
    names = [text for text in set(wanted) if text not in jobs]
    if names:
        jobs.update({job.name: job for job in found.filter(name__in=names)})
    return jobs


def _batch_items(data: Any) -> list[Any]:
    items = data.get("schedules") if isinstance(data, dict) else None
    if not isinstance(items, list) or set(data) != {"schedules"}:
        raise Problem(
            422,
            "invalid",
            'Send an object with one member "schedules", a list.',
            errors=[FieldProblem("/schedules", "invalid", "A list of schedules is needed.")],
        )
    if not 1 <= len(items) <= BATCH:
        detail = f"A batch holds 1 to {BATCH} schedules; this one has {len(items)}."
        raise Problem(422, "batch_size", detail, errors=[FieldProblem("/schedules", "batch_size", detail)])
    return items


def _created(schedule: Schedule, made: Execution) -> dict[str, Any]:
    return {**ScheduleSerializer(schedule).data, "bucket_id": made.bucket_id}


def _answer(body: dict[str, Any], schedule: Schedule) -> Response:
    response = Response(body)
    set_etag(response, schedule.version)
    return response
