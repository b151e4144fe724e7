"""Error classes, grouped by how a caller reacts, each with a stable code.

    NakshaError
    ├── InvalidArgument          the input is invalid; correct it and repeat the call
    │   └── NotSupported         the input is valid, but the storage or hub does not support it
    ├── Inactive                 the resource is deactivated
    ├── ReadOnly                 the resource is read-only under this name
    ├── NotImplementedHere       no handler implements this kind of request
    ├── NotFound                 the resource does not exist
    │   ├── CollectionNotFound
    │   ├── FeatureNotFound
    │   ├── VersionNotFound      no such version was ever written
    │   ├── PointerNotFound      no such named pointer of the catalog
    │   └── RealmNotFound
    ├── NotYetPublished          the version is not published yet; retry later
    ├── Expired                  the history of the version was removed; has the oldest version kept
    ├── Conflict                 another writer was first; carries the head state
    │   ├── CollectionExists
    │   ├── FeatureExists
    │   ├── PointerExists
    │   ├── InUse                another object, named in the message, still needs the resource
    │   ├── Fenced               another process has taken over this one's lease
    │   └── MergeConflict        both sides changed the same values; carries all such features
    ├── Retryable                nothing was written; the same call may succeed when repeated
    │   ├── Unavailable          the storage cannot be reached
    │   ├── Busy                 too many concurrent requests; retry later
    │   ├── TimedOut             the request timed out
    │   └── RealmChanged         the realm has changed since it was opened; open it again
    ├── OutcomeUnknown           the write may have succeeded or may still; check before a retry
    ├── Cancelled                the operation was cancelled before it was done
    ├── RealmInactive            the realm exists but does not serve requests
    ├── Unauthorized             missing or invalid token
    ├── Forbidden                the actor lacks a right, which is named
    ├── LimitExceeded            the request exceeds a limit, which is named
    ├── HandlerFailed            the code of an event handler failed; names the handler
    ├── RemoteFailed             a remote handler cannot be reached or returned an invalid response
    └── StorageCorrupt           the storage broke one of its invariants; please report it

Codes are append-only and never change their meaning, because programs branch on them. One table
(`status_codes`) maps them to HTTP status and exit codes.
"""

from __future__ import annotations

from typing import Any, ClassVar


class NakshaError(Exception):
    """Base class of all errors that Naksha raises on purpose."""

    code: ClassVar[str] = "naksha"

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        feature_id: str | None = None,
        collection_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.feature_id = feature_id
        self.collection_id = collection_id
        self.handler: str | None = None
        """The event handler that raised the error, if the request ran through a pipeline."""
        self.position: int | None = None
        """The position of the feature in a request with several features."""
        self.failures: tuple[Any, ...] = ()
        """The failure of each feature, when every feature of a request that allows partial success
        failed; this error is the first of them."""

    def __str__(self) -> str:
        where = [
            f"{name} {value!r}"
            for name, value in (
                ("collection", self.collection_id),
                ("feature", self.feature_id),
                ("position", self.position),
                ("field", self.field),
            )
            if value is not None
        ]
        return f"{self.message} ({', '.join(where)})" if where else self.message


class InvalidArgument(NakshaError):
    """The input is invalid; the field and, if there is one, the feature are named."""

    code = "invalid_argument"


class NotSupported(InvalidArgument):
    """The input is well-formed but not supported; the message has the reason and a way out."""

    code = "not_supported"


class NotImplementedHere(NakshaError):
    """No handler implements this kind of request."""

    code = "not_implemented"


class Inactive(NakshaError):
    """The resource exists but is deactivated."""

    code = "inactive"


class ReadOnly(NakshaError):
    """The request would change a resource that is read-only, at least under this name."""

    code = "read_only"


class NotFound(NakshaError):
    """The resource does not exist."""

    code = "not_found"


class CollectionNotFound(NotFound):
    """The collection does not exist."""

    code = "collection_not_found"


