"""A state machine that runs the same operations on a storage and a model, and compares them."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from naksha.model.collection import CollectionInfo
from naksha.model.errors import Conflict, InUse, MergeConflict
from naksha.model.query import Bbox, Op, Query
from naksha.model.query import Test as PropertyTest
from naksha.model.state import State
from naksha.model.version import HEAD, VersionSelector
from naksha.spi.storage import Storage, StorageReader
from naksha.testing.models.stateful_support import CoroutineRunner
from naksha.versioning import (
    Attribution,
    MergePolicy,
    WriteReport,
    branches,
    changesets,
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    diff,
    history,
    merge,
    open_branch,
    place_of,
    rebase,
    rename_branch,
    revert,
    rollback,
    tags,
)
from tests.versioning.model import Content, Model

IDS = ("a", "b", "c", "d")
BY = Attribution("machine", "ann")
PROPERTIES = st.dictionaries(
    st.sampled_from(("n", "m")), st.integers(0, 2) | st.booleans(), max_size=2
)
PLACE = "place"
"""Key of the geometry in the model."""
VALUES = st.integers(0, 2) | st.booleans()
POLICIES: dict[MergePolicy, str | None] = {
    MergePolicy.FAIL: None,
    MergePolicy.OURS: "ours",
    MergePolicy.THEIRS: "theirs",
}


class VersioningMachine(RuleBasedStateMachine):
    """One example: a collection of its own, with its own tags and branches, in a storage that
    other examples have used before. Versions of the model are counted from the first one."""

    driver: ClassVar[CoroutineRunner]
    storage: ClassVar[Storage]
    examples: ClassVar[itertools.count[int]]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.name = f"c{next(self.examples)}"
        self.names = itertools.count(1)
        self.renamed: dict[str, str] = {}
        self.seqs: list[int] = []
        self.driver(self._begin())

    async def _begin(self) -> None:
        async with self.storage.write("machine") as session:
            await session.create_collection(CollectionInfo(id=self.name))
        await self._published(session.txn)

    async def _published(self, txn: int | None) -> None:
        """The next version of the model has this number."""
        assert txn is not None
        version = await self.storage.wait_published(txn, 60)
        assert version is not None
        self.seqs.append(version.seq_number)

    def own(self, name: str) -> str:
        """A name that no other example uses; branches may have got another one."""
        return name if name == "main" else f"{self.renamed.get(name, name)}-{self.name}"

    def ref(self, line: str, version: int) -> str:
        return f"{self.own(line)}:{self.seqs[version]}"

    def draw_line(self, data: st.DataObject, *, branch: bool = False) -> str:
        lines = sorted(self.model.lines)
        return data.draw(
            st.sampled_from([each for each in lines if each != "main" or not branch]), label="line"
        )

    def draw_version(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, self.model.last), label="version")

    def has_branches(self) -> bool:
        return len(self.model.lines) > 1

    # ---- Writing -----------------------------------------------------------------------------

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        line = self.draw_line(data)
        ids = data.draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True))
        puts = {id_: data.draw(st.none() | PROPERTIES) for id_ in ids}
        new = self.model.now(line)
        for id_, properties in puts.items():
            if properties is None:
                new.pop(id_, None)
            else:
                new[id_] = {**properties, PLACE: _where(properties)}
        self.driver(self._write(line, puts, new))

    async def _write(self, line: str, puts: dict[str, Any], new: Content) -> None:
        target = (await open_branch(self.storage, self.own(line))).storage
        features = [_feature(id_, each) for id_, each in puts.items() if each is not None]
        async with target.write("machine", "ann") as session:
            await session.upsert(self.name, features)
            gone = [id_ for id_, each in puts.items() if each is None]
            await session.delete(self.name, gone)
        await self._end(line, new, session.txn)

    async def _end(self, line: str, new: Content, txn: int | None) -> None:
        """A version, if anything changed."""
        if Model.difference(self.model.now(line), new):
            await self._commit(line, new, txn)
        else:
            assert txn is None

    async def _commit(self, line: str, new: Content, txn: int | None) -> None:
        await self._published(txn)
        self.model.commit(line, new)

    # ---- Tags and branches -------------------------------------------------------------------

    @rule(data=st.data())
    def tag(self, data: st.DataObject) -> None:
        line, version = self.draw_line(data), self.draw_version(data)
        name = data.draw(st.sampled_from(("t1", "t2")))
        force = data.draw(st.booleans())
        self.driver(self._tag(name, line, version, force))

    async def _tag(self, name: str, line: str, version: int, force: bool) -> None:
        making = create_tag(self.storage, self.own(name), BY, self.ref(line, version), force=force)
        if name in self.model.tags and not force:
            with pytest.raises(Conflict):
                await making
        else:
            await making
            self.model.tags[name] = self.model.at(line, version)

    @precondition(lambda self: self.model.tags)
    @rule(data=st.data())
    def untag(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.tags)))
        self.driver(delete_tag(self.storage, self.own(name), BY))
        del self.model.tags[name]

    @precondition(lambda self: len(self.model.lines) < 5)
    @rule(data=st.data())
    def branch(self, data: st.DataObject) -> None:
        line = self.draw_line(data)
        # Earlier it is another line, which then is the parent.
        first = self.model.lines[line].own
        version = data.draw(st.integers(first, self.model.last), label="version")
        name = f"b{next(self.names)}"
        self.driver(create_branch(self.storage, self.own(name), BY, self.ref(line, version)))
        self.model.branch(name, line, version)

    @precondition(has_branches)
    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        line = self.draw_line(data, branch=True)
        old, self.renamed[line] = self.own(line), f"r{next(self.names)}"
        self.driver(rename_branch(self.storage, old, self.own(line), BY))

    @precondition(has_branches)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        line = self.draw_line(data, branch=True)
        if not self.model.children(line):
            self.driver(self._drop(line))

    async def _drop(self, line: str) -> None:
        """A tag on the branch prevents its deletion; merged changes stay."""
        try:
            await delete_branch(self.storage, self.own(line), BY)
        except InUse:
            assert self.model.tags
        else:
            del self.model.lines[line]

    # ---- Back, and together ------------------------------------------------------------------

    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        line, version = self.draw_line(data), self.draw_version(data)
        ids = data.draw(st.none() | st.lists(st.sampled_from(IDS), unique=True), label="ids")
        value = data.draw(st.none() | VALUES, label="where")
        if version >= self.model.lines[line].own and value is not None:
            wanted = draw_wanted(value, data)
            ids = self.model.ever(line, version, self.model.last, *wanted)
            self.driver(self._rollback(line, version, ids, query_for(*wanted)))
        else:
            query = None if ids is None else Query(ids=tuple(ids))
            self.driver(self._rollback(line, version, ids, query))

    async def _rollback(
        self, line: str, version: int, ids: list[str] | None, query: Query | None
    ) -> None:
        done = await rollback(
            await open_branch(self.storage, self.own(line)),
            await place_of(self.storage, self.ref(line, version)),
            BY,
            collections=[self.name],
            query=query,
        )
        old, now = self.model.at(line, version), self.model.now(line)
        changed = Model.difference(now, old)
        for id_, (_, then) in changed.items():
            if ids is None or id_ in ids:
                _set(now, id_, then)
        await self._end(line, now, done.txn)

    @precondition(lambda self: self.model.last > 0)
    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        version = data.draw(st.integers(1, self.model.last), label="version")
        if self.model.owner[version] in self.model.lines:
            self.driver(self._revert(version))

    async def _revert(self, version: int) -> None:
        line = self.model.owner[version]
        old, new = self.model.at(line, version - 1), self.model.at(line, version)
        expected = Model.merge(new, self.model.now(line), old, None)
        own = await open_branch(self.storage, self.own(line))
        changeset = await place_of(self.storage, self.ref(line, version))
        done, undecided = await _attempt(revert(own, changeset, BY, collections=[self.name]))
        assert undecided == expected.undecided
        if done is not None:
            await self._end(line, expected.content, done.txn)

    @precondition(has_branches)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        branch = self.draw_line(data, branch=True)
        up = data.draw(st.booleans(), label="into the parent")
        policy = data.draw(st.sampled_from(list(MergePolicy)))
        self.driver(self._merge(branch, up, policy))

    async def _merge(self, branch: str, up: bool, policy: MergePolicy) -> None:
        line = self.model.lines[branch]
        assert line.parent is not None
        source, target = (branch, line.parent) if up else (line.parent, branch)
        theirs, ours = self.model.now(source), self.model.now(target)
        expected = Model.merge(line.common, ours, theirs, POLICIES[policy])
        done, undecided = await _attempt(
            merge(self.storage, self.own(source), self.own(target), BY, policy=policy)
        )
        assert undecided == expected.undecided
        if done is not None:
            await self._end(target, expected.content, done.txn)
            line.common = theirs

    @precondition(has_branches)
    @rule(data=st.data())
    def rebase(self, data: st.DataObject) -> None:
        branch = self.draw_line(data, branch=True)
        policy = data.draw(st.sampled_from(list(MergePolicy)))
        self.driver(self._rebase(branch, policy))

    async def _rebase(self, branch: str, policy: MergePolicy) -> None:
        line = self.model.lines[branch]
        assert line.parent is not None
        base, own = self.model.now(line.parent), self.model.now(branch)
        expected = Model.merge(line.common, base, own, POLICIES[policy])
        done, undecided = await _attempt(rebase(self.storage, self.own(branch), BY, policy=policy))
        assert undecided == expected.undecided
        if done is None:
            return
        line.common = base
        await self._commit(branch, expected.content, done.txn)
        line.own = self.model.last

    # ---- Comparing ---------------------------------------------------------------------------

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        line, version = self.draw_line(data), self.draw_version(data)
        self.driver(self._read(line, version))

    async def _read(self, line: str, version: int) -> None:
        place = await place_of(self.storage, self.ref(line, version))
        found = await content(place.storage, self.name, place.at)
        assert found == self.model.at(line, version)
        for name, expected in self.model.tags.items():
            place = await place_of(self.storage, self.own(name))
            assert await content(place.storage, self.name, place.at) == expected

    @rule(data=st.data())
    def compare(self, data: st.DataObject) -> None:
        places = [(self.draw_line(data), self.draw_version(data)) for _ in range(2)]
        self.driver(self._compare(*places))

    async def _compare(self, one: tuple[str, int], other: tuple[str, int]) -> None:
        old = await place_of(self.storage, self.ref(*one))
        new = await place_of(self.storage, self.ref(*other))
        found = {
            change.id: tuple(
                None if state is None else _properties(state.feature)
                for state in (change.old, change.new)
            )
            async for change in diff(old, new, self.name)
        }
        assert found == Model.difference(self.model.at(*one), self.model.at(*other))

    def draw_stretch(self, data: st.DataObject) -> tuple[str, int, int]:
        """Two versions of a line, on one base."""
        line = self.draw_line(data)
        first = data.draw(st.integers(self.model.lines[line].own, self.model.last), label="first")
        return line, first, data.draw(st.integers(first, self.model.last), label="last")

    @rule(data=st.data())
    def find(self, data: st.DataObject) -> None:
        wanted = draw_wanted(data.draw(VALUES, label="where"), data)
        self.driver(self._find(*self.draw_stretch(data), wanted, data.draw(st.booleans())))

    async def _find(
        self, line: str, first: int, last: int, wanted: tuple[str, Any], backwards: bool
    ) -> None:
        """Compare the features that differ and matched a filter in between."""
        places = [await place_of(self.storage, self.ref(line, each)) for each in (first, last)]
        old, new = reversed(places) if backwards else places
        found = [change.id async for change in diff(old, new, self.name, query_for(*wanted))]
        matched = self.model.ever(line, first, last, *wanted)
        changed = Model.difference(self.model.at(line, first), self.model.at(line, last))
        assert found == [id_ for id_ in changed if id_ in matched]

    @rule(data=st.data())
    def tell(self, data: st.DataObject) -> None:
        self.driver(self._tell(*self.draw_stretch(data)))

    async def _tell(self, line: str, first: int, last: int) -> None:
        """Every state of every feature between two versions, and the one before it."""
        old = await place_of(self.storage, self.ref(line, first))
        new = await place_of(self.storage, self.ref(line, last))
        found = [
            (
                step.id,
                self._content(step.previous),
                self._content(step.state),
                step.state.txn,
            )
            async for step in history(old, new, self.name)
        ]
        assert [each[:3] for each in found] == self.model.steps(line, first, last)
        assert found == sorted(found, key=lambda each: (each[0], each[3]))

    @staticmethod
    def _content(state: State | None) -> Any:
        if state is None or state.xyz["action"] == "DELETE":
            return None
        return _properties(state.feature)

    @invariant()
    def heads_are_the_same(self) -> None:
        self.driver(self._heads())

    async def _heads(self) -> None:
        for line in self.model.lines:
            target = (await open_branch(self.storage, self.own(line))).storage
            assert await content(target, self.name) == self.model.now(line)

    def teardown(self) -> None:
        try:
            self.driver(self._log())
        finally:
            self.driver(self._clear())

    async def _clear(self) -> None:
        """Leave nothing behind: a merge looks at every collection that is there, and a tag of a
        failed example would keep what later ones drop."""
        own = f"-{self.name}"
        for tag in await tags(self.storage):
            if tag.name.endswith(own):
                await delete_tag(self.storage, tag.name, BY)
        # What stands on another branch was made after it.
        for each in sorted(await branches(self.storage), key=lambda b: b.number, reverse=True):
            if each.name.endswith(own):
                await delete_branch(self.storage, each.name, BY)
        async with self.storage.write("machine") as session:
            await session.drop_collection(self.name, 1)
        await self.storage.maintain()

    async def _log(self) -> None:
        """Every line has its own transactions in its log, and no others."""
        for line in self.model.lines:
            own = await open_branch(self.storage, self.own(line))
            # Of this example only: what others did before may be more than a page.
            page = await changesets(own, after=self.seqs[0], limit=1000, newest_first=False)
            logged = {each.version.seq_number for each in page.changesets}
            for version in range(1, self.model.last + 1):
                is_own = self.model.owner[version] == line
                assert (self.seqs[version] in logged) == is_own


async def _attempt(work: Awaitable[WriteReport]) -> tuple[WriteReport | None, list[str]]:
    """Return the written features, or the conflicting ones."""
    try:
        return await work, []
    except MergeConflict as error:
        return None, sorted(each["id"] for each in error.undecided)


def _set(content: Content, id_: str, value: Any) -> None:
    if value is None:
        content.pop(id_, None)
    else:
        content[id_] = value


def _feature(id_: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Every value of `n` has a place of its own, so that many move when they are changed."""
    where = _where(properties)
    geometry = None if where is None else {"type": "Point", "coordinates": [where, where]}
    return {"type": "Feature", "id": id_, "geometry": geometry, "properties": properties}


def _where(properties: dict[str, Any]) -> int | None:
    value = properties.get("n")
    return value + 10 if isinstance(value, bool) else value


def _properties(feature: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of a feature as the model has them, with its place."""
    properties = dict(feature["properties"])
    del properties["@ns:com:here:xyz"]
    geometry = feature["geometry"]
    properties[PLACE] = None if geometry is None else geometry["coordinates"][0]
    return properties


async def content(
    reader: StorageReader, name: str, at: VersionSelector = HEAD, query: Query | None = None
) -> Content:
    found = reader.states(name, query or Query(), at)
    return {state.id: _properties(state.feature) async for state in found}


def draw_wanted(value: Any, data: st.DataObject) -> tuple[str, Any]:
    """A property of the model and its value: `n`, or the place."""
    if data.draw(st.booleans(), label="by property"):
        return "n", value
    return PLACE, _where({"n": value})


def query_for(name: str, value: Any) -> Query:
    """Features that have it."""
    if name != PLACE:
        return Query(where=PropertyTest(("properties", name), Op.EQ, value))
    return Query(spatial=Bbox(value - 0.25, value - 0.25, value + 0.25, value + 0.25))
