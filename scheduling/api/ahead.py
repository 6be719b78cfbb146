"""What a schedule has done and will do: its occurrences, and previews of rhythms that are not stored."""

from typing import ClassVar
from uuid import UUID

from django.utils.timezone import now
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.problems import FieldProblem, Problem
from chronos_site.api.queries import DEFAULT_LIMIT, MOST, QueryParameters
from chronos_site.tenancy.authentication import calling_key
from execution.models import Execution
from scheduling import outlook, selectors
from scheduling.api.answers import OccurrencesSerializer, PreviewAnswerSerializer
from scheduling.api.refusals import schedule_refusals
from scheduling.api.serializers import PreviewSerializer
from scheduling.domain import preview, words
from scheduling.domain.errors import ScheduleError

UPCOMING = 10

PREVIEW_EXAMPLE = OpenApiExample(
    "Around the change of clocks",
    value={"cron": "30 2 * * *", "timezone": "Europe/Berlin", "after": "2030-03-30T00:00:00Z", "count": 3},
    request_only=True,
)


class ScheduleOccurrences(APIView):
    required_scopes: ClassVar = {"GET": "schedules:read"}

    @extend_schema(
        operation_id="list_occurrences",
        parameters=[
            OpenApiParameter("limit", int, description=f"1 to {MOST}, {DEFAULT_LIMIT} where it is missing."),
            OpenApiParameter("cursor", str, description="`next_cursor` of the page before."),
        ],
        responses=OccurrencesSerializer,
    )
    def get(self, request: Request, schedule_id: UUID) -> Response:
        """All executions of the schedule by nominal time, newest first, and the next ten occurrences, computed.

        `trigger` tells those of the rhythm (schedule) from runs by hand, replays and backfills.
        """
        query = QueryParameters(request, page=True)
        workspace = calling_key(request).workspace
        with schedule_refusals():
            schedule = selectors.schedule(workspace=workspace, schedule_id=schedule_id)
        try:
            rows, more = selectors.occurrences(
                workspace=workspace, schedule_id=schedule_id, after=query.after, limit=query.limit
            )
        except Execution.DoesNotExist as error:
            detail = "cursor: The row that it points at is gone by now. Start again at the first page."
            raise Problem(400, "invalid_cursor", detail, parameter="cursor") from error
        answer = {
            "items": rows,
            "next_cursor": query.cursor_after(rows[-1].id) if more else None,
            "upcoming": outlook.upcoming(schedule, now=now(), count=UPCOMING),
        }
        return Response(OccurrencesSerializer(answer).data)


class SchedulePreview(APIView):
    required_scopes: ClassVar = {"POST": "schedules:read"}

    @extend_schema(
        operation_id="preview_schedule",
        request=PreviewSerializer,
        responses=PreviewAnswerSerializer,
        examples=[PREVIEW_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        """The next fires of a cron expression or an interval, with what clock changes do to them. Stores nothing."""
        body = PreviewSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given = body.validated_data
        after, count, zone = given.get("after", now()), given["count"], given["timezone"]
        try:
            if "cron" in given:
                description = words.describe(given["cron"], zone)
                fires = preview.preview(given["cron"], zone, after, count)
            else:
                description = words.describe_interval(given["every"])
                fires = preview.preview_interval(given["every"], given.get("anchor", after), zone, after, count)
        except ScheduleError as error:
            where = FieldProblem("/cron" if "cron" in given else "/every", error.code, str(error))
            raise Problem(422, "invalid", str(error), errors=[where]) from error
        return Response(PreviewAnswerSerializer({"description": description, "fires": fires}).data)
