"""All endpoints, in the order of the OpenAPI document."""

from __future__ import annotations

from typing import Final

from naksha.server.ogc import collection_tiles, landing_page, tile_matrix_sets
from naksha.server.routes import health, instances, jobs, maintenance, me, operation
from naksha.server.routes.config import (
    change_log,
    collections,
    connectors,
    roles,
    spaces,
    storages,
    subscriptions,
)
from naksha.server.routes.features import (
    copy,
    deleted,
    features,
    iterate,
    meta,
    search,
    spatial,
    spatial_batch,
    statistics,
    tile_sets,
    tiles,
)
from naksha.server.routes.versions import (
    branches,
    change_feed,
    changesets,
    lookup,
    rewrite,
    snapshots,
    tags,
)
from naksha.server.web import page

ROUTES: Final = (
    health,
    operation,
    me,
    instances,
    maintenance,
    spaces,
    connectors,
    storages,
    collections,
    snapshots,
    change_log,
    subscriptions,
    jobs,
    roles,
    lookup,
    copy,
    change_feed,
    changesets,
    meta,
    tags,
    branches,
    rewrite,
    deleted,
    features,
    search,
    iterate,
    spatial,
    spatial_batch,
    statistics,
    tiles,
    tile_sets,
    landing_page,
    tile_matrix_sets,
    collection_tiles,
    page,
)
