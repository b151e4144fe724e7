"""Read, write and delete features of a space by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from naksha.hub.pipeline.requests import (
    DeleteFeatures,
    IfExists,
    IfNotExists,
    Modification,
    ReadFeatures,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Failure, Written
from naksha.hub.query_language.tags import id_list, tag_list, tag_query
from naksha.hub.render.projection import shaped
from naksha.model import limits
from naksha.model.errors import (
    Conflict,
    FeatureNotFound,
    InvalidArgument,
    NakshaError,
    PreconditionFailed,
)
from naksha.model.feature_problems import readable_id
from naksha.model.identity.names import check_feature_id
from naksha.model.query import Query as FeatureQuery
from naksha.model.query import States
from naksha.model.state import XYZ, State
from naksha.server.openapi.feature_schemas import (
    FEATURE,
    FEATURES,
    MODIFICATION_LIST,
    MODIFICATIONS,
    NOT_MATCHED,
    WRITTEN,
    deletes,
    reads,
    takes,
    writes,
)
from naksha.server.requests.feature_body import feature_of, modifications_of
from naksha.server.requests.json_body import json_body
from naksha.server.requests.parameters import (
    AuthorParameters,
    DeleteParameters,
    IdParameters,
    ReplaceOneParameters,
    ReplaceParameters,
    TaggingParameters,
    TargetParameters,
    WriteParameters,
    list_of,
    raw_query,
)
from naksha.server.responses.encoding import (
    GEO_JSON,
    JSON,
    complete_response,
    delete_response,
    etag_of,
    feature_response,
    notices_header,
    wants_json,
    wants_no_body,
    write_response,
)
from naksha.server.responses.feature_collections import SpaceRequest, SpaceRequestDep, projection_of
from naksha.server.routing.declarations import Depends, HeaderParam, QueryParam, Router
from naksha.versioning.version_refs import AllRef, parse_ref

router = Router(tags=["features"])
MANY: Final = "/hub/spaces/{space_id}/features"
ONE: Final = "/hub/spaces/{space_id}/features/{feature_id:path}"
MISSING: Final = "The requested resource does not exist."
"""Do not change this text: XYZ clients compare it literally."""
EVERYTHING: Final = "*"

_SENT: Final = takes(
    (GEO_JSON, {"oneOf": [FEATURES, FEATURE]}),
    (JSON, {"oneOf": [FEATURES, FEATURE, MODIFICATION_LIST]}),
    (MODIFICATIONS, MODIFICATION_LIST),
    description="Features, or a list of modifications with their own rules.",
)
_SENT_ONE: Final = takes((GEO_JSON, FEATURE), (JSON, FEATURE), description="The feature.")


async def _checked_id(feature_id: str) -> str:
    """Validate the feature id of the path."""
    return check_feature_id(feature_id, field="featureId")


FeatureId = Annotated[str, Depends(_checked_id)]
IfMatch = Annotated[
    str | None,
    HeaderParam(
        alias="If-Match",
        description="The `ETag`, or the `uuid`, of the feature that was read; if the feature has "
        "changed since, nothing is written and the response is 412. `*`: the feature must exist.",
    ),
]
IfMatchMany = Annotated[
    str | None,
    HeaderParam(
        alias="If-Match",
        description="`*`: every feature must have the `uuid` of its current state, else 409.",
    ),
]
IfNoneMatch = Annotated[
    str | None,
    HeaderParam(
        alias="If-None-Match",
        description="`*`: the feature must not exist, else 412. No other value is supported.",
    ),
]


# ---- Reading -------------------------------------------------------------------------------------


@router.get(MANY, responses=reads("The features found.", (GEO_JSON, FEATURES)))
async def get_features(
    request: SpaceRequestDep, parameters: Annotated[IdParameters, QueryParam()]
) -> Response:
    """Return features by id. Missing ones are left out."""
    ids = id_list(raw_query(request.http))
    if not ids:
        raise InvalidArgument(
            'Parameter "id" is required; use /search to query by property', field="id"
        )
    query = FeatureQuery(ids=ids, authors=list_of(request.http, "author") or None)
    read = ReadFeatures(query=query, ref=parameters.ref, context=parameters.context)
    return await request.features(read, projection_of(request.http, parameters))


@router.get(
    ONE,
    responses=reads(
        "The feature; all its states with `version=*`.",
        (GEO_JSON, {"oneOf": [FEATURE, FEATURES]}),
    ),
)
async def get_feature(
    request: SpaceRequestDep,
    feature_id: FeatureId,
    parameters: Annotated[AuthorParameters, QueryParam()],
) -> Response:
    """Return a feature."""
    shaping = projection_of(request.http, parameters)
    query = FeatureQuery(ids=(feature_id,), authors=list_of(request.http, "author") or None)
    if parameters.ref.endswith("*"):
        ref = parse_ref(parameters.ref)
        if isinstance(ref, AllRef):
            return await request.features(_all_versions(query, ref, parameters), shaping)
    read = ReadFeatures(query=query, ref=parameters.ref, context=parameters.context)
    found = await (await request.send(read)).all()
    if not found:
        raise FeatureNotFound(MISSING, feature_id=feature_id)
    return complete_response(request.http, shaped(found, shaping)[0].raw, GEO_JSON)


def _all_versions(query: FeatureQuery, ref: AllRef, parameters: AuthorParameters) -> ReadFeatures:
    states = msgspec.structs.replace(query, states=States.ALL, limit=limits.PAGE_MAX)
    return ReadFeatures(
        query=states, ref=f"{ref.branch}:HEAD", context=parameters.context, paged=True
    )


# ---- Writing -------------------------------------------------------------------------------------


@router.post(
    MANY,
    responses=writes("The written features.", WRITTEN),
    openapi_extra=_SENT,
)
async def post_features(
    request: SpaceRequestDep,
    parameters: Annotated[WriteParameters, QueryParam()],
    if_match: IfMatchMany = None,
) -> Response:
    """Create features, and patch existing ones, unless `e` and `ne` set other rules."""
    rules = Modification(
        if_exists=parameters.e, if_not_exists=parameters.ne, on_conflict=parameters.cr
    )
    return await _write_many(request, parameters, rules, if_match)


@router.put(
    MANY,
    responses=writes("The written features.", WRITTEN),
    openapi_extra=_SENT,
)
async def put_features(
    request: SpaceRequestDep,
    parameters: Annotated[ReplaceParameters, QueryParam()],
    if_match: IfMatchMany = None,
) -> Response:
    """Create features, and replace existing ones."""
    rules = Modification(if_exists=IfExists.REPLACE)
    return await _write_many(request, parameters, rules, if_match)


async def _write_many(
    request: SpaceRequest, parameters: ReplaceParameters, rules: Modification, if_match: str | None
) -> Response:
    if if_match not in (None, EVERYTHING):
        raise InvalidArgument(
            "If-Match for several features must be *; put the uuid of its state in each feature",
            field="If-Match",
        )
    modifications = modifications_of(await json_body(request.http), rules)
    if if_match is not None:
        _check_locks(modifications)
    empty = wants_no_body(request.http)
    result = await _write(
        request,
        parameters,
        modifications,
        prefix_id=parameters.prefix_id,
        transactional=parameters.transactional,
        returning=not empty,
        uuid_lock=parameters.conflict_detection or if_match is not None,
    )
    return write_response(result, empty=empty)


def _check_locks(modifications: tuple[Modification, ...]) -> None:
    """Reject features without a uuid: they would overwrite or delete any state."""
    for modification in modifications:
        for feature in modification.features:
            namespace = (feature.get("properties") or {}).get(XYZ) or {}
            if not namespace.get("uuid"):
                raise _not_locked(readable_id(feature.get("id")))
        for id in modification.ids:
            raise _not_locked(id)


def _not_locked(id: str | None) -> Conflict:
    return Conflict(
        "If-Match requires the uuid of the current state in every feature, and "
        f"{'a feature' if id is None else f'feature {id!r:.64}'} has none",
        field="If-Match",
        feature_id=id,
    )


@router.put(
    ONE,
    responses={**writes("The feature after the write.", FEATURE), **NOT_MATCHED},
    openapi_extra=_SENT_ONE,
)
async def put_feature(
    request: SpaceRequestDep,
    feature_id: FeatureId,
    parameters: Annotated[ReplaceOneParameters, QueryParam()],
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Create or replace a feature. Its id is the one in the path, prefixed with `prefixId`."""
    rules = Modification(if_exists=IfExists.REPLACE, if_not_exists=IfNotExists.CREATE)
    id = check_feature_id(parameters.prefix_id + feature_id, field="prefixId")
    if if_none_match is None:
        return await _write_one(request, parameters, id, rules, if_match)
    if if_none_match.strip() != EVERYTHING or if_match is not None:
        raise InvalidArgument(
            "If-None-Match must be * and cannot be combined with If-Match",
            field="If-None-Match",
        )
    rules = msgspec.structs.replace(rules, if_exists=IfExists.ERROR)
    try:
        return await _write_one(request, parameters, id, rules, None)
    except Conflict as error:
        raise PreconditionFailed(
            f"Feature {id!r:.64} already exists; its current state is in `head`",
            field="If-None-Match",
            feature_id=id,
            head=error.head,
        ) from error


