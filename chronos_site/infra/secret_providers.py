"""Where values of secrets are kept: a mounted folder, the Kubernetes API, or the environment.

Each has `read(reference) -> bytes | None`: the bytes as they are, None where there are none. They raise OSError where
the place cannot be asked, and `Unusable` where there is something that must not be taken. Texts hold no value.
"""

import base64
import binascii
import http.client
import json
import os
import re
import ssl
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from chronos_site.infra.references import Reference

LARGEST = 64 * 1024
"""Bytes of one value."""
LARGEST_ANSWER = 4 * 1024 * 1024
"""Bytes of one answer of the Kubernetes API: a Secret holds up to 1 MiB, in base64, with its metadata."""
PATIENCE_S = 5.0


class Unusable(Exception):  # noqa: N818 - a state of affairs
    """There is something, but not a value to be sent; the text ends a sentence."""


class Mounted:
    """Files `<folder>/<namespace>/<name>/<key>`, as Kubernetes mounts Secrets.

    Symbolic links are followed as far as they stay inside of the namespace's folder: Kubernetes itself swaps a mounted
    Secret by one. A link that leads out of it would hand another namespace's secret to whoever may use this one.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def read(self, reference: Reference) -> bytes | None:
        # Kubernetes may swap the folder between the look and the opening: then it is there at the second look.
        return self._read(reference) or self._read(reference)

    def _read(self, reference: Reference) -> bytes | None:
        home = self._folder.resolve() / reference.namespace
        try:
            path = (home / reference.name / reference.key).resolve(strict=True)
            if not path.is_relative_to(home):
                raise Unusable("it is a link out of its namespace's folder")
            # Not blocking: a pipe would hold up the thread until somebody writes into it.
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except RuntimeError:  # Python 3.11 and 3.12 say so of links in a circle.
            raise Unusable("its links go round in a circle") from None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise Unusable("it is not a file")
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(LARGEST + 1)
        finally:
            os.close(handle)


class Environment:
    """Variables `CHRONOS_SECRET_<NAMESPACE>_<NAME>_<KEY>` in capitals, other characters as `_`. For one machine only.

    Names that differ in such characters alone are the same variable, also across namespaces.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)

    def read(self, reference: Reference) -> bytes | None:
        value = self._variables.get(variable_of(reference))
        return None if value is None else value.encode("utf-8", "surrogateescape")


def variable_of(reference: Reference) -> str:
    parts = "_".join((reference.namespace, reference.name, reference.key))
    return "CHRONOS_SECRET_" + re.sub(r"[^A-Z0-9]", "_", parts.upper())


class Kubernetes:
    """`GET /api/v1/namespaces/{namespace}/secrets/{name}`, as the pod's service account.

    The token's file is read at every call, for Kubernetes changes it every hour. Only the cluster's own CA is trusted;
    proxies of the environment and redirects are not followed.
    """

    def __init__(self, url: str, *, folder: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._folder = Path(folder)

    def read(self, reference: Reference) -> bytes | None:
        status, body = self._get(f"/api/v1/namespaces/{reference.namespace}/secrets/{reference.name}")
        if status == 404:
            return None
        if status != 200:
            raise ConnectionError(f"Kubernetes answered {status}")
        return _value(body, reference.key)

    def _get(self, path: str) -> tuple[int, bytes]:
        ends = time.monotonic() + PATIENCE_S
        token = (self._folder / "token").read_text().strip()
        context = ssl.create_default_context(cafile=str(self._folder / "ca.crt"))
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=PATIENCE_S, context=context)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
            response = connection.getresponse()
            return response.status, _read(response, ends)
        except (http.client.HTTPException, ValueError) as error:
            raise ConnectionError(type(error).__name__) from None
        finally:
            connection.close()


def _read(response: http.client.HTTPResponse, ends: float) -> bytes:
    body = bytearray()
    while chunk := response.read1(64 * 1024):
        body += chunk
        if len(body) > LARGEST_ANSWER or time.monotonic() > ends:
            raise ConnectionError("the answer is too long, or took too long")
    return bytes(body)


def _value(body: bytes, key: str) -> bytes | None:
    try:
        answer: Any = json.loads(body)
        found = (answer.get("data") or {}).get(key)
        return None if found is None else base64.b64decode(found, validate=True)
    except (ValueError, TypeError, AttributeError, binascii.Error):
        raise ConnectionError("the answer is no Secret") from None
