"""Whether the hub is there."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

import naksha

router = APIRouter(tags=["operation"])


@router.get("/hub/health-status")
@router.get("/hub/", include_in_schema=False)
@router.get("/hub")
async def health() -> dict[str, Any]:
    """The hub answers."""
    return {
        "reporter": {"name": "naksha", "version": naksha.__version__},
        "status": {"result": "OK"},
        "schemaVersion": "1.0",
    }
