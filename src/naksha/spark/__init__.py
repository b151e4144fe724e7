"""Spark integration: the data source `naksha` and the jobs of the data pipeline.

    spark = naksha.spark.session()
    spark.read.format("naksha").option("storage", "file:town.naksha").option("collection", "roads")

Executors only need the installed package. The jobs are imported on first use: they need more
packages than a session and the data source.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from naksha.spark.runtime.sessions import session, set_up
from naksha.spark.runtime.workers import spare_modules
from naksha.spark.source.save import write
from naksha.spark.source.source import NakshaSource
from naksha.spark.source.tables import changes, features

if TYPE_CHECKING:
    from naksha.spark.archive.archive import archived_features as archived_features
    from naksha.spark.jobs.archive import Archive as Archive
    from naksha.spark.jobs.archive import archive as archive_history
    from naksha.spark.jobs.diff import Diff as Diff
    from naksha.spark.jobs.diff import diff as diff
    from naksha.spark.jobs.export import Export as Export
    from naksha.spark.jobs.export import export as export
    from naksha.spark.jobs.frame import SilentProgress as SilentProgress
    from naksha.spark.jobs.load import load as load
    from naksha.spark.jobs.loading.spec import Load as Load
    from naksha.spark.jobs.loading.spec import Mapping as Mapping
    from naksha.spark.jobs.partition import Partition as Partition
    from naksha.spark.jobs.partition import partition as partition
    from naksha.spark.jobs.verify import Verify as Verify
    from naksha.spark.jobs.verify import verify as verify
    from naksha.spark.source.options import StorageRef as StorageRef

__all__ = [
    "NakshaSource",
    "archive_history",
    "changes",
    "features",
    "session",
    "set_up",
    "write",
]

_EXPORTS: Final = {
    "naksha.spark.archive.archive": ("archived_features",),
    "naksha.spark.jobs.archive": ("Archive", "archive_history"),
    "naksha.spark.jobs.diff": ("Diff", "diff"),
    "naksha.spark.jobs.export": ("Export", "export"),
    "naksha.spark.jobs.frame": ("SilentProgress",),
    "naksha.spark.jobs.load": ("load",),
    "naksha.spark.jobs.loading.spec": ("Load", "Mapping"),
    "naksha.spark.jobs.partition": ("Partition", "partition"),
    "naksha.spark.jobs.verify": ("Verify", "verify"),
    "naksha.spark.source.options": ("StorageRef",),
}
"""Public names by the module that defines them."""

spare_modules()


def __getattr__(name: str) -> Any:
    """Import a job on first use."""
    # `naksha.spark.archive` is a package, so the job of this name has another one here.
    attribute = "archive" if name == "archive_history" else name
    for module, names in _EXPORTS.items():
        if name in names:
            return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
