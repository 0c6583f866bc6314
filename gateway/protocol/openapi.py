"""Builds OpenAPI 3.1 documents.

In: operations with the types of their messages. Out: a document. Types are described by their schemas.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.protocol.headers import JSON_CONTENT_TYPE

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of a document.

    Attributes:
        errors: descriptions of errors by status; the body of each is an `error`.
        status: the status of an answer without an error; None without such an answer.
        answer: type of the body; None without one.
        query: type of the parameters.
        body: type of the request's body, if there is any.
        request_headers: optional headers with their meanings, and their values where these are few.
        response_headers: headers of an answer with their meanings.
        security: replaces the security of the document.

    """

    method: str
    path: str
    handler: Callable[..., Any]
    errors: Mapping[int, str]
    error: type
    id: str = ""
    status: int | None = 200
    answer: type | None = None
    answer_type: str = JSON_CONTENT_TYPE
    query: type | None = None
    body: type | None = None
    body_type: str = JSON_CONTENT_TYPE
    is_body_required: bool = False
    request_headers: Sequence[tuple[str, str, Sequence[str]]] = ()
    response_headers: Sequence[tuple[str, str]] = ()
    security: Sequence[Json] | None = None


def document(
    operations: Iterable[Operation], name: Any, described: Json, security_schemes: Json, *kinds: type
) -> Json:
    """Return the document of operations.

    `name` is the type of the parameters of paths, and `described` has the other fields of the document. It
    holds the schemas of `kinds` in any case.
    """
    operations = tuple(operations)
    used = [
        kind
        for operation in operations
        for kind in (operation.error, operation.answer, operation.body)
        if kind is not None
    ]
    every = list(dict.fromkeys([name, *kinds, *used]))
    schemas, components = msgspec.json.schema_components(every, ref_template="#/components/schemas/{name}")
    references: Mapping[Any, Json] = dict(zip(every, schemas, strict=True))
    paths: dict[str, Json] = {}
    for operation in operations:
        item = paths.setdefault(operation.path, _path_item(operation.path, references[name]))
        item[operation.method.lower()] = _described(operation, references)
    return {
        "openapi": "3.1.0",
        **described,
        "paths": paths,
        "components": {"securitySchemes": security_schemes, "schemas": components},
    }


def _path_item(path: str, name: Json) -> Json:
    """Return the description of a path: its parameters, which are names."""
    parameters = [
        {"name": parameter, "in": "path", "required": True, "schema": name}
        for parameter in re.findall(r"{(\w+)}", path)
    ]
    return {"parameters": parameters} if parameters else {}


def _described(operation: Operation, references: Mapping[Any, Json]) -> Json:
    summary, *_ = (inspect.getdoc(operation.handler) or "").splitlines()
    described: Json = {"operationId": operation.id} if operation.id else {}
    described["summary"] = summary
    if operation.security is not None:
        described["security"] = operation.security
    parameters = [*_query_parameters(operation.query), *_header_parameters(operation.request_headers)]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.is_body_required,
            **_content(references[operation.body], operation.body_type),
        }
    described["responses"] = (
        {str(operation.status): _answer(operation, references)} if operation.status else {}
    )
    described["responses"] |= {
        str(status): {
            "description": operation.errors[status],
            **_content(references[operation.error], JSON_CONTENT_TYPE),
        }
        for status in sorted(operation.errors)
    }
    return described


def _answer(operation: Operation, references: Mapping[Any, Json]) -> Json:
    answer: Json = {"description": "Done"}
    if operation.response_headers:
        answer["headers"] = {
            name: {"description": meaning, "schema": {"type": "string"}}
            for name, meaning in operation.response_headers
        }
    if operation.answer is not None:
        answer |= _content(references[operation.answer], operation.answer_type)
    return answer


def _content(schema: Json, content_type: str) -> Json:
    return {"content": {content_type.partition(";")[0]: {"schema": schema}}}


def _query_parameters(kind: type | None) -> list[Json]:
    if kind is None:
        return []
    _, components = msgspec.json.schema_components([kind])
    (component,) = components.values()
    required = component.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in component["properties"].items()
    ]


def _header_parameters(headers: Sequence[tuple[str, str, Sequence[str]]]) -> list[Json]:
    return [
        {
            "name": name,
            "in": "header",
            "description": meaning,
            "schema": {"type": "string", **({"enum": list(values)} if values else {})},
        }
        for name, meaning, values in headers
    ]
