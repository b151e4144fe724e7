"""The catalog suite: commits on one pointer, including every kind of database failure."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from random import Random

import msgspec
import pytest

from naksha.catalog.cache import CatalogCache
from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.pointer_moves import PointerMoves
from naksha.catalog.commits import Commit, CommitAttempt
from naksha.catalog.group_commit import Committer
from naksha.catalog.objects import ObjectRef, object_type
from naksha.catalog.persistence import Persistence
from naksha.model import limits
from naksha.model.errors import Conflict, OutcomeUnknown, PointerNotFound, Unavailable
from naksha.spi.catalog import CatalogBackend, ObjectKey
from naksha.testing.catalog.faulty import (
    Fault,
    FaultPlan,
    FaultyCatalog,
    random_faults,
    scripted_faults,
)

NAME = "main"
_ids = itertools.count(1)


@object_type("test-tally")
class CountingCommit(Commit, frozen=True, kw_only=True):
    """Number of commits by each writer, and the last writer."""

    counts: dict[str, int] = msgspec.field(default_factory=dict)
    writer: str = ""


@object_type("test-note")
class Note(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is written beside a commit."""

    text: str


class PlainIds:
    """Ids for tests, unique in this process."""

    def next_id(self) -> int:
        return next(_ids)


def persistence_on(backend: CatalogBackend, realm: str) -> Persistence:
    """Return the persistence of an active realm with its own cache, as in a separate instance."""
    clock = MonotonicClock()
    return Persistence(backend, realm, PlainIds(), clock, CatalogCache(clock), PointerMoves())


async def committer_on(
    backend: CatalogBackend, realm: str, *, seconds_max: float = limits.COMMIT_SECONDS_MAX
) -> Committer[CountingCommit]:
    """Return the committer of a separate instance; create the pointer if it is missing."""
    persistence = persistence_on(backend, realm)
    await persistence.ensure_pointers([NAME])
    return Committer(persistence, NAME, CountingCommit, seconds_max=seconds_max)


async def committed_by(committer: Committer[CountingCommit], writer: str) -> int:
    """Increment the count of a writer and return the new count."""

    async def change(attempt: CommitAttempt[CountingCommit]) -> int:
        counts = dict(attempt.head.value.counts) if attempt.head is not None else {}
        counts[writer] = counts.get(writer, 0) + 1
        attempt.commit(CountingCommit(counts=counts, writer=writer))
        return counts[writer]

    return await committer.commit(change)


async def tallies(committer: Committer[CountingCommit]) -> list[CountingCommit]:
    """Return the whole log, oldest first."""
    found: list[CountingCommit] = []
    page = await committer.log.oldest_first()
    while page.commits:
        found += [commit.value for commit in page.commits]
        page = await committer.log.oldest_first(page.cursor)
    return found


async def check_log(committer: Committer[CountingCommit], expected: dict[str, int]) -> None:
    """Check that each writer's numbers are logged once and in order, in both directions."""
    forward = await tallies(committer)
    assert [tally.seq for tally in forward] == list(range(1, sum(expected.values()) + 1))
    seen: Counter[str] = Counter()
    for tally in forward:
        seen[tally.writer] += 1
        assert tally.counts == dict(seen)
    assert seen == expected
    backward: list[CountingCommit] = []
    cursor = None
    while len(backward) < len(forward):
        page = await committer.log.newest_first(cursor)
        backward += [commit.value for commit in page.commits]
        cursor = page.cursor
    assert backward == forward[::-1]


