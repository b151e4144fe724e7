"""Versions of an archive, by number, transaction and time.

The log of the storage has its own retention, so an archive stores versions itself. Each segment has
the versions since the previous segment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from naksha.model import limits
from naksha.model.errors import Expired
from naksha.model.transaction import LogFilter, Transaction
from naksha.model.version import AtSeq, AtTime, AtTxn, Version
from naksha.spi.storage import Storage

FILE: Final = "_versions"
"""Parquet file in the directory of a segment. Its name has no suffix, so that a reader of
`*.parquet` gets states only."""
_COLUMNS: Final = ("seq_number", "txn", "published_ms")
_SCHEMA: Final = pa.schema([(name, pa.int64()) for name in _COLUMNS])
_EVERYWHERE: Final = LogFilter(overlays=None)


async def keep_versions(storage: Storage, path: Path, after: int, last: int) -> None:
    """Write the versions after `after` up to `last` to a file, as far as the log still has them."""
    with pq.ParquetWriter(path, _SCHEMA) as file:
        rows: list[Version] = []
        while after < last:
            page = await _page(storage, after)
            rows += [Version(*known) for known in map(_known, page) if known[0] <= last]
            after = page[-1].seq_number or last
            if len(rows) >= limits.ARCHIVE_VERSIONS_GROUP or after >= last:
                columns = zip(*((v.seq_number, v.txn, v.published_ms) for v in rows), strict=True)
                file.write_table(pa.table([pa.array(c) for c in columns], schema=_SCHEMA))
                rows = []


async def _page(storage: Storage, after: int) -> list[Transaction]:
    """Read the next page of transactions; skip those that the log has dropped."""
    try:
        return await storage.transactions(after, limits.VERIFY_LOG_PAGE, _EVERYWHERE)
    except Expired as error:
        if error.oldest is None or error.oldest <= after + 1:
            raise
        return await storage.transactions(error.oldest - 1, limits.VERIFY_LOG_PAGE, _EVERYWHERE)


def _known(transaction: Transaction) -> tuple[int, int, int]:
    number, at_ms = transaction.seq_number, transaction.published_ms
    assert number is not None
    assert at_ms is not None
    return number, transaction.txn, at_ms


async def find_version(
    storage: Storage, files: list[Path], at: AtSeq | AtTxn | AtTime
) -> Version | None:
    """Find a version in the files; None if it is not certain that they have it."""
    match at:
        case AtSeq(number):
            return _last(files, pc.field("seq_number") == number)
        case AtTxn(txn):
            return _last(files, pc.field("txn") == txn)
        case AtTime(epoch_ms):
            found = _last(files, pc.field("published_ms") <= epoch_ms)
            if found is None or await _is_known(storage, files, found.seq_number + 1):
                return found
    return None  # an unknown version after the found one may be closer to the time


async def _is_known(storage: Storage, files: list[Path], number: int) -> bool:
    if _last(files, pc.field("seq_number") == number) is not None:
        return True
    try:
        await storage.resolve(AtSeq(number))
    except Expired:
        return False
    return True


def _last(files: list[Path], condition: Any) -> Version | None:
    """Return the last version that satisfies a condition."""
    found = [pq.read_table(path, filters=condition) for path in files if path.is_file()]
    rows = [each.slice(each.num_rows - 1).to_pylist()[0] for each in found if each.num_rows]
    return max((Version(**row) for row in rows), default=None)
