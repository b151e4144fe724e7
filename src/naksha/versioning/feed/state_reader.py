"""Read the changes of many transactions at once, by the transactions that made the states.

With a filter the cost depends on the number of matches, not on the number of changes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.damage import may_overflow
from naksha.model.errors import CollectionNotFound, Expired
from naksha.model.identity.txn import first_kept
from naksha.model.json_text import with_txn_next
from naksha.model.limits import INT8_MAX
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State
from naksha.model.version import AtSeq
from naksha.spi.storage import Storage
from naksha.versioning.changesets import Changeset, CollectionEffect
from naksha.versioning.feed.events import FeatureChange, FeedFilter

CHUNK: Final = 10_000
"""Features looked up at once."""
_FLOORS_MAX: Final = 4
"""How often reading restarts because history expired in the meantime."""


class _FeedNamespace(msgspec.Struct, frozen=True, gc=False):
    uuid: str
    txn: str
    txn_next: str
    action: str
    author: str | None = None


class _FeedProperties(msgspec.Struct, frozen=True, gc=False, rename={"xyz": XYZ}):
    xyz: _FeedNamespace


class _FeedFeature(msgspec.Struct, frozen=True, gc=False):
    properties: _FeedProperties


_decode_heading = msgspec.json.Decoder(_FeedFeature).decode


class FeedState(msgspec.Struct, frozen=True, gc=False):
    """A state with the parts of its namespace that the feed needs."""

    state: State
    uuid: str
    txn: int
    action: str
    author: str | None

    def change(self, collection: str) -> FeatureChange:
        return FeatureChange(collection, self.action, self.state)


def _feed_state(state: State) -> FeedState:
    """Return a state as it was when it was made, without the end that a later state gave it."""
    if may_overflow(state.raw):
        # A subscriber that cannot parse this state would receive it again and again.
        state.mend()
    heading = state.decoded_by(_decode_heading).properties.xyz
    if heading.txn_next != "0":
        state = State(state.id, with_txn_next(state.raw, heading.txn_next, "0"))
    return FeedState(state, heading.uuid, int(heading.txn), heading.action, heading.author)


class TooManyChanges(Exception):
    """More changes were found than the caller accepts at once."""


def touched_in(changeset: Changeset, where: FeedFilter) -> Iterator[CollectionEffect]:
    """Iterate over the touched collections that may have matching changes, ordered by id."""
    for each in sorted(changeset.touched, key=lambda touched: touched.collection):
        if where.covers(each.collection) and selected_count(each, where) > 0:
            yield each


def selected_count(touched: CollectionEffect, where: FeedFilter) -> int:
    """Return how many features the selected actions changed."""
    numbers = {"CREATE": touched.created, "UPDATE": touched.updated, "DELETE": touched.deleted}
    selected = where.feature_actions
    return sum(n for action, n in numbers.items() if selected is None or action in selected)


class FeedStatePage(msgspec.Struct, frozen=True):
    """Matching changes among `examined` features, and the cursor to continue with, if any."""

    found: list[FeedState]
    examined: int
    cursor: str | None


class CollectionTransaction(msgspec.Struct, frozen=True):
    """A transaction, reduced to its effect on one collection."""

    seq_number: int
    txn: int
    is_only_new: bool
    """Whether it replaced no state."""


def collection_transaction(
    changeset: Changeset, touched: CollectionEffect
) -> CollectionTransaction:
    return CollectionTransaction(
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
        self, transactions: Sequence[CollectionTransaction], most: int
    ) -> tuple[list[FeedState], set[int]]:
        """Return the matching changes of some transactions, in any order.

        Also return the transactions whose changes are no longer known.

        Raises:
            TooMany: There are more than `most` changes.
        """
        floor = 0
        for _ in range(_FLOORS_MAX):
            kept = self._kept(transactions, floor)
            gone = {each.txn for each in transactions} - {each.txn for each in kept}
            if not kept:
                return [], gone
            try:
                found = await self._read(kept, floor, most)
                # Check again after the read: states that expired during it may be missing from the
                # result.
                await self._storage.resolve(AtSeq(kept[0].seq_number), self._collection)
            except Expired as error:
                floor = INT8_MAX if error.oldest is None else error.oldest
                continue
            except CollectionNotFound:
                break
            txns = {each.txn for each in kept}
            return [each for each in found if each.txn in txns], gone
        return [], {each.txn for each in transactions}

    async def check_age(self, gone: Sequence[CollectionTransaction], info: CollectionInfo) -> None:
        """Raise Expired if a lost change is older than the collection keeps states.

        A younger one was made while the history of the collection was off, so it was never kept.
        """
        kept_from = first_kept(time.time_ns() // 1_000_000, info.max_age)
        for each in gone:
            if each.txn < kept_from:
                try:
                    await self._storage.resolve(AtSeq(each.seq_number), self._collection)
                except CollectionNotFound:  # it has just been dropped
                    return
                # The version itself is kept, but the states that it replaced are not.
                raise Expired(
                    f"The states that version {each.seq_number} of collection "
                    f"{self._collection!r} replaced have expired; start at a later version",
                    oldest=each.seq_number + 1,
                    collection_id=self._collection,
                )

    async def page(
        self, transaction: CollectionTransaction, cursor: str, limit: int
    ) -> FeedStatePage:
        """Return some changes of one transaction, ordered by id.

        At most `limit` features are examined; those that match are returned.

        Raises:
            Expired: The states are no longer kept.
            CollectionNotFound: The collection is gone.
        """
        at, own = AtSeq(transaction.seq_number), self._span([transaction])
        query = msgspec.structs.replace(own, limit=limit, cursor=cursor or None)
        if not self._where.looks_back:
            query = self._own(query)
        page = await self._storage.page(self._collection, query, at)
        found = [_feed_state(state) for state in page.states]
        if self._where.looks_back and found:
            ids = tuple(each.state.id for each in found)
            matching = {each.uuid for each in await self._matching([transaction], ids, limit)}
            before: set[str] = set()
            if not transaction.is_only_new:
                before = await self._replaced([transaction], transaction.txn - 1, ids, limit)
            found = [e for e in found if e.uuid in matching or e.state.id in before]
        await self._storage.resolve(at, self._collection)
        return FeedStatePage(list(self._acted(found)), len(page.states), page.cursor)

    def _kept(
        self, transactions: Sequence[CollectionTransaction], floor: int
    ) -> list[CollectionTransaction]:
        """Return the transactions whose changes are known if states before `floor` are not kept."""
        if not self._where.looks_back:
            return [each for each in transactions if each.seq_number >= floor]
        return [
            each
            for each in transactions
            if each.seq_number > floor or (each.seq_number == floor and each.is_only_new)
        ]

    async def _read(
        self, kept: Sequence[CollectionTransaction], floor: int, most: int
    ) -> list[FeedState]:
        if not self._where.looks_back:
            return await self._gather(kept, self._own(self._span(kept)), most)
        matching = await self._matching(kept, None, most)
        if all(each.is_only_new for each in kept):
            return list(self._acted(matching))
        since = kept[0].txn if kept[0].seq_number == floor else kept[0].txn - 1
        before = await self._replaced(kept, since, None, most)
        ids = sorted({each.state.id for each in matching} | before)
        found: list[FeedState] = []
        for start in range(0, len(ids), CHUNK):
            part = msgspec.structs.replace(self._span(kept), ids=tuple(ids[start : start + CHUNK]))
            found += await self._gather(kept, part, most - len(found))
        uuids = {each.uuid for each in matching}
        return list(self._acted(_selected_states(found, uuids, before)))

    def _span(self, kept: Sequence[CollectionTransaction]) -> Query:
        """Return the query for all states made by these transactions, or between them."""
        return Query(
            states=States.ALL, txn_from=kept[0].txn, txn_to=kept[-1].txn + 1, space=self._space
        )

    def _own(self, span: Query) -> Query:
        """Restrict a query to the matching states, where the replaced states do not count."""
        where = self._where
        return msgspec.structs.replace(
            span, ids=where.query.ids, actions=where.feature_actions, authors=where.change.authors
        )

    async def _matching(
        self, kept: Sequence[CollectionTransaction], ids: tuple[str, ...] | None, most: int
    ) -> list[FeedState]:
        """Return the new states that match by themselves."""
        span = self._span(kept)
        query = self._among(
            ids, states=span.states, txn_from=span.txn_from, txn_to=span.txn_to, space=span.space
        )
        return await self._gather(kept, query, most)

    async def _replaced(
        self,
        kept: Sequence[CollectionTransaction],
        since: int,
        ids: tuple[str, ...] | None,
        most: int,
    ) -> set[str]:
        """Return the features whose replaced live state matches."""
        query = self._among(ids, replaced_since=since)
        return {each.state.id for each in await self._gather(kept, query, most)}

    def _among(self, ids: tuple[str, ...] | None, **more: Any) -> Query:
        """Return the filter, restricted to some features."""
        query = self._where.query
        if ids is not None and query.ids is not None:
            ids = tuple(set(ids) & set(query.ids))
        return msgspec.structs.replace(query, ids=query.ids if ids is None else ids, **more)

    async def _gather(
        self, kept: Sequence[CollectionTransaction], query: Query, most: int
    ) -> list[FeedState]:
        found: list[FeedState] = []
        limited = msgspec.structs.replace(query, limit=most + 1)
        at = AtSeq(kept[-1].seq_number)
        async for states in self._storage.chunks(self._collection, limited, at):
            found += map(_feed_state, states)
        if len(found) > most:
            raise TooManyChanges
        return found

    def _acted(self, found: Iterable[FeedState]) -> Iterator[FeedState]:
        actions, authors = self._where.feature_actions, self._where.change.authors
        return (
            each
            for each in found
            if (actions is None or each.action in actions)
            and (authors is None or each.author in authors)
        )


def _selected_states(
    found: Iterable[FeedState], matching: set[str], before: set[str]
) -> Iterator[FeedState]:
    """Iterate over the states that match, or that replaced a live state that does."""
    last: dict[str, bool] = {}
    for each in sorted(found, key=lambda each: each.txn):
        id_ = each.state.id
        matches = each.uuid in matching
        if matches or last.get(id_, id_ in before):
            yield each
        last[id_] = matches and each.action != "DELETE"
