"""The log in its readable form."""

from __future__ import annotations

from typing import Any

import pytest
import shapely

from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox, Intersects
from naksha.model.transaction import LogFilter
from naksha.spi.storage import Storage
from naksha.versioning import (
    Changeset,
    changeset,
    changesets,
    create_branch,
    line_of,
    rebase,
)
from tests.versioning.town import ANN, BOB, delete, make, place, put, seen


async def log(storage: Storage, **how: Any) -> list[Changeset]:
    page = await changesets(await line_of(storage, "main"), newest_first=False, **how)
    return page.changesets


async def test_changesets_have_actor_counts_extent_time_and_message(storage: Storage) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("a", 1, 2), place("b", 3, 4), message="two places")
    async with storage.write("importer", "bob") as session:
        await session.update("places", [place("a", 7, 8)])
        await session.delete("places", ["b"])
        await session.create("roads", [place("r", -1, -2)])
        await session.message("message", "moved")
        await session.message("ticket", json={"id": 17})
    line = await line_of(storage, "main")
    version = await storage.wait_published(session.txn or 0, 60)
    assert version is not None
    found = await changeset(line, version)
    assert (found.author, found.app_id, found.message) == ("bob", "importer", "moved")
    assert {t.collection: (t.created, t.updated, t.deleted) for t in found.touched} == {
        "places": (0, 1, 1),
        "roads": (1, 0, 0),
    }
    assert found.bbox == (-1.0, -2.0, 7.0, 8.0)
    assert [each.json for each in found.attachments if each.id == "ticket"] == [{"id": 17}]
    assert [each.message for each in await log(storage)] == [None, "two places", "moved"]
    assert (await log(storage))[0].collections_changed == ("places", "roads")


async def test_pages_in_both_directions(storage: Storage) -> None:
    await make(storage)
    for n in range(7):
        await put(storage, place("a", n=n))
    line = await line_of(storage, "main")
    for newest_first in (False, True):
        numbers, after = [], 0
        for _ in range(9):
            page = await changesets(line, after=after, limit=3, newest_first=newest_first)
            numbers += [each.version.seq_number for each in page.changesets]
            if page.after is None:
                break
            after = page.after
        assert numbers == sorted(range(1, 9), reverse=newest_first)


async def test_by_author_app_collection_time_and_text(storage: Storage) -> None:
    await make(storage, "places", "roads")
    first = await put(storage, place("a", n=1), by=ANN, message="The FIRST one")
    second = await put(storage, place("r", n=1), by=BOB, into="roads", message="100% other_one")
    numbers = [first.seq_number, second.seq_number]
    for where, expected in (
        (LogFilter(authors=("ann",)), numbers[:1]),
        (LogFilter(authors=("ann", "bob")), numbers),
        (LogFilter(app_ids=("editor",)), numbers),
        (LogFilter(app_ids=("setup",)), [1]),
        (LogFilter(collections=("roads",)), [1, second.seq_number]),
        (LogFilter(text="first"), numbers[:1]),
        (LogFilter(text="ONE"), numbers),
        (LogFilter(text="0% other_"), numbers[1:]),
        (LogFilter(text="0%other"), []),
        (LogFilter(text="h%r"), []),
        (LogFilter(text="fir_t"), []),
        (LogFilter(from_ms=second.published_ms + 1), []),
        (LogFilter(from_ms=0, to_ms=second.published_ms + 1), [1, *numbers]),
        (LogFilter(authors=("ann",), collections=("roads",)), []),
    ):
        found = await log(storage, where=where)
        assert (where, [each.version.seq_number for each in found]) == (where, expected)


