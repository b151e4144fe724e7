"""What must be true of the states of a collection, as expressions on columns.

Each state is looked at by itself, together with the one before it, and together with all others
of its transaction. Among the states are those that nobody ever saw, because others follow them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType

from naksha.model.quadkey import qrids
from naksha.model.query import States
from naksha.model.state import XYZ
from naksha.model.txn import DAY_FACTOR, MONTH_FACTOR, YEAR_FACTOR
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Split


class Invariant(StrEnum):
    """What can be violated."""

    INTERVAL = "interval"
    """A state ends after it began; what is current has no end."""
    OVERLAP = "overlap"
    """No two states of a feature are valid at the same time."""
    GAP = "gap"
    """Where history is complete, a state begins when the one before it ends."""
    VERSION = "version"
    """The versions of a feature go on by one."""
    PUUID = "puuid"
    """A state names the one that it follows."""
    TOMBSTONE = "tombstone"
    """A tombstone is of a feature that was there and is not any more, and lies where those do."""
    LEAF = "leaf"
    """A feature is in the leaf that its id says."""
    GEOMETRY = "geometry"
    """A geometry can be read, is on earth, and has the box that is told with it."""
    QRID = "qrid"
    """The quad key is that of the geometry; `mrid` is `crid` or `qrid`."""
    NAMESPACE = "namespace"
    """The document says what the columns say."""
    IDENTITY = "identity"
    """A state id names storage, collection and day, and is that of one state only."""
    LOG = "log"
    """The log has the transactions that made states, and counts what they made."""


READ: Final = (
    *("id", "geometry", "feature", "uuid", "puuid", "txn", "txn_next", "version", "action"),
    *("author", "app_id", "created_at", "updated_at", "crid", "qrid", "mrid"),
    *("west", "south", "east", "north"),
)
_LOOKED_AT: Final = [name for name in READ if name != "geometry"]
SEEN: Final = pa.schema(
    [
        *(COLUMNS.field(name).with_nullable(True) for name in _LOOKED_AT),
        pa.field("kind", pa.string()),
        pa.field("leaf", pa.string()),
        pa.field("is_shape", pa.bool_()),
        pa.field("is_boxed", pa.bool_()),
        pa.field("qrid_found", pa.string()),
    ]
)
"""States with what their geometries say."""
PROBLEM: Final = "struct<invariant:string,message:string>"
_STATE: Final = ("id", "uuid", "puuid", "txn", "txn_next", "version", "action", "created_at")
_DELETE: Final = "DELETE"
_CREATE: Final = "CREATE"
_DOCUMENT: Final = {
    "uuid": ("uuid", "string"),
    "puuid": ("puuid", "string"),
    "txn": ("txn", "bigint"),
    "version": ("version", "bigint"),
    "action": ("action", "string"),
    "author": ("author", "string"),
    "appId": ("app_id", "string"),
    "createdAt": ("created_at", "bigint"),
    "updatedAt": ("updated_at", "bigint"),
    "crid": ("crid", "string"),
    "qrid": ("qrid", "string"),
    "mrid": ("mrid", "string"),
}
"""Members of the namespace, and the columns that must say the same."""
_NUMBERS: Final = ("version", "createdAt", "updatedAt")


# ---- Geometries ----------------------------------------------------------------------------------


def looked_at(split: Split, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of states as `SEEN`: the geometries are looked at where they are read."""
    wkb = batch.column("geometry")
    shapes = shapely.from_wkb(wkb.to_numpy(zero_copy_only=False), on_invalid="ignore")
    given = np.array(wkb.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    bounds = shapely.bounds(shapes)
    on_earth = (np.abs(bounds) <= np.array([180.0, 90.0, 180.0, 90.0])).all(axis=1)
    told = np.column_stack(
        [
            batch.column(name).to_numpy(zero_copy_only=False).astype(float)
            for name in ("west", "south", "east", "north")
        ]
    )
    same = (told == bounds) | (np.isnan(told) & np.isnan(bounds))
    more = [
        pa.array([None if split.states is None else split.states.value] * len(batch), pa.string()),
        pa.array([split.leaf] * len(batch), pa.string()),
        pa.array(on_earth | ~given),
        pa.array(same.all(axis=1)),
        pa.array(_qrids(bounds, on_earth), pa.string()),
    ]
    columns = [batch.column(name) for name in _LOOKED_AT]
    return pa.RecordBatch.from_arrays([*columns, *more], schema=SEEN)


def _qrids(
    bounds: npt.NDArray[np.float64], on_earth: npt.NDArray[np.bool_]
) -> npt.NDArray[np.object_]:
    west, south, east, north = bounds[on_earth].T
    found = np.full(len(bounds), None, dtype=object)
    found[on_earth] = qrids((west + east) / 2.0, (south + north) / 2.0)
    return found


# ---- Each state by itself ------------------------------------------------------------------------


def alone(states: DataFrame, storage: str, collection: str) -> DataFrame:
    """States with the problems that each has by itself; what is large is left behind."""
    number = f.regexp_extract("uuid", ":([0-9]+)$", 1).try_cast("bigint")
    checked = states.withColumn("i", number).withColumn("document", _document())
    problems = [
        *_interval(),
        *_kind(),
        *_places(),
        _when(
            Invariant.LEAF,
            f.substring(f.md5(f.col("id").cast("binary")), 1, 1) != f.col("leaf"),
            f.concat(f.lit("it lies in leaf "), "leaf"),
        ),
        _when(
            Invariant.IDENTITY,
            ~f.col("uuid").eqNullSafe(_state_id(storage, collection)),
            f.concat(f.lit("it is called "), f.coalesce("uuid", f.lit("nothing"))),
        ),
        *_namespace(),
    ]
    return checked.select(*_STATE, "i", f.array_compact(f.array(*problems)).alias("alone"))


def _when(invariant: Invariant, is_broken: Column, message: Column | str) -> Column:
    text = f.lit(message) if isinstance(message, str) else message
    problem = f.struct(f.lit(invariant.value).alias("invariant"), text.alias("message"))
    return f.when(f.coalesce(is_broken, f.lit(False)), problem)


def _interval() -> list[Column]:
    ends = f.col("txn_next").cast("string")
    is_current = f.col("kind").isin(States.LIVE.value, States.DELETED.value)
    return [
        _when(
            Invariant.INTERVAL,
            (f.col("txn_next") != 0) & (f.col("txn_next") < f.col("txn")),
            f.concat(f.lit("it ended at "), ends, f.lit(", before it began")),
        ),
        _when(
            Invariant.INTERVAL,
            is_current & (f.col("txn_next") != 0),
            f.concat(f.lit("it is current, but ended at "), ends),
        ),
    ]


def _kind() -> list[Column]:
    is_dead = f.col("action") == _DELETE
    return [
        _when(
            Invariant.TOMBSTONE,
            (f.col("kind") == States.LIVE.value) & is_dead,
            "a tombstone lies among the features",
        ),
        _when(
            Invariant.TOMBSTONE,
            (f.col("kind") == States.DELETED.value) & ~is_dead,
            "a state that is no tombstone lies among these",
        ),
    ]


def _places() -> list[Column]:
    is_shape = f.col("is_shape")
    known = f.coalesce("qrid", f.lit("null"))
    wanted = f.coalesce("qrid_found", f.lit("null"))
    return [
        _when(Invariant.GEOMETRY, ~is_shape, "the geometry cannot be read, or is not on earth"),
        _when(Invariant.GEOMETRY, is_shape & ~f.col("is_boxed"), "its box is that of another one"),
        _when(
            Invariant.QRID,
            is_shape & ~f.col("qrid").eqNullSafe(f.col("qrid_found")),
            f.concat(f.lit("qrid is "), known, f.lit(", the geometry is at "), wanted),
        ),
        _when(
            Invariant.QRID,
            ~f.col("mrid").eqNullSafe(f.coalesce("crid", "qrid")),
            "mrid is neither crid nor qrid",
        ),
    ]


def _document() -> Column:
    """What the document says, as far as columns say it as well."""
    kinds = {name: LongType() if name in _NUMBERS else StringType() for name in _DOCUMENT}
    xyz = StructType([StructField(name, kind) for name, kind in kinds.items()])
    properties = StructType([StructField(XYZ, xyz)])
    schema = [StructField("id", StringType()), StructField("properties", properties)]
    return f.from_json("feature", StructType(schema))


def _namespace() -> list[Column]:
    document = f.col("document")
    xyz = document.getField("properties").getField(XYZ)
    told = [("id", f.col("id"), document.getField("id"))]
    for member, (column, type_) in _DOCUMENT.items():
        told.append((member, f.col(column), xyz.getField(member).try_cast(type_)))
    return [
        _when(
            Invariant.NAMESPACE,
            ~column.eqNullSafe(said),
            f.concat(
                f.lit(f"{name} is "),
                f.coalesce(column.cast("string"), f.lit("null")),
                f.lit(", the document says "),
                f.coalesce(said.cast("string"), f.lit("null")),
            ),
        )
        for name, column, said in told
    ]


def _state_id(storage: str, collection: str) -> Column:
    txn = f.col("txn")
    year = f.floor(txn / f.lit(YEAR_FACTOR).cast("decimal(20,0)"))
    month = f.floor(txn / f.lit(MONTH_FACTOR).cast("decimal(20,0)")) % 100
    day = f.floor(txn / f.lit(DAY_FACTOR).cast("decimal(20,0)")) % 100
    numbers = [part.cast("bigint").cast("string") for part in (year, month, day, f.col("i"))]
    return f.concat_ws(":", f.lit(storage), f.lit(collection), *numbers)


# ---- Each state with the one before it -----------------------------------------------------------


def chained(states: DataFrame, floor: int) -> DataFrame:
    """States with their problems as successors of others. `floor` is the transaction from which on
    history is complete. `is_step` is false for a state that only replaced another one of its own
    transaction: then it is no change of its own."""
    is_hidden = f.col("txn") == f.col("txn_next")
    in_order = Window.partitionBy("id").orderBy("i", is_hidden)
    # A storage may keep a backup of a tombstone beside it, under the same id.
    again = f.col("uuid").eqNullSafe(f.lag("uuid").over(in_order))
    backup = is_hidden & (f.col("action") == _DELETE) & again
    single = states.withColumn("backup", backup).where(~f.col("backup"))
    before = {name: f.lag(name).over(in_order) for name in _STATE if name != "id"}
    linked = single.select("*", *(column.alias(f"p_{name}") for name, column in before.items()))
    is_same = f.col("p_txn").eqNullSafe(f.col("txn")) & (f.col("action") == f.col("p_action"))
    is_same &= (f.col("action") != _DELETE) & (f.col("version") == f.col("p_version"))
    stepped = linked.withColumn("is_step", ~f.coalesce(is_same, f.lit(False)))
    problems = f.array_compact(f.array(*_times(floor), *_links(floor)))
    return stepped.select(
        *("id", "uuid", "txn", "action", "is_step"), f.concat("alone", problems).alias("problems")
    )


def _times(floor: int) -> list[Column]:
    is_first = f.col("p_uuid").isNull()
    is_complete = f.col("txn") > floor
    is_dead, was_dead = f.col("action") == _DELETE, f.col("p_action") == _DELETE
    both_current = f.col("p_txn_next") == 0
    purged = was_dead & (f.col("action") == _CREATE)
    is_lost = is_first & is_complete & ~((f.col("action") == _CREATE) & (f.col("version") == 1))
    return [
        _when(
            Invariant.TOMBSTONE,
            both_current & (is_dead | was_dead),
            f.concat(f.lit("it is there, and its tombstone is too, beside "), "p_uuid"),
        ),
        _when(
            Invariant.OVERLAP,
            (both_current & ~is_dead & ~was_dead)
            | ((f.col("p_txn_next") > f.col("txn")) & ~both_current),
            f.concat(f.lit("it began while this one was still valid: "), "p_uuid"),
        ),
        _when(
            Invariant.GAP,
            is_complete & ~both_current & (f.col("p_txn_next") < f.col("txn")) & ~purged,
            f.concat(f.lit("nothing was valid between it and "), "p_uuid"),
        ),
        _when(Invariant.TOMBSTONE, is_lost & is_dead, "nothing is known of what was deleted"),
        _when(
            Invariant.GAP,
            is_lost & ~is_dead,
            f.concat(f.lit("nothing is known before version "), f.col("version").cast("string")),
        ),
    ]


def _links(floor: int) -> list[Column]:
    is_next = f.col("p_uuid").isNotNull() & f.col("is_step")
    # What was there in between may have expired.
    is_whole = (f.col("txn") > floor) | (f.col("p_txn_next") == f.col("txn"))
    was_dead = f.col("p_action") == _DELETE
    is_new = f.col("action") == _CREATE
    goes_on = f.col("version") == f.col("p_version") + 1
    return [
        _when(
            Invariant.VERSION,
            is_next & is_whole & ~goes_on & ~(is_new & was_dead & (f.col("version") == 1)),
            f.format_string("version %d follows version %d", "version", "p_version"),
        ),
        _when(
            Invariant.VERSION,
            is_new & is_next & ~was_dead,
            f.concat(f.lit("it was created although it was there: "), "p_uuid"),
        ),
        _when(
            Invariant.PUUID,
            is_new & f.col("puuid").isNotNull(),
            f.concat(f.lit("it was created, but names a predecessor: "), "puuid"),
        ),
        _when(
            Invariant.PUUID,
            is_next & is_whole & ~is_new & ~f.col("puuid").eqNullSafe(f.col("p_uuid")),
            f.concat(
                f.lit("it follows "),
                f.col("p_uuid"),
                f.lit(", but names "),
                f.coalesce("puuid", f.lit("nothing")),
            ),
        ),
        _when(
            Invariant.PUUID,
            ~f.col("is_step") & ~f.col("puuid").eqNullSafe(f.col("p_puuid")),
            "it replaced a state of its own transaction, but names another predecessor",
        ),
        _when(
            Invariant.NAMESPACE,
            is_next & is_whole & ~is_new & (f.col("created_at") != f.col("p_created_at")),
            "createdAt is not that of the state before",
        ),
    ]


# ---- States with others --------------------------------------------------------------------------


def shared_ids(states: DataFrame) -> DataFrame:
    """State ids that several features have, or a feature twice."""
    ids = states.groupBy("uuid").agg(
        f.count("*").alias("n"), f.min("id").alias("feature"), f.max("txn").alias("txn")
    )
    told = f.format_string("%d states are called the same", "n")
    return ids.where("n > 1").select(
        *("feature", "uuid", "txn"),
        f.lit(Invariant.IDENTITY.value).alias("invariant"),
        told.alias("message"),
    )


def uncounted(states: DataFrame, log: DataFrame, first: int, floor: int) -> DataFrame:
    """Transactions that the log tells something else of, from its first one on, where history is
    complete."""
    made = states.where((f.col("txn") > floor) & (f.col("txn") >= first)).groupBy("txn")
    counts = made.agg(
        f.min("id").alias("feature"),
        *(
            f.count(f.when(f.col("is_step") & (f.col("action") == action), 1)).alias(name)
            for name, action in (("n_c", _CREATE), ("n_u", "UPDATE"), ("n_d", _DELETE))
        ),
    )
    both = counts.join(log.where(f.col("txn") > floor), "txn", "full_outer")
    told = [f.coalesce(f.col(name), f.lit(0)) for name in ("created", "updated", "deleted")]
    found = [f.coalesce(f.col(name), f.lit(0)) for name in ("n_c", "n_u", "n_d")]
    missing = f.col("created").isNull()
    differs = missing
    for one, other in zip(told, found, strict=True):
        differs |= one != other
    text = "the log counts %d created, %d updated, %d deleted, but there are %d, %d, %d"
    message = f.when(missing, f.lit("the log does not know the transaction"))
    return both.where(differs).select(
        "feature",
        f.lit(None).cast("string").alias("uuid"),
        "txn",
        f.lit(Invariant.LOG.value).alias("invariant"),
        message.otherwise(f.format_string(text, *told, *found)).alias("message"),
    )