@router.patch(
    ONE,
    responses={**writes("The feature after the write.", FEATURE), **NOT_MATCHED},
    openapi_extra=_SENT_ONE,
)
async def patch_feature(
    request: SpaceRequestDep,
    feature_id: FeatureId,
    parameters: Annotated[TaggingParameters, QueryParam()],
    if_match: IfMatch = None,
) -> Response:
    """Patch a feature: objects are merged, null removes a member, arrays are replaced."""
    rules = Modification(if_exists=IfExists.PATCH, if_not_exists=IfNotExists.RETAIN)
    return await _write_one(request, parameters, feature_id, rules, if_match)


async def _write_one(
    request: SpaceRequest,
    parameters: TaggingParameters,
    id: str,
    rules: Modification,
    if_match: str | None,
) -> Response:
    feature = feature_of(await json_body(request.http), id)
    if if_match is not None:
        head = await _matched(request, parameters, id, if_match)
        feature = feature if if_match == EVERYTHING else _locked(feature, head)
    modification = msgspec.structs.replace(rules, features=(feature,))
    locks = parameters.conflict_detection or if_match is not None
    try:
        result = await _write(request, parameters, (modification,), uuid_lock=locks)
    except Conflict as error:
        raise error if if_match in (None, EVERYTHING) else _not_matched(error.head) from error
    if not result.states:
        raise FeatureNotFound(MISSING, feature_id=id)
    if wants_no_body(request.http):
        return Response(status_code=204, headers=notices_header(result))
    return feature_response(result)


