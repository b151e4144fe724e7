"""Resources that rights are checked against, described by attributes.

Resources also have XYZ's attribute names, so that attribute maps written for XYZ
(`{"space": …, "owner": …}`) and for Naksha (`{"id": …}`) both match.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

import msgspec

Attributes = Mapping[str, str | Collection[str] | None]
"""Values by name. None and an empty collection count as absent: no attribute map matches them."""


class ResourceKind(StrEnum):
    """The kinds of resources."""

    SPACE = "space"
    FEATURE = "feature"
    CONNECTOR = "connector"
    STORAGE = "storage"
    COLLECTION = "collection"
    ROLE = "role"
    CAPABILITY = "capability"
    SUBSCRIPTION = "subscription"
    JOB = "job"


FEATURE_ATTRIBUTES: Final = frozenset({"id", "tags", "appId", "author"})
"""Attributes that differ between features; all others are constant within a request."""

SPACE_ATTRIBUTES: Final = frozenset({"spaceId", "owner", "packages"})
"""Attributes that features inherit from their space."""


class Resource(msgspec.Struct, frozen=True):
    """An object that a right is checked on, with the attributes to match against."""

    kind: ResourceKind
    attributes: Attributes

    def __str__(self) -> str:
        """Return the name for error messages; contains only ids that the caller has sent."""
        id, space = self.attributes.get("id"), self.attributes.get("spaceId")
        if self.kind is not ResourceKind.FEATURE:
            return f"{self.kind} {id!r}" if id is not None else f"{self.kind}s"
        name = "features" if id is None else f"feature {id!r}"
        return f"{name} of space {space!r}" if space is not None else name


def space(
    id: str,
    *,
    owner: str | None = None,
    tags: Collection[str] = (),
    app_id: str | None = None,
    author: str | None = None,
    packages: Collection[str] = (),
    connector_ids: Collection[str] = (),
) -> Resource:
    """Describe a space itself, not its features."""
    return Resource(
        ResourceKind.SPACE,
        {
            "id": id,
            "spaceId": id,
            "owner": owner,
            "tags": tags,
            "appId": app_id,
            "author": author,
            "packages": packages,
            "connectorIds": connector_ids,
        },
    )


def features(
    space: Resource,
    *,
    storage_id: str | None = None,
    storage_tags: Collection[str] = (),
    collection_id: str | None = None,
    collection_tags: Collection[str] = (),
) -> Resource:
    """Describe the features of a space (or of a collection of it), no particular one."""
    of = space.attributes
    return Resource(
        ResourceKind.FEATURE,
        {
            "spaceId": of.get("spaceId"),
            "owner": of.get("owner"),
            "packages": of.get("packages"),
            "storageId": storage_id,
            "storageTags": storage_tags,
            "collectionId": collection_id,
            "collectionTags": collection_tags,
        },
    )


def stored_features(storage: Resource, collection_id: str | None = None) -> Resource:
    """Describe the features of a storage or of one collection, independent of any space."""
    return Resource(
        ResourceKind.FEATURE,
        {
            "storageId": storage.attributes.get("storageId"),
            "storageTags": storage.attributes.get("tags"),
            "collectionId": collection_id,
        },
    )


def feature(
    among: Resource,
    id: str,
    *,
    tags: Collection[str] = (),
    app_id: str | None = None,
    author: str | None = None,
) -> Resource:
    """Describe one of a space's features."""
    own: Attributes = {"id": id, "tags": tags, "appId": app_id, "author": author}
    return Resource(ResourceKind.FEATURE, {**among.attributes, **own})


def connector(
    id: str,
    *,
    class_name: str | None = None,
    owner: str | None = None,
    tags: Collection[str] = (),
    app_id: str | None = None,
    author: str | None = None,
) -> Resource:
    """Describe a connector."""
    return Resource(
        ResourceKind.CONNECTOR,
        {
            "id": id,
            "connectorId": id,
            "className": class_name,
            "owner": owner,
            "tags": tags,
            "appId": app_id,
            "author": author,
        },
    )


def storage(
    id: str,
    *,
    class_name: str | None = None,
    owner: str | None = None,
    tags: Collection[str] = (),
    app_id: str | None = None,
    author: str | None = None,
    space_id: str | None = None,
) -> Resource:
    """Describe a storage, optionally with the space that it is used for."""
    return Resource(
        ResourceKind.STORAGE,
        {
            "id": id,
            "storageId": id,
            "className": class_name,
            "owner": owner,
            "tags": tags,
            "appId": app_id,
            "author": author,
            "spaceId": space_id,
        },
    )


def collection(
    id: str,
    *,
    storage_id: str,
    storage_tags: Collection[str] = (),
    tags: Collection[str] = (),
    app_id: str | None = None,
    author: str | None = None,
) -> Resource:
    """Describe a collection of a storage."""
    return Resource(
        ResourceKind.COLLECTION,
        {
            "id": id,
            "collectionId": id,
            "storageId": storage_id,
            "storageTags": storage_tags,
            "tags": tags,
            "appId": app_id,
            "author": author,
        },
    )


def subscription(
    id: str,
    *,
    space_id: str | None = None,
    storage_id: str | None = None,
    owner: str | None = None,
    tags: Collection[str] = (),
    app_id: str | None = None,
    author: str | None = None,
) -> Resource:
    """Describe a subscription to a space or a storage."""
    return Resource(
        ResourceKind.SUBSCRIPTION,
        {
            "id": id,
            "subscriptionId": id,
            "spaceId": space_id,
            "storageId": storage_id,
            "owner": owner,
            "tags": tags,
            "appId": app_id,
            "author": author,
        },
    )


def job(
    id: str,
    *,
    job: str | None = None,
    space_id: str | None = None,
    storage_id: str | None = None,
    owner: str | None = None,
    tags: Collection[str] = (),
    app_id: str | None = None,
    author: str | None = None,
) -> Resource:
    """Describe a job that works on a space or a storage."""
    return Resource(
        ResourceKind.JOB,
        {
            "id": id,
            "job": job,
            "spaceId": space_id,
            "storageId": storage_id,
            "owner": owner,
            "tags": tags,
            "appId": app_id,
            "author": author,
        },
    )


def role(id: str) -> Resource:
    """Describe a role of the realm."""
    return Resource(ResourceKind.ROLE, {"id": id})


def capability(id: str) -> Resource:
    """Describe a capability that XYZ has a right for, such as `hexbinClustering`."""
    return Resource(ResourceKind.CAPABILITY, {"id": id})
