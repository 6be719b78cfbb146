"""Serializer fields for rhythms: what the domain refuses is refused with the domain's own code and sentence."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chronos_site.api.fields import TextField
from scheduling import recurring
from scheduling.domain.cron import check_zone
from scheduling.domain.errors import ScheduleError


class CronField(TextField):
    """Five fields, six with seconds first, or a macro like @daily; see scheduling.domain.grammar."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        try:
            recurring.check_cron(text)
        except ScheduleError as error:
            raise ValidationError(str(error), code=error.code) from None
        return text


class ZoneField(TextField):
    """An IANA name."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        try:
            check_zone(text)
        except ScheduleError as error:
            raise ValidationError(str(error), code=error.code) from None
        return text


@extend_schema_field({"oneOf": [{"type": "string", "examples": ["1h30m"]}, {"type": "integer"}]})
class EveryField(serializers.Field):
    """An interval: a text like 1h30m, or whole seconds. Comes out as seconds."""

    def to_internal_value(self, data: Any) -> int:
        try:
            return recurring.check_interval(data)
        except ScheduleError as error:
            raise ValidationError(str(error), code=error.code) from None
