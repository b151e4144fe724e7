"""Invariants of the states of a collection, as SQL expressions on columns.

Each state is checked by itself, with its neighbours, and with all other states of its transaction.
The states include those that were never visible, because their own transaction replaced them.

They are grouped by line: main, and each branch with the states below it that its own states follow.
States below are checked on the line where they were written, so violations on a branch are only
reported for its own states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from naksha.model.geo.quadkey import qrids
from naksha.model.geo.wkb_rules import read_shapes
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.identity.txn import DAY_FACTOR, MONTH_FACTOR, YEAR_FACTOR
from naksha.model.query import States
from naksha.model.state import XYZ
from naksha.model.transaction import MAIN
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Split


class Invariant(StrEnum):
    """Name of an invariant."""

    INTERVAL = "interval"
    """A state does not end before it begins; a current state has no end."""
    OVERLAP = "overlap"
    """No two states of a feature are valid at the same time."""
    GAP = "gap"
    """In complete history, a state begins when its predecessor ends, and only a tombstone
    ends without a successor."""
    VERSION = "version"
    """The versions of a feature are consecutive."""
    PUUID = "puuid"
    """The puuid of a state is the uuid of its predecessor."""
    TOMBSTONE = "tombstone"
    """A tombstone belongs to a feature that was deleted, and is stored among the tombstones."""
    LEAF = "leaf"
    """A feature is in the leaf of its id."""
    GEOMETRY = "geometry"
    """A geometry can be decoded, is within the bounds of WGS 84 and matches its box."""
    QRID = "qrid"
    """The quad key is that of the geometry; `mrid` is `crid` or `qrid`."""
    NAMESPACE = "namespace"
    """The namespace in the document has the same values as the columns."""
    IDENTITY = "identity"
    """A state id contains storage, collection and day, and is unique."""
    LOG = "log"
    """The log has all transactions of states, with their counts and boxes; versions are numbered
    without gaps, in the order of transactions and of time."""
    INDEX = "index"
    """Redundant data of a storage, such as indexes, is consistent with its tables."""


READ: Final = (
    *("id", "geometry", "feature", "uuid", "puuid", "txn", "txn_next", "version", "action"),
    *("author", "app_id", "created_at", "updated_at", "crid", "qrid", "mrid"),
    *("west", "south", "east", "north"),
)


class CheckedLine(NamedTuple):
    """Line whose states are read: main (`branch` is None), or a branch on one of its bases."""

    branch: str | None
    overlay: int
    base: int
    """Last transaction below it; states of later transactions are its own."""
    floor: int
    """Transaction from which its history is complete."""


_LOOKED_AT: Final = [name for name in READ if name != "geometry"]
CHECKED: Final = pa.schema(
    [
        *(COLUMNS.field(name).with_nullable(True) for name in _LOOKED_AT),
        pa.field("branch", pa.string()),
        pa.field("overlay", pa.int64()),
        pa.field("base", pa.int64()),
        pa.field("floor", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("leaf", pa.string()),
        pa.field("is_shape", pa.bool_()),
        pa.field("is_boxed", pa.bool_()),
        pa.field("qrid_found", pa.string()),
    ]
)
"""States with the results of checking their geometries."""
_LINE: Final = CheckedLine._fields
_LOW: Final = ("west", "south")
_HIGH: Final = ("east", "north")
_EDGES: Final = (*_LOW, *_HIGH)
_STATE: Final = (
    *("id", "uuid", "puuid", "txn", "txn_next", "version", "action", "created_at"),
    *_EDGES,
)
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
"""Members of the namespace, and the columns that must have the same values."""


class InvariantRule(NamedTuple):
    """SQL expression that detects a violation by a state, and one for its message.

    They are strings because composing columns takes a call to Java for every operation.
    """

    invariant: Invariant
    broken: str
    message: str


# ---- Geometries ----------------------------------------------------------------------------------


def checked_batch(line: CheckedLine, split: Split, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch of states to `CHECKED`, and check geometries in the task that reads them."""
    wkb = batch.column("geometry")
    shapes = read_shapes(wkb.to_numpy(zero_copy_only=False))
    nothing = np.array(wkb.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)
    bounds = shapely.bounds(shapes)
    on_earth = (np.abs(bounds) <= np.array([180.0, 90.0, 180.0, 90.0])).all(axis=1)
    stored = np.column_stack(
        [
            batch.column(name).to_numpy(zero_copy_only=False).astype(float)
            for name in ("west", "south", "east", "north")
        ]
    )
    same = (stored == bounds) | (np.isnan(stored) & np.isnan(bounds))
    kind = None if split.states is None else split.states.value
    more = [
        *(
            pa.repeat(pa.scalar(value, CHECKED.field(name).type), len(batch))
            for name, value in (*line._asdict().items(), ("kind", kind), ("leaf", split.leaf))
        ),
        pa.array(on_earth | shapely.is_empty(shapes) | nothing),
        pa.array(same.all(axis=1)),
        pa.array(_qrids(bounds, on_earth), pa.string()),
    ]
    columns = [batch.column(name) for name in _LOOKED_AT]
    return pa.RecordBatch.from_arrays([*columns, *more], schema=CHECKED)


