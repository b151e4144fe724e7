"""The catalog in memory: the model that the other backends are compared with."""

from naksha.memory.catalog import MemoryCatalog

__all__ = ["MemoryCatalog"]
