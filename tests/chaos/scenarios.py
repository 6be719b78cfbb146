"""What goes wrong, scenario by scenario. Each function does its harm and takes it back; the runner judges."""

import time

import psycopg
from psycopg import errors

from tests.chaos.bulk import BULK_KILLED
from tests.chaos.runner import (
    CLAIM_S,
    LEADER_S,
    MESSAGE_S,
    MONITOR_TTL_S,
    STEADY_CLAIM_S,
    Run,
    Scenario,
    soon,
)
from tests.chaos.world import LEADER_TTL_S

DISPATCH = ("dispatch-1", "dispatch-2")
BEATS = ("beat-1", "beat-2")
HALF_OPEN_S = 25.0
FLUSHED_S = 60.0
POLITE_S = 2.0


# --- nothing wrong ---------------------------------------------------------------------------------------


def calm(run: Run) -> None:
    run.sleep(8)


def calm_20000(run: Run) -> None:
    """20,000 more over forty seconds, five hundred a second."""
    for second in range(40):
        run.load.burst(500, soon(30 + second))
    run.sleep(75)


# --- leaders ---------------------------------------------------------------------------------------------


def _ahead(run: Run, seconds: int) -> None:
    """Jobs for every second to come, and no POST meanwhile: the fire loop alone can wake them."""
    run.load.paused.set()
    for second in range(3, seconds):
        run.load.burst(10, soon(second + 0.5))
    run.sleep(2.5)


def leader_killed(run: Run) -> None:
    _ahead(run, LEADER_TTL_S + 12)
    leader, held = run.world.leader(), run.world.holder("scheduler")
    with run.fault():
        run.world.kill(leader)
        took = run.wait_for(lambda: run.world.holder("scheduler") not in {held, None}, LEADER_TTL_S + 10)
    run.bound("failover", took, LEADER_S)


def leader_frozen(run: Run) -> None:
    _ahead(run, LEADER_TTL_S + 12)
    leader, held = run.world.leader(), run.world.holder("scheduler")
    with run.fault():
        run.world.freeze(leader)
        took = run.wait_for(lambda: run.world.holder("scheduler") not in {held, None}, LEADER_TTL_S + 10)
        run.sleep(5)
        run.world.thaw(leader)
    run.bound("failover", took, LEADER_S)
    run.sleep(3)


def leader_stopped(run: Run) -> None:
    _ahead(run, 10)
    leader, held = run.world.leader(), run.world.holder("scheduler")
    with run.fault():
        run.world.ask_to_stop(leader)
        took = run.wait_for(lambda: run.world.holder("scheduler") not in {held, None}, LEADER_TTL_S + 10)
    run.bound("failover", took, POLITE_S)


def schedulers_down(run: Run) -> None:
    _ahead(run, 120)
    with run.fault():
        run.world.kill(*BEATS)
        run.sleep(120)
        run.world.start(*BEATS)


def lock_deleted(run: Run) -> None:
    for _ in range(3):
        with run.fault(), run.world.valkey() as client:
            client.delete("chronos:leader:scheduler")
        run.sleep(3)


# --- dispatch workers --------------------------------------------------------------------------------------


def _burst(run: Run, count: int = 150, in_s: float = 5.0) -> float:
    """So many jobs for one moment; answers the monotonic time of that moment."""
    run.load.burst(count, soon(in_s))
    return time.monotonic() + in_s


def worker_killed_before_send(run: Run) -> None:
    due = _burst(run)
    time.sleep(max(0.0, due - time.monotonic() - run.rng.uniform(0.3, 1.2)))
    with run.fault():
        run.world.kill(*DISPATCH)
        run.world.start(*DISPATCH)


def worker_killed_after_send(run: Run) -> None:
    """The answers have come, the results cannot be written, and then the workers die."""
    run.receiver.mode = "slow"
    due = _burst(run)
    time.sleep(max(0.0, due - time.monotonic() + 0.5))
    with run.fault():
        run.world.proxy("dispatch", "postgres").blackhole(new=True)
        run.sleep(1.0, 1.5)
        run.world.kill(*DISPATCH)
        run.world.proxy("dispatch", "postgres").heal()
        run.receiver.mode = "ok"
        run.world.start(*DISPATCH)


def worker_killed_in_mid_body(run: Run) -> None:
    run.receiver.mode = "body"
    due = _burst(run)
    time.sleep(max(0.0, due - time.monotonic() + run.rng.uniform(0.3, 1.0)))
    with run.fault():
        run.world.kill(*DISPATCH)
        run.receiver.mode = "ok"
        run.world.start(*DISPATCH)


