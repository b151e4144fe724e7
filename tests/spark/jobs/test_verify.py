"""Verification of storages: no finding for an intact one; feature and invariant otherwise."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter, defaultdict
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import SparkSession

from naksha.model import limits
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import StorageCorrupt
from naksha.model.query import Query, States, id_hash
from naksha.model.status_codes import status_codes_of
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.invariants import READ, CheckedLine, Invariant, checked_batch
from naksha.spark.jobs.verify import JOB, Verified, Verify, verify
from naksha.spark.runtime.storage_cache import close
from naksha.spark.source.options import StorageRef
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Split, Storage, WriteSession
from naksha.sqlite import SqliteStorage
from naksha.testing.fixtures import DatabaseFactory
from naksha.versioning import Attribution, MergePolicy, branches, rebase
from naksha.versioning.version_refs import MAIN_BRANCH as MAIN
from tests.cli.command import naksha as naksha_command
from tests.spark.jobs.town import Town, point

XYZ = "@ns:com:here:xyz"
IDS = [f"f{n}" for n in range(9)]


def test_a_curve_is_reported_and_hides_no_other_violation() -> None:
    curve = bytes.fromhex("010800000003000000") + bytes(48)
    schema = pa.schema([COLUMNS.field(name).with_nullable(True) for name in READ])
    rows = [{"geometry": wkb} for wkb in (curve, shapely.to_wkb(shapely.Point(1, 2)), None)]
    states = pa.RecordBatch.from_pylist(rows, schema=schema)
    seen = checked_batch(CheckedLine(None, 0, 0, 0), Split(("s", 1), "places", b""), states)
    assert seen.column("is_shape").to_pylist() == [False, True, True]


def checked(spark: SparkSession, town: Town, **settings: Any) -> Verified:
    spec = Verify(place=town.place, collection="places", **settings)
    return verify(spark, spec, SilentProgress())


async def anything(session: WriteSession, chance: random.Random) -> None:
    """A few things of every kind in one transaction, some to the same features."""
    for _ in range(chance.choice([1, 1, 3])):
        live = [s.id async for s in session.states("places", Query())]
        dead = [s.id async for s in session.states("places", Query(states=States.DELETED))]
        some = chance.sample(IDS, 3)
        made = [point(i, chance.uniform(-180, 180), chance.uniform(-90, 90)) for i in some]
        if chance.random() < 0.3:
            made[0]["geometry"] = None
        match chance.choice(["upsert", "upsert", "delete", "restore", "purge"]):
            case "upsert":
                await session.upsert("places", made)
            case "delete":
                await session.delete("places", live[:3])
            case "restore":
                await session.restore("places", dead[:2])
            case "purge":
                await session.purge("places", dead[-2:])


def stirred(town: Town, seed: int, steps: int, branch: str = MAIN) -> None:
    """A random history; transactions that change nothing are none."""
    chance = random.Random(seed)

    async def work(storage: Storage) -> None:
        for _ in range(steps):
            async with storage.write("test-app") as session:
                await anything(session, chance)
            await storage.publication()

    town.call(work, branch)


def branched(town: Town, seed: int, steps: int) -> None:
    """Branches with histories of their own, one of another one, and one that was rebased."""
    town.branch("draft")
    stirred(town, seed, steps, "draft")
    stirred(town, seed + 1, steps)
    town.branch("deeper", "draft")
    stirred(town, seed + 2, steps, "deeper")
    stirred(town, seed + 3, steps, "draft")
    town.call(lambda s: rebase(s, "draft", Attribution("test-app"), policy=MergePolicy.OURS))
    stirred(town, seed + 4, steps, "draft")
    town.branch("untouched")


def switch_history(town: Town, on: bool) -> None:
    change = CollectionChange(history_enabled=on)
    town.run(lambda session: session.change_collection("places", change))


def test_nothing_is_wrong_with_a_random_history(spark: SparkSession, town: Town) -> None:
    stirred(town, 11, 15)
    switch_history(town, False)
    stirred(town, 12, 5)
    switch_history(town, True)
    stirred(town, 13, 8)
    branched(town, 14, 6)
    town.call(lambda storage: storage.maintain())
    report = checked(spark, town)
    assert (report.violations, report.found) == ({}, [])
    # Two of them, one on two bases; and one that has nothing of its own.
    assert (report.complete_since > 0, report.branches) == (True, 3)
    assert (report.states > 60, report.transactions > 20) == (True, True)


def test_nothing_is_wrong_with_a_restored_backup(
    spark: SparkSession, town: Town, tmp_path: Path, database_factory: DatabaseFactory
) -> None:
    stirred(town, 21, 10)
    branched(town, 22, 3)
    before = checked(spark, town)
    with ExitStack() as stack:
        location = f"file:{tmp_path}/restored.naksha"
        if not town.is_file:
            location = stack.enter_context(database_factory.fresh())
        for verb, place in (("backup", town.place.location), ("restore", location)):
            done = naksha_command(verb, str(tmp_path / "copy"), "--storage", place)
            assert done.returncode == 0, done.stderr
        restored = Town(StorageRef(location))
        stack.callback(close, restored.place)
        report = checked(spark, restored)
        assert report == before
        assert report.violations == {}


async def test_a_fork_keeps_the_ids_of_old_states(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "town.naksha"
    for copy in ("town", "copy", "again"):
        if file.exists():
            await SqliteStorage.fork(file, copy)
        storage = await SqliteStorage.open(file, copy)
        async with storage.write("app") as session:
            if copy == "town":
                await session.create_collection(CollectionInfo(id="places"))
            await session.upsert("places", [point("a", 1.0, 2.0, by=copy), point(copy, 3.0, 4.0)])
        await storage.close()
    report = verify(
        spark, Verify(place=StorageRef(f"file:{file}"), collection="places"), SilentProgress()
    )
    assert (report.violations, report.found, report.states) == ({}, [], 6)


def test_a_namesake_of_the_collection_is_not_checked(spark: SparkSession, small_town: Town) -> None:
    small_town.put(point("a", 1.0, 2.0))
    small_town.run(lambda session: session.drop_collection("places"))
    small_town.call(lambda storage: storage.maintain())
    small_town.create_collection("places")
    small_town.put(point("a", 1.0, 2.0))
    report = checked(spark, small_town)
    assert (report.violations, report.states, report.transactions) == ({}, 1, 1)
    assert JOB.exit_code is not None
    assert JOB.exit_code(report) == 0


@pytest.mark.long
def test_a_branch_that_changed_much_is_read_as_a_whole(
    spark: SparkSession, small_town: Town
) -> None:
    ids = [f"f{n}" for n in range(limits.VERIFY_BRANCH_IDS_MAX + 1)]
    small_town.put(*(point(id_, 1.0, 2.0) for id_ in ids), point("other", 1.0, 2.0))
    small_town.branch("draft")
    small_town.put(*(point(id_, 3.0, 2.0) for id_ in ids), branch="draft")
    report = checked(spark, small_town)
    assert (report.violations, report.states) == ({}, 2 * len(ids) + 1)


# ---- What is broken ------------------------------------------------------------------------------

CASES = {
    "ends early": {Invariant.INTERVAL, Invariant.GAP},
    "ends late": {Invariant.OVERLAP},
    "lost": {Invariant.GAP, Invariant.VERSION, Invariant.PUUID},
    "jumps": {Invariant.VERSION},
    "follows another": {Invariant.PUUID},
    "buried alive": {Invariant.TOMBSTONE},
    "never lived": {Invariant.TOMBSTONE},
    "dead in head": {Invariant.TOMBSTONE, Invariant.LOG},
    "elsewhere": {Invariant.QRID},
    "born later": {Invariant.NAMESPACE},
    "misnamed": {Invariant.IDENTITY},
    "miscounted": {Invariant.LOG},
    "unlogged": {Invariant.LOG},
    "undead": {Invariant.TOMBSTONE, Invariant.LOG},
    "shapeless": {Invariant.GEOMETRY},
    "elsewhere too": {Invariant.QRID},
    "born again": {Invariant.VERSION, Invariant.PUUID, Invariant.LOG},
    "twice in one": {Invariant.PUUID},
    "gone": {Invariant.GAP, Invariant.LOG},
    "forgotten": {Invariant.GAP, Invariant.LOG},
    "logged elsewhere": {Invariant.LOG},
    "renumbered": {Invariant.INDEX},
}
"""Violated invariants by the name of the damaged feature; the log has no names."""
IN_A_FILE = {
    "ends late": {Invariant.OVERLAP, Invariant.INDEX},
    "moved": {Invariant.GEOMETRY, Invariant.NAMESPACE, Invariant.INDEX},
    "shapeless": {Invariant.GEOMETRY, Invariant.INDEX},
    "not in the tree": {Invariant.INDEX},
    "not in the past": {Invariant.INDEX},
    "not by its tag": {Invariant.INDEX},
    "not by its tag then": {Invariant.INDEX},
    "no more in the tree": {Invariant.INDEX},
    "told elsewhere": {Invariant.INDEX},
    "at another time": {Invariant.INDEX},
}
"""Damage that only SQLite can have, because its columns and indices are separate."""
IN_A_DATABASE = {
    "moved": {Invariant.QRID, Invariant.LOG},
    "shapeless": {Invariant.GEOMETRY, Invariant.LOG},
    "in another leaf": {Invariant.LEAF},
    "ended": {Invariant.INTERVAL, Invariant.GAP},
    # There a tombstone has a backup, which is what the log counts.
    "forgotten": {Invariant.TOMBSTONE},
}
"""The same of a database."""
ON_A_BRANCH = {
    "branch ends late": {Invariant.OVERLAP},
    "branch lost": {Invariant.GAP},
    "branch jumps": {Invariant.VERSION},
    "branch unlogged": {Invariant.LOG},
}
"""The same on a branch. What is lost is the state that it was given by main."""
IN_A_FILE_OF_A_BRANCH = {"branch ends late": {Invariant.OVERLAP, Invariant.INDEX}}


def history_of(town: Town) -> None:
    """Each feature has transactions of its own."""
    for id_ in dict.fromkeys([*CASES, *IN_A_FILE, *IN_A_DATABASE, "healthy", "vanished"]):
        for n in range(3):
            town.put(point(id_, 10.0 + n, 20.0, n=n, **{XYZ: {"tags": ["red"]}}))
    for id_ in ("buried alive", "never lived", "undead", "forgotten", "no more in the tree"):
        town.delete(id_)

    async def twice(session: WriteSession) -> None:
        for n in (3, 4):
            await session.upsert("places", [point("twice in one", 10.0, 20.0, n=n)])

    town.run(twice)
    town.put(point("buried alive", 1.0, 1.0))
    town.put(*(point(id_, 10.0, 20.0) for id_ in ON_A_BRANCH))
    town.branch("draft")
    for id_ in ON_A_BRANCH:
        town.put(point(id_, 11.0, 20.0), branch="draft")
    town.put(point("healthy", 1.0, 1.0))
    town.put(point("healthy", 2.0, 1.0), branch="draft")


def overlay_of(town: Town) -> str:
    """The table of what the branch has, in PostgreSQL."""

    async def found(storage: Storage) -> str:
        (draft,) = await branches(storage)
        number = (await storage.collection("places")).number
        return f"naksha_o{draft.number}_{number}"

    return town.call(found)


def broken_file(path: str) -> None:
    """Damage a file directly, without the storage."""
    connection = sqlite3.connect(path, isolation_level=None)
    execute = connection.execute
    columns = [row[1] for row in execute("PRAGMA table_info(naksha_del)")]
    names = ", ".join(columns)

    def json(id_: str, member: str, value: str, table: str = "naksha_head") -> None:
        where = f"""'$.properties."{XYZ}".{member}'"""
        execute(
            f"UPDATE {table} SET jsondata = json_set(jsondata, {where}, {value}) WHERE id = ?",
            (id_,),
        )

    execute("UPDATE naksha_shell SET managed = 1")
    execute("UPDATE naksha_hst SET txn_next = txn - 1 WHERE id = 'ends early' AND version = 2")
    execute("UPDATE naksha_hst SET txn_next = txn_next + 1 WHERE id = 'ends late' AND version = 1")
    execute("DELETE FROM naksha_hst WHERE id = 'lost' AND version = 2")
    execute("UPDATE naksha_head SET version = 9 WHERE id = 'jumps'")
    json("jumps", "version", "9")
    json("follows another", "puuid", "'town:places:2020:1:1:1'")
    tomb = "FROM naksha_hst WHERE id = 'buried alive' AND action = 'DELETE'"
    execute(f"INSERT INTO naksha_del ({names}) SELECT {names} {tomb}")
    execute(f"DELETE {tomb}")
    execute("DELETE FROM naksha_hst WHERE id = 'never lived'")
    execute("UPDATE naksha_head SET action = 'DELETE' WHERE id = 'dead in head'")
    json("dead in head", "action", "'DELETE'")
    execute("UPDATE naksha_head SET qrid = '000', mrid = '000' WHERE id = 'elsewhere'")
    json("elsewhere", "qrid", "'000'")
    json("elsewhere", "mrid", "'000'")
    json("born later", "createdAt", "4102444800000")
    uuid = f"""json_extract(jsondata, '$.properties."{XYZ}".uuid')"""
    json("misnamed", "uuid", f"replace({uuid}, ':places:', ':streets:')")
    first = "(SELECT txn FROM naksha_hst WHERE id = '{}' AND version = 1)"
    execute(f"UPDATE naksha_tx SET created = 5 WHERE txn = {first.format('miscounted')}")
    execute(f"DELETE FROM naksha_tx WHERE txn = {first.format('unlogged')}")
    execute("UPDATE naksha_del SET action = 'UPDATE' WHERE id = 'undead'")
    json("undead", "action", "'UPDATE'", "naksha_del")
    execute("UPDATE naksha_head SET geo = x'00' WHERE id = 'shapeless'")
    execute("UPDATE naksha_head SET mrid = '111' WHERE id = 'elsewhere too'")
    json("elsewhere too", "mrid", "'111'")
    execute("UPDATE naksha_head SET action = 'CREATE' WHERE id = 'born again'")
    json("born again", "action", "'CREATE'")
    json("twice in one", "puuid", "'town:places:2020:1:1:1'")
    execute("DELETE FROM naksha_head WHERE id = 'gone'")
    execute("DELETE FROM naksha_del WHERE id = 'forgotten'")
    where = f"WHERE action = 'MODIFY_FEATURES' AND txn = {first.format('logged elsewhere')}"
    execute(f"UPDATE naksha_tx SET west = 50, east = 51 {where}")
    execute("UPDATE naksha_head SET i = i + 1000000 WHERE id = 'renumbered'")
    execute("UPDATE naksha_head SET west = west - 1, author = 'eve' WHERE id = 'moved'")
    broken_indices(execute)
    execute("DELETE FROM naksha_head WHERE id = 'vanished'")
    execute("DELETE FROM naksha_hst WHERE id = 'vanished'")
    there = "t = (SELECT t FROM naksha_overlaid) AND id ="
    execute(f"UPDATE naksha_hst SET txn_next = txn_next + 1 WHERE {there} 'branch ends late'")
    execute(f"DELETE FROM naksha_hst WHERE {there} 'branch lost'")
    execute(f"UPDATE naksha_head SET version = 9 WHERE {there} 'branch jumps'")
    where = f"""'$.properties."{XYZ}".version'"""
    nine = f"json_set(jsondata, {where}, 9)"
    execute(f"UPDATE naksha_head SET jsondata = {nine} WHERE {there} 'branch jumps'")
    own = f"(SELECT txn FROM naksha_head WHERE {there} 'branch unlogged')"
    execute(f"DELETE FROM naksha_tx WHERE txn = {own}")
    execute("UPDATE naksha_shell SET managed = 0")
    connection.close()


def broken_indices(execute: Any) -> None:
    row = "(SELECT {} FROM {} WHERE id = '{}' LIMIT 1)".format
    execute(f"DELETE FROM naksha_box WHERE n = {row('n', 'naksha_head', 'not in the tree')}")
    execute(f"DELETE FROM naksha_past WHERE n = {row('n', 'naksha_hst', 'not in the past')}")
    execute(f"DELETE FROM naksha_tag WHERE n = {row('n', 'naksha_head', 'not by its tag')}")
    then = row("n", "naksha_hst", "not by its tag then")
    execute(f"UPDATE naksha_past_tag SET tag = 'blue' WHERE n = {then}")
    gone = row("n", "naksha_del", "no more in the tree")
    execute(f"UPDATE naksha_gone SET west = 50, east = 51 WHERE n = {gone}")
    text = '{"type":"Point","coordinates":[1.0,1.0]}'
    execute("UPDATE naksha_head SET geometry = ? WHERE id = 'told elsewhere'", (text,))
    execute("UPDATE naksha_head SET ord = ord + 1 WHERE id = 'at another time'")


def broken_slightly(path: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE naksha_shell SET managed = 1")
    connection.execute("DELETE FROM naksha_head WHERE id = 'b'")
    connection.execute("UPDATE naksha_shell SET managed = 0")
    connection.close()


LATE = "to_jsonb((naksha_xyz_txn_next(jsondata) + 1)::text)"
MEMBER = f"{{properties,{XYZ},%s}}"


async def broken_database(dsn: str, overlay: str) -> None:
    """Damage a database as a superuser, with triggers disabled."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("SET search_path = naksha, public")
    await connection.execute("SET session_replication_role = replica")
    await broken_main(connection)
    # What only a database can have wrong: there all of a state is in the document.
    await put_json(connection, "ended", "txn_next", "'\"2030010100000000001\"'")
    await in_another_leaf(connection, "in another leaf")
    await broken_branch(connection, overlay)
    await connection.close()


