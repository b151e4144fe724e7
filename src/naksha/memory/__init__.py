"""The catalog backend in memory: the reference that the other backends are compared with."""

from naksha.memory.catalog import MemoryCatalog

__all__ = ["MemoryCatalog"]
