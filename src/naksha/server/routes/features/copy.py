"""Copy the features that match a query into another space."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.requests import IfExists, IfNotExists
from naksha.hub.query_language.query_string import decoded, raw_pairs
from naksha.hub.space_copy import CopyOperation, CopyReport, CopySpec
from naksha.model import limits
from naksha.model.errors import NakshaError
from naksha.model.feature_problems import invalid_struct
from naksha.server.errors import envelope_response, error_json
from naksha.server.middleware.admission import AdmissionController
from naksha.server.openapi.config_schemas import errors
from naksha.server.openapi.feature_schemas import takes
from naksha.server.requests.json_body import json_object
from naksha.server.requests.parameters import (
    PROPERTY_QUERY,
    EdgeParameters,
    NamespaceParameters,
    ReadParameters,
    query_of,
    raw_query,
)
from naksha.server.requests.state import Ctx, RealmDep, renewed, server_of
from naksha.server.responses.encoding import FAILED, JSON
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["features"])
LINES: Final = "application/x-ndjson"
_QUERY: Final = re.compile(
    r"(p\.|f\.|properties\.|(tags|author|limit|west|south|east|north|versionRef|version|context)=)"
)
_COUNT: Final = {"type": "integer"}
_OBJECTS: Final = {"type": "array", "items": {"type": "object"}}
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_ORDER: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["targetSpaceId"],
    "properties": {
        "targetSpaceId": {"type": "string"},
        "onFeatureExists": {"type": "string", "enum": [*IfExists], "default": "replace"},
        "onFeatureNotExists": {"type": "string", "enum": [*IfNotExists], "default": "create"},
        "prefixId": {"type": "string", "description": "Prefix for all ids."},
        "addTags": _TEXTS,
        "removeTags": _TEXTS,
        "transactional": {
            "type": "boolean",
            "default": False,
            "description": "All in one transaction, or nothing. Otherwise valid features are "
            f"written in transactions of up to {limits.COPY_PART_FEATURES} features.",
        },
        "message": {"type": "string", "description": "Message of the transactions."},
    },
}
_REPORT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["sourceSpaceId", "targetSpaceId", "read", "parts", "isComplete"],
    "properties": {
        "type": {"type": "string", "const": "CopyResponse"},
        "sourceSpaceId": {"type": "string"},
        "targetSpaceId": {"type": "string"},
        "sourceVersion": {"type": ["integer", "null"]},
        **dict.fromkeys(("read", "inserted", "updated", "deleted", "retained"), _COUNT),
        "failedCount": _COUNT,
        **dict.fromkeys(("failed", "notices", "violations", "parts"), _OBJECTS),
        "isComplete": {"type": "boolean"},
    },
}

_PROGRESS: Final[dict[str, Any]] = {
    "type": "string",
    "description": "Lines of JSON: after each transaction a `CopyProgress` with the counts so far, "
    "and finally the report or the error.",
}


class CopyParameters(ReadParameters, EdgeParameters, NamespaceParameters):
    """Selection of the features to copy."""

    tags: list[str] = Field([], description="As in a search.")
    author: list[str] = Field([], description="As in a search.")
    limit: int | None = Field(
        None, ge=1, le=limits.PAGE_MAX, description="Maximum number of features. Default: all."
    )


class _CopyBody(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Body of a copy request."""

    target_space_id: str
    on_feature_exists: IfExists = IfExists.REPLACE
    on_feature_not_exists: IfNotExists = IfNotExists.CREATE
    prefix_id: str = ""
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    transactional: bool = False
    message: str | None = None


