"""Unknown and read-only fields are refused where they stand."""

from typing import Any

import pytest
from rest_framework.exceptions import ValidationError

from chronos_site.api.fields import IntegerField, TextField
from chronos_site.api.problems import validation_problem
from chronos_site.api.serializers import StrictSerializer


class Inner(StrictSerializer):
    url = TextField()
    made = TextField(read_only=True)


class Outer(StrictSerializer):
    id = TextField(read_only=True)
    name = TextField()
    size = IntegerField(required=False)
    target = Inner(required=False)
    others = Inner(many=True, required=False)


def faults(data: Any) -> set[tuple[str, str]]:
    serializer = Outer(data=data)
    assert not serializer.is_valid()
    return {(error.pointer, error.code) for error in validation_problem(serializer.errors).errors}


def test_foreign_fields_are_refused_at_every_level_beside_the_other_faults() -> None:
    assert faults(
        {
            "id": "1",
            "nmae": "x",
            "target": {"url": "u", "made": "x", "extra": 1},
            "others": [{"url": "u"}, {"ulr": "u"}],
        }
    ) == {
        ("/id", "read_only"),
        ("/nmae", "unknown_field"),
        ("/name", "required"),
        ("/target/made", "read_only"),
        ("/target/extra", "unknown_field"),
        ("/others/1/ulr", "unknown_field"),
        ("/others/1/url", "required"),
    }


@pytest.mark.parametrize("data", [[], "x", 7, True])
def test_only_an_object_is_taken(data: Any) -> None:
    assert faults(data) == {("", "invalid")}


def test_a_merge_patch_cannot_name_foreign_fields_even_with_null() -> None:
    with pytest.raises(ValidationError) as refused:
        Outer.refuse_foreign_fields({"id": None, "bogus": None, "name": None, "target": {"bogus": None}})
    found = {(error.pointer, error.code) for error in validation_problem(refused.value.detail).errors}
    assert found == {("/id", "read_only"), ("/bogus", "unknown_field"), ("/target/bogus", "unknown_field")}
    Outer.refuse_foreign_fields({"target": None, "size": 3})
    with pytest.raises(ValidationError):
        Outer.refuse_foreign_fields([])
