"""What this process counts for Prometheus, and the small server that shows it.

Counting must cost next to nothing where deliveries pass: `Counter.add` and `Histogram.observe` take a batch's sums at
once and touch plain numbers under a lock; everything else is done when somebody asks. Each process shows its own
numbers; Prometheus adds them up. Our workers are one process each (`-P threads`), so no files are shared between
processes; in a prefork pool the children's numbers would not be seen.

Labels are bounded: no family has more than `MOST_SERIES` sets of labels, and what is beyond is counted under `other`.
No label names a workspace, a job or an execution.
"""

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from celery import signals
from django.conf import settings
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from chronos_site.observability import events

log = logging.getLogger(__name__)

CONTENT_TYPE = CONTENT_TYPE_LATEST
MOST_SERIES = 500
OTHER = "other"

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

Labels = tuple[str, ...]


class Counter:
    """A number that only rises, for each set of labels."""

    def __init__(self, name: str, told: str, labels: Sequence[str] = ()) -> None:
        """`name` without `_total`, which Prometheus adds."""
        self._name, self._told, self._labels = name, told, labels
        self._lock = threading.Lock()
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}
        REGISTRY.register(self)

    def add(self, *labels: str, by: float = 1) -> None:
        with self._lock:
            key = labels if labels in self._values else _bounded(labels, self._values)
            self._values[key] = self._values.get(key, 0.0) + by

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._told, labels=self._labels)
        with self._lock:
            values = dict(self._values)
        for labels, value in values.items():
            family.add_metric(labels, value)
        yield family


class Histogram:
    """How values spread, for each set of labels."""

    def __init__(self, name: str, told: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        """`bounds`: the upper end of each bucket, rising, without +Inf."""
        self._name, self._told, self._labels = name, told, labels
        self._bounds = list(bounds)
        self._names = [str(float(bound)) for bound in bounds] + ["+Inf"]
        self._lock = threading.Lock()
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        REGISTRY.register(self)

    def observe(self, values: Iterable[float], *labels: str) -> None:
        """A batch of values."""
        bounds = self._bounds
        with self._lock:
            key = labels if labels in self._counts else _bounded(labels, self._counts)
            counts = self._counts.get(key)
            if counts is None:
                counts = self._counts[key] = [0] * len(self._names)
            total = 0.0
            for value in values:
                counts[bisect_left(bounds, value)] += 1
                total += value
            self._sums[key] = self._sums.get(key, 0.0) + total

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._told, labels=self._labels)
        with self._lock:
            taken = [(labels, list(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        for labels, counts, total in taken:
            running, buckets = 0, []
            for name, count in zip(self._names, counts, strict=True):
                running += count
                buckets.append((name, running))
            family.add_metric(labels, buckets, total)
        yield family


def _bounded(labels: Labels, known: Mapping[Labels, object]) -> Labels:
    return labels if len(known) < MOST_SERIES else (OTHER,) * len(labels)


class Watched:
    """Numbers that somebody else keeps, read when they are asked for."""

    def __init__(
        self,
        name: str,
        told: str,
        read: Callable[[], Mapping[Labels, float]],
        labels: Sequence[str] = (),
        *,
        rises: bool = False,
    ) -> None:
        """`read` answers by label values, and must be quick; where it raises, the family is left out."""
        self._name, self._told, self._labels, self._read = name, told, labels, read
        self._family = CounterMetricFamily if rises else GaugeMetricFamily
        REGISTRY.register(self)

    def describe(self) -> Iterator[Metric]:
        """Its name alone: nothing is read before somebody asks."""
        yield self._family(self._name, self._told, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        family = self._family(self._name, self._told, labels=self._labels)
        try:
            values = self._read()
        except Exception:
            log.exception("metric_not_read", extra={"action": "metrics", "metric": self._name})
            return
        for labels, value in values.items():
            family.add_metric(labels, value)
        yield family


# --- what is counted -------------------------------------------------------------------------------------------------

LATENESS_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

created = Counter("chronos_executions_created", "Executions made, by what made them.", ("kind", "trigger"))
fired = Counter("chronos_executions_fired", "Executions that a fan-out has handed to the dispatch queue.")
buckets_triggered = Counter("chronos_buckets_triggered", "Buckets that the fire loop has sent a trigger for.")
retries_queued = Counter("chronos_retries_queued", "Executions that the retry loop has put back onto the queue.")
attempts = Counter(
    "chronos_attempts",
    "Attempts by their end: delivered, retried, failed (for good), other; not_stored: the row was no longer ours.",
    ("queue", "kind", "outcome"),
)
dead_letters = Counter("chronos_dead_letters", "Executions that failed for good, by reason.", ("reason",))
lateness = Histogram(
    "chronos_lateness_seconds",
    "From the time at which it was due to the begin of the send.",
    LATENESS_BOUNDS,
    ("queue",),
)
duration = Histogram(
    "chronos_attempt_duration_seconds", "From the begin of a send to its end.", DURATION_BOUNDS, ("queue", "kind")
)
mended = Counter("chronos_mended", "What the monitor found lost and mended, by kind.", ("what",))
requests = Counter("chronos_http_requests", "Requests answered, by route.", ("route", "method", "status"))
request_duration = Histogram(
    "chronos_http_request_duration_seconds", "From a request's begin to its answer.", DURATION_BOUNDS, ("route",)
)


Watched("chronos_events_written", "Events on the stream job-events.", lambda: {(): events.COUNTS.written}, rises=True)
Watched("chronos_events_dropped", "Events that had no room.", lambda: {(): events.COUNTS.dropped}, rises=True)


# --- where it is shown -----------------------------------------------------------------------------------------------


def expose() -> bytes:
    """This process's metrics, in Prometheus' text format."""
    return generate_latest(REGISTRY)


_serving = threading.Lock()
_served = False


def serve(**_kwargs: object) -> None:
    """Show them on CHRONOS_METRICS_PORT, where that is set. Safe to repeat; a taken port costs the metrics only."""
    global _served
    port, address = settings.CHRONOS_METRICS_PORT, settings.CHRONOS_METRICS_ADDRESS
    with _serving:
        if port == 0 or _served:
            return
        try:
            start_http_server(port, addr=address, registry=REGISTRY)
        except OSError as error:
            told = {"action": "metrics", "port": port, "error": str(error)}
            log.error("metrics_not_served", extra=told)
            return
        _served = True
    log.info("metrics_served", extra={"action": "metrics", "address": address, "port": port})


def install() -> None:
    """Serve them from the workers and beats of Celery; other processes call `serve` themselves."""
    signals.worker_init.connect(serve)
    signals.beat_init.connect(serve)
