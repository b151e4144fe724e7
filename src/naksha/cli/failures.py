"""Errors as a person reads them: one sentence, a way out, and an exit code of the one table."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from logging.handlers import MemoryHandler
from typing import Final

import typer

from naksha.model.errors import NakshaError, NotSupported
from naksha.model.status_codes import EXIT_INTERRUPTED, outward

WAYS_OUT: Final = {
    "not_yet_published": "Ask again in a moment.",
    "retryable": "Nothing was written; run the command again.",
    "unavailable": "Is the server running, and are host, port, user and database right?",
    "storage_corrupt": "Please report this, with the message above.",
}
"""By code; an error without one says itself what to do."""
LINES_MAX: Final = 1000
"""Of asyncio's log, held back until the end."""
NO_POSTGIS: Final = (
    "Install PostGIS on the server (Debian: postgresql-postgis), "
    "then run CREATE EXTENSION postgis in the database as its superuser."
)


@contextmanager
def readable(*, as_json: bool = False, ends_soon: bool = True) -> Iterator[None]:
    """Run a command; what Naksha raises on purpose ends it with a sentence, not a traceback. One
    that does not end soon has its own log."""
    with _held_back() if ends_soon else nullcontext(_nothing()) as said:
        try:
            yield
        except NakshaError as error:
            _tell(error, as_json)
            raise typer.Exit(outward(error).exit_code) from error
        except KeyboardInterrupt as error:
            # What interrupted tasks leave unread is no news on the way out.
            said.buffer.clear()
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from error


def _nothing() -> MemoryHandler:
    return MemoryHandler(LINES_MAX)


@contextmanager
def _held_back() -> Iterator[MemoryHandler]:
    """What asyncio has to say is told at the end, when it is known whether it matters."""
    handler = MemoryHandler(LINES_MAX, logging.CRITICAL + 1, logging.StreamHandler())
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler
    finally:
        handler.close()
        logger.removeHandler(handler)
        logger.propagate = True


def way_out(error: NakshaError) -> str | None:
    """What to do about it, where the message does not say."""
    if isinstance(error, NotSupported) and "PostGIS" in error.message:
        return NO_POSTGIS
    if error.field in ("port", "data"):  # of our own server, and the message says what to do
        return None
    return WAYS_OUT.get(error.code)


def _tell(error: NakshaError, as_json: bool) -> None:
    hint = way_out(error)
    sentence = " ".join(str(error).split())
    if as_json:
        typer.echo(
            json.dumps({"error": {"code": error.code, "message": sentence, "hint": hint}}), err=True
        )
        return
    typer.echo(f"naksha: {sentence}", err=True)
    if hint is not None:
        typer.echo(f"        {hint}", err=True)
