"""Prometheus metrics.

With several workers each writes its own files, and the worker that is scraped merges those of all;
`PROMETHEUS_MULTIPROC_DIR` is then set before this module is imported.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from naksha.hub.hub import Hub
from naksha.hub.maintenance.state import RoundRecord
from naksha.hub.tiles.tile_service import TileOutcome
from naksha.model import limits
from naksha.model.errors import NakshaError
from naksha.server.middleware.admission import AdmissionController
from naksha.server.process.logs import RequestLine

__all__ = [
    "CONTENT_TYPE_LATEST",
    "count_event",
    "count_request",
    "count_tile",
    "exposition",
    "forget_worker",
    "keep_measuring",
    "observe_round",
]

_log: Final = logging.getLogger(__name__)
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)

disable_created_metrics()  # type: ignore[no-untyped-call]

REQUESTS: Final = Counter("naksha_requests", "Completed requests.", ["method", "route", "status"])
SECONDS: Final = Histogram(
    "naksha_request_seconds",
    "From the request head to the end of the response.",
    ["method", "route"],
    buckets=_BUCKETS,
)
_BYTES_OUT: Final = Counter("naksha_response_bytes", "Bytes of response bodies sent.", ["route"])
RUNNING: Final = Gauge(
    "naksha_requests_running", "Requests in progress.", multiprocess_mode="livesum"
)
_WAITING: Final = Gauge(
    "naksha_requests_waiting", "Requests queued for a slot.", multiprocess_mode="livesum"
)
WATCHERS: Final = Gauge(
    "naksha_watchers",
    "Open change streams and long-polling requests.",
    multiprocess_mode="livesum",
)
EVENTS: Final = Counter("naksha_events", "Events processed by handlers.", ["handler", "outcome"])
TILES: Final = Counter(
    "naksha_tiles",
    "Requested tiles by where they came from; `needless` counts those that were rendered again "
    "besides, without a difference.",
    ["outcome"],
)
_UNPUBLISHED: Final = Gauge(
    "naksha_unpublished_transactions",
    "Committed transactions that are not published yet.",
    ["storage"],
    multiprocess_mode="livemax",
)
CONNECTIONS: Final = Gauge(
    "naksha_storage_connections",
    "Connections in a storage's pool.",
    ["storage", "state"],
    multiprocess_mode="livesum",
)
CACHE: Final = Gauge(
    "naksha_catalog_cache",
    "Counters and size of the catalog cache.",
    ["what"],
    multiprocess_mode="livesum",
)

ROUNDS: Final = Counter(
    "naksha_maintenance_rounds", "Maintenance rounds that ended.", ["subject", "outcome"]
)
_ROUND_SECONDS: Final = Gauge(
    "naksha_maintenance_round_seconds",
    "Duration of the last maintenance round.",
    ["subject"],
    multiprocess_mode="mostrecent",
)
_ROUND_ENDED: Final = Gauge(
    "naksha_maintenance_last_round",
    "Unix time of the end of the last maintenance round that was not dry.",
    ["subject"],
    multiprocess_mode="max",
)
_ROUND_STEPS: Final = Gauge(
    "naksha_maintenance_steps",
    "Entries of the last maintenance round: done, put off, failed.",
    ["subject", "what"],
    multiprocess_mode="mostrecent",
)


def count_request(line: RequestLine) -> None:
    """Count a completed request."""
    requests, seconds, bytes_out = _counters(line.method, line.route, line.status)
    requests.inc()
    seconds.observe(line.ms / 1000)
    bytes_out.inc(line.bytes_out)


@cache  # the number of routes is bounded
def _counters(method: str, route: str, status: int) -> tuple[Counter, Histogram, Counter]:
    return (
        REQUESTS.labels(method, route, str(status)),
        SECONDS.labels(method, route),
        _BYTES_OUT.labels(route),
    )


def count_event(handler: str, has_failed: bool) -> None:
    """Count an event that a handler has processed."""
    _of_events(handler, has_failed).inc()


@cache
def _of_events(handler: str, has_failed: bool) -> Counter:
    return EVENTS.labels(handler, "failed" if has_failed else "answered")


def count_tile(outcome: TileOutcome) -> None:
    """Count a requested tile."""
    _of_tiles(outcome).inc()


@cache
def _of_tiles(outcome: TileOutcome) -> Counter:
    return TILES.labels(outcome.value)


def observe_round(subject: str, record: RoundRecord) -> None:
    """Record a maintenance round that ended."""
    outcome = "dry" if record.is_dry else record.outcome
    ROUNDS.labels(subject, outcome).inc()
    if record.is_dry:
        return
    _ROUND_SECONDS.labels(subject).set(record.seconds)
    _ROUND_ENDED.labels(subject).set(record.ended_ms / 1000)
    counts = (record.done_count, record.postponed_count, record.failed_count)
    for what, count in zip(("done", "put_off", "failed"), counts, strict=True):
        _ROUND_STEPS.labels(subject, what).set(count)


def exposition(is_one_of_many: bool) -> bytes:
    """Return all metrics in the Prometheus text format."""
    registry = REGISTRY
    if is_one_of_many:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def forget_worker(process_id: int) -> None:
    """Drop the gauges of a worker that has ended."""
    mark_process_dead(process_id)  # type: ignore[no-untyped-call]


async def keep_measuring(hub: Hub, admission: AdmissionController) -> None:
    """Sample the gauges periodically."""
    while True:
        RUNNING.set(admission.running)
        _WAITING.set(admission.waiting)
        for what, value in hub.catalog.cache.counts._asdict().items():
            CACHE.labels(what).set(value)
        await _measure_storages(hub)
        await asyncio.sleep(limits.METRICS_SAMPLE_SECONDS)


async def _measure_storages(hub: Hub) -> None:
    for name, storage in hub.storages.opened():
        try:
            status = await storage.publication()
        except NakshaError as error:
            _log.warning("Storage %s cannot be measured: %s", name, error)
            continue
        _UNPUBLISHED.labels(name).set(status.unpublished)
        usage = getattr(storage, "connections", None)
        for state, count in usage().items() if usage is not None else ():
            CONNECTIONS.labels(name, state).set(count)
