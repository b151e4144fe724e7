"""Log format: one JSON object per line, or a readable line on a terminal.

Each completed request is logged once. Its line names the route, never the path or the query string,
which can contain a token; no line has headers or bodies.
"""

from __future__ import annotations

import logging
import sys
import time
from functools import lru_cache
from typing import IO, Any, Final

import msgspec

from naksha.server.process.settings import ServerSettings

_log: Final = logging.getLogger("naksha.server.requests")
_FIELDS: Final = "fields"
"""Attribute of a log record that holds the RequestLine."""


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Log entry of a request."""

    stream_id: str
    method: str
    route: str
    """The path template, such as `/hub/spaces/{space_id}`; empty if no route matches."""
    status: int
    """As sent; 499 if the client disconnected before the response."""
    ms: float
    queued_ms: float
    bytes_in: int
    bytes_out: int
    realm: str | None = None
    app: str | None = None
    author: str | None = None


def log_request(line: RequestLine) -> None:
    """Log a completed request."""
    level = logging.WARNING if line.status >= 500 else logging.INFO
    if _log.isEnabledFor(level):
        # Bypasses `Logger.log`, which walks the stack to find its caller: always this function.
        record = logging.LogRecord(_log.name, level, __file__, 0, "request", None, None)
        setattr(record, _FIELDS, line)
        _log.handle(record)


class JsonLogFormatter(logging.Formatter):
    """Log formatter that writes one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        request = getattr(record, _FIELDS, None)
        if request is not None:
            line |= msgspec.to_builtins(request)
        return msgspec.json.encode(line).decode()


class PlainLogFormatter(logging.Formatter):
    """Log formatter for terminals: time of day, message, and the app id of requests."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno == logging.INFO else f"{record.levelname} "
        request: RequestLine | None = getattr(record, _FIELDS, None)
        message = record.getMessage() if request is None else _sentence(request)
        text = f"{at} {level}{message}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def _sentence(line: RequestLine) -> str:
    text = f"{line.method} {line.route or '-'} {line.status} {line.ms:.1f} ms"
    return f"{text}  {line.app or '-'} {line.stream_id}"


def _time(seconds: float) -> str:
    whole_seconds = int(seconds)
    return f"{_second(whole_seconds)}.{int((seconds - whole_seconds) * 1000):03}Z"


@lru_cache(maxsize=16)
def _second(whole_seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole_seconds))


def _skip_unused_details() -> None:
    """Do not collect caller, thread and process: no line shows them, and they double the cost."""
    logging._srcfile = None  # documented as "Optimization" in the logging how-to
    logging.logThreads = False
    logging.logMultiprocessing = False


def set_up_logs(settings: ServerSettings, stream: IO[str] | None = None) -> None:
    """Send all logs of this process to standard error."""
    out = sys.stderr if stream is None else stream
    is_json = settings.log_format == "json" or (settings.log_format == "auto" and not out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLogFormatter() if is_json else PlainLogFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    _skip_unused_details()
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # uvicorn logs every worker and connection, which does not help operators.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))
