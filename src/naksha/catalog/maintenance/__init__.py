"""Maintenance of the catalog: garbage collection, and verification that all live data exists."""

from naksha.catalog.maintenance.log_horizon import LogHorizon, LogHorizons, LogHorizonState, LogPin
from naksha.catalog.maintenance.retained_ids import AllRealms, RealmIdentifier, TypeIdentifier
from naksha.catalog.maintenance.retention import Retention, RetentionRule
from naksha.catalog.maintenance.runs import (
    MaintenanceRun,
    RealmOutcome,
    RealmReport,
    RunPhase,
    RunReport,
    TypeCounts,
)
from naksha.catalog.maintenance.service import Maintenance, MaintenanceSettings

__all__ = [
    "AllRealms",
    "LogHorizon",
    "LogHorizonState",
    "LogHorizons",
    "LogPin",
    "Maintenance",
    "MaintenanceRun",
    "MaintenanceSettings",
    "RealmIdentifier",
    "RealmOutcome",
    "RealmReport",
    "Retention",
    "RetentionRule",
    "RunPhase",
    "RunReport",
    "TypeCounts",
    "TypeIdentifier",
]
