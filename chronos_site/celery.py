"""The Celery application: one plain list per queue, late acks, JSON only, no result backend.

A message carries ids and is only a wake-up; Postgres is the truth (docs/job_walkthrough.md). The figures behind the
transport options are in docs/adr/0002-celery-on-redis.md.
"""

import os
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from celery.signals import setup_logging, task_postrun, task_prerun, worker_process_shutdown
from kombu import Connection, Queue

from chronos_site.observability import consumption, context, metrics, tracing

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chronos_site.settings.base")

QUEUES = ("scheduler", "bucket-triggers", "job-dispatch", "bulk-ingest", "bulk-records", "notifications", "maintenance")

RECONNECT_LONGEST_S = 5


class BrokerConnection(Connection):
    """After an outage the broker is looked for every few seconds; the library's own pauses grow to thirty."""

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        pauses = {"interval_start": 1, "interval_step": 1, "interval_max": RECONNECT_LONGEST_S}
        return super().ensure_connection(*args, **{**pauses, **kwargs})


class Broker(AMQP):
    Connection = BrokerConnection


app = Celery("chronos", amqp=Broker)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    task_queues=[Queue(name) for name in QUEUES],
    task_default_queue="maintenance",
    task_create_missing_queues=False,
    task_routes={
        "scheduling.tasks.tick": {"queue": "scheduler"},
        "scheduling.tasks.settle": {"queue": "scheduler"},
        "execution.tasks.retry_tick": {"queue": "scheduler"},
        "execution.tasks.monitor_tick": {"queue": "scheduler"},
        "execution.tasks.notifications_tick": {"queue": "scheduler"},
        "execution.tasks.send_notifications": {"queue": "notifications"},
        "execution.tasks.purge_notifications": {"queue": "maintenance"},
        "execution.tasks.fan_out": {"queue": "bucket-triggers"},
        "execution.tasks.dispatch": {"queue": "job-dispatch"},
        "bulk.tasks.tick": {"queue": "scheduler"},
        "bulk.tasks.work": {"queue": "bulk-ingest"},
        "bulk.tasks.dispatch_records": {"queue": "bulk-records"},
        "bulk.tasks.purge": {"queue": "maintenance"},
        "chronos_site.api.tasks.run_operations": {"queue": "maintenance"},
        "chronos_site.api.tasks.purge_operations": {"queue": "maintenance"},
    },
    task_serializer="json",
    accept_content=["json"],
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    result_backend=None,
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    # A pool of threads cannot cancel a task; a doubled one finds nothing to claim.
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_hijack_root_logger=False,
    worker_enable_remote_control=True,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_pool_limit=10,
    broker_transport_options={
        "visibility_timeout": 180,
        "unacked_restore_interval": 10,
        "unacked_restore_throttle": 1,
        # A link that has gone silent costs this once for every pooled connection, one after the other.
        "socket_timeout": 3,
        "socket_connect_timeout": 3,
        "socket_keepalive": True,
        # Seconds, on top of the poll's own one, until a poll without an answer is given up.
        "health_check_interval": 4,
        "retry_on_timeout": False,
        # A publish that finds no broker says so at once; its rows go back to where a loop finds them.
        "max_retries": 0,
    },
    beat_scheduler="chronos_site.beat.LeaderScheduler",
    beat_max_loop_interval=1,
    timezone="UTC",
    enable_utc=True,
)
app.autodiscover_tasks()
consumption.install(app)
metrics.install()


@worker_process_shutdown.connect
def send_last_spans(**_kwargs: object) -> None:
    """The children of a prefork pool end without what is registered for the end of an interpreter."""
    tracing.stop()


@task_prerun.connect
def begin_lines_of_task(task_id: str, **_kwargs: object) -> None:
    """Lines that are logged from here on say which task they are of."""
    context.task_id.set(task_id)


@task_postrun.connect
def end_lines_of_task(**_kwargs: object) -> None:
    context.task_id.set(None)


@setup_logging.connect
def keep_django_logging(**_kwargs: object) -> None:
    """Django has configured logging already; a connected receiver keeps Celery from doing it again."""
