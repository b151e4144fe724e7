"""The catalog backend on Redis: every conditional operation is one script."""

from naksha.redis.catalog import RedisCatalog

__all__ = ["RedisCatalog"]
