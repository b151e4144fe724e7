"""Admission control: bounded, and fair between actors."""

import asyncio

import pytest

from naksha.model.errors import Busy
from naksha.server.middleware.admission import AdmissionController, AdmissionLimits


def admission(
    parallel: int, of_actor: int = 100, queue: int = 100, seconds: float = 60
) -> AdmissionController:
    return AdmissionController(AdmissionLimits(parallel, of_actor, queue, seconds))


class Visitors:
    """Tasks that hold, or wait for, a slot until they are released."""

    def __init__(self, made: AdmissionController) -> None:
        self.admission = made
        self.served: list[str] = []
        self._ends: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, actor: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._record(actor))
        self.tasks.append(task)
        await settle()
        return task

    async def _record(self, actor: str) -> None:
        await self.admission.enter(actor)
        try:
            end = asyncio.Event()
            self.served.append(actor)
            self._ends.append(end)
            await end.wait()
        finally:
            self.admission.leave(actor)

    async def one_goes(self) -> None:
        self._ends.pop(0).set()
        await settle()

    async def all_go(self) -> None:
        while self._ends:
            await self.one_goes()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_lines_take_turns_however_long_they_are() -> None:
    visitors = Visitors(admission(parallel=1))
    for actor in "aaaaabc":
        await visitors.come(actor)
    assert visitors.served == ["a"]
    assert visitors.admission.waiting == 6
    await visitors.all_go()
    assert "".join(visitors.served) == "aabcaaa"
    assert (visitors.admission.running, visitors.admission.waiting) == (0, 0)


async def test_an_actor_over_the_limit_blocks_no_other() -> None:
    visitors = Visitors(admission(parallel=3, of_actor=2))
    for actor in "aaaab":
        await visitors.come(actor)
    assert visitors.served == ["a", "a", "b"]
    assert visitors.admission.waiting == 2
    await visitors.all_go()
    assert visitors.served == ["a", "a", "b", "a", "a"]


async def test_requests_of_an_actor_are_admitted_in_order() -> None:
    visitors = Visitors(admission(parallel=2, of_actor=1))
    for actor in "aaa":
        await visitors.come(actor)
    await visitors.one_goes()
    late = await visitors.come("a")
    assert visitors.served == ["a", "a"]
    assert not late.done()
    await visitors.all_go()


async def test_a_full_line_turns_away_at_once() -> None:
    visitors = Visitors(admission(parallel=1, queue=1))
    for actor in "aab":
        await visitors.come(actor)
    refused = await visitors.come("a")
    with pytest.raises(Busy, match="Too many parallel requests"):
        await refused
    assert visitors.admission.waiting == 2
    await visitors.all_go()
    assert sorted(visitors.served) == ["a", "a", "b"]


async def test_the_time_in_the_queue_is_limited() -> None:
    visitors = Visitors(admission(parallel=1, seconds=0.05))
    await visitors.come("a")
    with pytest.raises(Busy, match=r"0\.05 seconds"):
        await (await visitors.come("b"))
    assert visitors.admission.waiting == 0
    await visitors.all_go()


async def test_a_cancelled_request_leaves_the_queue() -> None:
    visitors = Visitors(admission(parallel=1))
    await visitors.come("a")
    gone = await visitors.come("b")
    await visitors.come("c")
    # Cancelled, and in the same moment a place gets free: before the task itself knows of either.
    gone.cancel()
    await visitors.one_goes()
    assert visitors.served == ["a", "c"]
    await visitors.all_go()
    assert (visitors.admission.running, visitors.admission.waiting) == (0, 0)


async def test_a_request_cancelled_on_admission_releases_its_slot() -> None:
    made = admission(parallel=1)
    visitors = Visitors(made)
    await visitors.come("a")
    gone = await visitors.come("b")
    visitors._ends.pop(0).set()
    while True:
        await asyncio.sleep(0)
        if made._running_of.get("b"):
            break
    gone.cancel()
    await settle()
    assert (made.running, made.waiting) == (0, 0)
    await visitors.come("c")
    assert visitors.served == ["a", "c"]
    await visitors.all_go()
