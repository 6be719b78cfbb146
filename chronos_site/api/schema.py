"""OpenAPI by drf-spectacular, plus what every operation of this API shares: problems, pages, Idempotency-Key."""

from typing import Any

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from chronos_site.api.fields import MOST_FILTER_VALUES
from chronos_site.api.problems import CONTENT_TYPE
from chronos_site.api.queries import DEFAULT_LIMIT, MOST

REASONS = {
    400: "Malformed JSON, an unknown or bad query parameter, a bad header.",
    401: "No key, or one that is malformed, unknown, expired or revoked.",
    403: "The key lacks the scope.",
    404: "Nothing here for this workspace.",
    409: "The state of the resource does not allow it; `code` says why.",
    412: "If-Match names another version.",
    413: "The body or a part of it is too large.",
    415: "The body is not application/json.",
    422: "The body is JSON but not valid; `errors` points at each place.",
    429: "Rate limit or quota; Retry-After says when to come back.",
    500: "Something failed on our side.",
    503: "The database cannot answer right now.",
}
_EXAMPLE = {
    "type": "about:blank",
    "title": "Unprocessable Entity",
    "status": 422,
    "detail": "/target/url: This field is required.",
    "code": "invalid",
    "request_id": "5f0c9a7be2d84f1c9d1f0a6f1f3c2b7e",
    "errors": [{"pointer": "/target/url", "code": "required", "detail": "This field is required."}],
}


class FieldProblemSerializer(serializers.Serializer[Any]):
    pointer = serializers.CharField(help_text="JSON pointer (RFC 6901); empty for the whole body.", allow_blank=True)
    code = serializers.CharField()
    detail = serializers.CharField()


class ProblemSerializer(serializers.Serializer[Any]):
    """RFC 9457. Some problems carry further members, like `state` or `parameter`."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField(help_text="One sentence for people.")
    code = serializers.CharField(help_text="For programs; it does not change.")
    request_id = serializers.CharField()
    errors = FieldProblemSerializer(many=True)  # type: ignore[assignment]


class ManySchema(OpenApiSerializerFieldExtension):
    """One value, or a list of them."""

    target_class = "chronos_site.api.fields.ManyField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Any) -> dict[str, Any]:
        one = auto_schema._map_serializer_field(self.target.child, direction)
        return {"oneOf": [one, {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_FILTER_VALUES}]}


class _Page:
    """How drf-spectacular asks for the shape of a list."""

    def __init__(self, *, paged: bool) -> None:
        self._paged = paged

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        shape: dict[str, Any] = {"type": "object", "required": ["items"], "properties": {"items": schema}}
        if self._paged:
            shape["required"] = ["items", "next_cursor"]
            shape["properties"]["next_cursor"] = {"type": ["string", "null"], "description": "Null on the last page."}
        return shape

    def get_schema_operation_parameters(self, _view: Any) -> list[dict[str, Any]]:
        if not self._paged:
            return []
        limit = {"type": "integer", "minimum": 1, "maximum": MOST, "default": DEFAULT_LIMIT}
        return [
            {"name": "limit", "in": "query", "schema": limit},
            {
                "name": "cursor",
                "in": "query",
                "schema": {"type": "string"},
                "description": "`next_cursor` of the page before; it carries the filters.",
            },
        ]


class ProblemAutoSchema(AutoSchema):
    def get_summary(self) -> str | None:
        """From the operation's id, where the view says nothing: `create_schedule` → "Create schedule"."""
        said = super().get_summary()
        return str(said) if said else self.get_operation_id().replace("_", " ").capitalize()

    def map_parsers(self) -> list[str]:
        """A merge patch is what PATCH takes; elsewhere the name would mean nothing."""
        types = [str(media_type) for media_type in super().map_parsers()]
        return [name for name in types if self.method == "PATCH" or "merge-patch" not in name]

    def get_override_parameters(self) -> list[Any]:
        parameters = list(super().get_override_parameters())
        if getattr(self._method(), "takes_idempotency_key", False):
            description = "1 to 255 printable ASCII. The same key and body answer the same again for 24 h."
            parameters.append(
                OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description=description)
            )
        return parameters

    def get_tags(self) -> list[str]:
        """The collection that the path begins with."""
        return [self.path.removeprefix("/v1/").split("/")[0]]

    def _method(self) -> Any:
        return getattr(self.view, self.method.lower(), None)

    def _get_paginator(self) -> Any:
        """A list right under /v1 comes in pages; one below a resource (`…/{id}/attempts`) is short and comes whole."""
        return _Page(paged=getattr(self.view, "paged", "{" not in self.path))

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        if direction == "response":
            for status in self._problem_statuses():
                example = [OpenApiExample("Problem", value=_EXAMPLE)] if status == 422 else []
                answer = OpenApiResponse(ProblemSerializer, description=REASONS[status], examples=example)
                bodies.setdefault(str(status), self._get_response_for_code(answer, str(status), [CONTENT_TYPE]))
        return dict(sorted(bodies.items()))

    def _problem_statuses(self) -> list[int]:
        statuses = {400, 401, 403, 429, 500, 503}
        if "{" in self.path:
            statuses.add(404)
        if self.method != "GET":
            statuses |= {409, 413, 415, 422}
        if self.method in {"PATCH", "PUT"}:
            statuses.add(412)
        return sorted(statuses)
