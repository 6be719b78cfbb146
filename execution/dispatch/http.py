"""One HTTP attempt: the request as the receiver sees it, within one total deadline, the answer read up to a cap.

Nothing here follows redirects, unpacks compressed bodies or reads proxies from the environment. The address connected
to is the one that the egress guard judged: a client is pinned to it.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import (
    BuilderError,
    ConnectError,
    ConnectTimeoutError,
    PyreqwestError,
    RequestTimeoutError,
)
from pyreqwest.http import HeaderMap

from execution.dispatch import attempt_span
from execution.dispatch.credentials import NO_CREDENTIALS, Credentials
from execution.dispatch.egress import Network, Verdict, judge
from execution.dispatch.message import body_of, headers_of
from execution.dispatch.resolver import Resolver
from execution.dispatch.sender import Answer
from execution.domain.outcome import Claim

READ_CAP = 64 * 1024
KEEP_CAP = 4 * 1024
CLIENTS = 512
"""Most pinned clients kept; each costs about 140 KB."""
IDLE_S = 4.0
"""Idle connections are closed before receivers usually close them, so that a send rarely meets a dead one."""


class HttpSender:
    """Sends attempts from one event loop. Clients are kept by target and address, least recently used dropped first."""

    def __init__(self, *, allow: Sequence[Network]) -> None:
        self._allow = tuple(allow)
        self._resolver = Resolver()
        self._clients: OrderedDict[tuple[str, str, int], Client] = OrderedDict()

    async def judge(self, claim: Claim) -> Verdict:
        """The egress guard's word on where this attempt may connect to. Never raises.

        For one claim, not for a wave: a name server that hangs holds up nobody else.
        """
        url = str(claim.target["url"])
        hosts: list[str] = []

        def note(host: str) -> list[str]:
            hosts.append(host)
            return []

        verdict = judge(url, note, allow=self._allow)
        if not hosts:
            return verdict
        addresses = await self._resolver.resolve(hosts[0])
        return judge(url, lambda _host: addresses, allow=self._allow)

    async def send(self, claim: Claim, verdict: Verdict, credentials: Credentials = NO_CREDENTIALS) -> Answer:
        """One attempt, whole within `claim.timeout_s`. Never raises but for cancellation.

        The answer holds no secret: what the receiver echoes of `credentials` is taken out.
        """
        attempt_span.begin(claim, verdict)
        return await self.call(claim, verdict, credentials)

    async def call(self, claim: Claim, verdict: Verdict, credentials: Credentials) -> Answer:
        """The same without a span, for senders whose URL must not be told to anybody."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(claim.timeout_s):
                answer = await self._exchange(claim, verdict, credentials)
        except (TimeoutError, RequestTimeoutError) as error:
            code = "connect_timeout" if isinstance(error, ConnectTimeoutError) else "timeout"
            answer = Answer(None, code, f"No complete answer within {claim.timeout_s:g} s.")
        except BuilderError as error:
            answer = Answer(None, "request", f"The request could not be built: {_cause(error)}")
        except PyreqwestError as error:
            answer = Answer(None, _code(error), _cause(error))
        answer.error_text = credentials.scrub(answer.error_text)
        answer.duration_ms = (time.monotonic() - begun) * 1000
        return answer

    async def close(self) -> None:
        self._resolver.close()
        clients, self._clients = list(self._clients.values()), OrderedDict()
        for client in clients:
            await client.close()

    async def _exchange(self, claim: Claim, verdict: Verdict, credentials: Credentials) -> Answer:
        method: str = claim.target["method"]
        body = None if method in {"GET", "HEAD"} else body_of(claim)
        headers = headers_of(claim, credentials, body)
        builder = self._client(verdict).request(method, verdict.url).headers(headers)
        if body is not None:
            builder = builder.body_bytes(body)
        async with builder.streamed_read_buffer_limit(READ_CAP).build_streamed() as response:
            kept = bytearray()
            # A secret that begins within the excerpt is known by its end.
            wanted = KEEP_CAP + credentials.longest
            read = 0
            while read < READ_CAP:
                chunk = await response.body_reader.read_chunk()
                if chunk is None:
                    break
                data = chunk.to_bytes()
                read += len(data)
                kept += data[: wanted - len(kept)]
            return Answer(
                response.status,
                None,
                "",
                headers={name: credentials.scrub(text) for name, text in _readable(response.headers).items()},
                excerpt=credentials.scrub_bytes(bytes(kept), keep=KEEP_CAP).decode("utf-8", "replace"),
            )

    def _client(self, verdict: Verdict) -> Client:
        key = (verdict.host, verdict.address or "", verdict.port)
        client = self._clients.get(key)
        if client is None:
            client = (
                ClientBuilder()
                .resolve(verdict.host, verdict.address or "", verdict.port)
                .no_proxy()
                .follow_redirects(False)
                .referer(False)
                .gzip(False)
                .brotli(False)
                .zstd(False)
                .deflate(False)
                .user_agent("Chronos/1")
                .pool_idle_timeout(timedelta(seconds=IDLE_S))
                .build()
            )
            self._clients[key] = client
            if len(self._clients) > CLIENTS:
                # Not closed here: sends under way hold it; it goes when the last of them lets go.
                self._clients.popitem(last=False)
        else:
            self._clients.move_to_end(key)
        return client


def _readable(headers: HeaderMap) -> dict[str, str]:
    """The answer's headers, names in lower case, without those that are not text: they must not cost the status."""
    found: dict[str, str] = {}
    for name in headers.keys():  # noqa: SIM118 - iterating the map itself reads the values
        try:
            found[name.lower()] = headers[name]
        except ValueError:
            continue
    return found


def _code(error: PyreqwestError) -> str:
    """Whether the connection was never made. The client calls a reset after the request a ConnectError, too."""
    causes = _causes(error)
    if not isinstance(error, ConnectError) or not any("(Connect)" in cause for cause in causes):
        return "network"
    return "tls" if any("certificate" in cause or "tls" in cause.lower() for cause in causes[1:]) else "connect"


def _causes(error: PyreqwestError) -> list[str]:
    details: Any = getattr(error, "details", None) or {}
    return [str(cause["message"]) for cause in details.get("causes") or []]


def _cause(error: PyreqwestError) -> str:
    """The deepest cause in the client's words, which name no header and no body."""
    causes = _causes(error)
    return (causes[-1] if causes else error.message)[:500]
