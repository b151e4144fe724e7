"""What transactions did to features: found for many transactions at once, by the transactions that
made the states. With a filter the cost follows what it finds, not what was changed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.damage import may_overflow
from naksha.model.errors import CollectionNotFound, Expired
from naksha.model.identity.txn import first_kept
from naksha.model.limits import INT8_MAX
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State
from naksha.model.version import AtSeq
from naksha.spi.storage import Storage
from naksha.versioning.changesets import Changeset, Touched
from naksha.versioning.feed.events import FeatureChange, FeedFilter

CHUNK: Final = 10_000
"""Features looked up at once."""
FLOORS_MAX: Final = 4
"""How often history may go away while it is read."""


class _Heading(msgspec.Struct, frozen=True, gc=False):
    uuid: str
    txn: str
    txn_next: str
    action: str
    author: str | None = None


class _Properties(msgspec.Struct, frozen=True, gc=False, rename={"xyz": XYZ}):
    xyz: _Heading


class _Feature(msgspec.Struct, frozen=True, gc=False):
    properties: _Properties


_decode_heading = msgspec.json.Decoder(_Feature).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Made(msgspec.Struct, frozen=True, gc=False):
    """A state, and what is known of it."""

    state: State
    uuid: str
    txn: int
    action: str
    author: str | None

    def change(self, collection: str) -> FeatureChange:
        return FeatureChange(collection, self.action, self.state)


def made(state: State) -> Made:
    """A state as it was when it was made: whatever came after it by the time that it was read."""
    if may_overflow(state.raw):
        # A subscriber that cannot parse it would get it again and again.
        state.mend()
    heading = state.decoded_by(_decode_heading).properties.xyz
    if heading.txn_next != "0":
        state = State(state.id, _opened(state.raw, heading.txn_next.encode()))
    return Made(state, heading.uuid, int(heading.txn), heading.action, heading.author)


def _opened(raw: bytes, end: bytes) -> bytes:
    """The document without its end. The text of the end is nearly always there once; where content
    has the same text, only the namespace is edited."""
    ends = [b'"txn_next' + colon + end + b'"' for colon in (b'":"', b'": "')]
    if sum(map(raw.count, ends)) == 1:
        for text in ends:
            raw = raw.replace(text, text.replace(end, b"0"))
        return raw
    feature = _members(raw)
    properties = _members(feature["properties"])
    namespace = _members(properties[XYZ])
    namespace["txn_next"] = msgspec.Raw(b'"0"')
    properties[XYZ] = msgspec.Raw(msgspec.json.encode(namespace))
    feature["properties"] = msgspec.Raw(msgspec.json.encode(properties))
    return msgspec.json.encode(feature)


class TooMany(Exception):
    """There are more changes than are wanted at once."""


def touched_in(changeset: Changeset, where: FeedFilter) -> Iterator[Touched]:
    """The collections in which features may have changed that are asked for, in their order."""
    for each in sorted(changeset.touched, key=lambda touched: touched.collection):
        if where.covers(each.collection) and number_of(each, where) > 0:
            yield each


def number_of(touched: Touched, where: FeedFilter) -> int:
    """How many features were changed by one of the actions."""
    numbers = {"CREATE": touched.created, "UPDATE": touched.updated, "DELETE": touched.deleted}
    wanted = where.feature_actions
    return sum(n for action, n in numbers.items() if wanted is None or action in wanted)


class Some(msgspec.Struct, frozen=True):
    """Changes found among so many, and the cursor to go on with, if there are more."""

    found: list[Made]
    looked_at: int
    cursor: str | None


class Touching(msgspec.Struct, frozen=True):
    """A transaction, as far as it is about one collection."""

    seq_number: int
    txn: int
    is_only_new: bool
    """Whether no state was replaced."""


def touching(changeset: Changeset, touched: Touched) -> Touching:
    return Touching(
        changeset.version.seq_number,
        changeset.version.txn,
        touched.updated + touched.deleted == 0,
    )


class CollectionFeed:
    """The changes in one collection of a line."""

    def __init__(
        self, storage: Storage, collection: str, where: FeedFilter, space: str | None
    ) -> None:
        self._storage = storage
        self._collection = collection
        self._where = where
        self._space = space

    async def changes(
        self, transactions: Sequence[Touching], most: int
    ) -> tuple[list[Made], set[int]]:
        """What some transactions did that is asked for, in any order, and the transactions that
        nobody can tell this of any more. TooMany when there is more than `most`."""
        floor = 0
        for _ in range(FLOORS_MAX):
            kept = self._kept(transactions, floor)
            gone = {each.txn for each in transactions} - {each.txn for each in kept}
            if not kept:
                return [], gone
            try:
                found = await self._read(kept, floor, most)
                # Afterwards: what went away meanwhile may be missing.
                await self._storage.resolve(AtSeq(kept[0].seq_number), self._collection)
            except Expired as error:
                floor = INT8_MAX if error.oldest is None else error.oldest
                continue
            except CollectionNotFound:
                break
            txns = {each.txn for each in kept}
            return [each for each in found if each.txn in txns], gone
        return [], {each.txn for each in transactions}

    async def check_age(self, gone: Sequence[Touching], info: CollectionInfo) -> None:
        """Expired when something that nobody can tell any more is older than what the collection
        keeps. What is younger was changed while its history was off: that has never been kept."""
        kept_from = first_kept(time.time_ns() // 1_000_000, info.max_age)
        for each in gone:
            if each.txn < kept_from:
                try:
                    await self._storage.resolve(AtSeq(each.seq_number), self._collection)
                except CollectionNotFound:  # it has just been dropped
                    return
                # It is there, but what it replaced is not.
                raise Expired(
                    f"What version {each.seq_number} replaced is gone",
                    oldest=each.seq_number + 1,
                    collection_id=self._collection,
                )

    async def page(self, transaction: Touching, cursor: str, limit: int) -> Some:
        """Some changes of one transaction, ordered by id: of at most so many features those that
        are asked for. Expired and CollectionNotFound when nobody can tell."""
        at, own = AtSeq(transaction.seq_number), self._span([transaction])
        query = msgspec.structs.replace(own, limit=limit, cursor=cursor or None)
        if not self._where.looks_back:
            query = self._own(query)
        page = await self._storage.page(self._collection, query, at)
        found = [made(state) for state in page.states]
        if self._where.looks_back and found:
            ids = tuple(each.state.id for each in found)
            matching = {each.uuid for each in await self._matching([transaction], ids, limit)}
            before: set[str] = set()
            if not transaction.is_only_new:
                before = await self._replaced([transaction], transaction.txn - 1, ids, limit)
            found = [e for e in found if e.uuid in matching or e.state.id in before]
        await self._storage.resolve(at, self._collection)
        return Some(list(self._acted(found)), len(page.states), page.cursor)

    def _kept(self, transactions: Sequence[Touching], floor: int) -> list[Touching]:
        """The transactions whose changes can be told when nothing before a version is kept."""
        if not self._where.looks_back:
            return [each for each in transactions if each.seq_number >= floor]
        return [
            each
            for each in transactions
            if each.seq_number > floor or (each.seq_number == floor and each.is_only_new)
        ]

    async def _read(self, kept: Sequence[Touching], floor: int, most: int) -> list[Made]:
        if not self._where.looks_back:
            return await self._gather(kept, self._own(self._span(kept)), most)
        matching = await self._matching(kept, None, most)
        if all(each.is_only_new for each in kept):
            return list(self._acted(matching))
        since = kept[0].txn if kept[0].seq_number == floor else kept[0].txn - 1
        before = await self._replaced(kept, since, None, most)
        ids = sorted({each.state.id for each in matching} | before)
        found: list[Made] = []
        for start in range(0, len(ids), CHUNK):
            part = msgspec.structs.replace(self._span(kept), ids=tuple(ids[start : start + CHUNK]))
            found += await self._gather(kept, part, most - len(found))
        uuids = {each.uuid for each in matching}
        return list(self._acted(_told(found, uuids, before)))

    def _span(self, kept: Sequence[Touching]) -> Query:
        """All states that were made by some transactions, or between them."""
        return Query(
            states=States.ALL, txn_from=kept[0].txn, txn_to=kept[-1].txn + 1, space=self._space
        )

    def _own(self, span: Query) -> Query:
        """Only the states made that are asked for, where no state before them counts."""
        where = self._where
        return msgspec.structs.replace(
            span, ids=where.query.ids, actions=where.feature_actions, authors=where.change.authors
        )

    async def _matching(
        self, kept: Sequence[Touching], ids: tuple[str, ...] | None, most: int
    ) -> list[Made]:
        """The states made that match themselves."""
        span = self._span(kept)
        query = self._among(
            ids, states=span.states, txn_from=span.txn_from, txn_to=span.txn_to, space=span.space
        )
        return await self._gather(kept, query, most)

    async def _replaced(
        self, kept: Sequence[Touching], since: int, ids: tuple[str, ...] | None, most: int
    ) -> set[str]:
        """The features with a live state that was valid, matches and was replaced."""
        query = self._among(ids, replaced_since=since)
        return {each.state.id for each in await self._gather(kept, query, most)}

    def _among(self, ids: tuple[str, ...] | None, **more: Any) -> Query:
        """The filter, among some features."""
        query = self._where.query
        if ids is not None and query.ids is not None:
            ids = tuple(set(ids) & set(query.ids))
        return msgspec.structs.replace(query, ids=query.ids if ids is None else ids, **more)

    async def _gather(self, kept: Sequence[Touching], query: Query, most: int) -> list[Made]:
        found: list[Made] = []
        asked = msgspec.structs.replace(query, limit=most + 1)
        at = AtSeq(kept[-1].seq_number)
        async for states in self._storage.chunks(self._collection, asked, at):
            found += map(made, states)
        if len(found) > most:
            raise TooMany
        return found

    def _acted(self, found: Iterable[Made]) -> Iterator[Made]:
        actions, authors = self._where.feature_actions, self._where.change.authors
        return (
            each
            for each in found
            if (actions is None or each.action in actions)
            and (authors is None or each.author in authors)
        )


def _told(found: Iterable[Made], matching: set[str], before: set[str]) -> Iterator[Made]:
    """The states that match, and those whose feature had a live state before that does."""
    last: dict[str, bool] = {}
    for each in sorted(found, key=lambda each: each.txn):
        id_ = each.state.id
        matches = each.uuid in matching
        if matches or last.get(id_, id_ in before):
            yield each
        last[id_] = matches and each.action != "DELETE"
