"""Text search over a workspace's executions: `q` of GET /v1/executions (docs/adr/0009-text-search.md).

The table takes thousands of rows a second, so no index of texts lies on what succeeds. A text is looked for where few
rows hold it: in the names, tags and targets of job definitions, at the beginning of schedules' external keys, and among
the words of failed executions (error code and text, reason, status, host, topic, tags), which an index carries. Each of
the three answers its newest rows, a page of them; the page is the newest of all three.
"""

import re
from collections.abc import Callable, Sequence
from uuid import UUID

from django.db.models import Q, QuerySet

from chronos_site.tenancy.models import Workspace
from execution.domain.states import State
from execution.models import Execution, JobDefinition

SHORTEST = 3
LONGEST = 100
MOST_JOBS = 50
MOST_SCHEDULES = 200
RECENT = 500
_WORD = re.compile(r"[^\W_]+")
_MATCHES = (
    "execution_failure_words(execution_execution.workspace_id, execution_execution.state_reason,"
    " execution_execution.last_error, execution_execution.last_error_text, execution_execution.last_status,"
    " execution_execution.target, execution_execution.tags::text[]) @@ to_tsquery('simple', %s)"
)

ScheduleFinder = Callable[[Workspace, str, int], list[UUID]]
_schedule_finders: list[ScheduleFinder] = []


class BadText(ValueError):  # noqa: N818 - named for what it says
    """The text cannot be searched for; the message says what to give."""


def find_schedules_by(finder: ScheduleFinder) -> None:
    """The room of schedules says how they are found by a text: (workspace, text, most) → ids."""
    if finder not in _schedule_finders:
        _schedule_finders.append(finder)


def search_executions(
    *, workspace: Workspace, among: QuerySet[Execution], text: str, after: UUID | None, limit: int
) -> QuerySet[Execution]:
    """Of `among`, the newest `limit` and one more behind `after` that have to do with the text. Raises BadText."""
    text = text.strip()
    words = words_of(text)
    rows = among if after is None else among.filter(id__lt=after)
    parts = [rows.filter(job_definition_id=job_id) for job_id in _jobs(workspace, text)]
    schedules = [found for finder in _schedule_finders for found in finder(workspace, text, MOST_SCHEDULES)]
    if schedules:
        parts.append(rows.filter(schedule_id__in=schedules))
    ids: set[UUID] = set()
    for part in parts:
        ids.update(part.order_by("-id").values_list("id", flat=True)[: limit + 1])
    ids.update(_failed(workspace, rows, words, limit + 1))
    return Execution.objects.filter(id__in=sorted(ids, reverse=True)[: limit + 1])


def words_of(text: str) -> list[str]:
    """The words to look for among failures. Raises BadText."""
    words = [word.lower() for word in _WORD.findall(text)]
    if not SHORTEST <= len(text) <= LONGEST or "\0" in text or all(len(word) < SHORTEST for word in words):
        raise BadText(f"Give {SHORTEST} to {LONGEST} characters, with a word of at least {SHORTEST} among them.")
    return words


def failures(*, workspace: Workspace, among: QuerySet[Execution], words: Sequence[str]) -> QuerySet[Execution]:
    """Failed executions that hold every word; one of three letters or more is enough as the beginning of one."""
    asked = [f"{word}:*" if len(word) >= SHORTEST else word for word in words]
    query = " & ".join([f"w{workspace.id.hex}", *asked])
    return among.filter(state=State.FAILED).extra(where=[_MATCHES], params=[query])  # noqa: S610 - a constant; the words are a parameter


def _failed(workspace: Workspace, among: QuerySet[Execution], words: Sequence[str], most: int) -> list[UUID]:
    """Of the failures that match, the newest.

    What most failures say is found among the newest few; sorting all that the index has of it would take long. What is
    not found there often enough is rare, and the index has it at once.
    """
    newest = list(among.filter(state=State.FAILED).order_by("-id").values_list("id", flat=True)[:RECENT])
    for rows in (among.filter(id__in=newest), among if len(newest) == RECENT else None):
        if rows is None:
            break
        matching = failures(workspace=workspace, among=rows, words=words)
        found = list(matching.order_by("-id").values_list("id", flat=True)[:most])
        if len(found) == most:
            break
    return found


def _jobs(workspace: Workspace, text: str) -> list[UUID]:
    """Deleted ones among them: their executions are still there. A text of the name or target, or a whole tag."""
    found = JobDefinition.objects.filter(
        Q(name__icontains=text)
        | Q(tags__contains=[text])
        | Q(target__url__icontains=text)
        | Q(target__topic__icontains=text),
        workspace=workspace,
    )
    return list(found.order_by("-id").values_list("id", flat=True)[:MOST_JOBS])
