"""What the change feed is made of: positions, filters, and published transactions with what they
did to features."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Self

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.model.limits import INT8_MAX
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.versioning.change_filters import ALL, split
from naksha.versioning.changesets import Changeset

ACTIONS: Final = ("CREATE", "UPDATE", "DELETE")
"""What a transaction does to a feature."""
COMMENT: Final = "TxComment"
MODIFY_FEATURES: Final = "TxModifyFeatures"
MODIFY_COLLECTION: Final = "TxModifyCollection"
EVENTS: Final = (COMMENT, MODIFY_FEATURES, MODIFY_COLLECTION)
"""What the transaction log records: a comment, changed features, a changed collection."""
_POSITION: Final = re.compile(r"(0|[1-9][0-9]{0,18})(?:~([A-Za-z0-9_:.=-]+))?")
_MARK: Final = re.compile(r"(0|[1-9][0-9]{0,8})\.([a-z][a-z0-9_:-]{0,31})\.([A-Za-z0-9_=-]*)")
_FILTERED_ELSEWHERE: Final = ("limit", "cursor", "actions", "txn_from", "txn_to", "replaced_since")


class FeedPosition(msgspec.Struct, frozen=True):
    """How far a reader of the feed is: all transactions up to `seq_number`, and of the one after it
    what comes before the mark `within`. As text it is `17` or `17~mark`."""

    seq_number: int
    within: str = ""

    def __str__(self) -> str:
        return f"{self.seq_number}~{self.within}" if self.within else str(self.seq_number)

    @classmethod
    def parse(cls, text: str, *, field: str = "since") -> Self:
        """Reads the text form."""
        found = _POSITION.fullmatch(text)
        if found is None or int(found[1]) > INT8_MAX:
            raise InvalidArgument(
                f"{text!r:.64} is no position in the feed: it is a version such as 17, or what"
                " the feed gave out as its position",
                field=field,
            )
        return cls(int(found[1]), found[2] or "")


class Mark(msgspec.Struct, frozen=True):
    """A place inside a transaction: `part` is the number of the next part, which begins in a
    collection after what the cursor tells ("" for its beginning)."""

    part: int
    collection: str
    cursor: str = ""

    def __str__(self) -> str:
        return f"{self.part}.{self.collection}.{self.cursor}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the text form."""
        found = _MARK.fullmatch(text)
        if found is None:
            raise InvalidArgument(f"{text!r:.64} is no mark of a position", field="since")
        return cls(int(found[1]), found[2], found[3])


class FeedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which changes are asked for. All given parts must hold.

    `collections`: transactions that touched one of them (features, or the collection itself), and
    nothing else of these; what only has messages is of no collection. `actions`: one of CREATE,
    UPDATE, DELETE, or of the events of the log. TxModifyFeatures stands for all three actions;
    transactions with a comment or a changed collection are given for TxComment and
    TxModifyCollection, unless there is a filter on features, which such an event cannot match.
    `query` has the filters on the features (area, predicate, tags, ids, authors, app ids):
    the state that a change made matches, or the live one that it replaced, so that a feature that
    leaves an area is told of. Pages, versions and kinds of states are not its business. `change`
    has the filters on the change itself (authors, app ids, times; see `filters`): the state that it
    made matches.
    """

    collections: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None
    query: Query = ALL
    change: Query = ALL

    @classmethod
    def of(cls, query: Query, collections: tuple[str, ...] | None) -> Self:
        """Return the filter for the changes that a query means."""
        features, change = split(query)
        actions, change = change.actions, msgspec.structs.replace(change, actions=None)
        return cls(collections=collections, actions=actions, query=features, change=change)

    def __post_init__(self) -> None:
        query = self.query
        given = [name for name in _FILTERED_ELSEWHERE if getattr(query, name) is not None]
        if given or query.states is not States.LIVE or query.space is not None:
            raise InvalidArgument(
                "The query of a feed has no limit, cursor, actions, space, versions or kinds of"
                f" states{'' if not given else ': ' + ', '.join(given)}",
                field="query",
            )
        if self.change.txn_from is not None or self.change.txn_to is not None:
            raise InvalidArgument(
                "A filter on changes has no txn_from and txn_to; give versions instead",
                field="query",
            )
        unknown = set(self.actions or ()) - {*ACTIONS, *EVENTS}
        if unknown or self.actions == ():
            raise InvalidArgument(
                f"An action is one of {', '.join((*ACTIONS, *EVENTS))}, not {sorted(unknown)}",
                field="action",
            )

    @property
    def is_about_features(self) -> bool:
        """Whether only some features are asked for. Then transactions without any are not given,
        unless nobody can tell what features they had."""
        return self.actions is not None or self.query != ALL or self.change != ALL

    @property
    def feature_actions(self) -> tuple[str, ...] | None:
        """The actions on features that are asked for; None for all."""
        if self.actions is None or MODIFY_FEATURES in self.actions:
            return None
        return tuple(action for action in self.actions if action in ACTIONS)

    def has_event(self, changeset: Changeset) -> bool:
        """Whether a transaction has an event that is asked for, whichever features it changed."""
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
        """Whether the state before counts. It always has the same id."""
        return self.query != Query(ids=self.query.ids)

    def covers(self, collection: str) -> bool:
        return self.collections is None or collection in self.collections


def check_events(actions: Iterable[str], has_feature_filter: bool, *, field: str) -> None:
    """Refuse a filter on features beside events that have no features and would never match."""
    without = [action for action in actions if action in (COMMENT, MODIFY_COLLECTION)]
    if without and has_feature_filter:
        raise InvalidArgument(
            f"{without[0]} has no features, so it cannot be combined with a filter on area, tags, "
            "properties or ids; ask for it separately",
            field=field,
        )


class FeatureChange(msgspec.Struct, frozen=True, gc=False):
    """What a transaction did to a feature: CREATE, UPDATE or DELETE, and the state that it made, as
    it was then; of a deletion the tombstone."""

    collection: str
    action: str
    state: State


class Published(msgspec.Struct, frozen=True):
    """A published transaction, with its changes ordered by collection and id.

    One with many changes comes in several parts. `without_states` are the touched collections whose
    states are not kept (history is off, or gone, or the collection is): of these only
    `changeset.touched` tells. With a filter, they also are those where the states before are not
    kept any more, so that nobody knows what it finds. With `collections` in the filter, the
    changeset tells of no others.
    """

    changeset: Changeset
    changes: tuple[FeatureChange, ...]
    part: int = 0
    is_last: bool = True
    without_states: tuple[str, ...] = ()


class FeedPage(msgspec.Struct, frozen=True):
    """Some of the feed. Everything up to `position` was looked at, also when nothing matched; there
    may be more unless its `seq_number` is `last`, the last published one when the page was read."""

    items: list[Published]
    position: FeedPosition
    last: int
