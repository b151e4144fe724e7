"""Rules for ids of collections, storages and features, for app ids and for authors.

Every check returns its value, so that it can be used inside an expression.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from naksha.model import limits
from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.model.value_text import value_text

COLLECTION_ID_PATTERN: Final = r"[a-z][a-z0-9_:-]{0,31}"
STORAGE_ID_PATTERN: Final = r"[a-z][a-z0-9_-]{0,31}"
"""Without colon, so that a state id can be parsed from both ends."""

_COLLECTION_ID_RULE: Final = "use a lower-case letter and up to 31 of a-z 0-9 _ : -"
_COLLECTION_ID: Final = re.compile(COLLECTION_ID_PATTERN)
_STORAGE_ID: Final = re.compile(STORAGE_ID_PATTERN)
_NOT_IN_STORAGE_ID: Final = re.compile(r"[^a-z0-9_-]+")
DEFAULT_STORAGE_ID: Final = "naksha"
_RESERVED: Final = re.compile(r"^(naksha|sqlite)_|(_hst(_.*)?|_del|_meta|_i_seq|_p[0-9a-f])$")
"""Names of the tables beside a collection's own, of the tables of the storage, and names that
SQLite reserves. They are reserved on every storage, so that a collection can be copied to any
other."""


def is_collection_id(text: str) -> bool:
    """Return whether a text is well-formed as a collection id."""
    return _COLLECTION_ID.fullmatch(text) is not None


def is_reserved(collection_id: str) -> bool:
    """Return whether a well-formed id could clash with the name of a table of the storage."""
    return _RESERVED.search(collection_id) is not None


def check_collection_id(value: object, *, field: str = "collection") -> str:
    """Check an id under which a collection may be created."""
    if not isinstance(value, str) or not is_collection_id(value):
        raise InvalidArgument(
            f"{value_text(value)} is not a valid collection id; {_COLLECTION_ID_RULE}", field=field
        )
    if is_reserved(value):
        raise InvalidArgument(
            f"The collection id {value!r} is reserved for tables of the storage; "
            "choose another collection id",
            field=field,
        )
    return value


def collection_not_found(collection_id: str) -> CollectionNotFound:
    """Build the error for a missing collection, or for an id that no collection can have."""
    if is_collection_id(collection_id):
        message = f"The collection {collection_id!r} does not exist"
    else:
        message = f"{value_text(collection_id)} is not a valid collection id; {_COLLECTION_ID_RULE}"
    return CollectionNotFound(message, collection_id=collection_id)


def check_storage_id(value: object, *, field: str = "storage") -> str:
    """Check a storage id, which has no colon so that state ids can be parsed."""
    if not isinstance(value, str) or not _STORAGE_ID.fullmatch(value):
        raise InvalidArgument(
            f"{value_text(value)} is not a valid storage id; "
            "use a lower-case letter and up to 31 of a-z 0-9 _ -",
            field=field,
        )
    return value


def storage_id_from(name: str) -> str:
    """Derive a storage id from the name of a file, a schema or a configured storage.

    A name that is too long, or has none of the characters that an id may have, is made unique by a
    hash.
    """
    text = _NOT_IN_STORAGE_ID.sub("-", name.lower()).strip("-_")
    if text and not text[0].isalpha():
        text = f"s{text}"
    if text and len(text) <= limits.STORAGE_ID_LENGTH_MAX:
        return text
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{text[: limits.STORAGE_ID_LENGTH_MAX - 9] or DEFAULT_STORAGE_ID}-{digest}"


def check_feature_id(value: object, *, field: str = "id") -> str:
    """Check a feature id: any non-empty text that PostgreSQL can store and index."""
    problem = text_problem(value, limits.FEATURE_ID_BYTES_MAX)
    if problem is not None:
        where = "" if field == "id" else f" in {field}"
        raise InvalidArgument(f"The feature id{where} {problem}", field=field)
    assert isinstance(value, str)
    return value


def check_app_id(value: object, *, field: str = "app_id") -> str:
    """Check the id of the acting application; required for every transaction."""
    return check_text(value, limits.APP_ID_BYTES_MAX, field=field)


def check_author(value: object, *, field: str = "author") -> str | None:
    """Check the id of the acting person; None means that the application acts on its own behalf."""
    return None if value is None else check_text(value, limits.AUTHOR_BYTES_MAX, field=field)


def check_text(value: object, bytes_max: int, *, field: str, feature_id: str | None = None) -> str:
    """Check for a non-empty string of at most `bytes_max` UTF-8 bytes.

    It must contain neither NUL nor a lone surrogate.
    """
    problem = text_problem(value, bytes_max)
    if problem is not None:
        raise InvalidArgument(f"{field} {problem}", field=field, feature_id=feature_id)
    assert isinstance(value, str)
    return value


def text_problem(value: object, bytes_max: int) -> str | None:
    """Return the problem of a text as a predicate, such as "must not be empty", or None."""
    if not isinstance(value, str):
        return f"must be a string, not {value_text(value)}"
    if not value:
        return "must not be empty"
    if "\0" in value:
        return "must not contain the character U+0000 (NUL)"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must not contain an unpaired surrogate (U+D800 to U+DFFF)"
    if size > bytes_max:
        return f"has {size} bytes, but at most {bytes_max} are allowed"
    return None
