"""What a target says of itself. A target with a `topic` is a Kafka message, any other an HTTP call.

HTTP   {"url", "method", "headers", "auth"?, "signing"?}
Kafka  {"topic", "headers", "key"?, "partition"?, "bootstrap"?, "signing"?}
"""

from collections.abc import Mapping
from typing import Any

HTTP, KAFKA = "http", "kafka"
LONGEST_TOPIC = 249
LONGEST_MESSAGE_KEY = 1024
LONGEST_URL = 2048
USUAL_METHOD = "POST"
"""Of a call whose target names none."""


def kind_of(target: Mapping[str, Any]) -> str:
    return KAFKA if "topic" in target else HTTP


def described(target: Mapping[str, Any]) -> str:
    """The target in a few words for a person; a URL with its query, if it has one."""
    if kind_of(target) == KAFKA:
        return f"Kafka topic {target['topic']}"
    return f"{target.get('method', USUAL_METHOD)} {target.get('url', '')}"
