"""Objects in a bucket of S3 or a server that speaks its protocol.

Written as a multipart upload, part by part, or as one request where it is small; read by ranges, each taken whole, so
that a slow reader holds no connection. Every range asks for the very object that the first one was of.
"""

import contextlib
import io
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
)
from botocore.exceptions import (
    ConnectionError as EndpointError,
)
from storages.backends.s3 import S3Storage
from urllib3.exceptions import HTTPError

from .storage import ObjectMissing, ObjectWriter, StorageError

PART_BYTES = 8 * 1024 * 1024
"""Of a write's part and of a read's range. S3 takes 10,000 parts: an object has at most 78 GiB."""
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0
ATTEMPTS = 3
"""Of one request, with pauses of about a second between them."""

_NO_ACCESS = {401, 403}
_GONE = {404}
_CHANGED = {412}


class S3Objects(S3Storage):
    """django-storages' backend for the settings, the session and the names; the client is one for all threads."""

    def __init__(self, *, addressing_style: str, **options: Any) -> None:
        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            s3={"addressing_style": addressing_style},
            # Many servers that speak the protocol do not know the newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        # Nothing of another purpose is mixed with the keys that were given; without them boto3 looks for all three.
        super().__init__(client_config=config, security_token=None, session_profile=None, **options)
        self._lock = threading.Lock()
        self._client: Any = None

    @property
    def client(self) -> Any:
        """Making one takes a tenth of a second and some megabytes; a thread of its own does not need its own."""
        with self._lock:
            if self._client is None:
                self._client = self.connection.meta.client
            return self._client

    def key(self, name: str) -> dict[str, str]:
        return {"Bucket": self.bucket_name, "Key": self._normalize_name(name)}

    def writer(self, name: str) -> ObjectWriter:
        with self.told(name, "written"):
            return _S3Writer(name, self)

    def reader(self, name: str, offset: int) -> io.BufferedReader:
        with self.told(name, "read"):
            head = self.client.head_object(**self.key(name))
        return io.BufferedReader(_S3Reader(name, self, offset, head["ContentLength"], head["ETag"]), 64 * 1024)

    def remove(self, name: str) -> None:
        with self.told(name, "deleted"):
            self.client.delete_object(**self.key(name))

    def length(self, name: str) -> int | None:
        try:
            with self.told(name, "looked for"):
                return int(self.client.head_object(**self.key(name))["ContentLength"])
        except ObjectMissing:
            return None

    def old_names(self, prefix: str, before: datetime) -> Iterator[str]:
        begin = self._normalize_name(prefix)
        with self.told(prefix, "listed"):
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket_name, Prefix=f"{begin}/")
            for page in pages:
                for found in page.get("Contents", ()):
                    if found["LastModified"] < before:
                        yield prefix + found["Key"][len(begin) :]

    def drop_unfinished(self, prefix: str, before: datetime) -> int:
        dropped = 0
        with self.told(prefix, "looked through"):
            place = {"Bucket": self.bucket_name, "Prefix": f"{self._normalize_name(prefix)}/"}
            for page in self.client.get_paginator("list_multipart_uploads").paginate(**place):
                for left in page.get("Uploads", ()):
                    if left["Initiated"] < before:
                        upload = {"Key": left["Key"], "UploadId": left["UploadId"]}
                        self.client.abort_multipart_upload(Bucket=self.bucket_name, **upload)
                        dropped += 1
        return dropped

    @contextlib.contextmanager
    def told(self, name: str, what: str) -> Iterator[None]:
        """Its errors as a StorageError. Answers of the server are named by their code, never by their text."""
        begin = f"the object {name} could not be {what} in the bucket {self.bucket_name}"
        try:
            yield
        except ClientError as error:
            raise self._verdict(begin, name, error) from error
        except (NoCredentialsError, CredentialRetrievalError) as error:
            raise StorageError(f"{begin}: there are no keys; set STORAGE_ACCESS_KEY and STORAGE_SECRET_KEY") from error
        except (EndpointError, HTTPClientError, HTTPError, OSError) as error:
            where = self.endpoint_url or "S3"
            raise StorageError(f"{begin}: {where} does not answer ({type(error).__name__})") from error
        except BotoCoreError as error:
            raise StorageError(f"{begin}: {type(error).__name__}; check STORAGE_URL") from error

    def _verdict(self, begin: str, name: str, error: ClientError) -> StorageError:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if code == "NoSuchBucket":
            return StorageError(f"{begin}: there is no such bucket; make it, or correct STORAGE_URL")
        if code == "NoSuchUpload":
            return StorageError(f"{begin}: its upload has ended already")
        if status in _GONE:
            return ObjectMissing(f"no object {name} is in the bucket {self.bucket_name}")
        if status in _NO_ACCESS:
            return StorageError(
                f"{begin}: access is refused ({code}); check STORAGE_ACCESS_KEY, STORAGE_SECRET_KEY and their rights"
            )
        if status in _CHANGED:
            return StorageError(f"{begin}: it was replaced meanwhile; begin again")
        return StorageError(f"{begin}: the server answered {status} ({code})")


