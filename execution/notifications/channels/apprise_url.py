"""Everything else, by an Apprise URL, which is a secret as a whole.

Apprise makes its own connections, so the egress guard cannot pin them to the address that it judged. What is done in
its place: only the services in the two lists below are taken, none of which reads local things; where the URL names the
host, the guard judges it right before the send; redirects are not followed. Who controls that host's name server could
answer Apprise otherwise than the guard: docs/notifications.md says so.
"""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import apprise
from django.conf import settings as site

from execution.dispatch import attempt_span
from execution.dispatch.credentials import NO_CREDENTIALS, Credentials
from execution.dispatch.egress import NO_ADDRESS, Verdict, judge, parse_networks
from execution.dispatch.judgement import TARGET_REFUSED
from execution.dispatch.resolver import Resolver
from execution.dispatch.sender import Answer
from execution.domain.outcome import Claim
from execution.notifications.channels.prepared import Prepared, Settings
from execution.notifications.content import Content, text_of

FIXED = frozenset({"discord", "gchat", "opsgenie", "pbul", "pover", "tgram", "twilio", "wxteams"})
"""Services that live at addresses of their own, which no part of the URL changes."""
HOSTED = frozenset({"gotify", "gotifys", "json", "jsons", "mmost", "mmosts", "ntfy", "ntfys", "rocket", "rockets"})
"""Services whose URL names the host."""
REFUSED = "channel_refused"
THREADS = 8
MOST_TARGETS = 10
ASSET = apprise.AppriseAsset(async_mode=False, http_redirects=False, storage_mode=apprise.PersistentStoreMode.MEMORY)
SAID = "apprise"


def prepare(content: Content, settings: Settings) -> list[Prepared]:
    target = {"method": "APPRISE", "url": settings["url"], "secrets": {"url": settings["url"]}}
    text = text_of(content)
    return [Prepared(target, {"title": content["title"], "text": text.partition("\n")[2].strip() or text})]


class ChannelRefused(Exception):  # noqa: N818 - a verdict
    """The text says why, without the URL."""


class AppriseSender:
    """For one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="apprise")
        self._resolver = Resolver()

    async def judge(self, claim: Claim) -> Verdict:
        """Where it goes is known at the send only; the guard judges there."""
        return Verdict(True)

    async def send(self, claim: Claim, verdict: Verdict, credentials: Credentials = NO_CREDENTIALS) -> Answer:
        begun = time.monotonic()
        credentials = credentials.with_url(credentials.named["url"])
        try:
            # On a thread: the first time Apprise loads all that it has.
            read = asyncio.get_running_loop().run_in_executor(self._threads, service_of, credentials.named["url"])
            service = await read
            answer = await self._guarded(claim, service, credentials)
        except ChannelRefused as refused:
            answer = Answer(None, REFUSED, str(refused))
        answer.error_text = credentials.scrub(answer.error_text)[:500]
        answer.duration_ms = (time.monotonic() - begun) * 1000
        return answer

    async def close(self) -> None:
        self._resolver.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _guarded(self, claim: Claim, service: Any, credentials: Credentials) -> Answer:
        host = f"{service.service_name}"
        url = url_of(service)
        if url is not None:
            found = await self._judge(url)
            if not found.allowed:
                error = "dns" if found.reason == NO_ADDRESS else TARGET_REFUSED
                return Answer(None, error, f"The host of the Apprise URL cannot be called: {found.reason}.")
            host = found.host
        attempt_span.begin(claim, Verdict(True, host=host, url=f"apprise://{host}"))
        # Apprise's own timeouts, which are the thread's only ones.
        service.socket_connect_timeout = service.socket_read_timeout = claim.timeout_s / 2
        try:
            async with asyncio.timeout(claim.timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, _notify, service, claim.payload)
        except TimeoutError:
            return Answer(None, "timeout", f"No answer within {claim.timeout_s:g} s.")

    async def _judge(self, url: str) -> Verdict:
        hosts: list[str] = []
        allow = parse_networks(site.CHRONOS_EGRESS_ALLOW)
        verdict = judge(url, lambda host: hosts.append(host) or [], allow=allow)  # type: ignore[func-returns-value]
        if not hosts:
            return verdict
        addresses = await self._resolver.resolve(hosts[0])
        return judge(url, lambda _host: addresses, allow=allow)


def service_of(url: str) -> Any:
    """Apprise's own reading of the URL, if it is of a service that is taken. Raises ChannelRefused."""
    scheme = url.strip().partition("://")[0].lower()
    if scheme not in FIXED | HOSTED:
        raise ChannelRefused(
            f"Apprise URLs of this kind are not taken. Taken are: {', '.join(sorted(FIXED | HOSTED))}."
        )
    if any(name.lower() == "template" for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)):
        # Apprise would read a file of this machine, or call whatever the template's own URL names.
        raise ChannelRefused("An Apprise URL with a template is not taken. Leave the template out.")
    service = apprise.Apprise.instantiate(url.strip(), asset=ASSET)
    if service is None:
        raise ChannelRefused(f"Apprise cannot read the URL of {scheme}:// that the secret holds.")
    if len(service) > MOST_TARGETS:
        raise ChannelRefused(
            f"An Apprise URL of more than {MOST_TARGETS} receivers is not taken. Make several channels."
        )
    # A URL can ask for each of these by itself. Tries are the engine's; a thread that waits for another is lost to all.
    service.redirects = False
    service.retry = 0
    service.overflow_mode = apprise.OverflowMode.TRUNCATE
    return service


def url_of(service: Any) -> str | None:
    """Where a hosted service will be called, as the guard reads it; None for one at a fixed address."""
    url = service.url()
    if str(url).partition("://")[0].lower() in FIXED or getattr(service, "mode", None) == "cloud":
        return None
    port = getattr(service, "port", None)
    host = str(service.host or "")
    literal = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{'https' if service.secure else 'http'}://{literal}{f':{port}' if port else ''}/"


class _Said(logging.Handler):
    """What Apprise logs in one thread: its calls tell whether they succeeded, and only the log says why not."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread = threading.get_ident()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.lines.append(record.getMessage())


def _notify(service: Any, payload: dict[str, str]) -> Answer:
    said = _Said()
    logger = logging.getLogger(SAID)
    logger.addHandler(said)
    try:
        sent = service.notify(body=payload["text"], title=payload["title"])
    except Exception as error:  # A plugin may fail in any way; its text may hold anything.
        return Answer(None, "apprise", f"Apprise failed: {type(error).__name__}.")
    finally:
        logger.removeHandler(said)
    if sent:
        return Answer(None, None, "", kept=True)
    return Answer(None, "apprise", " ".join(said.lines) or "The service did not take the message.")
