"""Archives: the history of a collection that a storage has given up, as GeoParquet files.

A directory has a manifest and, for each time that history was archived, a segment: the states that
ended within a range of transactions. A version that lives in the archive is what was valid then:
states of the segments, and those of the storage that began before and have not ended since.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from naksha.model.errors import Busy, InvalidArgument, NotFound
from naksha.model.query import Query
from naksha.model.version import AtSeq
from naksha.spark.jobs.reading import table
from naksha.spark.opened import opened
from naksha.spark.options import Place
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Split, Storage
from naksha.versioning import places

MANIFEST: Final = "manifest.json"
LOCK: Final = ".lock"
KEPT: Final = tuple(name for name in COLUMNS.names if name != "seq_number")
"""The columns of a state in an archive; numbers of versions belong to the log."""


class Segment(msgspec.Struct, frozen=True, rename="camel"):
    """States that ended at or after the transaction `first` and before `until`."""

    name: str
    """Of its directory."""
    first: int
    until: int
    last_seq_number: int
    """The last version before `until`."""
    states: int
    checksum: str
    files: list[str]


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """What is in an archive, oldest first."""

    storage: str
    collection: str
    segments: list[Segment] = []

    @property
    def until(self) -> int:
        """What ended before this transaction is in the archive."""
        return self.segments[-1].until if self.segments else 0


def read_manifest(folder: Path, storage: str, collection: str) -> Manifest:
    """The manifest of an archive; an empty one where there is none yet.

    Raises:
        InvalidArgument: It is the archive of something else.
    """
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError:
        return Manifest(storage, collection)
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"{folder} is no archive: {error}", field="archive") from error
    if (found.storage, found.collection) != (storage, collection):
        raise InvalidArgument(
            f"{folder} is the archive of {found.collection!r} in the storage {found.storage!r}",
            field="archive",
        )
    return found


@contextmanager
def growing(folder: Path) -> Iterator[None]:
    """Whoever adds a segment is alone, from the manifest that is read to the one that is written.

    Raises:
        Busy: Somebody else does so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"Another job adds to the archive in {folder}; wait for its end", field="archive"
            ) from None
        yield


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, at once and for good: what it names is dropped elsewhere."""
    for segment in manifest.segments[-1:]:
        for name in segment.files:
            _sync(folder / segment.name / name)
        _sync(folder / segment.name)
    unfinished = folder / f".{MANIFEST}.{uuid.uuid4().hex}"
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    _sync(unfinished)
    unfinished.replace(folder / MANIFEST)
    _sync(folder)


def _sync(path: Path) -> None:
    """A file, or the names in a directory, survive the machine from now on."""
    opened_ = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened_)
    finally:
        os.close(opened_)


def archived_features(
    spark: SparkSession, storage: str, collection: str, archive: str, version: str
) -> DataFrame:
    """The features of a collection at a version that lives in an archive, or is still there.

    Args:
        spark: The session.
        storage: The location of the storage.
        collection: The collection.
        archive: The directory of the archive.
        version: The version, in any way that a version is said; of main.
    """
    place = Place(storage)
    folder = Path(archive).absolute()
    if not (folder / MANIFEST).exists():
        raise NotFound(f"There is no archive in {archive!r}", field="archive")
    storages = opened(place)
    manifest = read_manifest(folder, storages.storage.id, collection)
    found = storages.call(lambda s: _meant(s, version))
    splits = storages.call(lambda s: _planned(s, manifest, found))
    rows = table(spark, place, splits, KEPT)
    past = [
        str(folder / segment.name / file)
        for segment in manifest.segments
        if segment.until > found.version.txn
        for file in segment.files
    ]
    if not past or found.version.txn >= manifest.until:
        return rows
    txn = found.version.txn
    states = spark.read.schema(rows.schema).parquet(*past)
    return rows.unionByName(
        states.where((sf.col("txn") <= txn) & (sf.col("txn_next") > txn))
        .where("action <> 'DELETE'")
        .withColumn("txn_next", sf.lit(0).cast("bigint"))
    )


async def _meant(storage: Storage, version: str) -> places.Place:
    found = await places.place_of(storage, version)
    if found.line.branch is not None:
        raise InvalidArgument("Only versions of main are archived", field="version")
    return replace(found, at=AtSeq(found.version.seq_number))


async def _planned(storage: Storage, manifest: Manifest, found: places.Place) -> list[Split]:
    """What the storage has of a version: all of it, or what was not archived."""
    if found.version.txn >= manifest.until:
        return await storage.plan(manifest.collection, Query(), found.at)
    last = AtSeq(manifest.segments[-1].last_seq_number)
    began = Query(txn_to=found.version.txn + 1)
    return await storage.plan(manifest.collection, began, last)
