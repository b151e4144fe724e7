"""Parse and format the options of a write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import uuid4

import msgspec

from naksha.model.collection import MAX_AGE_DEFAULT, CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.identity.names import check_app_id, check_author, check_collection_id
from naksha.spark.source.options import StorageRef, check_names, flag, needed, storage_ref_of
from naksha.spi.staging import StagedWrite, WriteMode, check_key, check_write
from naksha.versioning.version_refs import MAIN_BRANCH

WRITE: Final = (
    *("storage", "schema", "collection", "branch", "appId", "author", "message", "writeMode"),
    *("key", "job", "history", "maxAge", "idPrefix", "pointsOnly", "optimalPartitioning"),
    "collectionAuthor",
)
"""All options of a write."""
BY_SPARK: Final = ("checkpointLocation", "queryName")
"""Spark's own options of a stream, which it passes to the source, too."""


class WriteOptions(msgspec.Struct, frozen=True):
    """Parsed options of a write; small and picklable."""

    place: StorageRef
    write: StagedWrite
    branch: str = MAIN_BRANCH

    def of_job(self, job: str) -> WriteOptions:
        """Return a copy for another job."""
        write = msgspec.structs.replace(self.write, job=job)
        return msgspec.structs.replace(self, write=write)


def write_options(
    options: Mapping[str, str], *, overwrite: bool, is_stream: bool = False
) -> WriteOptions:
    """Parse the options of a write; a job without an id gets a unique one."""
    check_names(options, (*WRITE, *(BY_SPARK if is_stream else ())))
    info = CollectionInfo(
        id=check_collection_id(needed(options, "collection")),
        history_enabled=flag(options, "history", default=True),
        max_age=_days(options, "maxAge"),
        id_prefix=options.get("idPrefix") or None,
        author=check_author(options.get("collectionAuthor"), field="collectionAuthor"),
        optimal_partitioning=flag(options, "optimalPartitioning", default=False),
        points_only=flag(options, "pointsOnly", default=False),
    )
    mode = _mode(options, overwrite=overwrite)
    write = StagedWrite(
        job=options.get("job") or uuid4().hex,
        info=info,
        mode=mode,
        app_id=check_app_id(needed(options, "appId"), field="appId"),
        author=check_author(options.get("author")),
        message=options.get("message") or None,
        key=_key(options, mode),
    )
    # Validated before staging, which may take hours.
    check_write(write, ())
    return WriteOptions(storage_ref_of(options), write, options.get("branch") or MAIN_BRANCH)


def options_of(options: WriteOptions) -> dict[str, str]:
    """Format options for Spark, so that `write_options` can parse them."""
    place, write, info = options.place, options.write, options.write.info
    values = {
        "storage": place.location,
        "schema": place.schema,
        "branch": options.branch,
        "job": write.job,
        "collection": info.id,
        "history": str(info.history_enabled).lower(),
        "maxAge": str(info.max_age),
        "idPrefix": info.id_prefix,
        "collectionAuthor": info.author,
        "optimalPartitioning": str(info.optimal_partitioning).lower(),
        "pointsOnly": str(info.points_only).lower(),
        "writeMode": write.mode.value,
        "key": None if write.key is None else msgspec.json.encode(write.key).decode(),
        "appId": write.app_id,
        "author": write.author,
        "message": write.message,
    }
    return {name: value for name, value in values.items() if value is not None}


def _mode(options: Mapping[str, str], *, overwrite: bool) -> WriteMode:
    """Parse the write mode; Spark's mode `overwrite` is a mirror, which deletes other features."""
    default = WriteMode.MIRROR if overwrite else WriteMode.CREATE
    text = options.get("writeMode", default.value)
    try:
        mode = WriteMode(text.lower())
    except ValueError:
        known = ", ".join(WriteMode)
        raise InvalidArgument(
            f"The option 'writeMode' must be one of {known}, not {text!r:.50}", field="writeMode"
        ) from None
    if overwrite and mode is not WriteMode.MIRROR:
        raise InvalidArgument(
            f"Spark's mode 'overwrite' requires the write mode 'mirror'; for {mode.value!r} use"
            " Spark's mode 'append'",
            field="writeMode",
        )
    return mode


def _key(options: Mapping[str, str], mode: WriteMode) -> tuple[str, ...] | None:
    """Parse a path: names separated by dots, or a JSON array if a name contains a dot."""
    text = options.get("key")
    if (mode is WriteMode.REPLACE) != bool(text):
        raise InvalidArgument(
            f"The option 'key' requires the write mode 'replace', not {mode.value!r}"
            if text
            else "The write mode 'replace' requires the option 'key': the path of a property",
            field="key",
        )
    if not text:
        return None
    key = tuple(text.split("."))
    if text.startswith("["):
        try:
            key = msgspec.json.decode(text, type=tuple[str, ...])
        except msgspec.DecodeError as error:
            raise InvalidArgument(
                f"The option 'key' is not a path: {error}", field="key"
            ) from error
    check_key(key)
    return key


def _days(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, str(MAX_AGE_DEFAULT))
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(
            f"The option {name!r} must be a number of days, not {text!r:.50}", field=name
        ) from None
