"""The admin API: the operations of `delta-gateway recipient` over HTTP, on a listener of its own.

In: JSON requests with the admin's bearer token. Out: recipients without their tokens, and for a new token
its profile, once. `/metrics` is also open to the metrics token. Every route is described by the OpenAPI
document, and a test holds the two together. Blocking calls (the database, the workers' metrics) run in
threads.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson
from aiohttp import web

from gateway.access.recipient_store import (
    MAX_LIFE_SECONDS,
    Change,
    DatabaseMissing,
    IssuedToken,
    RecipientDatabase,
    RecipientError,
    RecipientExists,
    RecipientNotFound,
    RecipientRecord,
    profile_of,
)
from gateway.admin.openapi import DOCUMENT, MAX_LIST_LENGTH
from gateway.errors import (
    InvalidParameter,
    MalformedRequest,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from gateway.telemetry.metrics import CONTENT_TYPE
from gateway.web.context import next_id
from gateway.web.error_response import ErrorAnswer, error_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiohttp.typedefs import Handler


log = logging.getLogger("gateway.admin")

MAX_BODY_BYTES = 64 * 1024

Body = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerReload:
    """The result of a reload in one worker; `refused` is None if it applied the configuration."""

    index: int
    process_id: int | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """The result of a reload: the reason of a refusal as a whole, else the result of each worker."""

    refused: str | None
    workers: Sequence[WorkerReload] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether every process applied the configuration."""
        return self.refused is None and all(worker.refused is None for worker in self.workers)


class OpenDatabase(Protocol):
    """Opens the recipients' database."""

    def __call__(self, actor: str, *, create: bool = False, read_only: bool = False) -> RecipientDatabase:
        """A new connection in an actor's name, for the calling thread. `create`: it may make the database."""


@dataclass(frozen=True)
class Administration:
    """The state and operations behind the admin API."""

    open_database: OpenDatabase
    endpoint: Callable[[], str]
    """The URL for profiles."""
    metrics_page: Callable[[], bytes]
    reload: Callable[[], Awaitable[ReloadResult]]
    token_sha256: str = field(repr=False)
    count_refused: Callable[[], None] = lambda: None
    """Called for each request without a valid token."""
    metrics_token_sha256: str | None = field(default=None, repr=False)


ADMINISTRATION = web.AppKey("administration", Administration)


def create_admin_app(administration: Administration) -> web.Application:
    """Make the application of the admin listener."""
    app = web.Application(middlewares=[_errors, _conflicts, _authenticate], client_max_size=MAX_BODY_BYTES)
    app[ADMINISTRATION] = administration
    app.add_routes(
        [
            web.get("/healthz", alive),
            web.get("/openapi.json", openapi),
            web.get("/metrics", metrics),
            web.post("/reload", reload),
            web.get("/recipients", list_recipients),
            web.post("/recipients", add_recipient),
            web.get("/recipients/{name}", show_recipient),
            web.delete("/recipients/{name}", delete_recipient),
            web.post("/purge", purge),
            web.post("/recipients/{name}/rotate", rotate_token),
            web.post("/recipients/{name}/revoke", revoke_tokens),
            web.put("/recipients/{name}/networks", allow_networks),
            web.put("/recipients/{name}/shares/{share}", grant_share),
            web.delete("/recipients/{name}/shares/{share}", revoke_share),
        ]
    )
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001 - whatever it is, it has an answer
        return error_answer(error, next_id()).response()


@web.middleware
async def _authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.path == "/healthz":
        return await handler(request)
    administration = request.app[ADMINISTRATION]
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    sent = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
    known = [administration.token_sha256]
    if request.path == "/metrics" and administration.metrics_token_sha256:
        known.append(administration.metrics_token_sha256)
    matches = [hmac.compare_digest(sent, one.lower()) for one in known]
    if scheme.lower() != "bearer" or not any(matches):
        administration.count_refused()
        log.warning("a request of the admin listener without a valid token: from %s", request.remote)
        message = "the admin's bearer token is needed: Authorization: Bearer <token>"
        raise Unauthenticated(message, token_sent=scheme.lower() == "bearer" and bool(token.strip()))
    return await handler(request)