def worker_killed_40_times(run: Run) -> None:
    with run.fault():
        for number in range(40):
            name = DISPATCH[number % 2]
            run.sleep(0.2, 1.5)
            run.world.kill(name)
            run.world.start(name)


def workers_rolled(run: Run) -> None:
    """A polite restart of each worker in turn, as a deployment does it."""
    for name in DISPATCH:
        with run.fault():
            run.world.stop(name)
            run.world.start(name)
        run.sleep(2)


# --- Valkey --------------------------------------------------------------------------------------------------


def valkey_killed(run: Run) -> None:
    with run.fault():
        run.world.kill("valkey")
        run.sleep(2, 4)
        run.world.start("valkey")


def valkey_killed_without_persistence(run: Run) -> None:
    with run.fault():
        run.world.kill("valkey")
        run.world.forget_valkey()
        run.sleep(2, 4)
        run.world.start("valkey")


def valkey_flushed(run: Run) -> None:
    with run.fault(), run.world.valkey() as client:
        client.flushall()
    run.sleep(5)


def valkey_flushed_with_backlog(run: Run) -> None:
    """Messages wait on the dispatch queue, for no worker runs, and are gone."""
    with run.fault():
        run.world.kill(*DISPATCH)
        _burst(run, 100, 2.5)
        run.sleep(3)
        _flush(run)
        run.world.start(*DISPATCH)


def valkey_frozen(run: Run) -> None:
    with run.fault():
        run.world.freeze("valkey")
        run.sleep(40)
        run.world.thaw("valkey")


def broker_link_reset(run: Run) -> None:
    for _ in range(5):
        with run.fault():
            run.world.proxy("dispatch", "valkey").reset()
            run.world.proxy("loops", "valkey").reset()
        run.sleep(0.5, 3)


def broker_link_blackholed(run: Run) -> None:
    """The workers' open links to the broker swallow everything; new ones work. Nobody gets an error."""
    with run.fault():
        run.world.proxy("dispatch", "valkey").blackhole()
        before = run.receiver.count
        run.sleep(1.5)  # What was claimed before is still sent.
        before = run.receiver.count
        took = run.wait_for(lambda: run.receiver.count > before + 5, 60) + 1.5
    run.bound("half-open recovery", took, HALF_OPEN_S)
    run.sleep(3)


def broker_link_slow(run: Run) -> None:
    with run.fault():
        for group in ("dispatch", "loops", "beat"):
            run.world.proxy(group, "valkey").delay(0.3)
        run.sleep(15)
        for group in ("dispatch", "loops", "beat"):
            run.world.proxy(group, "valkey").delay(0)


# --- PostgreSQL ----------------------------------------------------------------------------------------------


def postgres_killed(run: Run) -> None:
    with run.fault():
        run.world.kill("postgres")
        run.sleep(1, 3)
        run.world.start("postgres")


def postgres_restarted(run: Run) -> None:
    with run.fault():
        run.world.stop("postgres")
        run.world.start("postgres")


def postgres_backends_terminated(run: Run) -> None:
    for _ in range(5):
        with run.fault(), run.world.database() as db:
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        run.sleep(0.5, 3)


def postgres_frozen(run: Run) -> None:
    with run.fault():
        run.world.freeze("postgres")
        run.sleep(30)
        run.world.thaw("postgres")


def commits_unanswered(run: Run) -> None:
    """The COMMIT reaches the server, its answer is lost with the connection: for the API, the loops, the workers."""
    with run.fault():
        for group in ("web", "loops", "dispatch"):
            proxy = run.world.proxy(group, "postgres")
            proxy.cut_on_reply_to(lambda chunk: b"COMMIT" in chunk, times=4)
            run.wait_for(lambda proxy=proxy: proxy.cuts >= 4, 6)  # type: ignore[misc]
            proxy.heal()
            # Statements that commit by themselves: claims, the gate, heartbeats.
            proxy.cut_on_reply_to(lambda _chunk: run.rng.random() < 0.03, times=4)
            run.sleep(3)
            proxy.heal()


# --- the others ------------------------------------------------------------------------------------------------


def mongo_down(run: Run) -> None:
    run.world.kill("mongo")
    run.sleep(15)


