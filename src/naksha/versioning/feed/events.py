"""Building blocks of the change feed: positions, filters, and published transactions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Self

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.limits import INT8_MAX
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.versioning.change_filters import ALL, split_query
from naksha.versioning.changesets import Changeset

ACTIONS: Final = ("CREATE", "UPDATE", "DELETE")
"""Actions of a transaction on a feature."""
COMMENT: Final = "TxComment"
MODIFY_FEATURES: Final = "TxModifyFeatures"
MODIFY_COLLECTION: Final = "TxModifyCollection"
EVENTS: Final = (COMMENT, MODIFY_FEATURES, MODIFY_COLLECTION)
"""Events of the transaction log: a comment, changed features, a changed collection."""
_POSITION: Final = re.compile(r"(0|[1-9][0-9]{0,18})(?:~([A-Za-z0-9_:.=-]+))?")
_MARK: Final = re.compile(r"(0|[1-9][0-9]{0,8})\.([a-z][a-z0-9_:-]{0,31})\.([A-Za-z0-9_=-]*)")
_FILTERED_ELSEWHERE: Final = ("limit", "cursor", "actions", "txn_from", "txn_to", "replaced_since")


class FeedPosition(msgspec.Struct, frozen=True):
    """The progress of a feed reader, in text form `17` or `17~mark`.

    The reader has all transactions up to `seq_number`, and of the next one everything before the
    mark `within`.
    """

    seq_number: int
    within: str = ""

    def __str__(self) -> str:
        return f"{self.seq_number}~{self.within}" if self.within else str(self.seq_number)

    @classmethod
    def parse(cls, text: str, *, field: str = "since") -> Self:
        """Parse the text form."""
        found = _POSITION.fullmatch(text)
        if found is None or int(found[1]) > INT8_MAX:
            raise InvalidArgument(
                f"{text!r:.64} is not a feed position; use a version such as 17, or a position that"
                " the feed returned",
                field=field,
            )
        return cls(int(found[1]), found[2] or "")


class TransactionPosition(msgspec.Struct, frozen=True):
    """A place inside a transaction that is delivered in parts.

    `part` is the number of the next part; it begins in `collection`, after `cursor` ("" for its
    beginning).
    """

    part: int
    collection: str
    cursor: str = ""

    def __str__(self) -> str:
        return f"{self.part}.{self.collection}.{self.cursor}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form."""
        found = _MARK.fullmatch(text)
        if found is None:
            raise InvalidArgument(
                f"{text!r:.64} is not a valid mark in a feed position; use one that the feed"
                " returned",
                field="since",
            )
        return cls(int(found[1]), found[2], found[3])


class FeedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter on the changes of a feed. All given parts must hold.

    `collections`: transactions that touched one of them (its features, or the collection itself),
    reduced to these; a transaction that only has messages belongs to no collection. `actions`: any
    of CREATE, UPDATE, DELETE, or of the events of the log. TxModifyFeatures stands for all three
    actions; transactions with a comment or a changed collection are returned for TxComment and
    TxModifyCollection, unless there is a filter on features, which such an event cannot match.
    `query`: filters on features (area, predicate, tags, ids, authors, app ids). The state that a
    change made must match, or the live state that it replaced, so a feature that leaves an area is
    reported. Page, version and state selectors are not permitted there. `change`: filters on the
    change itself (authors, app ids, times; see `naksha.versioning.change_filters`); the state that
    it made must match.
    """

    collections: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None
    query: Query = ALL
    change: Query = ALL

    @classmethod
    def of(cls, query: Query, collections: tuple[str, ...] | None) -> Self:
        """Return the filter for the changes that a query selects."""
        features, change = split_query(query)
        actions, change = change.actions, msgspec.structs.replace(change, actions=None)
        return cls(collections=collections, actions=actions, query=features, change=change)

    def __post_init__(self) -> None:
        query = self.query
        given = [name for name in _FILTERED_ELSEWHERE if getattr(query, name) is not None]
        if given or query.states is not States.LIVE or query.space is not None:
            raise InvalidArgument(
                "A feed query does not support limit, cursor, actions, space, versions or states"
                f"; remove {', '.join(given) or 'space and states'}",
                field="query",
            )
        if self.change.txn_from is not None or self.change.txn_to is not None:
            raise InvalidArgument(
                "A feed query does not support txn_from and txn_to; use versions instead",
                field="query",
            )
        unknown = set(self.actions or ()) - {*ACTIONS, *EVENTS}
        if unknown or self.actions == ():
            raise InvalidArgument(
                f"action must be one of {', '.join((*ACTIONS, *EVENTS))}, not {sorted(unknown)}",
                field="action",
            )

    @property
    def is_about_features(self) -> bool:
        """Whether only some features are selected.

        Transactions without a selected feature are then skipped, unless their features are no
        longer known.
        """
        return self.actions is not None or self.query != ALL or self.change != ALL

    @property
    def feature_actions(self) -> tuple[str, ...] | None:
        """The selected actions on features; None for all."""
        if self.actions is None or MODIFY_FEATURES in self.actions:
            return None
        return tuple(action for action in self.actions if action in ACTIONS)

    def has_event(self, changeset: Changeset) -> bool:
        """Return whether a transaction has a selected event, whichever features it changed."""
        by = self.query.authors
        if not self.actions or self.query != Query(authors=by):
            return False
        signed = (by, self.change.authors)
        if any(authors is not None and changeset.author not in authors for authors in signed):
            return False
        return bool(
            (changeset.attachments and COMMENT in self.actions)
            or (changeset.touched and MODIFY_FEATURES in self.actions)
            or (changeset.collections_changed and MODIFY_COLLECTION in self.actions)
        )

    @property
    def looks_back(self) -> bool:
        """Whether the replaced state counts as well.

        A filter on ids alone needs no look back: both states have the same id.
        """
        return self.query != Query(ids=self.query.ids)

    def covers(self, collection: str) -> bool:
        return self.collections is None or collection in self.collections


def check_events(actions: Iterable[str], has_feature_filter: bool, *, field: str) -> None:
    """Reject a filter on features combined with events that have no features.

    Such a combination would never match.
    """
    without = [action for action in actions if action in (COMMENT, MODIFY_COLLECTION)]
    if without and has_feature_filter:
        raise InvalidArgument(
            f"{without[0]} events have no features and cannot be combined with a filter on area, "
            "tags, properties or ids; request them separately",
            field=field,
        )


class FeatureChange(msgspec.Struct, frozen=True, gc=False):
    """A change of one feature by a transaction: CREATE, UPDATE or DELETE, with the state it made.

    The state is shown as it was then; for a deletion it is the tombstone.
    """

    collection: str
    action: str
    state: State


class FeedTransaction(msgspec.Struct, frozen=True):
    """A published transaction, with its changes ordered by collection and id.

    A transaction with many changes is returned in several parts. `without_states` lists the touched
    collections whose states are not kept (the history is off or expired, or the collection is
    gone); only `changeset.touched` describes their changes. With a filter, it also lists
    collections whose replaced states are no longer kept, because it is then unknown what the filter
    matches. With `collections` in the filter, the changeset mentions no others.
    """

    changeset: Changeset
    changes: tuple[FeatureChange, ...]
    part: int = 0
    is_last: bool = True
    without_states: tuple[str, ...] = ()


class FeedPage(msgspec.Struct, frozen=True):
    """A page of the feed.

    Everything up to `position` was examined, even if nothing matched. There may be more unless
    `position.seq_number` equals `last`, the last published version when the page was read.
    """

    items: list[FeedTransaction]
    position: FeedPosition
    last: int
