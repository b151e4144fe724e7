"""Who asks, and under which name it is found in the log."""

from __future__ import annotations

import msgspec

from naksha.hub.rights import Rights


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts: an application of a realm, perhaps for a person."""

    realm: str
    app_id: str
    author: str | None = None
    rights: Rights
    is_anonymous: bool = False


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to one request from outside, through whatever spaces it runs."""

    actor: Actor
    stream_id: str
    depth: int = 0
    """How many spaces have sent it on."""

    def deeper(self) -> Context:
        """The same one space further."""
        return msgspec.structs.replace(self, depth=self.depth + 1)
