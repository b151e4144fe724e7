"""The operations guide: restored backups and the table of exit codes."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.model.status_codes import EXIT_INTERRUPTED, OUTWARD
from naksha.model.version import HEAD, AtSeq, VersionSelector
from naksha.spi.storage import Storage
from naksha.spi.storage_factory import open_storage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.postgres import PostgresCluster
from tests.docs.blocks import ROOT, examples

GUIDE = ROOT / "docs" / "operations.md"
ROW = re.compile(r"^\| (?P<number>\d+) \| (?P<codes>[^|]*) \|", re.MULTILINE)


def road(speed: int) -> dict[str, object]:
    return {
        "type": "Feature",
        "id": "main",
        "geometry": {"type": "Point", "coordinates": [8.6, 50.1]},
        "properties": {"speed": speed},
    }


async def fill(storage: Storage) -> None:
    async with storage.write("test", "anna") as session:
        await session.create_collection(CollectionInfo(id="roads"))
        await session.create("roads", [road(50)])
    async with storage.write("test", "ben") as session:
        await session.update("roads", [road(30)])
    async with storage.write("test", "ben") as session:
        await session.delete("roads", ["main"])
    await storage.pin("kept", await storage.resolve(AtSeq(1)))


async def raw(storage: Storage, at: VersionSelector) -> list[bytes]:
    return [state.raw for state in (await storage.page("roads", Query(), at)).states]


async def test_a_restored_backup_reads_the_same_and_goes_on(
    database_factory: DatabaseFactory, postgres_cluster: PostgresCluster, tmp_path: Path
) -> None:
    blocks = examples(GUIDE, "bash")
    assert len(blocks) == 2  # the backup, and the fork of what is restored
    bins = (postgres_cluster.install.bindir, Path(sys.executable).parent, os.environ["PATH"])
    path = os.pathsep.join(map(str, bins))
    with database_factory.fresh() as maps, database_factory.fresh() as copy:
        async with open_storage(maps) as storage:
            await fill(storage)
            versions = [AtSeq(1), AtSeq(2), AtSeq(3)]
            before = [await raw(storage, at) for at in versions]
            for block in blocks:
                await asyncio.to_thread(
                    subprocess.run,
                    ["bash", "-euo", "pipefail", "-c", block.code],
                    cwd=tmp_path,
                    env=os.environ | {"MAPS": maps, "COPY": copy, "PATH": path},
                    check=True,
                )
        async with open_storage(copy) as storage:
            assert storage.id == "maps-copy"
            assert [await raw(storage, at) for at in versions] == before
            assert [len(states) for states in before] == [1, 1, 0]
            async with storage.write("test", "chen") as session:
                await session.restore("roads", ["main"])
            await storage.maintain()
            assert (await storage.resolve(HEAD)).seq_number == 4
            assert [await raw(storage, at) for at in versions] == before


def test_the_table_of_exit_codes_is_the_table_of_the_code() -> None:
    told = {
        code: int(row["number"])
        for row in ROW.finditer(GUIDE.read_text())
        for code in re.findall(r"`([a-z_]+)`", row["codes"])
    }
    assert told == {code: outward.exit_code for code, outward in OUTWARD.items()}
    assert f"| {EXIT_INTERRUPTED} |" in GUIDE.read_text()
