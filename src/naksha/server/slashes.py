"""Clients write paths with and without a slash at the end; both mean the same, without a detour."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class TrailingSlashes:
    """Takes the slash away before a route is looked for. One that is encoded belongs to an id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/":
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            if raw.endswith(b"/"):
                scope = {**scope, "path": scope["path"].removesuffix("/"), "raw_path": raw[:-1]}
        await self._app(scope, receive, send)
