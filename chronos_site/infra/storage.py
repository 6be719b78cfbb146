"""Object storage: whole files under names, in a folder or in an S3 bucket, as `STORAGE_URL` says.

An object is there only when it is complete: whoever opens a name reads the whole of what was committed last, and a
write that ends early leaves nothing. Writing and reading go in pieces, in memory of a few megabytes whatever the size.
Where a process dies in the middle of a write, no object appears; what it had stored so far stays out of sight (in a
bucket as an upload that was not completed, in a folder as a hidden file that ends in `.part`) until `drop_unfinished`.

The backends are `storage_folder` and `storage_s3`; Django loads the one that `STORAGES["objects"]` names.
"""

import io
import logging
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Protocol

from django.core.files.storage import InvalidStorageError, storages

log = logging.getLogger(__name__)

ALIAS = "objects"
"""The name among Django's storages. The default one stays what Django makes it."""

LONGEST_NAME = 500
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


class StorageError(Exception):
    """The storage did not do what was asked; the text says what, where and what to do, and holds no secret."""


class ObjectMissing(StorageError):  # noqa: N818 - a state, not a failure of the storage
    """No object has that name."""


class ObjectWriter(io.BufferedIOBase):
    """Writes one object: `write` as often as needed, then `commit`. In a `with` block the normal end commits.

    An exception in the block, or `close` without `commit`, gives the object up and leaves nothing; an older object of
    that name stays as it was. Where `commit` raises, the object is there whole or not at all.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._ended = self._failed = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Take all of it. Raises StorageError, after which the object is given up."""
        if self._ended:
            raise StorageError(f"the object {self.name} takes no more data: its writing has ended")
        view = memoryview(data).cast("B")
        try:
            self._append(view)
        except BaseException:
            self._failed = True
            self.close()
            raise
        return len(view)

    def commit(self) -> None:
        """Let the object appear, with all that was written. Raises StorageError; nothing new is there then."""
        if self._ended:
            raise StorageError(f"the object {self.name} cannot be committed: its writing has ended")
        try:
            self._finish()
        except BaseException:
            self.close()
            raise
        self._ended = True
        self.close()

    def close(self) -> None:
        """Without `commit` before: give the object up. Safe to repeat, raises nothing."""
        if not self._ended:
            self._ended = True
            try:
                self._discard()
            except StorageError as error:
                log.warning("object_not_discarded", extra={"action": "storage", "error": str(error)})
        super().close()

    def __exit__(self, kind: type[BaseException] | None, *_rest: Any) -> None:
        if kind is None and (self._failed or not self._ended):
            self.commit()
        self.close()

    def _append(self, data: memoryview) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    def _discard(self) -> None:
        raise NotImplementedError


class Objects(Protocol):
    """What a backend does beside what Django asks of it. Names are checked before they come here."""

    def writer(self, name: str) -> ObjectWriter: ...

    def reader(self, name: str, offset: int) -> io.BufferedReader: ...

    def remove(self, name: str) -> None: ...

    def length(self, name: str) -> int | None: ...

    def old_names(self, prefix: str, before: datetime) -> Iterator[str]: ...

    def drop_unfinished(self, prefix: str, before: datetime) -> int: ...


def open_writer(name: str) -> ObjectWriter:
    """A new object, or a new content of an old one. Raises StorageError where the name or the storage is wrong."""
    return _objects().writer(_checked(name))


def open_reader(name: str, *, offset: int = 0) -> io.BufferedReader:
    """The object's bytes from `offset` on, none where it is beyond the end. Close it after use.

    Raises ObjectMissing or StorageError, here and while it is read: an object that is replaced meanwhile is read on as
    it was from a folder, and ends in a StorageError from a bucket; never a mixture.
    """
    if offset < 0:
        raise StorageError(f"the object {name} cannot be read from {offset}: an offset is 0 or more")
    return _objects().reader(_checked(name), offset)


def delete(name: str) -> None:
    """Afterwards no object has that name; it is no error that none had. Raises StorageError."""
    _objects().remove(_checked(name))


def size(name: str) -> int | None:
    """Its bytes, or None where there is no such object. Raises StorageError."""
    return _objects().length(_checked(name))


def old_names(prefix: str, *, before: datetime) -> Iterator[str]:
    """The names under `prefix/` of objects that were last written before then. Raises StorageError on the way too."""
    return _objects().old_names(_checked(prefix), before)


def drop_unfinished(prefix: str, *, before: datetime) -> int:
    """Remove what writers left under `prefix/` that died before then. Returns how many. Raises StorageError."""
    return _objects().drop_unfinished(_checked(prefix), before)


def _objects() -> Objects:
    try:
        backend: Any = storages[ALIAS]
    except InvalidStorageError:
        if ALIAS in storages.backends:
            raise
        raise StorageError("no object storage is set up here; set STORAGE_URL") from None
    found: Objects = backend
    return found


def _checked(name: str) -> str:
    """Names are made of ids: such a one cannot leave the folder, nor be hidden, nor be a file that is being written."""
    if len(name) > LONGEST_NAME or not all(_PART.fullmatch(part) for part in name.split("/")):
        raise StorageError(
            f"{name[:80]!r} is no name of an object; it has letters, digits, '.', '_' and '-', slashes between its "
            f"parts, no part that begins with '.', and at most {LONGEST_NAME} characters"
        )
    return name
