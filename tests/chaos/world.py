"""The world of the chaos runs: real servers and real processes of the site, every link between them through a proxy.

Each group of processes (web, beats, loops, dispatch, workers of bulk jobs) reaches PostgreSQL and Valkey through
proxies of its own, so that one group's link can be cut while the others work. Whatever a scenario does, `heal` brings
everything back.
"""

import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import psycopg
import redis
import requests

from chronos_site.stack import site
from chronos_site.stack.accounts import make_temporary_home, remove_home
from chronos_site.stack.homes import HomeLock, folder_storage, stop_leftovers
from chronos_site.stack.processes import Child, Spec, free_port, stop_children, tail
from chronos_site.stack.servers import Mongo, Postgres, Server, Valkey, start_server
from tests.proxy import Proxy

PREFIX = "chronos-chaos-"
WORKSPACE = "chaos"
LEADER_TTL_S = 10
"""In place of 30 s, so that a run fits into an evening; the retry loop's and the monitor's are three times that."""
STOP_GRACE_S = 8
READY_S = 90.0

GROUP_OF = {
    "web": "web",
    "beat-1": "beat",
    "beat-2": "beat",
    "scheduler": "loops",
    "fanout": "loops",
    "dispatch-1": "dispatch",
    "dispatch-2": "dispatch",
    "bulk-1": "bulk",
    "bulk-2": "bulk",
}
GROUPS = tuple(dict.fromkeys(GROUP_OF.values()))
NEVER_TAKEN = {
    "DATABASE_URL",
    "REDIS_URL",
    "MONGO_URL",
    "STORAGE_URL",
    "DJANGO_SETTINGS_MODULE",
    "CHRONOS_LIVENESS_FILE",
}

Say = Callable[[str], None]


