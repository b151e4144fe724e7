"""Rights to a subset of features, compared with a plain filter: pure, and on real storages."""

import random
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.hub.auth import resources
from naksha.hub.auth.rights import FeatureScope, Right, parse_rights
from naksha.hub.auth.row_rights import (
    RightsAttributes,
    predicate_of,
    rights_attributes_in,
    rights_attributes_of,
)
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.hub.pipeline.requests import (
    CountFeatures,
    DeleteFeatures,
    IfExists,
    IfNotExists,
    Modification,
    ReadFeatures,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Written
from naksha.model.errors import Forbidden
from naksha.model.query import Op, Query
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ, State
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.models.brute_force import holds
from tests.hub.handlers.support import HubUnderTest, feature, open_hub

SPACE = resources.space("roads", owner="tests")
IN_SPACE = resources.features(SPACE)
TAGS = ("open", "eu-west", "eu-east", "checked", "@Odd ✓")
APPS = ("editor", "edit", "import")
AUTHORS = ("anna", "ann", "ben")
IDS = tuple(f"{kind}-{n}" for kind in ("road", "place", "r") for n in range(8))


def scope_of(maps: list[dict[str, Any]]) -> FeatureScope:
    return parse_rights({"naksha": {"readFeatures": maps}}).scope(Right.READ_FEATURES, IN_SPACE)


def is_in(scope: FeatureScope, marks: RightsAttributes) -> bool:
    return scope.allows(marks.among(IN_SPACE).attributes)


def state_of(marks: RightsAttributes) -> dict[str, Any]:
    namespace = {"tags": [*marks.tags], "appId": marks.app_id, "author": marks.author}
    return {"id": marks.id, "properties": {XYZ: namespace}}


# ---- Pure ----------------------------------------------------------------------------------------

texts = st.sampled_from(["", "a", "ab", "b", "abc", "é", "a*", "*", "a\0", "\ud800"])
values = st.one_of(texts, texts.map(lambda text: f"{text}*"), st.lists(texts, max_size=2))
maps = st.dictionaries(st.sampled_from(["id", "tags", "appId", "author", "space"]), values)
marks_ = st.builds(
    RightsAttributes,
    texts.filter(str.isprintable),
    st.lists(st.sampled_from(["a", "ab", "b", "é"]), max_size=3),
    st.sampled_from(["a", "ab", "b"]),
    st.sampled_from([None, "a", "ab", "b"]),
)


@given(st.lists(maps, max_size=3), marks_)
def test_a_scope_is_a_predicate(maps: list[dict[str, Any]], marks: RightsAttributes) -> None:
    scope = scope_of(maps)
    made = state_of(marks)
    assert rights_attributes_in(made) == (marks.id, marks.tags or (), marks.app_id, marks.author)
    assert holds(made, predicate_of(scope)) is is_in(scope, marks)


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{}", b'{"properties":null}', b'{"properties":{"%s":7}}' % XYZ.encode()],
)
def test_malformed_features_have_no_rights_attributes(raw: bytes) -> None:
    assert rights_attributes_of(State("a", raw)) == RightsAttributes("a")


# ---- On storages ---------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
async def hub(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HubUnderTest]:
    """A hub with a space that several people have written to."""
    if request.param == "file":
        directory: Path = tmp_path_factory.mktemp("scopes")
        async with open_hub(f"file:{directory}/{{realm}}.naksha") as opened:
            await fill(opened)
            yield opened
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn:
        async with open_hub(dsn) as opened:
            await fill(opened)
            yield opened


async def fill(hub: HubUnderTest, space: str = "roads") -> None:
    await hub.space(space)
    chance = random.Random(7)
    by_whom: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for id in IDS:
        whom = chance.choice(APPS), chance.choice((*AUTHORS, None))
        tags = chance.sample(TAGS, chance.randint(0, 3))
        by_whom.setdefault(whom, []).append(feature(id, tags=tags, speed=chance.randint(0, 9)))
    for (app, author), features in by_whom.items():
        await write(hub, acting(app, author, ALL), space, *features)


ALL: dict[str, Any] = {right.value: [{}] for right in Right}


def acting(app: str, author: str | None, actions: dict[str, Any]) -> RequestContext:
    rights = parse_rights({"naksha": {"useSpaces": [{}], **actions}})
    return RequestContext(actor=Actor(app_id=app, author=author, rights=rights), stream_id="1")


async def write(
    hub: HubUnderTest,
    context: RequestContext,
    space: str,
    *features: dict[str, Any],
    ids: Collection[str] = (),
    e: IfExists = IfExists.PATCH,
    ne: IfNotExists = IfNotExists.CREATE,
    **options: Any,
) -> Written:
    one = Modification(features=features, ids=tuple(ids), if_exists=e, if_not_exists=ne)
    return await hub.realm.send(space, WriteFeatures(modifications=(one,), **options), context)


async def marks_there(hub: HubUnderTest, space: str) -> dict[str, RightsAttributes]:
    answer = await hub.realm.send(space, ReadFeatures(), acting("tests", None, ALL))
    return {state.id: rights_attributes_of(state) for state in await answer.all()}


