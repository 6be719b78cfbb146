"""Values of secrets, read where they are kept, right before they are used, and remembered in memory for seconds.

Called by the dispatch engine, on threads: a store may be slow. A value lives in this process's memory only; no error
text holds one. Whoever dies half-way has changed nothing. A rotated secret is seen once the remembered value is old.
"""

import logging
import threading
import time
from collections import OrderedDict
from typing import ClassVar, Protocol

from django.conf import settings

from chronos_site.infra import secret_providers
from chronos_site.infra.references import Reference

log = logging.getLogger(__name__)

MOST = 2048
"""Most values kept; the one not used for the longest time goes first."""
FAILURE_TTL_S = 2.0
"""For so long a failure is answered again without another look."""


class SecretError(Exception):
    """No value; the text is a sentence for a person and holds none. `code` is the error of the delivery."""

    code: ClassVar = "secret_unavailable"


class SecretUnavailable(SecretError):  # noqa: N818 - a state of affairs
    """The store could not be asked. It may answer later."""


class SecretMissing(SecretError):  # noqa: N818 - as its siblings
    """The store has no such secret. Somebody may create it."""

    code: ClassVar = "secret_missing"


class SecretRefused(SecretError):  # noqa: N818 - as its siblings
    """There is something that cannot or may not be used. Trying again does not help."""

    code: ClassVar = "secret_refused"


class Provider(Protocol):
    def read(self, reference: Reference) -> bytes | None:
        """The value, None where there is none. Raises OSError or `secret_providers.Unusable`."""


class SecretStore:
    """Thread-safe. One store per process."""

    def __init__(self, provider: Provider, *, ttl_s: float) -> None:
        self._provider = provider
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._known: OrderedDict[Reference, tuple[float, str | SecretError]] = OrderedDict()

    def peek(self, reference: Reference) -> str | None:
        """The remembered value; None where one has to look. Never blocks. Raises the remembered SecretError."""
        with self._lock:
            until, found = self._known.get(reference, (0.0, ""))
            if until <= time.monotonic():
                return None
            self._known.move_to_end(reference)
        if isinstance(found, SecretError):
            raise type(found)(str(found))
        return found

    def resolve(self, reference: Reference) -> str:
        """The value, remembered or read now; may block for seconds. Raises SecretError."""
        remembered = self.peek(reference)
        if remembered is not None:
            return remembered
        found: str | SecretError
        try:
            found = self._read(reference)
        except SecretError as error:
            found = error
        ttl_s = FAILURE_TTL_S if isinstance(found, SecretError) else self._ttl_s
        with self._lock:
            self._known[reference] = (time.monotonic() + ttl_s, found)
            self._known.move_to_end(reference)
            while len(self._known) > MOST:
                self._known.popitem(last=False)
        if isinstance(found, SecretError):
            raise found
        return found

    def _read(self, reference: Reference) -> str:
        try:
            raw = self._provider.read(reference)
        except secret_providers.Unusable as error:
            raise SecretRefused(f"{reference} cannot be used: {error}.") from None
        except OSError as error:
            log.warning(
                "secret_unavailable",
                extra={"action": "resolve", "reference": str(reference), "error": type(error).__name__},
            )
            raise SecretUnavailable(f"{reference} could not be read: {type(error).__name__}.") from None
        if raw is None:
            raise SecretMissing(f"There is no {reference}. Create it, or correct the reference.")
        return _text(raw, reference)


def _text(raw: bytes, reference: Reference) -> str:
    """One line end at the end belongs to the file, not to the secret: `echo` and editors put it there."""
    if len(raw) > secret_providers.LARGEST:
        raise SecretRefused(f"{reference} cannot be used: it is larger than {secret_providers.LARGEST} bytes.")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise SecretRefused(f"{reference} cannot be used: it is not UTF-8 text.") from None
    text = text.removesuffix("\r\n" if text.endswith("\r\n") else "\n")
    if not text:
        raise SecretRefused(f"{reference} cannot be used: it is empty.")
    return text


def build_store() -> SecretStore:
    """By the settings."""
    return SecretStore(_provider(), ttl_s=settings.CHRONOS_SECRET_TTL_S)


def _provider() -> Provider:
    match settings.CHRONOS_SECRET_PROVIDER:
        case "mounted":
            return secret_providers.Mounted(str(settings.CHRONOS_SECRETS_DIR))
        case "kubernetes":
            return secret_providers.Kubernetes(
                settings.CHRONOS_KUBERNETES_URL, folder=settings.CHRONOS_KUBERNETES_ACCOUNT_DIR
            )
        case _:
            return secret_providers.Environment(settings.CHRONOS_SECRETS_FROM_ENVIRONMENT)
