"""The history of features: author, time and change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox, Op, Query
from naksha.model.query import Test as PropertyTest
from naksha.spi.storage import Storage
from naksha.versioning import (
    HistoryStep,
    changesets,
    create_branch,
    history,
    line_of,
    open_branch,
    place_of,
    range_of,
    rebase,
)
from tests.versioning.town import ANN, BOB, all_of, delete, make, place, put


async def test_every_state_with_its_author_and_what_changed(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b"))
    await put(storage, place("a", n=2), by=BOB)
    await delete(storage, "a")
    await put(storage, place("a", n=3))
    first, last = await range_of(storage, "0..HEAD")
    steps = await all_of(history(first, last, "places", Query(ids=("a",))))
    assert [(s.action, s.actor) for s in steps] == [
        ("CREATE", ("ann", "editor")),
        ("UPDATE", ("bob", "editor")),
        ("DELETE", ("ann", "editor")),
        ("CREATE", ("ann", "editor")),
    ]
    assert [s.started_ms for s in steps] == sorted(s.started_ms for s in steps)
    assert steps[1].paths() == ["/properties/n"]
    assert steps[1].patch() == [{"op": "replace", "path": "/properties/n", "value": 2}]
    assert steps[2].paths() == []
    assert "/properties" in steps[3].paths()


async def test_a_part_of_it_knows_what_was_before(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await put(storage, place("a", n=2))
    await put(storage, place("a", n=3))
    first, last = await range_of(storage, "3..4")
    (step,) = await all_of(history(first, last, "places"))
    assert step.previous is not None
    assert step.previous.feature["properties"]["n"] == 2
    assert step.paths() == ["/properties/n"]


async def test_of_all_features_that_match_a_filter(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", 0, 0, n=1), place("b", 5, 5, n=1))
    await put(storage, place("a", 5, 5, n=1), place("b", 0, 0, n=2))
    await put(storage, place("a", 5, 5, n=2))
    first, last = await range_of(storage, "0..HEAD")
    steps = await all_of(history(first, last, "places", Query(spatial=Bbox(4, 4, 6, 6))))
    assert [(s.id, s.state.feature["properties"]["n"], s.paths()) for s in steps[:2]] == [
        ("a", 1, ["/geometry"]),
        ("a", 2, ["/properties/n"]),
    ]
    assert [s.id for s in steps] == ["a", "a", "b"]


def reported(steps: list[HistoryStep]) -> list[tuple[str, str, Any, Any]]:
    """Feature, action, and `n` before and after."""
    return [
        (
            step.id,
            step.action,
            None if step.previous is None else step.previous.feature["properties"].get("n"),
            step.state.feature["properties"].get("n"),
        )
        for step in steps
    ]


async def test_of_a_branch_begins_with_what_it_was_made_from(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await create_branch(storage, "fix", ANN)
    fix = (await open_branch(storage, "fix")).storage
    await put(storage, place("a", n="main"))
    await put(fix, place("a", n=2))
    for ref in ("fix:0..HEAD", "fix:1..HEAD", "fix:*"):
        first, last = await range_of(storage, ref)
        steps = await all_of(history(first, last, "places"))
        assert reported(steps) == [("a", "CREATE", None, 1), ("a", "UPDATE", 1, 2)]
    first, last = await place_of(storage, "HEAD"), await place_of(storage, "fix")
    with pytest.raises(InvalidArgument, match="not in the past"):
        await all_of(history(first, last, "places"))


async def test_goes_on_over_a_rebase(storage: Storage) -> None:
    await make(storage)
    await put(storage, *(place(id_, n=1) for id_ in ("gone", "kept", "moved", "same")))
    await create_branch(storage, "fix", ANN)
    fix = (await open_branch(storage, "fix")).storage
    begin = await put(fix, place("kept", n=2), by=BOB)
    await put(fix, place("kept", n=3), place("new", n=3), by=BOB)
    await put(storage, place("moved", n=4), place("born", n=4))
    await put(storage, place("moved", n=5))
    await delete(storage, "gone")
    await rebase(storage, "fix", BOB)
    fix = (await open_branch(storage, "fix")).storage
    await put(fix, place("moved", n=6), place("new", n=6))
    first, last = await range_of(storage, f"fix:{begin.seq_number}..HEAD")
    steps = await all_of(history(first, last, "places"))
    assert reported(steps) == [
        # What the new base brought is there with the one who wrote it.
        ("born", "CREATE", None, 4),
        ("gone", "DELETE", 1, 1),
        ("kept", "UPDATE", 2, 3),
        # Written again, on top of the new base.
        ("kept", "UPDATE", 3, 3),
        ("moved", "UPDATE", 1, 5),
        ("moved", "UPDATE", 5, 6),
        ("new", "CREATE", None, 3),
        ("new", "CREATE", 3, 3),
        ("new", "UPDATE", 3, 6),
    ]
    by_id = {step.id: step for step in steps}
    assert by_id["moved"].paths() == ["/properties/n"]
    assert [s.paths() for s in steps if s.id == "new"][1:] == [[], ["/properties/n"]]
    some = Query(ids=("moved", "gone"), where=PropertyTest(("properties", "n"), Op.GT, 4))
    assert reported(await all_of(history(first, last, "places", some))) == [
        ("moved", "UPDATE", 1, 5),
        ("moved", "UPDATE", 5, 6),
    ]
    # From the beginning, and until before the rebase.
    first, last = await range_of(storage, "fix:0..HEAD")
    whole = reported(await all_of(history(first, last, "places")))
    assert whole[-4:] == [
        ("new", "CREATE", None, 3),
        ("new", "CREATE", 3, 3),
        ("new", "UPDATE", 3, 6),
        ("same", "CREATE", None, 1),
    ]
    first, last = await range_of(storage, f"fix:{begin.seq_number}..{begin.seq_number + 1}")
    assert reported(await all_of(history(first, last, "places"))) == [
        ("kept", "UPDATE", 2, 3),
        ("new", "CREATE", None, 3),
    ]


async def test_of_a_range_of_dates_and_authors_in_one_query(storage: Storage) -> None:
    await make(storage)
    for n in range(4):
        await put(storage, place("a", n=n), place("b", n=n), by=BOB if n % 2 else ANN)
    log = (await changesets(await line_of(storage, "main"), newest_first=False)).changesets
    dates = [datetime.fromtimestamp(each.version.published_ms / 1000, UTC) for each in log]
    ref = f"0..{dates[-1].isoformat()}"
    first, last = await range_of(storage, ref)
    steps = await all_of(history(first, last, "places", Query(authors=("bob",))))
    assert reported(steps) == [(id_, "UPDATE", n - 1, n) for id_ in ("a", "b") for n in (1, 3)]
    since = Query(txn_from=log[3].version.txn)
    assert reported(await all_of(history(first, last, "places", since))) == [
        (id_, "UPDATE", n - 1, n) for id_ in ("a", "b") for n in (2, 3)
    ]
