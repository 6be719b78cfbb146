"""The span of one attempt: begun right before the send, ended with its result, named in the `traceparent` that is sent.

`begin` is called by the sender, `end` by the engine with every batch of results. An attempt that ended before its send
(a refused target, a missing secret, a name without an address) has a span as well. A send that was cut off has none:
its outcome is unknown. Names are those of OpenTelemetry's conventions for HTTP clients; what is ours begins with
`chronos.`. No header, no payload, no query and no user information of a URL is ever told.
"""

import re
from collections.abc import Sequence
from typing import Any

from chronos_site.infra import trace
from chronos_site.observability import tracing
from execution.dispatch.attempt_log import without_query
from execution.dispatch.egress import Verdict
from execution.domain.outcome import Claim, Result
from execution.domain.states import State

_USER = re.compile(r"(?<=//)[^/@]*@")


def begin(claim: Claim, verdict: Verdict) -> None:
    """Begin the span of an HTTP attempt, where a tracer is set and the trace is recorded."""
    if tracing.active() is None:
        return
    claim.span = tracing.begin(
        str(claim.target["method"]),
        kind="client",
        parent=claim.traceparent,
        attributes={
            **_about(claim, began_s=claim.clock.now_s()),
            **_call(claim, verdict.url),
            "server.address": verdict.host.strip("[]"),
            "server.port": verdict.port,
            "network.peer.address": verdict.address or "",
            "network.peer.port": verdict.port,
        },
    )


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
    return tracing.begin(
        str(claim.target["method"]),
        kind="client",
        parent=claim.traceparent,
        attributes={**_about(claim, began_s=began_at.timestamp()), **_call(claim, str(claim.target["url"]))},
        began_s=began_at.timestamp(),
    )


def _about(claim: Claim, *, began_s: float) -> dict[str, Any]:
    ids = {
        "chronos.execution_id": claim.id,
        "chronos.workspace_id": claim.workspace_id,
        "chronos.job_definition_id": claim.job_definition_id,
        "chronos.schedule_id": claim.schedule_id,
    }
    return {
        **{name: str(value) for name, value in ids.items() if value is not None},
        "chronos.attempt": claim.attempt,
        "chronos.lateness_ms": round((began_s - claim.due_at.timestamp()) * 1000, 3),
    }


def _call(claim: Claim, url: str) -> dict[str, Any]:
    again = {"http.request.resend_count": claim.attempt - 1} if claim.attempt > 1 else {}
    return {"http.request.method": str(claim.target["method"]), "url.full": clean_url(url), **again}


def _error(result: Result) -> str:
    return result.error or "unknown" if result.status is None else str(result.status)


def clean_url(url: str) -> str:
    """Where a call went, without what may carry a secret: its query, its fragment, a user and password."""
    return _USER.sub("", without_query(url.partition("#")[0]))