def api_killed_after_commit(run: Run) -> None:
    """The API dies between its commit and its answer; the caller asks again with the same key."""
    proxy = run.world.proxy("web", "postgres")
    for _ in range(3):
        with run.fault():
            cuts = proxy.cuts
            proxy.cut_on_reply_to(lambda chunk: b"COMMIT" in chunk)
            run.wait_for(lambda cuts=cuts: proxy.cuts > cuts, 5)  # type: ignore[misc]
            run.world.kill("web")
            proxy.heal()
            run.world.start("web")
        run.sleep(1)


def occurrence_made_twice(run: Run) -> None:
    """What a second scheduler would do that knows nothing of the first: make every waiting occurrence again.

    And recurring schedules are set back a minute, as a restored row would be.
    """
    begin = soon(0)
    made = 0
    with run.world.database() as db:
        for _ in range(20):
            waiting = db.execute(
                "SELECT id FROM execution_execution WHERE state = 'PENDING' AND schedule_id IS NOT NULL"
                " AND due_at > now() + interval '2.5 seconds' LIMIT 20"
            ).fetchall()
            for (execution_id,) in waiting:
                made += _make_again(db, execution_id)
            db.execute(
                "UPDATE scheduling_schedule SET next_run_at = next_run_at - interval '1 minute'"
                " WHERE state = 'ACTIVE' AND next_run_at > now() + interval '100 seconds'"
            )
            run.sleep(0.3)
    run.notes.append(f"made {made} occurrences a second time, from {begin:%H:%M:%S}")


def _make_again(db: psycopg.Connection[tuple[object, ...]], execution_id: object) -> int:
    columns = [
        str(row[0])
        for row in db.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'execution_execution'"
            " AND column_name <> 'id' ORDER BY ordinal_position"
        )
    ]
    names = ", ".join(columns)
    try:
        return db.execute(
            f"INSERT INTO execution_execution (id, {names}) SELECT gen_random_uuid(), {names}"
            " FROM execution_execution WHERE id = %s AND state = 'PENDING'",
            [execution_id],
        ).rowcount
    except errors.UniqueViolation:
        return 0


def _receiver(mode: str) -> Scenario:
    def misbehave(run: Run) -> None:
        with run.fault(failover_s=5):
            run.receiver.mode = mode
            run.sleep(8)
            run.receiver.mode = "ok"

    return Scenario(f"receiver-{mode}", f"the receiver's answer is {RECEIVER_MODES[mode]} for 8 s", misbehave, 5)


RECEIVER_MODES = {
    "500": "500",
    "429": "429 with Retry-After",
    "hang": "none: it hangs",
    "drip": "a body of a byte each half second",
    "reset": "a reset after the request's body",
    "huge": "200 with 8 MB",
    "gzip": "200 with a compressed body of 50 MB",
}


# --- several at once -------------------------------------------------------------------------------------------


def storm(run: Run, seconds: float = 180.0) -> None:
    """Two random faults every twenty seconds, each with its own time."""
    kinds = (
        lambda: run.world.restart(run.rng.choice(DISPATCH)),
        lambda: run.world.restart(run.rng.choice(BEATS)),
        lambda: run.world.restart(run.rng.choice(("scheduler", "fanout"))),
        lambda: run.world.restart("web"),
        lambda: run.world.restart("valkey"),
        lambda: run.world.restart("postgres"),
        lambda: run.world.restart("mongo"),
        lambda: _flush(run),
        lambda: run.world.proxy(run.rng.choice(("dispatch", "loops", "beat", "web")), "valkey").reset(),
        lambda: run.world.proxy(run.rng.choice(("dispatch", "loops", "beat", "web")), "postgres").reset(),
        lambda: _for_a_while(run, run.world.proxy(run.rng.choice(("dispatch", "loops", "beat")), "valkey").blackhole),
        lambda: _receiver_fails(run),
    )
    ends = time.monotonic() + seconds
    with run.fault():
        while time.monotonic() < ends:
            turn_ends = time.monotonic() + 20
            for kind in run.rng.sample(kinds, 2):
                kind()
                run.sleep(0.5, 3)
            run.receiver.mode = "ok"
            time.sleep(max(0.0, turn_ends - time.monotonic()))
        run.world.heal()


def short_storm(run: Run) -> None:
    storm(run, seconds=40)


def _flush(run: Run) -> None:
    with run.world.valkey() as client:
        client.flushall()


def _for_a_while(run: Run, harm: object) -> None:
    harm()  # type: ignore[operator]
    run.sleep(3, 8)
    for proxy in run.world.proxies.values():
        proxy.heal()


