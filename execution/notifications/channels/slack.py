"""Slack's incoming webhooks. The URL is the secret, so it is judged, called and forgotten within the send."""

from dataclasses import replace

from execution.dispatch import attempt_span
from execution.dispatch.credentials import NO_CREDENTIALS, Credentials
from execution.dispatch.egress import NO_ADDRESS, Verdict
from execution.dispatch.http import HttpSender
from execution.dispatch.judgement import TARGET_REFUSED
from execution.dispatch.sender import Answer
from execution.domain.outcome import Claim
from execution.notifications.channels.prepared import Prepared, Settings
from execution.notifications.content import Content, text_of

LONGEST_TEXT = 3500
HIDDEN_PATH = "/[redacted]"


def prepare(content: Content, settings: Settings) -> list[Prepared]:
    target = {"method": "POST", "url": settings["url"], "secrets": {"url": settings["url"]}}
    return [Prepared(target, {"text": escaped(text_of(content))})]


def escaped(text: str) -> str:
    """As Slack asks for: else a job's name could call the whole channel."""
    cut = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class SlackSender:
    """For one event loop."""

    def __init__(self, http: HttpSender) -> None:
        self._http = http

    async def judge(self, claim: Claim) -> Verdict:
        """Where it goes is known at the send only; the guard judges there."""
        return Verdict(True)

    async def send(self, claim: Claim, verdict: Verdict, credentials: Credentials = NO_CREDENTIALS) -> Answer:
        url = credentials.named["url"].strip()
        # A copy: whatever logs the claim finds the reference in it.
        called = replace(claim, target={"method": "POST", "url": url})
        found = await self._http.judge(called)
        if not found.allowed:
            error = "dns" if found.reason == NO_ADDRESS else TARGET_REFUSED
            return Answer(None, error, f"The URL that the secret holds cannot be called: {found.reason}.")
        hidden = replace(found, url=f"{found.scheme}://{found.host}{HIDDEN_PATH}")
        attempt_span.begin(claim, hidden)
        called.span = claim.span
        return await self._http.call(called, found, credentials.with_url(url))

    async def close(self) -> None:
        """The engine closes the sender for HTTP."""
