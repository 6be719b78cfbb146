"""W3C trace context: the `traceparent` that goes from the API call through to the delivery."""

import os
import random
import re

_GRAMMAR = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def parse(header: str | None) -> str | None:
    """The traceparent where it is a valid one of version 00, else None."""
    found = _GRAMMAR.fullmatch(header or "")
    return found[0] if found and found[1].strip("0") and found[2].strip("0") else None


def parse_or_new(header: str | None) -> str:
    """The caller's traceparent where it is valid, else a new one, not sampled."""
    return parse(header) or f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-00"


def child(traceparent: str) -> str:
    """The same trace with a span of its own."""
    # Not from the system: it is asked for every attempt, and a span's id guards nothing.
    return f"{traceparent[:36]}{random.getrandbits(64) or 1:016x}{traceparent[52:]}"
