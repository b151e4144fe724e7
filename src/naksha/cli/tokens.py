"""Implementation of the command `token`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from naksha.catalog.realms import check_realm_id
from naksha.hub.auth.keys import KeyFile, read_signing_key
from naksha.hub.auth.rights import ACTIONS, SECTIONS, Right
from naksha.hub.auth.tokens import actor_of, mint
from naksha.model.errors import InvalidArgument

_EVERYTHING: Final[dict[str, Any]] = {right.value: [{}] for right in Right}


def signed_token(
    app_id: str,
    key: str,
    author: str | None,
    realm: str,
    rights: str | None,
    roles: Sequence[str],
    hours: float,
    key_id: str | None,
) -> str:
    """Return a signed token, after checking that a server would accept its claims."""
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
                f"Rights file {rights[1:]!r} cannot be read: {error.strerror}", field="rights"
            ) from error
    try:
        matrix = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            f"The rights are not a valid JSON object: {error}", field="rights"
        ) from None
    _check_spelling(matrix)
    if roles:
        section = matrix.setdefault("naksha", {})
        section["roles"] = [*section.get("roles", ()), *roles]
    return matrix


def _check_spelling(matrix: dict[str, Any]) -> None:
    """Reject unknown sections and actions.

    A server ignores them, since tokens are for other services too, but in a matrix written by hand
    they are mistakes.
    """
    if not matrix.keys() & SECTIONS.keys():
        raise InvalidArgument(
            'The rights have neither of the sections "naksha" and "xyz-hub", so they grant '
            'nothing; write them as {"naksha": {"readFeatures": [{}]}}',
            field="rights",
        )
    section = matrix.get("naksha")
    for action in section if isinstance(section, dict) else ():
        if action != "roles" and action not in ACTIONS:
            near = difflib.get_close_matches(action, ACTIONS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"actions: {', '.join(ACTIONS)}"
            raise InvalidArgument(f"{action!r:.64} is not an action; {hint}", field="rights")
