"""A stack's folder: held by one process at a time, by a file lock that ends with the process however it ends."""

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import IO, Any

from .accounts import remove_home
from .processes import stop_recorded


class AlreadyRunning(RuntimeError):  # noqa: N818 - a state, told to the user as a sentence
    """Another process holds the folder; the text says which."""


class HomeLock:
    """The hold on a stack's folder. Children do not inherit it."""

    def __init__(self, home: Path) -> None:
        """Take it. Raises AlreadyRunning at once where another process has it."""
        path = home / "lock"
        path.touch(mode=0o600)
        self._handle: IO[str] = path.open("r+", encoding="utf-8")
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._handle.read().strip()
            self._handle.close()
            raise AlreadyRunning(f"pid {holder}" if holder else "its pid is not written yet") from None
        self._handle.truncate(0)
        self._handle.write(f"{os.getpid()}\n")
        self._handle.flush()

    def release(self) -> None:
        self._handle.close()


def stop_leftovers(new_home: Path, prefix: str) -> list[str]:
    """Stop and remove what killed runs left in temporary folders beside `new_home`. Answers the processes' names."""
    stopped: list[str] = []
    for home in sorted(new_home.parent.glob(f"{prefix}*")):
        if home == new_home or home.is_symlink() or not home.is_dir() or home.stat().st_uid != os.geteuid():
            continue
        if not (home / "lock").is_file():
            continue
        try:
            lock = HomeLock(home)
        except AlreadyRunning:
            continue
        try:
            stopped += stop_recorded(home / "run")
            remove_home(home)
        finally:
            lock.release()
    return stopped


def kept_secrets(home: Path, names: tuple[str, ...]) -> dict[str, str]:
    """The stack's secrets by name, made at the first start and kept in a file that only we can read."""
    path = home / "secrets.json"
    found = _read_json(path)
    known = {name: str(found.get(name) or secrets.token_urlsafe(32)) for name in names}
    if known != found:
        _write_private(path, known)
    return known


def folder_storage(home: Path) -> str:
    """The URL of the folder that a stack keeps its objects in, made where it is not there."""
    folder = home.resolve() / "objects"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder.as_uri()


def kept_ports(home: Path) -> dict[str, int]:
    """The ports of the last run, by process."""
    return {name: port for name, port in _read_json(home / "ports.json").items() if isinstance(port, int)}


def keep_ports(home: Path, ports: dict[str, int]) -> None:
    _write_private(home / "ports.json", ports)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_private(path: Path, value: object) -> None:
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)
