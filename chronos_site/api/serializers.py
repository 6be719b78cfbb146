"""Objects that refuse what they do not know: a misspelt field is an error, never ignored."""

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from django.core.exceptions import ValidationError as DjangoValidationError
from django.db.models import Model
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.fields import SkipField, empty, get_error_detail
from rest_framework.utils import html

_UNKNOWN = ErrorDetail("There is no field of this name here.", "unknown_field")
_READ_ONLY = ErrorDetail("This is set by the server. Leave it out.", "read_only")


S = TypeVar("S", bound=serializers.BaseSerializer[Any])
M = TypeVar("M", bound=Model)


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
        """As DRF does it, but that a field which is neither given nor needed costs nothing: most are, in a batch."""
        if not isinstance(data, Mapping) or html.is_html_input(data):
            return super().to_internal_value(data)
        errors: dict[str, Any] = dict(self._foreign(data))
        value: dict[str, Any] = {}
        for name, (field, check, needed) in self._writable.items():
            if name not in data and not needed:
                continue
            try:
                given = field.run_validation(data.get(name, empty))
                self.set_value(value, field.source_attrs, given if check is None else check(given))
            except ValidationError as error:
                errors[name] = error.detail
            except DjangoValidationError as error:
                errors[name] = get_error_detail(error)
            except SkipField:
                pass
        if errors:
            raise ValidationError(errors)
        return value

    def run_validators(self, value: Any) -> None:
        """DRF gathers the defaults of fields that are read only before it asks whether there is a validator."""
        if self.validators:
            super().run_validators(value)

    @cached_property
    def _writable(self) -> dict[str, tuple[Any, Callable[[Any], Any] | None, bool]]:
        """By name: the field, the serializer's own check of it, and whether it says something where it is missing."""
        return {
            name: (field, getattr(self, f"validate_{name}", None), field.required or field.default is not empty)
            for name, field in self.fields.items()
            if not field.read_only
        }

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
        writable = self._writable
        return {str(name): [_READ_ONLY if name in self.fields else _UNKNOWN] for name in data if name not in writable}

    def _foreign_at_every_level(self, data: Mapping[str, Any]) -> dict[str, Any]:
        errors: dict[str, Any] = dict(self._foreign(data))
        for name, inner in data.items():
            field = self.fields.get(name)
            if isinstance(field, StrictSerializer) and isinstance(inner, Mapping):
                below = field._foreign_at_every_level(inner)
                if below:
                    errors[name] = below
        return errors


class RowSerializer(serializers.ModelSerializer[M]):
    """Rows as they are answered. Every member is an attribute of the row, or made from the whole of it.

    DRF asks each field of each row anew where its value is, which costs more than to write the value.
    """

    def to_representation(self, instance: M) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name, read, write in self._readable:
            value = read(instance)
            shown[name] = None if value is None else write(value)
        return shown

    @cached_property
    def _readable(self) -> list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]:
        return [
            (name, _whole if field.source == "*" else attrgetter(str(field.source)), field.to_representation)
            for name, field in self.fields.items()
            if not field.write_only
        ]


def _whole(row: Any) -> Any:
    return row
