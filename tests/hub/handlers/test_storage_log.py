"""The log of a space: its visible changesets, and their parts."""

from typing import Any

import pytest

from naksha.hub.handlers.stored import log
from naksha.hub.pipeline.requests import IfExists, Modification, WriteFeatures
from naksha.hub.pipeline.version_requests import MakeBranch, ReadChangesets
from naksha.model.collection import CollectionChange
from naksha.model.errors import Expired
from naksha.model.query import Op, Query
from naksha.model.query import Test as PropertyTest
from naksha.spi.storage import WriteSession
from tests.hub.handlers.support import CONTEXT, HubUnderTest, feature


async def set_up(hub: HubUnderTest, times: int) -> None:
    """Change the settings of the collection, so many times."""
    storage = await hub.realm.storage("default")

    for number in range(times):

        async def change(session: WriteSession, age: int = number + 1) -> None:
            await session.change_collection("roads", CollectionChange(max_age=age))

        await storage.run(change, "tests", None)


async def parts(hub: HubUnderTest, limit: int) -> list[list[int]]:
    """The versions of all parts of the log."""
    found: list[list[int]] = []
    after: str | None = ""
    while after is not None:
        page = await hub.realm.send("roads", ReadChangesets(after=after, limit=limit), CONTEXT)
        found.append([each.changeset.version.seq_number for each in page.changesets])
        after = page.after
    return found


@pytest.mark.parametrize("at_once", [1, 2, 100])
async def test_changesets_without_features_are_omitted(
    any_hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    hub = any_hub
    monkeypatch.setattr(log, "CHANGESETS_MAX", at_once)
    await hub.space("roads", ("storage", {"collection": "roads"}))
    written = []
    for number in range(3):
        if number:
            await set_up(hub, 3)
        written.append((await hub.put("roads", feature("a", n=number))).version)
    await set_up(hub, 1)
    one_each = [part for part in await parts(hub, limit=1) if part]
    assert one_each == [[version] for version in written]
    assert [version for part in await parts(hub, limit=9) for version in part] == written


async def ids_of(hub: HubUnderTest, **asked: Any) -> list[tuple[int, list[str]]]:
    """The ids of the changed features of each page, with the version."""
    found: list[tuple[int, list[str]]] = []
    after: str | None = ""
    while after is not None:
        page = await hub.realm.send("roads", ReadChangesets(after=after, **asked), CONTEXT)
        for each in page.changesets:
            states = [
                state.id
                for some in (each.inserted, each.updated, each.deleted)
                for state in await some.all()
            ]
            found.append((each.changeset.version.seq_number, sorted(states)))
        after = page.after
    return found


async def test_filtered_changes_are_buffered_in_parts(
    any_hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of changesets that are larger than fit there, too; on main and on a branch."""
    hub = any_hub
    await hub.space("roads", ("storage", {"collection": "roads"}))
    base = (await hub.put("roads", *(feature(id, kind="road") for id in "abcd"))).version
    await hub.realm.send("roads", MakeBranch(name="fix"), CONTEXT)
    changed = [feature(id, kind="path") for id in "abc"] + [feature("x", kind="path")]
    for ref in ("main", "fix"):
        replaced = Modification(features=tuple(changed), if_exists=IfExists.REPLACE)
        write = WriteFeatures(modifications=(replaced,), ref=ref)
        written = await hub.realm.send("roads", write, CONTEXT)
        road = Query(where=PropertyTest(("properties", "kind"), Op.EQ, "road"))
        for at_once in (1, 2, 100):
            monkeypatch.setattr(log, "BUFFERED_CHANGES_MAX", at_once)
            asked = {"ref": f"{ref}:{base}..HEAD", "features": road}
            found = await ids_of(hub, **asked)
            assert sorted(id for _, ids in found for id in ids) == ["a", "b", "c"]
            assert {version for version, ids in found if ids} == {written.version}


async def test_changesets_whose_features_were_not_kept(any_hub: HubUnderTest) -> None:
    """With a filter or without one, they are expired, and never answered as if they were empty."""
    hub = any_hub
    await hub.space("roads", ("storage", {"collection": "roads"}))
    await hub.put("roads", feature("a", n=1))
    storage = await hub.realm.storage("default")

    async def without_history(session: WriteSession) -> None:
        await session.change_collection("roads", CollectionChange(history_enabled=False))

    await storage.run(without_history, "tests", None)
    await hub.put("roads", feature("a", n=2))
    for query in (Query(), Query(ids=("a",)), Query(authors=("tests",))):
        with pytest.raises(Expired):
            await hub.realm.send("roads", ReadChangesets(features=query), CONTEXT)
