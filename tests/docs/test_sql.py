"""The SQL blocks of the documents, run in order and compared with the documented output."""

import os
import subprocess
from pathlib import Path

import pytest

from naksha.spi.storage_factory import open_storage
from naksha.testing.servers.postgres import PostgresCluster
from tests.docs.blocks import DOCUMENTS, ROOT, Example, examples, plain

WITH_SQL = [document for document in DOCUMENTS if examples(document, "sql")]


@pytest.fixture
async def new_storage(database: str) -> str:
    """DSN of a database with an installed storage that is not open."""
    async with open_storage(database):
        pass
    return database


def run(psql: str, dsn: str, example: Example) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [psql, "-X", "-v", "ON_ERROR_STOP=1", "-d", dsn],
        input=example.code,
        env=os.environ | {"PGOPTIONS": "-c search_path=naksha,public", "PAGER": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def as_promised(result: subprocess.CompletedProcess[str], example: Example) -> bool:
    if example.kind == "sql error":
        first = result.stderr.splitlines()[:1]
        return result.returncode != 0 and first == plain(example.promised or "")
    if result.returncode != 0:
        return False
    return example.promised is None or plain(result.stdout) == plain(example.promised)


@pytest.mark.parametrize("document", WITH_SQL, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_sql_block_has_the_documented_output(
    document: Path, new_storage: str, postgres_cluster: PostgresCluster
) -> None:
    psql = postgres_cluster.install.program("psql")
    for example in examples(document, "sql"):
        result = run(psql, new_storage, example)
        place = f"{document.name}:{example.line}"
        assert as_promised(result, example), f"{place}\n{result.stdout}{result.stderr}"


def test_there_are_such_documents() -> None:
    assert ROOT / "docs" / "storage.md" in WITH_SQL
