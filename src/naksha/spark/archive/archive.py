"""Archive format: history that a storage has dropped, as GeoParquet files with a manifest.

A directory has a manifest and a segment per run of the archive job: the states that ended within a
range of transactions. An archived version consists of the states that were valid at its
transaction: states of the segments, and states of the storage that began before and have not ended
since. That requires all states that have ended since. If the storage had lost some of them before
they were archived, older versions are Expired.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Busy, Expired, InvalidArgument, NotFound, StorageCorrupt
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.query import Query
from naksha.model.state import XYZ
from naksha.model.version import AtSeq, AtTime, AtTxn
from naksha.spark.archive.versions import find_version
from naksha.spark.jobs.collection_tables import table
from naksha.spark.jobs.loading.parquet import rows_of_parquet
from naksha.spark.runtime.storage_cache import existing_storage
from naksha.spark.source.options import StorageRef
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Split, Storage
from naksha.versioning import lines
from naksha.versioning.version_refs import MAIN_BRANCH, SingleRef, parse_ref

MANIFEST: Final = "manifest.json"
LOCK: Final = ".lock"
UNFINISHED: Final = ".unfinished"
"""Suffix of the directory of a segment that is being written."""
_SEGMENT: Final = re.compile("[0-9]+-[0-9]+-[0-9a-f]{8}")
KEPT: Final = tuple(name for name in COLUMNS.names if name != "seq_number")
"""Columns of a state in an archive; version numbers are part of the log, not of a state."""


class ArchiveSegment(msgspec.Struct, frozen=True, rename="camel"):
    """States that ended at or after the transaction `first` and before `until`.

    It has all of them that the storage still had, which are at least those that ended after
    `floor`.
    """

    name: str
    """Name of its directory."""
    first: int
    until: int
    floor: int
    """Transaction of the oldest version that the storage had when the segment was written."""
    oldest: int
    """Number of that version."""
    last_seq_number: int
    """The last version before `until`."""
    states: int
    checksum: str
    files: list[str]
    versions: str | None = None
    """File with its versions (`naksha.spark.archive.versions`); former releases had none."""

    def paths(self, folder: Path) -> list[Path]:
        """Return the paths of its files in the directory of the archive."""
        return [folder / self.name / file for file in self.files]


class ArchiveJob(msgspec.Struct, frozen=True, rename="camel"):
    """Record of an archive job, so that a repeated run can resume it."""

    id: str
    day: date
    """States that ended before this day are dropped."""
    due: int
    """Number of these states when the job began."""
    segment: str | None
    """Segment that the job has added."""
    asked: tuple[int, bool] | None = None
    """Parameters: minimum age in days, and whether the states are kept in the storage."""
    report: dict[str, Any] | None = None
    """Its final report."""


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """Manifest of an archive, with segments and jobs from the oldest to the newest."""

    storage: str
    collection: str
    number: int
    """Number of the collection; it identifies the collection if its name is reused."""
    segments: list[ArchiveSegment] = []
    jobs: list[ArchiveJob] = []
    """The most recent jobs with an id; former releases recorded none."""

    def job(self, id: str) -> ArchiveJob | None:
        """Return the recorded job with an id, if any."""
        return next((each for each in self.jobs if id and each.id == id), None)

    def with_job(self, job: ArchiveJob) -> Manifest:
        """Return a copy with a job added or replaced."""
        others = [each for each in self.jobs if each.id != job.id]
        jobs = [*others, job][-limits.ARCHIVE_JOBS_KEPT :] if job.id else others
        return msgspec.structs.replace(self, jobs=jobs)

    @property
    def until(self) -> int:
        """Transaction before which ended states are in the archive."""
        return self.segments[-1].until if self.segments else 0

    @property
    def known(self) -> int:
        """Number of the last version that the archive knows."""
        return max((s.last_seq_number for s in self.segments if s.versions), default=0)

    def versions(self, folder: Path) -> list[Path]:
        """Return the files with versions."""
        return [folder / s.name / s.versions for s in self.segments if s.versions]

    @property
    def since(self) -> ArchiveSegment | None:
        """First segment of the contiguous range up to the newest one; None without segments."""
        for segment in reversed(self.segments):
            if segment.floor >= segment.first:
                return segment
        return None


def _read_manifest(
    folder: Path, storage: StorageIdentity, info: CollectionInfo, *, grows: bool = False
) -> Manifest | None:
    """Read the manifest of an archive, if there is one.

    A fork can read what was archived before the fork; only the storage with the original id can add
    segments (`grows`).

    Raises:
        InvalidArgument: The archive belongs to another storage or collection.
    """
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            f"The directory {folder} is not an archive: {error}", field="archive"
        ) from error
    if not _is_of(found, storage, grows) or found.collection != info.id:
        raise InvalidArgument(
            f"The archive in {folder} belongs to the collection {found.collection!r} of the storage"
            f" {found.storage!r}, not to {info.id!r} of {storage.id!r};"
            " use another directory",
            field="archive",
        )
    if found.number != info.number:
        raise InvalidArgument(
            f"The archive in {folder} belongs to an earlier collection with the name {info.id!r};"
            " use another directory",
            field="archive",
        )
    return found


def _is_of(found: Manifest, storage: StorageIdentity, grows: bool) -> bool:
    if found.storage == storage.id:
        return True
    last = found.segments[-1].last_seq_number if found.segments else 0
    return not grows and any(
        former.id == found.storage and last <= former.version for former in storage.former
    )


def new_name(first: int, until: int) -> str:
    """Create a unique name for a segment."""
    return f"{first}-{until}-{uuid.uuid4().hex[:8]}"


def open_manifest(folder: Path, storage: StorageIdentity, info: CollectionInfo) -> Manifest:
    """Return the manifest of an archive to add to, which is created if it does not exist.

    Leftovers of an interrupted job are removed; the caller must hold the lock.
    """
    found = _read_manifest(folder, storage, info, grows=True)
    if found is not None:
        _sweep(folder)
        return found
    if any(_SEGMENT.fullmatch(each.name) for each in folder.iterdir()):
        # Their content is unknown without it, and the storage may have dropped these states.
        raise InvalidArgument(
            f"The archive in {folder} has segments, but the file {MANIFEST} is missing; restore it",
            field="archive",
        )
    made = Manifest(storage.id, info.id, info.number)
    write_manifest(folder, made)
    return made


def _sweep(folder: Path) -> None:
    """Remove unfinished segments and manifests of an archive, and no other file."""
    for left in list(folder.iterdir()):
        name = left.name.removesuffix(UNFINISHED)
        if name != left.name and _SEGMENT.fullmatch(name):
            shutil.rmtree(left, ignore_errors=True)
        elif left.name.startswith(f".{MANIFEST}."):
            left.unlink(missing_ok=True)


@contextmanager
def locked_archive(folder: Path) -> Iterator[None]:
    """Lock an archive from reading the manifest to writing it, to add a segment.

    Raises:
        Busy: Another job holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"Another job is using the archive in {folder}; retry when it has ended",
                field="archive",
            ) from None
        yield


