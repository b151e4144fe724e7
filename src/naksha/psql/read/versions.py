"""Resolution of version selectors to published versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from naksha.model import limits
from naksha.model.errors import Expired, NotYetPublished, VersionNotFound
from naksha.model.identity.names import collection_not_found
from naksha.model.version import AtSeq, AtTime, AtTxn, Version, VersionSelector
from naksha.psql.connection.driver import Connection
from naksha.psql.sql import queries, sql

BEGINNING: Final = Version(0, 0, 0)
"""The empty version before the first transaction."""


async def resolve(
    connection: Connection,
    at: VersionSelector,
    collection: str | None = None,
    *,
    has_published: bool = True,
) -> Version:
    """Return the version of a selector; see `Storage.resolve`.

    Unless the caller has published what can be, a version that may come only with the next
    publication raises NotYetPublished.
    """
    version = await _resolve(connection, at, has_published)
    if collection is not None:
        await check_histories(connection, [(collection, version.txn)])
    return version


async def _resolve(connection: Connection, at: VersionSelector, has_published: bool) -> Version:
    match at:
        case AtSeq(seq_number):
            if seq_number == 0:
                return BEGINNING
            found, first, last = await _find(connection, "version_of_seq", seq_number)
            return found or _raise_for_seq(seq_number, first, last)
        case AtTxn(txn):
            found, first, last = await _find(connection, "version_of_txn", txn)
            return found or _raise_for_txn(txn, first, last)
        case AtTime(epoch_ms):
            found, first, last = await _find(connection, "version_of_time", epoch_ms)
            _check_time(epoch_ms, last, has_published)
            if found is None and _lost_versions(first):
                _raise_expired(f"The version at {epoch_ms} ms", first)
            return found or BEGINNING
    return await _version(connection, "last_version") or BEGINNING


async def _find(
    connection: Connection, condition: str, value: int
) -> tuple[Version | None, Version | None, Version]:
    """Return the version that a condition selects, the first and the last one."""
    rows = await connection.fetch(sql("versions", found=sql(condition)), value)
    versions = {row["kind"]: Version(row["seq_number"], row["txn"], row["ms"]) for row in rows}
    return versions.get("found"), versions.get("first"), versions.get("last", BEGINNING)


def _raise_for_seq(seq_number: int, first: Version | None, last: Version) -> NoReturn:
    if seq_number < 0:
        raise VersionNotFound(f"Version {seq_number} does not exist; versions are numbered from 0")
    if seq_number > last.seq_number:
        raise NotYetPublished(
            f"Version {seq_number} is not published yet; the last one is {last.seq_number}; retry "
            "later, or use an earlier version"
        )
    _raise_expired(f"Version {seq_number}", first)


def _raise_for_txn(txn: int, first: Version | None, last: Version) -> NoReturn:
    if txn > last.txn:
        raise NotYetPublished(
            f"Transaction {txn} is not published yet; the last published one is {last.txn}; retry "
            "later, or use an earlier transaction"
        )
    if first is not None and _lost_versions(first) and txn < first.txn:
        _raise_expired(f"Transaction {txn}", first)
    raise VersionNotFound(f"Transaction {txn} does not exist; correct its number")


def _check_time(epoch_ms: int, last: Version, has_published: bool) -> None:
    """Refuse a time whose version is not final: the next one may have the same time."""
    if epoch_ms > last.published_ms or (epoch_ms == last.published_ms and not has_published):
        raise NotYetPublished(
            f"The version at {epoch_ms} ms is not published yet; the last version was published at "
            f"{last.published_ms} ms; use an earlier time, or retry later"
        )


def _lost_versions(first: Version | None) -> bool:
    return first is not None and first.seq_number > 1


def _raise_expired(what: str, first: Version | None) -> NoReturn:
    oldest = None if first is None else first.seq_number
    raise Expired(f"{what} has expired; the oldest version kept is {oldest}", oldest=oldest)


async def check_histories(connection: Connection, wanted: Sequence[tuple[str, int | None]]) -> None:
    """Raise Expired if history that some collections or overlays need was removed.

    Each comes with the transaction from which on its history is needed, None for no history.
    """
    names = [collection for collection, _ in wanted]
    rows = {row["id"]: row for row in await connection.fetch(queries()["history_floors"], names)}
    for collection, txn in wanted:
        row = rows.get(collection)
        if row is None:
            raise collection_not_found(collection)
        if txn is not None and txn < row["floor"]:
            oldest = await _version(connection, "version_from_txn", row["floor"])
            seq_number = None if oldest is None else oldest.seq_number
            raise Expired(
                f"History before version {seq_number} of {row['name']!r} has expired; read "
                f"version {seq_number} or a later one",
                oldest=seq_number,
                collection_id=row["name"],
            )


async def check_log(connection: Connection, txn: int) -> None:
    """Raise Expired if the transaction is older than the log."""
    first = await _version(connection, "first_version")
    if first is not None and _lost_versions(first) and txn < first.txn:
        _raise_expired(f"Transaction {txn}", first)


async def check_log_window(connection: Connection, after: int, newest_first: bool) -> None:
    """Raise Expired if the log does not go back to the version after `after`.

    With `newest_first` the log may end anywhere; only a start at a removed version is an error.
    """
    first = await _version(connection, "first_version")
    wanted = (after or limits.INT8_MAX) if newest_first else after + 1
    if first is not None and wanted < first.seq_number:
        _raise_expired(f"Version {wanted}", first)


async def by_txn(connection: Connection, txn: int) -> Version | None:
    """Return the version that a transaction was published as; None if it is not published."""
    return await _version(connection, "version_by_txn", txn)


async def _version(connection: Connection, query: str, *values: Any) -> Version | None:
    row = await connection.fetchrow(queries()[query], *values)
    return None if row is None else Version(row["seq_number"], row["txn"], row["ms"])
