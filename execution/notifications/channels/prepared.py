"""What a channel makes of a content: what is sent, and where to. References only; values come at the send."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from execution.notifications.content import Content

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    target: dict[str, Any]
    """`method` and `url` for the log; `secrets` by name; whatever else the sender needs."""
    payload: Any
    sequence_key: str = ""
    """Of one key, notifications are sent one after the other."""
    title: str = ""
    """In place of the content's own."""


Prepare = Callable[[Content, Settings], list[Prepared]]
"""Raises nothing: settings are checked when they are stored."""
