"""Translation of PostgreSQL's errors into Naksha's.

The functions of the schema raise SQLSTATE N0000–N0012 with a JSON detail that names collection,
feature and field, and carries the head state of a conflict.
"""

from __future__ import annotations

from typing import Any, Final

import asyncpg
import msgspec

from naksha.model import errors
from naksha.model.identity.names import collection_not_found, is_collection_id


class LockTimeout(errors.Retryable):
    """A lock was not released in time; the message names its holder.

    The storage has waited as long as it may, so it does not retry. The caller may.
    """


_BY_STATE: Final[dict[str, type[errors.NakshaError]]] = {
    "N0000": errors.InvalidArgument,
    "N0001": errors.CollectionExists,
    "N0002": errors.CollectionNotFound,
    "N0003": errors.FeatureExists,
    "N0004": errors.FeatureNotFound,
    "N0005": errors.Conflict,
    "N0006": errors.InvalidArgument,
    "N0007": errors.InUse,
    "N0008": errors.NotSupported,
    "N0009": errors.NotSupported,
    "N0011": errors.NotFound,
    "N0012": errors.Expired,
    "25006": errors.ReadOnly,
    "40001": errors.Retryable,
    "40P01": errors.Retryable,
    "55P03": LockTimeout,
    "2BP01": errors.InUse,
    "23514": errors.InvalidArgument,
    "22000": errors.InvalidArgument,
    "22003": errors.InvalidArgument,
    "22021": errors.InvalidArgument,
    "22P05": errors.InvalidArgument,
    "42501": errors.NotSupported,
    "42P07": errors.InvalidArgument,
    "54000": errors.LimitExceeded,
    "54001": errors.LimitExceeded,
    "54023": errors.LimitExceeded,
}
_UNAVAILABLE_CLASSES: Final = ("08", "28", "3D", "53", "57")
"""SQLSTATE classes of an unavailable server.

Connection failure, wrong user or password, no such database, out of resources, operator
intervention.
"""


DRIVER_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""All errors that a broken connection may raise."""


class PoolExhausted(errors.Unavailable):
    """All connections are in use, perhaps by the caller itself, so a retry cannot help."""


class translated:  # noqa: N801 - used like a function
    """Translate the driver's errors that are raised in a block."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, *__: object
    ) -> None:
        if error is not None:
            translate(error)


def translate(error: BaseException) -> None:
    """Raise the Naksha error for an error of the driver; ignore other errors."""
    if isinstance(error, asyncpg.PostgresError):
        raise of(error) from error
    if isinstance(error, DRIVER_ERRORS):
        raise errors.Unavailable(f"The database cannot be reached: {error}") from error


def of(error: asyncpg.PostgresError) -> errors.NakshaError:
    """Return the Naksha error for an error of PostgreSQL."""
    state = error.sqlstate or ""
    detail = _detail(error)
    where: dict[str, Any] = {
        "field": detail.get("field"),
        "feature_id": detail.get("feature"),
        "collection_id": detail.get("collection"),
    }
    message = str(error.args[0]) if error.args else str(error)
    if state == "2BP01" and getattr(error, "detail", None):
        message += f": {error.detail}"  # It lists the objects that depend on the table.
    if hint := getattr(error, "hint", None):
        message += f"; {hint[0].lower()}{hint[1:]}" if hint[1:2].islower() else f"; {hint}"
    kind = _BY_STATE.get(state)
    if kind is None:
        return of_state(state, message)
    id = where["collection_id"]
    if kind is errors.CollectionNotFound and id is not None and not is_collection_id(id):
        return collection_not_found(id)
    if issubclass(kind, errors.Conflict):
        return kind(message, head=detail.get("head"), **where)
    return kind(message, **where)


def of_state(state: str, message: str) -> errors.NakshaError:
    """Return the Naksha error for an SQLSTATE alone, as drivers other than asyncpg report it."""
    kind = _BY_STATE.get(state)
    if kind is not None:
        return kind(message)
    if state.startswith(_UNAVAILABLE_CLASSES):
        return errors.Unavailable(message)
    return errors.StorageCorrupt(f"{state}: {message}")


def _detail(error: asyncpg.PostgresError) -> dict[str, Any]:
    text = getattr(error, "detail", None)
    if not text or not text.startswith("{"):
        return {}
    try:
        detail = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return detail if isinstance(detail, dict) else {}
