"""Generates the OpenAPI document of the admin API from its operations and their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiohttp import web

from gateway.admin.messages import Error, Name
from gateway.admin.operation import Operation
from gateway.protocol import openapi
from gateway.protocol.openapi import Json

DOCUMENT = web.AppKey("document", bytes)
"""The document of an application, as JSON."""

ERRORS: Mapping[int, str] = {
    400: "A value is not accepted",
    401: "The admin token is missing or wrong",
    404: "The recipient or the share does not exist, or there is no database yet",
    409: "The name is taken",
    412: "The recipient or the share has changed since the ETag of `If-Match`",
    413: "The body is larger than 64 KiB",
    503: "The database cannot be written",
}


def document(operations: Iterable[Operation]) -> Json:
    """Return the OpenAPI document of operations."""
    described = {
        "info": {
            "title": "Delta Sharing gateway, administration",
            "version": "1",
            "description": "Recipients and shares at run time. Servers see changes within a second.",
        },
        "security": [{"admin": []}],
    }
    schemes = {"admin": {"type": "http", "scheme": "bearer"}}
    return openapi.document(map(_described, operations), Name, described, schemes, Error)


def _described(operation: Operation) -> openapi.Operation:
    body, query, answer = (operation.types.get(part) for part in ("body", "query", "return"))
    statuses = {*operation.errors}
    if operation.method != "GET":
        statuses |= {412, 413} if "{" in operation.path else {413}
    return openapi.Operation(
        method=operation.method,
        path=operation.path,
        handler=operation.handler,
        # Pages that are no JSON have no schema.
        messages=openapi.Messages(None if answer is web.Response else answer, query, body),
        errors={status: ERRORS[status] for status in statuses},
        error=Error,
        status=operation.status,
        security=None if operation.errors else [],
    )
