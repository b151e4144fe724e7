"""Maintenance of the catalog: garbage collection, and verification that all live data exists."""

from naksha.catalog.maintenance.log_horizon import History, HistoryState, Horizon, Pin
from naksha.catalog.maintenance.retained_ids import AllRealms, RealmIdentifier, TypeIdentifier
from naksha.catalog.maintenance.retention import Retention, RetentionRule
from naksha.catalog.maintenance.runs import Counts, Outcome, Phase, RealmReport, Run, RunReport
from naksha.catalog.maintenance.service import Maintenance, Settings

__all__ = [
    "AllRealms",
    "Counts",
    "History",
    "HistoryState",
    "Horizon",
    "Maintenance",
    "Outcome",
    "Phase",
    "Pin",
    "RealmIdentifier",
    "RealmReport",
    "Retention",
    "RetentionRule",
    "Run",
    "RunReport",
    "Settings",
    "TypeIdentifier",
]
