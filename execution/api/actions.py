"""Actions by filter under /v1: each answers 202 with the Location of an operation (chronos_site.api.operations)."""

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.fields import ManyField, TextField, TimestampField, UuidField
from chronos_site.api.idempotency import idempotent
from chronos_site.api.operations.serializers import ActionSerializer
from chronos_site.api.operations.views import STARTED, start_by_filter
from chronos_site.api.serializers import StrictSerializer
from execution import operations
from execution.api.serializers import ChoiceField
from execution.domain.states import State
from execution.models import DeadLetter

DRY_RUN = OpenApiExample(
    "How many are there?", value={"filter": {"reason": ["attempts_exhausted"]}, "dry_run": True}, request_only=True
)
REPLAY = OpenApiExample(
    "Replay what died last night",
    value={
        "filter": {"reason": ["attempts_exhausted"], "created_from": "2030-01-31T00:00:00Z"},
        "expect_count": 1200,
        "rate_per_s": 50,
    },
    request_only=True,
)
BY_TAG = OpenApiExample("By tag", value={"filter": {"tag": "billing"}, "expect_count": 40}, request_only=True)


class DeadLetterFilterSerializer(StrictSerializer):
    """Of open dead letters; the others have been seen to."""

    reason = ManyField(child=ChoiceField(choices=DeadLetter.Reason.choices), required=False)
    job_definition = ManyField(child=UuidField(), required=False)
    created_from = TimestampField(required=False, help_text="Inclusive.")
    created_to = TimestampField(required=False, help_text="Exclusive.")


class DeadLetterActionSerializer(ActionSerializer):
    filter = DeadLetterFilterSerializer()


def _states(of: list[State], verb: str) -> ManyField:
    names = [state.value for state in of]
    wrong: dict[str, Any] = {"invalid_choice": f"There is nothing to {verb} in this state. Known: {', '.join(names)}."}
    child = ChoiceField(choices=names, error_messages=wrong)
    return ManyField(child=child, required=False, help_text="All of these where it is missing.")


class ExecutionFilterSerializer(StrictSerializer):
    job_definition = ManyField(child=UuidField(), required=False)
    schedule = ManyField(child=UuidField(), required=False)
    tag = ManyField(child=TextField(max_length=64), required=False)
    scheduled_for_from = TimestampField(required=False, help_text="Inclusive.")
    scheduled_for_to = TimestampField(required=False, help_text="Exclusive.")


class CancelFilterSerializer(ExecutionFilterSerializer):
    state = _states(operations.NOT_ENDED, "cancel")


class ReplayFilterSerializer(ExecutionFilterSerializer):
    state = _states(operations.ENDED, "replay")


class CancelActionSerializer(ActionSerializer):
    filter = CancelFilterSerializer()


class ReplayActionSerializer(ActionSerializer):
    filter = ReplayFilterSerializer()


class _Action(APIView):
    required_scopes: ClassVar[dict[str, Any]] = {"POST": "executions:write"}


class DeadLettersReplay(_Action):
    @extend_schema(
        operation_id="replay_dead_letters",
        request=DeadLetterActionSerializer,
        responses=STARTED,
        examples=[DRY_RUN, REPLAY],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Replay every open dead letter that the filter finds: each becomes a new execution, at most 100 a second."""
        return start_by_filter(request, kind=operations.REPLAY_DEAD_LETTERS, serializer=DeadLetterActionSerializer)


class DeadLettersDiscard(_Action):
    @extend_schema(
        operation_id="discard_dead_letters", request=DeadLetterActionSerializer, responses=STARTED, examples=[DRY_RUN]
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Discard every open dead letter that the filter finds. Their executions stay as they are."""
        return start_by_filter(request, kind=operations.DISCARD_DEAD_LETTERS, serializer=DeadLetterActionSerializer)


class ExecutionsCancel(_Action):
    @extend_schema(
        operation_id="cancel_executions", request=CancelActionSerializer, responses=STARTED, examples=[BY_TAG]
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Cancel every execution that the filter finds and that has not ended.

        `done` counts the cancelled; `result.requested` those that a worker holds, whose final state tells.
        """
        return start_by_filter(request, kind=operations.CANCEL_EXECUTIONS, serializer=CancelActionSerializer)


class ExecutionsReplay(_Action):
    @extend_schema(
        operation_id="replay_executions", request=ReplayActionSerializer, responses=STARTED, examples=[BY_TAG]
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Run every ended execution that the filter finds once more, at most 100 a second.

        Without `state` those that succeeded are among them. A dead letter that was resolved meanwhile is skipped.
        """
        return start_by_filter(request, kind=operations.REPLAY_EXECUTIONS, serializer=ReplayActionSerializer)
