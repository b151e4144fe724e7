"""What a server is told: flags beat the environment, which beats the file."""

from __future__ import annotations

import msgspec

from naksha.hub.setting_up import DefaultStorage


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, with the defaults of `make run`."""

    host: str = "127.0.0.1"
    port: int = 8080
    catalog: str = "file:hub.catalog"
    storage: DefaultStorage = DefaultStorage(location="file:{realm}.naksha")
