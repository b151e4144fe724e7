"""Row-level scope of a right in a space, for code that does not send the space a request.

The decision is the one that the space's own authorization handler makes for requests.
"""

from __future__ import annotations

from typing import Protocol

from naksha.hub.auth.rights import FeatureScope, Right, Rights
from naksha.hub.config.registry import ConfiguredRealm
from naksha.hub.handlers.authorization import NOTHING, Authorization
from naksha.hub.pipeline.pipeline import Pipeline
from naksha.hub.pipeline.pipeline_cache import Pipelines
from naksha.model.errors import NakshaError


class ServingRealm(ConfiguredRealm, Protocol):
    """A realm with its pipelines."""

    async def pipelines(self) -> Pipelines: ...


async def pipeline_of(realm: ServingRealm, space_id: str) -> Pipeline | None:
    """Return the pipeline of a space, or None if it cannot be built."""
    try:
        return await (await realm.pipelines()).get(space_id)
    except NakshaError:
        return None


def scope_in(pipeline: Pipeline | None, rights: Rights, right: Right) -> FeatureScope:
    """Return the scope of features that a right extends to in a pipeline's space."""
    if pipeline is None:
        return NOTHING
    first = pipeline.stages[0].handler
    assert isinstance(first, Authorization)
    return first.scope(rights, right)


async def reads_all(realm: ServingRealm, space_id: str, rights: Rights) -> bool:
    """Return whether the rights allow reading all features of a space."""
    pipeline = await pipeline_of(realm, space_id)
    return scope_in(pipeline, rights, Right.READ_FEATURES).is_everything