@web.middleware
async def _conflicts(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (RecipientNotFound, DatabaseMissing) as error:
        raise NotFound(str(error)) from None
    except RecipientExists as error:
        return ErrorAnswer(409, "INVALID_PARAMETER_VALUE", str(error)).response()
    except RecipientError as error:
        raise InvalidParameter(str(error)) from None
    except (sqlite3.Error, OSError) as error:
        log.error("the recipients' database: %s", error)  # noqa: TRY400 - the reason says it all
        raise Unavailable("the recipients' database is busy or cannot be written") from None


async def alive(_request: web.Request) -> web.Response:
    """The listener answers."""
    return web.Response(text="ok\n")


async def openapi(_request: web.Request) -> web.Response:
    """The description of this API."""
    return _json(DOCUMENT)


async def metrics(request: web.Request) -> web.Response:
    """The metrics of all workers, for Prometheus."""
    page = await asyncio.to_thread(request.app[ADMINISTRATION].metrics_page)
    return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE})


async def reload(request: web.Request) -> web.Response:
    """Read the configuration again, in every process that serves."""
    done = await request.app[ADMINISTRATION].reload()
    workers = [
        {
            "worker": worker.index,
            "processId": worker.process_id,
            "reloaded": worker.refused is None,
            "refused": worker.refused,
        }
        for worker in done.workers
    ]
    return _json({"reloaded": done.is_whole, "refused": done.refused, "workers": workers})


async def list_recipients(request: web.Request) -> web.Response:
    """All recipients of the database."""
    try:
        records = await _with_database(request, RecipientDatabase.list, read_only=True)
    except DatabaseMissing:
        records = ()
    return _json({"recipients": [_recipient_body(record) for record in records]})


async def show_recipient(request: web.Request) -> web.Response:
    """One recipient and its history."""
    name = request.match_info["name"]

    def read(database: RecipientDatabase) -> Body:
        return _recipient_body(database.show(name)) | {
            "history": [_change_body(change) for change in database.history(name)]
        }

    return _json(await _with_database(request, read, read_only=True))


async def add_recipient(request: web.Request) -> web.Response:
    """A new recipient with its first token."""
    body = await _body(request)
    name, comment = _text(body, "name"), _text(body, "comment", default="")
    shares, networks = _texts(body, "shares"), _texts(body, "networks")
    life, allow_absent = _seconds(body, "expiresInSeconds"), _boolean(body, "allowAbsent")
    _nothing_else(body)
    issued = await _with_database(
        request,
        lambda database: database.add(
            name,
            shares=shares,
            networks=networks,
            comment=comment,
            expires_in_seconds=life,
            allow_absent=allow_absent,
        ),
        create=True,
    )
    return _issued(request, issued, status=201)


async def rotate_token(request: web.Request) -> web.Response:
    """A new token; the youngest old one lives on for a while."""
    body = await _body(request)
    old_life, life = _seconds(body, "oldExpiresInSeconds"), _seconds(body, "expiresInSeconds")
    _nothing_else(body)
    issued = await _with_database(
        request,
        lambda database: database.rotate(
            request.match_info["name"], old_expires_in_seconds=old_life or 0, expires_in_seconds=life
        ),
    )
    return _issued(request, issued, status=200)


async def revoke_tokens(request: web.Request) -> web.Response:
    """End all tokens of a recipient."""
    return await _changed(request, lambda database: database.revoke(request.match_info["name"]))


async def allow_networks(request: web.Request) -> web.Response:
    """Replace a recipient's networks."""
    body = await _body(request)
    networks = _texts(body, "networks", required=True)
    _nothing_else(body)
    return await _changed(request, lambda database: database.allow(request.match_info["name"], networks))


async def grant_share(request: web.Request) -> web.Response:
    """Grant one share."""
    info, allow_absent = request.match_info, request.query.get("allowAbsent", "").lower() == "true"
    return await _changed(
        request,
        lambda database: database.grant(info["name"], [info["share"]], allow_absent=allow_absent),
    )


