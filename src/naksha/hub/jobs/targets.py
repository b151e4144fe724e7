"""What a job is about, who may let it do what it does, and what its process is told.

A job goes past the pipeline of a space, straight to the collection. So it can be about spaces only
that are nothing but a collection; and whoever submits it needs the rights to all features of it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from naksha.catalog.entities import Snapshot
from naksha.hub.auth import resources
from naksha.hub.auth.resources import Resource
from naksha.hub.auth.rights import Right, Rights
from naksha.hub.config.objects import Space, StorageObject, key_of
from naksha.hub.config.references import connectors_of, stored_by
from naksha.hub.config.registry import Registry
from naksha.hub.config.space_collections import Stored
from naksha.hub.jobs.files import JobFiles
from naksha.hub.jobs.kinds import FILLED, check_spec, fields_of
from naksha.hub.jobs.objects import JobObject
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.subscriptions.rights import check_all
from naksha.model.errors import Inactive, InvalidArgument, NotFound, NotSupported, ReadOnly
from naksha.spi.jobs.messages import JobKind
from naksha.spi.staging import WriteMode

READ: Final = "read"
WRITE: Final = "write"
MANAGE: Final = "manage"
"""What a job does (`JobKind.access`)."""
_ABOUT: Final = "a job"
_DELETING: Final = frozenset({WriteMode.REPLACE.value, WriteMode.MIRROR.value})
_STORAGE: Final = "storage"
_READ_ONLY: Final = "read-only"


class Target(NamedTuple):
    """What a job is about."""

    storage: StorageObject
    collection: str | None
    space: Space | None = None
    stored: Stored | None = None
    """Of a space: its collection, with its settings."""

    def features(self) -> Resource:
        """Those that the job reads or writes, as rights see them."""
        if self.space is not None:
            return resources.features(self.space.resource())
        return resources.features(
            Resource(resources.Kind.SPACE, {}),
            storage_id=self.storage.id,
            storage_tags=self.storage.tags,
            collection_id=self.collection,
        )


async def target_of(snapshot: Snapshot, job: JobObject, kind: JobKind) -> Target:
    """What a job is about, as it is configured.

    Raises:
        NotFound, NotSupported, Inactive, ReadOnly: The job cannot be about that, and why.
    """
    if job.space_id is None:
        assert job.storage_id is not None
        return Target(await _storage(snapshot, job.storage_id), job.collection)
    found = await snapshot.get(key_of(Space, job.space_id), Space)
    if found is None:
        raise NotFound(f"There is no space {job.space_id!r}", field="spaceId")
    space = found.value
    stored = await _stored(snapshot, space, kind.access)
    storage = await _storage(snapshot, stored.storage_id)
    return Target(storage, stored.collection.id, space, stored)


async def _storage(snapshot: Snapshot, id: str) -> StorageObject:
    found = await snapshot.get(key_of(StorageObject, id), StorageObject)
    if found is None:
        raise NotFound(f"There is no storage {id!r}", field="storageId")
    if not found.value.active:
        raise Inactive(f"The storage {id!r} is not active", field="storageId")
    return found.value


async def _stored(snapshot: Snapshot, space: Space, access: str) -> Stored:
    """The only collection that a space is stored in, if nothing comes before it."""
    if not space.active:
        raise Inactive(f"The space {space.id!r} is not active", field="spaceId")
    connectors = [one for one in await connectors_of(snapshot, space) if one.active]
    classes = [one.handler_name for one in connectors]
    if access != READ and (space.read_only or _READ_ONLY in classes):
        raise ReadOnly(f"The space {space.id!r} is read-only", field="spaceId")
    if [name for name in classes if name != _READ_ONLY] != [_STORAGE]:
        raise NotSupported(
            f"The space {space.id!r} has handlers that a job would go past; let the job be about "
            "the space or storage behind them",
            field="spaceId",
        )
    (stored,) = stored_by(space, connectors)
    return stored


# ---- Who may ------------------------------------------------------------------------------------


async def check_may_be_seen(registry: Registry, job: JobObject, rights: Rights) -> None:
    """Forbidden when the actor may not even use what a job is about: first of all, so that he is
    not told what there is. What is not there is told by whoever looks for it."""
    if job.space_id is not None:
        space = await registry.find(Space, job.space_id)
        if space is not None and not space.shared:
            rights.check(Right.USE_SPACES, space.resource())
    elif job.storage_id is not None:
        storage = await registry.find(StorageObject, job.storage_id)
        if storage is not None:
            rights.check(Right.USE_STORAGES, storage.resource())


def check_allowed(target: Target, job: JobObject, kind: JobKind, actor: Actor) -> None:
    """Forbidden when the actor may not let a job do what it would do."""
    rights, features = actor.rights, target.features()
    is_shared = target.space is not None and target.space.shared
    if kind.access == READ and is_shared:
        return
    for right in _needed(kind, job):
        check_all(rights, right, features, _ABOUT)
    if kind.access == MANAGE:
        managed = target.storage if target.space is None else target.space
        rights.check(managed.manage_right, managed.resource())
    if kind.access == WRITE and is_dated(job):
        # The past of all its collections is told by the one log of a storage.
        rights.check(target.storage.manage_right, target.storage.resource())
    if kind.access == WRITE and target.space is None and target.collection is not None:
        named = resources.collection(
            target.collection, storage_id=target.storage.id, storage_tags=target.storage.tags
        )
        rights.check(Right.CREATE_COLLECTIONS, named)


def _needed(kind: JobKind, job: JobObject) -> list[Right]:
    """The rights to features that a job takes."""
    if kind.access != WRITE:
        return [Right.READ_FEATURES]
    needed = [Right.CREATE_FEATURES, Right.UPDATE_FEATURES]
    if job.spec.get("mode") in _DELETING or is_dated(job):
        needed.append(Right.DELETE_FEATURES)
    return needed


def is_dated(job: JobObject) -> bool:
    """Whether it gives transactions a time of their own."""
    return bool(job.spec.get("history"))


# ---- What its process is told --------------------------------------------------------------------


class Placed(NamedTuple):
    """Where a storage is, for a process that has no hub."""

    location: str
    options: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As a specification has it. Options besides the schema are about the hub's own pools."""
        schema = self.options.get("schema")
        return {"location": self.location, **({} if schema is None else {"schema": schema})}


def whole_spec(
    job: JobObject, kind: JobKind, target: Target, placed: Placed, files: JobFiles, realm_id: str
) -> dict[str, Any]:
    """All that the process of a job is told; it has secrets in it.

    Raises:
        InvalidArgument, Forbidden: Names the field that is wrong.
    """
    fields = fields_of(kind)
    for name in job.spec:
        if name in FILLED:
            raise InvalidArgument(f"{name} is filled in by the hub", field=f"spec.{name}")
    if target.collection is not None and "collection" not in fields:
        raise InvalidArgument("This job is about a whole storage", field="collection")
    told = {
        "collection": target.collection,
        "info": None if target.stored is None else msgspec.to_builtins(target.stored.collection),
        "app_id": job.app_id,
        "author": job.author,
        "job_id": job.own.run_id,
    }
    spec = {
        "job": kind.name,
        "place": placed.to_json(),
        **{name: value for name, value in told.items() if name in fields and value is not None},
        **{
            name: files.placed(realm_id, value, f"spec.{name}") if name in kind.files else value
            for name, value in job.spec.items()
        },
    }
    check_spec(kind, spec)
    return spec
