"""Generates the OpenAPI document of the admin API from its operations and their types."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from gateway.admin.messages import Error, Name
from gateway.admin.operation import Operation

DOCUMENT = web.AppKey("document", bytes)
"""The document of an application, as JSON."""

ERRORS: Mapping[int, str] = {
    400: "A value is not accepted",
    401: "The admin token is missing or wrong",
    404: "The recipient or the share does not exist, or there is no database yet",
    409: "The name is taken",
    413: "The body is larger than 64 KiB",
    503: "The database cannot be written",
}

Json = dict[str, Any]


def document(operations: Iterable[Operation]) -> Json:
    """Return the OpenAPI document of operations."""
    operations = tuple(operations)
    bodies = [one.types[part] for one in operations for part in ("body", "return") if part in one.types]
    kinds = [Error, *filter(is_schema, bodies)]
    schemas, components = msgspec.json.schema_components(
        [Name, *kinds], ref_template="#/components/schemas/{name}"
    )
    references = dict(zip(["name", *kinds], schemas, strict=True))
    paths: dict[str, Json] = {}
    for operation in operations:
        item = paths.setdefault(operation.path, path_item(operation.path, references["name"]))
        item[operation.method.lower()] = describe(operation, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Delta Sharing gateway, administration",
            "version": "1",
            "description": "Recipients and shares at run time. Servers see changes within a second.",
        },
        "security": [{"admin": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"admin": {"type": "http", "scheme": "bearer"}},
            "schemas": components,
        },
    }


def is_schema(kind: Any) -> bool:
    """Return whether the document has a schema of a type: not of pages that are no JSON."""
    return kind is not web.Response


def path_item(path: str, name: Json) -> Json:
    """Return the description of a path: its parameters, which are names."""
    names = re.findall(r"{(\w+)}", path)
    parameters = [{"name": one, "in": "path", "required": True, "schema": name} for one in names]
    return {"parameters": parameters} if parameters else {}


def describe(operation: Operation, references: Mapping[Any, Json]) -> Json:
    """Return the description of an operation."""
    body, query, answer = (operation.types.get(part) for part in ("body", "query", "return"))
    summary, *_ = (inspect.getdoc(operation.handler) or "").splitlines()
    described: Json = {"summary": summary}
    if not operation.errors:
        described["security"] = []
    if query is not None:
        described["parameters"] = query_parameters(query)
    if body is not None:
        required = any(field.required for field in msgspec.structs.fields(body))
        described["requestBody"] = {"required": required, "content": json_of(references[body])}
    done: Json = {"description": "Done"}
    if is_schema(answer):
        done["content"] = json_of(references[answer])
    statuses = sorted({*operation.errors, *([413] if body else [])})
    described["responses"] = {str(operation.status): done} | {
        str(status): {"description": ERRORS[status], "content": json_of(references[Error])}
        for status in statuses
    }
    return described


def query_parameters(kind: type[msgspec.Struct]) -> list[Json]:
    """Return the parameters of a query string."""
    _, components = msgspec.json.schema_components([kind])
    (component,) = components.values()
    required = component.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in component["properties"].items()
    ]


def json_of(schema: Json) -> Json:
    """Return the content of a JSON body."""
    return {"application/json": {"schema": schema}}
