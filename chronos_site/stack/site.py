"""The command lines of the site's own processes, and which of them one machine runs."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: where manage.py is and where every process of the site is started."""

WORKER_READY = " ready."
"""What a Celery worker says once it consumes."""

QUIET = "--without-gossip", "--without-mingle"


@dataclass(frozen=True, slots=True)
class SiteProcess:
    """One process of the site: what `up` calls it, how it runs, how long a polite stop may take."""

    name: str
    argv: tuple[str, ...]
    grace_s: float
    ready_text: str = ""
    """What its output holds once it works; empty where its start is enough."""


def python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, *arguments)


def manage(*arguments: str) -> tuple[str, ...]:
    return python(str(ROOT / "manage.py"), *arguments)


def web(*, port: int, host: str = "127.0.0.1") -> SiteProcess:
    arguments = ["-m", "uvicorn", "chronos_site.asgi:application", "--host", host, "--port", str(port)]
    arguments += ["--no-access-log", "--log-level", "warning", "--timeout-graceful-shutdown", "5"]
    return SiteProcess("web", python(*arguments), grace_s=10)


def beat(*, name: str) -> SiteProcess:
    arguments = ["-m", "celery", "-A", "chronos_site", "beat", "--pidfile", "", "--loglevel", "INFO"]
    return SiteProcess(name, python(*arguments), grace_s=10)


def worker(*, name: str, queues: str, concurrency: int, grace_s: float = 45) -> SiteProcess:
    """`grace_s` lies above the worker's own stop grace, in which it finishes the sends under way."""
    arguments = ["-m", "celery", "-A", "chronos_site", "worker", "-Q", queues, "-n", f"{name}@%h", "-P", "threads"]
    arguments += ["-c", str(concurrency), "--loglevel", "INFO", *QUIET]
    return SiteProcess(name, python(*arguments), grace_s=grace_s, ready_text=WORKER_READY)


EVENTS_READY = "consumes events"
"""What `consume_events` says once it reads."""


def event_consumer() -> SiteProcess:
    return SiteProcess("events", manage("consume_events"), grace_s=15, ready_text=EVENTS_READY)


def flower(*, port: int) -> SiteProcess:
    """Celery's own view of workers and messages, to look at; who may is in FLOWER_BASIC_AUTH."""
    arguments = ["-m", "celery", "-A", "chronos_site", "flower", "--address=127.0.0.1", f"--port={port}", "--read_only"]
    arguments += ["--purge_offline_workers=3600", "--logging=warning"]
    return SiteProcess("flower", python(*arguments), grace_s=10)


def one_machine(*, port: int) -> list[SiteProcess]:
    """Everything that delivers jobs, on one machine: two beat replicas share the loops and stand in for each other."""
    return [
        web(port=port),
        beat(name="beat-1"),
        beat(name="beat-2"),
        worker(name="scheduler", queues="scheduler,maintenance", concurrency=4),
        worker(name="fanout", queues="bucket-triggers", concurrency=2),
        worker(name="dispatch", queues="job-dispatch", concurrency=8),
        worker(name="bulk", queues="bulk-ingest,bulk-records", concurrency=8),
        worker(name="notifications", queues="notifications", concurrency=2),
        event_consumer(),
    ]


def site_environment(base: Mapping[str, str], **values: str) -> dict[str, str]:
    """The environment of a process of the site: what we were given, and the values that the stack decides."""
    return {**base, "PYTHONUNBUFFERED": "1", **values}