async def put_json(
    connection: Any, id_: str, member: str, value: str, where: str = "places", and_: str = ""
) -> None:
    """Change a member of the namespace."""
    await connection.execute(
        f"UPDATE {where} SET jsondata = jsonb_set(jsondata, '{MEMBER % member}', {value}) "
        f"WHERE jsondata->>'id' = '{id_}' {and_}"
    )


async def broken_branch(connection: Any, overlay: str) -> None:
    execute, past = connection.execute, f"{overlay}_hst"
    await put_json(connection, "branch ends late", "txn_next", LATE, past)
    await execute(f"DELETE FROM {past} WHERE jsondata->>'id' = 'branch lost'")
    await put_json(connection, "branch jumps", "version", "'9'", overlay)
    own = f"SELECT naksha_xyz_txn(jsondata) FROM {overlay} WHERE jsondata->>'id' = '{{}}'"
    await execute(f"DELETE FROM naksha_tx WHERE txn = ({own.format('branch unlogged')})")


async def broken_main(connection: Any) -> None:
    execute, json = connection.execute, partial(put_json, connection)

    def version(n: int) -> str:
        return f"AND naksha_xyz(jsondata)->>'version' = '{n}'"

    early = "to_jsonb((naksha_xyz_txn(jsondata) - 1)::text)"
    await json("ends early", "txn_next", early, "places_hst", version(2))
    await json("ends late", "txn_next", LATE, "places_hst", version(1))
    await execute(f"DELETE FROM places_hst WHERE jsondata->>'id' = 'lost' {version(2)}")
    await json("jumps", "version", "'9'")
    await json("follows another", "puuid", "'\"town:places:2020:1:1:1\"'")
    tomb = (
        "FROM places_hst WHERE jsondata->>'id' = 'buried alive' AND naksha_xyz_action(jsondata)"
        " = 'DELETE' AND naksha_xyz_txn(jsondata) < naksha_xyz_txn_next(jsondata)"
    )
    current = f"jsonb_set(jsondata, '{MEMBER % 'txn_next'}', '\"0\"')"
    await execute(f"INSERT INTO places_del SELECT i, geo, {current} {tomb}")
    await execute(f"DELETE {tomb}")
    await execute("DELETE FROM places_hst WHERE jsondata->>'id' = 'never lived'")
    await json("dead in head", "action", "'\"DELETE\"'")
    await json("elsewhere", "qrid", "'\"000\"'")
    await json("elsewhere", "mrid", "'\"000\"'")
    await json("born later", "createdAt", "'4102444800000'")
    named = "to_jsonb(replace(naksha_xyz(jsondata)->>'uuid', ':places:', ':streets:'))"
    await json("misnamed", "uuid", named)
    first = (
        "(SELECT naksha_xyz_txn(jsondata) FROM places_hst WHERE jsondata->>'id' = '{}' "
        + version(1)
        + ")"
    )
    await execute(f"UPDATE naksha_tx SET created = 5 WHERE txn = {first.format('miscounted')}")
    await execute(f"DELETE FROM naksha_tx WHERE txn = {first.format('unlogged')}")
    await execute(
        "UPDATE places SET geo = ST_Force3D(ST_SetSRID(ST_MakePoint(-70, -20), 4326)) "
        "WHERE jsondata->>'id' = 'moved'"
    )
    elsewhere = f"txn = {first.format('logged elsewhere')} AND action = 'MODIFY_FEATURES'"
    box = "ST_MakeEnvelope(50, 20, 51, 21, 4326)"
    await execute(f"UPDATE naksha_tx SET bbox = {box} WHERE {elsewhere}")
    await execute("UPDATE places SET i = i + 1000000 WHERE jsondata->>'id' = 'renumbered'")
    await json("undead", "action", "'\"UPDATE\"'", "places_del")
    await execute(
        "UPDATE places SET geo = ST_Force3D(ST_SetSRID(ST_MakePoint(500, 20), 4326)) "
        "WHERE jsondata->>'id' = 'shapeless'"
    )
    await json("elsewhere too", "mrid", "'\"111\"'")
    await json("born again", "action", "'\"CREATE\"'")
    await json("twice in one", "puuid", "'\"town:places:2020:1:1:1\"'")
    for table in ("places", "places_hst"):
        await execute(f"DELETE FROM {table} WHERE jsondata->>'id' = 'vanished'")
    await execute("DELETE FROM places WHERE jsondata->>'id' = 'gone'")
    await execute("DELETE FROM places_del WHERE jsondata->>'id' = 'forgotten'")


