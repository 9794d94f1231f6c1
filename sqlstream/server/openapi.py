"""The description of the endpoints in OpenAPI, from the list ENDPOINTS."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from sqlstream.distribution import VERSION
from sqlstream.server.endpoints import ENDPOINTS, Endpoint
from sqlstream.server.http_answers import JSON
from sqlstream.server.problems import MEDIA_TYPE, Problem

_REFERENCE = "#/components/schemas/{name}"


def description() -> dict[str, Any]:
    """Return the document that is served at /v1/openapi.json."""
    types = [kind for e in ENDPOINTS for kind in (e.body, e.answer) if kind is not None]
    _, schemas = msgspec.json.schema_components([*dict.fromkeys(types), Problem], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "sqlstream", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    words = re.findall(r"\w+", endpoint.path.removeprefix("/v1"))
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    for parameter in endpoint.parameters:
        text = {"type": "string"}
        schema: dict[str, Any] = {"type": "array", "items": text} if parameter.repeated else text
        fields = {"name": parameter.name, "in": "query", "description": parameter.description}
        parameters.append({**fields, "required": parameter.required, "schema": schema})
    operation: dict[str, Any] = {
        "operationId": "_".join([endpoint.method.lower(), *words]),
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": {
            str(endpoint.status): {"description": endpoint.summary, "content": _content(endpoint)},
            "default": {"description": "A problem", "content": {MEDIA_TYPE: {"schema": _reference(Problem)}}},
        },
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": _reference(endpoint.body)}}}
    if endpoint.role is not None:
        operation["security"] = [{"token": []}]
        operation["description"] = (
            f"Needs a token of the role {endpoint.role.name.lower()}, where the server has tokens."
        )
    return operation


def _content(endpoint: Endpoint) -> dict[str, Any]:
    answer = {} if endpoint.answer is None else {JSON: {"schema": _reference(endpoint.answer)}}
    binary = {"schema": {"type": "string"}}
    return {**answer, **dict.fromkeys(endpoint.streams, binary)}


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}
