"""Trial construction of event handlers before a configuration change is committed.

An invalid configuration fails in the request that sends it, not in later requests to the space.
"""

from __future__ import annotations

from typing import Final

from naksha.catalog.entities import EntityEdit
from naksha.hub.config.objects import Connector, HubObject, Space
from naksha.hub.config.reference_index import ReferenceIndex
from naksha.hub.config.references import connectors_named, connectors_of
from naksha.hub.pipeline.configuration import construct_handler
from naksha.hub.pipeline.pipeline import HubServices, Setup
from naksha.hub.subscriptions.objects import Subscription
from naksha.model.errors import NakshaError

NOBODY: Final = Space(id="nobody")
"""Placeholder space for connectors that no space uses yet."""


async def construct_handlers(
    edit: EntityEdit, references: ReferenceIndex, entity: HubObject, hub: HubServices
) -> None:
    """Construct every handler that the object would lead to, to validate its configuration.

    Raises:
            InvalidArgument: The configuration is invalid; names the field and the connector.
    """
    if isinstance(entity, Space):
        processors = {ref.id for ref in entity.processor_refs()}
        for connector in await connectors_of(edit, entity):
            try:
                construct_handler(Setup(connector, entity, hub))
            except NakshaError as error:
                if connector.id in processors:
                    error.field = "processors"
                raise
    elif isinstance(entity, Subscription):
        for connector in await connectors_named(edit, entity.event_handler_ids):
            construct_handler(Setup(connector, NOBODY, hub))
    elif isinstance(entity, Connector):
        for space in await references.spaces_served_by(edit, entity.id) or [NOBODY]:
            construct_handler(Setup(entity, space, hub))
