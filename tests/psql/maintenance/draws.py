"""The steps of naksha_tx_draw one by one, and random schedules of several writers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from naksha.psql.connection.driver import Direct
from tests.psql.support import Connect, begin, check_log, publish, published

DRAW_STEPS = ("begin", "mark", "last", "lock", "next", "write", "commit")


class HandWriter:
    """A writer that can be stopped between any two steps."""

    def __init__(self, connection: Direct) -> None:
        self.connection = connection
        self.last = 0
        self.number: int | None = None

    async def step(self, step: str) -> None:
        run = self.connection
        match step:
            case "begin":
                self.number = None
                await begin(run, "by hand")
            case "mark":
                await run.execute("SELECT pg_advisory_xact_lock_shared(naksha_lock_class(), 0)")
            case "last":
                self.last = await run.fetchval("SELECT last_value FROM naksha_tx_object_id_seq")
            case "lock":
                await run.execute("SELECT pg_advisory_xact_lock_shared($1)", self.last)
            case "next":
                self.number = await run.fetchval("SELECT nextval('naksha_tx_object_id_seq')")
            case "write":
                drawn = f"current_setting('naksha.xid') || ':{self.number}'"
                await run.execute(f"SELECT set_config(naksha_var('txn'), {drawn}, true)")
                await run.execute("SELECT naksha_tx_message('hand', 'text')")
            case _:
                await run.execute(step)


async def play(
    connect: Connect, dice: random.Random, *, rounds: int, steps: Sequence[str] = DRAW_STEPS
) -> None:
    """Three writers and a sequencer take turns at random; then all of the log must be right."""
    watcher = await connect()
    writers = [HandWriter(await connect()) for _ in range(3)]
    places = [0] * len(writers)
    kept = []
    for _ in range(rounds * len(steps)):
        chosen = dice.randrange(len(writers) + 1)
        if chosen == len(writers):
            await publish(watcher)
            continue
        writer, step = writers[chosen], steps[places[chosen]]
        if step == "commit" and dice.random() < 0.3:
            step = "ROLLBACK"
        await writer.step(step)
        if step == "commit" and writer.number is not None:
            assert writer.number > max(await published(watcher)), "overtaken"
            kept.append(writer.number)
        places[chosen] = (places[chosen] + 1) % len(steps)
    for writer in writers:
        await writer.connection.execute("ROLLBACK")
    await publish(watcher)
    await check_log(watcher, kept)