@router.post(
    "/hub/spaces/{space_id}/copy",
    responses={
        200: {
            "description": "The report. If `failedCount` is above 0, some features were not "
            f"copied; the header `{FAILED}` has their number.",
            "content": {JSON: {"schema": _REPORT}, LINES: {"schema": _PROGRESS}},
        },
        **errors(409),
        405: {"description": "The target space is read-only."},
        410: {"description": "The history of the version has expired."},
        501: {"description": "No handler of one of the spaces supports this."},
        502: {"description": "A remote handler failed."},
    },
    openapi_extra={**PROPERTY_QUERY, **takes((JSON, _ORDER), description="Target and options.")},
)
async def copy(
    space_id: str,
    request: Request,
    realm: RealmDep,
    context: Ctx,
    parameters: Annotated[CopyParameters, QueryParam()],
) -> Response:
    """Copy the features that match a query in this space, at any version, into another space.

    Ids, tags and geometries are kept; history is not copied. If the copy fails, `copied` in the
    error has the report up to then. The copy is not limited in time; clients that accept
    `application/x-ndjson` receive its progress.
    """
    body = _order(await json_object(request))
    order = CopySpec(
        target_space_id=body.target_space_id,
        query=query_of(request, parameters, limit=parameters.limit, spatial=parameters.box()),
        ref=parameters.ref,
        context=parameters.context,
        if_exists=body.on_feature_exists,
        if_not_exists=body.on_feature_not_exists,
        prefix_id=body.prefix_id,
        add_tags=body.add_tags,
        remove_tags=body.remove_tags,
        transactional=body.transactional,
        message=body.message,
        query_text=_readable_query(raw_query(request)),
    )
    copy_operation = CopyOperation(
        realm, space_id, order, context, partial(renewed, request, realm)
    )
    steps = _in_slot(server_of(request).copies, context, copy_operation)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(aclosing(steps))
        try:
            report = await anext(steps)
            if LINES in request.headers.get("Accept", ""):
                stack.pop_all()  # the stream closes the steps itself
                return StreamingResponse(_lines(steps, copy_operation, context), media_type=LINES)
            async for _ in steps:
                pass
        except NakshaError as error:
            if not copy_operation.report.parts:
                raise
            return envelope_response(*_failed(error, copy_operation, context))
    headers = {FAILED: str(report.failed_count)} if report.failed_count else {}
    return Response(_line(report), headers=headers, media_type=JSON)


async def _in_slot(
    admission: AdmissionController, context: RequestContext, copy_operation: CopyOperation
) -> AsyncGenerator[CopyReport, None]:
    line = (context.actor.realm, context.actor.app_id, context.actor.author)
    await admission.enter(line)
    try:
        async with aclosing(copy_operation.steps()) as steps:
            async for report in steps:
                yield report
    finally:
        admission.leave(line)


async def _lines(
    steps: AsyncGenerator[CopyReport, None], copy_operation: CopyOperation, context: RequestContext
) -> AsyncIterator[bytes]:
    """Yield the progress after each transaction, then the report or the error."""
    async with aclosing(steps):
        yield _line(copy_operation.report)
        try:
            async for report in steps:
                yield _line(report)
        except NakshaError as error:
            yield msgspec.json.encode(_failed(error, copy_operation, context)[1]) + b"\n"


def _line(report: CopyReport) -> bytes:
    message: dict[str, Any] = {"type": "CopyProgress", **report.counts()}
    if report.is_complete:
        message = {"type": "CopyResponse", **msgspec.to_builtins(report)}
    return msgspec.json.encode(message) + b"\n"


def _failed(
    error: NakshaError, copy_operation: CopyOperation, context: RequestContext
) -> tuple[int, dict[str, Any]]:
    status, envelope = error_json(error, context.stream_id)
    return status, {**envelope, "copied": msgspec.to_builtins(copy_operation.report)}


def _readable_query(raw: bytes) -> str:
    """Return the readable query without other parameters, which may include a token."""
    pairs = (decoded(pair, "query") for pair in raw_pairs(raw))
    return "&".join(pair for pair in pairs if _QUERY.match(pair))


def _order(body: dict[str, Any]) -> _CopyBody:
    try:
        return msgspec.convert(body, _CopyBody)
    except msgspec.ValidationError as error:
        raise invalid_struct("copy request", error) from None
