"""What a notification says: one content for all channels, and the words that most of them send. Pure.

    {"event", "title", "workspace": {"id", "name"} | null, "rule": {"id", "name"} | null, "count", "counts": {kind: n},
     "jobs": [{"key", "id", "name", "count", "last", "in_row"}], "jobs_total",
     "errors": [{"error", "status", "reason", "count"}],
     "examples": [{"kind", "id", "job", "error", "status", "reason", "at"}], "first_at", "last_at"}

`event` is the gravest kind among what is told. `jobs` and `errors` have the most frequent first, and are cut.
"""

from collections.abc import Mapping
from typing import Any

LONGEST_TITLE = 300
SHOWN_JOBS = 10
LOOPS = "the site's loops"
"""The name of what is no job: the loops that beat leads."""
GRAVEST_FIRST = ("leader_missing", "failures_in_row", "failure", "sla_violation", "recovery", "bulk_finished", "test")
_ONE = {
    "leader_missing": "the site's loops have no leader",
    "failures_in_row": "a job failed again and again",
    "failure": "an execution failed for good",
    "sla_violation": "an SLA was violated",
    "recovery": "a job has recovered",
    "bulk_finished": "a bulk job has ended",
    "test": "this is a test",
}
_MANY = {
    "leader_missing": "the site's loops had no leader {n} times",
    "failures_in_row": "{n} jobs failed again and again",
    "failure": "{n} executions failed for good",
    "sla_violation": "{n} SLAs were violated",
    "recovery": "{n} jobs have recovered",
    "bulk_finished": "{n} bulk jobs have ended",
    "test": "this is a test",
}

Content = dict[str, Any]


def event_of(counts: Mapping[str, int]) -> str:
    return next((kind for kind in GRAVEST_FIRST if counts.get(kind)), "test")


def title_of(counts: Mapping[str, int], *, where: str, job: str = "") -> str:
    """One line: `acme: 12 executions failed for good, a job has recovered`."""
    if job == LOOPS and set(counts) == {"recovery"}:
        return f"{where}: {LOOPS} have a leader again"
    told = [
        _ONE[kind] if counts[kind] == 1 else _MANY[kind].format(n=f"{counts[kind]:,}")
        for kind in GRAVEST_FIRST
        if counts.get(kind)
    ]
    named = f" ({job})" if job and job != LOOPS else ""
    return one_line(f"{where}: {', '.join(told)}{named}")[:LONGEST_TITLE]


def one_line(text: str) -> str:
    """Names are people's: a line end in one must not begin a header or a paragraph."""
    return " ".join(text.split())


def text_of(content: Content) -> str:
    """The whole as plain text, title first."""
    lines = [content["title"]]
    if content["jobs"]:
        lines += ["", "Jobs:"]
        lines += [
            f"  {one_line(job['name'] or str(job['key']))}: {_job_words(job)}" for job in content["jobs"][:SHOWN_JOBS]
        ]
        if content["jobs_total"] > SHOWN_JOBS:
            lines.append(f"  and {content['jobs_total'] - SHOWN_JOBS:,} more")
    if content["errors"]:
        lines += ["", "Errors:"]
        lines += [f"  {_error_words(error)}: {error['count']:,}" for error in content["errors"]]
    if content["examples"]:
        lines += ["", "The first:"]
        lines += [f"  {_example_words(example)}" for example in content["examples"]]
    lines += ["", *_footer(content)]
    return "\n".join(lines).rstrip()


def _job_words(job: Mapping[str, Any]) -> str:
    ended = ", has recovered" if job["last"] == "recovery" else ""
    in_row = f", {job['in_row']} in a row" if job.get("in_row") else ""
    return f"{job['count']:,}{in_row}{ended}"


def _error_words(error: Mapping[str, Any]) -> str:
    words = [error["error"] or "no error", error["reason"].replace("_", " ")]
    return ", ".join(word for word in words if word)


def _example_words(example: Mapping[str, Any]) -> str:
    cause = example["error"] or example["reason"]
    return f"{example['at']} {example['kind'].replace('_', ' ')} {example['id'] or ''} {cause}".rstrip()


def _footer(content: Content) -> list[str]:
    rule, workspace = content["rule"], content["workspace"]
    told = f"Rule {one_line(rule['name'])}" if rule else "A test of the channel"
    lines = [f"{told}, workspace {workspace['name']}." if workspace else f"{told}, of the whole site."]
    if content["first_at"] and content["first_at"] != content["last_at"]:
        lines.append(f"From {content['first_at']} to {content['last_at']}.")
    return lines