async def in_another_leaf(connection: Any, id_: str) -> None:
    """PostgreSQL itself keeps rows out of wrong partitions; but it believes its catalog."""
    right = id_hash(id_)[0]
    wrong = "5" if right != "5" else "6"
    key = "substring(md5(jsondata->>'id'), 1, 1)"
    believed = f"{key} IS NOT NULL AND {key} = '{wrong}'"
    row = f"WHERE jsondata->>'id' = '{id_}'"
    for text in (
        "SELECT naksha_grow('places')",
        f"ALTER TABLE places DETACH PARTITION places_p{wrong}",
        f"INSERT INTO places_p{wrong} SELECT * FROM places_p{right} {row}",
        f"DELETE FROM places_p{right} {row}",
        f"ALTER TABLE places_p{wrong} ADD CONSTRAINT believed CHECK ({believed}) NOT VALID",
        "UPDATE pg_constraint SET convalidated = true WHERE conname = 'believed'",
        f"ALTER TABLE places ATTACH PARTITION places_p{wrong} FOR VALUES IN ('{wrong}')",
    ):
        await connection.execute(text)


async def test_violations_are_reported(spark: SparkSession, town: Town, tmp_path: Path) -> None:
    history_of(town)
    lines: dict[str | None, dict[str, set[Invariant]]] = {
        None: CASES | (IN_A_FILE if town.is_file else IN_A_DATABASE),
        "draft": ON_A_BRANCH | (IN_A_FILE_OF_A_BRANCH if town.is_file else {}),
    }
    wanted: dict[tuple[str | None, str | None], set[str]] = {
        (branch, id_): named
        for branch, cases in lines.items()
        for id_, broken in cases.items()
        if (named := set(map(str, broken - {Invariant.LOG})))
    }
    if town.is_file:
        broken_file(town.path)
    else:
        await broken_database(town.place.location, overlay_of(town))
    # Besides, all states are gone that three transactions made, and three, and one.
    counts = {
        branch: sum(Invariant.LOG in broken for broken in cases.values())
        for branch, cases in lines.items()
    }
    counts[None] += sum({"vanished": 3, "never lived": 3, "lost": 1}.values())
    # What is gone from the tables of a file is still in its trees.
    nameless = {"log", "index"} if town.is_file else {"log"}
    wanted |= {(branch, None): nameless for branch in lines}
    report = checked(spark, town, output=str(tmp_path / "found"))
    found: dict[tuple[str | None, str | None], set[str]] = defaultdict(set)
    for violation in report.found:
        found[violation.branch, violation.feature].add(violation.invariant)
    assert found == wanted
    logged = [each.branch for each in report.found if each.invariant == Invariant.LOG]
    assert Counter(logged) == counts
    assert report.collection == "places"
    assert JOB.exit_code is not None
    assert JOB.exit_code(report) == status_codes_of(StorageCorrupt).exit_code
    assert sum(report.violations.values()) == len(report.found)
    assert len(pq.read_table(tmp_path / "found")) == len(report.found)


