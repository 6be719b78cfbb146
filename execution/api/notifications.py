"""Notification channels, rules and the log of notifications under /v1: parse, call a service or selector, answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chronos_site.api.etag import check_if_match, set_etag
from chronos_site.api.idempotency import idempotent
from chronos_site.api.problems import FieldProblem, Problem
from chronos_site.api.queries import CursorPage, QueryParameters
from chronos_site.infra.merge_patch import merge_patch
from chronos_site.tenancy.authentication import calling_key
from execution.api.notification_serializers import (
    NotificationChannelSerializer,
    NotificationRuleSerializer,
    NotificationSerializer,
    SentTestsSerializer,
)
from execution.api.refusals import refusals_as_problems
from execution.api.serializers import AttemptLogSerializer
from execution.api.views import read_attempt_logs
from execution.domain.states import State
from execution.models import Notification, NotificationChannel, NotificationRule
from execution.notifications import selectors, services

READ, WRITE = "notifications:read", "notifications:write"
CHANNELS, RULES = "/v1/notification-channels", "/v1/notification-rules"
CHANNEL_PARTS = ("name", "kind", "settings")
RULE_PARTS = (
    "name",
    "events",
    "failures_in_row",
    "job_definitions",
    "tags",
    "quiet_hours",
    "group_wait_s",
    "group_window_s",
    "enabled",
)
CHANNEL_EXAMPLE = OpenApiExample(
    "Slack",
    value={"name": "on-call", "kind": "slack", "settings": {"url": "secret://acme/slack/url"}},
    request_only=True,
)
RULE_EXAMPLE = OpenApiExample(
    "Failures and recoveries, not at night",
    value={
        "name": "billing",
        "channels": ["0190b5a2-7c1e-7f00-8000-000000000000"],
        "events": ["failure", "recovery"],
        "tags": ["billing"],
        "quiet_hours": {"from": "22:00", "until": "07:00", "timezone": "Europe/Berlin"},
    },
    request_only=True,
)


@contextmanager
def notification_refusals() -> Iterator[None]:
    """Translate what services and selectors raise."""
    with refusals_as_problems():
        try:
            yield
        except (NotificationChannel.DoesNotExist, NotificationRule.DoesNotExist, Notification.DoesNotExist) as error:
            raise Http404 from error
        except services.UnknownReference as error:
            places = [FieldProblem(f"/{error.field}/{error.index}", error.code, str(error))]
            raise Problem(422, error.code, str(error), errors=places) from error


class ChannelList(APIView):
    required_scopes: ClassVar = {"GET": READ, "POST": WRITE}

    @extend_schema(operation_id="list_notification_channels", responses=NotificationChannelSerializer(many=True))
    def get(self, request: Request) -> Response:
        query = QueryParameters(request, page=True)
        found = selectors.channels(workspace=calling_key(request).workspace)
        return CursorPage(query).answer(found, NotificationChannelSerializer)

    @extend_schema(
        operation_id="create_notification_channel",
        request=NotificationChannelSerializer,
        responses={201: NotificationChannelSerializer},
        examples=[CHANNEL_EXAMPLE],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        body = NotificationChannelSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        with notification_refusals():
            channel = services.create_channel(workspace=calling_key(request).workspace, **body.validated_data)
        return _channel_answer(channel, status=201)


class ChannelDetail(APIView):
    required_scopes: ClassVar = {"GET": READ, "PATCH": WRITE, "DELETE": WRITE}

    @extend_schema(operation_id="get_notification_channel", responses=NotificationChannelSerializer)
    def get(self, request: Request, channel_id: UUID) -> Response:
        QueryParameters(request)
        return _channel_answer(_channel(request, channel_id))

    @extend_schema(
        operation_id="update_notification_channel",
        request=NotificationChannelSerializer,
        responses=NotificationChannelSerializer,
    )
    def patch(self, request: Request, channel_id: UUID) -> Response:
        """JSON merge patch. What is on its way already goes to where it was to go."""
        channel = _channel(request, channel_id)
        check_if_match(request, channel.version)
        NotificationChannelSerializer.refuse_foreign_fields(request.data)
        now = {name: getattr(channel, name) for name in CHANNEL_PARTS}
        body = NotificationChannelSerializer(data=merge_patch(now, request.data))
        body.is_valid(raise_exception=True)
        with notification_refusals():
            channel = services.update_channel(
                workspace=calling_key(request).workspace,
                channel_id=channel_id,
                expected_version=channel.version,
                **body.validated_data,
            )
        return _channel_answer(channel)

    @extend_schema(operation_id="delete_notification_channel", responses={204: None})
    def delete(self, request: Request, channel_id: UUID) -> Response:
        """409 while a rule sends to it. The log stays."""
        QueryParameters(request)
        with notification_refusals():
            services.delete_channel(workspace=calling_key(request).workspace, channel_id=channel_id)
        return Response(status=204)


class ChannelTest(APIView):
    required_scopes: ClassVar = {"POST": WRITE}

    @extend_schema(operation_id="test_notification_channel", request=None, responses={202: NotificationSerializer})
    @idempotent
    def post(self, request: Request, channel_id: UUID) -> Response:
        """Send a test now. The notification that it answers tells by its state what became of it."""
        channel = _channel(request, channel_id)
        [made] = services.send_test(workspace=calling_key(request).workspace, channels=[channel])
        response = Response(NotificationSerializer(made).data, status=202)
        response["Location"] = f"/v1/notifications/{made.id}"
        return response


class RuleList(APIView):
    required_scopes: ClassVar = {"GET": READ, "POST": WRITE}

    @extend_schema(operation_id="list_notification_rules", responses=NotificationRuleSerializer(many=True))
    def get(self, request: Request) -> Response:
        query = QueryParameters(request, page=True)
        found = selectors.rules(workspace=calling_key(request).workspace)
        return CursorPage(query).answer(found, NotificationRuleSerializer)

    @extend_schema(
        operation_id="create_notification_rule",
        request=NotificationRuleSerializer,
        responses={201: NotificationRuleSerializer},
        examples=[RULE_EXAMPLE],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        body = NotificationRuleSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        with notification_refusals():
            rule = services.create_rule(workspace=calling_key(request).workspace, **body.validated_data)
        return _rule_answer(rule, status=201)


class RuleDetail(APIView):
    required_scopes: ClassVar = {"GET": READ, "PATCH": WRITE, "DELETE": WRITE}

    @extend_schema(operation_id="get_notification_rule", responses=NotificationRuleSerializer)
    def get(self, request: Request, rule_id: UUID) -> Response:
        QueryParameters(request)
        return _rule_answer(_rule(request, rule_id))

    @extend_schema(
        operation_id="update_notification_rule",
        request=NotificationRuleSerializer,
        responses=NotificationRuleSerializer,
    )
    def patch(self, request: Request, rule_id: UUID) -> Response:
        """JSON merge patch; lists are replaced whole. A rule that is switched off forgets what it had not told."""
        rule = _rule(request, rule_id)
        check_if_match(request, rule.version)
        NotificationRuleSerializer.refuse_foreign_fields(request.data)
        body = NotificationRuleSerializer(data=merge_patch(_rule_parts(rule), request.data))
        body.is_valid(raise_exception=True)
        with notification_refusals():
            rule = services.update_rule(
                workspace=calling_key(request).workspace,
                rule_id=rule_id,
                expected_version=rule.version,
                **body.validated_data,
            )
        return _rule_answer(rule)

    @extend_schema(operation_id="delete_notification_rule", responses={204: None})
    def delete(self, request: Request, rule_id: UUID) -> Response:
        """What it had not yet told is not told; the log stays."""
        QueryParameters(request)
        with notification_refusals():
            services.delete_rule(workspace=calling_key(request).workspace, rule_id=rule_id)
        return Response(status=204)


class RuleTest(APIView):
    required_scopes: ClassVar = {"POST": WRITE}

    @extend_schema(operation_id="test_notification_rule", request=None, responses={202: SentTestsSerializer})
    @idempotent
    def post(self, request: Request, rule_id: UUID) -> Response:
        """Send a test to each channel of the rule now, whatever its quiet hours say."""
        rule = _rule(request, rule_id)
        made = services.send_test(
            workspace=calling_key(request).workspace, channels=list(rule.channels.all()), rule=rule
        )
        return Response({"items": NotificationSerializer(made, many=True).data}, status=202)


class NotificationList(APIView):
    required_scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="list_notifications",
        parameters=[
            OpenApiParameter("state", str, many=True, enum=[s.value for s in State]),
            OpenApiParameter("event", str, many=True),
            OpenApiParameter("channel", str, many=True),
            OpenApiParameter("rule", str, many=True),
        ],
        responses=NotificationSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """What was sent, or is to be, newest first."""
        query = QueryParameters(request, many={"state": State, "event": str, "channel": UUID, "rule": UUID}, page=True)
        found = selectors.notifications(
            workspace=calling_key(request).workspace,
            states=query.many("state"),
            events=query.many("event"),
            channel_ids=query.many("channel"),
            rule_ids=query.many("rule"),
        )
        return CursorPage(query).answer(found, NotificationSerializer)


class NotificationDetail(APIView):
    required_scopes: ClassVar = {"GET": READ}

    @extend_schema(operation_id="get_notification", responses=NotificationSerializer)
    def get(self, request: Request, notification_id: UUID) -> Response:
        QueryParameters(request)
        return Response(NotificationSerializer(_notification(request, notification_id)).data)


class NotificationAttempts(APIView):
    required_scopes: ClassVar = {"GET": READ}

    @extend_schema(operation_id="list_notification_attempts", responses=AttemptLogSerializer(many=True))
    def get(self, request: Request, notification_id: UUID) -> Response:
        """Each attempt with its request and response, oldest first; of the request's URL the reference only."""
        QueryParameters(request)
        found = _notification(request, notification_id)
        logs = read_attempt_logs(calling_key(request).workspace, found.id)
        return Response({"items": AttemptLogSerializer(logs, many=True).data})


