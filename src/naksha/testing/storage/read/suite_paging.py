"""Conformance: pages have no gaps and no repetitions under concurrent writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox, Op, Query, States, Test
from naksha.model.state import State
from naksha.model.version import HEAD, VersionSelector
from naksha.testing.models.strategies import NASTY_TEXTS
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    StorageMaker,
    feature,
    ids_of,
    new_collection,
    point,
    raw_of,
    seq,
)

COUNT = 23


def name(n: int) -> str:
    return f"p{n:03}"


async def fill(places: Handle) -> None:
    await places.create(*(point(name(n), n / 10, n / 10, n=n) for n in range(COUNT)))


async def pages(
    handle: Handle,
    query: Query,
    at: VersionSelector = HEAD,
    between: Callable[[int], Awaitable[object]] | None = None,
) -> list[State]:
    """Return all pages in order; run a callback between them."""
    found: list[State] = []
    for number in range(1, 200):
        page = await handle.storage.page(handle.name, query, at)
        assert len(page.states) <= (query.limit or 0)
        found += page.states
        if page.cursor is None:
            return found
        assert page.states
        query = msgspec.structs.replace(query, cursor=page.cursor)
        if between is not None:
            await between(number)
    raise AssertionError(
        f"paging did not end after {number} pages; the storage must return no cursor with the "
        "last page"
    )


class TestPaging:
    @pytest.mark.parametrize("limit", [1, 2, 7, COUNT - 1, COUNT, COUNT + 1])
    async def test_pages_together_are_the_whole(self, places: Handle, limit: int) -> None:
        await fill(places)
        whole = await places.live()
        version = await places.published()
        for at in (HEAD, seq(version)):
            assert raw_of(await pages(places, Query(limit=limit), at)) == raw_of(whole)

    async def test_the_last_page_has_no_cursor(self, places: Handle) -> None:
        await fill(places)
        page = await places.storage.page(places.name, Query(limit=COUNT))
        assert (len(page.states), page.cursor) == (COUNT, None)
        page = await places.storage.page(places.name, Query(limit=COUNT - 1))
        assert page.cursor is not None

    async def test_without_limit_all_and_no_cursor(self, places: Handle) -> None:
        await fill(places)
        page = await places.storage.page(places.name, Query())
        assert (len(page.states), page.cursor) == (COUNT, None)

    async def test_an_empty_answer_has_no_cursor(self, places: Handle) -> None:
        page = await places.storage.page(places.name, Query(limit=1))
        assert (page.states, page.cursor) == ([], None)

    async def test_filters_stay_in_force(self, places: Handle) -> None:
        await fill(places)
        for query in (
            Query(where=Test(("properties", "n"), Op.GTE, 5), limit=4),
            Query(spatial=Bbox(0.45, 0, 1.55, 2), limit=3),
            Query(ids=tuple(name(n) for n in range(0, COUNT, 2)), limit=5),
        ):
            whole = await places.states(msgspec.structs.replace(query, limit=None))
            assert raw_of(await pages(places, query)) == raw_of(whole)

    @pytest.mark.parametrize("limit", [1, 3])
    async def test_states_of_one_feature_may_span_pages(self, places: Handle, limit: int) -> None:
        await fill(places)
        for n in range(5):
            await places.update(point(name(3), n=f"changed {n}"), point(name(4), n=f"c {n}"))
        await places.delete(name(3))
        for kind in (States.ALL, States.DELETED):
            whole = await places.states(Query(states=kind))
            assert raw_of(await pages(places, Query(states=kind, limit=limit))) == raw_of(whole)

    async def test_unusual_ids_are_paged_safely(self, places: Handle) -> None:
        await places.create(*map(feature, NASTY_TEXTS))
        found = ids_of(await pages(places, Query(limit=2)))
        assert found == sorted(NASTY_TEXTS)


class TestCursors:
    async def test_pages_are_pinned_while_writers_go_on(self, places: Handle) -> None:
        await fill(places)
        await places.published()
        whole = await places.live()

        async def disturb(number: int) -> None:
            await places.upsert(
                point(f"{name(number)}-new"),
                point(name(number), n="before"),
                point(name(COUNT - number), n="after"),
            )
            await places.delete(name(COUNT - number - 1), name(0))

        found = await pages(places, Query(limit=4), between=disturb)
        assert ids_of(found) == ids_of(whole)
        assert [s.feature["properties"] for s in found] == [s.feature["properties"] for s in whole]

    @pytest.mark.parametrize("kind", list(States))
    async def test_at_a_version_too(self, places: Handle, kind: States) -> None:
        await fill(places)
        await places.delete(*(name(n) for n in range(0, COUNT, 3)))
        version = await places.published()
        await places.update(*(point(name(n), n="x") for n in range(1, COUNT, 3)))
        whole = await places.states(Query(states=kind), seq(version))

        async def disturb(number: int) -> None:
            await places.upsert(*(point(name(n), n=number) for n in range(COUNT)))

        found = await pages(places, Query(states=kind, limit=3), seq(version), disturb)
        assert raw_of(found) == raw_of(whole)

    async def test_a_cursor_works_at_another_instance(
        self, places: Handle, make_storage: StorageMaker
    ) -> None:
        await fill(places)
        await places.published()
        second = await make_storage(beside=places.storage)
        first = await places.storage.page(places.name, Query(limit=10))
        await places.delete(*(name(n) for n in range(COUNT)))
        rest = await second.page(places.name, Query(limit=100, cursor=first.cursor))
        assert ids_of(first.states) + ids_of(rest.states) == [name(n) for n in range(COUNT)]

    async def test_a_cursor_can_be_used_twice(self, places: Handle) -> None:
        await fill(places)
        first = await places.storage.page(places.name, Query(limit=10))
        again = Query(limit=10, cursor=first.cursor)
        one = await places.storage.page(places.name, again)
        two = await places.storage.page(places.name, again)
        assert raw_of(one.states) == raw_of(two.states)
        assert one.cursor == two.cursor

    async def test_a_cursor_is_plain_text(self, places: Handle) -> None:
        await fill(places)
        page = await places.storage.page(places.name, Query(limit=1))
        assert page.cursor is not None
        assert page.cursor.isascii()
        assert page.cursor.isprintable()

    async def test_a_tampered_cursor_is_an_error(self, places: Handle) -> None:
        await fill(places)
        page = await places.storage.page(places.name, Query(limit=1))
        assert page.cursor is not None
        for wrong in (page.cursor[:-3], "x" + page.cursor, page.cursor.swapcase() + "!"):
            with pytest.raises(InvalidArgument):
                await places.storage.page(places.name, Query(limit=1, cursor=wrong))

    async def test_pages_inside_a_session_see_its_writes(self, places: Handle) -> None:
        await fill(places)
        async with places.storage.write(APP) as session:
            await session.delete(places.name, [name(1)])
            await session.create(places.name, [point("zz")])
            found: list[str] = []
            query = Query(limit=5)
            while True:
                page = await session.page(places.name, query)
                found += ids_of(page.states)
                if page.cursor is None:
                    break
                query = Query(limit=5, cursor=page.cursor)
        assert found == [name(0), *(name(n) for n in range(2, COUNT)), "zz"]

    async def test_unpublished_states_are_not_lost_at_head(self, places: Handle) -> None:
        """HEAD is the committed state, so its pages contain a new state at once."""
        other = await new_collection(places.storage)
        for n in range(10):
            await other.create(point(name(n)))
            assert len(await pages(other, Query(limit=3))) == n + 1