def finish(folder: Path, work: Path, segment: ArchiveSegment) -> None:
    """Sync the files of a segment and rename its directory, so that the manifest can name it."""
    for name in filter(None, [*segment.files, segment.versions]):
        _sync(work / name)
    _sync(work)
    work.rename(folder / segment.name)
    _sync(folder)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically and durably: the storage drops what it names."""
    unfinished = folder / f".{MANIFEST}.{uuid.uuid4().hex}"
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    _sync(unfinished)
    unfinished.replace(folder / MANIFEST)
    _sync(folder)


def _sync(path: Path) -> None:
    """Sync a file, or the names in a directory, to the disk."""
    opened_ = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened_)
    finally:
        os.close(opened_)


def archived_features(
    spark: SparkSession, place: StorageRef, collection: str, archive: str, version: str
) -> DataFrame:
    """Return the features of a collection at a version from an archive and its storage.

    Args:
        spark: The session.
        place: The storage.
        collection: The collection.
        archive: The directory of the archive.
        version: A reference of any kind to a version of main.

    Raises:
        Expired: Some states were lost before they were archived; names the oldest version.
    """
    folder = Path(archive).absolute()
    if not (folder / MANIFEST).exists():
        raise NotFound(f"The directory {archive!r} does not contain an archive", field="archive")
    storages = existing_storage(place)
    manifest = storages.call(lambda s: _manifest(s, folder, collection))
    found = storages.call(lambda s: _resolve(s, version, manifest.versions(folder)))
    splits, segments = storages.call(lambda s: _planned(s, manifest, found))
    rows = table(spark, place, splits, KEPT)
    past = [path for segment in segments for path in segment.paths(folder)]
    if not past:
        return rows
    txn = found.version.txn
    states = read_files(spark, past, rows.schema)
    valid = states.where((sf.col("txn") <= txn) & (sf.col("txn_next") > txn))
    return rows.unionByName(
        valid.where("action <> 'DELETE'")
        .withColumn("txn_next", sf.lit(0).cast("bigint"))
        .mapInArrow(_not_ended, rows.schema)
    )


def read_files(spark: SparkSession, files: Iterable[Path], schema: StructType) -> DataFrame:
    """Read the states in files of an archive, whose paths may contain glob characters.

    Raises:
        StorageCorrupt: A file is damaged or missing.
    """
    try:
        return rows_of_parquet(spark, map(str, files), schema)
    except InvalidArgument as error:
        raise StorageCorrupt(
            f"The archive is damaged; restore its files from a backup: {error.message}"
        ) from error


async def _manifest(storage: Storage, folder: Path, collection: str) -> Manifest:
    info = await storage.collection(collection)
    found = _read_manifest(folder, storage.identity, info)
    assert found is not None
    return found


async def _resolve(storage: Storage, version: str, known: list[Path]) -> lines.Place:
    try:
        found = await lines.place_of(storage, version)
    except Expired:
        archived = await _resolve_dropped(storage, version, known)
        if archived is None:
            raise
        return archived
    if found.line.branch is not None:
        raise InvalidArgument(
            f"The version {version!r:.64} is on a branch; only versions of main are archived",
            field="version",
        )
    return replace(found, at=AtSeq(found.version.seq_number))


async def _resolve_dropped(storage: Storage, version: str, known: list[Path]) -> lines.Place | None:
    """Find a version of main that the log has dropped, if the archive knows it."""
    ref = parse_ref(version)
    if not isinstance(ref, SingleRef) or ref.branch != MAIN_BRANCH:
        return None
    if not isinstance(ref.point, AtSeq | AtTxn | AtTime):
        return None
    found = await find_version(storage, known, ref.point)
    if found is None:
        return None
    line = await lines.line_of(storage, MAIN_BRANCH)
    return lines.Place(line, found, AtSeq(found.seq_number))


async def _planned(
    storage: Storage, manifest: Manifest, found: lines.Place
) -> tuple[list[Split], list[ArchiveSegment]]:
    """Return the storage's splits of a version, and the segments with the rest of it, if any."""
    txn, since = found.version.txn, manifest.since
    if since is None or txn >= manifest.until or await _is_readable(storage, manifest, found):
        return await storage.plan(manifest.collection, Query(), found.at), []
    if txn < since.floor:
        raise Expired(
            f"History before version {since.oldest} was dropped before it could be archived; read "
            f"version {since.oldest} or a later one",
            oldest=since.oldest,
            collection_id=manifest.collection,
        )
    last = AtSeq(manifest.segments[-1].last_seq_number)
    splits = await storage.plan(manifest.collection, Query(txn_to=txn + 1), last)
    return splits, [segment for segment in manifest.segments if segment.until > txn]


