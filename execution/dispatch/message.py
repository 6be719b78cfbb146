"""What every delivery carries, over HTTP and in a Kafka message alike: the payload's bytes and the headers."""

import json

from execution.dispatch import attempt_span
from execution.dispatch.credentials import Credentials
from execution.dispatch.signing import signature_headers
from execution.domain.outcome import Claim


def body_of(claim: Claim) -> bytes | None:
    """The payload as compact JSON; None where there is none."""
    if claim.payload is None:
        return None
    return json.dumps(claim.payload, separators=(",", ":"), ensure_ascii=False).encode()


def headers_of(claim: Claim, credentials: Credentials, body: bytes | None) -> dict[str, str]:
    """The job's own headers, and those of the delivery, which no job can name."""
    headers = {**(claim.target.get("headers") or {}), **credentials.headers}
    if body is not None and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = "application/json"
    headers["X-Job-Id"] = str(claim.job_definition_id or claim.schedule_id or claim.id)
    headers["X-Execution-Id"] = str(claim.id)
    headers["X-Attempt-Number"] = str(claim.attempt)
    headers["X-Scheduled-For"] = claim.scheduled_for.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    headers["traceparent"] = attempt_span.traceparent_of(claim)
    if credentials.keys:
        headers |= signature_headers(
            message_id=str(claim.id), timestamp_s=int(claim.clock.now_s()), body=body or b"", keys=credentials.keys
        )
    return headers
