"""W3C trace context: the `traceparent` that goes from the API call through to the delivery."""

import os
import re

_GRAMMAR = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def parse_or_new(header: str | None) -> str:
    """The caller's traceparent where it is a valid one of version 00, else a new one, not sampled."""
    found = _GRAMMAR.fullmatch(header or "")
    if found and found[1].strip("0") and found[2].strip("0"):
        return found[0]
    fresh = os.urandom(24).hex()
    return f"00-{fresh[:32]}-{fresh[32:]}-00"


def child(traceparent: str) -> str:
    """The same trace with a span of its own."""
    return f"{traceparent[:36]}{os.urandom(8).hex()}{traceparent[52:]}"
