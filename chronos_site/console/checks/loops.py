"""The loops of the house and the queues that carry them: rows, last sends, consumers, what grows."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
from celery import current_app
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.executor import MigrationExecutor
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from chronos_site.beat import HOUSE_TASKS
from chronos_site.celery import QUEUES
from chronos_site.console.checks.finding import Finding
from chronos_site.console.connections import own_connection
from chronos_site.console.loops import loop_warnings
from chronos_site.console.selectors.state import read_queues
from chronos_site.infra import redis

ASK_WORKERS_S = 1.5
GROWS_FROM = 50
"""Messages; below, a queue only breathes."""
OLD_UNACKED_S = 300
"""The broker gives what was taken back to the queue after 180 s."""
SLACK = timedelta(seconds=60)


def check_migrations() -> Iterator[Finding]:
    """Raises django.db's errors."""
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        names = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in missing[:5])
        yield Finding(
            "migrations",
            "fail",
            f"{len(missing)} are not applied: {names}{', …' if len(missing) > 5 else ''}",
            "python manage.py migrate",
        )
    else:
        yield Finding("migrations", "ok", "All are applied.")


def check_loops() -> Iterator[Finding]:
    """Raises psycopg's errors."""
    with own_connection() as database:
        warnings = loop_warnings(database)
        silent = _silent(database)
    for warning in warnings:
        yield Finding("loops", "warn", warning, "Admin, Periodic tasks: put it back as it was made.")
    for name, age in silent:
        yield Finding(
            "loops", "fail", f"{name}: last sent {age}.", "Beat does not send it: see leaders, and beat's log."
        )
    if not warnings and not silent:
        yield Finding("loops", "ok", f"All {len(HOUSE_TASKS)} are on, at their pace, and sent.")


def _silent(database: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    """Loops that are on and were not sent for much longer than their period."""
    rows = database.execute(
        "SELECT name, clock_timestamp() - last_run_at FROM django_celery_beat_periodictask"
        " WHERE enabled AND name = ANY(%s)",
        [[name for name, *_ in HOUSE_TASKS]],
    )
    ages = dict(rows.fetchall())
    found = []
    for name, _task, _queue, every, period in HOUSE_TASKS:
        if name not in ages:
            continue
        age = ages[name]
        # Beat writes its times every few minutes only: what is young enough cannot be told from what is fresh.
        if age is not None and age > 3 * timedelta(**{str(period): every}) + 5 * SLACK:
            found.append((name, f"{age.total_seconds() / 60:,.0f} minutes ago"))
    return found


# --- queues --------------------------------------------------------------------------------------


def consumers() -> dict[str, list[str]] | None:
    """The workers that consume each queue, by asking all of them for a second and a half; None where none answers.

    Raises kombu's and redis' errors.
    """
    answers = current_app.control.inspect(timeout=ASK_WORKERS_S).active_queues()
    if not answers:
        return None
    found: dict[str, list[str]] = {queue: [] for queue in QUEUES}
    for worker, queues in answers.items():
        for queue in queues:
            found.setdefault(queue["name"], []).append(worker)
    return found


def check_queues() -> Iterator[Finding]:
    """Two looks at the lengths, with the question for consumers between them. Raises redis' errors."""
    before = {row.queue: row.messages for row in read_queues()[0]}
    begun = time.monotonic()
    try:
        found = consumers() or {queue: [] for queue in QUEUES}
    except OperationalError as error:
        raise RedisError(str(error)) from error
    passed = max(time.monotonic() - begun, 0.1)
    after = {row.queue: row.messages for row in read_queues()[0]}
    idle = [queue for queue in QUEUES if not found.get(queue)]
    for queue in idle:
        waiting = f"{after[queue]:,} messages wait" if after[queue] else "nothing waits yet"
        yield Finding(
            f"queue {queue}",
            "fail",
            f"Nobody consumes it; {waiting}.",
            f"Start a worker with -Q {queue} (docs/cli.md lists which queues go together).",
        )
    growing = [
        queue for queue in QUEUES if queue not in idle and after[queue] >= GROWS_FROM and after[queue] > before[queue]
    ]
    for queue in growing:
        pace = (after[queue] - before[queue]) / passed
        yield Finding(
            f"queue {queue}",
            "warn",
            f"It has consumers and grows all the same: {after[queue]:,} messages, {pace:+,.0f} per second.",
            "Look again in a minute. If it goes on, add workers of this queue, or more concurrency (-c).",
        )
    if not idle and not growing:
        yield Finding("queues", "ok", f"All {len(QUEUES)} are consumed; none grows.")
    yield from _unacked()


def _unacked() -> Iterator[Finding]:
    oldest: Any = redis.client().zrange("unacked_index", 0, 0, withscores=True)
    age_s = time.time() - oldest[0][1] if oldest else 0
    if age_s > OLD_UNACKED_S:
        yield Finding(
            "unacked messages",
            "warn",
            f"One was taken {age_s / 60:,.0f} minutes ago and never acknowledged.",
            "A worker died with it and no other gives it back: is any worker alive? The monitor finds what it named.",
        )
