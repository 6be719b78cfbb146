"""The shape of a target on the wire. Secrets come in by reference only, and none goes out."""

import re
from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from chronos_site.api.fields import HeadersField, IntegerField, TextField, header_fault
from chronos_site.api.serializers import StrictSerializer
from chronos_site.infra.kafka import KafkaRefused, allowed_bootstrap, parse_bootstrap, refuse_events_topic
from chronos_site.infra.references import EXAMPLE, LONGEST, names_secret, parse_reference, split_value
from execution.api.fields import ChoiceField
from execution.dispatch.egress import judge_syntax, parse_networks
from execution.domain.credentials import AUTH_MEMBERS, HIDDEN, auth_header, carries_secret, shown, shown_value
from execution.domain.targets import KAFKA, LONGEST_MESSAGE_KEY, LONGEST_TOPIC, LONGEST_URL, USUAL_METHOD, kind_of

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
MOST_PARTITIONS = 1_000_000
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_OF_HTTP = ("method", "auth")
_OF_KAFKA = ("key", "partition", "bootstrap")
LONGEST_USERNAME = 255


class DeliveryHeadersField(HeadersField):
    """Headers of a delivery. One that is there for a secret names it: `Bearer secret://…`, or the reference alone.

    The serializer's context may hold `kept`, a value that stands for what is stored already.
    """

    def to_internal_value(self, data: Any) -> dict[str, str]:
        headers = super().to_internal_value(data)
        faults = {name: [fault] for name, value in headers.items() if (fault := self._fault(name, value))}
        if faults:
            raise ValidationError(faults)
        return headers

    def to_representation(self, value: Any) -> dict[str, str]:
        return {name: shown_value(name, text) for name, text in value.items()}

    def _fault(self, name: str, value: str) -> ErrorDetail | None:
        try:
            reference = split_value(value)
        except ValueError as error:
            return ErrorDetail(str(error), "invalid_reference")
        if reference is None and carries_secret(name) and value != self.context.get("kept"):
            return ErrorDetail(
                "This header carries a secret, which is not taken in clear. Keep it in a secret store and name it:"
                f" {EXAMPLE}, or Bearer {EXAMPLE}.",
                "literal_secret",
            )
        return None


