"""What the command `token` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from naksha.catalog.realms import check_realm_id
from naksha.hub.keys import KeyFile, read_signing_key
from naksha.hub.rights import Right
from naksha.hub.tokens import actor_of, mint
from naksha.model.errors import InvalidArgument

_EVERYTHING: Final[dict[str, Any]] = {right.value: [{}] for right in Right}


def minted(
    app_id: str,
    key: str,
    author: str | None,
    realm: str,
    rights: str | None,
    roles: Sequence[str],
    hours: float,
    key_id: str | None,
) -> str:
    """A token, if a server would understand it."""
    check_realm_id(realm)
    matrix = _matrix(rights, roles)
    claims = {"appId": app_id, "userId": author, "realm": realm, "urm": matrix}
    claims = {name: value for name, value in claims.items() if value is not None}
    actor_of(claims)
    signing = read_signing_key(msgspec.structs.replace(KeyFile.parse(key), kid=key_id))
    return mint(signing, claims, seconds=hours * 3_600)


def _matrix(rights: str | None, roles: Sequence[str]) -> dict[str, Any]:
    if rights is None:
        return {"naksha": {"roles": list(roles)} if roles else _EVERYTHING}
    text = rights
    if rights.startswith("@"):
        try:
            text = Path(rights[1:]).read_text()
        except OSError as error:
            raise InvalidArgument(
                f"The file {rights[1:]!r} cannot be read: {error.strerror}", field="rights"
            ) from error
    try:
        matrix = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"The rights are no JSON object: {error}", field="rights") from None
    if roles:
        section = matrix.setdefault("naksha", {})
        section["roles"] = [*section.get("roles", ()), *roles]
    return matrix
