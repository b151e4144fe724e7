"""The error tree: grouped by what the caller would do, each class with a stable code.

    NakshaError
    ├── InvalidArgument          the input is wrong; mend it and try again
    │   └── NotSupported         the input is fine but this storage refuses it, and says why
    ├── Inactive                 it is switched off
    ├── ReadOnly                 it can only be read by this name
    ├── NotImplementedHere       nobody here answers this kind of request
    ├── NotFound                 what was named does not exist
    │   ├── CollectionNotFound
    │   ├── FeatureNotFound
    │   ├── VersionNotFound      no such version was ever written
    │   ├── PointerNotFound      no such named pointer of the catalog
    │   └── RealmNotFound
    ├── NotYetPublished          the version will exist; ask again later
    ├── Expired                  the version existed, its history is gone; names the oldest one kept
    ├── Conflict                 somebody else was first; carries the head state
    │   ├── CollectionExists
    │   ├── FeatureExists
    │   ├── PointerExists
    │   ├── InUse                still needed by something that is named
    │   ├── Fenced               another process has taken over what this one does
    │   └── MergeConflict        both sides changed the same place; carries all such features
    ├── Retryable                nothing was written; the same call may succeed when repeated
    │   ├── Unavailable          the storage cannot be reached
    │   ├── Busy                 too many ask at once; come again later
    │   ├── TimedOut             it took too long and was given up
    │   └── RealmChanged         the realm is not what it was when it was opened; open it anew
    ├── OutcomeUnknown           it may have been written, or may be yet; look before repeating it
    ├── Cancelled                somebody wished it to end before it was done
    ├── RealmInactive            the realm exists but does not serve
    ├── Unauthorized             it is not known who asks; come with a valid token
    ├── Forbidden                who asks may not do it; names the right that is missing
    ├── LimitExceeded            too much at once; the limit is named
    ├── HandlerFailed            code of a pipeline broke; names the handler
    ├── RemoteFailed             a handler elsewhere cannot be reached, or answers nonsense
    └── StorageCorrupt           the storage broke its own rules; please report it

Codes are append-only and never change their meaning: programs branch on them, and one table
maps them to HTTP status and exit codes.
"""

from __future__ import annotations

from typing import Any, ClassVar


class NakshaError(Exception):
    """Base of all errors that Naksha raises on purpose."""

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
        """The event handler that it comes from, if it ran through a pipeline."""
        self.position: int | None = None
        """The place of the feature in the request, when it was one of several."""
        self.failures: tuple[Any, ...] = ()
        """What is wrong with each feature, when all of a request failed that need not all be
        right; this error is the first of them."""

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
    """The input is wrong; the field and, where there is one, the feature are named."""

    code = "invalid_argument"


class NotSupported(InvalidArgument):
    """The input is well-formed but refused, with the reason and a way out."""

    code = "not_supported"


class NotImplementedHere(NakshaError):
    """Nobody here answers this kind of request."""

    code = "not_implemented"


class Inactive(NakshaError):
    """What was named is there, and is switched off."""

    code = "inactive"


class ReadOnly(NakshaError):
    """What is asked would change something that only can be read, by this name at least."""

    code = "read_only"


class NotFound(NakshaError):
    """What was named does not exist."""

    code = "not_found"


class CollectionNotFound(NotFound):
    """No collection of this name."""

    code = "collection_not_found"


class FeatureNotFound(NotFound):
    """No such feature at HEAD (or, for restore and purge, no such tombstone)."""

    code = "feature_not_found"


class VersionNotFound(NotFound):
    """No such version was ever written."""

    code = "version_not_found"


class PointerNotFound(NotFound):
    """No named pointer of this name."""

    code = "pointer_not_found"


class RealmNotFound(NotFound):
    """No realm of this name."""

    code = "realm_not_found"


class NotYetPublished(NakshaError):
    """The version lies after the last published one."""

    code = "not_yet_published"


class Expired(NakshaError):
    """The version existed but its history is gone."""

    code = "expired"

    def __init__(self, message: str, *, oldest: int | None = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.oldest = oldest


class Conflict(NakshaError):
    """Somebody else was first. `head` is the head state as parsed GeoJSON, when there is one."""

    code = "conflict"

    def __init__(self, message: str, *, head: dict[str, Any] | None = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.head = head


class PreconditionFailed(Conflict):
    """It is not any more what the caller has seen of it."""

    code = "precondition_failed"


class CollectionExists(Conflict):
    """A collection of this name exists already."""

    code = "collection_exists"


class FeatureExists(Conflict):
    """A feature with this id exists already."""

    code = "feature_exists"


class PointerExists(Conflict):
    """A named pointer of this name exists already."""

    code = "pointer_exists"


class InUse(Conflict):
    """Still needed by something that the message names."""

    code = "in_use"


class Fenced(Conflict):
    """Another process has taken over what this one does; nothing was written."""

    code = "fenced"


class MergeConflict(Conflict):
    """Two sides changed the same places differently, and nobody said which one counts.
    `undecided` has a report for each such feature; `id` is that of the stored conflict, if any."""

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
    """A concurrent transaction got in between; nothing was written, repeat the same call."""

    code = "retryable"


class Unavailable(Retryable):
    """The storage cannot be reached or refuses connections."""

    code = "unavailable"


class Busy(Retryable):
    """Too many ask at the same time; nothing was begun."""

    code = "busy"


class TimedOut(Retryable):
    """It took too long and was given up; nothing was to be written."""

    code = "timed_out"


class RealmChanged(Retryable):
    """The realm has left the state, or the life, in which it was opened. Nothing was written."""

    code = "realm_changed"


class OutcomeUnknown(NakshaError):
    """The answer got lost: the change may have been carried out, or may be yet. Whoever repeats it
    must look first."""

    code = "outcome_unknown"


class Cancelled(NakshaError):
    """Somebody wished it to end before it was done. Nothing of it is left half-done."""

    code = "cancelled"


class RealmInactive(NakshaError):
    """The realm exists, but only active realms serve; the message has its state."""

    code = "realm_inactive"


class Unauthorized(NakshaError):
    """There is no token, or none that can be trusted. The message never contains the token."""

    code = "unauthorized"


class Forbidden(NakshaError):
    """The actor lacks a right. `right` is its name, `resource` what it is needed for."""

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
    """Too much at once; the message names the limit."""

    code = "limit_exceeded"


class StorageCorrupt(NakshaError):
    """The storage broke one of its own rules."""

    code = "storage_corrupt"


class HandlerFailed(NakshaError):
    """Code of a pipeline broke; `handler` names it, the log has the reason."""

    code = "handler_failed"


class RemoteFailed(NakshaError):
    """A handler that runs elsewhere cannot be reached, or does not answer as it should."""

    code = "remote_failed"