async def _matched(
    request: SpaceRequest, target: TargetParameters, id: str, if_match: str
) -> State:
    """Return the current state of a feature if it matches one of the tags of `If-Match`."""
    read = ReadFeatures(query=FeatureQuery(ids=(id,)), ref=target.ref, context=target.context)
    found = await (await request.send(read)).all()
    tags = {tag.strip().removeprefix("W/").strip('"') for tag in if_match.split(",")}
    for state in found:
        own = {EVERYTHING, state.uuid, etag_of(state.raw).removeprefix("W/").strip('"')}
        if own & tags:
            return state
    raise _not_matched(found[0].feature if found else None)


def _not_matched(head: dict[str, Any] | None) -> PreconditionFailed:
    return PreconditionFailed(
        "The feature does not exist, so no state of it matches If-Match"
        if head is None
        else f"Feature {head['id']!r:.64} has changed since it was read; "
        "its current state is in `head`",
        field="If-Match",
        head=head,
    )


def _locked(feature: dict[str, Any], head: State) -> dict[str, Any]:
    """Return the feature with a lock on this state."""
    properties = feature.get("properties")
    if not isinstance(properties, dict | None):
        return feature  # rejected when it is written
    namespace = (properties or {}).get(XYZ)
    lock = {"uuid": head.uuid, "version": head.xyz["version"]}
    kept = namespace if isinstance(namespace, dict) else {}
    return {**feature, "properties": {**(properties or {}), XYZ: {**kept, **lock}}}


async def _write(
    request: SpaceRequest,
    parameters: TaggingParameters,
    modifications: tuple[Modification, ...],
    **more: Any,
) -> Written:
    raw = raw_query(request.http)
    return await request.send(
        WriteFeatures(
            modifications=modifications,
            ref=parameters.ref,
            context=parameters.context,
            conflict_detection=parameters.conflict_detection,
            add_tags=tuple(tag_list(raw, "addTags")),
            remove_tags=tuple(tag_list(raw, "removeTags")),
            **more,
        )
    )


# ---- Deleting ------------------------------------------------------------------------------------


