"""What an engine tells Prometheus of each batch of results: sums of the batch, never a call for each result."""

from collections import Counter
from collections.abc import Sequence

from chronos_site.observability import metrics
from execution.domain.outcome import Result
from execution.domain.states import State
from execution.publish import DISPATCH_QUEUE

_OUTCOMES = {State.SUCCEEDED: "delivered", State.RETRYING: "retried", State.FAILED: "failed"}


def count(results: Sequence[Result], stored: set[object], *, queue: str) -> None:
    """Of a batch that has reached its end; `stored`: ids of those whose row was still ours."""
    outcomes: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    late: list[float] = []
    lasted: dict[str, list[float]] = {}
    for result in results:
        claim = result.claim
        if claim.id in stored:
            outcomes[claim.kind, _OUTCOMES.get(result.state, "other")] += 1
            if result.dead_reason:
                reasons[result.dead_reason] += 1
        else:
            outcomes[claim.kind, "not_stored"] += 1
        if result.began_at is not None:
            late.append((result.began_at - claim.due_at).total_seconds())
            lasted.setdefault(claim.kind, []).append(result.duration_ms / 1000)
    for (kind, outcome), number in outcomes.items():
        metrics.attempts.add(queue, kind, outcome, by=number)
    if queue == DISPATCH_QUEUE:
        for reason, number in reasons.items():
            metrics.dead_letters.add(reason, by=number)
    if late:
        metrics.lateness.observe(late, queue)
    for kind, each in lasted.items():
        metrics.duration.observe(each, queue, kind)
