"""Import of an existing history with its own dates."""

from __future__ import annotations

import bz2
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import pytest

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, Unavailable
from naksha.model.query import Query
from naksha.model.state import XYZ
from naksha.spi.storage import Storage
from naksha.versioning import (
    Attribution,
    EditStep,
    SnapshotStep,
    diff,
    import_history,
    place_of,
    range_of,
)
from tests.versioning.town import content, make, place, put

PLACES = CollectionInfo(id="places")
BY = Attribution("importer", None, "as it was")


def ms(day: int, month: int = 1, year: int = 2021) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)


async def test_snapshots_and_edits_become_dated_transactions(storage: Storage) -> None:
    steps: list[SnapshotStep | EditStep] = [
        SnapshotStep(ms(1), [place("a", n=1), place("b", n=1)]),
        SnapshotStep(ms(2), [place("a", n=2), place("c", n=1)], "b is gone"),
        SnapshotStep(ms(3), [place("a", n=2), place("c", n=1)]),
        EditStep(ms(4), [place("d", n=1)], ["a", "nobody"]),
    ]
    done = await import_history(storage, PLACES, steps, BY)
    assert [(d.created, d.updated, d.deleted) for d in done] == [
        (2, 0, 0),
        (1, 1, 1),
        (0, 0, 0),
        (1, 0, 1),
    ]
    assert done[2].txn is None
    expected = {
        "2021-01-01T12:00": {"a": {"n": 1}, "b": {"n": 1}},
        "2021-01-02T12:00": {"a": {"n": 2}, "c": {"n": 1}},
        "2021-01-03T12:00": {"a": {"n": 2}, "c": {"n": 1}},
    }
    for text, features in expected.items():
        found = await place_of(storage, text)
        assert await content(found.storage, at=found.at) == features
    assert await content(storage) == {"c": {"n": 1}, "d": {"n": 1}}
    log = await storage.transactions()
    assert [entry.published_ms for entry in log] == [ms(1), ms(2), ms(4)]
    texts = [s.text for entry in log for s in entry.signals if s.action == "MESSAGE"]
    assert texts == ["as it was", "b is gone", "as it was"]


async def test_an_import_goes_on_after_another_one(storage: Storage) -> None:
    await import_history(storage, PLACES, [SnapshotStep(ms(1), [place("a"), place("b")])], BY)
    done = await import_history(storage, PLACES, [SnapshotStep(ms(5), [place("b")])], BY)
    assert [(d.created, d.deleted) for d in done] == [(0, 1)]
    assert await content(storage) == {"b": {}}


class Killed(Exception):
    """The end of a process."""


async def killed_after(steps: list[EditStep], count: int) -> AsyncIterator[EditStep]:
    """So many steps are made, and the next one is begun."""
    for step in steps[: count + 1]:
        yield step
    raise Killed


async def test_a_job_that_begins_again_goes_on_after_what_it_has_made(storage: Storage) -> None:
    """An import resumes after a step without changes, and ignores history of other clients."""
    steps = [
        EditStep(ms(1), [place("a")]),
        EditStep(ms(2), [place("b")]),
        EditStep(ms(3), [place("b")]),
        EditStep(ms(4), [place("c")], ["a"]),
    ]
    for count in (2, 3):
        with pytest.raises(Killed):
            await import_history(storage, PLACES, killed_after(steps, count), BY, job="mine")
    done = await import_history(storage, PLACES, steps, BY, job="mine")
    assert [(d.at_ms, d.created, d.deleted) for d in done] == [(ms(3), 0, 0), (ms(4), 1, 1)]
    assert await import_history(storage, PLACES, steps, BY, job="mine") == []
    log = await storage.transactions()
    assert [entry.published_ms for entry in log] == [ms(1), ms(2), ms(4)]
    assert await content(storage) == {"b": {}, "c": {}}
    with pytest.raises(InvalidArgument):
        await import_history(storage, PLACES, steps, BY, job="yours")
    # The import is complete, so later writes of other clients do not matter.
    await put(storage, place("e"))
    assert await import_history(storage, PLACES, steps, BY, job="mine") == []
    assert await content(storage) == {"b": {}, "c": {}, "e": {}}


async def test_an_import_waits_for_a_limited_time_and_names_the_blocking_writer(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IMPORT_PUBLICATION_SECONDS_MAX", 0)
    await make(storage)
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="roads")), "loader")
    async with storage.write("loader") as writer:
        await writer.create("roads", [place("a")])
        await storage.run(lambda s: s.create("places", [place("a")]), "editor")
        status = await storage.publication()
        assert status.held_back_by is not None
        with pytest.raises(Unavailable, match="1 transactions wait") as error:
            await import_history(storage, PLACES, [EditStep(ms(1), [place("b")])], BY, job="mine")
        assert status.held_back_by in error.value.message


