"""Row-level scope of a right in a space, for code that does not send the space a request.

The decision is the one that the space's own authorization handler makes for requests.
"""

from __future__ import annotations

from naksha.hub.auth.rights import FeatureScope, Right, Rights
from naksha.hub.handlers.authorization import NOTHING, Authorization
from naksha.hub.pipeline.configuration import Configuration
from naksha.hub.pipeline.pipeline import Pipeline
from naksha.hub.pipeline.request_context import RequestContext
from naksha.model.errors import NakshaError


async def pipeline_of(configuration: Configuration, space_id: str) -> Pipeline | None:
    """Return the pipeline of a space, or None if it cannot be built."""
    try:
        return await configuration.pipeline(space_id)
    except NakshaError:
        return None


def scope_in(pipeline: Pipeline | None, rights: Rights, right: Right) -> FeatureScope:
    """Return the scope of features that a right extends to in a pipeline's space."""
    if pipeline is None:
        return NOTHING
    first = pipeline.stages[0].handler
    assert isinstance(first, Authorization)
    return first.scope(rights, right)


async def reads_all(context: RequestContext, space_id: str) -> bool:
    """Return whether the actor may read all features of a space."""
    pipeline = await pipeline_of(context.configured, space_id)
    return scope_in(pipeline, context.actor.rights, Right.READ_FEATURES).is_everything
