"""Consistency of the limits."""

from __future__ import annotations

from naksha.model import limits
from naksha.model.identity.guid import Guid


def test_every_limit_is_a_positive_number() -> None:
    """Only seconds have fractions."""
    values = {name: getattr(limits, name) for name in dir(limits) if name.isupper()}
    assert values
    assert all(value > 0 for value in values.values())
    fractional = {name for name, value in values.items() if type(value) is not int}
    assert not {name for name in fractional if "_SECONDS" not in name}
    assert {type(values[name]) for name in fractional} <= {float}


def test_id_and_reference_id_fit_one_index_entry_of_postgresql() -> None:
    assert limits.FEATURE_ID_BYTES_MAX + limits.CRID_BYTES_MAX + 2 * 8 < 2_700


def test_a_page_and_a_feature_fit_their_call() -> None:
    assert limits.PAGE_DEFAULT <= limits.PAGE_MAX
    assert limits.FEATURE_BYTES_MAX <= limits.WRITE_BYTES_MAX


def test_the_longest_guid_is_shorter_than_what_a_client_may_send() -> None:
    longest = Guid("s" * 32, "c" * 32, 9223, 12, 31, limits.INT8_MAX)
    assert len(str(longest)) == 96 < limits.STATE_ID_BYTES_MAX
