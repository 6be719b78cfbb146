"""`/metrics` of the web process: its own numbers, and those of the whole site.

The site's come from `gauges`, which asks its servers at most once in five seconds however many scrape. Those of a
server that is away are absent, `chronos_server_up` is 0, and the page is 200 all the same. With several web processes
each shows the site's; take the `max`.
"""

from collections.abc import Iterator

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from chronos_site.console import gauges
from chronos_site.observability import metrics


@never_cache
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Sums over all workspaces, and nothing of any."""
    install()
    return HttpResponse(metrics.expose(), content_type=metrics.CONTENT_TYPE)


class SiteCollector:
    """The site's gauges as families."""

    def describe(self) -> Iterator[Metric]:
        """Nothing is read before somebody asks."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        seen = gauges.read()
        up = {"postgres": seen.postgres is not None, "redis": seen.redis is not None}
        yield _family("server_up", "Whether the server answered in time.", "server", up)
        if seen.postgres is not None:
            yield from _of_postgres(seen.postgres)
        if seen.redis is not None:
            yield from _of_redis(seen.redis)


def _family(name: str, told: str, label: str, values: dict[str, bool] | dict[str, int] | dict[str, float]) -> Metric:
    family = GaugeMetricFamily(f"chronos_{name}", told, labels=[label] if label else [])
    for key, value in values.items():
        family.add_metric([key] if label else [], float(value))
    return family


def _of_postgres(stored: gauges.Stored) -> Iterator[Metric]:
    overdue, workers = stored.overdue, stored.workers
    told = (
        f"Executions that nobody took within {gauges.OVERDUE_GRACE_S:g} s of their time; {gauges.OVERDUE_MOST} at most."
    )
    yield _family("overdue_executions", told, "state", {state: each.count for state, each in overdue.items()})
    told = "Since the oldest of the overdue was due."
    yield _family("oldest_due_seconds", told, "state", {state: each.oldest_s for state, each in overdue.items()})
    yield _family("workers", "Live workers.", "queue", {queue: each.count for queue, each in workers.items()})
    told = "Claimed and not yet finished, of all live workers."
    yield _family("in_flight", told, "queue", {queue: each.in_flight for queue, each in workers.items()})
    yield _family("loop_age_seconds", "Since a loop last ticked.", "loop", stored.loops)
    yield _family("switches_off", "Dispatch switches that are off.", "scope", stored.switches_off)
    yield _family("open_bulk_jobs", "Bulk jobs that have not ended.", "state", stored.open_bulk_jobs)
    yield _family("database_connections", "Connections to the database.", "", {"": stored.held_connections})
    yield _family("database_connections_max", "What the server allows.", "", {"": stored.max_connections})


def _of_redis(queued: gauges.Queued) -> Iterator[Metric]:
    yield _family("queue_length", "Messages that wait.", "queue", queued.queues)
    yield _family("unacked_messages", "Messages taken and not yet acknowledged.", "", {"": queued.unacked})
    leaders = queued.leaders
    yield _family("leader", "1 where some beat holds the lock.", "lock", {n: each.held for n, each in leaders.items()})
    told = "Number of the last election."
    yield _family("leader_epoch", told, "lock", {name: each.epoch for name, each in leaders.items()})
    yield _family("breakers", "Destinations whose breaker is not closed.", "state", queued.breakers)
    yield _family("events_stream_length", "Events on the stream job-events.", "", {"": queued.stream_length})
    lags = {name: lag for name, lag in queued.stream_lag.items() if lag is not None}
    told = "Events that a group of readers has not yet read."
    yield _family("events_lag", told, "group", dict(sorted(lags.items())[: metrics.MOST_SERIES]))


def _pool() -> dict[tuple[str, ...], float]:
    pool = getattr(connection, "pool", None)
    stats = {} if pool is None else pool.get_stats()
    return {
        (name,): float(stats[name]) for name in ("pool_size", "pool_available", "requests_waiting") if name in stats
    }


_installed = False


def install() -> None:
    """Once for this process, at its first scrape."""
    global _installed
    if not _installed:
        _installed = True
        metrics.REGISTRY.register(SiteCollector())
        metrics.Watched("chronos_database_pool", "The pool of this web process, as it is now.", _pool, ("what",))
