"""The servers behind the site: reachable, of a version that is known to work, set up so that nothing is lost, in time.

Each function takes open connections and yields findings; what it cannot ask raises the library's own error, which
`look_at_servers` turns into a finding.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from confluent_kafka import KafkaException
from django.conf import settings
from pymongo.errors import PyMongoError
from redis.exceptions import RedisError

from chronos_site.console.checks.finding import Finding
from chronos_site.console.connections import own_connection
from chronos_site.infra import kafka, mongo, redis, storage

OLDEST_POSTGRES = 140_000
SKEW_WARN_S, SKEW_FAIL_S = 1.0, 10.0
IDLE_WARN_S = 60
KAFKA_WAIT_S = 4.0
ANSWERS = (psycopg.Error, RedisError, PyMongoError, KafkaException, storage.StorageError, OSError)


def look_at_servers() -> Iterator[Finding]:
    """One after the other; each has a few seconds. Never raises for a server that is away."""
    for name, look in _SERVERS.items():
        try:
            yield from look()
        except ANSWERS as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
            level, remedy = _AWAY[name]
            yield Finding(name, level, f"It cannot be reached: {said}", remedy)


# --- PostgreSQL ----------------------------------------------------------------------------------


def _postgres() -> Iterator[Finding]:
    with own_connection() as database:
        version = int(_value(database, "SHOW server_version_num"))
        told = _value(database, "SHOW server_version")
        if version < OLDEST_POSTGRES:
            yield Finding("postgres", "fail", f"Version {told} is too old.", "Move to version 14 or later.")
        else:
            yield Finding("postgres", "ok", f"Version {told}.")
        yield _skew("postgres clock", lambda: float(_value(database, "SELECT extract(epoch FROM clock_timestamp())")))
        yield from _durability(database)
        yield from _sessions(database)
        yield from _replication(database)


def _value(database: psycopg.Connection[Any], sql: str) -> Any:
    row = database.execute(sql).fetchone()
    return None if row is None else row[0]


def _skew(name: str, read_s: Callable[[], float]) -> Finding:
    """How far the server's clock and this machine's are apart; half of the way there and back is not counted."""
    begun = time.time()
    server_s = read_s()
    ended = time.time()
    skew = server_s - (begun + ended) / 2
    apart = max(0.0, abs(skew) - (ended - begun) / 2)
    level = "fail" if apart > SKEW_FAIL_S else "warn" if apart > SKEW_WARN_S else "ok"
    ahead = "ahead of" if skew > 0 else "behind"
    if level == "ok":
        return Finding(name, level, "It agrees with this machine's.")
    return Finding(
        name,
        level,
        f"It is {apart:.1f} s {ahead} this machine's.",
        "Run NTP (chrony) on both. Executions are due by PostgreSQL's clock; leases, traces and people read others.",
    )


def _durability(database: psycopg.Connection[Any]) -> Iterator[Finding]:
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        if _value(database, f"SHOW {name}") == "off":
            yield Finding(
                "postgres durability",
                "fail",
                f"{name} is off: a crash of its machine loses or breaks what was accepted.",
                f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();",
            )
    if _value(database, "SHOW autovacuum") == "off":
        yield Finding(
            "postgres autovacuum", "fail", "It is off: the tables grow and slow down.", "Switch autovacuum on."
        )
    if _value(database, "SELECT pg_is_in_recovery()"):
        yield Finding(
            "postgres", "fail", "This is a standby: nothing can be written.", "Let DATABASE_URL name the primary."
        )


def _sessions(database: psycopg.Connection[Any]) -> Iterator[Finding]:
    row = database.execute(
        "SELECT count(*), (SELECT setting::int FROM pg_settings WHERE name = 'max_connections'),"
        " count(*) FILTER (WHERE state LIKE 'idle in transaction%%'"
        "                    AND state_change < clock_timestamp() - %s * interval '1 second'),"
        " max(extract(epoch FROM clock_timestamp() - xact_start)) FILTER (WHERE state <> 'idle')"
        " FROM pg_stat_activity WHERE backend_type = 'client backend'",
        [IDLE_WARN_S],
    ).fetchone()
    used, most, idle, longest_s = row or (0, 0, 0, None)
    level = "fail" if used >= 0.95 * most else "warn" if used >= 0.8 * most else "ok"
    yield Finding(
        "postgres sessions",
        level,
        f"{used} of {most} are taken.",
        "" if level == "ok" else "Lower DB_POOL_MAX or the number of processes, or put a pooler before PostgreSQL.",
    )
    if idle:
        yield Finding(
            "postgres sessions",
            "warn",
            f"{idle} sit in a transaction for more than {IDLE_WARN_S} s and do nothing: rows stay locked.",
            "SELECT pid, usename, application_name, state_change, query FROM pg_stat_activity"
            " WHERE state LIKE 'idle in transaction%'; then end the program, or pg_terminate_backend(pid).",
        )
    if longest_s is not None and longest_s > 600:
        yield Finding(
            "postgres sessions",
            "warn",
            f"A transaction is open for {longest_s / 60:.0f} minutes: nothing that died since can be cleared away.",
            "SELECT pid, usename, xact_start, query FROM pg_stat_activity ORDER BY xact_start LIMIT 5;",
        )


def _replication(database: psycopg.Connection[Any]) -> Iterator[Finding]:
    for slot, kept in database.execute(
        "SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots"
        " WHERE NOT active AND NOT pg_is_in_recovery()"
    ).fetchall():
        yield Finding(
            "postgres replication",
            "warn",
            f"Nobody reads the slot {slot}; {(kept or 0) / 1e6:,.0f} MB of log are kept for it, and more to come.",
            "Bring its standby back, or pg_drop_replication_slot it before the disk is full.",
        )
    for name, lag_s in database.execute(
        "SELECT application_name, extract(epoch FROM replay_lag)::float8 FROM pg_stat_replication"
    ).fetchall():
        level = "warn" if (lag_s or 0) > 30 else "ok"
        yield Finding("postgres replication", level, f"The standby {name} is {lag_s or 0:.1f} s behind.")


# --- Redis ---------------------------------------------------------------------------------------


def _redis() -> Iterator[Finding]:
    client = redis.client()
    info: dict[str, Any] = client.info()
    version = info.get("valkey_version") or info.get("redis_version")
    yield Finding("redis", "ok", f"Version {version}.")

    def read_s() -> float:
        at, micros = client.time()
        return float(at) + float(micros) / 1e6

    yield _skew("redis clock", read_s)
    if not info.get("aof_enabled"):
        yield Finding(
            "redis durability",
            "warn",
            "appendonly is off: a restart loses all queued messages. Each is found again, but only by the monitor.",
            "CONFIG SET appendonly yes, and the same in its configuration file.",
        )
    if info.get("aof_last_write_status", "ok") != "ok" or info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield Finding(
            "redis durability", "fail", "It cannot write to its disk.", "Look at its log and the disk's room."
        )
    policy = info.get("maxmemory_policy")
    if policy != "noeviction":
        yield Finding(
            "redis memory",
            "fail",
            f"maxmemory-policy is {policy}: when memory is short, queues and locks are thrown away.",
            "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file.",
        )
    most, used = int(info.get("maxmemory") or 0), int(info.get("used_memory") or 0)
    if most and used > 0.85 * most:
        yield Finding(
            "redis memory",
            "fail" if used > 0.95 * most else "warn",
            f"{used / 1e6:,.0f} of {most / 1e6:,.0f} MB are used; full, it refuses every write.",
            "Give it more. `chronos status` shows which queue grows.",
        )


# --- the others ----------------------------------------------------------------------------------


def _mongo() -> Iterator[Finding]:
    database = mongo.database()
    if database is not None:
        yield Finding("mongo", "ok", f"Version {database.client.server_info()['version']}.")


def _storage() -> Iterator[Finding]:
    if "objects" in settings.STORAGES:
        storage.size("chronos-doctor")
        yield Finding("storage", "ok", "It answers.")


def _kafka() -> Iterator[Finding]:
    if settings.KAFKA_BOOTSTRAP:
        brokers = kafka.count_brokers(settings.KAFKA_BOOTSTRAP, timeout_s=KAFKA_WAIT_S)
        yield Finding("kafka", "ok", f"{brokers} brokers answer.")


_SERVERS: dict[str, Callable[[], Iterator[Finding]]] = {
    "postgres": _postgres,
    "redis": _redis,
    "mongo": _mongo,
    "storage": _storage,
    "kafka": _kafka,
}
_AWAY = {
    "postgres": ("fail", "Start it, or mend DATABASE_URL and the network. Until then nothing is accepted or sent."),
    "redis": ("fail", "Start it, or mend REDIS_URL and the network. Until then nothing new reaches the workers."),
    "mongo": ("warn", "Start it, or mend MONGO_URL. Deliveries go on; the newest 20,000 logs of a worker are kept."),
    "storage": ("warn", "Mend STORAGE_URL or its keys. Deliveries go on; bulk jobs and exports do not."),
    "kafka": ("warn", "Mend KAFKA_BOOTSTRAP or KAFKA_PROPERTIES_FILE. HTTP goes on; Kafka messages are retried."),
}
