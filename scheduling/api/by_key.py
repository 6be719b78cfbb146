"""/v1/schedules/by-key/{external_key}: the schedule under the caller's own name for it."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.etag import expected_version
from chronos_site.api.problems import FieldProblem, Problem
from chronos_site.api.queries import QueryParameters
from chronos_site.observability import tracing
from chronos_site.tenancy.authentication import calling_key
from scheduling import by_key, selectors
from scheduling.api import bodies
from scheduling.api.answers import ScheduleSerializer, schedule_answer
from scheduling.api.refusals import schedule_refusals
from scheduling.api.serializers import LONGEST_KEY, NewScheduleSerializer
from scheduling.api.views import EXAMPLES


class ScheduleByKey(APIView):
    required_scopes: ClassVar = {"GET": "schedules:read", "PUT": "schedules:write"}

    @extend_schema(operation_id="get_schedule_by_key", responses=ScheduleSerializer)
    def get(self, request: Request, external_key: str) -> Response:
        QueryParameters(request)
        with schedule_refusals():
            schedule = selectors.schedule_by_key(
                workspace=calling_key(request).workspace, external_key=external_key.replace("\0", "�")
            )
        return schedule_answer(schedule)

    @extend_schema(
        operation_id="put_schedule_by_key",
        request=NewScheduleSerializer,
        responses={200: ScheduleSerializer, 201: ScheduleSerializer},
        examples=EXAMPLES,
    )
    def put(self, request: Request, external_key: str) -> Response:
        """Make it (201), or make it such as the body says (200): what is left out takes its default.

        The same body again changes nothing. A cancelled schedule makes room for a new one under its key, and so does a
        completed one where the body is different. Of a schedule that fires once only `run_at` can be changed.
        """
        workspace = calling_key(request).workspace
        [new] = bodies.build(workspace, [_checked(request.data, external_key)])
        with schedule_refusals():
            schedule, made = by_key.put_schedule(
                workspace=workspace,
                external_key=external_key,
                new=new,
                expected_version=expected_version(request),
                traceparent=tracing.traceparent(),
            )
        return schedule_answer(schedule, status=201 if made else 200)


def _checked(data: Any, external_key: str) -> bodies.Checked:
    """The body; the key of the path goes through the same checks as that of a body."""
    named = {**data, "external_key": external_key} if isinstance(data, dict) else data
    checked = bodies.check(named)
    given = data.get("external_key")
    if given not in (None, external_key):
        detail = f"The path says {external_key[:LONGEST_KEY]!r}. Leave external_key out of the body, or give the same."
        raise _invalid("external_key", "mismatch", detail)
    if "delay_s" in checked:
        detail = "Give run_at: with delay_s the same body would mean another time whenever it is sent."
        raise _invalid("delay_s", "not_repeatable", detail)
    return checked


def _invalid(name: str, code: str, detail: str) -> Problem:
    return Problem(422, "invalid", f"/{name}: {detail}", errors=[FieldProblem(f"/{name}", code, detail)])
