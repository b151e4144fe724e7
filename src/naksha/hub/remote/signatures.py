"""HMAC signatures of events, which prove to a remote handler that the hub sent an event, and when.

Naksha-Signature: t=1700000000,v1=<hex of HMAC-SHA256 of "1700000000." and the body>
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from typing import Final

from naksha.model import limits
from naksha.model.errors import InvalidArgument, Unauthorized

HEADER: Final = "Naksha-Signature"
_FORM: Final = re.compile(r"t=(\d{1,15}),v1=([0-9a-f]{64})")


def check_secret(secret: object, *, field: str) -> bytes:
    """Return a secret as bytes; raise InvalidArgument if it is too short."""
    if not isinstance(secret, str) or len(secret.encode()) < limits.SECRET_BYTES_MIN:
        raise InvalidArgument(
            f"The secret must be a string of at least {limits.SECRET_BYTES_MIN} bytes; "
            "create one with openssl rand -hex 32",
            field=field,
        )
    return secret.encode()


def signature(secret: bytes, body: bytes, now: float | None = None) -> str:
    """Return the signature header of a body, dated now."""
    seconds = int(time.time() if now is None else now)
    return f"t={seconds},v1={_digest(secret, seconds, body)}"


def check_signature(secret: bytes, body: bytes, sent: str, now: float | None = None) -> None:
    """Raise Unauthorized unless a body was signed with the secret recently."""
    found = _FORM.fullmatch(sent)
    seconds = 0 if found is None else int(found[1])
    is_right = found is not None and hmac.compare_digest(_digest(secret, seconds, body), found[2])
    if not is_right:
        raise Unauthorized(
            "The event is not signed with the secret of this handler; configure the same secret in "
            "its connector",
            field=HEADER,
        )
    if abs((time.time() if now is None else now) - seconds) > limits.SIGNATURE_SECONDS_MAX:
        raise Unauthorized(
            "The signature's time is too far from the current time; synchronize the clocks",
            field=HEADER,
        )


def _digest(secret: bytes, seconds: int, body: bytes) -> str:
    return hmac.new(secret, b"%d.%s" % (seconds, body), hashlib.sha256).hexdigest()
