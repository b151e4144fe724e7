"""Target of a job, the rights it needs, and the specification for its process.

A job bypasses the pipeline of a space and accesses the collection directly. So its space must be
nothing but a collection, and the actor who submits it needs the rights to all of its features.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from naksha.catalog.entities import EntitySnapshot
from naksha.hub.auth import resources
from naksha.hub.auth.resources import Resource
from naksha.hub.auth.rights import Right, Rights
from naksha.hub.config.objects import Space, StorageObject, key_of
from naksha.hub.config.references import connectors_of, stored_by
from naksha.hub.config.registry import Registry
from naksha.hub.config.space_collections import SpaceCollection
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
"""Values of `JobKind.access`."""
_ABOUT: Final = "a job"
_DELETING: Final = frozenset({WriteMode.REPLACE.value, WriteMode.MIRROR.value})
_STORAGE: Final = "storage"
_READ_ONLY: Final = "read-only"


class JobTarget(NamedTuple):
    """Storage, and optionally collection and space, that a job works on."""

    storage: StorageObject
    collection: str | None
    space: Space | None = None
    stored: SpaceCollection | None = None
    """For a space: its collection with its settings."""

    def features(self) -> Resource:
        """Return the features that the job reads or writes, as a resource for rights."""
        if self.space is not None:
            return resources.features(self.space.resource())
        return resources.features(
            Resource(resources.ResourceKind.SPACE, {}),
            storage_id=self.storage.id,
            storage_tags=self.storage.tags,
            collection_id=self.collection,
        )


async def target_of(snapshot: EntitySnapshot, job: JobObject, kind: JobKind) -> JobTarget:
    """Resolve the target of a job in the configuration.

    Raises:
        NotFound, NotSupported, Inactive, ReadOnly: The job cannot work on this target.
    """
    if job.space_id is None:
        assert job.storage_id is not None
        return JobTarget(await _storage(snapshot, job.storage_id), job.collection)
    found = await snapshot.get(key_of(Space, job.space_id), Space)
    if found is None:
        raise NotFound(f"The space {job.space_id!r} does not exist", field="spaceId")
    space = found.value
    stored = await _stored(snapshot, space, kind.access)
    storage = await _storage(snapshot, stored.storage_id)
    return JobTarget(storage, stored.collection.id, space, stored)


async def _storage(snapshot: EntitySnapshot, id: str) -> StorageObject:
    found = await snapshot.get(key_of(StorageObject, id), StorageObject)
    if found is None:
        raise NotFound(f"The storage {id!r} does not exist", field="storageId")
    if not found.value.active:
        raise Inactive(
            f"The storage {id!r} is switched off; set its active to true", field="storageId"
        )
    return found.value


async def _stored(snapshot: EntitySnapshot, space: Space, access: str) -> SpaceCollection:
    """Return the only collection of a space that has no handlers before its storage."""
    if not space.active:
        raise Inactive(
            f"The space {space.id!r} is switched off; set its active to true", field="spaceId"
        )
    connectors = [one for one in await connectors_of(snapshot, space) if one.active]
    classes = [one.handler_name for one in connectors]
    if access != READ and (space.read_only or _READ_ONLY in classes):
        raise ReadOnly(f"The space {space.id!r} is read-only", field="spaceId")
    if [name for name in classes if name != _READ_ONLY] != [_STORAGE]:
        raise NotSupported(
            f"The space {space.id!r} has handlers that a job would bypass; use the space or "
            "storage behind them as the job's target",
            field="spaceId",
        )
    (stored,) = stored_by(space, connectors)
    return stored


# ---- Rights -------------------------------------------------------------------------------------


async def check_may_be_seen(registry: Registry, job: JobObject, rights: Rights) -> None:
    """Raise Forbidden if the actor may not even use the job's target.

    Checked first, so that the actor learns nothing about existing objects. A missing target is
    reported later.
    """
    if job.space_id is not None:
        space = await registry.find(Space, job.space_id)
        if space is not None and not space.shared:
            rights.check(Right.USE_SPACES, space.resource())
    elif job.storage_id is not None:
        storage = await registry.find(StorageObject, job.storage_id)
        if storage is not None:
            rights.check(Right.USE_STORAGES, storage.resource())


def check_allowed(target: JobTarget, job: JobObject, kind: JobKind, actor: Actor) -> None:
    """Raise Forbidden if the actor lacks rights that the job needs."""
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
        # Dated transactions change the storage's log, which all of its collections share.
        rights.check(target.storage.manage_right, target.storage.resource())
    if kind.access == WRITE and target.space is None and target.collection is not None:
        named = resources.collection(
            target.collection, storage_id=target.storage.id, storage_tags=target.storage.tags
        )
        rights.check(Right.CREATE_COLLECTIONS, named)


def _needed(kind: JobKind, job: JobObject) -> list[Right]:
    """Return the rights to features that a job needs."""
    if kind.access != WRITE:
        return [Right.READ_FEATURES]
    needed = [Right.CREATE_FEATURES, Right.UPDATE_FEATURES]
    if job.spec.get("mode") in _DELETING or is_dated(job):
        needed.append(Right.DELETE_FEATURES)
    return needed


def is_dated(job: JobObject) -> bool:
    """Whether the job sets the time of its transactions."""
    return bool(job.spec.get("history"))


# ---- Specification for the process ---------------------------------------------------------------


class JobStorage(NamedTuple):
    """Location of a storage, for a process without a hub."""

    location: str
    options: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Convert to the form in a specification; other options only concern the hub's pools."""
        schema = self.options.get("schema")
        return {"location": self.location, **({} if schema is None else {"schema": schema})}


def process_spec(
    job: JobObject,
    kind: JobKind,
    target: JobTarget,
    job_storage: JobStorage,
    files: JobFiles,
    realm_id: str,
) -> dict[str, Any]:
    """Build the complete specification for the process of a job; it contains secrets.

    Raises:
        InvalidArgument, Forbidden: The field names the invalid member.
    """
    fields = fields_of(kind)
    for name in job.spec:
        if name in FILLED:
            raise InvalidArgument(
                f"spec.{name} is set by the hub; remove it from the spec", field=f"spec.{name}"
            )
    if target.collection is not None and "collection" not in fields:
        raise InvalidArgument(
            f"The job {kind.name!r} processes a whole storage and accepts no collection; omit it",
            field="collection",
        )
    fields_set = {
        "collection": target.collection,
        "info": None if target.stored is None else msgspec.to_builtins(target.stored.collection),
        "app_id": job.app_id,
        "author": job.author,
        "job_id": job.own.run_id,
    }
    spec = {
        "job": kind.name,
        "place": job_storage.to_json(),
        **{
            name: value
            for name, value in fields_set.items()
            if name in fields and value is not None
        },
        **{
            name: files.paths_of(realm_id, value, f"spec.{name}") if name in kind.files else value
            for name, value in job.spec.items()
        },
    }
    check_spec(kind, spec)
    return spec