def _receiver_fails(run: Run) -> None:
    run.receiver.mode = run.rng.choice(("500", "reset", "hang"))


BEAT_S = MONITOR_TTL_S + 2
STORM_S = BEAT_S + STEADY_CLAIM_S

SCENARIOS = (
    Scenario("calm", "nothing is wrong", calm),
    Scenario("occurrence-made-twice", "a second scheduler makes waiting occurrences again", occurrence_made_twice),
    Scenario("leader-killed", "kill -9 of the leading beat", leader_killed, BEAT_S),
    Scenario(
        "leader-frozen", "the leading beat is stopped for longer than the TTL, then goes on", leader_frozen, BEAT_S
    ),
    Scenario("leader-stopped", "SIGTERM of the leading beat", leader_stopped, BEAT_S),
    Scenario("lock-deleted", "somebody deletes the leader lock, three times", lock_deleted, LEADER_S),
    Scenario(
        "worker-killed-before-send", "kill -9 of both workers with claims in hand", worker_killed_before_send, CLAIM_S
    ),
    Scenario(
        "worker-killed-after-send",
        "kill -9 with answers whose results are not stored",
        worker_killed_after_send,
        CLAIM_S,
    ),
    Scenario(
        "worker-killed-in-mid-body", "kill -9 while the answers' bodies arrive", worker_killed_in_mid_body, CLAIM_S
    ),
    Scenario("workers-rolled", "SIGTERM and restart of each worker in turn", workers_rolled, CLAIM_S),
    Scenario("valkey-killed", "kill -9 of Valkey, which keeps its data", valkey_killed, MESSAGE_S),
    Scenario(
        "valkey-killed-without-persistence",
        "kill -9 of Valkey, which comes back empty",
        valkey_killed_without_persistence,
        MESSAGE_S,
    ),
    Scenario("valkey-flushed", "FLUSHALL", valkey_flushed, MESSAGE_S, recovers_within_s=FLUSHED_S),
    Scenario(
        "valkey-flushed-with-backlog",
        "FLUSHALL while the dispatch queue is full",
        valkey_flushed_with_backlog,
        MESSAGE_S + CLAIM_S,
        recovers_within_s=FLUSHED_S,
    ),
    Scenario("valkey-frozen", "Valkey is stopped for 40 s", valkey_frozen, MESSAGE_S),
    Scenario("broker-link-reset", "the links to Valkey are reset, five times", broker_link_reset, MESSAGE_S),
    Scenario(
        "broker-link-blackholed", "the workers' links to Valkey swallow everything", broker_link_blackholed, MESSAGE_S
    ),
    Scenario("broker-link-slow", "0.3 s on every read of the links to Valkey, for 15 s", broker_link_slow, MESSAGE_S),
    Scenario("postgres-killed", "kill -9 of PostgreSQL", postgres_killed, STEADY_CLAIM_S),
    Scenario("postgres-restarted", "a polite restart of PostgreSQL", postgres_restarted, STEADY_CLAIM_S),
    Scenario("postgres-backends-terminated", "all sessions are cut, five times", postgres_backends_terminated, CLAIM_S),
    Scenario("postgres-frozen", "PostgreSQL is stopped for 30 s", postgres_frozen, STEADY_CLAIM_S),
    Scenario("commits-unanswered", "COMMIT is done, its answer lost, in every part", commits_unanswered, CLAIM_S),
    Scenario("mongo-down", "MongoDB is away throughout", mongo_down),
    Scenario(
        "api-killed-after-commit", "the API dies between commit and answer, three times", api_killed_after_commit, 10
    ),
    *(_receiver(mode) for mode in RECEIVER_MODES),
    Scenario("schedulers-down", "both beats are away for two minutes", schedulers_down, BEAT_S),
    Scenario("worker-killed-40-times", "kill -9 of a worker, forty times at random", worker_killed_40_times, CLAIM_S),
    BULK_KILLED,
    Scenario("storm", "two random faults every 20 s for three minutes", storm, STORM_S),
    Scenario("calm-20000", "20,000 deliveries, nothing is wrong", calm_20000),
)

SHORT = (
    "calm",
    "occurrence-made-twice",
    "worker-killed-in-mid-body",
    "valkey-flushed",
    "leader-killed",
    "postgres-killed",
    "commits-unanswered",
    "receiver-500",
)


def scenario(name: str) -> Scenario:
    """Raises KeyError."""
    return {known.name: known for known in SCENARIOS}[name]
