"""One schedule of a file: the shape that the API takes, read by the API's own serializers and refused in its words.

Beside the API's fields of a recurring schedule a file says `key` (the external_key) and, if it likes, `paused`. What a
file leaves out is as the API would have it, but two things are left as they are: `paused`, and an interval's anchor.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chronos_site.api.fields import FlagField, TextField
from chronos_site.api.problems import validation_problem
from chronos_site.infra.references import names_secret
from execution.dispatch.attempt_log import redact
from scheduling.api.bodies import MISFIRE
from scheduling.api.serializers import LONGEST_KEY, NewScheduleSerializer
from scheduling.files.crontab import Fault
from scheduling.recurring import Recurring

KEPT = "(secret: left as it is)"
"""Stands in an exported file for a header's value that nobody should read there; applied, it leaves the header."""
BY_ID = "id:"
"""Begins the key of an exported schedule that has none: its id follows."""
NOT_IN_FILES = {"run_at", "delay_s", "expires_after_s", "external_key"}
DEFAULTS: dict[str, Any] = {
    each.name: each.default_factory() if callable(each.default_factory) else each.default
    for each in fields(Recurring)
    if each.name != "external_key"
}

Locate = Callable[[list[str]], int]
"""The line of the place that a path names."""


@dataclass(slots=True, kw_only=True)
class Wanted:
    """A schedule as a file asks for it."""

    key: str
    line: int
    values: dict[str, Any]
    """Every field of `Recurring` but external_key; `job_definition` is still the name or id that was given."""
    paused: bool | None = None
    """None: as it is."""
    locate: Locate
    notes: list[str] = field(default_factory=list)

    def fault(self, text: str, *path: str) -> Fault:
        return Fault(self.locate(list(path)), text, self.key)


class FileScheduleSerializer(NewScheduleSerializer):
    """Once-schedules are not for files: their time passes, and the file would stay."""

    key = TextField(max_length=LONGEST_KEY)
    paused = FlagField(required=False)

    def get_fields(self) -> dict[str, Any]:
        return {name: each for name, each in super().get_fields().items() if name not in NOT_IN_FILES}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("cron" in attrs) == ("every" in attrs):
            word = "not both" if "cron" in attrs else "one of them is needed"
            raise serializers.ValidationError({"cron": [f"Give cron or every: {word}."]}, code="one_of")
        return super().validate(attrs)


class ShapeReader:
    """Reads any number of schedules; building the serializer costs more than running it."""

    def __init__(self) -> None:
        self._serializer = FileScheduleSerializer(context={"kept": KEPT})

    def read(self, data: Any, *, line: int, locate: Locate) -> Wanted | list[Fault]:
        try:
            attrs = self._serializer.run_validation(data)
        except ValidationError as error:
            return list(_faults(error, data, locate))
        return Wanted(key=attrs["key"], line=line, values=_values_of(attrs), paused=attrs.get("paused"), locate=locate)


def _faults(error: ValidationError, data: Any, locate: Locate) -> list[Fault]:
    key = data.get("key") if isinstance(data, Mapping) else None
    found = []
    for problem in validation_problem(error.detail).errors:
        path = [step.replace("~1", "/").replace("~0", "~") for step in problem.pointer.split("/")[1:]]
        where = f"{'.'.join(path)}: " if path else ""
        found.append(Fault(locate(path), f"{where}{problem.detail}", key if isinstance(key, str) else ""))
    return found


def _values_of(attrs: dict[str, Any]) -> dict[str, Any]:
    values = {name: attrs.get(name, default) for name, default in DEFAULTS.items()}
    values["every_s"] = attrs.get("every")
    judged = attrs.get("misfire") or {}
    for member, column in MISFIRE.items():
        values[column] = judged.get(member, DEFAULTS[column])
    if values["every_s"] is not None and values["anchor"] is None:
        values["anchor"] = values["starts_at"]
    return values


def hides(header: str, value: Any) -> bool:
    """What the attempt logs hide, files hide; a reference is no secret."""
    return redact({header: ""})[header] != "" and not (isinstance(value, str) and names_secret(value))
