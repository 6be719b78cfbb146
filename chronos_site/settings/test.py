"""Tests: the base, with loopback as an allowed target and short lock times."""

from .base import *  # noqa: F403

CHRONOS_EGRESS_ALLOW = ["127.0.0.0/8", "::1/128"]
CHRONOS_LEADER_TTL_S = 3.0
CHRONOS_STOP_GRACE_S = 5.0
CHRONOS_RATE_LIMIT_PER_KEY = 100_000
CHRONOS_RATE_LIMIT_PER_WORKSPACE = 100_000
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
