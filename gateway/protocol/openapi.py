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

from gateway.protocol.headers import JSON_CONTENT_TYPE, NDJSON_CONTENT_TYPE

Json = dict[str, Any]


RequestHeader = tuple[str, str, tuple[str, ...]]
"""An optional header with its meaning, and its values where these are few."""


@dataclass(frozen=True, slots=True)
class Messages:
    """The types of an operation's messages.

    Attributes:
        answer: type of the JSON body; of each line if `is_stream`; None without a body.
        query: type of the parameters; None without any.
        body: type of the request's body, if there is any. It may be absent if no field is required.
        body_type: content type of that body.
        is_stream: the answer has a JSON object in each line.
        request_headers: optional headers of a request.
        response_headers: headers of an answer with their meanings.

    """

    answer: type | None = None
    query: type | None = None
    body: type | None = None
    body_type: str = JSON_CONTENT_TYPE
    is_stream: bool = False
    request_headers: tuple[RequestHeader, ...] = ()
    response_headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of a document.

    Attributes:
        errors: descriptions of errors by status; the body of each is an `error`.
        status: the status of an answer without an error; None without such an answer.
        security: replaces the security of the document.

    """

    method: str
    path: str
    handler: Callable[..., Any]
    messages: Messages
    errors: Mapping[int, str]
    error: type
    id: str = ""
    status: int | None = 200
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
        for kind in (operation.error, operation.messages.answer, operation.messages.body)
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
    messages = operation.messages
    summary, *_ = (inspect.getdoc(operation.handler) or "").splitlines()
    described: Json = {"operationId": operation.id} if operation.id else {}
    described["summary"] = summary
    if operation.security is not None:
        described["security"] = operation.security
    parameters = [*_query_parameters(messages.query), *_header_parameters(messages.request_headers)]
    if parameters:
        described["parameters"] = parameters
    if messages.body is not None:
        described["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(messages.body)),
            **_content(references[messages.body], messages.body_type),
        }
    described["responses"] = (
        {str(operation.status): _answer(messages, references)} if operation.status else {}
    )
    described["responses"] |= {
        str(status): {
            "description": operation.errors[status],
            **_content(references[operation.error], JSON_CONTENT_TYPE),
        }
        for status in sorted(operation.errors)
    }
    return described


def _answer(messages: Messages, references: Mapping[Any, Json]) -> Json:
    answer: Json = {"description": "Done"}
    if messages.response_headers:
        answer["headers"] = {
            name: {"description": meaning, "schema": {"type": "string"}}
            for name, meaning in messages.response_headers
        }
    if messages.answer is not None:
        content_type = NDJSON_CONTENT_TYPE if messages.is_stream else JSON_CONTENT_TYPE
        answer |= _content(references[messages.answer], content_type)
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


def _header_parameters(headers: Sequence[RequestHeader]) -> list[Json]:
    return [
        {
            "name": name,
            "in": "header",
            "description": meaning,
            "schema": {"type": "string", **({"enum": list(values)} if values else {})},
        }
        for name, meaning, values in headers
    ]
