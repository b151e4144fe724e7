"""Names for the driver's types, which are generic only for the type checker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

if TYPE_CHECKING:
    Direct: TypeAlias = asyncpg.Connection[Any]
    Pooled: TypeAlias = asyncpg.pool.PoolConnectionProxy[Any]
    Pool: TypeAlias = asyncpg.Pool[Any]
    Connection: TypeAlias = Direct | Pooled
else:
    Direct = asyncpg.Connection
    Pool = asyncpg.Pool
    Connection = asyncpg.Connection

__all__ = ["Connection", "Direct", "Pool"]
