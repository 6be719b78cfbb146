"""A leader lock in Redis: one holder at a time, renewed from a thread of its own.

    SET key token NX PX ttl; renew and release compare the token first

The lock saves work; correctness never rests on it. The holder renews only while its `alive()` says that the work goes
on, steps down by its own monotonic clock at two thirds of the TTL after the last renewal that Redis confirmed, and
lets go at once on a polite stop. A holder that dies is replaced within the TTL and one poll.
"""

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import redis
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

PREFIX = "chronos:leader:"
PASS_S = 0.3
"""How long one who holds another lock leaves a free one to others."""

_RENEW = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end"
)
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"


@dataclass(frozen=True, slots=True)
class Lock:
    """One loop's lock."""

    name: str
    ttl_s: float
    renew_s: float


class Leadership:
    """One process's part in the contest for one lock. `start()` it, ask `leading`, `stop()` it."""

    def __init__(
        self, *, lock: Lock, client: redis.Redis, alive: Callable[[], bool], others: Callable[[], int]
    ) -> None:
        """`alive()`: whether the work that the lock is for goes on. `others()`: how many further locks are held here;
        who holds one waits an extra poll before taking another, so that replicas share the loops."""
        self._lock = lock
        self._key = PREFIX + lock.name
        self._client = client
        self._alive = alive
        self._others = others
        self._token = secrets.token_hex(16)
        self._leads_until = 0.0
        self._was_leading = False
        self._passed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"leader-{lock.name}", daemon=True)
        self.epoch = 0
        """The election's number; for logs and metrics only."""
        self.on_won: Callable[[], None] = lambda: None

    @property
    def leading(self) -> bool:
        return time.monotonic() < self._leads_until

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let go at once."""
        self._stop.set()
        self._thread.join(5)
        held = self.leading
        self._leads_until = 0.0
        try:
            self._client.eval(_RELEASE, 1, self._key, self._token)
        except RedisError as error:
            log.warning(
                "leader_release_failed", extra={"action": "leader", "lock": self._lock.name, "error": str(error)}
            )
        if held:
            log.info("leader_released", extra={"action": "leader", "lock": self._lock.name, "epoch": self.epoch})

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self._contend(begun)
            except (RedisError, OSError) as error:
                log.warning(
                    "leader_redis_away", extra={"action": "leader", "lock": self._lock.name, "error": str(error)}
                )
            if self._was_leading and not self.leading:
                self._was_leading = False
                log.warning(
                    "leader_stepped_down", extra={"action": "leader", "lock": self._lock.name, "epoch": self.epoch}
                )
            self._stop.wait(self._pause())

    def _pause(self) -> float:
        if self.leading:
            return min(self._lock.renew_s, 1.0)
        if self._passed:
            return PASS_S
        # Short enough for a takeover within the TTL and two seconds, the first tick included.
        return min(random.uniform(0.5, 1.0), self._lock.ttl_s / 3)  # noqa: S311 - jitter, not a secret

    def _contend(self, begun: float) -> None:
        if self.leading:
            self._renew(begun)
        elif self._alive():
            self._try_to_win(begun)

    def _renew(self, begun: float) -> None:
        since = begun - (self._leads_until - self._lock.ttl_s * 2 / 3)
        if since < self._lock.renew_s:
            return
        if not self._alive():
            log.warning("leader_not_ticking", extra={"action": "leader", "lock": self._lock.name, "epoch": self.epoch})
            return
        if self._client.eval(_RENEW, 1, self._key, self._token, int(self._lock.ttl_s * 1000)):
            self._leads_until = begun + self._lock.ttl_s * 2 / 3
        else:
            self._leads_until = 0.0

    def _try_to_win(self, begun: float) -> None:
        if self._others() and self._passed < 1:
            if not self._client.exists(self._key):
                self._passed += 1
            return
        self._passed = 0
        if self._client.set(self._key, self._token, nx=True, px=int(self._lock.ttl_s * 1000)):
            self.epoch = int(self._client.incr(f"{self._key}:epoch"))
        elif not self._client.eval(_RENEW, 1, self._key, self._token, int(self._lock.ttl_s * 1000)):
            return  # Another holds it. (Our own token there: we stepped down by the clock and may take it again.)
        self._leads_until = begun + self._lock.ttl_s * 2 / 3
        self._was_leading = True
        log.info("leader_elected", extra={"action": "leader", "lock": self._lock.name, "epoch": self.epoch})
        self.on_won()
