"""All endpoints, in the order of the OpenAPI document."""

from __future__ import annotations

from typing import Final

from naksha.server.routes import (
    branches,
    changes,
    changesets,
    connectors,
    copying,
    features,
    health,
    instances,
    iterate,
    jobs,
    lookup,
    meta,
    operation,
    rewriting,
    roles,
    search,
    spaces,
    spatial,
    spatial_batch,
    statistics,
    storages,
    subscriptions,
    tags,
    tiles,
)

ROUTES: Final = (
    health,
    operation,
    instances,
    spaces,
    connectors,
    storages,
    subscriptions,
    jobs,
    roles,
    lookup,
    copying,
    changes,
    changesets,
    meta,
    tags,
    branches,
    rewriting,
    features,
    search,
    iterate,
    spatial,
    spatial_batch,
    statistics,
    tiles,
)
