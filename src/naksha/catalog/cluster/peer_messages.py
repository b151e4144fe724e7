"""Messages between instances: moved pointers, as authenticated lines of text.

A line is an authentication code, a space, and JSON. Only instances that can read the catalog know
the secret for the code. Receivers compare states, so repeated or late messages do no harm;
numbering and acknowledgements are not needed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

import msgspec

from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.objects import object_type
from naksha.catalog.system_objects import PEER_SECRET_ID, store_constant
from naksha.spi.catalog import CatalogBackend, PointerRow

_SECRET_BYTES: Final = 32
_CODE_BYTES: Final = 64


@object_type("peer-secret", is_cached=False)
class PeerSecret(msgspec.Struct, frozen=True):
    """The secret that authenticates messages from instances of the same catalog."""

    secret: bytes


class PointerMove(msgspec.Struct, frozen=True, array_like=True):
    """A pointer was moved or deleted."""

    realm: str
    row: PointerRow
    sequence: int
    """State number; the later of two states in one life of the pointer has the greater number."""
    is_deleted: bool = False

    def supersedes(self, other: PointerMove) -> bool:
        """Return whether it makes an earlier move obsolete for a receiver."""
        is_same_life = self.row.created == other.row.created
        return (
            not is_same_life
            or self.is_deleted
            or (not other.is_deleted and self.sequence >= other.sequence)
        )


class PeerMessage(msgspec.Struct, frozen=True, array_like=True):
    """A line: some moves and their sender. The first line of a connection has no moves."""

    sender: str
    address: str
    moves: tuple[PointerMove, ...] = ()


class RefusedLine(Exception):
    """A line that was not written with the secret."""


class PeerWire:
    """Encodes and decodes lines with a secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(PeerMessage).decode

    def to_line(self, batch: PeerMessage) -> bytes:
        text = self._encode(batch)
        return b"%b %b\n" % (self._code(text), text)

    def from_line(self, line: bytes) -> PeerMessage:
        code, text = line[:_CODE_BYTES], line[_CODE_BYTES + 1 :].rstrip(b"\n")
        if not hmac.compare_digest(code, self._code(text)):
            raise RefusedLine(
                "The message has a wrong authentication code; give all instances the same secret"
            )
        try:
            return self._decode(text)
        except msgspec.DecodeError as error:
            raise RefusedLine(
                f"The message cannot be decoded: {error}; run the same release on all instances"
            ) from error

    def _code(self, text: bytes) -> bytes:
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest().encode()


async def load_secret(backend: CatalogBackend, clock: MonotonicClock) -> bytes:
    """Return the secret of this catalog; the first instance creates it."""
    mine = PeerSecret(secrets.token_bytes(_SECRET_BYTES))
    return (await store_constant(backend, PEER_SECRET_ID, mine, clock.now_us())).secret
