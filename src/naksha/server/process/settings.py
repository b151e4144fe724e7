"""What a server is told: flags beat the environment, which beats the file.

A setting is a field here and nowhere else: its flag (`--log-format`), its variable
(`NAKSHA_LOG_FORMAT`), its key in the file (`log_format`) and its line in `--help` follow from it.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta

from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.remote.allow_list import Targets
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.spi.locations import ALIASES, CATALOGS, FILE, MEMORY, STORAGES, path_of

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


def _told(text: str) -> Meta:
    """What a setting is for, as help and guide have it."""
    return Meta(description=text)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it, with the defaults of `make run`."""

    host: Annotated[str, _told("Where to listen. Elsewhere than on loopback only with keys.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65_535), _told("The port; 0 takes a free one.")] = 8080
    data: Annotated[
        str, _told("The directory of what is kept in files; made when it is not there.")
    ] = "naksha-data"
    catalog: Annotated[
        str,
        _told(
            "Where the hub keeps its configuration. Unless given: with the storage, if that is a "
            "database, else the file hub.catalog in the data directory."
        ),
    ] = ""
    storage: Annotated[
        str,
        _told(
            "Where new realms keep their features; {realm} stands for the realm's id. Unless "
            "given: a file for each in the data directory."
        ),
    ] = ""
    storage_options: Annotated[
        dict[str, Any], _told("Options of that storage, as JSON; {realm} as above.")
    ] = {}
    allowed_locations: Annotated[
        tuple[str, ...],
        _told(
            "How the location of a storage may begin that is configured over REST, {realm} as "
            "above. Unless given: with keys, a realm may have what is its own; without, any."
        ),
    ] = ()
    workers: Annotated[
        int, Meta(ge=1, le=limits.WORKERS_MAX), _told("Processes; more than one on databases only.")
    ] = 1
    worker_seconds: Annotated[
        Seconds,
        _told("How long one of several workers may show no sign of life; then it is replaced."),
    ] = limits.WORKER_SILENT_SECONDS_MAX
    keys: Annotated[
        tuple[str, ...],
        _told(
            "Files of keys that tokens are checked with: secret:PATH, pem:PATH or jwks:PATH, "
            "several with commas between them."
        ),
    ] = ()
    token_audience: Annotated[str, _told("What `aud` of a token must contain.")] = ""
    token_issuer: Annotated[str, _told("What `iss` of a token must be.")] = ""
    token_expiry: Annotated[bool, _told("Whether a token must have `exp`.")] = True
    anonymous: Annotated[
        bool, _told("Although there are keys: who comes from this machine needs no token.")
    ] = False
    open_metrics: Annotated[bool, _told("Whether /metrics is for everybody.")] = False
    log_format: Annotated[
        Literal["auto", "json", "text"], _told("auto: text on a terminal, else JSON.")
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _told("What is logged at least.")
    ] = "info"
    body_bytes: Annotated[Count, _told("The largest body of a request, unpacked.")] = (
        limits.REQUEST_BODY_BYTES_MAX
    )
    request_seconds: Annotated[
        Seconds, _told("How long an answer may take to begin, and each of its parts to follow.")
    ] = limits.REQUEST_SECONDS_MAX
    parallel: Annotated[Count, _told("Requests that one worker serves at once.")] = (
        limits.REQUESTS_PARALLEL_MAX
    )
    actor_parallel: Annotated[Count, _told("The same of one application and author.")] = (
        limits.ACTOR_PARALLEL_MAX
    )
    actor_queue: Annotated[
        int, Meta(ge=0), _told("Requests of one application and author that wait for their turn.")
    ] = limits.ACTOR_QUEUE_MAX
    queue_seconds: Annotated[Seconds, _told("How long they wait; then they get 503.")] = (
        limits.QUEUE_SECONDS_MAX
    )
    drain_seconds: Annotated[
        Seconds, _told("How long running requests may take to end when the server is stopped.")
    ] = limits.DRAIN_SECONDS_MAX
    config_seconds: Annotated[
        Seconds, _told("How old the configuration may be that a worker uses.")
    ] = limits.CONFIG_SECONDS_MAX
    subscription_seconds: Annotated[
        Seconds,
        _told(
            "How long a process has a subscription, or a job, without saying that it lives: after "
            "that, and the difference of clocks, another one delivers it, or runs it anew."
        ),
    ] = limits.SUBSCRIPTION_LEASE_SECONDS
    job_parallel: Annotated[
        int,
        Meta(ge=0),
        _told("Jobs that one worker runs at once, each with a Spark of its own; 0: none."),
    ] = limits.JOBS_RUNNING_MAX
    job_files: Annotated[
        str,
        _told(
            "The directory of files that jobs read and write, each realm's in one of its name. "
            "Unless given, they read and write none."
        ),
    ] = ""
    job_master: Annotated[
        str, _told("Where jobs run: the master of a Spark cluster. Unless given: on this machine.")
    ] = ""
    job_settings: Annotated[
        dict[str, str],
        _told('Settings of Spark, as JSON, for example {"spark.driver.memory": "4g"}.'),
    ] = {}
    remote_handlers: Annotated[
        tuple[str, ...],
        _told(
            "Where handlers may be that run elsewhere: https://host/path and what is below it; "
            "networks such as 10.20.0.0/16, if names mean addresses there; several with commas "
            "between them."
        ),
    ] = ()
    peers: Annotated[
        str,
        _told(
            "The address of this machine at which other servers of the catalog tell of changes, "
            "so that they are seen at once. Several workers use 127.0.0.1 unless given."
        ),
    ] = ""

    @property
    def storage_location(self) -> str:
        """Of the storage that a new realm gets. A path that is not absolute begins at the data
        directory, so that this can be moved."""
        if not self.storage:
            return f"{FILE}:{{realm}}.naksha"
        if STORAGES.scheme_of(self.storage) == FILE:
            return f"{FILE}:{path_of(self.storage).absolute()}"
        return self.storage

    @property
    def catalog_location(self) -> str:
        """Of the catalog."""
        if self.catalog:
            return self.catalog
        if self.storage and _scheme(self.storage) == _PSQL and "{" not in self.storage:
            return self.storage
        return f"{FILE}:{quote(str(self.data_directory / 'hub.catalog'))}"

    @property
    def data_directory(self) -> Path:
        """Where files are kept."""
        return Path(self.data).absolute()

    @property
    def job_directory(self) -> Path | None:
        """Where files of jobs are, if they may have some."""
        return Path(self.job_files).absolute() if self.job_files else None

    @property
    def default_storage(self) -> DefaultStorage:
        """The storage that a new realm gets. In one database every realm has its own schema, the
        default one that of a storage which is opened without the hub."""
        others = {} if _scheme(self.storage_location) != _PSQL else {"schema": "naksha_{realm}"}
        return DefaultStorage(
            location=self.storage_location, options=self.storage_options, options_of_others=others
        )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the server."""
        return is_loopback(self.host)


_PSQL: Final = ALIASES["postgresql"]
_ONE_PROCESS: Final = frozenset({FILE, MEMORY})


@lru_cache(maxsize=1024)  # asked for every request without a token
def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is that of the machine itself."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check(settings: Settings) -> Settings:
    """The settings, if they fit each other.

    Raises:
        InvalidArgument: Names the setting, and says what to do.
    """
    if not settings.keys and not settings.is_loopback:
        raise InvalidArgument(
            f"Without keys nobody knows who asks, so the server listens on loopback only, not at "
            f"{settings.host!r}; give it --keys, or --host 127.0.0.1",
            field="keys",
        )
    Targets(settings.remote_handlers)
    if settings.workers > 1:
        for name, location, backends in (
            ("catalog", settings.catalog_location, CATALOGS),
            ("storage", settings.storage_location, STORAGES),
        ):
            if backends.scheme_of(location) in _ONE_PROCESS:
                raise InvalidArgument(
                    f"The {name} is in a file or in memory, which one process serves; use "
                    f"--workers 1, or a {name} in PostgreSQL (--{name} postgresql://…)",
                    field="workers",
                )
    return settings


def _scheme(location: str) -> str:
    scheme = STORAGES.scheme_of(location)
    return ALIASES.get(scheme, scheme)
