"""PagerDuty's Events API v2: one incident for each rule and job, opened by a failure and resolved by a recovery.

The routing key is a secret, and stands in the body: it is put in right before the send, into a copy. Notifications of
one incident are sent one after the other, so that a resolve never overtakes what it resolves.
"""

import hashlib
from dataclasses import replace
from typing import Any

from django.conf import settings as site

from execution.dispatch.credentials import NO_CREDENTIALS, Credentials
from execution.dispatch.egress import Verdict
from execution.dispatch.http import HttpSender
from execution.dispatch.sender import Answer
from execution.domain.outcome import Claim
from execution.notifications.channels.prepared import Prepared, Settings
from execution.notifications.content import Content, one_line, title_of

LONGEST_SUMMARY = 1024
CLIENT = "Chronos"
ENDS = ("recovery", "test")
"""What resolves the incident. A test wakes nobody: PagerDuty takes the word for an incident that is not there."""


def prepare(content: Content, settings: Settings) -> list[Prepared]:
    """One event for each job."""
    return [_prepared(content, settings, job) for job in content["jobs"]]


def _prepared(content: Content, settings: Settings, job: dict[str, Any]) -> Prepared:
    rule = content["rule"]["id"] if content["rule"] else "test"
    dedup_key = f"chronos:{rule}:{job['key']}"
    name = job["name"] or str(job["key"])
    where = content["workspace"]["name"] if content["workspace"] else "site"
    title = title_of(job["counts"], where=where, job=name)
    event: dict[str, Any] = {
        "event_action": "resolve" if job["last"] in ENDS else "trigger",
        "dedup_key": dedup_key,
        "client": CLIENT,
        "payload": {
            "summary": title[:LONGEST_SUMMARY],
            "source": one_line(where),
            "severity": "info" if content["event"] in {"bulk_finished", "test"} else settings.get("severity", "error"),
            "timestamp": content["last_at"],
            "component": one_line(name),
            "group": one_line(content["rule"]["name"]) if content["rule"] else CLIENT,
            "class": content["event"],
            "custom_details": {
                "count": job["count"],
                "errors": content["errors"],
                "examples": [example for example in content["examples"] if example["job"] == job["key"]],
            },
        },
    }
    url = f"{site.CHRONOS_PAGERDUTY_URL.rstrip('/')}/v2/enqueue"
    target = {"method": "POST", "url": url, "secrets": {"routing_key": settings["routing_key"]}}
    digest = hashlib.sha256(f"{settings['routing_key']}\n{dedup_key}".encode()).hexdigest()
    return Prepared(target, event, sequence_key=digest[:40], title=title)


class PagerDutySender:
    """For one event loop."""

    def __init__(self, http: HttpSender) -> None:
        self._http = http

    async def judge(self, claim: Claim) -> Verdict:
        return await self._http.judge(claim)

    async def send(self, claim: Claim, verdict: Verdict, credentials: Credentials = NO_CREDENTIALS) -> Answer:
        # A copy: whatever logs the claim finds no key in it.
        keyed = replace(claim, payload={**claim.payload, "routing_key": credentials.named["routing_key"]})
        answer = await self._http.send(keyed, verdict, credentials)
        claim.span = keyed.span
        return answer

    async def close(self) -> None:
        """The engine closes the sender for HTTP."""
