"""Rights."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Right(StrEnum):
    READ_FEATURES = "readFeatures"
    CREATE_FEATURES = "createFeatures"
    UPDATE_FEATURES = "updateFeatures"
    DELETE_FEATURES = "deleteFeatures"
    MANAGE_SPACES = "manageSpaces"


class Rights(msgspec.Struct, frozen=True):
    def check(self, right: Right, resource: dict[str, Any]) -> None: ...