class _S3Writer(ObjectWriter):
    """Opens the multipart upload with the first full part, so that a small object costs one request."""

    def __init__(self, name: str, objects: S3Objects) -> None:
        super().__init__(name)
        self._buffer = bytearray()
        self._upload: str | None = None
        self._objects, self._client, self._key = objects, objects.client, objects.key(name)
        self._parts: list[dict[str, Any]] = []

    def _append(self, data: memoryview) -> None:
        while data:
            room = PART_BYTES - len(self._buffer)
            self._buffer += data[:room]
            data = data[room:]
            if len(self._buffer) == PART_BYTES:
                self._send_part()

    def _send_part(self) -> None:
        with self._objects.told(self.name, "written"):
            if self._upload is None:
                self._upload = self._client.create_multipart_upload(**self._key)["UploadId"]
            number = len(self._parts) + 1
            sent = self._client.upload_part(**self._key, UploadId=self._upload, PartNumber=number, Body=self._buffer)
        self._parts.append({"PartNumber": number, "ETag": sent["ETag"]})
        self._buffer = bytearray()

    def _finish(self) -> None:
        if self._upload is None:
            with self._objects.told(self.name, "written"):
                self._client.put_object(**self._key, Body=self._buffer)
            return
        if self._buffer:
            self._send_part()
        with self._objects.told(self.name, "written"):
            self._client.complete_multipart_upload(
                **self._key, UploadId=self._upload, MultipartUpload={"Parts": self._parts}
            )

    def _discard(self) -> None:
        self._buffer = bytearray()
        if self._upload is not None:
            with self._objects.told(self.name, "given up"):
                self._client.abort_multipart_upload(**self._key, UploadId=self._upload)


class _S3Reader(io.RawIOBase):
    def __init__(self, name: str, objects: S3Objects, offset: int, length: int, etag: str) -> None:
        super().__init__()
        self._name, self._objects = name, objects
        self._at, self._length, self._etag = offset, length, etag
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ready and self._at < self._length:
            self._fetch()
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _fetch(self) -> None:
        """The next range, whole. One whose body breaks off is asked for again; the client repeats the rest itself."""
        self._ready = memoryview(b"")
        last = min(self._at + PART_BYTES, self._length) - 1
        wanted = {"Range": f"bytes={self._at}-{last}", "IfMatch": self._etag}
        with self._objects.told(self._name, "read"):
            for left in reversed(range(ATTEMPTS)):
                answer = self._objects.client.get_object(**self._objects.key(self._name), **wanted)
                try:
                    with contextlib.closing(answer["Body"]) as body:
                        found = body.read()
                except (BotoCoreError, HTTPError, OSError):
                    if not left:
                        raise
                else:
                    break
        if len(found) != last + 1 - self._at:
            raise StorageError(f"the object {self._name} could not be read: the server sent another range")
        self._at = last + 1
        self._ready = memoryview(found)
