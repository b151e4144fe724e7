"""Remote event handlers: the client, the host, the wire format and the allow-list.

`serve` hosts a handler in a separate process; `python -m naksha.hub.remote` does so from the
command line.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from naksha.hub.remote.program import RemoteHost, serve

__all__ = ["RemoteHost", "serve"]


def __getattr__(name: str) -> Any:
    """Load the host on first use: a hub that only calls remote handlers does not need it."""
    if name in __all__:
        from naksha.hub.remote import program

        return getattr(program, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
