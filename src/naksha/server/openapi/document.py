"""The OpenAPI document, generated from the declared endpoints and the types that validate."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from naksha.server import VERSION
from naksha.server.openapi.descriptions import describe
from naksha.server.openapi.feature_schemas import SCHEMAS, ErrorResponse
from naksha.server.routing.binding import ParameterGroup
from naksha.server.routing.declarations import Responses
from naksha.server.routing.dispatch import Endpoint, operation_name

_REFERENCE: Final = "#/components/schemas/{model}"
_SECURITY: Final = {
    "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "access_token": {"type": "apiKey", "in": "query", "name": "access_token"},
}


class Document:
    """OpenAPI document under construction."""

    def __init__(self) -> None:
        self._schemas: dict[str, Any] = {}
        self._paths: dict[str, dict[str, Any]] = {}

    @classmethod
    def of(
        cls, endpoints: Sequence[Endpoint], more: Mapping[str, Any], *, needs_token: bool
    ) -> dict[str, Any]:
        """Build the document of some endpoints; `more` has further schemas."""
        self = cls()
        for endpoint in endpoints:
            methods = self._paths.setdefault(endpoint.path, {})
            methods[endpoint.declared.method.lower()] = self._operation(endpoint)
        self._referenced(ErrorResponse)
        document: dict[str, Any] = {
            "openapi": "3.1.0",
            "info": {"title": "Naksha", "version": VERSION},
            "paths": _without_nulls(self._paths),
            "components": {
                "schemas": _without_nulls(
                    dict(sorted({**self._schemas, **SCHEMAS, **more}.items()))
                ),
                "securitySchemes": _SECURITY,
            },
            "security": [{name: []} for name in _SECURITY] + ([] if needs_token else [{}]),
        }
        describe(document)
        return document

    def _operation(self, endpoint: Endpoint) -> dict[str, Any]:
        declared = endpoint.declared
        parameters = [*self._parameters(endpoint)]
        made: dict[str, Any] = {
            "tags": [*declared.tags],
            "summary": declared.function.__name__.replace("_", " ").title(),
            "description": inspect.getdoc(declared.function) or "",
            "operationId": operation_name(endpoint),
        }
        if parameters:
            made["parameters"] = parameters
        body = endpoint.binding.body
        if body is not None:
            content = {"application/json": {"schema": self._schema(body.kind, "validation")}}
            made["requestBody"] = {"required": True, "content": content}
        made["responses"] = self._responses(declared.responses, declared.status_code)
        for name, value in declared.openapi.items():
            made[name] = [*made.get(name, []), *value] if isinstance(value, list) else value
        return made

    def _parameters(self, endpoint: Endpoint) -> Iterator[dict[str, Any]]:
        """Yield the parameters: those of the path in its order, then of query and headers."""
        groups = [one for binding in endpoint.binding.everything() for one in binding.groups]
        in_path = {
            one["name"]: one
            for group in groups
            if group.source == "path"
            for one in self._group(group)
        }
        for name in endpoint.pattern.groupindex:
            plain = {"title": name.replace("_", " ").title(), "type": "string"}
            known = in_path.get(name, {"name": name, "in": "path", "schema": plain})
            yield {**known, "required": True}
        for source in ("query", "header"):
            for group in groups:
                if group.source == source:
                    yield from self._group(group)

    def _group(self, group: ParameterGroup) -> Iterator[dict[str, Any]]:
        schema = group.model.model_json_schema(ref_template=_REFERENCE)
        self._schemas |= schema.get("$defs", {})
        for name, field in group.aliases:
            found = schema["properties"][name]
            yield {
                "name": name,
                "in": group.source,
                "required": field.is_required(),
                "description": field.description,
                "deprecated": found.get("deprecated"),
                "schema": found,
            }

    def _responses(self, declared: Responses, status_code: int) -> dict[str, Any]:
        first = {"description": HTTPStatus(status_code).phrase}
        made: dict[str, Any] = {}
        for status, response in {status_code: first, **declared}.items():
            content: dict[str, Any] = {**response.get("content", {})}
            if "model" in response:
                schema = self._schema(response["model"], "serialization")
                content["application/json"] = {"schema": schema}
            shown = {name: value for name, value in response.items() if name != "model"}
            made[str(status)] = {**shown, "content": content} if content else shown
        return made

    def _schema(self, kind: Any, mode: Any) -> dict[str, Any]:
        """Return the schema of a type; models become components of the document."""
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            return self._referenced(kind, mode)
        schema = TypeAdapter(kind).json_schema(mode=mode, ref_template=_REFERENCE)
        self._schemas |= schema.pop("$defs", {})
        return schema

    def _referenced(self, model: type[BaseModel], mode: Any = "validation") -> dict[str, str]:
        schema = model.model_json_schema(mode=mode, ref_template=_REFERENCE)
        self._schemas |= schema.pop("$defs", {})
        self._schemas[model.__name__] = schema
        return {"$ref": _REFERENCE.format(model=model.__name__)}


def _without_nulls(value: Any) -> Any:
    """Omit members that are null: a default of null says no more than that a value is optional."""
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value
