"""Tags: names for versions. A snapshot is a tag that is never moved."""

from __future__ import annotations

from contextlib import suppress

from naksha.model.errors import Expired, NotFound
from naksha.spi.clock import SystemClock
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.branch_bases import lock_branch
from naksha.versioning.lines import check_protectable, place_of, place_of_tag
from naksha.versioning.records import (
    REF,
    STORAGE,
    Attribution,
    NameScope,
    StoredRecord,
    Tag,
    all_records,
    as_json_value,
    find_record,
    name_taken,
    pins_of,
    records_in,
)
from naksha.versioning.version_refs import check_name


async def create_tag(
    storage: Storage,
    name: str,
    signed: Attribution,
    ref: str = "HEAD",
    *,
    scope: NameScope = STORAGE,
    protects: bool = True,
    system: bool = False,
    force: bool = False,
) -> Tag:
    """Give a version a name.

    Args:
        storage: The storage.
        name: The name; must not be in use, unless `force` is given.
        signed: Author and app id, with the description as message.
        ref: The version; HEAD is the last published one.
        scope: All collections (of the storage or of a space), or some of them.
        protects: Keep what is tagged from expiring, and its collections from being dropped and from
            losing their history. Otherwise the tag is removed once it has expired in all of them.
        system: Whether a program creates it for its own use, so that listings for people omit it.
        force: Move an existing tag.
    """
    check_name(name)
    place = await place_of(storage, ref, scope)
    tag = Tag(
        name=name,
        scope=scope,
        version=place.version,
        layers=place.line.layers,
        branch=place.line.name,
        branch_number=place.line.number,
        protects=protects,
        system=system,
        description=signed.message,
        author=signed.author,
        app_id=signed.app_id,
        created_ms=SystemClock().now_ms(),
    )
    if protects:
        await check_protectable(place, scope)
    known = await find_record(storage, scope, name)
    if known is not None and not (force and isinstance(known.record, Tag)):
        raise name_taken(name)

    async def work(session: WriteSession) -> None:
        if known is not None:
            assert isinstance(known.record, Tag)
            await _unpin(session, known.record)
        expected = 0 if known is None else known.revision
        await session.store_object(REF, scope.key(name), as_json_value(tag), expected=expected)
        await lock_branch(session, place.line)
        if protects and tag.version.seq_number > 0:
            await _pin(session, tag)

    await storage.run(work, signed.app_id, signed.author)
    return tag


async def delete_tag(
    storage: Storage, name: str, signed: Attribution, *, scope: NameScope = STORAGE
) -> None:
    """Delete a tag; versions that only it protected may expire."""
    tag, known = await _tag(storage, name, scope)

    async def work(session: WriteSession) -> None:
        await session.remove_object(REF, scope.key(name), expected=known.revision)
        await _unpin(session, tag)

    await storage.run(work, signed.app_id, signed.author)


async def tags(storage: Storage, *, space: str | None = None) -> list[Tag]:
    """List all tags, ordered by name."""
    known = await records_in(storage, space)
    return [each.record for each in known if isinstance(each.record, Tag)]


async def tag_of(storage: Storage, name: str, *, scope: NameScope = STORAGE) -> Tag:
    """Return the tag with this name, else raise NotFound."""
    return (await _tag(storage, name, scope))[0]


async def drop_expired_tags(
    storage: Storage,
    signed: Attribution,
    *,
    space: str | None = None,
    in_all_spaces: bool = False,
) -> int:
    """Delete the tags that protect nothing and have expired everywhere; return their number.

    They are those of the storage itself or of a space, or, with `in_all_spaces`, all of them.
    """
    expired = await expired_tags(storage, space=space, in_all_spaces=in_all_spaces)
    for tag in expired:
        await delete_tag(storage, tag.name, signed, scope=tag.scope)
    return len(expired)


async def expired_tags(
    storage: Storage, *, space: str | None = None, in_all_spaces: bool = False
) -> list[Tag]:
    """List the tags that `drop_expired_tags` would delete."""
    known = await (all_records(storage) if in_all_spaces else records_in(storage, space))
    loose = [each.record for each in known if isinstance(each.record, Tag)]
    return [tag for tag in loose if not tag.protects and await _is_gone(storage, tag)]


async def _tag(storage: Storage, name: str, scope: NameScope) -> tuple[Tag, StoredRecord]:
    known = await find_record(storage, scope, name)
    if known is None or not isinstance(known.record, Tag):
        raise NotFound(f"Tag {name!r} does not exist", field="tag")
    return known.record, known


async def _is_gone(storage: Storage, tag: Tag) -> bool:
    """Return whether no collection is readable at a tag.

    One that is not may have been created after the tag, so a single one does not decide.
    """
    try:
        place = await place_of_tag(storage, tag)
    except (Expired, NotFound):
        return True
    names = tag.scope.collections or [c.id for c in await place.storage.collections()]
    for name in names:
        with suppress(Expired, NotFound):
            await place.storage.resolve(place.at, name)
            return False
    return bool(names)


def _pins(tag: Tag) -> list[tuple[str, str | None]]:
    return pins_of(f"tag:{tag.scope.key(tag.name)}", tag.scope)


async def _pin(session: WriteSession, tag: Tag) -> None:
    for name, collection in _pins(tag):
        await session.pin(name, tag.version, collection, guards=True)


async def _unpin(session: WriteSession, tag: Tag) -> None:
    for name, _ in _pins(tag):
        await session.unpin(name)