def _qrids(
    bounds: npt.NDArray[np.float64], on_earth: npt.NDArray[np.bool_]
) -> npt.NDArray[np.object_]:
    west, south, east, north = bounds[on_earth].T
    found = np.full(len(bounds), None, dtype=object)
    found[on_earth] = qrids((west + east) / 2.0, (south + north) / 2.0)
    return found


# ---- Each state by itself ------------------------------------------------------------------------

_ALONE: Final = (
    InvariantRule(
        Invariant.INTERVAL,
        "txn_next <> 0 AND txn_next < txn",
        "concat('the state ends at ', txn_next, ', before it begins')",
    ),
    InvariantRule(
        Invariant.INTERVAL,
        f"kind IN ('{States.LIVE}', '{States.DELETED}') AND txn_next <> 0",
        "concat('the state is current, but ends at ', txn_next)",
    ),
    InvariantRule(
        Invariant.TOMBSTONE,
        f"kind = '{States.LIVE}' AND action = 'DELETE'",
        "'a tombstone is stored among the live features'",
    ),
    InvariantRule(
        Invariant.TOMBSTONE,
        f"kind = '{States.DELETED}' AND action <> 'DELETE'",
        "'a state that is not a tombstone is stored among the tombstones'",
    ),
    InvariantRule(
        Invariant.GEOMETRY,
        "NOT is_shape",
        "'the geometry cannot be decoded, or is outside of WGS 84'",
    ),
    InvariantRule(
        Invariant.GEOMETRY,
        "is_shape AND NOT is_boxed",
        "'the box does not match the geometry'",
    ),
    InvariantRule(
        Invariant.QRID,
        "is_shape AND NOT qrid <=> qrid_found",
        "concat('qrid is ', coalesce(qrid, 'null'),"
        " ', but that of the geometry is ', coalesce(qrid_found, 'null'))",
    ),
    InvariantRule(
        Invariant.QRID,
        "NOT mrid <=> coalesce(crid, qrid)",
        "'mrid is neither crid nor qrid'",
    ),
    InvariantRule(
        Invariant.LEAF,
        "left(md5(CAST(id AS binary)), 1) <> leaf",
        "concat('the feature is in leaf ', leaf, ', which is not that of its id')",
    ),
    InvariantRule(
        Invariant.IDENTITY,
        f"NOT uuid <=> concat_ws(':', home, txn DIV {YEAR_FACTOR}, txn DIV {MONTH_FACTOR} % 100,"
        f" txn DIV {DAY_FACTOR} % 100, i)",
        "concat('the state has the wrong uuid ', coalesce(uuid, 'null'))",
    ),
)


