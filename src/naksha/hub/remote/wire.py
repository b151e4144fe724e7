"""JSON wire format of events between the hub and remote handlers, used by both ends.

The hub posts a `WireEvent`; the handler returns a `HandlerReply`, which has one of three members:

    {"response": …}                                  the response to the request
    {"send": {"request": …, "space": …},             forward this request (null: the same one),
     "continuation": "…"}                            then post the result with the continuation
    {"error": {"code": …, "message": …}}             an error of `naksha.model.errors`

Without a continuation, the result of the forwarded request is the handler's own: the hub passes it
to the client, whatever its size, and the handler never sees it. Otherwise the hub posts another
`WireEvent` with the continuation, and the `response` or the `error` in place of the request.

Features are passed as GeoJSON, unchanged and without parsing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from naksha.hub.feed import delivery_requests
from naksha.hub.pipeline import meta_requests, version_requests
from naksha.hub.pipeline.requests import Request
from naksha.hub.pipeline.responses import Features, Written
from naksha.model import errors, limits
from naksha.model.errors import InvalidArgument, LimitExceeded, NakshaError, NotImplementedHere
from naksha.model.state import State

PROTOCOL: Final = 1
_MODULES: Final = (delivery_requests, meta_requests, version_requests)
"""Imported to register their request classes, which a host needs to decode requests."""
ABSENT: Final = msgspec.Raw()
"""Absent JSON; unlike null, which can be a response."""


class WireError(msgspec.Struct, rename="camel", omit_defaults=True):
    """An error, identified by its code."""

    code: str
    message: str
    field: str | None = None
    feature_id: str | None = None
    handler: str | None = None


class WireEvent(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """An event that the hub posts to a handler."""

    protocol: int = msgspec.field(default_factory=lambda: PROTOCOL)
    """A factory, because `omit_defaults` would leave a plain default out of the JSON."""
    stream_id: str
    realm: str
    app_id: str
    author: str | None = None
    seconds_left: float
    """The hub stops waiting for a response after this time."""
    space: dict[str, Any]
    connector: dict[str, Any]
    """The handler's configuration."""
    request: msgspec.Raw = ABSENT
    continuation: str | None = None
    response: msgspec.Raw = ABSENT
    error: WireError | None = None


class ForwardedRequest(msgspec.Struct, rename="camel", omit_defaults=True):
    """A request to forward: to the handlers behind this one, or to another space."""

    request: msgspec.Raw = ABSENT
    space: str | None = None

    @property
    def is_same(self) -> bool:
        """Whether to forward the received request unchanged."""
        return bytes(self.request) in (b"", b"null")


class HandlerReply(msgspec.Struct, rename="camel", omit_defaults=True):
    """A handler's reply to an event."""

    response: msgspec.Raw = ABSENT
    send: ForwardedRequest | None = None
    continuation: str | None = None
    error: WireError | None = None

    @property
    def has_response(self) -> bool:
        return bytes(self.response) != b""

    def __post_init__(self) -> None:
        if self.has_response + (self.send is not None) + (self.error is not None) != 1:
            raise ValueError("A reply must have exactly one of response, send and error")


class _WireFeatures(msgspec.Struct):
    features: list[msgspec.Raw]
    cursor: str | None = None


class _Identified(msgspec.Struct):
    id: str


_decode_id: Final = msgspec.json.Decoder(_Identified).decode


# ---- Requests ------------------------------------------------------------------------------------


def encode_request(request: Request[Any]) -> msgspec.Raw:
    """Encode a request as JSON."""
    return msgspec.Raw(msgspec.json.encode(request))


def decode_request(raw: msgspec.Raw) -> Request[Any]:
    """Decode a request from JSON.

    Raises:
        InvalidArgument: The request type is unknown, or the request is invalid.
    """
    try:
        request: Request[Any] = msgspec.json.decode(raw, type=_any_request())
    except (msgspec.DecodeError, NakshaError) as error:
        raise InvalidArgument(
            f"The request is unknown or invalid: {error}", field="request"
        ) from None
    return request


@cache
def _any_request() -> Any:
    return Union[tuple(sorted(_tagged(Request), key=str))]  # noqa: UP007 - built dynamically


