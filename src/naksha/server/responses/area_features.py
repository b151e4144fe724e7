"""Features of a bounding box or a tile: unchanged, reduced by tweaks, or aggregated in cells."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response

from naksha.hub.auth import resources
from naksha.hub.auth.rights import Right
from naksha.hub.config.objects import Space
from naksha.hub.pipeline.requests import CountFeatures, GetStatistics, ReadFeatures
from naksha.hub.pipeline.responses import Features
from naksha.hub.query_language.clustering import (
    Ensure,
    Hexbin,
    Quadbin,
    Sampling,
    Simplification,
    parse_clustering,
    parse_tweaks,
)
from naksha.hub.render.areas import (
    apply_tweaks,
    cells,
    cluster_input,
    clustered_box,
    features_in,
    join_features,
    tweaks_of,
)
from naksha.hub.render.projection import box_shape
from naksha.model.errors import Forbidden
from naksha.model.query import Bbox, QueryPart
from naksha.server.requests.parameters import AreaParameters, query_of
from naksha.server.responses.encoding import GEO_JSON, complete_response
from naksha.server.responses.feature_collections import SpaceRequest, projection_of

Option = Sampling | Simplification | Ensure


class AreaRequest:
    """The features of a box, rendered for a zoom level."""

    def __init__(
        self,
        request: SpaceRequest,
        parameters: AreaParameters,
        box: Bbox,
        level: int,
        *,
        clip: bool = False,
        tweaks: Sequence[Option] = (),
    ) -> None:
        self.request = request
        self.parameters = parameters
        self.box = box
        self.level = level
        self.clip = clip if parameters.clip is None else parameters.clip
        given = request.http.query_params
        self.clustering = parse_clustering(given)
        option = parse_tweaks(given)
        self.tweaks = tweaks if option is None else (option,)

    @property
    def is_plain(self) -> bool:
        """Whether features are returned unchanged."""
        return self.clustering is None and not self.tweaks

    async def answer(self) -> Response:
        """Respond with GeoJSON."""
        if self.clustering is not None:
            found = await self.cells(self.clustering)
            return complete_response(
                self.request.http, msgspec.json.encode(_collection(found)), GEO_JSON
            )
        clip = box_shape(self.box) if self.clip else None
        shaping = projection_of(self.request.http, self.parameters, clip)
        if not self.tweaks:
            return await self.request.features(self._read(self.box, limited=True), shaping)
        return await self.request.stream(await self.features(), shaping)

    async def features(self) -> Features:
        """Read the features, with tweaks applied."""
        if not self.tweaks:
            return await self.request.send(self._read(self.box, limited=True))
        steps = await tweaks_of(self.tweaks, self.box, self.count)
        found = await self.request.send(self._read(self.box, limited=False))
        for option in self.tweaks:
            if isinstance(option, Simplification) and option.algorithm.joins:
                found = await join_features(found, option)
        return apply_tweaks(found, steps, self.parameters.limit)

    async def cells(self, options: Hexbin | Quadbin) -> list[dict[str, Any]]:
        """Aggregate the features into cells; empty cells are left out."""
        await self._check_capability(options)
        gathered = cluster_input(options)
        wide = clustered_box(self.box, self.level, options)
        await gathered.read(await self.request.send(self._read(wide, limited=False)))
        total = await self._total() if isinstance(options, Quadbin) else None
        return await asyncio.to_thread(
            partial(
                cells,
                gathered,
                self.box,
                self.level,
                options,
                clip=self.clip,
                total_count=total,
            )
        )

    async def _check_capability(self, options: Hexbin | Quadbin) -> None:
        """Check the clustering capability, a right in XYZ; shared spaces do not require it."""
        space = await self.request.realm.registry.get(Space, self.request.space_id)
        if not space.shared:
            name = resources.capability(options.capability)
            self.request.context.actor.rights.check(Right.USE_CAPABILITIES, name)

    async def _total(self) -> int:
        """Return the number of features in the space, from statistics where they are available."""
        ref, context = self.parameters.ref, self.parameters.context
        if await self.request.is_plain():
            # An actor with rights on some features only may still count these.
            with suppress(Forbidden):
                content = await self.request.send(GetStatistics(ref=ref, fast=True))
                return content.statistics.count.value
        return (await self.request.send(CountFeatures(ref=ref, context=context))).count

    def _read(self, box: Bbox, *, limited: bool) -> ReadFeatures:
        limit = self.parameters.limit if limited else None
        return ReadFeatures(
            query=query_of(
                self.request.http, self.parameters, spatial=features_in(box), limit=limit
            ),
            ref=self.parameters.ref,
            context=self.parameters.context,
        )

    async def part(self, part: QueryPart | None, limit: int | None) -> Features:
        """Read a part of the features, unchanged, in any order."""
        read = self._read(self.box, limited=False)
        query = msgspec.structs.replace(read.query, part=part, limit=limit)
        return await self.request.send(msgspec.structs.replace(read, query=query))

    async def count(self) -> int:
        """Return the number of features, unchanged."""
        read = self._read(self.box, limited=False)
        count = CountFeatures(query=read.query, ref=read.ref, context=read.context)
        return (await self.request.send(count)).count


def _collection(features: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": features}
