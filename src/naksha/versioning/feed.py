"""Stub."""
from __future__ import annotations
import msgspec
from naksha.model.query import Query
from naksha.model.state import State
from naksha.versioning.changesets import Changeset
from naksha.versioning.places import Line

class FeedPosition(msgspec.Struct, frozen=True):
    seq_number: int
    within: str = ""

class FeedFilter(msgspec.Struct, frozen=True, kw_only=True):
    collections: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None
    query: Query = Query()

class FeatureChange(msgspec.Struct, frozen=True):
    collection: str
    action: str
    state: State

class Published(msgspec.Struct, frozen=True):
    changeset: Changeset
    changes: tuple[FeatureChange, ...]
    part: int = 0
    is_last: bool = True
    without_states: tuple[str, ...] = ()

class FeedPage(msgspec.Struct, frozen=True):
    items: list[Published]
    position: FeedPosition
    last: int

async def read_feed(line: Line, after: FeedPosition, where: FeedFilter, *, transactions_max: int, features_max: int, space: str | None = None) -> FeedPage:
    raise AssertionError
