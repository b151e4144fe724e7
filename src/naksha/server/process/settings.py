"""Server settings: flags take precedence over the environment, which precedes the file.

A setting is declared as a field here and nowhere else: its flag (`--log-format`), its variable
(`NAKSHA_LOG_FORMAT`), its key in the file (`log_format`) and its line in `--help` follow from it.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta

from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.maintenance.schedule import DailyWindow, MaintenanceSchedule
from naksha.hub.remote.allow_list import AllowList
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.spi.locations import ALIASES, CATALOGS, FILE, MEMORY, STORAGES, path_of

_WEB_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(?:/[!-:<-~]*)?")
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


def _help(text: str) -> Meta:
    """Attach the description of a setting, which `--help` and the guide show."""
    return Meta(description=text)


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a server; the defaults are those of `make run`."""

    host: Annotated[str, _help("Address to listen on. Other than loopback requires keys.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65_535), _help("Port to listen on; 0: any free port.")] = (
        8080
    )
    data: Annotated[
        str, _help("Directory for everything that is kept in files; created if it is missing.")
    ] = "naksha-data"
    catalog: Annotated[
        str,
        _help(
            "Location of the hub's configuration. Default: with the realms' storage, if "
            "that is a database, else the file hub.catalog in the data directory."
        ),
    ] = ""
    realm_storage: Annotated[
        str,
        _help(
            "Location of the features of new realms; {realm} is replaced by the realm's id. "
            "Default: a file per realm in the data directory."
        ),
    ] = ""
    realm_storage_options: Annotated[
        dict[str, Any], _help("Options of that storage, as JSON; {realm} is replaced as above.")
    ] = {}
    allowed_locations: Annotated[
        tuple[str, ...],
        _help(
            "Allowed prefixes for locations of storages that are configured over REST; {realm} is "
            "replaced as above. Default: with keys, a realm's own location; without keys, any."
        ),
    ] = ()
    workers: Annotated[
        int,
        Meta(ge=1, le=limits.WORKERS_MAX),
        _help("Worker processes; more than 1 needs databases."),
    ] = 1
    worker_seconds: Annotated[
        Seconds,
        _help("Replace a worker, if there are several, after so long without a heartbeat."),
    ] = limits.WORKER_SILENT_SECONDS_MAX
    keys: Annotated[
        tuple[str, ...],
        _help(
            "Files with keys to verify tokens: secret:PATH, pem:PATH or jwks:PATH, several "
            "separated by commas."
        ),
    ] = ()
    token_audience: Annotated[str, _help("Required audience (`aud`) of tokens.")] = ""
    token_issuer: Annotated[str, _help("Required issuer (`iss`) of tokens.")] = ""
    token_expiry: Annotated[bool, _help("Require tokens to have an expiry (`exp`).")] = True
    anonymous: Annotated[
        bool, _help("Accept requests from this machine without a token, even with keys.")
    ] = False
    open_metrics: Annotated[bool, _help("Serve /metrics without a token.")] = False
    log_format: Annotated[
        Literal["auto", "json", "text"], _help("auto: text on a terminal, otherwise JSON.")
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _help("Minimum level of log messages.")
    ] = "info"
    body_bytes: Annotated[Count, _help("Maximum size of a request body, decompressed.")] = (
        limits.REQUEST_BODY_BYTES_MAX
    )
    request_seconds: Annotated[
        Seconds, _help("Time limit for a response to begin, and for each further chunk.")
    ] = limits.REQUEST_SECONDS_MAX
    parallel: Annotated[Count, _help("Maximum parallel requests per worker.")] = (
        limits.REQUESTS_PARALLEL_MAX
    )
    actor_parallel: Annotated[Count, _help("The same per application and author.")] = (
        limits.ACTOR_PARALLEL_MAX
    )
    actor_queue: Annotated[
        int, Meta(ge=0), _help("Maximum queued requests per application and author.")
    ] = limits.ACTOR_QUEUE_MAX
    queue_seconds: Annotated[Seconds, _help("Maximum time in the queue; then 503.")] = (
        limits.QUEUE_SECONDS_MAX
    )
    drain_seconds: Annotated[
        Seconds, _help("Time for running requests to complete when the server is stopped.")
    ] = limits.DRAIN_SECONDS_MAX
    config_seconds: Annotated[
        Seconds, _help("Maximum age of the configuration that a worker uses.")
    ] = limits.CONFIG_SECONDS_MAX
    subscription_seconds: Annotated[
        Seconds,
        _help(
            "Lease time of a subscription or a job. If a process does not renew its lease in "
            "time (plus clock skew), another one takes the subscription over or reruns the job."
        ),
    ] = limits.SUBSCRIPTION_LEASE_SECONDS
    job_parallel: Annotated[
        int,
        Meta(ge=0),
        _help("Maximum parallel jobs per worker, each with its own Spark; 0: run no jobs."),
    ] = limits.JOBS_RUNNING_MAX
    job_files: Annotated[
        str,
        _help(
            "Directory for files that jobs read and write, with a subdirectory per realm. "
            "Default: jobs have no access to files."
        ),
    ] = ""
    job_master: Annotated[
        str, _help("Spark master URL for jobs. Default: Spark runs on this machine.")
    ] = ""
    job_settings: Annotated[
        dict[str, str],
        _help('Spark properties, as JSON, for example {"spark.driver.memory": "4g"}.'),
    ] = {}
    maintenance: Annotated[
        bool,
        _help(
            "Maintain storages and catalog regularly; off: only when a client requests it "
            "(POST /hub/maintenance)."
        ),
    ] = True
    maintenance_seconds: Annotated[
        Seconds, _help("Interval between two maintenance rounds of a storage.")
    ] = limits.MAINTENANCE_SECONDS
    maintenance_budget: Annotated[
        Seconds,
        _help("Seconds after which no further step of a round begins; the next round has it."),
    ] = limits.MAINTENANCE_BUDGET_SECONDS
    maintenance_window: Annotated[
        str,
        _help(
            "Daily time of heavy maintenance (merge of partitions, sweep of the catalog) in UTC, "
            "such as 22:00-04:30. Default: any time."
        ),
    ] = ""
    tile_memory_bytes: Annotated[
        int, Meta(ge=0), _help("Rendered tiles that a worker keeps in memory; 0: none.")
    ] = limits.TILE_MEMORY_BYTES
    tile_disk_bytes: Annotated[
        int,
        Meta(ge=0),
        _help("Rendered tiles that all workers of this machine keep in files; 0: none."),
    ] = limits.TILE_DISK_BYTES
    tile_files: Annotated[
        str,
        _help(
            "Directory of these files, which contain features, and may be deleted at any time. "
            "Default: tiles in the data directory."
        ),
    ] = ""
    remote_handlers: Annotated[
        tuple[str, ...],
        _help(
            "Allowed targets of remote handlers: URL prefixes such as https://host/path, and "
            "networks such as 10.20.0.0/16 for names that resolve to them; several separated by "
            "commas."
        ),
    ] = ()
    map_style: Annotated[
        str,
        _help(
            "Address of a MapLibre style for the map page. Default: a base map that the page "
            "brings along."
        ),
    ] = ""
    map_hosts: Annotated[
        tuple[str, ...],
        _help(
            "Further hosts from which that style loads tiles, fonts and images, such as "
            "https://tiles.example; several separated by commas."
        ),
    ] = ()
    peers: Annotated[
        str,
        _help(
            "Address on which this machine receives change notifications from other servers of "
            "the same catalog, so that changes apply at once. Default with several workers: "
            "127.0.0.1."
        ),
    ] = ""

    @property
    def storage_location(self) -> str:
        """Location of the storage that a new realm gets.

        A relative path starts at the data directory, so that the directory can be moved.
        """
        if not self.realm_storage:
            return f"{FILE}:{{realm}}.naksha"
        if STORAGES.scheme_of(self.realm_storage) == FILE:
            return f"{FILE}:{path_of(self.realm_storage).absolute()}"
        return self.realm_storage

    @property
    def catalog_location(self) -> str:
        """Location of the catalog."""
        if self.catalog:
            return self.catalog
        place = self.realm_storage
        if place and _scheme(place) == _PSQL and "{" not in place:
            return self.realm_storage
        return f"{FILE}:{quote(str(self.data_directory / 'hub.catalog'))}"

    @property
    def data_directory(self) -> Path:
        """Absolute path of the data directory."""
        return Path(self.data).absolute()

    @property
    def tile_directory(self) -> Path:
        """Directory for rendered tiles."""
        return Path(self.tile_files).absolute() if self.tile_files else self.data_directory / _TILES

    @property
    def job_directory(self) -> Path | None:
        """Directory for files of jobs, if they have access to files."""
        return Path(self.job_files).absolute() if self.job_files else None

    @property
    def maintenance_schedule(self) -> MaintenanceSchedule:
        """When maintenance rounds run."""
        window = DailyWindow.parse(self.maintenance_window) if self.maintenance_window else None
        return MaintenanceSchedule(
            is_on=self.maintenance,
            interval_seconds=self.maintenance_seconds,
            budget_seconds=self.maintenance_budget,
            window=window,
        )

    @property
    def default_storage(self) -> DefaultStorage:
        """The storage that a new realm gets.

        In one database every realm has its own schema; the default realm uses the schema of a
        storage that is opened without the hub.
        """
        others = {} if _scheme(self.storage_location) != _PSQL else {"schema": "naksha_{realm}"}
        return DefaultStorage(
            location=self.storage_location,
            options=self.realm_storage_options,
            options_of_others=others,
        )

    @property
    def is_loopback(self) -> bool:
        """Whether the server can be reached only from this machine."""
        return is_loopback(self.host)


_TILES: Final = "tiles"
_PSQL: Final = ALIASES["postgresql"]
_ONE_PROCESS: Final = frozenset({FILE, MEMORY})


@lru_cache(maxsize=1024)  # called for every request without a token
def is_loopback(host: str) -> bool:
    """Return whether an address or host name is on the loopback interface."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check(settings: ServerSettings) -> ServerSettings:
    """Return the settings if they are consistent.

    Raises:
        InvalidArgument: Two settings contradict each other; the message says what to change.
    """
    if not settings.keys and not settings.is_loopback:
        raise InvalidArgument(
            f"Refusing to listen on the non-loopback address {settings.host!r} without "
            "authentication keys; pass --keys, or --host 127.0.0.1",
            field="keys",
        )
    AllowList(settings.remote_handlers)
    _check_web_addresses(settings)
    _ = settings.maintenance_schedule
    if settings.workers > 1:
        for name, flag, location, backends in (
            ("catalog", "--catalog", settings.catalog_location, CATALOGS),
            ("storage", "--realm-storage", settings.storage_location, STORAGES),
        ):
            if backends.scheme_of(location) in _ONE_PROCESS:
                raise InvalidArgument(
                    f"The {name} is in a file or in memory, which only one process can serve; use "
                    f"--workers 1, or a {name} in PostgreSQL ({flag} postgresql://…)",
                    field="workers",
                )
    return settings


def _check_web_addresses(settings: ServerSettings) -> None:
    """Check the addresses that become a part of the map page's Content-Security-Policy."""
    for field, address in (
        ("map_style", settings.map_style),
        *(("map_hosts", host) for host in settings.map_hosts),
    ):
        if address and not _WEB_ADDRESS.fullmatch(address):
            raise InvalidArgument(
                f"Setting {field}: {address!r} is not an address such as "
                "https://tiles.example/style.json",
                field=field,
            )


def _scheme(location: str) -> str:
    scheme = STORAGES.scheme_of(location)
    return ALIASES.get(scheme, scheme)
