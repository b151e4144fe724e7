"""What a server says: a line of JSON for each event, or on a terminal a line for people.

A request gets one line when it is over. It names the route, never the path or the query, which may
contain a token; nor does any line have header fields or bodies.
"""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime
from typing import IO, Any, Final

import msgspec

from naksha.server.settings import Settings

REQUESTS: Final = "naksha.server.requests"
_log: Final = logging.getLogger(REQUESTS)
_FIELDS: Final = "fields"
"""The attribute of a record that has what is known besides the message."""


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is noted of a request."""

    stream_id: str
    method: str
    route: str
    """The template, as `/hub/spaces/{space_id}`; empty when there is none for the path."""
    status: int
    """As sent; 499 when the client went away before."""
    ms: float
    queued_ms: float
    bytes_in: int
    bytes_out: int
    realm: str | None = None
    app: str | None = None
    author: str | None = None


def log_request(line: RequestLine) -> None:
    """Note a request that is over."""
    level = logging.WARNING if line.status >= 500 else logging.INFO
    if _log.isEnabledFor(level):
        fields = msgspec.to_builtins(line)
        text = f"{line.method} {line.route or '-'} {line.status} {line.ms:.1f} ms"
        # Past `Logger.log`, which looks through the stack for who calls it: it is always this one.
        record = logging.LogRecord(REQUESTS, level, __file__, 0, text, None, None)
        setattr(record, _FIELDS, fields)
        _log.handle(record)


class JsonLines(logging.Formatter):
    """One JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class PlainLines(logging.Formatter):
    """For people: the time of the day, what happened, and for requests who asked."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno == logging.INFO else f"{record.levelname} "
        fields = getattr(record, _FIELDS, None)
        who = "" if fields is None else f"  {fields['app'] or '-'} {fields['streamId']}"
        text = f"{at} {level}{record.getMessage()}{who}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def set_up_logs(settings: Settings, stream: IO[str] | None = None) -> None:
    """Send all logs of this process to the standard error output."""
    out = sys.stderr if stream is None else stream
    is_json = settings.log_format == "json" or (settings.log_format == "auto" and not out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLines() if is_json else PlainLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # Its lines about every worker and connection are not for operators.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))
