"""`GET {endpoint}/openapi.json`: the OpenAPI 3.1 document of the recipient protocol.

In: the route table. Out: a document with every route of the protocol. A route is described by the types of
its messages (`DESCRIPTIONS`) and by the first line of its handler's docstring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from gateway.encoding import json_bytes
from gateway.protocol import headers, messages
from gateway.protocol import openapi as build
from gateway.protocol.capabilities import FORMATS
from gateway.protocol.oauth import FORM_CONTENT_TYPE
from gateway.protocol.openapi import Json, Messages, RequestHeader
from gateway.web.context import Handler, RequestContext, Route
from gateway.web.response import WholeResponse

ERRORS: Mapping[int, str] = {
    400: "A parameter, the body or a capability is not accepted",
    401: "The token is missing, wrong or expired; of a token request, the client or its secret",
    403: "The address is not allowed, or the storage denies access or issues no credentials",
    404: "The name does not exist or is not granted",
    413: "The body is larger than 1 MiB",
    429: "A limit of the recipient is reached",
    500: "The log of the table is corrupt, or the server has a defect",
    503: "The storage or the server is not available for a while",
}
OF_EVERY_ROUTE = (400, 401, 403, 429, 503)
OF_TABLES = (404, 500)

CAPABILITIES: RequestHeader = (
    headers.CAPABILITIES_HEADER,
    "responseformat, readerfeatures and includeendstreamaction, by `;`, in any case",
    (),
)
FILE_IDS: RequestHeader = (headers.FILE_ID_HEADER, "scheme of the files' ids, in any case", FORMATS)
VERSION = (headers.VERSION_HEADER, "version that the answer describes; of a range, the first version")
CHOSEN = (headers.CAPABILITIES_HEADER, "chosen response format")
HINTS = (headers.HINT_STATUS_HEADER, "with predicates: ok, or the ignored hints")
PRUNED = (headers.PRUNING_HEADER, "with predicates: how many files they left out")
STALE = (headers.STALE_HEADER, "true while the storage is down and the answer comes from a cached version")
SCHEME = (headers.FILE_ID_HEADER, "scheme of the files' ids, as requested")
NOT_STORED = ("Cache-Control", "no-store: the answer is secret")

DESCRIPTIONS: Mapping[str, Messages] = {
    "list_shares": Messages(messages.Shares, messages.ListParameters),
    "get_share": Messages(messages.ShareAnswer),
    "list_schemas": Messages(messages.Schemas, messages.ListParameters),
    "list_tables": Messages(messages.Tables, messages.ListParameters),
    "list_all_tables": Messages(messages.Tables, messages.ListParameters),
    "get_table": Messages(messages.Table),
    "version": Messages(None, messages.VersionParameters, response_headers=(VERSION, STALE)),
    "metadata": Messages(
        messages.Line,
        messages.MetadataParameters,
        is_stream=True,
        request_headers=(CAPABILITIES,),
        response_headers=(VERSION, CHOSEN, STALE),
    ),
    "query": Messages(
        messages.Line,
        body=messages.QueryBody,
        is_stream=True,
        request_headers=(CAPABILITIES, FILE_IDS),
        response_headers=(VERSION, CHOSEN, HINTS, PRUNED, STALE, SCHEME),
    ),
    "changes": Messages(
        messages.Line,
        messages.ChangesParameters,
        is_stream=True,
        request_headers=(CAPABILITIES, FILE_IDS),
        response_headers=(VERSION, CHOSEN, STALE, SCHEME),
    ),
    "issue_token": Messages(messages.IssuedToken, body=messages.TokenForm, body_type=FORM_CONTENT_TYPE),
    "async_query": Messages(),
    "temporary_table_credentials": Messages(
        messages.CredentialsAnswer, body=messages.CredentialsBody, response_headers=(NOT_STORED,)
    ),
    "list_volumes": Messages(messages.Volumes, messages.ListParameters),
    "list_all_volumes": Messages(messages.Volumes, messages.ListParameters),
    "get_volume": Messages(messages.Volume),
    "temporary_volume_credentials": Messages(messages.VolumeCredentials, response_headers=(NOT_STORED,)),
}
"""By the name of the route."""
NEVER_ANSWERED = frozenset({"async_query"})
"""Routes that answer 404 at best."""


def handler(routes: Iterable[Route], prefix: str) -> Handler:
    """Return the handler for the document of the routes below a prefix."""
    routes = tuple(routes)

    @lru_cache(1)
    def encoded(url: str) -> bytes:
        return json_bytes(document(routes, prefix, url))

    async def openapi(context: RequestContext) -> WholeResponse:
        """The OpenAPI document of the protocol."""
        url = f"{context.state.config.public_url}{prefix}"
        return WholeResponse(encoded(url), {"Content-Type": headers.JSON_CONTENT_TYPE})

    return openapi


def document(routes: Iterable[Route], prefix: str, url: str) -> Json:
    """Return the OpenAPI document of routes. `url`: the prefix as clients see it."""
    described = {
        "info": {
            "title": "Delta Sharing",
            "version": "1",
            "description": "Delta Sharing for tables, and OpenSharing for volumes, as recipients use them.",
        },
        "servers": [{"url": url}],
        "security": [{"recipient": []}],
    }
    schemes = {
        "recipient": {"type": "http", "scheme": "bearer"},
        "client": {"type": "http", "scheme": "basic"},
    }
    operations = (_operation(route, prefix) for route in routes)
    kinds = (messages.Error, messages.TokenError)
    return build.document(operations, messages.Name, described, schemes, *kinds)


def _operation(route: Route, prefix: str) -> build.Operation:
    described = DESCRIPTIONS[route.name]
    is_for_clients = route.is_for_clients
    statuses = {*OF_EVERY_ROUTE, *(OF_TABLES if "{share}" in route.path else ())}
    if is_for_clients:
        statuses.remove(403)
    if described.body is not None:
        statuses.add(413)
    return build.Operation(
        method=route.method,
        path=route.path.removeprefix(prefix),
        handler=route.handler,
        messages=described,
        errors={status: ERRORS[status] for status in statuses},
        error=messages.TokenError if is_for_clients else messages.Error,
        id=f"{route.name}_by_head" if route.method == "HEAD" else route.name,
        status=None if route.name in NEVER_ANSWERED else 200,
        # Or by the fields of the form.
        security=[{"client": []}, {}] if is_for_clients else None,
    )