async def test_an_area_is_tested_on_the_changed_features_old_or_new(storage: Storage) -> None:
    await make(storage)
    corners = await put(storage, place("sw", 0, 0), place("ne", 10, 10))
    inside = await put(storage, place("in", 5, 5))
    moved_out = await put(storage, place("in", 20, 20))
    again = await put(storage, place("in", 21, 21))
    back = await put(storage, place("in", 5, 5))
    gone = await delete(storage, "in")
    area = Bbox(4, 4, 6, 6)
    expected = [each.seq_number for each in (inside, moved_out, back, gone)]
    found = await log(storage, area=area)
    assert [each.version.seq_number for each in found] == expected
    # The box around the corners meets the area, the corners do not.
    assert corners.seq_number not in expected
    assert again.seq_number not in expected
    circle = Intersects(shapely.to_wkb(shapely.Point(5, 5).buffer(1)))
    found = await log(storage, area=circle)
    assert [each.version.seq_number for each in found] == expected
    assert await log(storage, area=Intersects(shapely.to_wkb(shapely.Point()))) == []
    assert await log(storage, area=area, where=LogFilter(collections=("roads",))) == []


async def test_the_former_place_counts_when_a_feature_is_created_elsewhere(
    storage: Storage,
) -> None:
    await make(storage)
    await put(storage, place("a", 8, 50))
    async with storage.write("editor") as session:
        await session.delete("places", ["a"])
        await session.create("places", [place("a", -20, 10)])
    version = await seen(storage, session.txn)
    page = await changesets(await line_of(storage, "main"), area=Bbox(7, 49, 9, 51))
    assert page.changesets[0].version == version


async def test_an_area_over_the_date_line(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("east", 179, 0))
    await put(storage, place("west", -179, 0))
    await put(storage, place("far", 0, 0))
    found = await log(storage, area=Bbox(178, -1, -178, 1))
    assert [each.version.seq_number for each in found] == [2, 3]


async def test_pages_of_an_area_are_full(storage: Storage) -> None:
    """Changesets that match by box but not by feature must not shorten a page."""
    await make(storage)
    for n in range(10):
        await put(storage, place("a", n, n), place("b", 10 - n, 10 - n), place(f"c{n}", n, 0))
    line = await line_of(storage, "main")
    area = Bbox(2.5, -1, 4.5, 1)
    page = await changesets(line, area=area, limit=1, newest_first=False)
    assert [each.version.seq_number for each in page.changesets] == [5]
    rest = await changesets(line, area=area, limit=5, after=page.after or 0, newest_first=False)
    assert [each.version.seq_number for each in rest.changesets] == [6]
    assert rest.after is None


async def test_limits(storage: Storage) -> None:
    line = await line_of(storage, "main")
    for limit in (0, 100_001):
        with pytest.raises(InvalidArgument, match="limit"):
            await changesets(line, limit=limit)


async def test_the_area_of_a_branch_that_was_rebased(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", 0, 0))
    await create_branch(storage, "fix", ANN)
    fix = (await line_of(storage, "fix")).storage
    first = await put(fix, place("a", 5, 5))
    await put(storage, place("b", 9, 9))
    done = await rebase(storage, "fix", ANN)
    line = await line_of(storage, "fix")
    page = await changesets(line, area=Bbox(4, 4, 6, 6), newest_first=False)
    assert [each.version.txn for each in page.changesets] == [first.txn, done.txn]


async def test_where_it_was_counts_when_it_is_moved_and_deleted_at_once(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", 8, 50), place("b", 8, 50))
    async with storage.write("editor") as session:
        await session.update("places", [place("a", -20, 10)])
        await session.delete("places", ["a"])
    gone = await seen(storage, session.txn)
    async with storage.write("editor") as session:
        await session.delete("places", ["b"])
        await session.restore("places", ["b"])
        await session.update("places", [place("b", -20, 10)])
    back = await seen(storage, session.txn)
    found = await log(storage, area=Bbox(7, 49, 9, 51))
    assert [each.version.seq_number for each in found] == [2, gone.seq_number, back.seq_number]
    found = await log(storage, area=Bbox(-21, 9, -19, 11))
    assert [each.version.seq_number for each in found] == [gone.seq_number, back.seq_number]
