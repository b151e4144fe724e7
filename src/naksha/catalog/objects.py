"""Objects of the catalog: typed, immutable values with a 64-bit id.

    @object_type("space")
    class SpaceObject(msgspec.Struct, frozen=True):
        title: str

A type has a name, which is in the database, and a frozen struct. What this program does not know is
read as `UnknownValue` and written back byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from naksha.model import limits
from naksha.model.errors import InvalidArgument, StorageCorrupt

V = TypeVar("V")
S = TypeVar("S", bound=type[msgspec.Struct])

_HAS_PARTS: Final = 0x80
_VERSION: Final = 0x60
_LENGTH: Final = 0x1F
_PARTS_MAX: Final = 1 << 32


class ObjectRef(NamedTuple):
    """What points to an object. Only the id is its key; type and parts are what is to be expected.

    In bytes: a header (the length of the type less one, two bits of version, whether parts follow),
    the type, the id as 8 bytes, the parts less one as 4 bytes if there are more than one. No
    reference is no bytes.
    """

    type: str
    id: int
    parts: int = 1

    def to_bytes(self) -> bytes:
        check_type_id(self.type)
        if not 0 <= self.id <= limits.INT8_MAX:
            raise InvalidArgument(f"{self.id} is no object id; it has 63 bits", field="id")
        if not 1 <= self.parts <= _PARTS_MAX:
            raise InvalidArgument(f"An object has 1 or more parts, not {self.parts}", field="parts")
        name = self.type.encode("ascii")
        header = len(name) - 1
        if self.parts == 1:
            return bytes([header]) + name + self.id.to_bytes(8, "big")
        parts = (self.parts - 1).to_bytes(4, "big")
        return bytes([header | _HAS_PARTS]) + name + self.id.to_bytes(8, "big") + parts

    @classmethod
    def from_bytes(cls, data: bytes) -> ObjectRef | None:
        """The reference; None for no bytes."""
        if not data:
            return None
        header = data[0]
        end = 2 + (header & _LENGTH)
        if header & _VERSION or len(data) != end + 8 + (4 if header & _HAS_PARTS else 0):
            raise StorageCorrupt(f"This is no reference to an object: {data.hex()}")
        name = data[1:end].decode("ascii", "replace")
        id = int.from_bytes(data[end : end + 8], "big")
        parts = 1 + int.from_bytes(data[end + 8 :], "big")
        return cls(name, id, parts)


class ObjectType(NamedTuple):
    """A registered type."""

    id: str
    struct: type[Any]
    is_cached: bool
    """Whether its objects never change once written, so that they may be kept for ever."""


class UnknownValue(msgspec.Struct, frozen=True):
    """The value of an object whose type this program does not know."""

    type: str
    raw: bytes

    @property
    def attributes(self) -> dict[str, Any]:
        """What is in it, as plain values."""
        found: dict[str, Any] = msgspec.msgpack.decode(self.raw)
        return found


class Object(msgspec.Struct, Generic[V], frozen=True):
    """A value with the id under which it is kept, and how it is kept."""

    id: int
    value: V
    token: str | None = None
    """Not None for an object that is written conditionally; it differs after every write."""
    parts: int = 1
    created_us: int = 0

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(type_id(self.value), self.id, self.parts)


_BY_ID: Final[dict[str, ObjectType]] = {}
_BY_STRUCT: Final[dict[type[Any], ObjectType]] = {}


def object_type(id: str, *, is_cached: bool = True) -> Callable[[S], S]:
    """Register a frozen struct as the type `id` of the catalog."""
    check_type_id(id)

    def register(struct: S) -> S:
        if not struct.__struct_config__.frozen:
            raise InvalidArgument(f"{struct.__name__} must be frozen", field="type")
        known = _BY_ID.get(id)
        if known is not None and known.struct is not struct:
            raise InvalidArgument(f"The object type {id!r} is taken already", field="type")
        _BY_ID[id] = _BY_STRUCT[struct] = ObjectType(id, struct, is_cached)
        return struct

    return register


def check_type_id(id: str) -> None:
    """Raises InvalidArgument for what is no id of a type."""
    if not (
        id.isascii()
        and limits.OBJECT_TYPE_BYTES_MIN <= len(id) <= limits.OBJECT_TYPE_BYTES_MAX
        and id.isprintable()
    ):
        raise InvalidArgument(
            f"The id of an object type has {limits.OBJECT_TYPE_BYTES_MIN} to "
            f"{limits.OBJECT_TYPE_BYTES_MAX} printable ASCII characters, not {id[:200]!r}",
            field="type",
        )


def known_type(id: str) -> ObjectType | None:
    """The registered type of that id."""
    return _BY_ID.get(id)


def type_id(value: object) -> str:
    """The id of the type that a value is of."""
    if isinstance(value, UnknownValue):
        return value.type
    return type_id_of(type(value))


def type_id_of(struct: type[Any]) -> str:
    """The id of a registered struct."""
    found = _BY_STRUCT.get(struct)
    if found is None:
        raise InvalidArgument(f"{struct.__name__} is no object type of the catalog", field="type")
    return found.id


def encode(value: object) -> bytes:
    """The value in the form that is kept."""
    if isinstance(value, UnknownValue):
        return value.raw
    return msgspec.msgpack.encode(value)


def decode(type_id: str, data: bytes) -> Any:
    """The value of that type; attributes that the type does not have are left out."""
    known = _BY_ID.get(type_id)
    if known is None:
        return UnknownValue(type_id, data)
    try:
        return msgspec.msgpack.decode(data, type=known.struct)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StorageCorrupt(f"An object of type {type_id!r} cannot be read: {error}") from error
