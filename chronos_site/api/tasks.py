"""Celery's tasks of this room: they call, and hold no logic."""

from celery import shared_task

from chronos_site.api.operations import runner, services


@shared_task(name="chronos_site.api.tasks.run_operations")
def run_operations() -> None:
    runner.tick_operations()


@shared_task(name="chronos_site.api.tasks.purge_operations")
def purge_operations() -> None:
    services.purge_operations()
