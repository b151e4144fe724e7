"""Copies from space to space: their content, number of transactions, and rights."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from naksha.hub.config.objects import Space
from naksha.hub.config.space_changes import create_space
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.requests import IfExists, IfNotExists, ReadFeatures
from naksha.hub.space_copy import CopyOperation, CopyReport, CopySpec
from naksha.model import limits
from naksha.model.errors import FeatureExists, Forbidden, LimitExceeded, NotFound, ReadOnly
from naksha.model.query import Query
from tests.hub.realms import ADMIN, AS_ADMIN, a_feature, a_realm, acting, an_actor, put


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[RealmHub]:
    async with a_realm(tmp_path) as realm:
        for id in ("from", "to"):
            await create_space(realm, Space(id=id), ADMIN)
        yield realm


async def copied(realm: RealmHub, context: Any = AS_ADMIN, **order: Any) -> CopyReport:
    given = {"target_space_id": "to", **order}
    return await CopyOperation(realm, "from", CopySpec(**given), context).run()


async def features_in(realm: RealmHub, space: str) -> dict[str, dict[str, Any]]:
    answer = await realm.send(space, ReadFeatures(), AS_ADMIN)
    return {state.id: state.feature["properties"] for state in await answer.all()}


async def test_a_copy_by_query_is_one_transaction(realm: RealmHub) -> None:
    await put(realm, "from", a_feature("a", "old", n=1), a_feature("b", n=2), a_feature("c", n=3))
    await put(realm, "to", a_feature("b", n=0))
    report = await copied(realm, query=Query(ids=("a", "b")), add_tags=("copied",))
    assert (report.read, report.inserted, report.updated) == (2, 1, 1)
    assert len(report.parts) == 1
    assert report.is_complete
    there = await features_in(realm, "to")
    assert {id: properties["n"] for id, properties in there.items()} == {"a": 1, "b": 2}
    namespace = there["a"]["@ns:com:here:xyz"]
    assert sorted(namespace["tags"]) == ["copied", "old"]
    assert namespace["version"] == 1, "its life in the source does not come along"


async def test_a_copy_is_noted_at_the_target(realm: RealmHub) -> None:
    await put(realm, "from", a_feature("a"))
    report = await copied(realm, query_text="p.n=1")
    (entry,) = (await realm.registry.get(Space, "to")).provenance
    assert (entry["source"], entry["tool"], entry["by"]) == ("space:from", "copy", "tests")
    assert entry["counts"]["inserted"] == 1
    assert (entry["query"], entry["version"]) == ("p.n=1", report.source_version)


async def test_a_version_is_copied(realm: RealmHub) -> None:
    version = (await put(realm, "from", a_feature("a", n=1))).version
    await put(realm, "from", a_feature("a", n=2), a_feature("b"))
    await copied(realm, ref=str(version))
    assert {id: p["n"] for id, p in (await features_in(realm, "to")).items()} == {"a": 1}


@pytest.mark.parametrize(
    ("exists", "expected"),
    [(IfExists.RETAIN, {"n": 0}), (IfExists.REPLACE, {"m": 1}), (IfExists.PATCH, {"n": 0, "m": 1})],
)
async def test_existing_features_follow_the_rules_of_the_copy(
    realm: RealmHub, exists: IfExists, expected: dict[str, int]
) -> None:
    await put(realm, "from", a_feature("a", m=1), a_feature("b", m=1))
    await put(realm, "to", a_feature("a", n=0))
    await copied(realm, if_exists=exists, if_not_exists=IfNotExists.RETAIN)
    there = await features_in(realm, "to")
    there["a"].pop("@ns:com:here:xyz")
    assert there == {"a": expected}


async def test_copies_in_several_parts_are_reported(
    realm: RealmHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COPY_PART_FEATURES", 3)
    await put(realm, "from", *(a_feature(f"f{n}") for n in range(8)))
    with pytest.raises(LimitExceeded):
        await copied(realm, transactional=True)
    assert await features_in(realm, "to") == {}
    report = await copied(realm)
    assert [part.features for part in report.parts] == [3, 3, 2]
    assert len({part.txn for part in report.parts}) == 3
    assert len(await features_in(realm, "to")) == 8


async def test_parts_end_at_bytes_too(realm: RealmHub, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(realm, "from", *(a_feature(f"f{n}", text="x" * 1_000) for n in range(5)))
    monkeypatch.setattr(limits, "COPY_PART_BYTES", 3_500)
    report = await copied(realm)
    assert sum(part.features for part in report.parts) == 5
    assert len(report.parts) > 2


async def test_failures_are_reported_and_the_rest_is_copied(
    realm: RealmHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COPY_PART_FEATURES", 2)
    await put(realm, "from", *(a_feature(f"f{n}") for n in range(5)))
    await put(realm, "to", *(a_feature(f"f{n}") for n in range(4)))
    report = await copied(realm, if_exists=IfExists.ERROR)
    assert (report.inserted, report.failed_count) == (1, 4)
    assert {failure.id for failure in report.failed} == {"f0", "f1", "f2", "f3"}
    positions = {failure.position for failure in report.failed}
    assert len(positions) == 4, "each has its own place among all that were read"
    assert positions <= set(range(5))
    assert len(await features_in(realm, "to")) == 5


async def test_a_copy_of_which_nothing_can_be_written_is_an_error(realm: RealmHub) -> None:
    for space in ("from", "to"):
        await put(realm, space, a_feature("a"), a_feature("b"))
    with pytest.raises(FeatureExists) as refused:
        await copied(realm, if_exists=IfExists.ERROR)
    assert len(refused.value.failures) == 2


async def test_all_or_nothing_is_nothing_when_something_fails(realm: RealmHub) -> None:
    await put(realm, "from", a_feature("a"), a_feature("b"))
    await put(realm, "to", a_feature("b"))
    with pytest.raises(FeatureExists):
        await copied(realm, if_exists=IfExists.ERROR, transactional=True)
    assert list(await features_in(realm, "to")) == ["b"]


async def test_both_sides_must_be_allowed(realm: RealmHub) -> None:
    await put(realm, "from", a_feature("a"))
    writes: dict[str, Any] = {
        "createFeatures": [{"spaceId": "to"}],
        "updateFeatures": [{"spaceId": "to"}],
    }
    too_few: list[dict[str, Any]] = [
        {"readFeatures": [{"spaceId": "from"}]},
        writes,
        {"readFeatures": [{"spaceId": "to"}], **writes},
    ]
    for rights in too_few:
        with pytest.raises(Forbidden):
            await copied(realm, acting(an_actor(useSpaces=[{}], **rights)))
    assert await features_in(realm, "to") == {}
    uses: dict[str, Any] = {"useSpaces": [{"id": "from"}, {"id": "to"}]}
    both = acting(an_actor(readFeatures=[{"spaceId": "from"}], **uses, **writes))
    assert (await copied(realm, both)).inserted == 1


async def test_a_space_that_cannot_be_written_gets_nothing(realm: RealmHub) -> None:
    await put(realm, "from", a_feature("a"))
    await create_space(realm, Space(id="shown", read_only=True), ADMIN)
    with pytest.raises(ReadOnly):
        await copied(realm, target_space_id="shown")
    with pytest.raises(NotFound):
        await copied(realm, target_space_id="nowhere")


async def test_a_copy_that_ends_early_says_what_it_did(
    realm: RealmHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COPY_PART_FEATURES", 2)
    await put(realm, "from", *(a_feature(f"f{n}") for n in range(6)))
    copying = CopyOperation(realm, "from", CopySpec(target_space_id="to"), AS_ADMIN)
    add = CopyReport.add

    def add_and_lock(report: CopyReport, *given: Any) -> None:
        add(report, *given)
        if len(report.parts) == 2:
            raise ReadOnly("locked meanwhile")

    monkeypatch.setattr(CopyReport, "add", add_and_lock)
    with pytest.raises(ReadOnly):
        await copying.run()
    assert (copying.report.inserted, copying.report.is_complete) == (4, False)
    (entry,) = (await realm.registry.get(Space, "to")).provenance
    assert (entry["isComplete"], entry["counts"]["inserted"]) == (False, 4)
