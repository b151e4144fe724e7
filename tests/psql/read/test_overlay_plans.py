"""Query plans of reads on a branch: an index on every layer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
import pytest
import shapely

from naksha.model.query import Bbox, Intersects, Query, States
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.maintenance.growth import grow
from naksha.psql.read.layers import sources_of
from naksha.psql.read.statements import layered_states, leaf_of
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.suite_support import published
from tests.psql.aging import place
from tests.psql.read.branches import (
    Branch,
    new_branch,
    put,
)
from tests.psql.read.test_explain import explain_generic
from tests.psql.support import connect_to

FEATURES = 20_000


class Large(NamedTuple):
    branch: Branch
    shell: Direct
    last: int


@pytest.fixture(scope="module")
async def large(postgres_cluster: PostgresCluster, installed: str) -> AsyncIterator[Large]:
    """A branch of a larger collection, with some changes on either side."""
    dsn = postgres_cluster.create_database("large_branch", template=installed)
    storage = await PsqlStorage.open(dsn, "test")
    assert await grow(storage._server, "roads")
    for start in range(0, FEATURES, 5_000):
        await put(storage, *(place(f"r{n}", n) for n in range(start, start + 5_000)))
    branch = await new_branch(storage)
    await put(branch.storage, *(place(f"r{n}", -n) for n in range(0, FEATURES, 40)))
    await put(storage, *(place(f"r{n}", n + 1) for n in range(0, FEATURES, 100)))
    last = await published(storage)
    shell = await connect_to(dsn)
    await shell.execute("ANALYZE")
    yield Large(branch, shell, last.txn)
    await shell.close()
    await storage.close()
    postgres_cluster.drop_database("large_branch")


async def test_an_id_touches_one_leaf_of_each_layer(large: Large) -> None:
    shell = large.shell
    sources = await sources_of(shell, tuple(large.branch.layers), "roads", None)
    text, values = layered_states(sources, Query(ids=("r77",)))
    await shell.execute(f"PREPARE asked AS {text}")
    await shell.execute("SET plan_cache_mode = force_generic_plan")
    arguments = ", ".join(
        "ARRAY[" + ", ".join(f"'{v}'" for v in value) + "]"
        if isinstance(value, list)
        else f"'{value}'"
        for value in values
    )
    rows = await shell.fetch(f"EXPLAIN (ANALYZE, COSTS OFF) EXECUTE asked({arguments})")
    await shell.execute("RESET plan_cache_mode")
    await shell.execute("DEALLOCATE asked")
    done = [row[0] for row in rows if "never executed" not in row[0]]
    touched = {m[1] for line in done if (m := re.search(r" on (\w+?_p[0-9a-f])\b", line))}
    assert touched == {f"roads_p{leaf_of('r77')}", f"{sources[0].table}_p0"}, "\n".join(done)
    assert not [line for line in done if re.search(r"Seq Scan on roads", line)]


@pytest.mark.parametrize(
    "query",
    [
        Query(ids=("r77", "r80")),
        Query(spatial=Bbox(1.0, 1.0, 3.0, 3.0)),
        Query(spatial=Intersects(shapely.box(1, 1, 3, 3).wkb)),
        Query(limit=30),
        Query(limit=30, spatial=Bbox(1.0, 1.0, 3.0, 3.0)),
    ],
    ids=["ids", "box", "geometry", "page", "page of a box"],
)
@pytest.mark.parametrize("kind", States)
@pytest.mark.parametrize("at_head", [True, False])
async def test_main_is_read_through_its_indices(
    large: Large, query: Query, kind: States, at_head: bool
) -> None:
    asked = msgspec.structs.replace(query, states=kind)
    layers = tuple(large.branch.layers)
    sources = await sources_of(large.shell, layers, "roads", None if at_head else large.last)
    plan = await explain_generic(large.shell, *layered_states(sources, asked))
    main = {t for t in plan.sequential if re.match(r"roads_(p[0-9a-f]|hst)", t)}
    assert main == set()
