"""Objects that refuse what they do not know: a misspelt field is an error, never ignored."""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

_UNKNOWN = ErrorDetail("There is no field of this name here.", "unknown_field")
_READ_ONLY = ErrorDetail("This is set by the server. Leave it out.", "read_only")


S = TypeVar("S", bound=serializers.BaseSerializer[Any])


@cache
def shared(serializer: type[S]) -> S:
    """One instance of the process, for `run_validation` and `to_representation` alone: they keep nothing in it.

    An instance makes its fields anew, which costs several times what it takes to read or write one small object.
    """
    return serializer()


class StrictSerializer(serializers.Serializer[Any]):
    """Unknown fields and fields that only the server sets are refused, each by its own pointer, at every level."""

    default_error_messages: ClassVar = {"invalid": "Give an object, not a {datatype}."}

    def to_internal_value(self, data: Any) -> Any:
        errors: dict[str, Any] = dict(self._foreign(data)) if isinstance(data, Mapping) else {}
        try:
            value = super().to_internal_value(data)
        except ValidationError as error:
            if not errors:
                raise
            if isinstance(error.detail, dict):
                errors.update(error.detail)
        if errors:
            raise ValidationError(errors)
        return value

    @classmethod
    def refuse_foreign_fields(cls, data: Any) -> None:
        """The same check for a merge patch, whose nulls would vanish before it is applied. Raises ValidationError."""
        serializer = cls()
        if not isinstance(data, Mapping):
            serializer.fail("invalid", datatype=type(data).__name__)
        errors = serializer._foreign_at_every_level(data)
        if errors:
            raise ValidationError(errors)

    def _foreign(self, data: Mapping[str, Any]) -> dict[str, list[ErrorDetail]]:
        fields = self.fields
        return {
            str(name): [_READ_ONLY if name in fields else _UNKNOWN]
            for name in data
            if name not in fields or fields[name].read_only
        }

    def _foreign_at_every_level(self, data: Mapping[str, Any]) -> dict[str, Any]:
        errors: dict[str, Any] = dict(self._foreign(data))
        for name, inner in data.items():
            field = self.fields.get(name)
            if isinstance(field, StrictSerializer) and isinstance(inner, Mapping):
                below = field._foreign_at_every_level(inner)
                if below:
                    errors[name] = below
        return errors
