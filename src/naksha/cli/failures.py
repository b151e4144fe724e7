"""Report errors on the command line: one sentence, a hint, and an exit code."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from logging.handlers import MemoryHandler
from typing import Final

import typer

from naksha.model.errors import NakshaError, NotSupported
from naksha.model.status_codes import EXIT_INTERRUPTED, status_codes_of
from naksha.spi.extras import missing_extra

_WAYS_OUT: Final = {
    "not_yet_published": "Retry in a moment.",
    "retryable": "Nothing was written; run the command again.",
    "unavailable": "Check that the server is running, and host, port, user and database.",
    "storage_corrupt": "Please report this, with the message above.",
}
"""Hints by error code, for errors whose message does not include one."""
_LINES_MAX: Final = 1000
"""Capacity of the buffer for asyncio's log messages."""
_NO_POSTGIS: Final = (
    "Install PostGIS on the server (Debian: postgresql-postgis), "
    "then run CREATE EXTENSION postgis in the database as its superuser."
)


@contextmanager
def readable_errors(*, as_json: bool = False, ends_soon: bool = True) -> Iterator[None]:
    """Run a command; a NakshaError ends it with a sentence and an exit code, not a traceback.

    A package of an extra that is not installed ends it likewise.

    Long-running commands (`ends_soon=False`) have their own logging.
    """
    with _held_back() if ends_soon else nullcontext(_nothing()) as buffered:
        try:
            yield
        except ImportError as error:
            missing = missing_extra(error)
            if missing is None:
                raise
            raise _ended(missing, as_json) from error
        except NakshaError as error:
            raise _ended(error, as_json) from error
        except KeyboardInterrupt as error:
            # asyncio's messages about interrupted tasks do not matter to the user.
            buffered.buffer.clear()
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from error


def _ended(error: NakshaError, as_json: bool) -> typer.Exit:
    print_error(error, as_json=as_json)
    return typer.Exit(status_codes_of(error).exit_code)


def _nothing() -> MemoryHandler:
    return MemoryHandler(_LINES_MAX)


@contextmanager
def _held_back() -> Iterator[MemoryHandler]:
    """Buffer asyncio's log messages until the end of the command, when they may be dropped."""
    handler = MemoryHandler(_LINES_MAX, logging.CRITICAL + 1, logging.StreamHandler())
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler
    finally:
        handler.close()
        logger.removeHandler(handler)
        logger.propagate = True


def _hint_for(error: NakshaError) -> str | None:
    """Return a hint on what to do, if the message does not include one."""
    if isinstance(error, NotSupported) and "PostGIS" in error.message:
        return _NO_POSTGIS
    # The messages of the server, and of a round of maintenance, say what to do.
    if error.field in ("port", "data", "maintenance"):
        return None
    return _WAYS_OUT.get(error.code)


def print_error(error: NakshaError, *, as_json: bool) -> None:
    """Print an error with a hint, or as JSON."""
    hint = _hint_for(error)
    sentence = " ".join(str(error).split())
    if as_json:
        typer.echo(
            json.dumps({"error": {"code": error.code, "message": sentence, "hint": hint}}), err=True
        )
        return
    typer.echo(f"naksha: {sentence}", err=True)
    if hint is not None:
        typer.echo(f"        {hint}", err=True)
