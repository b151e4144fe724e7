"""Keys of tiles: a hash of everything that determines the bytes, and the validators made of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Final, NamedTuple

from naksha.hub.tiles.tile_basis import TileBasis
from naksha.model import limits

_RELEASE: Final = version("naksha")
"""Another release may render the same features differently."""
_HASH_DIGITS: Final = 40
_TAG: Final = re.compile(rf'(?:W/)?"([0-9a-f]{{{_HASH_DIGITS}}})(?:-([0-9.]{{1,200}}))?"')


class TileVersion(NamedTuple):
    """The versions that a tile was rendered from: a transaction for each storage."""

    txns: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The version as text."""
        return ".".join(map(str, self.txns))

    def unless_before(self, other: TileVersion) -> TileVersion:
        """Return the version, or the other one if that is later in a storage."""
        is_later = all(one >= than for one, than in zip(self.txns, other.txns, strict=True))
        return self if is_later else other

    @classmethod
    def parse(cls, text: str) -> TileVersion | None:
        """Parse the text of a version; None if it is not one."""
        try:
            return cls(tuple(int(part) for part in text.split(".")) if text else ())
        except ValueError:
            return None


def tile_key(basis: TileBasis, parameters: Iterable[str]) -> str:
    """Return the key of a tile: the same only for tiles with the same basis and parameters."""
    digest = hashlib.sha256()
    for part in (_RELEASE, str(len(basis.parts)), *basis.parts, *parameters):
        encoded = part.encode(errors="surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()[:_HASH_DIGITS]


def validator_of(key: str, version: TileVersion) -> str:
    """Return the entity tag of a tile. It is weak, because responses are compressed."""
    return f'W/"{key}-{version.text}"' if version.txns else f'W/"{key}"'


def known_versions(key: str, if_none_match: str | None) -> list[TileVersion]:
    """Return versions of a tile that the client has, from the header `If-None-Match`.

    Each may be looked up in the storage, so only the first ones are returned.
    """
    if not if_none_match or key not in if_none_match:
        return []
    tags = (_TAG.fullmatch(tag.strip()) for tag in if_none_match.split(","))
    found = [TileVersion.parse(tag[2] or "") for tag in tags if tag is not None and tag[1] == key]
    return [one for one in found if one is not None][: limits.TILE_TAGS_MAX]
