"""Which account PostgreSQL runs as, and where that account can reach its files.

PostgreSQL refuses to run as root. It then runs as an account that exists already; nothing is added to the machine, and
no folder that is not our own has its mode changed. Where the stack's folder is closed to that account (a home of
mode 700 above it, say), PostgreSQL gets a folder of its own elsewhere, and a note in the stack's folder says where.
"""

import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

_ACCOUNTS = ("postgres", "nobody")
_ELSEWHERE = (Path("/var/lib"), Path("/var/tmp"), Path("/tmp"))  # noqa: S108 - folders of mkdtemp, mode 700 when made


@dataclass(frozen=True, slots=True)
class Account:
    """An existing, unprivileged account of the machine."""

    name: str
    uid: int
    gid: int

    def may_enter(self, folder: Path) -> bool:
        """Whether the account can reach what lies in `folder` (the right to enter it and every folder above)."""
        resolved = folder.resolve()
        return all(self._may_pass(part.stat()) for part in (resolved, *resolved.parents))

    def _may_pass(self, found: os.stat_result) -> bool:
        if found.st_uid == self.uid:
            return bool(found.st_mode & stat.S_IXUSR)
        if found.st_gid == self.gid:
            return bool(found.st_mode & stat.S_IXGRP)
        return bool(found.st_mode & stat.S_IXOTH)


def server_account() -> Account | None:
    """Whom PostgreSQL must run as: None for "as we are".

    Raises RuntimeError as root on a machine that has no such account.
    """
    if os.geteuid() != 0:
        return None
    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise RuntimeError(
        f"PostgreSQL does not run as root, and this machine has none of the accounts {', '.join(_ACCOUNTS)}. "
        "Run this as an ordinary user."
    )


def make_home(home: Path) -> Path:
    """The stack's folder, made where it is missing. Only a folder made here is opened for passing through."""
    if not home.is_dir():
        home.mkdir(parents=True)
        home.chmod(0o711)
    return home.resolve()


def make_temporary_home(prefix: str) -> Path:
    """A new folder for a stack that is thrown away, in a place that the server's account can reach."""
    account = server_account()
    for base in (Path(tempfile.gettempdir()), *_ELSEWHERE):
        if base.is_dir() and os.access(base, os.W_OK | os.X_OK) and (account is None or account.may_enter(base)):
            home = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
            home.chmod(0o711)
            return home.resolve()
    raise RuntimeError("No temporary folder can be written. Set TMPDIR to one that can.")


def postgres_place(home: Path, account: Account | None) -> Path:
    """The folder for PostgreSQL's files: below `home`, or elsewhere where `home` is closed to the account."""
    place = home / "postgres"
    if account is None or account.may_enter(home):
        place.mkdir(exist_ok=True)
        if account is not None:
            place.chmod(0o711)
        return place
    note = home / "postgres.place"
    if note.is_file():
        return Path(note.read_text(encoding="utf-8").strip())
    for base in _ELSEWHERE:
        if base.is_dir() and os.access(base, os.W_OK | os.X_OK) and account.may_enter(base):
            place = Path(tempfile.mkdtemp(prefix="chronos-postgres-", dir=base))
            place.chmod(0o711)
            note.write_text(f"{place}\n", encoding="utf-8")
            return place
    raise RuntimeError(f"{account.name} can reach neither {home} nor a folder of this machine for PostgreSQL's files.")


def remove_home(home: Path) -> None:
    """Remove a temporary stack's folder, and PostgreSQL's elsewhere."""
    note = home / "postgres.place"
    if note.is_file():
        shutil.rmtree(note.read_text(encoding="utf-8").strip(), ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)