def check_states(states: DataFrame, storage: StorageIdentity, collection: str) -> DataFrame:
    """Check each state by itself; the result has the problems, but no large columns."""
    xyz = ", ".join(f"{name}: string" for name in _DOCUMENT)
    document = f"from_json(feature, 'id string, properties struct<`{XYZ}`: struct<{xyz}>>')"
    numbered = states.withColumn(
        "i", f.expr("try_cast(regexp_extract(uuid, ':([0-9]+)$', 1) AS bigint)")
    )
    given = {"home": _home(storage, collection), "document": f.expr(document)}
    problems = f.expr(f"concat({_problems(_ALONE)}, {_namespace()})")
    return numbered.withColumns(given).select(*_LINE, *_STATE, "i", problems.alias("alone"))


def _home(storage: StorageIdentity, collection: str) -> Column:
    """Return the prefix of the state id of a row number, which changes with every fork."""
    homes = f.lit(f"{storage.id}:{collection}")
    for former in reversed(storage.former):
        is_former = f.col("i") <= former.last_i.get(collection, 0)
        homes = f.when(is_former, f.lit(f"{former.id}:{collection}")).otherwise(homes)
    return homes


def _problems(rules: Sequence[InvariantRule]) -> str:
    """Build an expression for the array of a state's problems."""
    each = (
        f"IF(coalesce({rule.broken}, false), {_problem(rule.invariant, rule.message)}, NULL)"
        for rule in rules
    )
    return f"array_compact(array({', '.join(each)}))"


def _problem(invariant: Invariant, message: str) -> str:
    return f"named_struct('invariant', '{invariant}', 'message', {message})"


def _namespace() -> str:
    """Build an expression for the array of differences between document and columns."""
    members = [("id", "id", "document.id")]
    for member, (column, type_) in _DOCUMENT.items():
        members.append(
            (member, column, f"try_cast(document.properties.`{XYZ}`.{member} AS {type_})")
        )
    pairs = ", ".join(
        f"named_struct('name', '{name}', 'held', CAST({column} AS string),"
        f" 'stored', CAST({stored} AS string))"
        for name, column, stored in members
    )
    message = (
        "concat(pair.name, ' is ', coalesce(pair.held, 'null'),"
        " ', but ', coalesce(pair.stored, 'null'), ' in the document')"
    )
    differ = f"filter(array({pairs}), pair -> NOT pair.held <=> pair.stored)"
    return f"transform({differ}, pair -> {_problem(Invariant.NAMESPACE, message)})"


# ---- Each state with its neighbours --------------------------------------------------------------

