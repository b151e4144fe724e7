"""Attempts of a commit: what a change may do, and the objects it has written."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from naksha.catalog.commits import CommitAttempt
from naksha.catalog.group_commit import CommitStatistics, Committer
from naksha.catalog.objects import Object, ObjectRef, object_type
from naksha.catalog.persistence import Persistence
from naksha.catalog.retry import Retries
from naksha.memory import MemoryCatalog
from naksha.model import limits
from naksha.model.errors import (
    InvalidArgument,
    OutcomeUnknown,
    Retryable,
    StorageCorrupt,
    Unavailable,
)
from naksha.testing.catalog.faulty import Fault, FaultyCatalog
from naksha.testing.catalog.suite_commits import (
    NAME,
    CountingCommit,
    Note,
    committed_by,
    committer_on,
    persistence_on,
)

REALM = "tests"


@object_type("test-other-tally")
class OtherTally(CountingCommit, frozen=True, kw_only=True):
    """A commit of another type."""


Write = Callable[[CommitAttempt[CountingCommit], str], Object[Note]]


@pytest.fixture
async def persistence() -> Persistence:
    persistence = persistence_on(await MemoryCatalog.open("memory:"), REALM)
    await persistence.ensure_pointers([NAME])
    return persistence


async def notes_in(persistence: Persistence) -> set[int]:
    """The ids of all notes in the database."""
    pages = [page async for page in persistence.backend.scan()]
    rows = [row for page in pages for row in page]
    return {row.key.id for row in rows if not hasattr(row, "name") and row.type == "test-note"}


class LosingWriter:
    """A change whose first attempts stand on a head that is not true any more."""

    def __init__(self, persistence: Persistence, write: Write, losses: int) -> None:
        self.persistence = persistence
        self.write = write
        self.losses = losses
        self.written: list[int] = []

    async def __call__(self, attempt: CommitAttempt[CountingCommit]) -> int:
        note = self.write(attempt, f"attempt {len(self.written)}")
        self.written.append(note.id)
        if len(self.written) <= self.losses:
            await committed_by(await committer_on(self.persistence.backend, REALM), "other")
        counts = dict(attempt.head.value.counts) if attempt.head is not None else {}
        attempt.commit(CountingCommit(counts=counts, writer="me"))
        return note.id


def if_new(attempt: CommitAttempt[CountingCommit], text: str) -> Object[Note]:
    return attempt.write_if_new("note", Note(text=text))


def or_replace(attempt: CommitAttempt[CountingCommit], text: str) -> Object[Note]:
    return attempt.write_or_replace("note", Note(text=text))


@pytest.mark.parametrize("losses", [0, 1, 4])
@pytest.mark.parametrize(("write", "is_kept"), [(if_new, True), (or_replace, False)])
async def test_only_what_the_last_attempt_wrote_stays(
    persistence: Persistence, write: Write, is_kept: bool, losses: int
) -> None:
    change = LosingWriter(persistence, write, losses)
    kept = await Committer(persistence, NAME, CountingCommit).commit(change)
    assert len(change.written) == losses + 1
    assert len(set(change.written)) == (1 if is_kept else losses + 1)
    assert await notes_in(persistence) == {kept}


async def test_an_intent_is_written_once_by_each_attempt(persistence: Persistence) -> None:
    change = LosingWriter(
        persistence, lambda attempt, text: attempt.write_intent("n", Note(text=text)), 2
    )
    kept = await Committer(persistence, NAME, CountingCommit).commit(change)
    assert await notes_in(persistence) == {kept}

    async def twice(attempt: CommitAttempt[CountingCommit]) -> None:
        attempt.write_intent("n", Note(text="one"))
        attempt.write_intent("n", Note(text="two"))

    with pytest.raises(InvalidArgument, match="already used by this attempt"):
        await Committer(persistence, NAME, CountingCommit).commit(twice)
    assert await notes_in(persistence) == {kept}


async def test_objects_unused_by_the_last_attempt_are_removed(persistence: Persistence) -> None:
    def write(attempt: CommitAttempt[CountingCommit], text: str) -> Object[Note]:
        return attempt.write_if_new(text, Note(text=text))  # another key each time

    change = LosingWriter(persistence, write, losses=2)
    kept = await Committer(persistence, NAME, CountingCommit).commit(change)
    assert await notes_in(persistence) == {kept}


async def test_a_change_sees_what_it_wrote(persistence: Persistence) -> None:
    async def change(attempt: CommitAttempt[CountingCommit]) -> str:
        note = attempt.write_intent("note", Note(text="mine"))
        found = await attempt.fetch(note.ref, Note)
        assert found is not None
        attempt.commit(CountingCommit())
        return found.value.text

    assert await Committer(persistence, NAME, CountingCommit).commit(change) == "mine"


async def test_later_commits_of_a_group_see_earlier_unwritten_ones(
    persistence: Persistence,
) -> None:
    refs: list[ObjectRef] = []

    async def first(attempt: CommitAttempt[CountingCommit]) -> None:
        refs.append(attempt.write_intent("note", Note(text="from the first")).ref)
        attempt.commit(CountingCommit())

    async def second(attempt: CommitAttempt[CountingCommit]) -> str:
        found = await attempt.fetch(refs[-1], Note)
        assert found is not None
        return found.value.text

    committer = Committer(persistence, NAME, CountingCommit)
    results = await asyncio.gather(committer.commit(first), committer.commit(second))
    assert results[1] == "from the first"


async def test_a_change_that_commits_nothing_must_not_write(persistence: Persistence) -> None:
    async def change(attempt: CommitAttempt[CountingCommit]) -> None:
        attempt.write_intent("note", Note(text="nobody's"))

    with pytest.raises(InvalidArgument, match="did not commit; call commit"):
        await Committer(persistence, NAME, CountingCommit).commit(change)
    assert await notes_in(persistence) == set()


async def test_a_change_makes_one_commit(persistence: Persistence) -> None:
    async def change(attempt: CommitAttempt[CountingCommit]) -> None:
        attempt.commit(CountingCommit())
        attempt.commit(CountingCommit())

    with pytest.raises(InvalidArgument, match="one commit"):
        await Committer(persistence, NAME, CountingCommit).commit(change)


async def test_a_writer_that_always_loses_fails_in_time_and_leaves_nothing(
    persistence: Persistence,
) -> None:
    seen: list[CommitStatistics] = []
    committer = Committer(persistence, NAME, CountingCommit, seconds_max=2, observe=seen.append)
    change = LosingWriter(persistence, or_replace, losses=10**6)
    with pytest.raises(Retryable, match=r"during \d+ attempts; nothing was written"):
        await committer.commit(change)
    assert await notes_in(persistence) == set()
    # The limit can pass between two attempts, or during one, which is then not counted.
    assert len(change.written) - 1 <= seen[-1].retries <= len(change.written)
    assert seen[-1].outcomes == {"retryable": 1}


async def test_a_repeated_change_that_runs_out_of_time_names_the_other_writers(
    persistence: Persistence,
) -> None:
    committer = Committer(persistence, NAME, CountingCommit, seconds_max=2)
    lose = LosingWriter(persistence, or_replace, losses=2)

    async def change(attempt: CommitAttempt[CountingCommit]) -> int:
        if len(lose.written) == 2:
            await asyncio.sleep(30)
        return await lose(attempt)

    with pytest.raises(Retryable, match=r"moved pointer 'main' during 2 attempts; nothing was"):
        await committer.commit(change)
    assert await notes_in(persistence) == set()


async def test_a_slow_change_delays_others_no_longer_than_its_limit(
    persistence: Persistence,
) -> None:
    committer = Committer(persistence, NAME, CountingCommit, seconds_max=2)

    async def sleep(_: CommitAttempt[CountingCommit]) -> None:
        await asyncio.sleep(30)

    slow = asyncio.create_task(committer.commit(sleep))
    await asyncio.sleep(1)
    assert await committed_by(committer, "a") == 1
    with pytest.raises(Retryable, match="took longer than"):
        await slow


async def test_a_cancelled_change_is_left_out(persistence: Persistence) -> None:
    committer = Committer(persistence, NAME, CountingCommit)
    tasks = [asyncio.create_task(committed_by(committer, "a")) for _ in range(5)]
    await asyncio.sleep(0)  # all of them are in the line now
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await committed_by(committer, "a") == 5


class TestTheLeader:
    """Whatever happens to one change, those who wait behind it get their turn."""

    async def test_a_change_that_is_cancelled_from_within_ends_alone(
        self, persistence: Persistence
    ) -> None:
        committer = Committer(persistence, NAME, CountingCommit)

        async def awaits_the_cancelled(_: CommitAttempt[CountingCommit]) -> None:
            inner = asyncio.create_task(asyncio.sleep(30))
            inner.cancel()
            await inner

        cancelled = asyncio.create_task(committer.commit(awaits_the_cancelled))
        others = [asyncio.create_task(committed_by(committer, "a")) for _ in range(3)]
        assert await asyncio.gather(*others) == [1, 2, 3]
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    async def test_a_failing_observer_stops_no_commit(self, persistence: Persistence) -> None:
        def fail(_: CommitStatistics) -> None:
            raise RuntimeError("broken")

        committer = Committer(persistence, NAME, CountingCommit, observe=fail)
        assert await committed_by(committer, "a") == 1
        assert await committed_by(committer, "a") == 2

    @pytest.mark.parametrize("steps", [0, 1, 3])
    async def test_a_cancelled_commit_has_a_successor(
        self, persistence: Persistence, steps: int
    ) -> None:
        committer = Committer(persistence, NAME, CountingCommit)
        first = asyncio.create_task(committed_by(committer, "a"))
        await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        leader = committer._leader
        if leader is not None:
            leader.cancel()
        outcome = (await asyncio.gather(first, return_exceptions=True))[0]
        assert outcome == 1 or isinstance(outcome, OutcomeUnknown)
        assert await committed_by(committer, "b") == 1

    async def test_each_change_runs_in_the_context_of_its_caller(
        self, persistence: Persistence
    ) -> None:
        who: ContextVar[str] = ContextVar("who")
        committer = Committer(persistence, NAME, CountingCommit)

        async def say(_: CommitAttempt[CountingCommit]) -> str:
            return who.get()

        async def caller(name: str) -> str:
            who.set(name)
            return await committer.commit(say)

        names = ["ann", "bob", "cy"]
        assert await asyncio.gather(*(caller(name) for name in names)) == names

    async def test_a_commit_of_another_type_fails_alone(self, persistence: Persistence) -> None:
        committer = Committer(persistence, NAME, CountingCommit)

        async def wrong(attempt: CommitAttempt[CountingCommit]) -> None:
            attempt.commit(OtherTally())

        results = await asyncio.gather(
            committed_by(committer, "a"),
            committer.commit(wrong),
            committed_by(committer, "a"),
            return_exceptions=True,
        )
        assert [results[0], results[2]] == [1, 2]
        assert isinstance(results[1], InvalidArgument)

    async def test_values_that_cannot_be_decoded_are_not_written(
        self, persistence: Persistence
    ) -> None:
        async def unreadable(attempt: CommitAttempt[CountingCommit]) -> None:
            attempt.commit(CountingCommit(counts={"a": "text"}))  # type: ignore[dict-item]

        committer = Committer(persistence, NAME, CountingCommit)
        with pytest.raises(StorageCorrupt):
            await committer.commit(unreadable)
        assert await committed_by(committer, "a") == 1

    async def test_a_time_out_of_the_change_is_its_own(self, persistence: Persistence) -> None:
        async def give_up(_: CommitAttempt[CountingCommit]) -> None:
            raise TimeoutError("mine")

        with pytest.raises(TimeoutError, match="mine"):
            await Committer(persistence, NAME, CountingCommit).commit(give_up)

    async def test_statistics_count_the_outcomes_of_changes(self, persistence: Persistence) -> None:
        seen: list[CommitStatistics] = []
        committer = Committer(persistence, NAME, CountingCommit, observe=seen.append)

        async def refuse(_: CommitAttempt[CountingCommit]) -> None:
            raise InvalidArgument("no")

        await asyncio.gather(
            committed_by(committer, "a"), committer.commit(refuse), return_exceptions=True
        )
        assert seen[0].outcomes == {"done": 1, "error": 1}

    async def test_commits_that_did_not_fit_are_not_in_doubt(
        self, persistence: Persistence, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "COMMIT_GROUP_BYTES_MAX", 10)
        faulty = FaultyCatalog(persistence.backend, lambda _: None)
        committer = await committer_on(faulty, REALM, seconds_max=2)
        failing = [True]

        def plan(name: str) -> Fault | None:
            if not failing[0]:
                return None
            return Fault.LOST_REQUEST if name == "publish" else Fault.REFUSED

        faulty.plan = plan
        first = asyncio.create_task(committed_by(committer, "a"))
        await asyncio.sleep(1)
        late = asyncio.create_task(committed_by(committer, "b"))
        with pytest.raises((OutcomeUnknown, Unavailable)):
            await first
        failing[0] = False
        assert await late == 1


class TestRetries:
    """Pauses between attempts."""

    async def test_pauses_grow_count_the_attempt_and_end_at_the_deadline(self) -> None:
        now, slept = [100.0], []

        async def sleep(seconds: float) -> None:
            slept.append(round(seconds, 6))
            now[0] += seconds

        retries = Retries(monotonic=lambda: now[0], sleep=sleep, uniform=lambda _, upper: upper)
        for _ in range(9):
            retries.begin()
            now[0] += 0.001  # what the attempt took
            await retries.pause(deadline=1_000.0)
        growing = [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.25, 0.25, 0.25]
        assert slept == [round(pause - 0.001, 6) for pause in growing]
        assert retries.count == 9
        retries.begin()
        await retries.pause(deadline=now[0] + 0.1)
        assert slept[-1] == 0.1
        retries.begin()
        await retries.pause(deadline=now[0])
        assert len(slept) == 10
