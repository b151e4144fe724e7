"""The log of a space: which of its changesets are told, and in which parts."""

import pytest

from naksha.hub.handlers import storage_log
from naksha.hub.version_requests import ReadChangesets
from naksha.model.collection import CollectionChange
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
async def test_what_changed_no_features_is_left_out(
    any_hub: HubUnderTest, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    hub = any_hub
    monkeypatch.setattr(storage_log, "CHANGESETS_AT_ONCE", at_once)
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