BEFORE: Final = {
    # Whether all states between a state and its predecessor must still be stored.
    "is_known": "p_txn_next = 0 OR p_txn_next > floor",
    "both_current": "p_txn_next = 0",
    "is_new": "action = 'CREATE'",
    "is_dead": "action = 'DELETE'",
    "was_dead": "p_action = 'DELETE'",
    # False for a state that replaced a state of its own transaction.
    "is_step": "NOT coalesce(p_txn = txn AND action = p_action AND action <> 'DELETE'"
    " AND version = p_version, false)",
}
"""Conditions on a state and its predecessor (`p_`) that the rules below use."""
_LINKED: Final = {
    "is_last": "n_uuid IS NULL",
    "is_first": "p_uuid IS NULL",
    "is_next": "p_uuid IS NOT NULL AND is_step",
    "is_whole": "is_known OR p_txn_next = txn",
    "is_lost": "p_uuid IS NULL AND txn > floor AND NOT (is_new AND version = 1)",
    # Whether the previous box of the feature is known.
    "is_placed": "is_new OR p_txn = txn OR p_txn_next = txn",
}
FOLLOWING: Final = (
    InvariantRule(
        Invariant.TOMBSTONE,
        "both_current AND (is_dead OR was_dead)",
        "concat('both a tombstone and another state of the feature are current: ', p_uuid)",
    ),
    InvariantRule(
        Invariant.OVERLAP,
        "(both_current AND NOT is_dead AND NOT was_dead) OR p_txn_next > txn",
        "concat('the state begins while its predecessor is still valid: ', p_uuid)",
    ),
    InvariantRule(
        Invariant.GAP,
        # A purged tombstone may leave a gap before the feature is created again.
        "is_known AND NOT both_current AND p_txn_next < txn AND NOT (was_dead AND is_new)",
        "concat('no state was valid between this one and ', p_uuid)",
    ),
    InvariantRule(
        Invariant.TOMBSTONE, "is_lost AND is_dead", "'the state before the tombstone is missing'"
    ),
    InvariantRule(
        Invariant.GAP,
        "is_lost AND NOT is_dead",
        "concat('the state before version ', version, ' is missing')",
    ),
    InvariantRule(
        Invariant.GAP,
        # A current state has no end, so this one must have a successor.
        "is_last AND NOT is_dead AND txn_next > floor",
        "concat('the state ends at ', txn_next, ', but has no successor')",
    ),
    InvariantRule(
        Invariant.TOMBSTONE,
        # A purged tombstone leaves more than its backup.
        "is_last AND is_dead AND txn = txn_next AND txn > floor",
        "'the tombstone is missing, only its backup is stored'",
    ),
    InvariantRule(
        Invariant.VERSION,
        "is_next AND is_whole AND version <> p_version + 1"
        " AND NOT (is_new AND was_dead AND version = 1)",
        "concat('version ', version, ' follows version ', p_version)",
    ),
    InvariantRule(
        Invariant.VERSION,
        "is_next AND is_whole AND is_new AND NOT was_dead",
        "concat('the feature was created although it existed: ', p_uuid)",
    ),
    InvariantRule(
        Invariant.PUUID,
        "is_new AND puuid IS NOT NULL",
        "concat('the feature was created, but has the puuid ', puuid)",
    ),
    InvariantRule(
        Invariant.PUUID,
        "is_next AND is_whole AND NOT is_new AND NOT puuid <=> p_uuid",
        "concat('the predecessor is ', p_uuid, ', but puuid is ', coalesce(puuid, 'null'))",
    ),
    InvariantRule(
        Invariant.PUUID,
        "NOT is_step AND NOT puuid <=> p_puuid",
        "'puuid is not that of the replaced state of the same transaction'",
    ),
    InvariantRule(
        Invariant.NAMESPACE,
        "is_next AND is_whole AND NOT is_new AND created_at <> p_created_at",
        "'createdAt is not that of the predecessor'",
    ),
)


def check_chains(states: DataFrame) -> DataFrame:
    """Check the own states of each line with their neighbours.

    `is_step` is false for a state that replaced a state of its own transaction, which does not
    count as a change.
    """
    in_order = "OVER (PARTITION BY overlay, id ORDER BY i, txn = txn_next)"
    # A storage may keep a backup of a tombstone with the same id.
    again = f"txn = txn_next AND action = 'DELETE' AND uuid <=> lag(uuid) {in_order}"
    single = states.selectExpr("*", f"{again} AS is_backup").where("NOT is_backup")
    before = [f"lag({name}) {in_order} AS p_{name}" for name in _STATE if name != "id"]
    linked = single.selectExpr("*", *before, f"lead(uuid) {in_order} AS n_uuid")
    for named in (BEFORE, _LINKED):
        linked = linked.selectExpr("*", *(f"{text} AS {name}" for name, text in named.items()))
    own = linked.where(f"overlay = {MAIN} OR txn > base")
    problems = f"concat(alone, {_problems(FOLLOWING)}) AS problems"
    names = (*_LINE, "id", "uuid", "txn", "action", "is_step", "is_placed")
    return own.selectExpr(*names, *_edges(), problems)


def _edges() -> Iterator[str]:
    """Yield expressions for the edges of a change: the box of a state and of its predecessor.

    A created state has no predecessor, except possibly a tombstone, whose box the log may include
    or not. So there are two boxes, with (`far_`) and without it.
    """
    for edges, outermost in ((_LOW, "least"), (_HIGH, "greatest")):
        for edge in edges:
            yield f"{outermost}({edge}, IF(is_new, NULL, p_{edge})) AS {edge}"
            yield f"{outermost}({edge}, p_{edge}) AS far_{edge}"


# ---- States with others --------------------------------------------------------------------------


