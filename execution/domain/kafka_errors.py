"""Kafka's errors as codes of an attempt, and which of them no other attempt would mend. Pure.

The names are those of the protocol and of librdkafka (whose own begin with an underscore).
"""

PREFIX = "kafka_"
TIMEOUT = "timeout"

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

OF_THE_PRODUCER = frozenset(
    {
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "PRODUCER_FENCED",
        "UNKNOWN_PRODUCER_ID",
        "_FATAL",
        "_FENCED",
    }
)
"""The producer and the cluster no longer agree on what was sent: a new producer begins anew, this one would fail on."""

_TIMED_OUT = frozenset({"_MSG_TIMED_OUT", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT"})


def code_of(name: str) -> str:
    """The code of an attempt that ended in the error of this name, such as `kafka_msg_size_too_large` or `timeout`."""
    return TIMEOUT if name in _TIMED_OUT else PREFIX + name.lower().lstrip("_")


TERMINAL_CODES = frozenset(code_of(name) for name in _FOR_GOOD)

NO_WORD_ON_THE_CLUSTER = frozenset(
    code_of(name)
    for name in (*OF_THE_PRODUCER, "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_QUEUE_FULL")
)
"""Worth another attempt, but no sign of a cluster in trouble: one job's wrong topic must not hold up the others."""
