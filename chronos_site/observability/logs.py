"""Log lines as JSON, one object a line, with what would let a reader act as somebody else taken out."""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from chronos_site.observability import context

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_HIDDEN = "***"
_SECRET_NAMES = re.compile(r"authorization|password|passwd|secret|cookie|api_?key$|^key$|^token$", re.IGNORECASE)
# In texts: keys of ours, signing secrets, bearer and other Authorization values, passwords, tokens and queries in URLs.
_SECRETS = (
    (re.compile(r"chr_[0-9A-Za-z]{8,}"), "chr_***"),
    (re.compile(r"whsec_[0-9A-Za-z+/=]{8,}"), "whsec_***"),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]+", re.IGNORECASE), r"\1 ***"),
    (re.compile(r"(authorization[\"']?\s*[:=,]\s*[\"']?)(?!Bearer |Basic )[^\s\"',}]+", re.IGNORECASE), r"\1***"),
    (re.compile(r"(://[^/\s:@]*:)[^/\s?#]+(@)"), r"\1***\2"),
    # A token in a user's place, and queries, which hold what receivers take for one.
    (re.compile(r"(://)[^/\s:@?#]+(@)"), r"\1***\2"),
    (re.compile(r"(\bhttps?://[^\s?\"'<>]+\?)[^\s\"'<>]+", re.IGNORECASE), r"\1***"),
)


def redact(text: str) -> str:
    """The text without its secrets."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


class JsonFormatter(logging.Formatter):
    """ts, level, logger, msg; request_id, workspace_id, task_id, trace_id where known; then the record's `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "msg": redact(record.getMessage()),
        }
        for name in ("request_id", "workspace_id", "task_id"):
            value = getattr(context, name).get()
            if value is not None:
                line[name] = value
        traceparent = context.traceparent.get()
        if traceparent is not None:
            line["trace_id"] = traceparent[3:35]
        for name, value in vars(record).items():
            if name not in _STANDARD:
                line[name] = _clean(name, value)
        if record.exc_info:
            line["exception"] = redact(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = redact(self.formatStack(record.stack_info))
        return json.dumps(line, default=str)


def _clean(name: str, value: Any) -> Any:
    """JSON values, strings redacted; what is named like a secret is hidden whole."""
    if _SECRET_NAMES.search(name) and value is not None:
        return _HIDDEN
    if isinstance(value, dict):
        return {str(inner): _clean(str(inner), each) for inner, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean("", each) for each in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return redact(str(value))
