"""The shell examples of the document about files, compared with the documented output."""

import subprocess
from pathlib import Path

import naksha
from tests.docs.blocks import ROOT, examples, plain


def test_every_block_in_order(tmp_path: Path) -> None:
    path = tmp_path / "town.naksha"
    roads = [
        {"type": "Feature", "id": key, "geometry": None, "properties": {"speed": 50}}
        for key in ("a", "b")
    ]
    with (
        naksha.connect(f"file:{path}", app_id="survey") as db,
        db.transaction() as transaction,
    ):
        transaction.create_collection("roads")
        transaction["roads"].create(roads)
    found = examples(ROOT / "docs" / "sqlite.md", "sqlite")
    assert found
    for example in found:
        done = subprocess.run(
            ["sqlite3", "-box", "-batch", "-bail", str(path)],
            input=example.code,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        assert example.promised is not None
        assert plain(done.stdout) == plain(example.promised)
