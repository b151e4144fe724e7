"""Rights granted by a role to tokens that name it."""

from pathlib import Path

from naksha.hub.auth.resources import space
from naksha.hub.auth.rights import Right, parse_rights
from naksha.hub.config.objects import Role
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub
from naksha.hub.pipeline.request_context import Actor, anonymous

PUBLIC = {"naksha": {"manageSpaces": [{"id": "public-*"}]}}


async def with_roles(actor: Actor, hub: Hub) -> Actor:
    return await (await (await hub.realm(actor.realm)).configuration()).granted(actor)


def may_manage(actor: Actor, id: str) -> bool:
    return actor.rights.allows(Right.MANAGE_SPACES, space(id))


async def test_roles_are_those_of_the_realm_as_it_is_now(tmp_path: Path) -> None:
    storage = DefaultStorage(location=f"file:{tmp_path}/{{realm}}.naksha")
    hub = await Hub.open(f"file:{tmp_path}/hub.catalog", storage)
    try:
        rights = parse_rights({"naksha": {"roles": ["editor", "unknown"]}})
        actor = Actor(app_id="test", rights=rights)
        assert not may_manage(await with_roles(actor, hub), "public-roads")

        registry = (await hub.realm("default")).registry
        await registry.create(Role(id="editor", urm=PUBLIC), anonymous())
        allowed = await with_roles(actor, hub)
        assert may_manage(allowed, "public-roads")
        assert not may_manage(allowed, "private-roads")

        await hub.set_up_realm("other")
        stranger = Actor(app_id="test", realm="other", rights=rights)
        assert not may_manage(await with_roles(stranger, hub), "public-roads")

        await registry.remove(Role, "editor", anonymous())
        assert not may_manage(await with_roles(actor, hub), "public-roads")
    finally:
        await hub.close()