@router.delete(ONE, status_code=204, responses={**deletes(), **NOT_MATCHED})
async def delete_feature(
    request: SpaceRequestDep,
    feature_id: FeatureId,
    parameters: Annotated[TargetParameters, QueryParam()],
    if_match: IfMatch = None,
) -> Response:
    """Delete a feature."""
    if if_match is None:
        result = await _delete(request, parameters, (feature_id,))
    else:
        head = await _matched(request, parameters, feature_id, if_match)
        locked = {} if if_match == EVERYTHING else _locked({}, head)
        try:
            result = await _delete(request, parameters, (), ({**locked, "id": feature_id},))
        except Conflict as error:
            raise _not_matched(error.head) from error
    if feature_id not in result.deleted:
        raise FeatureNotFound(MISSING, feature_id=feature_id)
    return Response(status_code=204)


@router.delete(
    MANY,
    responses=writes("The result, for clients that accept JSON.", WRITTEN),
)
async def delete_features(
    request: SpaceRequestDep, parameters: Annotated[DeleteParameters, QueryParam()]
) -> Response:
    """Delete features by id or tags, or all of them. Ids and tags combine with AND."""
    raw = raw_query(request.http)
    ids, tags = id_list(raw), tag_query(raw)
    if parameters.erase_content and (ids or tags is not None):
        raise InvalidArgument(
            'Parameter "eraseContent" deletes all features and cannot be combined with "id" or '
            '"tags"',
            field="eraseContent",
        )
    if not (parameters.erase_content or ids or tags is not None):
        raise InvalidArgument(
            'One of the parameters "id", "tags" and "eraseContent=true" (delete all) is required',
            field="id",
        )
    empty = not wants_json(request.http)
    some_ids = None if EVERYTHING in (ids or ()) else ids
    some_tags = None if (EVERYTHING,) in (tags or ()) else tags
    if some_ids and some_tags is None:
        return write_response(await _delete(request, parameters, some_ids), empty=empty)
    query = FeatureQuery(ids=some_ids or None, tags=some_tags)
    return await _delete_found(request, parameters, query, empty=empty)


async def _delete_found(
    request: SpaceRequest, parameters: TargetParameters, query: FeatureQuery, *, empty: bool
) -> Response:
    """Delete the features that match a query.

    If handlers change what is read, the matching ids are read through the pipeline first and then
    deleted, as a client would do.
    """
    target: dict[str, Any] = {"ref": parameters.ref, "context": parameters.context}
    if await request.is_plain():
        return delete_response(
            await request.send(DeleteFeatures(query=query, **target)), empty=empty
        )
    found = await request.send(ReadFeatures(query=query, **target))
    ids = [state.id async for states in found for state in states]
    return write_response(await _delete_in_parts(request, parameters, ids), empty=empty)


async def _delete_in_parts(
    request: SpaceRequest, parameters: TargetParameters, ids: Sequence[str]
) -> Written:
    """Delete features in one transaction, or in several if there are too many for one.

    If one of several fails, the result reports the earlier ones, and the rest is not deleted.
    """
    result = Written()
    for start in range(0, len(ids), limits.WRITE_FEATURES_MAX):
        some = tuple(ids[start : start + limits.WRITE_FEATURES_MAX])
        try:
            part = await _delete(request, parameters, some)
        except NakshaError as error:
            if not result.deleted:
                raise
            position = None if error.position is None else start + error.position
            failure = Failure(
                id=error.feature_id,
                position=position,
                message=f"{error.message}; {len(result.deleted)} of {len(ids)} features were "
                "deleted before, in separate transactions, and the remaining ones were skipped",
                code=error.code,
                field=error.field,
            )
            return msgspec.structs.replace(result, failed=(*result.failed, failure))
        result = Written(
            deleted=result.deleted + part.deleted,
            failed=result.failed + part.failed,
            version=part.version or result.version,
        )
    return result


async def _delete(
    request: SpaceRequest,
    parameters: TargetParameters,
    ids: tuple[str, ...],
    features: tuple[dict[str, Any], ...] = (),
) -> Written:
    """Delete features by id, or those in `features` with a lock on their states."""
    modification = Modification(
        ids=ids,
        features=features,
        if_exists=IfExists.DELETE,
        if_not_exists=IfNotExists.RETAIN,
    )
    return await request.send(
        WriteFeatures(
            modifications=(modification,),
            ref=parameters.ref,
            context=parameters.context,
            returning=False,
        )
    )
