"""A real OTLP receiver on loopback: keeps the spans that it is sent, and the bytes they came in."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from pytest_django import Settings

from chronos_site.observability import tracing
from tests.clients import ProgrammableReceiver


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """A span as the receiver understands it; ids in hex."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty where a trace begins."""
    failed: bool
    told: str
    start_s: float
    end_s: float
    attributes: dict[str, Any]
    resource: dict[str, Any]


class TraceReceiver(ProgrammableReceiver):
    """Set `OTEL_EXPORTER_OTLP_ENDPOINT` to `endpoint`."""

    @property
    def endpoint(self) -> str:
        return self.url("")

    @property
    def spans(self) -> list[SeenSpan]:
        return [span for body in self._bodies() for span in _spans_of(body)]

    @property
    def everything(self) -> str:
        """All that was received, as text."""
        return "\n".join(body.decode("latin-1") for body in self._bodies())

    def named(self, name: str) -> list[SeenSpan]:
        return [span for span in self.spans if span.name == name]

    def _bodies(self) -> list[bytes]:
        assert {request.path for request in self.requests} <= {"/v1/traces"}
        return [request.body for request in self.requests]


@contextmanager
def traced(settings: Settings, endpoint: str | None) -> Iterator[None]:
    """This process's own tracer with another setting; what it recorded is sent at the end."""
    settings.CHRONOS_TRACES_ENDPOINT = endpoint
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "_pid", 0)
        patch.setattr(tracing, "_tracing", None)
        yield
        tracing.stop()


def _spans_of(body: bytes) -> Iterator[SeenSpan]:
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in group.scope_spans:
            for span in scope.spans:
                yield SeenSpan(
                    name=span.name,
                    kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    failed=span.status.code == Status.STATUS_CODE_ERROR,
                    told=span.status.message,
                    start_s=span.start_time_unix_nano / 1e9,
                    end_s=span.end_time_unix_nano / 1e9,
                    attributes={each.key: _value(each.value) for each in span.attributes},
                    resource={each.key: _value(each.value) for each in group.resource.attributes},
                )


def _value(value: AnyValue) -> Any:
    return getattr(value, str(value.WhichOneof("value")))