class TestCommits:
    """Commits with one instance, with two, and with faults in between."""

    async def test_commits_follow_each_other(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        committer = await committer_on(catalog_backend, realm)
        assert [await committed_by(committer, "a") for _ in range(45)] == list(range(1, 46))
        await check_log(committer, {"a": 45})

    async def test_a_pointer_that_is_not_there_is_an_error(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        committer = Committer(persistence_on(catalog_backend, realm), NAME, CountingCommit)
        with pytest.raises(PointerNotFound):
            await committed_by(committer, "a")

    async def test_many_writers_of_two_instances_lose_nothing(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend, realm: str
    ) -> None:
        committers = [
            await committer_on(backend, realm) for backend in (catalog_backend, second_backend)
        ]

        async def writer(number: int) -> None:
            for count in range(1, 21):
                assert await committed_by(committers[number % 2], f"w{number}") == count

        await asyncio.gather(*(writer(number) for number in range(8)))
        await check_log(committers[0], {f"w{number}": 20 for number in range(8)})

    async def test_an_error_of_a_change_is_raised_only_on_the_current_head(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend, realm: str
    ) -> None:
        ours = await committer_on(catalog_backend, realm)
        theirs = await committer_on(second_backend, realm)
        await committed_by(ours, "a")  # makes it cache the pointer's position
        await committed_by(theirs, "b")

        async def refuse_without_b(attempt: CommitAttempt[CountingCommit]) -> str:
            assert attempt.head is not None
            if "b" not in attempt.head.value.counts:
                raise Conflict("b is not there")
            return "b is there"

        assert await ours.commit(refuse_without_b) == "b is there"
        await check_log(ours, {"a": 1, "b": 1})

    async def test_a_change_that_fails_does_not_touch_the_others_of_its_group(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        committer = await committer_on(catalog_backend, realm)

        async def refuse(attempt: CommitAttempt[CountingCommit]) -> int:
            attempt.write_intent("note", Note(text="never seen"))
            raise Conflict("no")

        results = await asyncio.gather(
            committed_by(committer, "a"),
            committer.commit(refuse),
            committed_by(committer, "a"),
            return_exceptions=True,
        )
        assert [results[0], results[2]] == [1, 2]
        assert isinstance(results[1], Conflict)
        await check_log(committer, {"a": 2})

    @pytest.mark.parametrize("fault", list(Fault))
    @pytest.mark.parametrize("times", [1, 3])
    async def test_a_fault_of_the_swap_neither_loses_nor_doubles(
        self, catalog_backend: CatalogBackend, realm: str, fault: Fault, times: int
    ) -> None:
        faulty = FaultyCatalog(catalog_backend, scripted_faults(publish=[None] + [fault] * times))
        committer = await committer_on(faulty, realm)
        for count in range(1, 5):
            assert await committed_by(committer, "a") == count
        await faulty.settled()
        await check_log(committer, {"a": 4})
        await check_nothing_dangles(catalog_backend, realm)

    @pytest.mark.parametrize("others", [1, 30])
    @pytest.mark.parametrize("is_applied", [True, False])
    async def test_an_unknown_swap_is_found_behind_the_commits_of_others(
        self,
        catalog_backend: CatalogBackend,
        second_backend: CatalogBackend,
        realm: str,
        others: int,
        is_applied: bool,
    ) -> None:
        """A pointer remembers fewer than 30 commits, so the log has to be walked."""
        theirs = await committer_on(second_backend, realm)
        await committed_by(theirs, "b")
        fault = Fault.LOST_ANSWER if is_applied else Fault.LOST_REQUEST
        competitor = _CompetingBackend(
            catalog_backend, scripted_faults(publish=[fault]), theirs, others
        )
        committer = await committer_on(competitor, realm)
        assert await committed_by(committer, "a") == 1
        await check_log(committer, {"a": 1, "b": 1 + others})
        assert (await tallies(committer))[1].writer == ("a" if is_applied else "b")

    async def test_a_commit_with_an_unknown_outcome_is_reported_and_keeps_its_objects(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        def never_answers(name: str) -> Fault | None:
            return Fault.LOST_ANSWER if name == "publish" else _unreadable(name)

        faulty = FaultyCatalog(catalog_backend, lambda _: None)
        committer = await committer_on(faulty, realm, seconds_max=1)
        await committed_by(committer, "a")
        faulty.plan = never_answers
        with pytest.raises(OutcomeUnknown):
            await committed_by(committer, "a")
        faulty.plan = lambda _: None
        await check_log(await committer_on(catalog_backend, realm), {"a": 2})
        await check_nothing_dangles(catalog_backend, realm)

    async def test_an_unreachable_database_raises_unavailable(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        faulty = FaultyCatalog(catalog_backend, lambda _: None)
        committer = await committer_on(faulty, realm, seconds_max=1)
        faulty.plan = lambda _: Fault.REFUSED
        with pytest.raises(Unavailable):
            await committed_by(committer, "a")
        faulty.plan = lambda _: None
        assert await committed_by(committer, "a") == 1

    async def test_faults_everywhere(self, catalog_backend: CatalogBackend, realm: str) -> None:
        """With a fault in every twentieth call no commit is lost, doubled or dangling."""
        await check_commits_under_faults(catalog_backend, realm, commits=200, writers=8, rate=0.05)


async def check_commits_under_faults(
    backend: CatalogBackend, realm: str, *, commits: int, writers: int, rate: float, seed: int = 1
) -> None:
    """Check any number of commits by two instances under faults; see `test_faults_everywhere`."""
    plan: FaultPlan = random_faults(Random(seed), rate)
    instances = [FaultyCatalog(backend, lambda _: None) for _ in range(2)]
    committers = [await committer_on(instance, realm) for instance in instances]
    for instance in instances:
        instance.plan = plan
    done: Counter[str] = Counter()

    async def writer(number: int) -> None:
        name = f"w{number}"
        for _ in range(commits // writers):
            try:
                result = await committed_by(committers[number % 2], name)
            except Unavailable:
                continue  # Unavailable guarantees that nothing was written
            done[name] += 1
            assert result == done[name]

    await asyncio.gather(*(writer(number) for number in range(writers)))
    for instance in instances:
        instance.plan = lambda _: None
        await instance.settled()
    assert sum(instance.injected for instance in instances) > 0
    await check_log(await committer_on(backend, realm), dict(done))
    await check_nothing_dangles(backend, realm)


async def check_nothing_dangles(backend: CatalogBackend, realm: str) -> None:
    """Check that the whole log can be read and each commit's ancestors match its tail."""
    persistence = persistence_on(backend, realm)
    pointer = await persistence.pointer_now(NAME)
    ids: list[int] = []
    next_id = pointer.target.id if pointer.target is not None else 0
    while next_id:
        head = await persistence.fetch(_tally_ref(next_id), CountingCommit)
        assert head is not None, f"{next_id} is not there"
        ids.append(head.id)
        next_id = head.value.tail[0] if head.value.tail else 0
    for position, id in enumerate(ids):
        row = (await backend.fetch(realm, [ObjectKey(id)]))[ObjectKey(id)]
        assert row.parts == 1
        head = await persistence.fetch(_tally_ref(id), CountingCommit)
        assert head is not None
        assert head.value.tail == tuple(ids[position + 1 :][: limits.COMMIT_TAIL_MAX])


class _CompetingBackend(FaultyCatalog):
    """A backend on which others commit between our first swap and our next read."""

    def __init__(
        self,
        backend: CatalogBackend,
        plan: FaultPlan,
        others: Committer[CountingCommit],
        count: int,
    ) -> None:
        super().__init__(backend, plan)
        self._others = others
        self._count = count

    async def publish(self, *arguments: object, **keywords: object) -> bool:
        try:
            return await super().publish(*arguments, **keywords)  # type: ignore[arg-type]
        finally:
            count, self._count = self._count, 0
            for _ in range(count):
                await committed_by(self._others, "b")


def _unreadable(name: str) -> Fault | None:
    return Fault.REFUSED if name == "fetch_pointers" else None


def _tally_ref(id: int) -> ObjectRef:
    return ObjectRef("test-tally", id)
