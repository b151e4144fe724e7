"""Naksha: a versioned geospatial feature store and hub.

import naksha

with naksha.connect("file:town.naksha", app_id="my-script") as db:
    ...

This module has all public names except those of Spark (`naksha.spark`), of the host of remote
handlers (`naksha.hub.remote`) and of tests (`naksha.testing`). Other modules are internal. A name
is imported on its first use, so that a script loads only the parts that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from naksha.api.database import Database as Database
    from naksha.api.database import connect as connect
    from naksha.catalog.backends import open_backend as open_backend
    from naksha.catalog.catalog import Catalog as Catalog
    from naksha.catalog.entities import EntityEdit as EntityEdit
    from naksha.catalog.maintenance import AllRealms as AllRealms
    from naksha.catalog.maintenance import Maintenance as Maintenance
    from naksha.catalog.objects import object_type as object_type
    from naksha.catalog.realms import RealmStatus as RealmStatus
    from naksha.hub.auth import resources as resources
    from naksha.hub.auth.keys import KeyFile as KeyFile
    from naksha.hub.auth.keys import read_signing_key as read_signing_key
    from naksha.hub.auth.rights import Right as Right
    from naksha.hub.auth.rights import parse_rights as parse_rights
    from naksha.hub.auth.rights import parse_role as parse_role
    from naksha.hub.auth.tokens import TokenValidator as TokenValidator
    from naksha.hub.auth.tokens import mint as mint
    from naksha.hub.config.objects import Connector as Connector
    from naksha.hub.config.objects import Space as Space
    from naksha.hub.config.realm_setup import DefaultStorage as DefaultStorage
    from naksha.hub.config.references import Reference as Reference
    from naksha.hub.config.space_collections import SpaceCollection as SpaceCollection
    from naksha.hub.config.space_collections import space_collection as space_collection
    from naksha.hub.hub import Hub as Hub
    from naksha.hub.maintenance.realm_purge import HubRealms as HubRealms
    from naksha.hub.pipeline.pipeline import Event as Event
    from naksha.hub.pipeline.pipeline import Setup as Setup
    from naksha.hub.pipeline.request_context import RequestContext as RequestContext
    from naksha.hub.pipeline.request_context import anonymous as anonymous
    from naksha.hub.pipeline.requests import IfExists as IfExists
    from naksha.hub.pipeline.requests import Modification as Modification
    from naksha.hub.pipeline.requests import ReadFeatures as ReadFeatures
    from naksha.hub.pipeline.requests import WriteFeatures as WriteFeatures
    from naksha.model.collection import CollectionInfo as CollectionInfo
    from naksha.model.errors import Busy as Busy
    from naksha.model.errors import Cancelled as Cancelled
    from naksha.model.errors import CollectionExists as CollectionExists
    from naksha.model.errors import CollectionNotFound as CollectionNotFound
    from naksha.model.errors import Conflict as Conflict
    from naksha.model.errors import Expired as Expired
    from naksha.model.errors import FeatureExists as FeatureExists
    from naksha.model.errors import FeatureNotFound as FeatureNotFound
    from naksha.model.errors import Fenced as Fenced
    from naksha.model.errors import Forbidden as Forbidden
    from naksha.model.errors import HandlerFailed as HandlerFailed
    from naksha.model.errors import Inactive as Inactive
    from naksha.model.errors import InUse as InUse
    from naksha.model.errors import InvalidArgument as InvalidArgument
    from naksha.model.errors import LimitExceeded as LimitExceeded
    from naksha.model.errors import MergeConflict as MergeConflict
    from naksha.model.errors import NakshaError as NakshaError
    from naksha.model.errors import NotFound as NotFound
    from naksha.model.errors import NotImplementedHere as NotImplementedHere
    from naksha.model.errors import NotSupported as NotSupported
    from naksha.model.errors import NotYetPublished as NotYetPublished
    from naksha.model.errors import OutcomeUnknown as OutcomeUnknown
    from naksha.model.errors import PointerExists as PointerExists
    from naksha.model.errors import PointerNotFound as PointerNotFound
    from naksha.model.errors import PreconditionFailed as PreconditionFailed
    from naksha.model.errors import ReadOnly as ReadOnly
    from naksha.model.errors import RealmChanged as RealmChanged
    from naksha.model.errors import RealmInactive as RealmInactive
    from naksha.model.errors import RealmNotFound as RealmNotFound
    from naksha.model.errors import RemoteFailed as RemoteFailed
    from naksha.model.errors import Retryable as Retryable
    from naksha.model.errors import StorageCorrupt as StorageCorrupt
    from naksha.model.errors import TimedOut as TimedOut
    from naksha.model.errors import Unauthorized as Unauthorized
    from naksha.model.errors import Unavailable as Unavailable
    from naksha.model.errors import VersionNotFound as VersionNotFound
    from naksha.model.query import And as And
    from naksha.model.query import Bbox as Bbox
    from naksha.model.query import Intersects as Intersects
    from naksha.model.query import Not as Not
    from naksha.model.query import Op as Op
    from naksha.model.query import Or as Or
    from naksha.model.query import Query as Query
    from naksha.model.query import SortKey as SortKey
    from naksha.model.query import States as States
    from naksha.model.query import Test as Test
    from naksha.model.query import Tile as Tile
    from naksha.model.version import HEAD as HEAD
    from naksha.model.version import AtSeq as AtSeq
    from naksha.model.version import AtTime as AtTime
    from naksha.model.version import AtTxn as AtTxn
    from naksha.model.version import Version as Version
    from naksha.spi.staging import WriteMode as WriteMode
    from naksha.spi.storage_factory import open_storage as open_storage
    from naksha.versioning import Attribution as Attribution
    from naksha.versioning import MergePolicy as MergePolicy
    from naksha.versioning import SnapshotStep as SnapshotStep
    from naksha.versioning import import_history as import_history
    from naksha.versioning import place_of as place_of

__version__ = "0.1.0.dev0"

_EXPORTS: Final = {
    "naksha.api.database": (
        "Database",
        "connect",
    ),
    "naksha.catalog.backends": ("open_backend",),
    "naksha.catalog.catalog": ("Catalog",),
    "naksha.catalog.entities": ("EntityEdit",),
    "naksha.catalog.maintenance": (
        "AllRealms",
        "Maintenance",
    ),
    "naksha.catalog.objects": ("object_type",),
    "naksha.catalog.realms": ("RealmStatus",),
    "naksha.hub.auth": ("resources",),
    "naksha.hub.auth.keys": (
        "KeyFile",
        "read_signing_key",
    ),
    "naksha.hub.auth.rights": (
        "Right",
        "parse_rights",
        "parse_role",
    ),
    "naksha.hub.auth.tokens": (
        "TokenValidator",
        "mint",
    ),
    "naksha.hub.config.objects": (
        "Connector",
        "Space",
    ),
    "naksha.hub.config.realm_setup": ("DefaultStorage",),
    "naksha.hub.config.references": ("Reference",),
    "naksha.hub.config.space_collections": (
        "SpaceCollection",
        "space_collection",
    ),
    "naksha.hub.hub": ("Hub",),
    "naksha.hub.maintenance.realm_purge": ("HubRealms",),
    "naksha.hub.pipeline.pipeline": (
        "Event",
        "Setup",
    ),
    "naksha.hub.pipeline.request_context": (
        "RequestContext",
        "anonymous",
    ),
    "naksha.hub.pipeline.requests": (
        "IfExists",
        "Modification",
        "ReadFeatures",
        "WriteFeatures",
    ),
    "naksha.model.collection": ("CollectionInfo",),
    "naksha.model.errors": (
        "Busy",
        "Cancelled",
        "CollectionExists",
        "CollectionNotFound",
        "Conflict",
        "Expired",
        "FeatureExists",
        "FeatureNotFound",
        "Fenced",
        "Forbidden",
        "HandlerFailed",
        "InUse",
        "Inactive",
        "InvalidArgument",
        "LimitExceeded",
        "MergeConflict",
        "NakshaError",
        "NotFound",
        "NotImplementedHere",
        "NotSupported",
        "NotYetPublished",
        "OutcomeUnknown",
        "PointerExists",
        "PointerNotFound",
        "PreconditionFailed",
        "ReadOnly",
        "RealmChanged",
        "RealmInactive",
        "RealmNotFound",
        "RemoteFailed",
        "Retryable",
        "StorageCorrupt",
        "TimedOut",
        "Unauthorized",
        "Unavailable",
        "VersionNotFound",
    ),
    "naksha.model.query": (
        "And",
        "Bbox",
        "Intersects",
        "Not",
        "Op",
        "Or",
        "Query",
        "SortKey",
        "States",
        "Test",
        "Tile",
    ),
    "naksha.model.version": (
        "AtSeq",
        "AtTime",
        "AtTxn",
        "HEAD",
        "Version",
    ),
    "naksha.spi.storage_factory": ("open_storage",),
    "naksha.spi.staging": ("WriteMode",),
    "naksha.versioning": (
        "Attribution",
        "MergePolicy",
        "SnapshotStep",
        "import_history",
        "place_of",
    ),
}
"""Public names by the module that defines them."""


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    for module, names in _EXPORTS.items():
        if name in names:
            # Unlike import_module, this also imports a name that is a module itself.
            globals()[name] = getattr(__import__(module, fromlist=[name]), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all public names, imported or not."""
    return sorted({*globals(), *(name for names in _EXPORTS.values() for name in names)})
