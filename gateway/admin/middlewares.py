"""Middlewares of the admin listener: errors as JSON, and the bearer token."""

from __future__ import annotations

import hashlib
import hmac
import logging

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.admin.administration import ADMINISTRATION
from gateway.database.errors import DatabaseMissing
from gateway.errors import InvalidParameter, NotFound, Unauthenticated, Unavailable
from gateway.governance.recipient_records import (
    ChangedMeanwhile,
    RecipientError,
    RecipientExists,
    RecipientNotFound,
)
from gateway.governance.share_records import ShareError, ShareExists, ShareNotFound
from gateway.web.connections import authenticated
from gateway.web.context import next_id
from gateway.web.error_response import CLIENT_CLOSED_REQUEST, ErrorAnswer, error_answer, has_left
from gateway.web.response import SERVER, WholeResponse

log = logging.getLogger("gateway.admin")


async def name_server(_request: web.Request, response: web.StreamResponse) -> None:
    """Name the server without a version. aiohttp would name itself and Python with theirs."""
    response.headers["Server"] = SERVER


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer any exception by the table of errors."""
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001 - each exception has an answer
        return error_answer(error, next_id()).response()


@web.middleware
async def end_with_client(request: web.Request, handler: Handler) -> web.StreamResponse:
    """End a request whose client has left. It is no error of the server, and nobody reads its answer."""
    try:
        return await handler(request)
    except ConnectionError:
        if not has_left(request):
            raise
        return WholeResponse(status=CLIENT_CLOSED_REQUEST)


@web.middleware
async def answer_database_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer the errors of the recipients' database."""
    try:
        return await handler(request)
    except (RecipientNotFound, ShareNotFound, DatabaseMissing) as error:
        raise NotFound(str(error)) from None
    except (RecipientExists, ShareExists) as error:
        return ErrorAnswer(409, "INVALID_PARAMETER_VALUE", str(error), "request").response()
    except ChangedMeanwhile as error:
        return ErrorAnswer(412, "INVALID_PARAMETER_VALUE", str(error), "request").response()
    except (RecipientError, ShareError) as error:
        raise InvalidParameter(str(error)) from None
    except OSError as error:
        if isinstance(error, ConnectionError) and has_left(request):
            raise
        log.error("the recipients' database: %s", error)  # noqa: TRY400 - the reason says it all
        raise Unavailable("the recipients' database is busy or cannot be written") from None


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Require the admin's token; the metrics token gives access to `/metrics`, and `/healthz` is public.

    An application below this one, the console, has sessions of its own, and `/` leads to it.
    """
    is_below = len(request.match_info.apps) > 1
    if request.path in {"/healthz", "/"} or is_below:
        return await handler(request)
    administration = request.app[ADMINISTRATION]
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    sent = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
    known = [administration.token_sha256]
    if request.path == "/metrics" and administration.metrics_token_sha256:
        known.append(administration.metrics_token_sha256)
    matches = [hmac.compare_digest(sent, digest.lower()) for digest in known]
    if scheme.lower() != "bearer" or not token.strip() or not any(matches):
        administration.count_refused()
        address = administration.client_address(request)
        log.warning("a request of the admin listener without a valid token: from %s", address)
        message = "the admin's bearer token is needed: Authorization: Bearer <token>"
        raise Unauthenticated(message, token_sent=scheme.lower() == "bearer" and bool(token.strip()))
    authenticated(request)
    return await handler(request)
