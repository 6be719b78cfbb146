"""Where a target leads, as one name: what is held, limited or broken by destination is so under this name.

An HTTP target's is `scheme://host:port` as the egress guard reads it, a Kafka target's `kafka://host:port,host:port`.
"""

from collections.abc import Mapping
from typing import Any

from chronos_site.infra.kafka import KafkaRefused, allowed_bootstrap
from execution.dispatch.egress import origin_of
from execution.domain.targets import KAFKA, kind_of


def origin_of_target(target: Mapping[str, Any]) -> str:
    """Empty where the target cannot be read or may not be reached. Never raises."""
    if kind_of(target) != KAFKA:
        return origin_of(target.get("url"))
    try:
        return f"kafka://{allowed_bootstrap(target.get('bootstrap'))}"
    except KafkaRefused:
        return ""


def destination_of_target(target: Mapping[str, Any]) -> str:
    """The same without its scheme, as operators name it."""
    return origin_of_target(target).partition("://")[2]
