"""Objects in a folder: written under a hidden name beside the final one, synced to the disk, then renamed.

Several machines can share such a folder where it is one file system that they all mount.
"""

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.files.storage import FileSystemStorage

from .storage import ObjectMissing, ObjectWriter, StorageError

_READ_BYTES = 256 * 1024
_TRIES = 5


class FolderObjects(FileSystemStorage):
    """Django's own storage for the names' way into the folder; the reading and writing in pieces is here."""

    def writer(self, name: str) -> ObjectWriter:
        return _FolderWriter(name, self._root(), Path(self.path(name)))

    def reader(self, name: str, offset: int) -> io.BufferedReader:
        root = self._root()
        with _told(name, "read"):
            try:
                raw = _FolderReader(name, Path(self.path(name)))
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise ObjectMissing(f"no object {name} is in the folder {root}") from None
            raw.seek(offset)
            return io.BufferedReader(raw, _READ_BYTES)

    def remove(self, name: str) -> None:
        root, path = self._root(), Path(self.path(name))
        with _told(name, "deleted"):
            if not path.is_dir():
                path.unlink(missing_ok=True)
            _remove_empty(path.parent, root)

    def length(self, name: str) -> int | None:
        self._root()
        path = Path(self.path(name))
        with _told(name, "looked for"):
            try:
                return path.stat().st_size if not path.is_dir() else None
            except (FileNotFoundError, NotADirectoryError):
                return None

    def old_names(self, prefix: str, before: datetime) -> Iterator[str]:
        root = self._root()
        with _told(prefix, "listed"):
            for path in self._files(prefix, before):
                if not path.name.startswith("."):
                    yield path.relative_to(root).as_posix()

    def drop_unfinished(self, prefix: str, before: datetime) -> int:
        root, dropped = self._root(), 0
        with _told(prefix, "looked through"):
            for path in list(self._files(prefix, before)):
                if path.name.startswith(".") and path.suffix == ".part":
                    path.unlink(missing_ok=True)
                    _remove_empty(path.parent, root)
                    dropped += 1
        return dropped

    def _files(self, prefix: str, before: datetime) -> Iterator[Path]:
        for folder, _folders, names in os.walk(self.path(prefix)):
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime < before.timestamp():
                        yield path

    def _root(self) -> Path:
        """Never made here: a folder that is not there is a wrong name or a disk that is not mounted."""
        root = Path(self.location)
        if not root.is_dir():
            raise StorageError(f"{root} is no folder; make it, mount it, or correct STORAGE_URL")
        return root


class _FolderWriter(ObjectWriter):
    def __init__(self, name: str, root: Path, path: Path) -> None:
        super().__init__(name)
        self._root, self._path = root, path
        self._part: Path | None = None
        self._file: io.FileIO | None = None
        try:
            with _told(name, "written"):
                self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        part = self._path.with_name(f".{self._path.name[:100]}.{secrets.token_hex(8)}.part")
        for left in reversed(range(_TRIES)):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._file = io.FileIO(part, "xb")
            except FileNotFoundError:
                # Somebody has deleted the last other object in it, and with it the empty folder.
                if not left:
                    raise
            else:
                self._part = part
                return

    def _append(self, data: memoryview) -> None:
        assert self._file is not None  # noqa: S101 - open as long as the writer is
        with _told(self.name, "written"):
            while data:
                data = data[self._file.write(data) :]

    def _finish(self) -> None:
        assert self._file is not None  # noqa: S101
        assert self._part is not None  # noqa: S101
        with _told(self.name, "written"):
            os.fsync(self._file.fileno())
            self._file.close()
            self._part.replace(self._path)
            # The name must outlive a power cut too, and so must the folders that were made for it.
            for folder in self._path.parents:
                _sync(folder)
                if folder == self._root:
                    break

    def _discard(self) -> None:
        with _told(self.name, "given up"):
            if self._file is not None:
                self._file.close()
            if self._part is not None:
                self._part.unlink(missing_ok=True)
            _remove_empty(self._path.parent, self._root)


class _FolderReader(io.FileIO):
    """A file whose errors are the storage's."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(path, "rb")
        self._object = name

    def readinto(self, buffer: Any) -> int:
        with _told(self._object, "read"):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with _told(self._object, "read"):
            return super().readall()


def _sync(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return  # the object was deleted at once
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_empty(folder: Path, root: Path) -> None:
    """The folders of a name go with the last object in them."""
    while folder != root and root in folder.parents:
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return
        folder = folder.parent


@contextlib.contextmanager
def _told(name: str, what: str) -> Iterator[None]:
    """The system's errors as a StorageError."""
    try:
        yield
    except OSError as error:
        where = "the folder of STORAGE_URL"
        why = error.strerror or type(error).__name__
        raise StorageError(f"the object {name} could not be {what} in {where}: {why}") from error
