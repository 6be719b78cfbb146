"""Credentials of one attempt: what its references come to, made right before the send and forgotten with it.

The values are in the request that is sent and nowhere else. `scrub` takes them out of whatever comes back, for a
receiver may echo what it was sent, and so may an error.
"""

import asyncio
import base64
import html
import json
import logging
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, quote_plus

from chronos_site.infra.references import Reference, parse_reference, split_value
from chronos_site.infra.secrets import SecretError, SecretRefused, SecretStore, SecretUnavailable
from execution.dispatch import signing
from execution.domain.credentials import HIDDEN, SIGNING_SECRETS, not_allowed, references_of
from execution.domain.outcome import Claim

log = logging.getLogger(__name__)

PATIENCE_S = 8.0
SHORTEST_PIECE = 8
"""Pieces of a secret URL that are shorter are words like `hook`."""
THREADS = 32
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")

Values = Mapping[Reference, str]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Never logged: its text shows nothing."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the target's own, or in their place."""
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    """The delivery is signed with each of them."""
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    """Every form in which a value might come back, the longest first."""
    named: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values by the names that the target's `secrets` give them."""

    def scrub(self, text: str) -> str:
        if not self.secrets:
            return text
        return self.scrub_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def scrub_bytes(self, data: bytes, *, keep: int | None = None) -> bytes:
        """The first `keep` bytes without the secrets, also without one that begins among them and ends behind."""
        ends = len(data) if keep is None else keep
        if not self.secrets:
            return data[:ends]
        parts, place = [], 0
        for found in re.finditer(b"|".join(map(re.escape, self.secrets)), data):
            if found.start() >= ends:
                break
            parts += [data[place : found.start()], HIDDEN.encode()]
            place = found.end()
        return b"".join([*parts, data[place:ends]])[:keep]

    def with_url(self, url: str) -> "Credentials":
        """The same for a URL that is a secret: pieces of its path, query and user are taken out as well."""
        where, _, rest = url.partition("://")[2].partition("/")
        user = where.rpartition("@")[0]
        pieces = {piece for piece in re.split(r"[/?#&=:]", f"{user}/{rest}") if len(piece) >= SHORTEST_PIECE}
        forms = {*self.secrets, *_forms({f"/{rest}", *pieces} if len(rest) >= SHORTEST_PIECE else pieces)}
        return replace(self, secrets=tuple(sorted(forms, key=lambda form: (-len(form), form))))

    @property
    def longest(self) -> int:
        """Bytes of the longest form."""
        return len(self.secrets[0]) if self.secrets else 0


NO_CREDENTIALS = Credentials()


class CredentialSource:
    """For one event loop. One look at each secret is under way at a time, on threads of its own."""

    def __init__(self, store: SecretStore) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="secrets")
        self._asked: dict[Reference, asyncio.Future[str]] = {}

    async def of(self, claim: Claim) -> Credentials:
        """What the claim's target refers to. Raises SecretError, whose text may be stored."""
        try:
            wanted = {reference for _, reference in references_of(claim.target)}
        except ValueError as error:
            raise SecretRefused(str(error)) from None
        if not wanted:
            return NO_CREDENTIALS
        for reference in sorted(wanted):
            if reference.namespace not in claim.secret_namespaces:
                raise SecretRefused(not_allowed(reference, claim.secret_namespaces))
        values: dict[Reference, str] = {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                for reference in sorted(wanted):
                    values[reference] = await self._value(reference)
        except TimeoutError:
            raise SecretUnavailable(f"The secret store did not answer within {PATIENCE_S:g} s.") from None
        return credentials_of(claim.target, values)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _value(self, reference: Reference) -> str:
        known = self._store.peek(reference)
        if known is not None:
            return known
        asked = self._asked.get(reference)
        if asked is None:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, self._read, reference)
            self._asked[reference] = asked
            asked.add_done_callback(lambda done: self._answered(reference, done))
        # Shielded: who gives up waiting must not take the answer from the others.
        return await asyncio.shield(asked)

    def _read(self, reference: Reference) -> str:
        try:
            return self._store.resolve(reference)
        except SecretError:
            raise
        except Exception as error:
            # Its text might hold anything; the type is enough to look for.
            log.error("secret_failed", extra={"action": "resolve", "error": type(error).__name__})
            raise SecretUnavailable(f"{reference} could not be read: {type(error).__name__}.") from None

    def _answered(self, reference: Reference, done: asyncio.Future[str]) -> None:
        self._asked.pop(reference, None)
        if not done.cancelled():
            done.exception()  # Looked at, even where all who asked have given up.


def credentials_of(target: Mapping[str, Any], values: Values) -> Credentials:
    """Raises SecretRefused where a value cannot stand where it is wanted."""
    headers: dict[str, str] = {}
    for name, value in (target.get("headers") or {}).items():
        split = split_value(value)
        if split is not None:
            headers[name] = split[0] + _for_header(split[1], values)
    auth = _auth_headers(target.get("auth") or {}, values)
    headers.update(auth)
    keys = tuple(_signing_keys(target.get("signing") or {}, values))
    # Basic auth has the password in a form of its own.
    encoded = [value.removeprefix("Basic ") for value in auth.values()]
    named = {name: values[parse_reference(text)] for name, text in (target.get("secrets") or {}).items()}
    return Credentials(headers, keys, _forms({*values.values(), *encoded}), named)


def _auth_headers(auth: Mapping[str, Any], values: Values) -> dict[str, str]:
    if not auth:
        return {}
    if auth["type"] == "basic":
        pair = f"{auth['username']}:{values[parse_reference(auth['password'])]}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    if auth["type"] == "bearer":
        return {"Authorization": f"Bearer {_for_header(parse_reference(auth['token']), values)}"}
    return {auth["header"]: _for_header(parse_reference(auth["value"]), values)}


def _for_header(reference: Reference, values: Values) -> str:
    value = values[reference]
    if not _HEADER_VALUE.fullmatch(value):
        raise SecretRefused(
            f"{reference} cannot be used: no header can carry what it holds (printable ASCII, one line)."
        )
    return value


def _signing_keys(given: Mapping[str, Any], values: Values) -> list[bytes]:
    keys = []
    for name in SIGNING_SECRETS:
        if name in given:
            reference = parse_reference(given[name])
            try:
                keys.append(signing.key_of(values[reference]))
            except ValueError as error:
                raise SecretRefused(f"{reference} cannot be used: {error}.") from None
    return keys


def _forms(values: set[str]) -> tuple[bytes, ...]:
    """The values as they are and as the usual encoders write them."""
    found = set()
    for value in values:
        for text in (
            value,
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            json.dumps(value)[1:-1].replace("/", "\\/"),
            quote(value),
            quote(value, safe=""),
            quote_plus(value),
            html.escape(value),
            base64.b64encode(value.encode()).decode(),
        ):
            found.add(text.encode())
    return tuple(sorted(found, key=lambda form: (-len(form), form)))
