"""The stack on one machine: servers, migrations, first workspace, and the site's processes under one supervisor.

Start: take the folder's lock, stop what a killed run left, start the servers whose URL the environment does not give,
migrate, seed, start the site. Stop: the site first, then the servers. Whatever happened before, `stop` leaves no
process.
"""

import json
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

from . import site
from .accounts import make_home
from .console import Console
from .homes import HomeLock, folder_storage, keep_ports, kept_ports, kept_secrets
from .processes import Child, Spec, StartError, free_port, port_is_free, stop_children, stop_recorded, tail
from .servers import Kafka, Mongo, Postgres, Server, Valkey, start_server
from .supervisor import Supervisor, describe_end

SECRETS = ("django_secret_key", "postgres_password", "valkey_password", "admin_password")
ADMIN = "admin"
WORKSPACE = "default"
READY_S = 90.0
STEP_TIMEOUT_S = 300.0

WEB = "web"
FLOWER = "flower"


def _metrics_of(process: site.SiteProcess) -> str:
    """What ports.json calls the port of its metrics; the web process shows them on its own."""
    return f"metrics-{process.name}"


@dataclass(frozen=True, slots=True)
class Started:
    """What a person or the demo needs of a running stack."""

    url: str


class Stack:
    """Use: `start()`, `watch()`, and `stop()` in a `finally`. A signal handler may set `stopping` at any time."""

    def __init__(
        self,
        *,
        home: Path,
        environment: Mapping[str, str],
        console: Console,
        port: int | None,
        stopping: threading.Event,
    ) -> None:
        """`environment`: what the children get, and where the URLs of servers that exist already are looked up.
        `port`: the web's; None takes the last run's, or any that is free."""
        self.home = make_home(home)
        self._environment = {name: value for name, value in environment.items() if name != "DJANGO_SETTINGS_MODULE"}
        self._console = console
        self._port = port
        self._stopping = stopping
        self.api_key: str | None = None
        """The first workspace's key in plain, after the start that made the workspace; kept nowhere else."""
        self._lock: HomeLock | None = None
        self._run = self.home / "run"
        self._logs = self.home / "logs"
        self.supervisor = Supervisor(run_folder=self._run, console=console, stopping=stopping)

    @property
    def held(self) -> bool:
        """Whether this stack has its folder, so that there is something to stop."""
        return self._lock is not None

    def start(self) -> Started:
        """Raises AlreadyRunning, or StartError with a sentence; call `stop` in either case."""
        self._lock = HomeLock(self.home)
        self._run.mkdir(exist_ok=True)
        self._logs.mkdir(exist_ok=True)
        left = stop_recorded(self._run)
        if left:
            self._console.say("stack", f"stopped what an earlier run left: {', '.join(left)}")
        self._check_settings()
        secrets = kept_secrets(self.home, SECRETS)
        ports = self._choose_ports()
        environment = site.site_environment(
            self._environment,
            **self._start_servers(secrets, ports),
            STORAGE_URL=self._environment.get("STORAGE_URL") or folder_storage(self.home),
            DJANGO_SECRET_KEY=self._environment.get("DJANGO_SECRET_KEY") or secrets["django_secret_key"],
            DJANGO_SETTINGS_MODULE="chronos_site.settings.base",
        )
        keep_ports(self.home, ports)
        self._console.say("stack", "migrating the database")
        self._run_step("migrate", site.manage("migrate", "--no-input", "--verbosity", "1"), environment)
        self.api_key = self._seed(environment, secrets["admin_password"])
        self._start_site(environment, ports, secrets["admin_password"])
        return Started(url=f"http://127.0.0.1:{ports['web']}")

    def _check_settings(self) -> None:
        """A setting that cannot be read is told before anything starts. Raises StartError with its sentence."""
        stand_ins = {
            "DJANGO_SECRET_KEY": "x",
            "DATABASE_URL": "postgresql://x:x@127.0.0.1:1/x",
            "REDIS_URL": "redis://127.0.0.1:1/0",
        }
        read = subprocess.run(  # noqa: S603 - our own interpreter and module
            site.python("-c", "import chronos_site.settings.base"),
            env={**stand_ins, **self._environment},
            cwd=site.ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if read.returncode:
            told = read.stderr.strip().splitlines()[-1:] or ["The settings cannot be read."]
            raise StartError(told[0].removeprefix("django.core.exceptions.ImproperlyConfigured: "))

    def watch(self) -> None:
        self.supervisor.watch()

    def stop(self) -> list[str]:
        """Safe to repeat. Answers the names of processes that had to be killed."""
        killed = self.supervisor.stop()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        return killed

    def _choose_ports(self) -> dict[str, int]:
        last = kept_ports(self.home)
        ports = {}
        shown = [_metrics_of(process) for process in site.one_machine(port=0) if process.name != WEB]
        for name in (Postgres.name, Valkey.name, Mongo.name, Kafka.name, WEB, FLOWER, *shown):
            port = last.get(name)
            ports[name] = port if port is not None and port_is_free(port) else free_port()
        if self._port is not None:
            if not port_is_free(self._port):
                raise StartError(
                    f"port {self._port} is taken. Set PORT to another, or leave it unset for any free one."
                )
            ports["web"] = self._port
        return ports

    def _start_servers(self, secrets: Mapping[str, str], ports: dict[str, int]) -> dict[str, str]:
        """The URLs of all servers, by variable; `ports` is corrected where a server had to take another."""
        home, environment = self.home, self._environment
        makers: tuple[tuple[type[Postgres | Valkey | Mongo | Kafka], dict[str, Any]], ...] = (
            (Postgres, {"password": secrets["postgres_password"], "durable": True}),
            (Valkey, {"password": secrets["valkey_password"]}),
            (Mongo, {}),
            (Kafka, {}),
        )
        urls: dict[str, str] = {}
        for make, options in makers:
            given = environment.get(make.variable)
            if given:
                self._console.say(make.name, f"not started: {make.variable} is set")
                urls[make.variable] = given
                del ports[make.name]
                continue
            server: Server = make(home=home, port=ports[make.name], environment=environment, **options)
            self.supervisor.adopt(start_server(server, self.supervisor.launch, self._stopping))
            self._console.say(make.name, f"ready on 127.0.0.1:{server.port}")
            ports[make.name] = server.port
            urls[make.variable] = server.url
        return urls

    def _run_step(self, name: str, argv: tuple[str, ...], environment: Mapping[str, str]) -> None:
        """A command that must end well before the next step."""
        child = self.supervisor.launch(self._spec(site.SiteProcess(name, argv, grace_s=20), environment))
        self._await_step(child)

    def _await_step(self, child: Child) -> None:
        waited = 0.0
        while child.running and waited < STEP_TIMEOUT_S and not self._stopping.wait(0.1):
            waited += 0.1
        if child.running:
            stop_children([child])
            what = "was asked to stop" if self._stopping.is_set() else f"took more than {STEP_TIMEOUT_S:g} s"
            raise StartError(f"{child.spec.name} {what}")
        child.forget()
        if child.popen.returncode:
            end = describe_end(child.popen.returncode)
            raise StartError(f"{child.spec.name} {end}. Log: {child.spec.log}\n{tail(child.spec.log)}")

    def _seed(self, environment: Mapping[str, str], admin_password: str) -> str | None:
        """The superuser and the first workspace. The key in the command's output goes into no log."""
        argv = site.manage("seed_stack", "--workspace", WORKSPACE, "--admin", ADMIN)
        spec = self._spec(
            site.SiteProcess("seed", argv, grace_s=20), {**environment, "DJANGO_SUPERUSER_PASSWORD": admin_password}
        )
        child = Child(spec, self._run, output=PIPE)
        assert child.popen.stdout is not None  # noqa: S101 - it was started with a pipe
        self._await_step_with_output(child)
        with child.popen.stdout as output:
            lines = output.read().decode("utf-8", "replace").splitlines()
        answers = [line.removeprefix("seeded ") for line in lines if line.startswith("seeded ")]
        if child.popen.returncode or not answers:
            raise StartError("The first workspace could not be made:\n" + "\n".join(lines[-15:]))
        api_key: str | None = json.loads(answers[-1])["api_key"]
        return api_key

    def _await_step_with_output(self, child: Child) -> None:
        """Its output is a few lines and fits into the pipe."""
        while child.running and not self._stopping.wait(0.1):
            pass
        if child.running:
            stop_children([child])
            raise StartError(f"{child.spec.name} was asked to stop")
        child.forget()

    def _start_site(self, environment: Mapping[str, str], ports: Mapping[str, int], admin_password: str) -> None:
        port = ports[WEB]
        environment = {**environment, "CHRONOS_FLOWER_URL": f"http://127.0.0.1:{ports[FLOWER]}/"}
        login = {"FLOWER_BASIC_AUTH": f"{ADMIN}:{admin_password}"}
        self.supervisor.add(self._spec(site.flower(port=ports[FLOWER]), {**environment, **login}), ready_text="")
        for process in site.one_machine(port=port):
            shown = {} if process.name == WEB else {"CHRONOS_METRICS_PORT": str(ports[_metrics_of(process)])}
            self.supervisor.add(self._spec(process, {**environment, **shown}), ready_text=process.ready_text)
        self._console.say("stack", "web, two beats, workers and the reader of events are starting")
        late = self.supervisor.wait_until_ready(READY_S)
        if self._stopping.is_set():
            raise StartError("asked to stop while starting")
        if late:
            raise StartError(f"not ready: {', '.join(late)}. Logs: {self._logs}")
        self._await_web(f"http://127.0.0.1:{port}/healthz")

    def _await_web(self, url: str) -> None:
        waited = 0.0
        while waited < READY_S and not self._stopping.is_set():
            try:
                with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own address
                    return
            except (urllib.error.URLError, OSError):
                self.supervisor.look()
                self._stopping.wait(0.2)
                waited += 0.2
        raise StartError(f"the web process does not answer at {url}. Log: {self._logs / 'web.log'}")

    def _spec(self, process: site.SiteProcess, environment: Mapping[str, str]) -> Spec:
        return Spec(
            name=process.name,
            argv=process.argv,
            environment=environment,
            folder=site.ROOT,
            log=self._logs / f"{process.name}.log",
            rank=1,
            grace_s=process.grace_s,
        )
