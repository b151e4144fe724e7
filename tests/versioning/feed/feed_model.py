"""The simplest model of the change feed: every transaction with its changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

from naksha.model.query import Bbox, Op, Query, Test
from naksha.versioning import FeedFilter

IDS = ("a", "b", "c", "d", "ä", "\U0001f600")
TAGS = ("red", "blue")
AUTHORS = ("ann", "bob")


class Content(NamedTuple):
    """A feature, as far as filters know it."""

    n: int
    lon: int
    tag: str
    author: str

    def feature(self, id_: str) -> dict[str, Any]:
        return {
            "type": "Feature",
            "id": id_,
            "geometry": {"type": "Point", "coordinates": [float(self.lon), 0.0]},
            "properties": {"n": self.n, "@ns:com:here:xyz": {"tags": [self.tag]}},
        }


class Effect(NamedTuple):
    """Effect of a transaction on a feature."""

    collection: str
    id: str
    action: str
    now: Content
    before: Content | None


@dataclass
class LoggedTransaction:
    """A transaction on a line."""

    seq_number: int
    line: str
    effects: list[Effect] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    @property
    def collections(self) -> set[str]:
        return {each.collection for each in self.effects} | set(self.changed)


class ExpectedItem(NamedTuple):
    """An item of the feed."""

    seq_number: int
    changes: list[tuple[str, str, str, int]]
    """Collection, id, action and n."""
    without: list[str]


@dataclass
class FeedModel:
    """All transactions; of which collections history is off; and the last one that was written
    without it."""

    log: list[LoggedTransaction] = field(default_factory=list)
    off: set[str] = field(default_factory=set)
    floors: dict[str, int] = field(default_factory=dict)

    def add(self, done: LoggedTransaction) -> None:
        self.log.append(done)
        for name in {each.collection for each in done.effects} & self.off:
            self.floors[name] = done.seq_number

    def feed(self, line: str, where: FeedFilter) -> list[ExpectedItem]:
        """Return the expected feed."""
        items = []
        for done in self.log:
            if done.line != line:
                continue
            if where.collections is not None and not done.collections & set(where.collections):
                continue
            if not _may_be_there(done, where):
                continue
            item = self._expected(done, where)
            if item.changes or item.without or not where.is_about_features:
                items.append(item)
        return items

    def _expected(self, done: LoggedTransaction, where: FeedFilter) -> ExpectedItem:
        changes, without = [], []
        effects = [e for e in done.effects if where.covers(e.collection)]
        wanted = [e for e in effects if where.actions is None or e.action in where.actions]
        for name in sorted({each.collection for each in wanted}):
            own = [each for each in effects if each.collection == name]
            if self._is_gone(done.seq_number, name, own, where):
                without.append(name)
                continue
            changes += [
                (name, each.id, each.action, each.now.n)
                for each in sorted(own, key=lambda each: each.id)
                if each in wanted and any(matches(where.query, each.id, c) for c in each[3:])
            ]
        return ExpectedItem(done.seq_number, changes, without)

    def _is_gone(self, seq: int, name: str, effects: list[Effect], where: FeedFilter) -> bool:
        if name in self.off:
            return True
        floor = self.floors.get(name, 0)
        is_only_new = all(each.action == "CREATE" for each in effects)
        return seq < floor or (seq == floor and where.looks_back and not is_only_new)


def _may_be_there(done: LoggedTransaction, where: FeedFilter) -> bool:
    """Whether the box around all changes of a collection, before and after, meets the area."""
    area = where.query.spatial
    if not isinstance(area, Bbox):
        return True
    for name in filter(where.covers, {each.collection for each in done.effects}):
        own = [e for e in done.effects if e.collection == name]
        lons = [c.lon for each in own for c in (each.now, each.before) if c is not None]
        if min(lons) <= area.east and max(lons) >= area.west:
            return True
    return False


def matches(query: Query, id_: str, content: Content | None) -> bool:
    if content is None:
        return False
    tests = [query.ids is None or id_ in query.ids]
    if isinstance(query.where, Test):
        tests.append(content.n == query.where.value)
    if isinstance(query.spatial, Bbox):
        tests.append(query.spatial.west <= content.lon <= query.spatial.east)
    if query.tags is not None:
        tests.append((content.tag,) in query.tags)
    if query.authors is not None:
        tests.append(content.author in query.authors)
    return all(tests)


# ---- What is done -------------------------------------------------------------------------------

puts = st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from(TAGS))
edits = st.dictionaries(
    st.tuples(st.sampled_from((0, 1)), st.sampled_from(IDS)), puts | st.none(), max_size=8
)
"""By collection and id: a new content, or None to delete; what was deleted may be restored."""


class Script(NamedTuple):
    """One step: edits on a line, or a switch of the history of the second collection."""

    kind: str
    line: str
    author: str
    edits: dict[tuple[int, str], tuple[int, int, str] | None]
    restores: bool


scripts = st.lists(
    st.builds(
        Script,
        st.sampled_from(("edit", "edit", "edit", "edit", "switch", "message", "purge")),
        st.sampled_from(("main", "main", "fix")),
        st.sampled_from(AUTHORS),
        edits,
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


def queries() -> st.SearchStrategy[Query]:
    """Filters of all kinds."""
    return st.builds(
        Query,
        ids=st.none() | st.none() | st.sets(st.sampled_from(IDS), min_size=1).map(tuple),
        where=st.none() | st.builds(Test, st.just(("properties", "n")), st.just(Op.EQ), puts_n),
        spatial=st.none() | st.builds(_strip, st.integers(0, 5), st.integers(0, 5)),
        tags=st.none() | st.sampled_from([((tag,),) for tag in TAGS]),
        authors=st.none() | st.none() | st.sampled_from([(author,) for author in AUTHORS]),
    )


puts_n = st.integers(0, 3)


def _strip(one: int, other: int) -> Bbox:
    return Bbox(min(one, other) - 0.5, -1.0, max(one, other) + 0.5, 1.0)