class ReferenceField(TextField):
    """A reference to a secret."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=LONGEST, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not names_secret(text):
            detail = f"A secret is not taken in clear. Keep it in a secret store and name it: {EXAMPLE}."
            raise ValidationError(detail, code="literal_secret")
        try:
            return str(parse_reference(text))
        except ValueError as error:
            raise ValidationError(str(error), code="invalid_reference") from None

    def to_representation(self, value: str) -> str:
        return value if names_secret(value) else HIDDEN


class AuthSerializer(StrictSerializer):
    """basic needs username and password, bearer a token, api_key a header and its value."""

    type = ChoiceField(choices=tuple(AUTH_MEMBERS))
    username = TextField(max_length=LONGEST_USERNAME, required=False, help_text="basic: without a colon.")
    password = ReferenceField(required=False, help_text=f"basic: {EXAMPLE}")
    token = ReferenceField(required=False, help_text=f"bearer: {EXAMPLE}")
    header = TextField(required=False, help_text="api_key: the header's name.")
    value = ReferenceField(required=False, help_text=f"api_key: {EXAMPLE}")

    def validate_username(self, value: str) -> str:
        if ":" in value or not value.isprintable():
            raise ValidationError("A user name holds no colon and no control characters.", code="invalid")
        return value

    def validate_header(self, value: str) -> str:
        fault = header_fault(value, "x", set())
        if fault is not None:
            raise ValidationError(fault, code=fault.code)
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        needed = AUTH_MEMBERS[attrs["type"]]
        wrong = {name: [ErrorDetail("This field is required.", "required")] for name in needed if name not in attrs}
        for name in attrs.keys() - {"type", *needed}:
            detail = f"This does not belong to {attrs['type']}. Leave it out; in a patch, set it to null."
            wrong[name] = [ErrorDetail(detail, "wrong_type")]
        if wrong:
            raise ValidationError(wrong)
        return attrs


class SigningSerializer(StrictSerializer):
    """Signed after Standard Webhooks. While a secret is rotated both sign, and the receiver may know either."""

    secret = ReferenceField(help_text="Its value is whsec_ and base64.")
    previous_secret = ReferenceField(required=False)


class TargetSerializer(StrictSerializer):
    """An HTTP call has a url; a Kafka message has a topic, and may have a key, a partition and a cluster of its own."""

    url = TextField(max_length=LONGEST_URL, required=False, help_text="HTTP.")
    method = ChoiceField(choices=METHODS, required=False, help_text="HTTP; POST where it is missing.")
    topic = TextField(max_length=LONGEST_TOPIC, required=False, help_text="Kafka.")
    key = TextField(max_length=LONGEST_MESSAGE_KEY, required=False, help_text="Kafka: the message's key.")
    partition = IntegerField(
        min_value=0,
        max_value=MOST_PARTITIONS,
        required=False,
        help_text="Kafka: by the key where it is missing.",
    )
    bootstrap = TextField(
        max_length=1000,
        required=False,
        help_text="Kafka: host:port, commas between several; the deployment's own cluster where it is missing.",
    )
    headers = DeliveryHeadersField(default=dict)
    auth = AuthSerializer(required=False, help_text="HTTP.")
    signing = SigningSerializer(required=False)

    def validate_url(self, value: str) -> str:
        """A first look for the person who types it; the guard judges again, with the address, at every send."""
        verdict = judge_syntax(value, allow=parse_networks(settings.CHRONOS_EGRESS_ALLOW))
        if not verdict.allowed:
            raise ValidationError(f"This URL cannot be called: {verdict.reason}.", code="target_refused")
        return value

    def validate_topic(self, value: str) -> str:
        if not _TOPIC.fullmatch(value) or value in (".", ".."):
            raise ValidationError(
                "A topic is named with letters, digits, dots, dashes and underscores.", code="invalid"
            )
        return value

    def validate_bootstrap(self, value: str) -> str:
        try:
            return parse_bootstrap(value)
        except ValueError as error:
            raise ValidationError(str(error), code="invalid") from None

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("url" in attrs) == ("topic" in attrs):
            word = "not both" if "url" in attrs else "one of them is needed"
            raise ValidationError({"url": [ErrorDetail(f"Give url (HTTP) or topic (Kafka): {word}.", "one_of")]})
        kafka = kind_of(attrs) == KAFKA
        foreign, what = (_OF_HTTP, "a Kafka message") if kafka else (_OF_KAFKA, "an HTTP call")
        wrong = {
            name: [ErrorDetail(f"This does not belong to {what}.", "wrong_type")] for name in foreign if name in attrs
        }
        if wrong:
            raise ValidationError(wrong)
        return _checked_kafka(attrs) if kafka else self._checked_http(attrs)

    def _checked_http(self, attrs: dict[str, Any]) -> dict[str, Any]:
        attrs.setdefault("method", USUAL_METHOD)
        filled = auth_header(attrs.get("auth"))
        if filled is not None and filled.lower() in {name.lower() for name in attrs["headers"]}:
            detail = f"It fills the header {filled}, which is given among the headers as well. Leave one of them out."
            raise ValidationError({"auth": [ErrorDetail(detail, "duplicate")]})
        return attrs


def _checked_kafka(attrs: dict[str, Any]) -> dict[str, Any]:
    """A first look for the person who types it; the sender looks again at every attempt."""
    try:
        refuse_events_topic(attrs["topic"])
        allowed_bootstrap(attrs.get("bootstrap"))
    except KafkaRefused as refused:
        place = "bootstrap" if "bootstrap" in attrs else "topic"
        raise ValidationError(
            {place: [ErrorDetail(f"This message cannot be sent: {refused}.", "target_refused")]}
        ) from None
    return attrs


class ShownField(serializers.JSONField):
    """A stored target or delivery: references in clear, and no secret that was stored before there were any."""

    def to_representation(self, value: Any) -> Any:
        return shown(super().to_representation(value))
