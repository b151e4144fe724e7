"""The change feed of a line: published transactions in order, with their changes to features.

The feed is read in pages, each with the position to continue from. A page is computed for many
transactions at once: one query for each collection that they touched, or a few with a filter. The
page size does not affect which transactions and changes are returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec
import shapely

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, Expired, InvalidArgument, NotYetPublished
from naksha.model.query import Intersects
from naksha.model.transaction import LogFilter
from naksha.model.version import HEAD
from naksha.spi.query.areas import geometry_of
from naksha.versioning.change_filters import ALL
from naksha.versioning.changesets import Changeset, box_of, changeset_of
from naksha.versioning.feed.events import (
    FeatureChange,
    FeedFilter,
    FeedPage,
    FeedPosition,
    FeedTransaction,
    TransactionPosition,
)
from naksha.versioning.feed.state_reader import (
    CollectionFeed,
    CollectionTransaction,
    TooManyChanges,
    collection_transaction,
    selected_count,
    touched_in,
)
from naksha.versioning.lines import Line, line_of_branch

_FEATURES_MAX: Final = limits.PAGE_MAX - 1
"""Largest permitted `features_max`; one more is requested to detect whether there are more."""


async def read_feed(
    line: Line,
    after: FeedPosition,
    where: FeedFilter,
    *,
    transactions_max: int,
    features_max: int,
    until: int | None = None,
    space: str | None = None,
) -> FeedPage:
    """Return a page of the feed of a line: its own transactions, in the order of their versions.

    Args:
        line: Main or a branch; transactions of other lines are skipped.
        after: The position to continue from, as returned with the previous page.
        where: The changes to return. With a filter on features, transactions without such a change
            are skipped, unless they touched collections whose states are not kept.
        transactions_max: Examine at most this many transactions that may have such changes.
        features_max: Return at most this many changes; a transaction with more is split into
            parts.
        until: Stop after this version; None for the last published one.
        space: See `Query.space`.

    Raises:
        Expired: The log, or a collection that keeps history for a limited time, does not go back
            that far; the error names the oldest version.
        NotYetPublished: The position is beyond the last version.
    """
    for name, number, most in (
        ("transactions_max", transactions_max, limits.PAGE_MAX),
        ("features_max", features_max, _FEATURES_MAX),
    ):
        if not 1 <= number <= most:
            raise InvalidArgument(f"{name} must be between 1 and {most}, not {number}", field=name)
    last = (await line.storage.resolve(HEAD)).seq_number
    if after.seq_number > last:
        raise NotYetPublished(
            f"Version {after.seq_number} is not published yet; the last one is {last}; start at a "
            "version up to that",
            field="since",
        )
    feed = _Feed(line, where, features_max, space)
    return await feed.page(after, last, transactions_max, until)


class _Feed:
    """The feed of a line with a filter, in pages of limited size."""

    def __init__(self, line: Line, where: FeedFilter, features_max: int, space: str | None) -> None:
        self._line = line
        self._where = where
        self._features_max = features_max
        self._space = space

    async def page(
        self, after: FeedPosition, last: int, transactions_max: int, until: int | None
    ) -> FeedPage:
        """Return a page of the feed; see `read_feed`."""
        if after.within:
            return await self._part(
                await self._inside(after), TransactionPosition.parse(after.within), last
            )
        found = [] if self._finds_nothing() else await self._log(after.seq_number, transactions_max)
        is_all = len(found) < transactions_max
        if until is not None:
            last = min(last, until)
            inside = [each for each in found if each.version.seq_number <= until]
            is_all = is_all or len(inside) < len(found)
            found = inside
        batch = self._within_limits(found)
        while batch:
            try:
                items = await self._items(batch)
            except TooManyChanges:
                if len(batch) == 1:
                    return await self._part(batch[0], None, last)
                batch = batch[: len(batch) // 2]
                continue
            end = batch[-1].version.seq_number
            if is_all and len(batch) == len(found):
                end = max(end, last)
            return FeedPage(items, FeedPosition(end), max(end, last))
        if found:
            return await self._part(found[0], None, last)
        return FeedPage([], FeedPosition(last), last)

    def _finds_nothing(self) -> bool:
        area = self._where.query.spatial
        return isinstance(area, Intersects) and bool(shapely.is_empty(geometry_of(area)))

    async def _log(self, after: int, limit: int) -> list[Changeset]:
        """Return the next transactions of the line, without those that cannot match."""
        change = self._where.change
        where = LogFilter(
            overlays=self._line.overlays,
            collections=self._where.collections,
            bbox=box_of(self._where.query.spatial),
            authors=change.authors,
            unsigned=True,
            app_ids=change.app_ids,
            started_from=change.updated_from,
            started_to=change.updated_to,
        )
        return [
            self._covered(changeset_of(each))
            for each in await self._line.storage.transactions(after, limit, where)
        ]

    async def _inside(self, position: FeedPosition) -> Changeset:
        """Return the transaction that a position lies inside of."""
        found = await self._log(position.seq_number, 1)
        if not found or found[0].version.seq_number != position.seq_number + 1:
            raise InvalidArgument(
                f"{str(position)!r:.64} is not a position of this feed; use one that it returned",
                field="since",
            )
        return found[0]

    def _covered(self, changeset: Changeset) -> Changeset:
        """Reduce a changeset to the collections that the filter selects."""
        where = self._where
        if where.collections is None:
            return changeset
        return msgspec.structs.replace(
            changeset,
            touched=tuple(each for each in changeset.touched if where.covers(each.collection)),
            collections_changed=tuple(filter(where.covers, changeset.collections_changed)),
        )

    def _within_limits(self, found: Sequence[Changeset]) -> Sequence[Changeset]:
        """Return the first transactions whose changes fit a page together.

        With a filter on features their number is unknown in advance, so all of them are returned.
        """
        where = self._where
        if where.looks_back or where.query.ids is not None or where.change != ALL:
            return found
        left = self._features_max
        for position, each in enumerate(found):
            left -= sum(
                selected_count(touched, self._where) for touched in touched_in(each, self._where)
            )
            if left < 0:
                return found[:position]
        return found

    async def _infos(self) -> dict[str, CollectionInfo]:
        """Return the existing collections by id."""
        return {info.id: info for info in await self._line.storage.collections()}

    async def _items(self, batch: Sequence[Changeset]) -> list[FeedTransaction]:
        """Return the changes of some transactions.

        Raises:
            TooMany: There are more changes than a page may have.
        """
        changes: dict[int, list[FeatureChange]] = {}
        without: dict[int, set[str]] = {}
        left, infos = self._features_max, await self._infos()
        for overlay, group in groupby(batch, key=lambda each: each.overlay):
            for name, transactions in self._by_collection(group).items():
                gone = {each.txn for each in transactions}
                if _has_history(infos.get(name)):
                    feed = self._feed(overlay, name)
                    found, gone = await feed.changes(transactions, left)
                    await feed.check_age([e for e in transactions if e.txn in gone], infos[name])
                    left -= len(found)
                    for each in found:
                        changes.setdefault(each.txn, []).append(each.change(name))
                for txn in gone:
                    without.setdefault(txn, set()).add(name)
        items = [
            FeedTransaction(
                each,
                _in_order(changes.get(each.version.txn, ())),
                without_states=tuple(sorted(without.get(each.version.txn, ()))),
            )
            for each in batch
        ]
        return [each for each in items if self._is_selected(each)]

    def _by_collection(self, batch: Iterable[Changeset]) -> dict[str, list[CollectionTransaction]]:
        found: dict[str, list[CollectionTransaction]] = {}
        for changeset in batch:
            for each in touched_in(changeset, self._where):
                found.setdefault(each.collection, []).append(
                    collection_transaction(changeset, each)
                )
        return found

    def _feed(self, overlay: int, collection: str) -> CollectionFeed:
        line = self._line
        if line.branch is not None:
            # It was written on the base that the branch had at that time.
            line = line_of_branch(line.root, line.branch, line.branch.epoch_on(overlay))
        return CollectionFeed(line.storage, collection, self._where, self._space)

    def _is_selected(self, item: FeedTransaction) -> bool:
        where = self._where
        return (
            bool(item.changes or item.without_states)
            or not where.is_about_features
            or where.has_event(item.changeset)
        )

    async def _part(
        self, changeset: Changeset, mark: TransactionPosition | None, last: int
    ) -> FeedPage:
        """Return the next part of a transaction that has many changes.

        A part examines as many features as fit a page and contains those that match. Parts without
        a match are skipped, except the last one.
        """
        seq_number, part = changeset.version.seq_number, mark.part if mark is not None else 0
        changes, without, following = await self._some_of(changeset, mark)
        item = FeedTransaction(changeset, tuple(changes), part, following is None, tuple(without))
        is_wanted = self._is_selected(item) if part == 0 else following is None
        items = [item] if changes or without or is_wanted else []
        if following is None:
            return FeedPage(items, FeedPosition(seq_number), max(seq_number, last))
        mark = TransactionPosition(part + len(items), *following)
        return FeedPage(items, FeedPosition(seq_number - 1, str(mark)), max(seq_number, last))

    async def _some_of(
        self, changeset: Changeset, mark: TransactionPosition | None
    ) -> tuple[list[FeatureChange], list[str], tuple[str, str] | None]:
        """Return the changes of a transaction after a mark.

        Also return the collections whose states are not kept, and the collection and cursor to
        continue with, if there is more.
        """
        changes: list[FeatureChange] = []
        without: list[str] = []
        left, infos = self._features_max, await self._infos()
        for touched in touched_in(changeset, self._where):
            name, cursor = touched.collection, ""
            if mark is not None and name <= mark.collection:
                if name < mark.collection:
                    continue
                cursor = mark.cursor
            if left == 0:
                return changes, without, (name, "")
            if not _has_history(infos.get(name)):
                without.append(name)
                continue
            feed, transaction = (
                self._feed(changeset.overlay, name),
                collection_transaction(changeset, touched),
            )
            try:
                page = await feed.page(transaction, cursor, left)
            except (CollectionNotFound, Expired):
                await feed.check_age([transaction], infos[name])
                without.append(name)
                continue
            changes += [each.change(name) for each in page.found]
            left -= page.examined
            if page.cursor is not None:
                return changes, without, (name, page.cursor)
        return changes, without, None


def _has_history(info: CollectionInfo | None) -> bool:
    """Return whether states of a collection are kept; of a dropped one only signals are known."""
    return info is not None and info.history_enabled


def _in_order(changes: Iterable[FeatureChange]) -> tuple[FeatureChange, ...]:
    return tuple(sorted(changes, key=lambda each: (each.collection, each.state.id)))
