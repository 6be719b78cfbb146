"""A multipart upload on its way into the object storage: piece by piece, never whole in memory or on a disk of ours."""

import hashlib
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.files.uploadhandler import FileUploadHandler, SkipFile
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request

from bulk.services import TooLarge, discard, object_name
from chronos_site.api.problems import FieldProblem, Problem
from chronos_site.infra import storage
from chronos_site.infra.ids import new_id

FILE = "file"
PIECE = 256 * 1024


@dataclass(slots=True)
class StoredFile:
    """What the form's file has become: an object under the id of a job to be."""

    job_id: UUID
    object_name: str
    file_name: str
    size: int
    sha256: str


class StoringHandler(FileUploadHandler):
    """Writes the field `file` into the storage. `abandon` removes it again, however far it has come."""

    chunk_size = PIECE

    def __init__(self, workspace_id: UUID) -> None:
        super().__init__()
        self.stored: StoredFile | None = None
        self._job_id = new_id()
        self._name = object_name(workspace_id, self._job_id)
        self._writer: storage.ObjectWriter | None = None
        self._digest = hashlib.sha256()
        self._size = 0

    def new_file(self, field_name: str, file_name: str, *args: Any, **kwargs: Any) -> None:
        super().new_file(field_name, file_name, *args, **kwargs)
        if field_name != FILE:
            raise SkipFile
        if self._writer is not None or self.stored is not None:
            raise Problem(
                422, "invalid", "Send one file.", errors=[FieldProblem("/file", "repeated", "It is given twice.")]
            )
        self._writer = storage.open_writer(self._name)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        if self._writer is None:
            return
        self._size += len(raw_data)
        if self._size > settings.CHRONOS_BULK_MAX_BYTES:
            raise TooLarge
        self._digest.update(raw_data)
        self._writer.write(raw_data)

    def file_complete(self, file_size: int) -> Any:
        if self._writer is None:
            return None
        self._writer.commit()
        self._writer = None
        self.stored = StoredFile(
            self._job_id, self._name, (self.file_name or "")[:255], self._size, self._digest.hexdigest()
        )
        return self.stored

    def abandon(self) -> None:
        """Leave nothing of it. Safe to repeat."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self.stored is not None:
            discard(self._name)
            self.stored = None


class UploadParser(MultiPartParser):
    """Form fields as one flat object, the stored file among them. A field that is given twice is refused."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        found = super().parse(stream, media_type, parser_context)
        twice = [name for name in found.data if len(found.data.getlist(name)) > 1]
        if twice:
            errors = [FieldProblem(f"/{name}", "repeated", "It is given twice.") for name in twice]
            raise Problem(422, "invalid", f"{twice[0]} is given twice.", errors=errors)
        return {**found.data.dict(), **found.files.dict()}


def take_uploads(request: Request, handler: StoringHandler) -> None:
    """Let the handler have the files of a request whose body has not been read yet."""
    request._request.upload_handlers = [handler]
    handler.request = request._request
