"""The statements of a storage, counted at the driver: each is one round trip."""

from __future__ import annotations

from typing import Any

import pytest

from naksha.psql.connection import driver

PUBLISH = "naksha_publish_round"


class StatementLog:
    """Records the statements of all connections that are opened from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        statements = self.statements

        class Logged(driver.StorageConnection):
            def __init__(self, *args: Any, **settings: Any) -> None:
                super().__init__(*args, **settings)
                self.add_query_logger(lambda record: statements.append(record.query))

        monkeypatch.setattr(driver, "StorageConnection", Logged)

    def take(self) -> list[str]:
        """The statements since the last call."""
        taken = [*self.statements]
        self.statements.clear()
        return taken

    def write(self) -> list[str]:
        """The same without publication, which may happen in the background."""
        return [each for each in self.take() if PUBLISH not in each and "advisory" not in each]
