"""Generator of files in the format of 0.1, run once with the code of that release:

    python -m tests.data.written_by_0_1.make_fixtures [storage hub psql archive tokens settings]

Each part writes its files beside this one, with what the same code answers about them. The content
is always the same; times, and ids that are made from them, are those of the run.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import naksha
from naksha.model.collection import CollectionInfo
from naksha.model.errors import MergeConflict
from naksha.spi.storage_factory import open_storage
from naksha.testing.servers.hub_server import HubServer
from naksha.testing.servers.postgres import PostgresCluster
from naksha.versioning import Attribution, EditStep, import_history
from tests.compatibility.answers import (
    Answers,
    hub_answers,
    settings_answers,
    storage_answers,
    token_answers,
)
from tests.compatibility.opening import (
    DATA,
    HUB_FILES,
    hub_arguments,
    server_environment,
    unpacked,
)

XYZ: Final = "@ns:com:here:xyz"
POINT: Final = {"type": "Point", "coordinates": [8.5, 50.25]}
LINE: Final = {"type": "LineString", "coordinates": [[8.1, 50.1, 120.5], [8.2, 50.3, 131.25]]}
AREA: Final = {
    "type": "Polygon",
    "coordinates": [[[8.0, 49.5], [8.75, 49.5], [8.75, 50.0], [8.0, 50.0], [8.0, 49.5]]],
}
SUBSCRIBED_SECONDS: Final = 60.0
FOREVER_HOURS: Final = 24 * 365 * 100


def feature(id: str, geometry: Mapping[str, Any] | None, *tags: str, **more: Any) -> dict[str, Any]:
    namespace = {XYZ: {"tags": list(tags)}} if tags else {}
    return {"type": "Feature", "id": id, "geometry": geometry, "properties": more | namespace}


# ---- A storage -----------------------------------------------------------------------------------


def fill_storage(location: str, **options: Any) -> None:
    """Several collections, with everything that a storage keeps."""
    with naksha.connect(location, app_id="maker", author="ann", storage_id="town", **options) as db:
        roads = db.create_collection("roads", author="city")
        roads.create([feature("a", LINE, "main", speed=50), feature("b", AREA, speed=30)])
        roads.create([feature("c", POINT, "side", speed=10), feature("ä/ 'x'", None, n=[1, 2.5])])
        db.versions.tag("first")
        with db.transaction("a street fair", author="bob") as transaction:
            transaction.collection("roads").update(feature("a", LINE, "main", speed=60))
            transaction.collection("roads").delete("c")
        shops = db.create_collection("shops", id_prefix="s-", max_age=365_000)
        shops.create([feature("s-1", POINT, name="Bäcker"), feature("s-2", POINT, name="Fish")])
        shops.delete("s-1")
        shops.restore("s-1")
        shops.put_meta({"id": "style", "type": "Feature", "properties": {"color": "red"}})
        db.create_collection("gone").create(feature("g", POINT))
        db.drop_collection("gone", 32_503_680_000_000)
        idea = db.versions.create_branch("idea", message="a bypass")
        idea["roads"].upsert([feature("d", LINE, speed=80), feature("b", AREA, speed=20)])
        db.versions.merge("idea", message="built")
        idea["roads"].upsert(feature("e", LINE, speed=90))
        rival = db.versions.create_branch("rival")
        rival["roads"].update(feature("a", LINE, speed=70))
        roads.update(feature("a", LINE, "main", speed=65))
        roads.create(feature("c", POINT, "side", speed=15))
        with suppress(MergeConflict):  # which the storage keeps
            db.versions.merge("rival")
        roads.delete("b")
        points = db.create_collection("points", history_enabled=False)
        points.create([feature("p", POINT, n=1)])
        points.update(feature("p", POINT, n=2))
        while db.call(db.root.publication()).unpublished:
            time.sleep(0.01)


def answers_of(location: str, **options: Any) -> Answers:
    with naksha.connect(location, read_only=True, **options) as db:
        return storage_answers(db)


def make_storage(folder: Path) -> None:
    fill_storage(f"file:{folder}/town.naksha")
    pack("town.naksha", (folder / "town.naksha").read_bytes())
    note("town", answers_of(f"file:{unpacked('town.naksha', folder / 'copy')}"))


# ---- A hub ---------------------------------------------------------------------------------------


def fill_hub(client: httpx.Client, other: Mapping[str, Any]) -> None:
    """At least one object of every kind."""

    def post(path: str, **body: Any) -> Any:
        answer = client.post(path, json=body)
        assert answer.is_success, f"{path}: {answer.text}"
        return answer.json()

    def put(space: str, *features: Any, **query: Any) -> None:
        body = {"type": "FeatureCollection", "features": features}
        client.put(f"/spaces/{space}/features", json=body, params=query).raise_for_status()

    post("/roles", id="reader", urm={"naksha": {"readFeatures": [{"spaceId": "roads"}]}})
    post("/storages", id="other", className="naksha", properties=dict(other))
    post("/spaces", id="roads", title="Roads", tags=["open"], uuidLock=False, mine={"kept": 1})
    post("/spaces", id="towns", title="Towns", storage={"id": "other"})
    post("/spaces", id="edits", title="EditStep", extends={"spaceId": "roads"})
    view = {"spaceIds": ["edits", "towns"], "viewType": "UNION"}
    post("/connectors", id="all", className="view", properties=view)
    post("/connectors", id="file", className="json-lines", properties={"path": "told.jsonl"})
    post("/connectors", id="off", className="tag-filter", active=False, properties={"add": ["x"]})
    post("/spaces", id="map", title="All of it", eventHandlerIds=["all"])
    source = {"spaceId": "roads"}
    post("/subscriptions", id="tell", source=source, eventHandlerIds=["file"], keepDays=366)
    put("roads", feature("a", LINE, "main", speed=50), feature("b", AREA, speed=30))
    put("towns", feature("t", POINT, name="Town"))
    post("/spaces/roads/tags", id="summer", description="before the fair")
    put("roads", feature("a", LINE, "main", speed=60), feature("c", POINT, speed=10))
    client.delete("/spaces/roads/features", params={"id": "c"}).raise_for_status()
    post("/spaces/roads/branches", id="fix", description="a new road")
    put("roads", feature("b", AREA, speed=20), versionRef="fix")
    post("/spaces/roads/branches/fix", type="Merge", targetBranchId="main", message="built")
    post("/spaces/roads/branches", id="open")
    put("roads", feature("a", LINE, speed=70), versionRef="open")
    put("roads", feature("a", LINE, "main", speed=65))
    merge = {"type": "Merge", "targetBranchId": "main"}
    assert client.post("/spaces/roads/branches/open", json=merge).status_code == 409
    put("edits", feature("a", LINE, speed=100), feature("z", POINT))
    post("/jobs", id="check", job="verify", spaceId="roads")
    area = {"geometry": AREA, "radius": 10}
    where = {"actions": ["CREATE"], "spatialFilter": area, "properties": "p.speed>20"}
    more = {"filter": where, "active": False, "keepDays": 366}
    post("/subscriptions", id="later", source=source, eventHandlerIds=["file"], **more)
    until_delivered(client)


def until_delivered(client: httpx.Client) -> None:
    """The position of the subscription is that of the last change."""
    deadline = time.monotonic() + SUBSCRIBED_SECONDS
    last = client.get("/spaces/roads/changesets/statistics").json()["maxVersion"]
    while client.get("/subscriptions/tell").json()["status"].get("version", 0) < last:
        assert time.monotonic() < deadline, client.get("/subscriptions/tell").text
        time.sleep(0.1)


@contextmanager
def serving(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[httpx.Client]:
    hub = HubServer(folder, arguments=hub_arguments(folder, environment), environment=environment)
    with hub, httpx.Client(base_url=f"{hub.url}/hub", timeout=60) as client:
        yield client


def make_hub(folder: Path) -> None:
    with serving(folder) as client:
        fill_hub(client, {"location": "file:other.naksha"})
    copy = folder / "copy"
    for name in HUB_FILES:
        pack(f"hub.{name}", (folder / name).read_bytes())
        unpacked(f"hub.{name}", copy, name)
    with serving(copy) as client:
        note("hub", hub_answers(client))


# ---- PostgreSQL ----------------------------------------------------------------------------------


def make_psql(folder: Path) -> None:
    with PostgresCluster({"fsync": False}) as cluster:
        dsn = cluster.create_database("maker")
        cluster.execute("CREATE EXTENSION postgis SCHEMA public", "maker")
        fill_storage(dsn, schema="town")
        environment = server_environment(dsn)
        with serving(folder, environment) as client:
            fill_hub(client, {"location": "postgresql://", "schema": "naksha_other"})
        command = [cluster.install.program("pg_dump"), "--format=plain", "--no-owner"]
        schemas = ["--schema=town", "--schema=naksha*"]
        dump = subprocess.run([*command, *schemas, dsn], capture_output=True, check=True).stdout
        pack("psql.sql", plain_sql(dump))
        copy = cluster.create_database("copy")
        cluster.execute("CREATE EXTENSION postgis SCHEMA public", "copy")
        cluster.execute(gzip.decompress((DATA / "psql.sql.gz").read_bytes()).decode(), "copy")
        note("psql_town", answers_of(copy, schema="town"))
        (folder / "copy").mkdir()
        with serving(folder / "copy", server_environment(copy)) as client:
            note("psql_hub", hub_answers(client))


def plain_sql(dump: bytes) -> bytes:
    """Without what only the newest psql and server understand."""
    new = (b"\\restrict", b"\\unrestrict", b"SET transaction_timeout")
    return b"\n".join(line for line in dump.split(b"\n") if not line.startswith(new))


# ---- Archive, tokens and settings ----------------------------------------------------------------


def make_archive(folder: Path) -> None:
    """History of a file, which is in the archive now and in the file no more."""
    location = f"file:{folder}/archived.naksha"
    steps = [
        EditStep(ms(1, 1), [feature(id, LINE, "main", n=1) for id in "abc"]),
        EditStep(ms(1, 2), [feature("a", LINE, n=2)], ["b"]),
        EditStep(ms(2, 1), [feature("b", POINT, n=3), feature("d", None, n=3)]),
        EditStep(ms(2, 20), [feature("a", LINE, n=4)], ["d"]),
        EditStep(ms(3, 1), [feature("a", AREA, n=5)], ["c"]),
    ]
    asyncio.run(imported(location, steps))
    with naksha.connect(location, read_only=True) as db:
        features = {
            str(version): {
                one["id"]: one["properties"]["n"] for one in db["roads"].at(version).query()
            }
            for version in range(1, db.version().seq_number + 1)
        }
    archive = folder / "archive"
    command = [*("job", "archive", "--storage", location, "--collection", "roads")]
    run_naksha(*command, "--archive", str(archive), "--older-than-days", "1", "--json")
    manifest = archive / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(archive), "/srv/archive"))
    unneeded = shutil.ignore_patterns(".lock")
    shutil.rmtree(DATA / "archive", ignore_errors=True)
    shutil.copytree(archive, DATA / "archive", ignore=unneeded)
    pack("archived.naksha", (folder / "archived.naksha").read_bytes())
    note("archive", features)


async def imported(location: str, steps: list[EditStep]) -> None:
    async with open_storage(location, "archived") as storage:
        signed = Attribution("importer", None, "as it was")
        done = await import_history(storage, CollectionInfo(id="roads"), steps, signed)
        assert await storage.wait_published(max(each.txn or 0 for each in done), 60) is not None


def ms(month: int, day: int) -> int:
    return int(datetime(2021, month, day, tzinfo=UTC).timestamp() * 1000)


def make_tokens(folder: Path) -> None:
    """Keys made for this only, and a token that each of them has signed."""
    (DATA / "test.secret").write_text("only for tests: 0123456789abcdef0123456789\n")
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (DATA / "test.pem").write_bytes(pem)
    rights = '{"naksha": {"readFeatures": [{"spaceId": "roads"}], "roles": ["reader"]}}'
    common = ["token", "app", "--author", "ann", "--rights", rights, "--hours", str(FOREVER_HOURS)]
    made = {}
    for key in ("secret:test.secret", "pem:test.pem"):
        form, _, name = key.partition(":")
        where = f"{form}:{DATA / name}"
        token = run_naksha(*common, "--key", where).strip()
        made[key] = {"token": token, "says": token_answers(where, token)}
    note("tokens", made)


def make_settings(_folder: Path) -> None:
    """The file is written by hand, with all settings that there are."""
    note("settings", settings_answers(DATA / "settings.toml"))


def run_naksha(*arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("naksha"))]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- Files ---------------------------------------------------------------------------------------


def pack(name: str, content: bytes) -> None:
    (DATA / f"{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))


def note(name: str, answers: Answers) -> None:
    text = msgspec.json.format(msgspec.json.encode(answers, order="sorted"), indent=1)
    pack(f"{name}.json", text)


PARTS: Final = {
    "storage": make_storage,
    "hub": make_hub,
    "psql": make_psql,
    "archive": make_archive,
    "tokens": make_tokens,
    "settings": make_settings,
}


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        with tempfile.TemporaryDirectory(prefix="naksha-fixtures-") as folder:
            PARTS[name](Path(folder))
    sizes = [path.stat().st_size for path in DATA.rglob("*") if path.is_file()]
    sys.stdout.write(f"{DATA} has {len(sizes)} files, {sum(sizes):,} bytes\n")


if __name__ == "__main__":
    main()
