"""The span of one attempt: begun right before the send, ended with its result, named in the `traceparent` that is sent.

`begin` is called by the sender, `end` by the engine with every batch of results. An attempt that ended before its send
(a refused target, a missing secret, a name without an address) has a span as well. A send that was cut off has none:
its outcome is unknown. Names are those of OpenTelemetry's conventions for HTTP clients and for messaging; what is ours
begins with `chronos.`. No header, no payload, no query and no user information of a URL is ever told.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from chronos_site.infra import trace
from chronos_site.observability import tracing
from execution.dispatch.attempt_log import without_query
from execution.dispatch.egress import Verdict
from execution.domain.outcome import Claim, Result
from execution.domain.states import State
from execution.domain.targets import KAFKA, kind_of

_USER = re.compile(r"(?<=//)[^/@]*@")


def begin(claim: Claim, verdict: Verdict) -> None:
    """Begin the span of an attempt, where a tracer is set and the trace is recorded."""
    if tracing.active() is None:
        return
    claim.span = _begin(claim, verdict.url, {**_late(claim, claim.clock.now_s()), **_reached(claim, verdict)})


def traceparent_of(claim: Claim) -> str:
    """What the receiver is told: the attempt's own span."""
    return trace.child(claim.traceparent) if claim.span is None else str(claim.span.traceparent)


def end(results: Sequence[Result]) -> None:
    """End the spans of these attempts; those that were not sent get theirs now."""
    if tracing.active() is None:
        return
    for result in results:
        span = result.claim.span or _unsent(result)
        if span is None:
            continue
        result.claim.span = None
        span.set({"http.response.status_code": result.status, "chronos.state": result.state.value.lower()})
        failed = result.state is not State.SUCCEEDED
        span.end(
            error=_error(result) if failed else None,
            # The conventions: a status says enough by itself.
            told=result.error_text if failed and result.status is None else "",
            lasted_s=result.duration_ms / 1000,
        )


def _unsent(result: Result) -> Any:
    """A span for an attempt that ended before its send. None also for what another process has sent."""
    claim, began_at = result.claim, result.began_at
    if began_at is None or result.address is not None:
        return None
    began_s = began_at.timestamp()
    return _begin(claim, str(claim.target.get("url")), _late(claim, began_s), began_s=began_s)


def _begin(claim: Claim, url: str, more: dict[str, Any], *, began_s: float | None = None) -> Any:
    kafka = kind_of(claim.target) == KAFKA
    return tracing.begin(
        f"send {claim.target['topic']}" if kafka else str(claim.target["method"]),
        kind="producer" if kafka else "client",
        parent=claim.traceparent,
        attributes={
            **_about(claim),
            **(_message(claim.target) if kafka else _call(claim, url)),
            **more,
        },
        began_s=began_s,
    )


def _reached(claim: Claim, verdict: Verdict) -> dict[str, Any]:
    if kind_of(claim.target) == KAFKA:
        return {"server.address": verdict.host}
    return {
        "server.address": verdict.host.strip("[]"),
        "server.port": verdict.port,
        "network.peer.address": verdict.address or "",
        "network.peer.port": verdict.port,
    }


def _message(target: Mapping[str, Any]) -> dict[str, Any]:
    """By the conventions for messaging. The key may be a person's: it is not told."""
    told = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": str(target["topic"]),
    }
    partition = target.get("partition")
    return told if partition is None else {**told, "messaging.destination.partition.id": str(partition)}


def _late(claim: Claim, began_s: float) -> dict[str, Any]:
    return {"chronos.lateness_ms": round((began_s - claim.due_at.timestamp()) * 1000, 3)}


def _about(claim: Claim) -> dict[str, Any]:
    ids = {
        "chronos.execution_id": claim.id,
        "chronos.workspace_id": claim.workspace_id,
        "chronos.job_definition_id": claim.job_definition_id,
        "chronos.schedule_id": claim.schedule_id,
    }
    return {
        **{name: str(value) for name, value in ids.items() if value is not None},
        "chronos.attempt": claim.attempt,
    }


def _call(claim: Claim, url: str) -> dict[str, Any]:
    again = {"http.request.resend_count": claim.attempt - 1} if claim.attempt > 1 else {}
    return {"http.request.method": str(claim.target["method"]), "url.full": clean_url(url), **again}


def _error(result: Result) -> str:
    return result.error or "unknown" if result.status is None else str(result.status)


def clean_url(url: str) -> str:
    """Where a call went, without what may carry a secret: its query, its fragment, a user and password."""
    return _USER.sub("", without_query(url.partition("#")[0]))
