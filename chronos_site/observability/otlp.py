"""Spans by OpenTelemetry's SDK, and their way to an OTLP receiver over HTTP.

Imported by `tracing` alone, and only in processes that have an exporter. Nothing here makes a delivery or a request
wait: an ended span goes into a bounded buffer, a thread of this module sends it. While the receiver is away or slow the
buffer keeps the newest spans and counts what it dropped; it says so at most once a minute. A process that dies loses
the spans of its last seconds.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan

log = logging.getLogger(__name__)

BATCH = 512
EVERY_S = 1.0
SAY_EVERY_S = 60.0

Value = str | int | float | bool
KINDS = {kind.name.lower(): kind for kind in SpanKind}


class Span:
    """One span that is recorded. `traceparent` names it to whoever comes after."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: OtelSpan) -> None:
        self._span = span
        found = span.get_span_context()
        self.traceparent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Without those that are None."""
        self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def end(self, *, error: str | None = None, told: str = "", lasted_s: float | None = None) -> None:
        """Now, or so long after its start. `error` is what failed, in one word; `told` says more."""
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR, told or None))
        start_ns = getattr(self._span, "start_time", None)
        self._span.end(None if lasted_s is None or start_ns is None else start_ns + int(lasted_s * 1e9))


class Tracing:
    """The tracer of one process. Spans may be begun and ended from any thread."""

    def __init__(self, *, endpoint: str, capacity: int) -> None:
        """Connects to nothing. Raises whatever the SDK does about its own variables."""
        named = Resource.create({"service.name": "chronos"}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=named, shutdown_on_exit=False)
        self.buffer = SpanBuffer(OTLPSpanExporter(endpoint=endpoint), capacity=capacity)
        self._provider.add_span_processor(self.buffer)
        self._tracer = self._provider.get_tracer("chronos")

    def begin(
        self, name: str, *, kind: str, parent: str | None, attributes: Mapping[str, Value], began_s: float | None = None
    ) -> Span | None:
        """A span that has begun now, or at `began_s` (Unix seconds). None where the sampler leaves it out.

        `parent` is a valid traceparent; None begins a trace.
        """
        span = self._tracer.start_span(
            name,
            context=None if parent is None else set_span_in_context(NonRecordingSpan(_context_of(parent))),
            kind=KINDS[kind],
            attributes=attributes,
            start_time=None if began_s is None else int(began_s * 1e9),
        )
        return Span(span) if span.is_recording() else None


def _context_of(traceparent: str) -> SpanContext:
    return SpanContext(
        trace_id=int(traceparent[3:35], 16),
        span_id=int(traceparent[36:52], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(traceparent[53:], 16) & TraceFlags.SAMPLED),
    )


class SpanBuffer(SpanProcessor):
    """Ended spans on their way out. The thread begins with the first of them, so that no fork finds it running."""

    def __init__(self, exporter: SpanExporter, *, capacity: int) -> None:
        self._exporter = exporter
        self._waiting: deque[ReadableSpan] = deque(maxlen=capacity)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._said_at = -SAY_EVERY_S
        self.dropped = 0

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            if self._stopping:
                self.dropped += 1
                return
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(span)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
                self._thread.start()
        if len(self._waiting) >= BATCH:
            self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """Send what waits, for at most `timeout_s`; the rest is dropped. Safe to repeat."""
        with self._lock:
            first, self._stopping = not self._stopping, True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        if first:
            self._exporter.shutdown()  # What tries again, tries no more.
            self._drop(self._take(self._waiting.maxlen or 0))

    def _run(self) -> None:
        while True:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            stopping = self._stopping
            while batch := self._take(BATCH):
                if self._exporter.export(batch) is not SpanExportResult.SUCCESS:
                    self._drop(batch)
            if stopping:
                return

    def _take(self, most: int) -> list[ReadableSpan]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def _drop(self, batch: list[ReadableSpan]) -> None:
        """Count, and say so now and then."""
        with self._lock:
            self.dropped += len(batch)
        if self.dropped and time.monotonic() - self._said_at >= SAY_EVERY_S:
            self._said_at = time.monotonic()
            log.warning("spans_dropped", extra={"action": "trace", "dropped": self.dropped})


class NowAndThen(logging.Filter):
    """Lets a line through at most once a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._said_at = -SAY_EVERY_S

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._said_at < SAY_EVERY_S:
            return False
        self._said_at = now
        return True


# The exporter has a line for each try at each batch; one a minute gives the reason as well.
logging.getLogger(OTLPSpanExporter.__module__).addFilter(NowAndThen())
