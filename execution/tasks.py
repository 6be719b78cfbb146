"""Celery's tasks of this room: they fetch and call, and hold no logic."""

from uuid import UUID

import psycopg
from celery import shared_task
from celery.exceptions import Reject

from chronos_site.infra.clock import database_now
from execution import fanout
from execution.dispatch import runtime
from execution.dispatch.engine import Engine, EngineStopping
from execution.loops import monitor, notifications, purge, retry
from execution.publish import NOTIFICATIONS_QUEUE


@shared_task(name="execution.tasks.fan_out")
def fan_out(bucket_id: int) -> None:
    fanout.serve(bucket_id=bucket_id)


@shared_task(name="execution.tasks.dispatch")
def dispatch(ids: list[str]) -> None:
    """Returns as soon as the rows are claimed: the ack means claimed, the lease covers the rest."""
    _submit(runtime.engine(), ids)


@shared_task(name="execution.tasks.send_notifications")
def send_notifications(ids: list[str]) -> None:
    """As `dispatch`."""
    _submit(runtime.engine(NOTIFICATIONS_QUEUE), ids)


def _submit(engine: Engine, ids: list[str]) -> None:
    try:
        engine.submit([UUID(i) for i in ids])
    except (EngineStopping, psycopg.Error) as error:
        # An error would be acknowledged like success, and the message with its ids would be gone.
        raise Reject(str(error), requeue=True) from error


@shared_task(name="execution.tasks.retry_tick")
def retry_tick() -> None:
    retry.queue_due_retries()


@shared_task(name="execution.tasks.monitor_tick")
def monitor_tick() -> None:
    monitor.mend()
    purge.purge_ended(now_s=database_now().timestamp())


@shared_task(name="execution.tasks.notifications_tick")
def notifications_tick() -> None:
    notifications.tick()


@shared_task(name="execution.tasks.purge_notifications")
def purge_notifications() -> None:
    notifications.purge()
