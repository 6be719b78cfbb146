"""Beat, leader-locked: every replica reads the same table, and only the holder of a loop's lock sends its tasks.

The table of periodic tasks is the one source of periods; `seed_periodic_tasks` fills in what is missing and never
overwrites what an operator changed. Entries are not filtered out while another leads (a takeover would then start from
an empty heap): they answer "not due, ask again in a second".
"""

import logging
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

from celery import schedules
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from chronos_site.infra import redis
from chronos_site.infra.leader import Leadership, Lock
from chronos_site.observability.liveness import HeartbeatFile

log = logging.getLogger(__name__)

STALE_TICK_S = 5.0
EXPIRES_S = 30
CLOCK_JUMP_S = 2.0
NOT_LEADING_S = 0.5
"""How soon an entry is asked again while another leads: a takeover's first tick waits no longer."""

# Which loop a task belongs to. Tasks that are not named here are sent by whoever leads the scheduler.
SCHEDULER = "scheduler"
LOOP_OF_TASK = {"execution.tasks.retry_tick": "retry", "execution.tasks.monitor_tick": "monitor"}
# The retry loop and the monitor may be without a leader for longer: what they find waits in the table.
TTL_FACTOR = {SCHEDULER: 1, "retry": 3, "monitor": 3}

HOUSE_TASKS = (
    # name, task, queue, every, period
    ("chronos: scheduler tick", "scheduling.tasks.tick", "scheduler", 1, IntervalSchedule.SECONDS),
    ("chronos: retry tick", "execution.tasks.retry_tick", "scheduler", 1, IntervalSchedule.SECONDS),
    ("chronos: monitor tick", "execution.tasks.monitor_tick", "scheduler", 10, IntervalSchedule.SECONDS),
    ("chronos: settle", "scheduling.tasks.settle", "scheduler", 5, IntervalSchedule.SECONDS),
    ("chronos: bulk tick", "bulk.tasks.tick", "scheduler", 1, IntervalSchedule.SECONDS),
    ("chronos: notifications tick", "execution.tasks.notifications_tick", "scheduler", 1, IntervalSchedule.SECONDS),
    (
        "chronos: old notifications",
        "execution.tasks.purge_notifications",
        "maintenance",
        10,
        IntervalSchedule.MINUTES,
    ),
    ("chronos: old bulk jobs", "bulk.tasks.purge", "maintenance", 10, IntervalSchedule.MINUTES),
    ("chronos: left uploads", "bulk.tasks.sweep", "maintenance", 6, IntervalSchedule.HOURS),
    ("chronos: maintenance", "scheduling.tasks.maintain", "maintenance", 10, IntervalSchedule.MINUTES),
    ("chronos: operations", "chronos_site.api.tasks.run_operations", "maintenance", 1, IntervalSchedule.SECONDS),
    ("chronos: old operations", "chronos_site.api.tasks.purge_operations", "maintenance", 1, IntervalSchedule.HOURS),
)


def seed_periodic_tasks() -> int:
    """Add the house's own periodic tasks where they are missing. Returns how many were added."""
    added = 0
    with transaction.atomic(), connection.cursor() as cursor:
        # Intervals carry no constraint: without the lock, replicas that start together make each of them twice.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('chronos:seed_periodic_tasks', 0))")
        for name, task, queue, every, period in HOUSE_TASKS:
            interval = IntervalSchedule.objects.filter(every=every, period=period).first()
            if interval is None:
                interval = IntervalSchedule.objects.create(every=every, period=period)
            _, created = PeriodicTask.objects.get_or_create(
                name=name,
                defaults={"task": task, "queue": queue, "interval": interval, "expire_seconds": EXPIRES_S},
            )
            added += created
    return added


