"""What a write to a space means: which features are made, changed and deleted."""

from __future__ import annotations

from naksha.hub.context import Actor
from naksha.hub.requests import IfExists, WriteFeatures
from naksha.hub.responses import Written
from naksha.hub.targets import Target
from naksha.model import limits
from naksha.model.errors import CollectionExists, CollectionNotFound
from naksha.model.state import Outcome
from naksha.spi.storage import WriteSession


async def write_features(
    target: Target, request: WriteFeatures, actor: Actor, space_id: str
) -> Written:
    """Carry out all modifications."""

    async def work(session: WriteSession) -> tuple[list[Outcome], int | None]:
        await _ensure_collection(session, target)
        outcomes: list[Outcome] = []
        for one in request.modifications:
            if one.if_exists is IfExists.DELETE:
                outcomes += await session.delete(target.collection.id, one.ids)
            else:
                outcomes += await session.upsert(
                    target.collection.id, one.features, returning=request.returning
                )
        return outcomes, session.txn

    outcomes, txn = await target.storage.run(work, actor.app_id, actor.author)
    version = None
    if txn is not None:
        version = await target.storage.wait_published(txn, limits.PUBLISH_WAIT_SECONDS)
    by_action: dict[str, list[str]] = {}
    for outcome in outcomes:
        by_action.setdefault(outcome.action, []).append(outcome.id)
    return Written(
        inserted=tuple(by_action.get("CREATED", ())),
        updated=tuple(by_action.get("UPDATED", ())),
        deleted=tuple(by_action.get("DELETED", ())),
        retained=tuple(by_action.get("RETAINED", ())),
        states=tuple(outcome.state for outcome in outcomes if outcome.state is not None),
        txn=txn,
        version=None if version is None else version.seq_number,
    )


async def _ensure_collection(session: WriteSession, target: Target) -> None:
    try:
        await session.collection(target.collection.id)
    except CollectionNotFound:
        try:
            await session.create_collection(target.collection)
        except CollectionExists:
            await session.restore_collection(target.collection.id)
