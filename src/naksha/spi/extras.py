"""Optional packages, and the extra of this distribution that installs each of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from naksha.model.errors import NotSupported

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "mariadb": ("asyncmy",),
        "postgres": ("adbc_driver_manager", "adbc_driver_postgresql", "asyncpg"),
        "redis": ("redis",),
        "server": (
            *("cryptography", "h3", "httpcore", "httptools", "httpx", "jsonpath_rfc9535"),
            *("jsonschema_rs", "jwt", "prometheus_client", "pydantic", "starlette", "uvicorn"),
            "uvloop",
        ),
        "spark": ("pyogrio", "pyproj", "pyspark"),
        "testing": ("hypothesis", "pytest", "pytest_asyncio"),
    }
)
"""Modules that each extra installs, by their import names."""


def missing_extra(error: ImportError) -> NotSupported | None:
    """Return the error that names the extra to install; None for a module of no extra."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return NotSupported(
                f"The package {module!r} is not installed; run: pip install 'naksha[{extra}]'"
            )
    return None
