"""Isolation of a realm's data from other realms, however they name it."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from naksha.catalog.realms import RealmStatus
from naksha.hub.config.objects import Identity, StorageObject
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.storages.allowed_locations import AllowedLocations
from naksha.hub.storages.changes import create_storage, replace_storage
from naksha.model import limits
from naksha.model.errors import Conflict, Forbidden, InvalidArgument, OutcomeUnknown
from naksha.testing.fixtures import DatabaseFactory
from tests.hub.realms import ADMIN, a_hub

DATABASE = "postgresql://hub:secret@db/maps"
ON_DATABASE = DefaultStorage(
    location=DATABASE, options_of_others={"schema": "naksha_{realm}", "poolMax": 5}
)


def a_storage(location: str, **more: Any) -> StorageObject:
    return StorageObject(id="more", properties={"location": location, **more})


def is_allowed(tenancy: AllowedLocations, realm: str, location: str, **more: Any) -> bool:
    try:
        tenancy.check_allowed(realm, a_storage(location, **more))
    except Forbidden:
        return False
    return True


async def make(realm: RealmHub, location: str, **more: Any) -> StorageObject:
    return await create_storage(realm, a_storage(location, **more), ADMIN)


# ---- What the list says --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "more"),
    [
        ("file:elsewhere.naksha", {}),
        ("file:data/b/../a/town.naksha", {}),
        ("file:data/b/%2e%2E/a/town.naksha", {}),
        ("postgresql://other/maps", {}),
        ("postgresql://db/maps?host=other", {}),
        ("postgresql://db/maps", {"readers": ["postgresql://other/maps"]}),
        ("postgresql://db/maps", {"readers": "postgresql://other/maps"}),
    ],
)
def test_storages_are_where_they_may_be(location: str, more: dict[str, object]) -> None:
    allowed = ["file:data/{realm}/", "postgresql://db/maps", "postgresql:///own?host=/run/own"]
    tenancy = AllowedLocations(DefaultStorage(location="file:{realm}.naksha"), allowed)

    def check(location: str, **more: object) -> None:
        properties = {"location": location, **more}
        tenancy.check_allowed("b", StorageObject(id="any", properties=properties))

    check("file:data/b/town.naksha")
    check("postgresql://db/maps", readers=["postgresql://db/maps_copy"])
    check("postgresql:///own?host=/run/own")
    with pytest.raises(Forbidden, match="not allowed"):
        check(location, **more)


@pytest.mark.parametrize(
    ("beginning", "other"),
    [
        ("file:{realm}", "file:b_c"),
        ("postgresql://db/{realm}", "postgresql://db/b2"),
        ("postgresql://db/{realm}_x", "postgresql://db/b_x_x"),
    ],
)
def test_an_id_is_not_the_beginning_of_another_one(beginning: str, other: str) -> None:
    tenancy = AllowedLocations(DefaultStorage(location="file:{realm}.naksha"), [beginning])
    assert is_allowed(tenancy, "b", beginning.format(realm="b"))
    assert is_allowed(tenancy, "b", beginning.format(realm="b") + "$old")
    assert not is_allowed(tenancy, "b", other)


# ---- What is a realm's own -----------------------------------------------------------------------


def test_without_a_list_a_realm_has_its_own_locations() -> None:
    tenancy = AllowedLocations(DefaultStorage(location="file:{realm}.naksha"), ())
    assert is_allowed(tenancy, "b", "file:b.naksha")
    assert is_allowed(tenancy, "b", "file:b/town.naksha")
    for location in (
        *("file:a.naksha", "file:./a.naksha", "file:a/town.naksha", "file:b2/town.naksha"),
        *("file:b/../a.naksha", "file:b/%2e%2e/a.naksha", "file:b/.\t./a.naksha", "file:///a"),
        *("memory:", "postgresql:///maps"),
    ):
        assert not is_allowed(tenancy, "b", location), location
    assert is_allowed(
        AllowedLocations(DefaultStorage(location="file:{realm}.naksha")), "b", "file:///a"
    )


@pytest.mark.parametrize("allowed", [(), ("postgresql://",)])
def test_in_one_database_a_realm_has_its_schemas(allowed: tuple[str, ...]) -> None:
    tenancy = AllowedLocations(ON_DATABASE, allowed)
    for realm, mine in (("default", "naksha"), ("a", "naksha_a"), ("a_b", "naksha_a_b")):
        assert is_allowed(tenancy, realm, DATABASE, schema=mine)
        assert is_allowed(tenancy, realm, DATABASE, schema=f"{mine}$old")
        assert is_allowed(tenancy, realm, DATABASE) == (realm == "default")
        for other in {"naksha", "naksha_a", "naksha_a_b", "naksha_a_b$old", "public"} - {mine}:
            is_mine = other.startswith(f"{mine}$")
            assert is_allowed(tenancy, realm, DATABASE, schema=other) == is_mine, (realm, other)


def test_a_database_has_many_names_and_schemas_count_in_all_of_them() -> None:
    tenancy = AllowedLocations(ON_DATABASE, ("postgresql://", "postgres://"))
    for location in ("postgres://hub@db:5432/maps", "postgresql://alias/maps", "postgresql://db"):
        assert not is_allowed(tenancy, "b", location)
        assert is_allowed(tenancy, "b", location, schema="naksha_b")
    assert is_allowed(tenancy, "b", "postgresql://db/own", schema="roads")
    reading = {"readers": ["postgresql://copy/maps"]}
    assert not is_allowed(tenancy, "b", "postgresql://db/own", **reading)


# ---- What others have ----------------------------------------------------------------------------


async def test_locations_of_other_realms_are_always_refused(tmp_path: Path) -> None:
    async with a_hub(tmp_path, files=tmp_path) as hub:
        a, b = await hub.set_up_realm("a"), await hub.set_up_realm("b")
        await make(a, "file:town.naksha")
        (tmp_path / "link.naksha").symlink_to(tmp_path / "town.naksha")
        for location in (
            *("file:town.naksha", f"file:{tmp_path}/town.naksha", "file:x/../town.naksha"),
            *("file:t%6fwn.naksha", "file:link.naksha", f"file:{tmp_path}/a.naksha"),
        ):
            with pytest.raises(Forbidden) as caught:
                await make(b, location)
            assert "'a'" not in caught.value.message
        await hub.catalog.realms.update(await hub.catalog.realms.get("a"), RealmStatus.INACTIVE)
        with pytest.raises(Forbidden):
            await make(b, "file:town.naksha")
        await make(b, "file:other.naksha")


async def test_one_of_several_realms_claims_a_location(tmp_path: Path) -> None:
    storage = DefaultStorage(location=f"file:{tmp_path}/{{realm}}.naksha")
    async with AsyncExitStack() as stack:
        hubs = []
        for _ in range(2):  # as two servers are
            hub = await Hub.open(f"file:{tmp_path}/hub.catalog", storage, files=tmp_path)
            stack.push_async_callback(hub.close)
            hubs.append(hub)
        realms = [await hubs[n % 2].set_up_realm(f"r{n}") for n in range(4)]
        for place in ("file:one.naksha", "file:two.naksha", "file:three.naksha"):
            more = StorageObject(id=place[5:8], properties={"location": place})
            tried = await asyncio.gather(
                *(create_storage(realm, more, ADMIN) for realm in realms), return_exceptions=True
            )
            assert sorted(type(one).__name__ for one in tried) == [
                *["Forbidden"] * 3,
                "StorageObject",
            ]


async def test_a_claim_ends_with_its_attempt_and_an_abandoned_one_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_hub(tmp_path, files=tmp_path) as hub:
        a, b = await hub.set_up_realm("a"), await hub.set_up_realm("b")
        (tmp_path / "no.naksha").write_text("This is not a storage.")
        with pytest.raises(InvalidArgument):
            await make(a, "file:no.naksha")
        with pytest.raises(InvalidArgument):  # and not: not for this realm
            await make(b, "file:no.naksha")
        with pytest.raises(OutcomeUnknown):
            async with a.claimed(a_storage("file:town.naksha")):
                raise OutcomeUnknown("The catalog has not answered")
        with pytest.raises(Forbidden):
            await make(b, "file:town.naksha")
        await make(a, "file:town.naksha")
        await a.registry.remove(StorageObject, "more", ADMIN)
        monkeypatch.setattr(limits, "STORAGE_CLAIM_SECONDS", -1)
        await make(b, "file:town.naksha")


async def test_a_new_realm_gets_no_place_that_another_one_has(tmp_path: Path) -> None:
    async with a_hub(tmp_path, files=tmp_path) as hub:
        await make(await hub.set_up_realm("a"), "file:b.naksha")
        with pytest.raises(Forbidden):
            await hub.set_up_realm("b")


def test_a_database_is_the_same_one_with_other_options() -> None:
    tenancy = AllowedLocations(ON_DATABASE)

    def places(location: str, **more: Any) -> set[Any]:
        return set(tenancy.locations_of(a_storage(location, **more)))

    same = places("postgresql://db/maps", schema="naksha", poolMax=3)
    assert same == places("postgres://other:pw@DB:5432/maps")
    assert same == places("postgresql:///maps?host=db&port=5432")
    assert places("postgresql:///maps") == places("postgresql://localhost/maps")
    for other in ("postgresql://db2/maps", "postgresql://db:5433/maps", "postgresql://db/maps2"):
        assert same.isdisjoint(places(other))
    assert same.isdisjoint(places("postgresql://db/maps", schema="roads"))
    assert places("nonsense") == set()


async def test_a_storage_can_be_changed_but_not_moved_to_foreign_locations(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    async with a_hub(tmp_path, files=tmp_path, allowed_locations=()) as hub:
        b = await hub.set_up_realm("b")
        made = await make(b, "file:b/town.naksha")
        with pytest.raises(Forbidden):
            await replace_storage(b, a_storage(f"file:{tmp_path}/default.naksha"), ADMIN)
        changed = await replace_storage(
            b, StorageObject(id="more", title="Town", properties=made.properties), ADMIN
        )
        assert changed.title == "Town"


@pytest.mark.postgres
async def test_realms_of_one_database_have_schemas_of_their_own(
    database_factory: DatabaseFactory,
) -> None:
    with database_factory.fresh() as dsn:
        own = DefaultStorage(location=dsn, options_of_others={"schema": "naksha_{realm}"})
        hub = await Hub.open("memory:", own, allowed_locations=())
        try:
            a, b = await hub.set_up_realm("a"), await hub.set_up_realm("a_b")
            await make(a, dsn, schema="naksha_a$old")
            for schema in ("naksha", "naksha_a", "naksha_a$old", "naksha_catalog", "public"):
                with pytest.raises(Forbidden):
                    await make(b, dsn, schema=schema)
            assert await (await a.storage("more")).collections() == []
        finally:
            await hub.close()


async def test_a_storage_replaced_during_the_check_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options are kept from the stored configuration, which may have changed meanwhile."""
    async with a_hub(tmp_path, files=tmp_path) as hub:
        realm = await hub.realm("default")
        await make(realm, "file:one.naksha", storageId="one")

        async def move(thing: StorageObject) -> Identity:
            other = a_storage("file:two.naksha")
            await replace_storage(realm, other, ADMIN, is_tried=False)
            assert thing.identity is not None
            return thing.identity

        monkeypatch.setattr(realm, "try_out_storage", move)
        with pytest.raises(Conflict):
            await replace_storage(realm, a_storage("file:one.naksha"), ADMIN)
        kept = await realm.registry.get(StorageObject, "more")
        assert kept.properties == {"location": "file:two.naksha"}


async def test_no_realm_has_the_schema_of_the_catalog(tmp_path: Path) -> None:
    async with a_hub(tmp_path, files=tmp_path) as hub:
        with pytest.raises(InvalidArgument, match="catalog"):
            await hub.set_up_realm("catalog")
