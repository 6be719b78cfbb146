"""Between checked bodies and what the services take, and from a row back to the body that would make it."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from rest_framework.exceptions import ValidationError

from chronos_site.api.fields import TimestampField
from chronos_site.api.problems import FieldProblem, Problem, validation_problem
from chronos_site.api.serializers import shared
from chronos_site.infra.merge_patch import merge_patch
from chronos_site.tenancy.models import Workspace
from execution.domain.credentials import foreign_references
from execution.domain.credentials import pointer as pointer_to
from execution.models import JobDefinition
from execution.selectors import job_definitions
from execution.services import SecretNotAllowed
from scheduling.api.refusals import Pointer, alone, in_batch
from scheduling.api.serializers import RECURRING, NewScheduleSerializer
from scheduling.domain import intervals
from scheduling.models import Schedule
from scheduling.recurring import Recurring
from scheduling.services import NewSchedule

BATCH = 1000

MISFIRE = {
    "policy": "misfire",
    "grace_s": "misfire_grace_s",
    "catch_up_window_s": "catch_up_window_s",
    "limit": "misfire_limit",
}
"""Members of `misfire`, and their columns."""
NULLABLE = ("starts_at", "ends_at", "max_runs", "pause_after_failures", "external_key")
ALWAYS = ("timezone", "jitter_s", "overlap", "payload", "delivery", "tags")

Checked = dict[str, Any]


def check(data: Any) -> Checked:
    """One body. Raises ValidationError."""
    checked: Checked = shared(NewScheduleSerializer).run_validation(data)
    return checked


def check_batch(data: Any) -> list[Checked]:
    """The bodies of a batch. Raises Problem, which names every place that is wrong."""
    checked: list[Checked] = []
    problems: list[FieldProblem] = []
    for index, item in enumerate(_batch_items(data)):
        try:
            checked.append(check(item))
        except ValidationError as error:
            problems.extend(validation_problem(error.detail, prefix=in_batch(index)).errors)
    if problems:
        raise Problem(422, "invalid", "Some schedules of the batch are not valid; none was made.", errors=problems)
    return checked


def build(workspace: Workspace, items: Sequence[Checked], *, pointer: Pointer = alone) -> list[NewSchedule | Recurring]:
    """What the services take, in the order of `items`. Raises Problem.

    For job definitions that are not there, and for secrets that the workspace may not use.
    """
    jobs = _find_jobs(workspace, [item["job_definition"] for item in items if "job_definition" in item])
    problems = [
        FieldProblem(
            f"{pointer(index)}/job_definition",
            "not_found",
            f"There is no job definition {item['job_definition']!r} in this workspace.",
        )
        for index, item in enumerate(items)
        if "job_definition" in item and item["job_definition"] not in jobs
    ]
    if problems:
        raise Problem(422, "job_definition_not_found", problems[0].detail, errors=problems)
    _refuse_foreign_secrets(workspace, items, pointer)
    return [_build_one(item, jobs.get(item.get("job_definition", ""))) for item in items]


def patched(schedule: Schedule, patch: Any) -> Checked:
    """A recurring schedule's body after a merge patch, checked. Raises ValidationError.

    Giving `cron` takes the place of `every` and the other way round, and so do `target` and `job_definition`.
    """
    NewScheduleSerializer.refuse_foreign_fields(patch)
    body = _body_of(schedule)
    for given, replaced in (
        ("cron", ("every", "anchor")),
        ("every", ("cron",)),
        ("target", ("job_definition",)),
        ("job_definition", ("target",)),
    ):
        if patch.get(given) is not None:
            body = {name: value for name, value in body.items() if name not in replaced}
    return check(merge_patch(body, patch))


# --- the parts ---------------------------------------------------------------------------------------------------


def _refuse_foreign_secrets(workspace: Workspace, items: Sequence[Checked], pointer: Pointer) -> None:
    problems = [
        FieldProblem(f"{pointer(index)}/{part}{pointer_to(path)}", SecretNotAllowed.code, why)
        for index, item in enumerate(items)
        for part in ("target", "delivery")
        for path, why in foreign_references(item.get(part), workspace.secret_namespaces)
    ]
    if problems:
        raise Problem(422, SecretNotAllowed.code, problems[0].detail, errors=problems)


def _build_one(item: Checked, job: JobDefinition | None) -> NewSchedule | Recurring:
    given = {name: value for name, value in item.items() if name != "job_definition"}
    if not any(name in item for name in RECURRING):
        return NewSchedule(job=job, **given)
    if "every" in given:
        given["every_s"] = given.pop("every")
    misfire = given.pop("misfire", {})
    return Recurring(job_definition=job, **given, **{MISFIRE[name]: value for name, value in misfire.items()})


def _body_of(schedule: Schedule) -> dict[str, Any]:
    """The JSON that would make this recurring schedule."""
    write = TimestampField().to_representation
    body: dict[str, Any] = {name: getattr(schedule, name) for name in (*ALWAYS, *NULLABLE)}
    body["anchor"] = schedule.anchor
    body["misfire"] = {name: getattr(schedule, column) for name, column in MISFIRE.items()}
    body["target"] = schedule.target
    if schedule.cron:
        body["cron"] = schedule.cron
    else:
        body["every"] = intervals.write(schedule.every_s or 0)
    if schedule.job_definition_id is not None:
        body["job_definition"] = str(schedule.job_definition_id)
    for name in ("starts_at", "ends_at", "anchor"):
        body[name] = None if body[name] is None else write(body[name])
    return {name: value for name, value in body.items() if value is not None}


def _find_jobs(workspace: Workspace, wanted: Sequence[str]) -> dict[str, JobDefinition]:
    """By id or by name, in at most two queries however many are asked for."""
    if not wanted:
        return {}
    ids: dict[str, UUID] = {}
    for text in set(wanted):
        try:
            ids[text] = UUID(text)
        except ValueError:
            continue
    found = job_definitions(workspace=workspace)
    by_id = {job.id: job for job in found.filter(id__in=ids.values())} if ids else {}
    jobs = {text: by_id[job_id] for text, job_id in ids.items() if job_id in by_id}
    names = [text for text in set(wanted) if text not in jobs]
    if names:
        jobs.update({job.name: job for job in found.filter(name__in=names)})
    return jobs


def _batch_items(data: Any) -> list[Any]:
    items = data.get("schedules") if isinstance(data, dict) else None
    if not isinstance(items, list) or set(data) != {"schedules"}:
        raise Problem(
            422,
            "invalid",
            'Send an object with one member "schedules", a list.',
            errors=[FieldProblem("/schedules", "invalid", "A list of schedules is needed.")],
        )
    if not 1 <= len(items) <= BATCH:
        detail = f"A batch holds 1 to {BATCH} schedules; this one has {len(items)}."
        raise Problem(422, "batch_size", detail, errors=[FieldProblem("/schedules", "batch_size", detail)])
    return items
