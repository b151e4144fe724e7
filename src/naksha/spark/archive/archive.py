"""Archives: the history of a collection that a storage has given up, as GeoParquet files.

A directory has a manifest and, for each time that history was archived, a segment: the states that
ended within a range of transactions. A version that lives in the archive is what was valid then:
states of the segments, and those of the storage that began before and have not ended since. So it
takes all that has ended since: where the storage had lost some of it before it was archived, older
versions are Expired.
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
from naksha.spark.runtime.storage_cache import existing
from naksha.spark.source.options import Place
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Split, Storage
from naksha.versioning import lines
from naksha.versioning.version_refs import MAIN_BRANCH, One, parse_ref

MANIFEST: Final = "manifest.json"
LOCK: Final = ".lock"
UNFINISHED: Final = ".unfinished"
"""How the name of a directory ends in which a segment is being written."""
_SEGMENT: Final = re.compile("[0-9]+-[0-9]+-[0-9a-f]{8}")
KEPT: Final = tuple(name for name in COLUMNS.names if name != "seq_number")
"""The columns of a state in an archive; numbers of versions belong to the log."""


class Segment(msgspec.Struct, frozen=True, rename="camel"):
    """States that ended at or after the transaction `first` and before `until`: all that were still
    there, hence all that ended after `floor`."""

    name: str
    """Of its directory."""
    first: int
    until: int
    floor: int
    """The transaction of the oldest version that the storage had when it was archived."""
    oldest: int
    """The number of that version."""
    last_seq_number: int
    """The last version before `until`."""
    states: int
    checksum: str
    files: list[str]
    versions: str | None = None
    """The file that tells its versions (`naksha.spark.archive.versions`); former releases had
    none."""

    def paths(self, folder: Path) -> list[Path]:
        """Its files, in the directory of the archive."""
        return [folder / self.name / file for file in self.files]


class ArchiveJob(msgspec.Struct, frozen=True, rename="camel"):
    """A job that is to drop what is archived by now: one that is run again goes on with it."""

    id: str
    day: date
    """What ended before it is dropped."""
    due: int
    """How many states that were, when it began."""
    segment: str | None
    """The one that it has added."""
    asked: tuple[int, bool] | None = None
    """Older than how many days, and whether it is kept in the storage."""
    report: dict[str, Any] | None = None
    """What it has told at its end."""


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """What is in an archive, oldest first."""

    storage: str
    collection: str
    number: int
    """That of the collection: another one may get its name."""
    segments: list[Segment] = []
    jobs: list[ArchiveJob] = []
    """The last ones that have a name; former releases had none."""

    def job(self, id: str) -> ArchiveJob | None:
        """The job of a name, if it has been here."""
        return next((each for each in self.jobs if id and each.id == id), None)

    def with_job(self, job: ArchiveJob) -> Manifest:
        """The same with a job, as it is now."""
        others = [each for each in self.jobs if each.id != job.id]
        jobs = [*others, job][-limits.ARCHIVE_JOBS_KEPT :] if job.id else others
        return msgspec.structs.replace(self, jobs=jobs)

    @property
    def until(self) -> int:
        """What ended before this transaction is in the archive."""
        return self.segments[-1].until if self.segments else 0

    @property
    def known(self) -> int:
        """The number up to which the archive knows versions."""
        return max((s.last_seq_number for s in self.segments if s.versions), default=0)

    def versions(self, folder: Path) -> list[Path]:
        """The files that tell them."""
        return [folder / s.name / s.versions for s in self.segments if s.versions]

    @property
    def since(self) -> Segment | None:
        """The segment from which on nothing is missing; the first one continues nothing."""
        for segment in reversed(self.segments):
            if segment.floor >= segment.first:
                return segment
        return None


def read_manifest(
    folder: Path, storage: StorageIdentity, info: CollectionInfo, *, grows: bool = False
) -> Manifest | None:
    """The manifest of an archive, if there is one. What was archived before the storage was forked
    can be read; only the storage that still has the id can add to it.

    Raises:
        InvalidArgument: It is the archive of something else.
    """
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"{folder} is no archive: {error}", field="archive") from error
    if not _is_of(found, storage, grows) or found.collection != info.id:
        raise InvalidArgument(
            f"{folder} is the archive of {found.collection!r} in the storage {found.storage!r}",
            field="archive",
        )
    if found.number != info.number:
        raise InvalidArgument(
            f"{folder} is the archive of a collection that was called {info.id!r} before this one",
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
    """A name for a segment, which no other one has."""
    return f"{first}-{until}-{uuid.uuid4().hex[:8]}"


def begun(folder: Path, storage: StorageIdentity, info: CollectionInfo) -> Manifest:
    """The manifest of an archive that is to grow, with nothing in it when it is new. What a job
    has left there that ended in the middle goes: the caller is alone."""
    found = read_manifest(folder, storage, info, grows=True)
    if found is not None:
        _sweep(folder)
        return found
    if any(_SEGMENT.fullmatch(each.name) for each in folder.iterdir()):
        # Nobody knows what they have; and the storage may have dropped it.
        raise InvalidArgument(f"{folder} has segments, but no {MANIFEST}", field="archive")
    made = Manifest(storage.id, info.id, info.number)
    write_manifest(folder, made)
    return made


def _sweep(folder: Path) -> None:
    """Remove unfinished segments and manifests of an archive, and nothing else."""
    for left in list(folder.iterdir()):
        name = left.name.removesuffix(UNFINISHED)
        if name != left.name and _SEGMENT.fullmatch(name):
            shutil.rmtree(left, ignore_errors=True)
        elif left.name.startswith(f".{MANIFEST}."):
            left.unlink(missing_ok=True)


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


def finish(folder: Path, work: Path, segment: Segment) -> None:
    """A directory with the files of a segment gets its name, for good: after this it can be named
    by the manifest."""
    for name in filter(None, [*segment.files, segment.versions]):
        _sync(work / name)
    _sync(work)
    work.rename(folder / segment.name)
    _sync(folder)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, at once and for good: what it names is dropped elsewhere."""
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
    spark: SparkSession, place: Place, collection: str, archive: str, version: str
) -> DataFrame:
    """The features of a collection at a version that lives in an archive, or is still there.

    Args:
        spark: The session.
        place: The storage.
        collection: The collection.
        archive: The directory of the archive.
        version: The version, in any way that a version is said; of main.

    Raises:
        Expired: Some of it was lost before it was archived; names the oldest version there is.
    """
    folder = Path(archive).absolute()
    if not (folder / MANIFEST).exists():
        raise NotFound(f"There is no archive in {archive!r}", field="archive")
    storages = existing(place)
    manifest = storages.call(lambda s: _manifest(s, folder, collection))
    found = storages.call(lambda s: _meant(s, version, manifest.versions(folder)))
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
    """The states in files of an archive, whatever its directory is called.

    Raises:
        StorageCorrupt: A file is damaged, or no longer there.
    """
    try:
        return rows_of_parquet(spark, map(str, files), schema)
    except InvalidArgument as error:
        raise StorageCorrupt(f"The archive is damaged: {error.message}") from error