async def delete_recipient(request: web.Request) -> web.Response:
    """Delete a recipient with its tokens and grants."""
    return await _changed(request, lambda database: database.delete(request.match_info["name"]))


async def purge(request: web.Request) -> web.Response:
    """Delete tokens that expired, and changes of the history, that are old enough."""
    body = await _body(request)
    tokens, history = _seconds(body, "tokensExpiredForSeconds"), _seconds(body, "historyOlderThanSeconds")
    _nothing_else(body)
    if tokens is None and history is None:
        raise InvalidParameter("give tokensExpiredForSeconds, historyOlderThanSeconds or both")
    purged = await _with_database(
        request,
        lambda database: database.purge(
            tokens_expired_for_seconds=tokens, history_older_than_seconds=history
        ),
    )
    return _json({"tokens": purged.tokens, "changes": purged.changes})


async def revoke_share(request: web.Request) -> web.Response:
    """Take one share back."""
    info = request.match_info
    return await _changed(request, lambda database: database.revoke(info["name"], shares=[info["share"]]))


async def _changed(
    request: web.Request, change: Callable[[RecipientDatabase], RecipientRecord]
) -> web.Response:
    return _json(_recipient_body(await _with_database(request, change)))


async def _with_database(
    request: web.Request,
    work: Callable[[RecipientDatabase], T],
    *,
    create: bool = False,
    read_only: bool = False,
) -> T:
    open_database = request.app[ADMINISTRATION].open_database

    def run() -> T:
        opened = open_database(f"admin:{request.remote}", create=create, read_only=read_only)
        with closing(opened) as database:
            return work(database)

    return await asyncio.to_thread(run)


def _issued(request: web.Request, issued: IssuedToken, *, status: int) -> web.Response:
    file = profile_of(request.app[ADMINISTRATION].endpoint(), issued)
    return _json({"recipient": issued.recipient, "profile": file}, status=status)


def _recipient_body(record: RecipientRecord) -> Body:
    return {
        "name": record.name,
        "comment": record.comment,
        "createdMs": record.created_ms,
        "tokens": [{"createdMs": token.created_ms, "expiresMs": token.expires_ms} for token in record.tokens],
        "shares": list(record.shares),
        "networks": list(record.networks),
    }


def _change_body(change: Change) -> Body:
    return {
        "atMs": change.at_ms,
        "actor": change.actor,
        "action": change.action,
        "detail": dict(change.detail),
    }


def _json(value: Any, *, status: int = 200) -> web.Response:
    headers = {"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store"}
    return web.Response(body=orjson.dumps(value), status=status, headers=headers)


async def _body(request: web.Request) -> Body:
    data = await request.read()
    try:
        body = orjson.loads(data) if data else {}
    except orjson.JSONDecodeError:
        raise MalformedRequest("the body is not JSON") from None
    if not isinstance(body, dict):
        raise MalformedRequest("the body must be a JSON object")
    return body


def _text(body: Body, key: str, *, default: str | None = None) -> str:
    value = body.pop(key, default)
    if not isinstance(value, str):
        raise MalformedRequest(f"{key}: a text")
    return value


def _texts(body: Body, key: str, *, required: bool = False) -> list[str]:
    value = body.pop(key, None if required else [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise MalformedRequest(f"{key}: a list of texts")
    if len(value) > MAX_LIST_LENGTH:
        raise InvalidParameter(f"{key}: at most {MAX_LIST_LENGTH}")
    return value


def _seconds(body: Body, key: str) -> int | None:
    value = body.pop(key, None)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise MalformedRequest(f"{key}: a whole number of seconds")
    if value is not None and not 0 <= value <= MAX_LIFE_SECONDS:
        raise InvalidParameter(f"{key}: 0 to {MAX_LIFE_SECONDS}")
    return value


def _boolean(body: Body, key: str) -> bool:
    value = body.pop(key, False)
    if not isinstance(value, bool):
        raise MalformedRequest(f"{key}: true or false")
    return value


def _nothing_else(body: Body) -> None:
    if body:
        raise MalformedRequest(f"unknown: {', '.join(sorted(body))[:200]}")