def random_maps(chance: random.Random) -> list[dict[str, Any]]:
    def value(among: Collection[str]) -> str:
        text = chance.choice([*among])
        return text if chance.random() < 0.6 else text[: chance.randint(0, 4)] + "*"

    found = []
    for _ in range(chance.randint(1, 3)):
        names = chance.sample(["id", "tags", "appId", "author"], chance.randint(1, 2))
        made: dict[str, Any] = {}
        for name in names:
            among = {"id": IDS, "tags": TAGS, "appId": APPS, "author": AUTHORS}[name]
            made[name] = value(among)
            if name == "tags" and chance.random() < 0.3:
                made[name] = [value(TAGS), value(TAGS)]
        found.append(made)
    return found


@pytest.mark.parametrize("seed", range(20))
async def test_reads_counts_and_pages_are_those_of_a_plain_filter(
    hub: HubUnderTest, seed: int
) -> None:
    chance = random.Random(seed)
    maps = random_maps(chance)
    scope = scope_of(maps)
    there = await marks_there(hub, "roads")
    wanted = sorted(id for id, marks in there.items() if is_in(scope, marks))
    context = acting("reader", None, {"readFeatures": maps})
    answer = await hub.realm.send("roads", ReadFeatures(), context)
    assert sorted(state.id for state in await answer.all()) == wanted, maps
    assert (await hub.realm.send("roads", CountFeatures(), context)).count == len(wanted)
    fast = Query(where=PropertyTest(("properties", "speed"), Op.GT, 4))
    both = await hub.realm.send("roads", ReadFeatures(query=fast), context)
    assert {state.id for state in await both.all()} <= set(wanted)
    assert await paged(hub, context, size=3) == [
        wanted[n : n + 3] for n in range(0, len(wanted), 3)
    ]


async def paged(hub: HubUnderTest, context: RequestContext, size: int) -> list[list[str]]:
    """The ids of all pages that have some."""
    pages, query = [], Query(limit=size)
    while True:
        answer = await hub.realm.send("roads", ReadFeatures(query=query, paged=True), context)
        ids = [state.id for state in await answer.all()]
        if ids:
            pages.append(ids)
        if answer.cursor is None:
            return pages
        query = Query(limit=size, cursor=answer.cursor)


@pytest.mark.parametrize("seed", range(12))
async def test_writes_need_old_and_new_state_in_scope(hub: HubUnderTest, seed: int) -> None:
    """A changed feature is in scope before and after the write. A refused write would break that:
    it is repeated with all rights to check."""
    chance = random.Random(seed)
    space = f"written{seed}"
    await fill(hub, space)
    maps = random_maps(chance)
    scope = scope_of(maps)
    app, author = chance.choice(APPS), chance.choice((*AUTHORS, None))
    rights = dict.fromkeys(("createFeatures", "updateFeatures", "deleteFeatures"), maps)
    context = acting(app, author, rights)
    before = await marks_there(hub, space)
    for _ in range(12):
        id = chance.choice((*IDS, "road-new", "x"))
        tags = chance.sample(TAGS, chance.randint(0, 2))
        e = chance.choice((IfExists.PATCH, IfExists.REPLACE, IfExists.DELETE))
        sent = feature(id, tags=tags, speed=chance.randint(10, 99))
        options: dict[str, Any] = {"transactional": chance.random() < 0.5}
        if chance.random() < 0.3:
            options |= {"add_tags": (chance.choice(TAGS),), "remove_tags": ("checked",)}
        refused = None
        try:
            await write(hub, context, space, sent, e=e, **options)
        except Forbidden as error:
            refused = error
        after = await marks_there(hub, space)
        old, new = before.get(id), after.get(id)
        assert {i: m for i, m in after.items() if i != id} == {
            i: m for i, m in before.items() if i != id
        }
        if refused is not None:
            assert (refused.feature_id, new) == (id, old)
            await write(hub, acting(app, author, ALL), space, sent, e=e, **options)
            after = await marks_there(hub, space)
            new = after.get(id)
        allowed = all(marks is None or is_in(scope, marks) for marks in (old, new))
        assert allowed is (refused is None), (maps, old, new)
        before = after


async def test_a_write_is_refused_as_a_whole_or_feature_by_feature(hub: HubUnderTest) -> None:
    await fill(hub, "parts")
    context = acting("editor", "anna", {"createFeatures": [{"tags": "open"}], "updateFeatures": []})
    mine, others = feature("a", tags=["open"]), feature("b", tags=["checked"])
    both: dict[str, Any] = {"e": IfExists.RETAIN, "ne": IfNotExists.CREATE}
    with pytest.raises(Forbidden) as refused:
        await write(hub, context, "parts", mine, others, **both)
    assert (refused.value.feature_id, refused.value.right) == ("b", "createFeatures")
    assert "a" not in await marks_there(hub, "parts")
    written = await write(hub, context, "parts", mine, others, **both, transactional=False)
    assert written.inserted == ("a",)
    assert [(each.id, each.position, each.code) for each in written.failed] == [
        ("b", 1, "forbidden")
    ]


async def test_deletions_by_query_are_limited_to_the_scope(hub: HubUnderTest) -> None:
    await fill(hub, "deleted")
    context = acting("editor", None, {"deleteFeatures": [{"id": "road-*"}]})
    with pytest.raises(Forbidden):
        await hub.realm.send("deleted", DeleteFeatures(), context)
    assert set(await marks_there(hub, "deleted")) == set(IDS)
    roads = Query(where=PropertyTest(("id",), Op.STARTS_WITH, "road-"))
    deleted = await hub.realm.send("deleted", DeleteFeatures(query=roads), context)
    assert deleted.count == 8
    assert set(await marks_there(hub, "deleted")) == {id for id in IDS if "road" not in id}