class ExpiringProgress(SilentProgress):
    """Progress that drops history while it is read."""

    def __init__(self, town: Town) -> None:
        self._town: Town | None = town
        self.lines: list[str] = []

    def phase(self, name: str, total: int | None = None) -> None:
        town = self._town
        if name == "reading" and town is not None:
            self._town = None
            tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
            town.call(lambda storage: storage.expire("places", tomorrow))

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_states_that_expire_during_the_check_are_not_missing(
    spark: SparkSession, small_town: Town
) -> None:
    for n in range(3):
        small_town.put(point("a", 1.0 + n, 2.0))
    progress = ExpiringProgress(small_town)
    report = verify(spark, Verify(place=small_town.place, collection="places"), progress)
    assert (report.found, report.states, report.complete_since) == ([], 1, 4)
    assert ["History expired during the check" in line for line in progress.lines] == [True]


class WritingProgress(SilentProgress):
    """Progress that writes to the collection at the start of each phase."""

    def __init__(self, town: Town) -> None:
        self._town = town
        self._count = 0

    def phase(self, name: str, total: int | None = None) -> None:
        self._count += 1
        self._town.put(point("a", 1.0, 2.0, n=self._count), point(f"f{self._count}", 1.0, 2.0))
        self._town.delete(f"f{self._count}")


