"""Serializer fields that the serializers of this room share."""

from typing import Any

from rest_framework import serializers


class ChoiceField(serializers.ChoiceField):
    """A choice given as a string and nothing else."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            self.fail("invalid_choice", input=repr(data)[:50])
        return super().to_internal_value(data)
