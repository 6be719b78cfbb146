"""What a log line says about where it came from. Set once at the edge of a request or task, read by the formatter."""

from contextvars import ContextVar

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
workspace_id: ContextVar[str | None] = ContextVar("workspace_id", default=None)
task_id: ContextVar[str | None] = ContextVar("task_id", default=None)
"""Of the Celery task that a worker's thread runs now."""
traceparent: ContextVar[str | None] = ContextVar("traceparent", default=None)
