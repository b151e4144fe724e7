"""The map page: the files that `web/` is built into, and the endpoints that serve them."""

from __future__ import annotations