class World:
    """Use as a context manager. Names of processes are the keys of GROUP_OF; of servers: postgres, valkey, mongo."""

    def __init__(self, *, root: Path, say: Say, prepare: Callable[["World"], None] = lambda _world: None) -> None:
        """`root`: the checkout whose code runs. `prepare`: called once the database is migrated."""
        self.root = root
        self.say = say
        self._prepare = prepare
        self.home = make_temporary_home(PREFIX)
        self.api_key = ""
        self._lock = HomeLock(self.home)
        self._run = self.home / "run"
        self._logs = self.home / "logs"
        self._servers: dict[str, Server] = {}
        self._children: dict[str, Child] = {}
        self.proxies: dict[str, Proxy] = {}
        """By `<group>:<server>`."""
        self._frozen: set[str] = set()

    def __enter__(self) -> "World":
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end()

    # --- what a scenario does ----------------------------------------------------------------------------

    def kill(self, *names: str) -> None:
        """SIGKILL, with all that they started."""
        for name in names:
            self._frozen.discard(name)
            self._children[name].kill()

    def stop(self, *names: str) -> None:
        """The polite signal, and the wait for the end."""
        stop_children([self._children[name] for name in names])

    def ask_to_stop(self, name: str) -> None:
        self._children[name].ask_to_stop()

    def start(self, *names: str, wait: bool = True) -> None:
        """Start processes of the site that are down; servers likewise, with the data they had."""
        for name in names:
            if name in self._servers:
                self._children[name] = start_server(
                    self._servers[name], self._launch, threading.Event(), keep_port=True
                )
            else:
                self._children[name] = self._launch(self._spec(name))
        if wait:
            self.wait_until_ready(*names)

    def restart(self, name: str) -> None:
        self.kill(name)
        self.start(name)

    def freeze(self, *names: str) -> None:
        """SIGSTOP to a process and its children."""
        for name in names:
            self._frozen.add(name)
            self._signal(name, signal.SIGSTOP)

    def thaw(self, *names: str) -> None:
        for name in names:
            self._frozen.discard(name)
            self._signal(name, signal.SIGCONT)

    def running(self, name: str) -> bool:
        return self._children[name].running

    def proxy(self, group: str, server: str) -> Proxy:
        return self.proxies[f"{group}:{server}"]

    def forget_valkey(self) -> None:
        """Remove what the stopped Valkey had kept."""
        folder = self.home / "valkey" / "appendonlydir"
        for path in folder.glob("*"):
            path.unlink()

    def heal(self) -> None:
        """Every process runs, every link passes."""
        for name in sorted(self._frozen):
            self.thaw(name)
        for proxy in self.proxies.values():
            proxy.heal()
        down = [name for name in (*self._servers, *GROUP_OF) if not self._children[name].running]
        for name in down:
            self.start(name, wait=name in self._servers)
        self.wait_until_ready(*(name for name in down if name not in self._servers))

    # --- what a scenario asks ----------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._web_port}"

    def database(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection past the proxies; the caller closes it."""
        return psycopg.connect(self._servers["postgres"].url, autocommit=True, connect_timeout=5)

    def valkey(self) -> redis.Redis:
        """A client past the proxies."""
        return redis.Redis.from_url(self._servers["valkey"].url, decode_responses=True, socket_timeout=5)

    def holder(self, lock: str) -> str | None:
        """The token in a leader lock, None where nobody holds it or Valkey is away."""
        try:
            with self.valkey() as client:
                found = client.get(f"chronos:leader:{lock}")
        except redis.RedisError:
            return None
        return None if found is None else str(found)

    def leader(self, lock: str = "scheduler") -> str:
        """Which beat was elected last, by the logs."""
        last: tuple[str, str] | None = None
        for name in ("beat-1", "beat-2"):
            for line in self.log(name).splitlines():
                if "leader_elected" in line and f'"lock": "{lock}"' in line:
                    at = str(json.loads(line)["ts"])
                    last = max(last or (at, name), (at, name))
        if last is None:
            raise RuntimeError(f"nobody was elected for {lock} yet")
        return last[1]

    def log(self, name: str) -> str:
        return self._spec_log(name).read_text(encoding="utf-8", errors="replace")

    def wait_until_ready(self, *names: str) -> None:
        """Workers consume, the web answers, a beat has started. Raises RuntimeError with the end of the log."""
        ends = time.monotonic() + READY_S
        for name in names:
            while not self._is_ready(name):
                if not self._children[name].running or time.monotonic() > ends:
                    raise RuntimeError(f"{name} did not come up:\n{tail(self._spec_log(name), 30)}")
                time.sleep(0.1)

    def _is_ready(self, name: str) -> bool:
        if name in self._servers:
            return self._servers[name].is_ready()
        if name == "web":
            try:
                return requests.get(f"{self.url}/healthz", timeout=2).ok
            except requests.RequestException:
                return False
        since = self._log_begins[name]
        text = "beat_started" if name.startswith("beat") else site.WORKER_READY
        with self._spec_log(name).open("rb") as log:
            log.seek(since)
            return text.encode() in log.read()

    # --- start and end -----------------------------------------------------------------------------------

    def _start(self) -> None:
        stop_leftovers(self.home, PREFIX)
        self._run.mkdir()
        self._logs.mkdir()
        self._log_begins: dict[str, int] = {}
        self._web_port = free_port()
        password = secrets.token_hex(16)
        base = {name: value for name, value in os.environ.items() if name not in NEVER_TAKEN}
        servers: tuple[Server, ...] = (
            Postgres(home=self.home, port=free_port(), password=password, environment=base, durable=True),
            Valkey(home=self.home, port=free_port(), password=password, environment=base),
            Mongo(home=self.home, port=free_port(), environment=base),
        )
        for server in servers:
            self._children[server.name] = start_server(server, self._launch, threading.Event())
            self._servers[server.name] = server
        for group in GROUPS:
            for server in servers:
                self.proxies[f"{group}:{server.name}"] = Proxy("127.0.0.1", server.port).__enter__()
        self._base = {
            **base,
            "DJANGO_SECRET_KEY": secrets.token_urlsafe(48),
            "DJANGO_SETTINGS_MODULE": "chronos_site.settings.base",
            "STORAGE_URL": folder_storage(self.home),
            "CHRONOS_EGRESS_ALLOW": "127.0.0.1/32",
            "CHRONOS_LEADER_TTL": str(LEADER_TTL_S),
            "CHRONOS_STOP_GRACE": str(STOP_GRACE_S),
            "CHRONOS_RATE_LIMIT_PER_KEY": "100000",
            "CHRONOS_RATE_LIMIT_PER_WORKSPACE": "100000",
        }
        self._step("migrate", "migrate", "--no-input", "--verbosity", "0")
        seeded = self._step("seed", "seed_stack", "--workspace", WORKSPACE, "--admin", "chaos")
        line = next(line for line in seeded.splitlines() if line.startswith("seeded "))
        self.api_key = json.loads(line.removeprefix("seeded "))["api_key"]
        self._prepare(self)
        self.start(*GROUP_OF)

    def _end(self) -> None:
        for name in sorted(self._frozen):
            self.thaw(name)
        for name in (*GROUP_OF, *reversed(self._servers)):
            if name in self._children:
                self._children[name].kill()
        for proxy in self.proxies.values():
            proxy.__exit__()
        self._lock.release()
        remove_home(self.home)

    def _launch(self, spec: Spec) -> Child:
        return Child(spec, self._run)

    def _step(self, name: str, *arguments: str) -> str:
        """A management command that must end well. Answers its output."""
        environment = {**self._environment("loops"), "DJANGO_SUPERUSER_PASSWORD": secrets.token_urlsafe(16)}
        spec = Spec(
            name=name,
            argv=site.python("manage.py", *arguments),
            environment=environment,
            folder=self.root,
            log=self._spec_log(name),
            rank=1,
        )
        child = self._launch(spec)
        child.popen.wait(120)
        child.forget()
        if child.popen.returncode:
            raise RuntimeError(f"{name} failed:\n{tail(spec.log, 30)}")
        return spec.log.read_text(encoding="utf-8")

    def _spec(self, name: str) -> Spec:
        log = self._spec_log(name)
        self._log_begins[name] = log.stat().st_size if log.exists() else 0
        process = self._process(name)
        return Spec(
            name=name,
            argv=process.argv,
            environment=site.site_environment(self._environment(GROUP_OF[name])),
            folder=self.root,
            log=log,
            rank=1,
            grace_s=process.grace_s,
        )

    def _process(self, name: str) -> site.SiteProcess:
        if name.startswith("beat"):
            return site.beat(name=name)
        if name.startswith("dispatch"):
            return site.worker(name=name, queues="job-dispatch", concurrency=4, grace_s=STOP_GRACE_S + 10)
        if name.startswith("bulk"):
            return site.worker(name=name, queues="bulk-ingest,bulk-records", concurrency=4, grace_s=STOP_GRACE_S + 10)
        if name == "scheduler":
            return site.worker(name=name, queues="scheduler,maintenance", concurrency=4, grace_s=10)
        if name == "fanout":
            return site.worker(name=name, queues="bucket-triggers", concurrency=2, grace_s=10)
        return site.web(port=self._web_port)

    def _environment(self, group: str) -> Mapping[str, str]:
        urls = {
            server.variable: self.proxies[f"{group}:{server.name}"].through(server.url)
            for server in self._servers.values()
        }
        return {**self._base, **urls}

    def _spec_log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _signal(self, name: str, number: int) -> None:
        child = self._children[name]
        if not child.running:
            return
        process = psutil.Process(child.pid)
        for member in (process, *process.children(recursive=True)):
            member.send_signal(number)
