"""Endpoints of the map page: its HTML at `/`, and its files below `/web/`."""

from __future__ import annotations

import asyncio
import hashlib
import html
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from naksha.server.errors import unknown_path_response
from naksha.server.middleware.request_record import record_of
from naksha.server.process.settings import ServerSettings
from naksha.server.requests.state import server_of
from naksha.server.routing.declarations import Router
from naksha.server.web.files import DIRECTORY, page_files, start_html

router = Router(tags=["web"])
_HTML: Final = "text/html; charset=utf-8"
_STYLE: Final = '<meta name="naksha-map-style" content="'
_FOR_EVER: Final = "public, max-age=31536000, immutable"
"""The names of the files contain hashes of their content."""
_NOT_BUILT: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Naksha</title>
<h1>Naksha</h1>
<p>The hub is running, but its map page has not been built. In the repository, run
<code>scripts/setup.sh web</code>, which <code>make run</code> also does, and load this page
again.</p>
<p>The API is described in <a href="openapi.json">openapi.json</a>.</p>
</html>
"""


@router.get("/", documented=False)
async def map_page(request: Request) -> Response:
    """Return the map page, or how to build it."""
    known = request.headers.get("If-None-Match")
    return page_response(server_of(request).settings, known)


def page_response(
    settings: ServerSettings, known: str | None, directory: Path = DIRECTORY
) -> Response:
    """Build the response with the page; `known` is the entity tag that the client has."""
    page = start_html(directory)
    headers = _headers(settings)
    if page is None:
        return Response(_NOT_BUILT, 503, headers, media_type=_HTML)
    style = html.escape(settings.map_style, quote=True)
    page = page.replace(f'{_STYLE}"', f'{_STYLE}{style}"')
    tag = f'"{hashlib.sha256(page.encode()).hexdigest()[:32]}"'
    headers |= {"ETag": tag, "Cache-Control": "no-cache"}
    if known == tag:
        return Response(status_code=304, headers=headers)
    return Response(page, 200, headers, media_type=_HTML)


@router.get("/web/{name}", documented=False)
async def map_page_file(name: str, request: Request) -> Response:
    """Return a file of the map page."""
    found = (await asyncio.to_thread(page_files)).get(name)
    if found is None:
        return unknown_path_response(record_of(request).stream_id)
    # A worker script has its own policy, which comes with its file.
    headers = _headers(server_of(request).settings) | {"Cache-Control": _FOR_EVER}
    content = found.content
    if found.zipped is not None:
        headers["Vary"] = "Accept-Encoding"
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            content = found.zipped
    return Response(content, 200, headers, media_type=found.media_type)


def _headers(settings: ServerSettings) -> dict[str, str]:
    return {
        "Content-Security-Policy": content_security_policy(settings),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def content_security_policy(settings: ServerSettings) -> str:
    """Return the policy of the page: no inline scripts, and no host but the hub.

    A style of the settings adds its own host, and the hosts that it loads from.
    """
    addresses = (settings.map_style, *settings.map_hosts)
    origins = dict.fromkeys(filter(None, map(_origin, addresses)))
    more = "".join(f" {origin}" for origin in origins)
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "worker-src 'self'",
            "style-src 'self'",
            "font-src 'self'",
            f"img-src 'self' data: blob:{more}",
            f"connect-src 'self'{more}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _origin(address: str) -> str:
    found = urlsplit(address)
    return f"{found.scheme}://{found.netloc}" if found.scheme and found.netloc else ""
