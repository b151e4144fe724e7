"""The catalog suite: concurrent calls have one winner, lose nothing and expose no partial state."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from naksha.model.errors import OutcomeUnknown
from naksha.spi.catalog import CatalogBackend, ObjectKey, PointerRow
from naksha.testing.catalog.history import PointerHistory, ReadCall, SwapCall
from naksha.testing.catalog.suite_support import (
    get,
    get_pointer,
    holds,
    moved,
    pointer,
    thing,
)

RACERS = 16
ROUNDS = 10


class TestOneSwapWinner:
    @pytest.fixture
    def racers(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend
    ) -> list[CatalogBackend]:
        """Return backends for concurrent calls, half of them on another instance."""
        return [catalog_backend, second_backend] * (RACERS // 2)

    async def test_one_winner_of_concurrent_creates(
        self, racers: list[CatalogBackend], realm: str
    ) -> None:
        for round_ in range(ROUNDS):
            rows = [pointer(f"p{round_}", b"%d" % n) for n in range(RACERS)]
            won = await asyncio.gather(
                *(racer.create_pointer(realm, row) for racer, row in zip(racers, rows, strict=True))
            )
            assert won.count(True) == 1
            winner = rows[won.index(True)]
            for racer in racers[:2]:
                assert await get_pointer(racer, realm, winner.name) == winner

    async def test_one_winner_of_concurrent_batch_creates(
        self, racers: list[CatalogBackend], realm: str
    ) -> None:
        names = [f"p{n}" for n in range(50)]
        made = await asyncio.gather(
            *(
                racer.create_pointers(realm, [pointer(name) for name in random.sample(names, 50)])
                for racer in racers
            )
        )
        assert sum(made) == len(names)
        assert set(await racers[0].fetch_pointers(realm, names)) == set(names)

    async def test_one_winner_of_concurrent_swaps(
        self, racers: list[CatalogBackend], realm: str
    ) -> None:
        row = pointer("main")
        assert await racers[0].create_pointer(realm, row)
        for round_ in range(ROUNDS):
            rows = [moved(row, b"%d by %d" % (round_, n)) for n in range(RACERS)]
            won = await asyncio.gather(
                *(r.swap_pointer(realm, row, after) for r, after in zip(racers, rows, strict=True))
            )
            assert won.count(True) == 1
            row = rows[won.index(True)]
            for racer in racers[:2]:
                assert await get_pointer(racer, realm, "main") == row

    async def test_one_winner_of_concurrent_publishes(
        self, racers: list[CatalogBackend], realm: str
    ) -> None:
        row = pointer("main")
        assert await racers[0].create_pointer(realm, row)
        for round_ in range(ROUNDS):
            objects = [thing(RACERS * round_ + n) for n in range(RACERS)]
            shared = thing(10**6 + round_, created_us=1)
            rows = [moved(row, b"%d" % each.id) for each in objects]
            won = await asyncio.gather(
                *(
                    racer.publish(realm, [each, shared], row, after)
                    for racer, each, after in zip(racers, objects, rows, strict=True)
                )
            )
            assert won.count(True) == 1
            row = rows[won.index(True)]
            assert await get_pointer(racers[1], realm, "main") == row
            await holds(racers[0], realm, [*objects, shared])

    async def test_one_winner_of_a_delete_and_a_swap(
        self, racers: list[CatalogBackend], realm: str
    ) -> None:
        for round_ in range(ROUNDS):
            row = pointer(f"p{round_}")
            assert await racers[0].create_pointer(realm, row)
            swapped = moved(row, b"there")
            won = await asyncio.gather(
                *(
                    racer.swap_pointer(realm, row, swapped)
                    if n % 2
                    else racer.delete_pointer(realm, row)
                    for n, racer in enumerate(racers)
                )
            )
            assert won.count(True) == 1
            expected = swapped if won.index(True) % 2 else None
            assert await get_pointer(racers[0], realm, row.name) == expected

    async def test_one_winner_of_inserts_and_replaces(
        self, racers: list[CatalogBackend], realm: str
    ) -> None:
        for id in range(ROUNDS):
            rows = [thing(id, b"%d" % n, token=f"t{n}") for n in range(RACERS)]
            won = await asyncio.gather(
                *(racer.insert(realm, row) for racer, row in zip(racers, rows, strict=True))
            )
            assert won.count(True) == 1
            winner = rows[won.index(True)]
            assert await get(racers[0], realm, id) == winner
            assert winner.token is not None
            rows = [thing(id, b"again %d" % n, token=f"u{n}") for n in range(RACERS)]
            won = await asyncio.gather(
                *(
                    racer.replace(realm, row, winner.token)
                    for racer, row in zip(racers, rows, strict=True)
                )
            )
            assert won.count(True) == 1
            assert await get(racers[1], realm, id) == rows[won.index(True)]

    async def test_one_winner_of_conditional_deletes(
        self, racers: list[CatalogBackend], realm: str
    ) -> None:
        for id in range(ROUNDS):
            assert await racers[0].insert(realm, thing(id, token="t"))
            won = await asyncio.gather(
                *(racer.delete_if(realm, ObjectKey(id), "t") for racer in racers)
            )
            assert won.count(True) == 1


class TestAtOnce:
    async def test_batches_that_overlap_in_any_order_all_succeed(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend, realm: str
    ) -> None:
        ids = list(range(40))

        async def write(backend: CatalogBackend, n: int) -> None:
            for _ in range(5):
                await backend.write(realm, [thing(id, b"%d" % n) for id in random.sample(ids, 40)])

        await asyncio.gather(
            *(write([catalog_backend, second_backend][n % 2], n) for n in range(8))
        )
        assert len(await catalog_backend.fetch(realm, [ObjectKey(id) for id in ids])) == len(ids)

    async def test_a_counter_counts_every_increment(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("counter", b"0")
        assert await catalog_backend.create_pointer(realm, row)

        async def count(backend: CatalogBackend) -> None:
            for _ in range(10):
                while True:
                    before = await get_pointer(backend, realm, "counter")
                    assert before is not None
                    after = moved(before, b"%d" % (int(before.target) + 1))
                    if await backend.swap_pointer(realm, before, after):
                        break
                    await asyncio.sleep(random.random() / 100)

        backends = [catalog_backend, second_backend] * 4
        await asyncio.gather(*map(count, backends))
        after = await get_pointer(second_backend, realm, "counter")
        assert after is not None
        assert after.target == b"80"

    async def test_the_history_of_a_pointer_is_linearizable(
        self, catalog_backend: CatalogBackend, second_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main", b"start")
        assert await catalog_backend.create_pointer(realm, row)
        history = PointerHistory(row.target)
        worker_number = 0

        async def work(backend: CatalogBackend) -> None:
            nonlocal worker_number
            worker_number += 1
            mine = worker_number
            known = row
            for n in range(30):
                if n % 3 != 2:
                    known = await _timed_read(backend, realm, history) or known
                await _timed_swap(backend, realm, known, b"%d/%d" % (mine, n), history)

        await asyncio.gather(*map(work, [catalog_backend, second_backend] * 3))
        last = await get_pointer(catalog_backend, realm, "main")
        assert last is not None
        assert history.check() == last.target

    async def test_cancelled_calls_leave_consistent_data(
        self, catalog_backend: CatalogBackend, realm: str
    ) -> None:
        row = pointer("main", b"0")
        assert await catalog_backend.create_pointer(realm, row)
        dice = random.Random(7)
        for n in range(40):
            after = moved(row, b"%d" % (n + 1))
            call = asyncio.create_task(
                catalog_backend.publish(realm, [thing(n), thing(1000 + n)], row, after)
            )
            await asyncio.sleep(dice.choice([0, 0, 0.0001, 0.001, 0.003]))
            call.cancel()
            results = await asyncio.gather(call, return_exceptions=True)
            assert isinstance(results[0], bool | asyncio.CancelledError | OutcomeUnknown)
            row = await self._settled(catalog_backend, realm, row, after)
        await asyncio.gather(*(catalog_backend.write(realm, [thing(n)]) for n in range(50)))

    async def _settled(
        self, backend: CatalogBackend, realm: str, row: PointerRow, after: PointerRow
    ) -> PointerRow:
        """Return the pointer after its move; a cancelled call may be applied late, but once."""
        found = await get_pointer(backend, realm, row.name)
        if found != after:
            assert found == row
            await backend.swap_pointer(realm, row, after)
            found = await get_pointer(backend, realm, row.name)
        assert found == after
        return after


async def _timed_read(
    backend: CatalogBackend, realm: str, history: PointerHistory
) -> PointerRow | None:
    start = time.perf_counter()
    row = await get_pointer(backend, realm, "main")
    assert row is not None
    history.reads.append(ReadCall(start, time.perf_counter(), row.target))
    return row


async def _timed_swap(
    backend: CatalogBackend, realm: str, row: PointerRow, target: bytes, history: PointerHistory
) -> None:
    start = time.perf_counter()
    won = await backend.swap_pointer(realm, row, moved(row, target))
    history.swaps.append(SwapCall(start, time.perf_counter(), row.target, target, won))