def _tagged(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield all concrete subclasses of a request class: those with a name on the wire."""
    for one in kind.__subclasses__():
        if one.__struct_config__.tag:
            yield one
        yield from _tagged(one)


def response_type(kind: type[Request[Any]]) -> Any:
    """Return the response type of a request class."""
    for one in kind.__mro__:
        for base in getattr(one, "__orig_bases__", ()):
            if get_origin(base) is Request:
                return get_args(base)[0]
    raise AssertionError("every request class declares its response type")


# ---- Responses -----------------------------------------------------------------------------------


async def encode_response(response: Any) -> msgspec.Raw:
    """Encode a response as JSON; streams are read to their end.

    Raises:
        LimitExceeded: The response is too large.
        NotImplementedHere: The response type has no JSON form.
    """
    if isinstance(response, Features):
        raws = await _raws_of(response)
        return _encoded(_WireFeatures(raws, response.cursor))
    if isinstance(response, Written):
        members = {
            name: getattr(response, name)
            for name in response.__struct_fields__
            if name not in ("states", "tombstones")
        }
        states = {
            "states": [msgspec.Raw(state.raw) for state in response.states],
            "tombstones": [msgspec.Raw(state.raw) for state in response.tombstones],
        }
        return _encoded(members | states)
    return _encoded(response)


async def _raws_of(features: Features) -> list[msgspec.Raw]:
    found: list[msgspec.Raw] = []
    size = 0
    try:
        async for states in features:
            for state in states:
                size += len(state.raw)
                found.append(msgspec.Raw(state.raw))
            if size > limits.REMOTE_BODY_BYTES_MAX:
                raise _too_large()
    finally:
        await features.aclose()
    return found


def _encoded(response: Any) -> msgspec.Raw:
    try:
        encoded = msgspec.json.encode(response)
    except TypeError:
        raise NotImplementedHere(
            f"A remote handler cannot read a {type(response).__name__}; it can only forward it"
        ) from None
    if len(encoded) > limits.REMOTE_BODY_BYTES_MAX:
        raise _too_large()
    return msgspec.Raw(encoded)


def _too_large() -> LimitExceeded:
    return LimitExceeded(
        f"The response for a remote handler exceeds {limits.REMOTE_BODY_BYTES_MAX} bytes; request "
        "fewer features at once",
        field="limit",
    )


def decode_response(raw: msgspec.Raw, kind: Any) -> Any:
    """Decode a response of a type from JSON.

    Raises:
        InvalidArgument: The response is not of that type.
    """
    try:
        if kind is Features:
            found = msgspec.json.decode(raw, type=_WireFeatures)
            return Features.of([_state(one) for one in found.features], found.cursor)
        if kind is Written:
            members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            states = {
                name: tuple(map(_state, msgspec.json.decode(value, type=list[msgspec.Raw])))
                for name, value in members.items()
                if name in ("states", "tombstones")
            }
            rest = {name: value for name, value in members.items() if name not in states}
            written = msgspec.json.decode(msgspec.json.encode(rest), type=Written)
            return msgspec.structs.replace(written, **states)
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, TypeError) as error:
        raise InvalidArgument(
            f"The response is not a valid {_name_of(kind)}: {error}", field="response"
        ) from None


def _state(raw: msgspec.Raw) -> State:
    return State(_decode_id(raw).id, bytes(raw))


def _name_of(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))


# ---- Errors --------------------------------------------------------------------------------------

TELLABLE: Final[dict[str, type[NakshaError]]] = {
    kind.code: kind
    for kind in (
        errors.InvalidArgument,
        errors.NotSupported,
        errors.NotImplementedHere,
        errors.ReadOnly,
        errors.Inactive,
        errors.NotFound,
        errors.FeatureNotFound,
        errors.CollectionNotFound,
        errors.VersionNotFound,
        errors.Expired,
        errors.Conflict,
        errors.FeatureExists,
        errors.Forbidden,
        errors.LimitExceeded,
        errors.Retryable,
        errors.Unavailable,
        errors.TimedOut,
        errors.OutcomeUnknown,
        errors.HandlerFailed,
        errors.RemoteFailed,
    )
}
"""Errors that the ends can send each other; others are sent as their nearest base class here."""


def encode_error(error: NakshaError) -> WireError:
    """Encode an error for the other end."""
    codes = (getattr(kind, "code", "") for kind in type(error).__mro__)
    code = next((code for code in codes if code in TELLABLE), errors.HandlerFailed.code)
    return WireError(code, error.message, error.field, error.feature_id, error.handler)


def decode_error(wire_error: WireError) -> NakshaError:
    """Decode an error of the other end."""
    kind = TELLABLE.get(wire_error.code, errors.HandlerFailed)
    error = kind(wire_error.message, field=wire_error.field, feature_id=wire_error.feature_id)
    error.handler = wire_error.handler
    return error
