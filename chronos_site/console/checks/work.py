"""Whether the work gets on, as a snapshot tells: leaders, workers, what is overdue, what is off or left alone."""

from collections.abc import Iterator

from chronos_site.beat import LOOP_OF_TASK
from chronos_site.console.checks.finding import Finding
from chronos_site.console.selectors.state import STALE_WORKER_S, Snapshot
from execution.publish import DISPATCH_QUEUE

LATE_WARN_S = 30
LATE_FAIL_S = 300
DOES = {
    "scheduler": "nothing new is fired",
    "retry": "no retry is sent",
    "monitor": "what crashed workers held is not taken up again",
}


def judge(snapshot: Snapshot) -> list[Finding]:
    """In the order in which one would look. Never empty."""
    return [*_away(snapshot), *_leaders(snapshot), *_workers(snapshot), *_late(snapshot), *_stopped(snapshot)]


def _away(snapshot: Snapshot) -> Iterator[Finding]:
    for server, why in snapshot.away.items():
        told = {
            "postgres": "Nothing is accepted and nothing is sent until it is back; nothing is lost.",
            "redis": "Nothing new reaches the workers until it is back; nothing is lost.",
        }
        yield Finding(server, "fail", f"It cannot be asked: {why}", told[server])


def _leaders(snapshot: Snapshot) -> Iterator[Finding]:
    missing = [leader.loop for leader in snapshot.leaders or [] if not leader.held]
    for loop in missing:
        yield Finding(
            f"leader of {loop}",
            "fail",
            f"Nobody holds the lock, so {DOES[loop]}.",
            "Start beat (celery -A chronos_site beat), two replicas. If beats run, their logs (action=leader) say why"
            " they do not lead. A takeover takes up to 30 s, 90 s for retry and monitor.",
        )
    if snapshot.leaders and not missing:
        yield Finding("leaders", "ok", f"All {len(LOOP_OF_TASK) + 1} loops are led.")


def _workers(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.workers is None:
        return
    alive = [worker for worker in snapshot.workers if worker.state != "stale"]
    delivering = [worker for worker in alive if worker.queue == DISPATCH_QUEUE]
    if not delivering:
        yield Finding(
            "workers",
            "fail",
            f"No worker of {DISPATCH_QUEUE} is alive: nothing is delivered.",
            f"Start one: celery -A chronos_site worker -Q {DISPATCH_QUEUE} -P threads -c 8. If one runs, it cannot"
            " write its row to PostgreSQL; its log says why.",
        )
    else:
        per_second = sum(worker.rate_per_s for worker in delivering)
        yield Finding("workers", "ok", f"{len(delivering)} deliver, {per_second:,.0f} per second together.")
    stale = [worker for worker in snapshot.workers if worker.state == "stale" and worker.heartbeat_age_s < 600]
    if stale:
        names = ", ".join(sorted(worker.name for worker in stale)[:5])
        yield Finding(
            "workers",
            "warn",
            f"Silent for more than {STALE_WORKER_S} s: {names}. Others take up what they held.",
            "Expected for ten minutes after a worker was killed. Else look at that process: is it frozen, or cut off?",
        )


def _late(snapshot: Snapshot) -> Iterator[Finding]:
    work, now = snapshot.work, snapshot.at
    if work is None or now is None:
        return
    if work.oldest_due_at is None:
        yield Finding("lateness", "ok", "Nothing is overdue.")
        return
    late_s = (now - work.oldest_due_at).total_seconds()
    level = "fail" if late_s > LATE_FAIL_S else "warn" if late_s > LATE_WARN_S else "ok"
    yield Finding(
        "lateness",
        level,
        f"{work.overdue:,} executions are overdue; the oldest waits for {late_s:,.0f} s.",
        ""
        if level == "ok"
        else "See leaders, workers and switches. If all is well there, deliveries are slower than"
        " what comes in: add workers, and look in `chronos top --sort late` for who takes the room.",
    )


def _stopped(snapshot: Snapshot) -> Iterator[Finding]:
    for switch in snapshot.switches or []:
        place = f"{switch.scope} {switch.name or switch.value}".strip()
        why = f": {switch.reason}" if switch.reason else ""
        value = f" --value {switch.name or switch.value}" if switch.value else ""
        yield Finding(
            "dispatch switch",
            "warn",
            f"{place} is off since {switch.at:%Y-%m-%d %H:%M} UTC by {switch.by or 'somebody'}{why}",
            f"When it may go on: chronos switch on --scope {switch.scope}{value}",
        )
    broken = [breaker for breaker in snapshot.breakers or [] if breaker.state != "closed"]
    if broken:
        names = ", ".join(breaker.origin for breaker in broken[:5])
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        yield Finding(
            "breakers",
            "warn",
            f"{len(broken)} destinations fail and are left alone: {names}{more}.",
            "Ask who runs them. Each is probed by itself; what is due for it waits, at no charge to its attempts.",
        )
