"""Schedules under /v1, made, listed, read and changed: parse, call a service or selector, answer."""

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema, inline_serializer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.etag import check_if_match, expected_version
from chronos_site.api.idempotency import idempotent
from chronos_site.api.queries import CursorPage, QueryParameters
from chronos_site.observability import tracing
from chronos_site.tenancy.authentication import calling_key
from execution.api.views import JobDefinitionDetail
from execution.making import Placed
from scheduling import creation, recurring, selectors, services
from scheduling.api import bodies
from scheduling.api.answers import CreatedScheduleSerializer, ScheduleSerializer, created_body, schedule_answer
from scheduling.api.refusals import Pointer, alone, in_batch, schedule_refusals
from scheduling.api.serializers import MoveSerializer, NewScheduleSerializer
from scheduling.models import Schedule

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
CRON_EXAMPLE = OpenApiExample(
    "On workdays at nine in Berlin",
    value={
        "job_definition": "send-report",
        "cron": "0 9 * * MON-FRI",
        "timezone": "Europe/Berlin",
        "misfire": {"policy": "fire_once"},
        "overlap": "skip",
        "external_key": "daily-report",
    },
    request_only=True,
)
INTERVAL_EXAMPLE = OpenApiExample(
    "Every fifteen minutes",
    value={"target": {"url": "https://hooks.example.com/ping"}, "every": "15m", "jitter_s": 30},
    request_only=True,
)
EXAMPLES = [ONCE_EXAMPLE, INLINE_EXAMPLE, CRON_EXAMPLE, INTERVAL_EXAMPLE]


class JobDefinitionWithSchedules(JobDefinitionDetail):
    """The lower room's view, plus what only this room can answer: what follows for schedules of the job."""

    required_scopes: ClassVar = {**JobDefinitionDetail.required_scopes, "DELETE": "jobs:write"}
    update = staticmethod(recurring.update_job_definition)

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
            OpenApiParameter("kind", str, many=True, enum=Schedule.Kind.values),
            OpenApiParameter("job_definition", str, many=True),
            OpenApiParameter("tag", str, many=True),
        ],
        responses=ScheduleSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Newest first."""
        query = QueryParameters(
            request,
            many={"state": Schedule.State, "kind": Schedule.Kind, "job_definition": UUID, "tag": str},
            page=True,
        )
        found = selectors.schedules(
            workspace=calling_key(request).workspace,
            states=query.many("state"),
            kinds=query.many("kind"),
            job_ids=query.many("job_definition"),
            tags=query.many("tag"),
        )
        return CursorPage(query).answer(found, ScheduleSerializer)

    @extend_schema(
        operation_id="create_schedule",
        request=NewScheduleSerializer,
        responses={201: CreatedScheduleSerializer},
        examples=EXAMPLES,
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Fire once, at `run_at` or `delay_s` from now; or again and again, by `cron` or `every` so often."""
        made = _create(request, [bodies.check(request.data)], pointer=alone)
        [(schedule, place)] = made
        return schedule_answer(schedule, created_body(schedule, _bucket_of(place)), status=201)


class ScheduleBatch(APIView):
    required_scopes: ClassVar = {"POST": "schedules:write"}

    @extend_schema(
        operation_id="create_schedules",
        request=inline_serializer("NewScheduleBatch", {"schedules": NewScheduleSerializer(many=True)}),
        responses={201: inline_serializer("CreatedScheduleBatch", {"items": CreatedScheduleSerializer(many=True)})},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Up to 1,000 schedules of any kind, all or none; errors point at the index."""
        made = _create(request, bodies.check_batch(request.data), pointer=in_batch)
        answered = ScheduleSerializer([schedule for schedule, _ in made], many=True).data
        items = [{**body, "bucket_id": _bucket_of(place)} for body, (_, place) in zip(answered, made, strict=True)]
        return Response({"items": items}, status=201)


class ScheduleDetail(APIView):
    required_scopes: ClassVar = {"GET": "schedules:read", "PATCH": "schedules:write"}

    @extend_schema(operation_id="get_schedule", responses=ScheduleSerializer)
    def get(self, request: Request, schedule_id: UUID) -> Response:
        QueryParameters(request)
        with schedule_refusals():
            schedule = selectors.schedule(workspace=calling_key(request).workspace, schedule_id=schedule_id)
        return schedule_answer(schedule)

    @extend_schema(operation_id="update_schedule", request=NewScheduleSerializer, responses=CreatedScheduleSerializer)
    def patch(self, request: Request, schedule_id: UUID) -> Response:
        """JSON merge patch. Of one that fires once `run_at` alone can be changed, while its execution is PENDING.

        Of one that recurs everything can: what is not yet QUEUED is made again as the schedule is then. `cron` takes
        the place of `every` and the other way round.
        """
        workspace = calling_key(request).workspace
        with schedule_refusals():
            schedule = selectors.schedule(workspace=workspace, schedule_id=schedule_id)
            if schedule.kind == Schedule.Kind.ONCE:
                return _move(request, schedule)
            check_if_match(request, schedule.version)
            [new] = bodies.build(workspace, [bodies.patched(schedule, request.data)])
            # The version that was merged with: an edit that came between is refused, not overwritten.
            schedule = recurring.update_recurring(
                workspace=workspace,
                schedule_id=schedule_id,
                expected_version=schedule.version,
                changes={name: getattr(new, name) for name in recurring.FIELDS},
            )
        return schedule_answer(schedule, created_body(schedule, None))


def _move(request: Request, schedule: Schedule) -> Response:
    body = MoveSerializer(data=request.data)
    body.is_valid(raise_exception=True)
    schedule, moved = services.move_schedule(
        workspace=calling_key(request).workspace,
        schedule_id=schedule.id,
        run_at=body.validated_data["run_at"],
        expected_version=expected_version(request),
    )
    return schedule_answer(schedule, created_body(schedule, moved.bucket_id))


def _bucket_of(place: Placed | None) -> int | None:
    return None if place is None else place.bucket_id


def _create(
    request: Request, items: Sequence[bodies.Checked], *, pointer: Pointer
) -> list[tuple[Schedule, Placed | None]]:
    """All or none, in the order of `items`."""
    with schedule_refusals(pointer=pointer):
        key = calling_key(request)
        return creation.create_schedules(
            workspace=key.workspace,
            new=bodies.build(key.workspace, items, pointer=pointer),
            traceparent=tracing.traceparent(),
            clock=key.clock,
        )
