"""From what came back to a result: classify, decide, and texts that Postgres can hold."""

from datetime import datetime

from execution.dispatch.sender import Answer
from execution.domain.classify import Kind, Outcome, classify
from execution.domain.decide import decide
from execution.domain.outcome import Claim, Result
from execution.domain.states import State

TARGET_REFUSED = "target_refused"
SECRET_REFUSED = "secret_refused"  # noqa: S105 - a reason


def result_of(claim: Claim, answer: Answer, *, began_at: datetime, address: str | None) -> Result:
    """The result of one attempt. `answer` may also be one that we gave ourselves: a refused target, an unknown host."""
    finished_at = claim.clock.now()
    outcome = (
        Outcome(Kind.SUCCESS, reason="The broker has the message.")
        if answer.kept
        else classify(
            status=answer.status, error=answer.error, headers=answer.headers, now=finished_at, policy=claim.retry
        )
    )
    elapsed_s = (finished_at - (claim.started_at or began_at)).total_seconds() - claim.flow_wait_s
    decision = decide(outcome, policy=claim.retry, attempt=claim.attempt - claim.attempts_before, elapsed_s=elapsed_s)
    succeeded = decision.state == State.SUCCEEDED
    code = answer.error or f"http_{answer.status}"
    return Result(
        claim=claim,
        state=decision.state,
        reason="" if succeeded else code,
        status=answer.status,
        error=None if succeeded else code,
        error_text="" if succeeded else clean_text(answer.error_text or outcome.reason),
        duration_ms=round(answer.duration_ms, 3),
        finished_at=finished_at,
        retry_in_s=decision.retry_in_s,
        dead_reason=code if code in {TARGET_REFUSED, SECRET_REFUSED} else decision.dead_reason,
        response_headers=answer.headers,
        response_excerpt=answer.excerpt,
        began_at=began_at,
        address=address,
    )


def clean_text(text: str) -> str:
    """A text as Postgres can hold it: no NUL, no lone surrogate, at most 500 characters."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")[:500]
