"""The public names of this release, collected from the running code.

    python -m tests.external_names          writes tests/data/external_names.json again

`COLLECTED` has a function for each kind of names. A name is never that of a module or a class:
these may change whenever they like. All imports are here, so that a move changes one place.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path
from typing import Any, Final

import msgspec
import typer
from prometheus_client.metrics import MetricWrapperBase

import naksha
from naksha.catalog import cache, objects, transfer_format
from naksha.catalog.cluster import peer_messages
from naksha.cli.main import app as cli
from naksha.cli.operations import backup_files
from naksha.hub import handlers, space_copy
from naksha.hub.auth import resources, rights, tokens
from naksha.hub.handlers.authorization import Authorization
from naksha.hub.handlers.views.cursor import ViewCursor
from naksha.hub.pipeline import handler_registry
from naksha.hub.pipeline.requests import Request
from naksha.hub.query_language.clustering import Hexbin, Quadbin
from naksha.hub.remote import program, wire
from naksha.hub.render.sorted_pages import SortCursor
from naksha.model import collection, errors, query, statistics, status_codes, version
from naksha.model.identity import storage_identity
from naksha.redis.catalog import RedisCatalog
from naksha.server import metrics
from naksha.server.app import create_app
from naksha.server.process import settings_sources
from naksha.server.process.logs import RequestLine
from naksha.server.process.settings import ServerSettings
from naksha.spark.archive import archive, versions
from naksha.spark.jobs import publish_directory, registry
from naksha.spark.jobs.loading.spec import Mapping
from naksha.spark.runtime.main import main as run_spark
from naksha.spark.source import read_options, stream, write_options
from naksha.spark.source.source import NakshaSource
from naksha.spi import arrow, cursor, locations, partitioning, staging
from naksha.spi.jobs import messages
from naksha.versioning import version_refs
from naksha.versioning.records import Branch, StoredConflict, Tag
from tests import external_shapes, external_sql

DATA: Final = Path(__file__).parent / "data" / "external_names.json"
Names = dict[str, Any]
PROGRAMS: Final = ("naksha.hub.remote", "naksha.spark")
"""Modules that users run by name."""
PUBLIC: Final = ("naksha", "naksha.spark", "naksha.hub.remote", "naksha.testing", "pyspark_naksha")
"""Modules that users import."""


def load_everything() -> None:
    """Import the whole package: object types and requests register themselves."""
    for module in pkgutil.walk_packages(naksha.__path__, "naksha."):
        if not module.name.startswith("naksha.testing") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


# ---- Rights, settings, metrics -------------------------------------------------------------------


def rights_names() -> Names:
    """Return the actions and attributes of a rights matrix."""
    made = {
        "space": resources.space(""),
        "connector": resources.connector(""),
        "storage": resources.storage(""),
        "collection": resources.collection("", storage_id=""),
        "subscription": resources.subscription(""),
        "job": resources.job(""),
        "role": resources.role(""),
        "feature": resources.feature(resources.features(resources.space("")), ""),
    }
    return {
        "actions": {name: right.value for name, right in rights.ACTIONS.items()},
        "aliases of attributes": dict(rights.ALIASES),
        "attributes": {name: sorted(one.attributes) for name, one in made.items()},
        "capabilities": sorted(kind.capability for kind in (Hexbin, Quadbin)),
        "claims": [*tokens.APP_CLAIMS, *tokens.AUTHOR_CLAIMS],
        "kinds of resources": sorted(resources.ResourceKind),
        "sections": {
            name: {right.value: [str(one) for one in implied] for right, implied in found.items()}
            for name, found in rights.SECTIONS.items()
        },
    }


def settings_names() -> Names:
    """Keys of the file of settings, with their flag and variable."""
    known = {one.name: f"{one.flag} {one.variable}" for one in settings_sources.settings_known()}
    return {
        "settings": known,
        "the file itself": f"--{settings_sources.CONFIG} "
        f"{settings_sources.PREFIX}{settings_sources.CONFIG.upper()}",
        "other variables": [program.SECRET_VARIABLE, *sorted(settings_sources.OF_CLIENTS)],
    }


def metrics_names() -> Names:
    """Metrics with their type and labels, and the values of labels that code decides."""
    made = [one for one in vars(metrics).values() if isinstance(one, MetricWrapperBase)]
    known = {}
    for one in made:
        (family,) = one.describe()
        known[family.name] = [family.type, *one._labelnames]
    classes: dict[str, Any] = {
        name: handler_registry.handler_class(name)
        for name in handler_registry.handler_names()
        if handler_registry.handler_class(name).__module__.startswith(handlers.__name__)
    }
    return {
        "metrics": known,
        "label handler": {name: one.metric_name for name, one in classes.items()}
        | {"(in front of all)": Authorization.metric_name},
        "label what": list(cache.CacheCounts._fields),
    }


# ---- What is sent and stored ---------------------------------------------------------------------


def shape_roots() -> dict[str, Any]:
    """Structs that others see or that are kept, by what they are."""
    load_everything()
    kept = {
        f"catalog object {name}": one.struct
        for name, one in objects._BY_ID.items()
        if one.struct.__module__.startswith("naksha.") and not name.startswith("test-")
    }
    requests = {f"request {one.__struct_config__.tag}": one for one in wire._tagged(Request)}
    specs = {f"job {name}": registry.find_job(name).spec for name in registry.job_names()}
    reports = {
        f"report of {name}": external_shapes.returned_by(registry.find_job(name).run)
        for name in registry.job_names()
    }
    return {**kept, **requests, **specs, **reports, **_named_roots()}


def _named_roots() -> dict[str, Any]:
    return {
        "archive manifest": archive.Manifest,
        "backup manifest": backup_files.BackupManifest,
        "archive export list": publish_directory._JobFile,
        "catalog move between servers": peer_messages.PeerMessage,
        "catalog transfer header": transfer_format.ExportHeader,
        "catalog transfer object": transfer_format.ObjectRecord,
        "catalog transfer pointer": transfer_format.PointerRecord,
        "catalog transfer trailer": transfer_format.ExportTrailer,
        "collection": collection.CollectionInfo,
        "collection change": collection.CollectionChange,
        "copy order": space_copy.CopySpec,
        "copy report": space_copy.CopyReport,
        "cursor of a search": SortCursor,
        "cursor of a storage": cursor.PageCursor,
        "cursor of a view": ViewCursor,
        "former identity of a storage": storage_identity.FormerIdentity,
        "job kind": messages.JobKind,
        **{f"job line {one.__struct_config__.tag}": one for one in messages.JobMessage.__args__},
        "job mapping": Mapping,
        "log line of a request": RequestLine,
        "partitioning": partitioning.Partitioning,
        "partitioning as kept": partitioning._Stored,
        **{
            f"query {one.__struct_config__.tag}": one
            for one in (query.Test, query.And, query.Or, query.Not)
        },
        "query": query.Query,
        **{
            f"version {one.__struct_config__.tag}": one
            for one in (version.Head, version.AtSeq, version.AtTxn, version.AtTime)
        },
        **{
            f"version reference {one.__struct_config__.tag}": one
            for one in (
                version_refs.NamedRef,
                version_refs.UuidRef,
                version_refs.SingleRef,
                version_refs.RangeRef,
                version_refs.AllRef,
            )
        },
        "remote error": wire.WireError,
        "remote event": wire.WireEvent,
        "remote features": wire._WireFeatures,
        "remote reply": wire.HandlerReply,
        "staged job as kept": staging._WriteTarget,
        "staged write": staging.StagedWrite,
        "statistics": statistics.Statistics,
        "stored branch": Branch,
        "stored conflict": StoredConflict,
        "stored tag": Tag,
    }


def json_names() -> Names:
    """The members of all of them; and what requests are answered with."""
    roots = shape_roots()
    known = {kind: name for name, kind in roots.items()}
    found = {name: external_shapes.members(kind, known) for name, kind in roots.items()}
    for one in wire._tagged(Request):
        answer = external_shapes.members(wire.response_type(one), known)
        found[f"response to {one.__struct_config__.tag}"] = answer
    return found


# ---- SQL, entry points, errors -------------------------------------------------------------------


def sql_names() -> Names:
    """Functions with their signatures, and tables and views with their columns."""
    realm = RedisCatalog(None, "naksha")._keys("{realm}")  # type: ignore[arg-type] # no server
    return {**external_sql.collected(), "keys in Redis": list(realm)}


def entry_point_names() -> Names:
    """Return the entry points and the public API."""
    found = {
        group: sorted(one.name for one in entry_points(group=group))
        for group in entry_points().groups
        if group.startswith("naksha.")
    }
    scripts = [one.name for one in entry_points(group="console_scripts") if one.dist is not None]
    return {
        **found,
        "aliases of locations": dict(locations.ALIASES),
        "commands": sorted(name for name in scripts if name == "naksha"),
        "modules that are imported": sorted(
            name for name in PUBLIC if importlib.util.find_spec(name)
        ),
        "modules that are run": sorted(name for name in PROGRAMS if importlib.util.find_spec(name)),
    }


def error_names() -> Names:
    """Codes with their HTTP status, their exit code and the other interfaces that use them."""
    classes = {kind.code: kind for kind in external_shapes.below(errors.NakshaError)}
    return {
        code: {
            "http": status_codes.status_codes_of(kind).http_status,
            "exit": status_codes.status_codes_of(kind).exit_code,
            "remote handlers": code in wire.TELLABLE,
        }
        for code, kind in classes.items()
        if kind.__module__ == errors.NakshaError.__module__
    }


# ---- Commands, the data source, REST -------------------------------------------------------------


def cli_names() -> Names:
    """Commands with their options and arguments."""
    programs = {
        "python -m naksha.hub.remote": _flags(program.main),
        "python -m naksha.spark run": _flags(run_spark, "run"),
    }
    return {**dict(_commands(typer.main.get_command(cli), "naksha")), **programs}


def _commands(command: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    options = []
    for one in command.params:
        names = "/".join((*one.opts, *one.secondary_opts))
        variable = f" {one.envvar}" if getattr(one, "envvar", None) else ""
        needed = " required" if one.required else ""
        kind = "" if one.param_type_name == "option" else " argument"
        options.append(f"{names}{kind}{needed}{variable}")
    yield path, sorted(options)
    if hasattr(command, "list_commands"):
        context: Any = None
        for name in command.list_commands(context):
            yield from _commands(command.get_command(context, name), f"{path} {name}")


def _flags(main: Callable[[list[str]], object], *command: str) -> list[str]:
    """The flags that `--help` names."""
    said = StringIO()
    with redirect_stdout(said), suppress(SystemExit):
        main([*command, "--help"])
    return external_shapes.flags_in(said.getvalue())


def spark_names() -> Names:
    """The data source: options, columns, offsets; and the files of an archive."""
    offset = stream._offset(version.Version(1, 2, 3))
    return {
        "archive columns": list(archive.KEPT),
        "archive columns of versions": versions._SCHEMA.names,
        "archive files": [archive.MANIFEST, archive.LOCK, versions.FILE],
        "columns": arrow.COLUMNS.names,
        "name": NakshaSource.name(),
        "offset": sorted(offset),
        "options of a read": [*read_options.READ, read_options.COLUMNS],
        "options of a stream": list(read_options.STREAM),
        "options of a write": list(write_options.WRITE),
        "write modes": sorted(staging.WriteMode),
    }


def rest_names() -> Names:
    """Paths with their parameters, and what bodies and answers have in them."""
    return external_shapes.rest(create_app(ServerSettings()).openapi())


COLLECTED: Final[dict[str, Callable[[], Names]]] = {
    "cli": cli_names,
    "entry points": entry_point_names,
    "errors": error_names,
    "json": json_names,
    "metrics": metrics_names,
    "rest": rest_names,
    "rights": rights_names,
    "settings": settings_names,
    "spark": spark_names,
    "sql": sql_names,
}


def snapshot() -> Names:
    """All of it, as JSON has it."""
    found: Names = msgspec.to_builtins({name: collect() for name, collect in COLLECTED.items()})
    return found


def main() -> None:
    """Write the file again."""
    argparse.ArgumentParser(prog="python -m tests.external_names", description=__doc__).parse_args()
    DATA.parent.mkdir(exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(snapshot(), order="sorted"), indent=1)
    DATA.write_bytes(text + b"\n")
    sys.stdout.write(f"{DATA} has {len(text):,} bytes\n")


if __name__ == "__main__":
    main()