def violations(states: DataFrame, log: DataFrame, first: int) -> DataFrame:
    """Return all violations by states, from `check_chains`, and by the log.

    The log has the columns `branch`, `overlay`, `txn`, `created`, `updated`, `deleted`, `purged`
    and the edges of its box, and begins with the transaction `first`.
    """
    own = states.selectExpr("branch", "id AS feature", "uuid", "txn", "inline(problems)")
    logged = _logged(states, log, first)
    return own.union(_shared_ids(states)).union(_uncounted(logged)).union(_misplaced(logged))


def _shared_ids(states: DataFrame) -> DataFrame:
    """Find state ids that are not unique."""
    counts = ("count(*) AS n", "min(branch) AS branch", "min(id) AS id", "max(txn) AS txn")
    shared = states.groupBy("uuid").agg(*map(f.expr, counts)).where("n > 1")
    message = "concat(n, ' states have the same uuid')"
    return shared.selectExpr("branch", "id", "uuid", "txn", f"'{Invariant.IDENTITY}'", message)


def _logged(states: DataFrame, log: DataFrame, first: int) -> DataFrame:
    """Join the changes computed from states (`n_`) with the log, where both are complete."""
    counts = (
        "min(branch) AS n_branch",
        "every(is_placed) AS n_placed",
        *(
            f"count_if(is_step AND action = '{action}') AS n_{name}"
            for name, action in _COUNTED.items()
        ),
        *(f"min({start}{edge}) AS n_{start}{edge}" for start in ("", "far_") for edge in _LOW),
        *(f"max({start}{edge}) AS n_{start}{edge}" for start in ("", "far_") for edge in _HIGH),
    )
    known = states.where(f"txn > floor AND txn >= {first}").groupBy("overlay", "txn")
    return known.agg(*map(f.expr, counts)).join(log, ["overlay", "txn"], "full_outer")


def _uncounted(logged: DataFrame) -> DataFrame:
    """Find transactions whose counts differ from those of the log.

    The violations do not name a feature, because it cannot be determined.
    """
    text = "the log counts %d created, %d updated, %d deleted, but there are %d, %d, %d"
    message = (
        "IF(created IS NULL, 'the transaction is missing in the log',"
        f" format_string('{text}', {_LOGGED}, {_FOUND}))"
    )
    return _of_log(logged.where(f"NOT ({_IS_COUNTED})"), message)


def _misplaced(logged: DataFrame) -> DataFrame:
    """Find transactions whose box in the log is wrong, so that searches by area miss them.

    Purged features have no states, and missing states are reported by other rules.
    """

    def is_inside(inner: str, outer: str) -> str:
        low = (f"{outer}{edge} <= {inner}{edge}" for edge in _LOW)
        high = (f"{outer}{edge} >= {inner}{edge}" for edge in _HIGH)
        return f"coalesce({' AND '.join((*low, *high))}, false)"

    is_told = f"n_west IS NULL OR {is_inside('n_', '')}"
    is_so = f"west IS NULL OR purged > 0 OR {is_inside('', 'n_far_')}"
    known = logged.where(f"n_placed AND {_IS_COUNTED}")
    return _of_log(known.where(f"NOT (({is_told}) AND ({is_so}))"), f"'{_ELSEWHERE}'")


def _of_log(rows: DataFrame, message: str) -> DataFrame:
    no_feature = ("CAST(NULL AS string)", "CAST(NULL AS string)")
    branch = "coalesce(n_branch, branch)"
    return rows.selectExpr(branch, *no_feature, "txn", f"'{Invariant.LOG}'", message)


_COUNTED: Final = {"created": "CREATE", "updated": "UPDATE", "deleted": "DELETE"}
"""Counters of the log, and the action of the states that they count."""
_LOGGED: Final = ", ".join(f"coalesce({name}, 0)" for name in _COUNTED)
_FOUND: Final = ", ".join(f"coalesce(n_{name}, 0)" for name in _COUNTED)
_IS_COUNTED: Final = f"created IS NOT NULL AND array({_LOGGED}) = array({_FOUND})"
_ELSEWHERE: Final = "the box in the log is not that of the changes"
