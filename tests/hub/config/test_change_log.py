"""The configuration's change log, limited to what an actor may see."""

import msgspec

from naksha.hub.auth.rights import parse_rights
from naksha.hub.config.change_log import ConfigLog
from naksha.hub.config.objects import Space
from tests.hub.handlers.support import ACTOR, HubUnderTest


async def test_objects_that_an_actor_may_not_see_are_left_out(hub: HubUnderTest) -> None:
    await hub.space("open")
    await hub.space("closed")
    await hub.realm.registry.remove(Space, "closed", ACTOR)
    rights = parse_rights({"naksha": {"useSpaces": [{"id": "open"}]}})
    actor = msgspec.structs.replace(ACTOR, rights=rights)
    everything = await ConfigLog(hub.realm.opened, ACTOR).oldest_first(None, 100)
    seen = await ConfigLog(hub.realm.opened, actor).oldest_first(None, 100)
    assert [commit["version"] for commit in seen["commits"]] == [
        commit["version"] for commit in everything["commits"]
    ]
    changes = [each for commit in seen["commits"] for each in commit["changes"]]
    assert changes == [{"action": "create", "kind": "space", "id": "open"}]
    assert "closed" in str(everything)
    assert "closed" not in str(seen)