class LeaderEntry(ModelEntry):
    """An entry that is due only while this process leads its loop."""

    leads: Any = None
    """Set by the scheduler: task → bool."""

    def is_due(self) -> schedules.schedstate:
        if self.leads is not None and not self.leads(self.task):
            return schedules.schedstate(False, NOT_LEADING_S)
        if self.last_run_at > timezone.now():
            # Written by a clock that ran ahead: waiting for it could mean hours of silence.
            return schedules.schedstate(True, 1.0)
        due: schedules.schedstate = super().is_due()
        return due

    def save(self) -> None:
        """Only when it last ran and how often: an operator's edit is never overwritten, nor announced as a change."""
        PeriodicTask.objects.filter(pk=self.model.pk).update(
            last_run_at=self.model.last_run_at, total_run_count=self.model.total_run_count
        )


class LeaderScheduler(DatabaseScheduler):
    """DatabaseScheduler that competes for the loops' locks; named in the Celery settings."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._ticked = time.monotonic()
        self._leaderships: dict[str, Leadership] = {}
        self._reload = False
        self._heartbeat = HeartbeatFile(Path(file)) if (file := settings.CHRONOS_LIVENESS_FILE) else None
        self._touched = float("-inf")
        self._clock_offset_s = time.time() - time.monotonic()
        self.Entry = type("Entry", (LeaderEntry,), {"leads": staticmethod(self._leads)})
        super().__init__(*args, **kwargs)
        if not kwargs.get("lazy"):
            if self._heartbeat is not None:
                self._heartbeat.clear()
            self._compete()

    def setup_schedule(self) -> None:
        """Nothing from the settings: entries live in the table alone."""
        seed_periodic_tasks()

    def _compete(self) -> None:
        for name, factor in TTL_FACTOR.items():
            ttl = settings.CHRONOS_LEADER_TTL_S * factor
            leadership = Leadership(
                lock=Lock(name=name, ttl_s=ttl, renew_s=ttl / 3),
                client=redis.client(),
                alive=lambda: time.monotonic() - self._ticked < STALE_TICK_S,
                others=partial(self._held_beside, name),
            )
            leadership.on_won = self._won
            self._leaderships[name] = leadership
        for leadership in self._leaderships.values():
            leadership.start()
        log.info("beat_started", extra={"action": "leader", "host": socket.gethostname()})

    def _leads(self, task: str) -> bool:
        held = self._leaderships.get(LOOP_OF_TASK.get(task, SCHEDULER))
        return held is not None and held.leading

    def _held_beside(self, name: str) -> int:
        """How many locks this process holds besides `name`."""
        return sum(held.leading for other, held in self._leaderships.items() if other != name)

    def _won(self) -> None:
        self._reload = True

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """One look at the entries. A database that is away leaves the old entries in force."""
        self._ticked = time.monotonic()
        self._touch()
        try:
            if self._reload:
                self._reload = False
                self._initial_read = True
                self._heap = None
            if abs(time.time() - time.monotonic() - self._clock_offset_s) > CLOCK_JUMP_S:
                # The heap holds wall times: after a jump back it would sleep until they come round again.
                self._clock_offset_s = time.time() - time.monotonic()
                self._heap = None
            wait: float = super().tick(*args, **kwargs)
        except (DatabaseError, InterfaceError, OSError) as error:
            log.warning("beat_database_away", extra={"action": "beat", "error": str(error)[:200]})
            return 1.0
        return min(wait, 1.0)

    def _touch(self) -> None:
        """Once a second at most: entries that are due at once make ticks follow one another without a pause."""
        if self._heartbeat is not None and self._ticked - self._touched >= 1.0:
            self._touched = self._ticked
            self._heartbeat.touch("beat ticked")

    def sync(self) -> None:
        try:
            super().sync()
        except (DatabaseError, InterfaceError) as error:
            log.warning("beat_sync_failed", extra={"action": "beat", "error": str(error)[:200]})

    def close(self) -> None:
        self.release()
        super().close()

    def release(self) -> None:
        """Let go of every lock, so that another replica leads within a poll."""
        for leadership in self._leaderships.values():
            leadership.stop()
