"""Deliveries per second of the peers, of plain Celery, and of the client without any queue.

Every peer delivers the same small POST to the same sink, one task for each job, and stores no result. The jobs are in
its queue before its workers start, and the clock runs from the first arrival to the last: neither the enqueueing nor
the start of the workers counts. Peers that are asynchronous use the client that Chronos uses, the others `requests`
with one session for each thread. Slow ones deliver fewer jobs, so that the whole ends in time.
"""

import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg

from chronos_site.stack.processes import Child
from chronos_site.stack.site import ROOT
from tests.bench.arrivals import SinkProcess
from tests.bench.figures import Figure, median
from tests.bench.ground import Ground
from tests.bench.usage import Usage

PATIENCE_S = 120.0
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Peer:
    """`workers`: the commands of its worker processes, as the peer's own documentation starts them."""

    key: str
    what: str
    module: str
    count: int
    workers: tuple[tuple[str, ...], ...]
    database: bool = False


def _bin(name: str) -> str:
    return str(BIN / name)


def _celery(*pool: str) -> tuple[str, ...]:
    quiet = ("--without-gossip", "--without-mingle", "--loglevel", "WARNING")
    return (sys.executable, "-m", "celery", "-A", "tests.bench.peers.celery_app", "worker", *pool, *quiet)


PEERS = (
    Peer("celery_prefork", "Celery, prefork, 2 processes", "celery_app", 2000, (_celery("-P", "prefork", "-c", "2"),)),
    Peer("celery_threads", "Celery, 8 threads", "celery_app", 2000, (_celery("-P", "threads", "-c", "8"),)),
    Peer(
        "dramatiq",
        "Dramatiq, 2 processes of 8 threads",
        "dramatiq_app",
        4000,
        ((_bin("dramatiq"), "tests.bench.peers.dramatiq_app", "-p", "2", "-t", "8"),),
    ),
    Peer(
        "huey",
        "Huey, 8 threads",
        "huey_app",
        4000,
        ((_bin("huey_consumer"), "tests.bench.peers.huey_app.huey", "-w", "8", "-k", "thread", "-q"),),
    ),
    Peer(
        "rq",
        "RQ, 2 workers that do not fork",
        "rq_app",
        2000,
        ((_bin("rq"), "worker-pool", "bench", "-n", "2", "-w", "rq.worker.SimpleWorker", "-q"),),
    ),
    Peer(
        "taskiq",
        "Taskiq, 2 processes of 100 tasks, asynchronous",
        "taskiq_app",
        8000,
        ((_bin("taskiq"), "worker", "tests.bench.peers.taskiq_app:broker", "-w", "2", "--max-async-tasks", "100"),),
    ),
    Peer(
        "procrastinate",
        "Procrastinate, 2 processes of 100 jobs, asynchronous",
        "procrastinate_app",
        4000,
        ((_bin("procrastinate"), "-a", "tests.bench.peers.procrastinate_app.app", "worker", "-c", "100"),) * 2,
        database=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Run:
    per_s: float
    cpu_s_per_1000: float
    peak_mib: float


def measure_peers(ground: Ground, sink: SinkProcess, *, runs: int) -> list[Figure]:
    """Deliveries per second of each; the figures after the rate are CPU seconds for 1,000 deliveries, and memory."""
    figures = []
    for peer in PEERS:
        done = [run_peer(ground, sink, peer) for _ in range(runs)]
        figures += _figures(peer.key, peer.what, done)
    done = [run_raw_client(ground, sink) for _ in range(runs)]
    figures += _figures("raw_client", "the client of Chronos alone, 200 at once", done)
    return [*figures, median("the sink alone", [load_sink(ground, sink) for _ in range(runs)], "/s", key="sink_per_s")]


def _figures(key: str, what: str, done: list[Run]) -> list[Figure]:
    cpu = statistics.median(run.cpu_s_per_1000 for run in done)
    peak = statistics.median(run.peak_mib for run in done)
    return [
        median(what, [run.per_s for run in done], "/s", key=f"deliveries_per_s.{key}"),
        Figure(f"{what}: CPU for 1,000", cpu, "s", key=f"cpu_s_per_1000.{key}"),
        Figure(f"{what}: memory at its most", peak, "MiB", key=f"peak_mib.{key}"),
    ]


def run_peer(ground: Ground, sink: SinkProcess, peer: Peer) -> Run:
    environment = _environment(sink)
    with _schema(ground, peer, environment):
        _enqueue(ground, peer, environment)
        sink.forget()
        workers = [ground.start(peer.key, *argv, **environment) for argv in peer.workers]
        try:
            with Usage([psutil.Process(worker.pid) for worker in workers]) as usage:
                arrived = sink.wait_for(peer.count, most_s=PATIENCE_S)
        finally:
            ground.stop(*workers)
    return Run(arrived.per_s, usage.cpu_s / peer.count * 1000, usage.peak_mib)


RAW_COUNT = 40_000
SINK_COUNT = 400_000


def run_raw_client(ground: Ground, sink: SinkProcess) -> Run:
    sink.forget()
    child = ground.python("raw", "-m", "tests.bench.peers.raw_client", str(RAW_COUNT), **_environment(sink))
    with Usage([psutil.Process(child.pid)]) as usage:
        arrived = sink.wait_for(RAW_COUNT, most_s=PATIENCE_S)
    ground.stop(child)
    return Run(arrived.per_s, usage.cpu_s / RAW_COUNT * 1000, usage.peak_mib)


def load_sink(ground: Ground, sink: SinkProcess) -> float:
    sink.forget()
    _wait(ground.python("load", "-m", "tests.bench.sink_load", sink.url, str(SINK_COUNT)), ground)
    return sink.told().per_s


def _environment(sink: SinkProcess) -> dict[str, str]:
    return {
        "PYTHONPATH": str(ROOT),  # Not every peer's own command looks where it is started.
        "BENCH_URL": sink.url,
        "BENCH_REDIS": os.environ["REDIS_URL"],
        "BENCH_DATABASE": _database("bench_peer"),
    }


def _database(name: str) -> str:
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))


def _enqueue(ground: Ground, peer: Peer, environment: dict[str, str]) -> None:
    arguments = ("-m", "tests.bench.peers.enqueue", peer.module, str(peer.count))
    _wait(ground.python("enqueue", *arguments, **environment), ground)


def _wait(child: Child, ground: Ground) -> None:
    if child.popen.wait(PATIENCE_S) != 0:
        raise RuntimeError(f"{child.spec.name} failed:\n{child.spec.log.read_text(encoding='utf-8')[-2000:]}")
    ground.stop(child)


@contextmanager
def _schema(ground: Ground, peer: Peer, environment: dict[str, str]) -> Iterator[None]:
    """A database of its own for a peer that needs one."""
    if not peer.database:
        yield
        return
    with psycopg.connect(_database("postgres"), autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS bench_peer WITH (FORCE)")
        db.execute("CREATE DATABASE bench_peer")
    _wait(ground.python("prepare", "-m", "tests.bench.peers.enqueue", peer.module, **environment), ground)
    yield
