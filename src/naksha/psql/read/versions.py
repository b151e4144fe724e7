"""Resolution of version selectors to published versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from naksha.model import limits
from naksha.model.errors import CollectionNotFound, Expired, NotYetPublished, VersionNotFound
from naksha.model.version import AtSeq, AtTime, AtTxn, Version, VersionSelector
from naksha.psql.connection.driver import Connection
from naksha.psql.sql import queries

BEGINNING = Version(0, 0, 0)
"""The empty version before the first transaction."""


class Partitions(NamedTuple):
    """Fingerprint of a history's partitions, enough to notice new ones."""

    number: int
    youngest: int


async def resolve(
    connection: Connection, at: VersionSelector, collection: str | None = None
) -> Version:
    """Return the version of a selector; see `Storage.resolve`.

    The caller has published what can be.
    """
    version = await known(connection, at)
    if version is None:
        last = await _version(connection, "last_version") or BEGINNING
        match at:
            case AtSeq(seq_number):
                version = await _missing_seq(connection, seq_number, last)
            case AtTxn(txn):
                version = await _missing_txn(connection, txn, last)
            case AtTime(epoch_ms):
                version = await _by_time(connection, epoch_ms, last)
            case _:
                version = last
    if collection is not None:
        await check_history(connection, collection, version.txn)
    return version


async def known(connection: Connection, at: VersionSelector) -> Version | None:
    """Return the version with a given number, if it is published.

    A published version never changes, so nothing else needs to be checked or published before.
    """
    match at:
        case AtSeq(0):
            return BEGINNING
        case AtSeq(seq_number):
            return await _version(connection, "version_by_seq", seq_number)
        case AtTxn(txn):
            return await _version(connection, "version_by_txn", txn)
    return None


async def _missing_seq(connection: Connection, seq_number: int, last: Version) -> Version:
    if seq_number < 0:
        raise VersionNotFound(f"Version {seq_number} does not exist; versions are numbered from 0")
    if seq_number > last.seq_number:
        raise NotYetPublished(
            f"Version {seq_number} is not published yet; the last version is {last.seq_number}"
        )
    # It may have been published between the two queries.
    found = await known(connection, AtSeq(seq_number))
    return found or await _gone(connection, f"Version {seq_number}")


async def _missing_txn(connection: Connection, txn: int, last: Version) -> Version:
    if txn > last.txn:
        raise NotYetPublished(
            f"Transaction {txn} is not published yet; the last published one is {last.txn}"
        )
    found = await known(connection, AtTxn(txn))
    if found is not None:
        return found
    first = await _version(connection, "first_version")
    if first is not None and first.seq_number > 1 and txn < first.txn:
        return await _gone(connection, f"Transaction {txn}")
    raise VersionNotFound(f"Transaction {txn} does not exist")


async def _by_time(connection: Connection, epoch_ms: int, last: Version) -> Version:
    if epoch_ms > last.published_ms:
        raise NotYetPublished(
            f"The version at {epoch_ms} ms is not published yet; the last version was published at "
            f"{last.published_ms} ms"
        )
    version = await _version(connection, "version_by_time", epoch_ms)
    if version is not None:
        return version
    first = await _version(connection, "first_version")
    if first is not None and first.seq_number > 1:
        return await _gone(connection, f"The version at {epoch_ms} ms")
    return BEGINNING


async def _gone(connection: Connection, what: str) -> Version:
    first = await _version(connection, "first_version")
    oldest = None if first is None else first.seq_number
    raise Expired(f"{what} has expired; the oldest version kept is {oldest}", oldest=oldest)


async def check_history(connection: Connection, collection: str, txn: int | None) -> Partitions:
    """Raise Expired if history that the version `txn` needs was removed.

    Returns the current partitions; the connection knows all of them afterwards.
    """
    return (await check_histories(connection, [(collection, txn)]))[collection]


async def check_histories(
    connection: Connection, wanted: Sequence[tuple[str, int | None]]
) -> dict[str, Partitions]:
    """Check the histories of several collections or overlays; see `check_history`."""
    names = [collection for collection, _ in wanted]
    rows = {row["id"]: row for row in await connection.fetch(queries()["history_now"], names)}
    for collection, txn in wanted:
        row = rows.get(collection)
        if row is None:
            raise CollectionNotFound(
                f"The collection {collection!r} does not exist", collection_id=collection
            )
        if txn is not None and txn < row["floor"]:
            oldest = await _version(connection, "version_from_txn", row["floor"])
            seq_number = None if oldest is None else oldest.seq_number
            raise Expired(
                f"History before version {seq_number} of {row['name']!r} has expired",
                oldest=seq_number,
                collection_id=row["name"],
            )
    return {name: Partitions(row["partitions"], row["youngest"]) for name, row in rows.items()}


async def check_log(connection: Connection, txn: int) -> None:
    """Raise Expired if the transaction is older than the log."""
    first = await _version(connection, "first_version")
    if first is not None and first.seq_number > 1 and txn < first.txn:
        await _gone(connection, f"Transaction {txn}")


async def check_log_window(connection: Connection, after: int, newest_first: bool) -> None:
    """Raise Expired if the log does not go back to the version after `after`.

    With `newest_first` the log may end anywhere; only a start at a removed version is an error.
    """
    first = await _version(connection, "first_version")
    wanted = (after or limits.INT8_MAX) if newest_first else after + 1
    if first is not None and wanted < first.seq_number:
        await _gone(connection, f"Version {wanted}")


async def _version(connection: Connection, query: str, *values: Any) -> Version | None:
    row = await connection.fetchrow(queries()[query], *values)
    return None if row is None else Version(row["seq_number"], row["txn"], row["ms"])


async def by_txn(connection: Connection, txn: int) -> Version | None:
    """Return the version that a transaction was published as; None if it is not published."""
    return await _version(connection, "version_by_txn", txn)