def _channel(request: Request, channel_id: UUID) -> NotificationChannel:
    with notification_refusals():
        return selectors.channel(workspace=calling_key(request).workspace, channel_id=channel_id)


def _rule(request: Request, rule_id: UUID) -> NotificationRule:
    with notification_refusals():
        return selectors.rule(workspace=calling_key(request).workspace, rule_id=rule_id)


def _notification(request: Request, notification_id: UUID) -> Notification:
    with notification_refusals():
        return selectors.notification(workspace=calling_key(request).workspace, notification_id=notification_id)


def _rule_parts(rule: NotificationRule) -> dict[str, Any]:
    """The rule as a body would have it."""
    parts = {name: getattr(rule, name) for name in RULE_PARTS}
    return {
        **parts,
        "job_definitions": [str(job_id) for job_id in rule.job_definitions],
        "channels": [str(channel.id) for channel in rule.channels.all()],
    }


def _channel_answer(channel: NotificationChannel, *, status: int = 200) -> Response:
    response = Response(NotificationChannelSerializer(channel).data, status=status)
    if status == 201:
        response["Location"] = f"{CHANNELS}/{channel.id}"
    set_etag(response, channel.version)
    return response


def _rule_answer(rule: NotificationRule, *, status: int = 200) -> Response:
    response = Response(NotificationRuleSerializer(rule).data, status=status)
    if status == 201:
        response["Location"] = f"{RULES}/{rule.id}"
    set_etag(response, rule.version)
    return response
