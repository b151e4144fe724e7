"""Valid and invalid references to objects."""

import pytest

from naksha.catalog.object_rows import conditional_row, rows_of
from naksha.catalog.objects import Object, ObjectRef, UnknownValue
from naksha.catalog.pointers import Pointer
from naksha.model.errors import InvalidArgument
from naksha.model.limits import INT8_MAX


@pytest.mark.parametrize(
    "ref",
    [
        ObjectRef("ab", 0),
        ObjectRef("x" * 32, INT8_MAX),
        ObjectRef("x" * 32, INT8_MAX, 2),
        ObjectRef("ab", 1, 1 << 32),
    ],
)
def test_a_reference_is_read_as_it_was_written(ref: ObjectRef) -> None:
    assert ObjectRef.from_bytes(ref.to_bytes()) == ref


@pytest.mark.parametrize(
    ("ref", "field"),
    [
        (ObjectRef("x" * 33, 1), "type"),
        (ObjectRef("x", 1), "type"),
        (ObjectRef("", 1), "type"),
        (ObjectRef("größe", 1), "type"),
        (ObjectRef("a\nb", 1), "type"),
        (ObjectRef("ab", -1), "id"),
        (ObjectRef("ab", INT8_MAX + 1), "id"),
        (ObjectRef("ab", 1, 0), "parts"),
        (ObjectRef("ab", 1, (1 << 32) + 1), "parts"),
    ],
)
def test_values_that_cannot_be_decoded_are_not_written(ref: ObjectRef, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Pointer("main", ref, 1, 1).to_row()
    assert refused.value.field == field


@pytest.mark.parametrize("type_id", ["x" * 33, "x", "größe"])
def test_an_unknown_value_has_a_type_that_fits_a_row(type_id: str) -> None:
    value = UnknownValue(type_id, b"\x80")
    with pytest.raises(InvalidArgument, match="object type"):
        rows_of(Object(1, value), 0)
    with pytest.raises(InvalidArgument, match="object type"):
        conditional_row(1, value, 0)
