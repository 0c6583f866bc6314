"""Reads the forms of the console: fields with one text each, as browsers send them by default.

A body is bounded in bytes, fields and time, also for those who are not signed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from aiohttp import web

from gateway.admin.operation import BODY_SECONDS, MAX_BODY_BYTES
from gateway.errors import MalformedRequest
from gateway.web.request_body import read_body

CONTENT_TYPE = "application/x-www-form-urlencoded"
MAX_FIELDS = 50
FORM = web.RequestKey("console form", Mapping[str, str])


async def form_of(request: web.Request) -> Mapping[str, str]:
    """Return the fields of a form, of equal ones the last. Raises MalformedRequest, BodyTooLarge."""
    if FORM not in request:
        request[FORM] = _fields(request, await read_body(request, BODY_SECONDS, MAX_BODY_BYTES))
    return request[FORM]


def _fields(request: web.Request, body: bytes) -> Mapping[str, str]:
    if body and request.content_type != CONTENT_TYPE:
        raise MalformedRequest(f"a form has the content type {CONTENT_TYPE}")
    try:
        return dict(
            parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
        )
    except ValueError:
        raise MalformedRequest("the form is not one of names and texts in UTF-8") from None