def test_other_writers_are_allowed_without_history(spark: SparkSession, town: Town) -> None:
    for n in range(3):
        town.put(point("a", 1.0 + n, 2.0), point("b", 1.0, 2.0))
    switch_history(town, False)
    town.put(point("a", 9.0, 2.0))
    spec = Verify(place=town.place, collection="places")
    report = verify(spark, spec, WritingProgress(town))
    assert report.violations == {}
    assert report.complete_since == report.seq_number
    assert verify(spark, spec, SilentProgress()).violations == {}


@pytest.mark.long
def test_the_command_ends_with_another_exit_code(small_town: Town) -> None:
    small_town.put(point("a", 1.0, 2.0), point("b", 1.0, 2.0))
    arguments = ["job", "verify", "--storage", small_town.place.location, "--collection", "places"]
    assert naksha_command(*arguments, seconds_max=300).returncode == 0
    broken_slightly(small_town.path)
    ended = naksha_command(*arguments, "--json", seconds_max=300)
    assert ended.returncode == status_codes_of(StorageCorrupt).exit_code, ended.stderr
    last = msgspec.json.decode(ended.stdout.splitlines()[-1])
    assert (last["event"], last["report"]["violations"]) == ("done", {"index": 1, "log": 1})


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 40))
def test_nothing_is_wrong_with_many_histories(spark: SparkSession, town: Town, seed: int) -> None:
    stirred(town, seed, 40)
    branched(town, seed, 10)
    report = checked(spark, town)
    assert (report.found, report.complete_since) == ([], 0)
