"""Whether two JSON values mean the same. Python calls `True` and `1` equal; a receiver does not."""

from typing import Any


def alike(one: Any, other: Any) -> bool:
    """Equal, with truth values apart from numbers at every level; other types than JSON's are compared as they are."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
