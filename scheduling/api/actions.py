"""What can be done to one schedule: `POST /v1/schedules/{id}/<verb>`, each safe to repeat."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.idempotency import idempotent
from chronos_site.api.operations.serializers import OperationSerializer
from chronos_site.api.operations.services import MOST_OPEN, TooManyOpen
from chronos_site.api.problems import Problem
from chronos_site.observability import tracing
from chronos_site.tenancy.authentication import calling_key
from execution.api.serializers import ExecutionSerializer, RunSerializer
from execution.api.views import cancel_answer, refuse_ended
from execution.selectors import execution
from execution.services import Cancelled
from scheduling import backfill, recurring, selectors, services
from scheduling.api.answers import BackfillCountSerializer, OccurrenceSerializer, ScheduleSerializer, schedule_answer
from scheduling.api.refusals import schedule_refusals
from scheduling.api.serializers import BackfillSerializer
from scheduling.models import Schedule
from scheduling.services import Ended

DRY_RUN = OpenApiExample(
    "How many are there?",
    value={"from": "2030-01-01T00:00:00Z", "to": "2030-02-01T00:00:00Z", "dry_run": True},
    request_only=True,
)
BACKFILL = OpenApiExample(
    "Fill in January, five at a time",
    value={"from": "2030-01-01T00:00:00Z", "to": "2030-02-01T00:00:00Z", "max_running": 5},
    request_only=True,
)


class _Action(APIView):
    required_scopes: ClassVar[dict[str, Any]] = {"POST": "schedules:write"}


class SchedulePause(_Action):
    @extend_schema(operation_id="pause_schedule", request=None, responses=ScheduleSerializer)
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Nothing that is not yet QUEUED fires until it is resumed."""
        with schedule_refusals():
            return schedule_answer(
                recurring.pause_schedule(workspace=calling_key(request).workspace, schedule_id=schedule_id)
            )


class ScheduleResume(_Action):
    @extend_schema(operation_id="resume_schedule", request=None, responses=ScheduleSerializer)
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Go on. What was missed follows the misfire policy; `last_misfire` tells what that came to."""
        with schedule_refusals():
            return schedule_answer(
                recurring.resume_schedule(workspace=calling_key(request).workspace, schedule_id=schedule_id)
            )


class ScheduleRun(_Action):
    @extend_schema(operation_id="run_schedule", request=RunSerializer, responses={201: ExecutionSerializer})
    @idempotent
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """One execution now, beside the rhythm, also of a paused schedule. Sent again, it runs again: use a key."""
        body = RunSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        with schedule_refusals():
            made = recurring.run_schedule(
                workspace=calling_key(request).workspace,
                schedule_id=schedule_id,
                payload=body.validated_data.get("payload"),
                traceparent=tracing.traceparent(),
            )
        return Response(ExecutionSerializer(made).data, status=201, headers={"Location": f"/v1/executions/{made.id}"})


class ScheduleSkipNext(_Action):
    @extend_schema(operation_id="skip_next_occurrence", request=None, responses=OccurrenceSerializer)
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Pass over the next occurrence. Until its time has come, the same answer again and again."""
        with schedule_refusals():
            skipped = recurring.skip_next(workspace=calling_key(request).workspace, schedule_id=schedule_id)
        return Response(OccurrenceSerializer(skipped).data)


class ScheduleCancel(_Action):
    @extend_schema(operation_id="cancel_schedule", request=None, responses={200: dict, 202: dict})
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """It fires no more. `cancelled`, or 202 `cancel_requested` where a worker holds an execution of it."""
        with schedule_refusals():
            workspace = calling_key(request).workspace
            schedule = selectors.schedule(workspace=workspace, schedule_id=schedule_id)
            if schedule.kind == Schedule.Kind.ONCE:
                return _cancel_once(schedule)
            schedule, cancelled = recurring.cancel_recurring(workspace=workspace, schedule_id=schedule_id)
            if schedule.state == Schedule.State.COMPLETED:
                raise Ended("The schedule is COMPLETED; there is nothing to cancel.", state=schedule.state)
            return cancel_answer(cancelled)


def _cancel_once(schedule: Schedule) -> Response:
    cancelled: Cancelled
    schedule, cancelled = services.cancel_schedule(workspace=schedule.workspace, schedule_id=schedule.id)
    if cancelled.ended and schedule.execution_id is not None:
        refuse_ended(execution(workspace=schedule.workspace, execution_id=schedule.execution_id))
    return cancel_answer(cancelled)


class ScheduleBackfill(_Action):
    @extend_schema(
        operation_id="backfill_schedule",
        request=BackfillSerializer,
        responses={202: OperationSerializer, 200: BackfillCountSerializer},
        examples=[DRY_RUN, BACKFILL],
    )
    @idempotent
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Run the occurrences of a past range: 202 and the Location of an operation, 200 and the count for a dry run.

        Each runs once: those that exist already, skipped ones too, are left and counted as skipped. With `force` every
        one of the range runs, those that exist once more. At most 100,000 occurrences.
        """
        body = BackfillSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given = body.validated_data
        with schedule_refusals(), _too_many_open():
            found = backfill.start_backfill(
                workspace=calling_key(request).workspace,
                schedule_id=schedule_id,
                begin=given["from"],
                end=given["to"],
                force=given["force"],
                max_running=given.get("max_running"),
                dry_run=given["dry_run"],
            )
        if found.operation is None:
            counted = {"kind": backfill.BACKFILL, "count": found.count, "first": found.first, "last": found.last}
            return Response(BackfillCountSerializer(counted).data)
        location = f"/v1/operations/{found.operation.id}"
        return Response(OperationSerializer(found.operation).data, status=202, headers={"Location": location})


@contextmanager
def _too_many_open() -> Iterator[None]:
    try:
        yield
    except TooManyOpen as error:
        raise Problem(
            429,
            "quota_exceeded",
            str(error),
            headers={"Retry-After": "10"},
            quota="open operations",
            limit=MOST_OPEN,
        ) from error
