"""Kafka's errors as codes of an attempt, and which of them no other attempt would mend. Pure.

The names are those of the protocol and of librdkafka (whose own begin with an underscore).
"""

PREFIX = "kafka_"

_FOR_GOOD = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_MSG_SIZE",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "_INVALID_ARG",
    }
)
"""A topic or a partition that is not known is not among them: it may be made, or the cluster may not have told yet."""

_TIMED_OUT = frozenset({"_MSG_TIMED_OUT", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT"})


def code_of(name: str) -> str:
    """The code of an attempt that ended in the error of this name, such as `kafka_msg_size_too_large` or `timeout`."""
    return "timeout" if name in _TIMED_OUT else PREFIX + name.lower().lstrip("_")


TERMINAL_CODES = frozenset(code_of(name) for name in _FOR_GOOD)
