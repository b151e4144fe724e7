"""The format of ids, and its persistence in a catalog."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.catalog.cluster.snowflake import EPOCH_MS, IdSpec, load_spec
from naksha.catalog.system_objects import ID_SPEC_ID, PEER_SECRET_ID, SYSTEM_REALM
from naksha.memory import MemoryCatalog
from naksha.model.errors import InvalidArgument, StorageCorrupt
from naksha.model.limits import INT8_MAX
from naksha.spi.catalog import ObjectKey, ObjectRow
from tests.catalog.cluster.manual_clock import HandClock
from tests.catalog.faulty import Fault, Faulty

SPEC = IdSpec()
CLOCK = HandClock().clock()


@given(st.integers(EPOCH_MS, SPEC.end_ms), st.integers(0, SPEC.nodes - 1), st.integers(0, 4_095))
def test_an_id_is_parsed_into_its_parts(ms: int, node: int, sequence: int) -> None:
    id = SPEC.compose(ms, node, sequence)
    assert 0 <= id <= INT8_MAX
    assert SPEC.parts(id) == (ms, node, sequence)


@pytest.mark.parametrize(
    ("id", "ms", "node", "sequence"),
    [
        (0, 0, 0, 0),
        (4_095, 0, 0, 4_095),
        (4_096, 0, 1, 0),
        (4_194_303, 0, 1_023, 4_095),
        (4_194_304, 1, 0, 0),
        (132_271_697_196_765_191, 31_536_030_101, 5, 7),
        (INT8_MAX, 2**41 - 1, 1_023, 4_095),
    ],
)
def test_ids_are_what_they_always_were(id: int, ms: int, node: int, sequence: int) -> None:
    assert SPEC.compose(EPOCH_MS + ms, node, sequence) == id
    assert SPEC.parts(id) == (EPOCH_MS + ms, node, sequence)


def test_the_time_of_an_id_can_be_read() -> None:
    assert SPEC.time(0) == datetime(2025, 3, 1, tzinfo=UTC)
    noon = datetime(2031, 7, 8, 12, 30, 15, 250_000, tzinfo=UTC)
    id = SPEC.compose(int(noon.timestamp() * 1000), 1_023, 4_095)
    assert SPEC.time(id) == noon
    assert SPEC.time(INT8_MAX).year == 2094


def test_ids_are_ordered_by_time_first() -> None:
    assert SPEC.compose(EPOCH_MS + 5, 1_023, 4_095) < SPEC.compose(EPOCH_MS + 6, 0, 0)


def test_system_ids_are_all_different_and_after_every_generated_one() -> None:
    ids = {SPEC.system_id(node) for node in range(SPEC.nodes)} | {ID_SPEC_ID, PEER_SECRET_ID}
    assert len(ids) == SPEC.nodes + 2
    assert min(ids) > SPEC.compose(SPEC.end_ms - 1, SPEC.nodes - 1, SPEC.sequences - 1)
    assert max(ids) == INT8_MAX


@pytest.mark.parametrize(
    ("ms", "node", "sequence", "field"),
    [
        (EPOCH_MS - 1, 0, 0, "ms"),
        (EPOCH_MS + 2**41, 0, 0, "ms"),
        (EPOCH_MS, 1_024, 0, "node"),
        (EPOCH_MS, -1, 0, "node"),
        (EPOCH_MS, 0, 4_096, "sequence"),
    ],
)
def test_values_outside_the_range_of_ids_are_refused(
    ms: int, node: int, sequence: int, field: str
) -> None:
    with pytest.raises(InvalidArgument) as error:
        SPEC.compose(ms, node, sequence)
    assert error.value.field == field


@pytest.mark.parametrize("id", [-1, INT8_MAX + 1])
def test_invalid_ids_are_refused(id: int) -> None:
    with pytest.raises(InvalidArgument, match="not a valid id"):
        SPEC.parts(id)


@pytest.mark.parametrize("bits", [(42, 10, 12), (43, 3, 17), (48, 11, 4), (39, 12, 12)])
def test_bits_that_make_no_form_are_refused(bits: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidArgument):
        IdSpec(*bits)


async def test_the_form_is_kept_once_and_wins_over_what_is_configured_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = await MemoryCatalog.open()
    with caplog.at_level(logging.WARNING):
        assert await load_spec(backend, CLOCK) == IdSpec()
        assert not caplog.records
        assert await load_spec(backend, CLOCK, IdSpec(42, 9, 12)) == IdSpec()
    assert "id layout of a catalog is fixed" in caplog.text


async def test_concurrent_first_opens_of_a_catalog_get_one_format() -> None:
    backend = await MemoryCatalog.open()
    wanted = [IdSpec(41, 22 - sequence, sequence) for sequence in range(8, 16)]
    found = await asyncio.gather(*(load_spec(backend, CLOCK, spec) for spec in wanted))
    assert len(set(found)) == 1


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.APPLIED, Fault.LATE])
async def test_the_form_is_kept_though_the_answer_of_the_database_is_lost(fault: Fault) -> None:
    backend = Faulty(await MemoryCatalog.open(), fault)
    assert await load_spec(backend, CLOCK) == IdSpec()
    await backend.come_true()
    assert await load_spec(backend, CLOCK) == IdSpec()


async def test_something_else_in_the_place_of_the_form_is_reported() -> None:
    backend = await MemoryCatalog.open()
    await backend.write(SYSTEM_REALM, [ObjectRow(ID_SPEC_ID, 0, 1, "other", b"", 0)])
    assert ObjectKey(ID_SPEC_ID) in await backend.fetch(SYSTEM_REALM, [ObjectKey(ID_SPEC_ID)])
    with pytest.raises(StorageCorrupt, match="id-spec"):
        await load_spec(backend, CLOCK)