class FeatureNotFound(NotFound):
    """The feature does not exist at HEAD (for restore and purge: has no tombstone)."""

    code = "feature_not_found"


class VersionNotFound(NotFound):
    """The version was never written."""

    code = "version_not_found"


class PointerNotFound(NotFound):
    """The named pointer does not exist."""

    code = "pointer_not_found"


class RealmNotFound(NotFound):
    """The realm does not exist."""

    code = "realm_not_found"


class NotYetPublished(NakshaError):
    """The version is later than the last published one."""

    code = "not_yet_published"


class Expired(NakshaError):
    """The version existed but its history was removed; `oldest` is the oldest version kept."""

    code = "expired"

    def __init__(self, message: str, *, oldest: int | None = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.oldest = oldest


class Conflict(NakshaError):
    """Another writer was first. `head` is the head state as parsed GeoJSON, when there is one."""

    code = "conflict"

    def __init__(self, message: str, *, head: dict[str, Any] | None = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.head = head


class PreconditionFailed(Conflict):
    """The resource has changed since the caller read it."""

    code = "precondition_failed"


class CollectionExists(Conflict):
    """A collection with this id already exists."""

    code = "collection_exists"


class FeatureExists(Conflict):
    """A feature with this id already exists."""

    code = "feature_exists"


class PointerExists(Conflict):
    """A named pointer with this name already exists."""

    code = "pointer_exists"


class InUse(Conflict):
    """Another object, which the message names, still needs the resource."""

    code = "in_use"


class Fenced(Conflict):
    """Another process has taken over the lease of this one; nothing was written."""

    code = "fenced"


class MergeConflict(Conflict):
    """Two sides changed the same values differently and no preference was given.

    `undecided` has a report for each such feature; `id` is the id of the stored conflict, if any.
    """

    code = "merge_conflict"

    def __init__(
        self,
        message: str,
        *,
        undecided: list[dict[str, Any]],
        id: str | None = None,
        **where: Any,
    ) -> None:
        super().__init__(message, **where)
        self.undecided = undecided
        self.id = id


class Retryable(NakshaError):
    """A concurrent transaction interfered; nothing was written, repeat the same call."""

    code = "retryable"


class Unavailable(Retryable):
    """The storage cannot be reached or refuses connections."""

    code = "unavailable"


class Busy(Retryable):
    """Too many concurrent requests; the request was not started."""

    code = "busy"


class TimedOut(Retryable):
    """The request timed out; it was not a write."""

    code = "timed_out"


class RealmChanged(Retryable):
    """The realm was changed or recreated since it was opened; nothing was written."""

    code = "realm_changed"


class OutcomeUnknown(NakshaError):
    """The response was lost: the write may have succeeded or may still succeed.

    The caller must check the current state before repeating it.
    """

    code = "outcome_unknown"


class Cancelled(NakshaError):
    """The operation was cancelled before it was done; nothing is left half-done."""

    code = "cancelled"


class RealmInactive(NakshaError):
    """The realm exists but is not active; the message has its state."""

    code = "realm_inactive"


class Unauthorized(NakshaError):
    """The token is missing or invalid; the message never contains the token."""

    code = "unauthorized"


class Forbidden(NakshaError):
    """The actor lacks a right; `right` is its name, `resource` the resource that requires it."""

    code = "forbidden"

    def __init__(
        self,
        message: str,
        *,
        right: str | None = None,
        resource: str | None = None,
        **where: Any,
    ) -> None:
        super().__init__(message, **where)
        self.right = right
        self.resource = resource


class LimitExceeded(NakshaError):
    """The request exceeds a limit, which the message names."""

    code = "limit_exceeded"


class StorageCorrupt(NakshaError):
    """The storage broke one of its invariants."""

    code = "storage_corrupt"


class HandlerFailed(NakshaError):
    """The code of an event handler failed; `handler` names it, the log has the reason."""

    code = "handler_failed"


class RemoteFailed(NakshaError):
    """A remote handler cannot be reached or returned an invalid response."""

    code = "remote_failed"
