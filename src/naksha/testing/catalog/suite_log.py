"""The catalog suite: the retained log of a pointer, in both directions and from cursors."""

from __future__ import annotations

import asyncio

import pytest

from naksha.catalog.commit_log import LogCursor, LogPage
from naksha.catalog.commits import ANCHOR_STEPS, child_of
from naksha.catalog.group_commit import Committer
from naksha.catalog.objects import Object
from naksha.model.errors import Expired, InvalidArgument, VersionNotFound
from naksha.spi.catalog import CatalogBackend, ObjectKey
from naksha.testing.catalog.faulty import FaultyCatalog
from naksha.testing.catalog.suite_commits import (
    NAME,
    CountingCommit,
    committed_by,
    committer_on,
    persistence_on,
)


async def committer_with(
    backend: CatalogBackend, realm: str, commits: int
) -> Committer[CountingCommit]:
    committer = await committer_on(backend, realm)
    await asyncio.gather(*(committed_by(committer, "a") for _ in range(commits)))
    return committer


def numbers(page: LogPage[CountingCommit]) -> list[int]:
    return [commit.value.seq for commit in page.commits]


async def forget(
    backend: CatalogBackend, realm: str, committer: Committer[CountingCommit], to: int
) -> None:
    """Delete the commits up to a number, as maintenance does."""
    page = await committer.log.oldest_first(limit=to)
    await backend.delete(realm, [ObjectKey(commit.id) for commit in page.commits])


class TestCommitLog:
    """Pages of the log."""

    async def test_a_page_begins_at_a_point_in_time(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        committer = await committer_with(catalog_backend, realm, 50)
        log = committer.log
        times = [commit.value.at_us for commit in (await log.oldest_first(limit=50)).commits]
        for at_us in {0, *times, times[-1] + 1}:
            expected = [seq for seq, time in enumerate(times, 1) if time >= at_us]
            assert numbers(await log.oldest_first(await log.before(at_us), 50)) == expected
        await forget(catalog_backend, realm, committer, 20)
        log = (await committer_on(catalog_backend, realm)).log
        assert numbers(await log.oldest_first(await log.before(times[-1] + 1), 50)) == []
        with pytest.raises(Expired):
            await log.before(times[0])

    @pytest.mark.parametrize("limit", [1, 3, 19, 20, 21, 50, 60])
    async def test_pages_fit_together_in_both_directions(
        self, catalog_backend: CatalogBackend, realm: str, limit: int
    ) -> None:
        log = (await committer_with(catalog_backend, realm, 50)).log
        forward: list[int] = []
        page = await log.oldest_first(limit=limit)
        while page.commits:
            assert len(page.commits) <= limit
            forward += numbers(page)
            page = await log.oldest_first(page.cursor, limit)
        assert forward == list(range(1, 51))
        backward: list[int] = []
        page = await log.newest_first(limit=limit)
        while page.commits:
            assert len(page.commits) <= limit
            backward += numbers(page)
            page = await log.newest_first(page.cursor, limit)
        assert backward == forward[::-1]

    async def test_a_cursor_resumes_where_it_was(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        committer = await committer_with(catalog_backend, realm, 3)
        cursor = await committer.log.cursor()
        assert numbers(await committer.log.oldest_first(cursor)) == []
        await committed_by(committer, "a")
        page = await committer.log.oldest_first(cursor)
        assert numbers(page) == [4]
        assert numbers(await committer.log.newest_first(cursor)) == [2, 1]

    async def test_an_empty_log_has_a_cursor_too(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        committer = await committer_on(catalog_backend, realm)
        cursor = await committer.log.cursor()
        assert (await committer.log.newest_first()).commits == []
        await committed_by(committer, "a")
        assert numbers(await committer.log.oldest_first(cursor)) == [1]

    async def test_a_cursor_that_was_never_true_is_not_found(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        committer = await committer_with(catalog_backend, realm, 3)
        real = LogCursor.parse(await committer.log.cursor())
        untrue = [
            LogCursor(real.created, 4, real.id),
            LogCursor(real.created, 2, real.id),
            LogCursor(real.created + 1, real.seq, real.id),
            LogCursor(real.created + 1, 0, 0),
        ]
        for cursor in untrue:
            with pytest.raises(VersionNotFound):
                await committer.log.oldest_first(str(cursor))
            with pytest.raises(VersionNotFound):
                await committer.log.newest_first(str(cursor))

    @pytest.mark.parametrize("text", ["", "1", "1.2", "x.1.1", "1.1.1.1", "1.-1.1", "1.1.1 "])
    async def test_an_invalid_cursor_is_refused(
        self, catalog_backend: CatalogBackend, realm: str, text: str
    ) -> None:
        committer = await committer_with(catalog_backend, realm, 1)
        with pytest.raises(InvalidArgument, match="cursor"):
            await committer.log.oldest_first(text)

    async def test_a_recreated_pointer_has_another_log(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        committer = await committer_with(catalog_backend, realm, 2)
        old = await committer.log.cursor()
        persistence = persistence_on(catalog_backend, realm)
        assert await persistence.delete_pointer(await persistence.pointer_now(NAME))
        again = await committer_with(catalog_backend, realm, 3)
        with pytest.raises(VersionNotFound):
            await again.log.oldest_first(old)

    async def test_removed_entries_are_expired_and_not_the_end(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        committer = await committer_with(catalog_backend, realm, 60)
        old = (await committer.log.oldest_first(limit=5)).cursor
        kept = (await committer.log.oldest_first(limit=31)).cursor
        await forget(catalog_backend, realm, committer, to=30)
        log = (await committer_on(catalog_backend, realm)).log
        for after in (None, old):
            with pytest.raises(Expired):
                await log.oldest_first(after)
        assert numbers(await log.oldest_first(kept, 100)) == list(range(32, 61))
        page = await log.newest_first(limit=100)
        assert numbers(page) == list(range(60, 30, -1))
        with pytest.raises(Expired):
            await log.newest_first(page.cursor)

    async def test_a_waiting_reader_gets_new_entries(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend, realm: str
    ) -> None:
        ours = await committer_with(catalog_backend, realm, 1)
        theirs = await committer_on(second_backend, realm)
        cursor = await ours.log.cursor()
        for writer in (ours, theirs):
            waiting = asyncio.create_task(ours.log.wait(cursor, seconds=30))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await committed_by(writer, "a")
            page = await waiting
            assert len(page.commits) == 1
            cursor = page.cursor
        assert (await ours.log.wait(cursor, seconds=0.01)).commits == []


class TestLongLog:
    """Finding a commit far back does not walk the whole log."""

    async def test_any_commit_is_a_few_dozen_reads_away(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        length = 3 * ANCHOR_STEPS[1] + 77
        persistence = persistence_on(catalog_backend, realm)
        commits: list[Object[CountingCommit]] = []
        parent: Object[CountingCommit] | None = None
        for _ in range(length):
            parent = Object(persistence.new_id(), child_of(parent, CountingCommit(), 1))
            commits.append(parent)
        for start in range(0, length, 5_000):
            await persistence.write(commits[start : start + 5_000])
        await persistence.create_pointer(NAME, commits[-1].ref)
        for seq in (1, 2, 255, 256, 257, 4_095, 4_096, 4_097, 8_193, length - 21, length):
            reads: list[str] = []
            counting = FaultyCatalog(catalog_backend, reads.append)
            fresh = persistence_on(counting, realm)
            log = Committer(fresh, NAME, CountingCommit).log
            assert await log.has(await fresh.pointer_now(NAME), seq, commits[seq - 1].id)
            assert reads.count("fetch") <= 40