async def test_ids_with_the_prefix_of_the_collection(storage: Storage) -> None:
    info = CollectionInfo(id="places", id_prefix="p-")
    first = [
        SnapshotStep(ms(1), [place("p-a", n=1), place("b", n=1)]),
        SnapshotStep(ms(2), [place("p-a")]),
    ]
    done = await import_history(storage, info, first, BY)
    assert [(d.created, d.updated, d.deleted) for d in done] == [(2, 0, 0), (0, 1, 1)]
    # Nothing but the prefix is different.
    same = [SnapshotStep(ms(3), [place("a")]), SnapshotStep(ms(4), [place("p-a")])]
    assert [each.txn for each in await import_history(storage, PLACES, same, BY)] == [None, None]
    twice = [
        SnapshotStep(ms(4, 2), [place("a"), place("p-p-a")]),
        SnapshotStep(ms(5, 2), [place("a")]),
    ]
    done = await import_history(storage, PLACES, twice, BY)
    assert [(d.created, d.deleted) for d in done] == [(1, 0), (0, 1)]
    assert await content(storage) == {"a": {}}
    (gone,) = await import_history(storage, PLACES, [EditStep(ms(6, 2), [], ["p-a"])], BY)
    assert gone.deleted == 1
    assert await content(storage) == {}


async def test_steps_out_of_order_are_refused(storage: Storage) -> None:
    steps = [EditStep(ms(2), [place("a")]), EditStep(ms(2), [place("b")])]
    with pytest.raises(InvalidArgument, match="Step 2"):
        await import_history(storage, PLACES, steps, BY)


async def test_a_storage_with_later_transactions_is_refused(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a"))
    with pytest.raises(InvalidArgument):
        await import_history(storage, PLACES, [EditStep(ms(1), [place("b")])], BY)
    assert await content(storage) == {"a": {}}


COUNTS = [600, 600, 600, 600, 600, 600, 599, 599, 599, 598, 598, 598, 596, 597, 596, 596]
"""How many airports each release has."""


def airports() -> list[dict[str, Any]]:
    """The steps of the sample in the package; a file beside it states its origin."""
    packed = (files("naksha") / "spark" / "sample" / "airports.jsonl.bz2").read_bytes()
    return [json.loads(line) for line in bz2.decompress(packed).splitlines()]


def day_ms(date: str) -> int:
    return int(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize("kind", ["snapshots", "edits"])
async def test_sixteen_dated_versions_of_airports(storage: Storage, kind: str) -> None:
    steps = airports()
    whole: dict[str, Any] = {}
    versions: dict[str, dict[str, Any]] = {}
    given: list[SnapshotStep | EditStep] = []
    for step in steps:
        whole = {id_: f for id_, f in whole.items() if id_ not in step["deleted"]}
        whole |= {feature["id"]: feature for feature in step["put"]}
        versions[step["at"]] = whole
        at_ms, message = day_ms(step["at"]), step["message"]
        if kind == "snapshots":
            given.append(SnapshotStep(at_ms, [*whole.values()], message))
        else:
            given.append(EditStep(at_ms, step["put"], step["deleted"], message))
    done = await import_history(storage, CollectionInfo(id="airports"), given, BY)
    assert [(d.created + d.updated, d.deleted) for d in done] == [
        (len(step["put"]), len(step["deleted"])) for step in steps
    ]
    log = await storage.transactions()
    assert [entry.published_ms for entry in log] == [day_ms(step["at"]) for step in steps]
    for step, entry, count in zip(steps, log, COUNTS, strict=True):
        found = await place_of(storage, f"{step['at']}T00:00:00Z")
        assert found.version.seq_number == entry.seq_number
        states = {s.id: s async for s in found.storage.states("airports", Query(), found.at)}
        assert len(states) == count
        for id_, feature in versions[step["at"]].items():
            properties = dict(states[id_].feature["properties"])
            del properties[XYZ]
            assert properties == feature["properties"]
            assert states[id_].feature["geometry"] == feature["geometry"]
    await storage.maintain()
    first, last = await range_of(storage, "2022-11-01T00:00..2022-12-01T00:00")
    survey = [change async for change in diff(first, last, "airports")]
    assert len(survey) == 600


async def test_differences_over_the_year_1000(storage: Storage) -> None:
    """Numbers of years with three and with four digits are compared as numbers."""
    steps: list[SnapshotStep | EditStep] = [
        SnapshotStep(ms(31, 12, 998), [place("a", n=1), place("b", n=1)]),
        SnapshotStep(ms(31, 12, 999), [place("a", n=2), place("b", n=1)]),
        SnapshotStep(ms(1, 1, 1000), [place("a", n=3), place("b", n=1)]),
        SnapshotStep(ms(1, 1, 1950), [place("a", n=4)]),
    ]
    await import_history(storage, CollectionInfo(id="places", max_age=1_000_000), steps, BY)
    for ref, expected in [
        ("1..2", {"a": 2}),
        ("1..3", {"a": 3}),
        ("1..HEAD", {"a": 4, "b": None}),
        ("0998-12-31T00:00..0999-12-31T00:00", {"a": 2}),
        ("0999-12-31T00:00..1950-01-01T00:00", {"a": 4, "b": None}),
    ]:
        old, new = await range_of(storage, ref)
        found = [each async for each in diff(old, new, "places")]
        assert {
            each.id: each.new and each.new.feature["properties"]["n"] for each in found
        } == expected
        assert all(each.old is not None for each in found)
