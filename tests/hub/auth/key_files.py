"""Keys for tests, generated once, and their files."""

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from naksha.hub.auth.keys import KeyFile, KeyForm, PrivateKey

SECRET = b"a secret of more than thirty-two bytes"
OTHER_SECRET = b"another secret of more than 32 bytes"


@cache
def rsa_key(bits: int = 2048, *, number: int = 0) -> rsa.RSAPrivateKey:
    """The same key for the same number."""
    assert number >= 0
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def private_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_pem(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def jwk(key: PrivateKey | bytes, kid: str | None, **more: Any) -> dict[str, Any]:
    """The public part of a key, or a secret."""
    named = {} if kid is None else {"kid": kid}
    if isinstance(key, bytes):
        text = base64.urlsafe_b64encode(key).rstrip(b"=").decode()
        return {"kty": "oct", "k": text, **named, **more}
    if isinstance(key, rsa.RSAPrivateKey):
        return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), **named, **more}
    return {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), **named, **more}


def write(path: Path, content: bytes, form: KeyForm, kid: str | None = None) -> KeyFile:
    path.write_bytes(content)
    return KeyFile(path, form, kid)


def write_set(path: Path, *keys: dict[str, Any]) -> KeyFile:
    return write(path, json.dumps({"keys": keys}).encode(), KeyForm.JWKS)