async def _manifest(storage: Storage, folder: Path, collection: str) -> Manifest:
    info = await storage.collection(collection)
    found = read_manifest(folder, storage.identity, info)
    assert found is not None
    return found


async def _meant(storage: Storage, version: str, known: list[Path]) -> lines.Place:
    try:
        found = await lines.place_of(storage, version)
    except Expired:
        archived = await _meant_before(storage, version, known)
        if archived is None:
            raise
        return archived
    if found.line.branch is not None:
        raise InvalidArgument("Only versions of main are archived", field="version")
    return replace(found, at=AtSeq(found.version.seq_number))


async def _meant_before(storage: Storage, version: str, known: list[Path]) -> lines.Place | None:
    """A version of main that the log has forgotten, if the archive knows it."""
    ref = parse_ref(version)
    if not isinstance(ref, One) or ref.branch != MAIN_BRANCH:
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
) -> tuple[list[Split], list[Segment]]:
    """What the storage has of a version, and the segments that have the rest of it, if any."""
    txn, since = found.version.txn, manifest.since
    if since is None or txn >= manifest.until or await _is_there(storage, manifest, found):
        return await storage.plan(manifest.collection, Query(), found.at), []
    if txn < since.floor:
        raise Expired(
            f"History before version {since.oldest} was gone when it was archived",
            oldest=since.oldest,
            collection_id=manifest.collection,
        )
    last = AtSeq(manifest.segments[-1].last_seq_number)
    splits = await storage.plan(manifest.collection, Query(txn_to=txn + 1), last)
    return splits, [segment for segment in manifest.segments if segment.until > txn]


async def _is_there(storage: Storage, manifest: Manifest, found: lines.Place) -> bool:
    try:
        await storage.resolve(found.at, manifest.collection)
    except Expired:
        return False
    return True


# ---- Documents -----------------------------------------------------------------------------------

_END: Final = r'("txn_next"\s*:\s*)"[0-9]+"'
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _not_ended(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """States as they were before they ended: their documents do not say when."""
    for batch in batches:
        at = batch.schema.get_field_index("feature")
        given = batch.column(at)
        # A document that has it once has it in its namespace.
        is_odd = pc.greater(pc.count_substring_regex(given, _END), 1)
        made = pc.replace_substring_regex(given, _END, r'\1"0"')
        if pc.any(is_odd).as_py():
            rest = pa.array([_current(text) for text in given.filter(is_odd).to_pylist()])
            made = pc.replace_with_mask(made, is_odd, rest.cast(given.type))
        yield batch.set_column(at, batch.schema.field(at), made)


def _current(text: str) -> str:
    """A document whose own members are called like one of the namespace; they stay as they are, and
    so does all else. No copy of the namespace is in it: nobody knew its end when it was written."""
    xyz = bytes(_decode(_decode(text)["properties"])[XYZ]).decode()
    return text.replace(xyz, re.sub(_END, r'\1"0"', xyz))
