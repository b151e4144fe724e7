"""Features of a space by their ids: read, written, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from naksha.hub.language.tags import id_list, tag_list, tag_query
from naksha.hub.requests import (
    DeleteFeatures,
    IfExists,
    IfNotExists,
    Modification,
    ReadFeatures,
    WriteFeatures,
)
from naksha.hub.responses import Failure, Written
from naksha.hub.shaping import shaped
from naksha.model import limits
from naksha.model.errors import FeatureNotFound, InvalidArgument, NakshaError
from naksha.model.names import check_feature_id
from naksha.model.query import Query as Wanted
from naksha.model.query import States
from naksha.server.answers import GEO_JSON, JSON, deleted, wants_json, wants_no_body, whole, written
from naksha.server.bodies import json_body
from naksha.server.documents import (
    FEATURE,
    FEATURES,
    MODIFICATION_LIST,
    MODIFICATIONS,
    WRITTEN,
    deletes,
    reads,
    takes,
    writes,
)
from naksha.server.feature_bodies import feature_of, modifications_of
from naksha.server.parameters import (
    BranchParameters,
    DeleteParameters,
    IdParameters,
    ReplaceParameters,
    ShapeParameters,
    TaggingParameters,
    WriteParameters,
    list_of,
    raw_query,
)
from naksha.server.reading import Asked, AskedDep, shaping_of
from naksha.versioning.refs import Everything, parse_ref

router = APIRouter(tags=["features"])
MANY: Final = "/hub/spaces/{space_id}/features"
ONE: Final = "/hub/spaces/{space_id}/features/{feature_id:path}"
MISSING: Final = "The requested resource does not exist."
"""In these very words: clients compare it."""
EVERYTHING: Final = "*"

_SENT: Final = takes(
    (GEO_JSON, {"oneOf": [FEATURES, FEATURE]}),
    (JSON, {"oneOf": [FEATURES, FEATURE, MODIFICATION_LIST]}),
    (MODIFICATIONS, MODIFICATION_LIST),
    description="Features, or a list of modifications with rules of their own.",
)
_SENT_ONE: Final = takes((GEO_JSON, FEATURE), (JSON, FEATURE), description="The feature.")


async def checked_id(feature_id: str) -> str:
    """The id in the path."""
    return check_feature_id(feature_id, field="featureId")


FeatureId = Annotated[str, Depends(checked_id)]


# ---- Reading -------------------------------------------------------------------------------------


@router.get(MANY, response_class=Response, responses=reads("Those found.", (GEO_JSON, FEATURES)))
async def get_features(asked: AskedDep, parameters: Annotated[IdParameters, Query()]) -> Response:
    """Features by their ids. Those that are not there are left out."""
    ids = id_list(raw_query(asked.request))
    if not ids:
        raise InvalidArgument("Which features? Give their ids, or use search", field="id")
    query = Wanted(ids=ids, authors=list_of(asked.request, "author") or None)
    read = ReadFeatures(query=query, ref=parameters.ref, context=parameters.context)
    return await asked.features(read, shaping_of(asked.request, parameters))


@router.get(
    ONE,
    response_class=Response,
    responses=reads(
        "The feature; with `version=*` all its versions.",
        (GEO_JSON, {"oneOf": [FEATURE, FEATURES]}),
    ),
)
async def get_feature(
    asked: AskedDep, feature_id: FeatureId, parameters: Annotated[ShapeParameters, Query()]
) -> Response:
    """A feature."""
    shaping = shaping_of(asked.request, parameters)
    ref = parse_ref(parameters.ref)
    if isinstance(ref, Everything):
        return await asked.features(_all_versions(feature_id, ref, parameters), shaping)
    query = Wanted(ids=(feature_id,))
    read = ReadFeatures(query=query, ref=parameters.ref, context=parameters.context)
    found = await (await asked.send(read)).all()
    if not found:
        raise FeatureNotFound(MISSING, feature_id=feature_id)
    return whole(asked.request, shaped(found, shaping)[0].raw, GEO_JSON)


def _all_versions(id: str, ref: Everything, parameters: ShapeParameters) -> ReadFeatures:
    query = Wanted(ids=(id,), states=States.ALL, limit=limits.PAGE_MAX)
    return ReadFeatures(
        query=query, ref=f"{ref.branch}:HEAD", context=parameters.context, paged=True
    )


# ---- Writing -------------------------------------------------------------------------------------


@router.post(
    MANY,
    response_class=Response,
    responses=writes("What was done.", WRITTEN),
    openapi_extra=_SENT,
)
async def post_features(
    asked: AskedDep, parameters: Annotated[WriteParameters, Query()]
) -> Response:
    """Create features, and patch those that are there already, unless other rules are given."""
    rules = Modification(
        if_exists=parameters.e, if_not_exists=parameters.ne, on_conflict=parameters.cr
    )
    return await _write_many(asked, parameters, rules)


@router.put(
    MANY,
    response_class=Response,
    responses=writes("What was done.", WRITTEN),
    openapi_extra=_SENT,
)
async def put_features(
    asked: AskedDep, parameters: Annotated[ReplaceParameters, Query()]
) -> Response:
    """Create features, and replace those that are there already."""
    return await _write_many(asked, parameters, Modification(if_exists=IfExists.REPLACE))


async def _write_many(asked: Asked, parameters: ReplaceParameters, rules: Modification) -> Response:
    modifications = modifications_of(await json_body(asked.request), rules)
    empty = wants_no_body(asked.request)
    result = await _write(
        asked,
        parameters,
        modifications,
        prefix_id=parameters.prefix_id,
        transactional=parameters.transactional,
        returning=not empty,
    )
    return written(result, empty=empty)


@router.put(
    ONE,
    response_class=Response,
    responses=writes("The feature as it is now.", FEATURE),
    openapi_extra=_SENT_ONE,
)
async def put_feature(
    asked: AskedDep, feature_id: FeatureId, parameters: Annotated[TaggingParameters, Query()]
) -> Response:
    """Create or replace a feature. The id in the path counts."""
    return await _write_one(asked, parameters, feature_id, IfExists.REPLACE, IfNotExists.CREATE)


@router.patch(
    ONE,
    response_class=Response,
    responses=writes("The feature as it is now.", FEATURE),
    openapi_extra=_SENT_ONE,
)
async def patch_feature(
    asked: AskedDep, feature_id: FeatureId, parameters: Annotated[TaggingParameters, Query()]
) -> Response:
    """Change a feature: objects are merged, null removes, arrays are replaced."""
    return await _write_one(asked, parameters, feature_id, IfExists.PATCH, IfNotExists.RETAIN)


async def _write_one(
    asked: Asked,
    parameters: TaggingParameters,
    id: str,
    if_exists: IfExists,
    if_not_exists: IfNotExists,
) -> Response:
    feature = feature_of(await json_body(asked.request), id)
    modification = Modification(
        features=(feature,), if_exists=if_exists, if_not_exists=if_not_exists
    )
    result = await _write(asked, parameters, (modification,))
    if not result.states:
        raise FeatureNotFound(MISSING, feature_id=id)
    if wants_no_body(asked.request):
        return Response(status_code=204)
    return Response(result.states[0].raw, media_type=GEO_JSON)


async def _write(
    asked: Asked,
    parameters: TaggingParameters,
    modifications: tuple[Modification, ...],
    **more: Any,
) -> Written:
    raw = raw_query(asked.request)
    return await asked.send(
        WriteFeatures(
            modifications=modifications,
            ref=parameters.version_ref,
            context=parameters.context,
            conflict_detection=parameters.conflict_detection,
            add_tags=tuple(tag_list(raw, "addTags")),
            remove_tags=tuple(tag_list(raw, "removeTags")),
            **more,
        )
    )


# ---- Deleting ------------------------------------------------------------------------------------


@router.delete(ONE, response_class=Response, status_code=204, responses=deletes())
async def delete_feature(
    asked: AskedDep, feature_id: FeatureId, parameters: Annotated[BranchParameters, Query()]
) -> Response:
    """Delete a feature."""
    result = await _delete(asked, parameters, (feature_id,))
    if feature_id not in result.deleted:
        raise FeatureNotFound(MISSING, feature_id=feature_id)
    return Response(status_code=204)


@router.delete(
    MANY,
    response_class=Response,
    responses=writes("What was done, for who accepts JSON.", WRITTEN),
)
async def delete_features(
    asked: AskedDep, parameters: Annotated[DeleteParameters, Query()]
) -> Response:
    """Delete features by their ids or tags, or all of them."""
    raw = raw_query(asked.request)
    ids, tags = id_list(raw), tag_query(raw)
    empty = not wants_json(asked.request)
    if parameters.erase_content or EVERYTHING in (ids or ()) or (EVERYTHING,) in (tags or ()):
        return await _delete_found(asked, parameters, Wanted(), empty=empty)
    if ids:
        return written(await _delete(asked, parameters, ids), empty=empty)
    if tags is not None:
        return await _delete_found(asked, parameters, Wanted(tags=tags), empty=empty)
    raise InvalidArgument(
        "Which features? Give id=a,b or tags=a,b, or eraseContent=true for all", field="id"
    )


async def _delete_found(
    asked: Asked, parameters: BranchParameters, query: Wanted, *, empty: bool
) -> Response:
    """Delete what a query finds. Where handlers change what is read, it is as if the client had
    asked for the ids and sent them back."""
    place: dict[str, Any] = {"ref": parameters.version_ref, "context": parameters.context}
    if await asked.is_plain():
        return deleted(await asked.send(DeleteFeatures(query=query, **place)), empty=empty)
    found = await asked.send(ReadFeatures(query=query, **place))
    ids = [state.id async for states in found for state in states]
    return written(await _delete_in_parts(asked, parameters, ids), empty=empty)


async def _delete_in_parts(
    asked: Asked, parameters: BranchParameters, ids: Sequence[str]
) -> Written:
    """Delete features in one transaction; when they are too many for that in several. When one
    of these fails, what the ones before it did is told all the same, and the rest is left."""
    result = Written()
    for start in range(0, len(ids), limits.WRITE_FEATURES_MAX):
        some = tuple(ids[start : start + limits.WRITE_FEATURES_MAX])
        try:
            part = await _delete(asked, parameters, some)
        except NakshaError as error:
            if not result.deleted:
                raise
            position = None if error.position is None else start + error.position
            failure = Failure(
                id=error.feature_id,
                position=position,
                message=f"{error.message}; {len(result.deleted)} of {len(ids)} features were "
                "deleted before that, in transactions of their own, and the rest was given up",
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


async def _delete(asked: Asked, parameters: BranchParameters, ids: tuple[str, ...]) -> Written:
    modification = Modification(
        ids=ids, if_exists=IfExists.DELETE, if_not_exists=IfNotExists.RETAIN
    )
    return await asked.send(
        WriteFeatures(
            modifications=(modification,),
            ref=parameters.version_ref,
            context=parameters.context,
            returning=False,
        )
    )