async def _is_readable(storage: Storage, manifest: Manifest, found: lines.Place) -> bool:
    try:
        await storage.resolve(found.at, manifest.collection)
    except Expired:
        return False
    return True


# ---- Documents -----------------------------------------------------------------------------------

_END: Final = r'("txn_next"\s*:\s*)"[0-9]+"'
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _not_ended(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Reset `txn_next` in the documents of states, as it was before they ended."""
    for batch in batches:
        at = batch.schema.get_field_index("feature")
        given = batch.column(at)
        # A single match in a document is that in its namespace.
        is_odd = pc.greater(pc.count_substring_regex(given, _END), 1)
        made = pc.replace_substring_regex(given, _END, r'\1"0"')
        if pc.any(is_odd).as_py():
            rest = pa.array([_current(text) for text in given.filter(is_odd).to_pylist()])
            made = pc.replace_with_mask(made, is_odd, rest.cast(given.type))
        yield batch.set_column(at, batch.schema.field(at), made)


def _current(text: str) -> str:
    """Reset `txn_next` in a document that has further members of this name, which are not changed.

    The text of the namespace cannot occur twice: its end was not known when the document was
    written.
    """
    xyz = bytes(_decode(_decode(text)["properties"])[XYZ]).decode()
    return text.replace(xyz, re.sub(_END, r'\1"0"', xyz))
