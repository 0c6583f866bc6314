"""The pipeline of a request, from its head to the end of its answer.

In: requests as parsed by aiohttp's server. Out: their answers. `RequestPipeline` has the steps from top to
bottom: find the route, record the request, turn errors into answers, authenticate the recipient and apply
its limits, call the handler. A request is answered to its end by the configuration that is in force once its
body is there and its limits admit it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from copy import copy

from aiohttp import web
from msgspec import Struct

from gateway import _native
from gateway.authentication.credential_table import Credential
from gateway.authentication.policies import TokenRefused
from gateway.catalog.catalog import Recipient
from gateway.config import Config
from gateway.config.networks import allowed
from gateway.errors import AccessRevoked, AddressDenied, GatewayError, NotShared
from gateway.limits.admission import LimitExceeded
from gateway.limits.memory import FROM_MEMORY
from gateway.protocol.cors import Cors, FieldLines
from gateway.state import GatewayState
from gateway.web.access_log import AccessLog
from gateway.web.client_authentication import ClientAuthentication
from gateway.web.connections import admitted, authenticated
from gateway.web.context import RequestContext, Route, next_id, no_access, nothing_revoked
from gateway.web.error_response import CLIENT_CLOSED_REQUEST, error_answer, has_left
from gateway.web.recorder import RequestRecorder
from gateway.web.request_body import may_be_long, read_body, received_body
from gateway.web.request_limits import RequestLimits, limit_error
from gateway.web.response import WholeResponse
from gateway.web.router import Router
from gateway.web.running import RunningRequests, is_end_of_server, shutting_down
from gateway.web.token_authentication import TokenAuthentication

Next = Callable[[RequestContext], Awaitable[web.StreamResponse]]
Middleware = Callable[[RequestContext, Next], Awaitable[web.StreamResponse]]

MAX_TOKEN_REQUEST_BYTES = 16 * 1024


class RequestPipeline:
    """Answers requests. `state` and `limits` may be replaced at any time; `draining` fails readiness."""

    def __init__(
        self,
        router: Router,
        state: GatewayState,
        limits: RequestLimits,
        recorder: RequestRecorder,
        *,
        audits_first: bool = False,
        middleware: Middleware | None = None,
    ) -> None:
        """Take the parts.

        `audits_first`: a request is in the audit log before anything is done for it. `middleware` is called
        around each request, errors included (traces).
        """
        self._state = state
        self.end_outdated: Callable[[], None] = lambda: None
        """Called before each use of the state, which it may replace."""
        self.limits = limits
        self.draining = False
        self.tokens = TokenAuthentication()
        self._client_authentication = ClientAuthentication(limits.attempts)
        self._router = router
        self.recorder = recorder
        self.running = RunningRequests()
        self._log = AccessLog()
        self.audits_first = audits_first
        self._middleware = middleware

    @property
    def config(self) -> Config:
        """The configuration in force. It has no age: what ends an outdated state needs it."""
        return self._state.config

    @property
    def state(self) -> GatewayState:
        """The state in force."""
        self.end_outdated()
        return self._state

    @state.setter
    def state(self, state: GatewayState) -> None:
        self._state = state

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        if self.draining:
            # The answer tells the client: its next request would cross the end of the connection.
            request._message = request._message._replace(should_close=True)  # noqa: SLF001 - it has no setter
        route, names, methods = self._router.find(request.method, request.rel_url.path_safe)
        state, limits = self.state, self.limits
        cors = state.cors
        if cors is not None and request.method == "OPTIONS" and _is_preflight(request, cors):
            route = _preflight(cors, methods) if methods else route
        context = RequestContext(
            next_id(),
            request,
            route,
            names,
            state,
            time.monotonic(),
            not_ready=self.not_ready,
            drain_rate=limits.drain_rate,
            file_readers=limits.file_readers,
        )
        self.running.add(context)
        if cors is not None:
            context.added_headers = cors.headers(request.headers.get("Origin"))
        if self._middleware is not None:
            return await self._middleware(context, self._record)
        return await self._record(context)

    def not_ready(self) -> str | None:
        """Return why this server should get no requests; None if it should."""
        if self.draining:
            return "the server is shutting down"
        if self.limits.memory.is_exhausted:
            return "the server is above its memory limit"
        if self.audits_first and not self.recorder.audit_is_healthy:
            return "the server cannot write its audit records"
        return None

    async def _record(self, context: RequestContext) -> web.StreamResponse:
        """Answer, then count, audit and log the request, also when its client has left."""
        response: web.StreamResponse | None = None
        unsent_bytes = 0
        self.recorder.request_started(context)
        try:
            response = await self._handle_errors(context)
            if context.added_headers and not response.prepared:
                _add_headers(response, context.added_headers)
            if isinstance(response, WholeResponse):
                length = len(response.body)
                response.write_seconds = context.drain_rate.write_seconds(length)
                unsent_bytes = 0 if context.request.method == "HEAD" else length
            return response
        finally:
            seconds = time.monotonic() - context.start_seconds
            context.sent_bytes = context.request.writer.output_size or unsent_bytes
            self.recorder.ended(context, response, seconds)
            self._log.ended(context, response, seconds)

    async def _handle_errors(self, context: RequestContext) -> web.StreamResponse:
        """Answer; every exception becomes an error response of the protocol."""
        try:
            if context.route.is_public:
                return await context.route.handler(context)
            if context.route.is_for_clients:
                return await self._authorize_client(context)
            return await self._authorize(context)
        except ConnectionError as error:
            if has_left(context.request):
                # The client does not read it; the status is for the log and the metrics.
                return WholeResponse(status=CLIENT_CLOSED_REQUEST)
            return self._error_response(context, error)
        except Exception as error:  # noqa: BLE001 - every error has a response
            return self._error_response(context, error)
        except asyncio.CancelledError as cancelled:
            if not is_end_of_server(cancelled):
                raise
            return self._error_response(context, shutting_down())
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of native code is not an Exception
            return self._error_response(context, error)

    async def _authorize(self, context: RequestContext) -> web.StreamResponse:
        """Answer an authenticated recipient whose address is allowed, within its limits."""
        limits = self.limits
        credential = await self.tokens.credential(context)
        authenticated(context.request)
        context.recipient = recipient = credential.recipient
        if recipient.networks and not allowed(recipient.networks, context.address):
            raise AddressDenied
        if self.audits_first:
            await self.recorder.audit_first(context)
        body = received_body(context.request)
        if body is None and may_be_long(context.request):
            # A client may send it slowly, by many connections.
            await self._admit(context)
        context.body = await read_body(context.request, limits.body_seconds) if body is None else body
        gate = limits.recipients.gate(recipient.name)
        if gate.limits_requests:
            await gate.request()
        check = AccessCheck(self, context, credential, context.state)
        if context.route.issues_credentials:
            gate.charge_credential()
            return await self._issue(context, check)
        if not context.route.may_stream:
            return await self._answer(context, check)
        if not gate.enter_stream_at_once():
            await gate.enter_stream()
        try:
            return await self._answer(context, check)
        finally:
            gate.leave_stream()
            gate.charge_files(context.record.returned or 0)

    async def _authorize_client(self, context: RequestContext) -> web.StreamResponse:
        """Answer an authenticated OAuth client, within the limits of its recipient."""
        limits = self.limits
        context.body = await read_body(context.request, limits.body_seconds, MAX_TOKEN_REQUEST_BYTES)
        context.oauth_client = client = self._client_authentication.client(context)
        authenticated(context.request)
        context.recipient, context.identity = client.recipient, client.identity
        if self.audits_first:
            await self.recorder.audit_first(context)
        await limits.recipients.gate(client.recipient.name).request()
        return await context.route.handler(context)

    async def _answer(self, context: RequestContext, check: AccessCheck) -> web.StreamResponse:
        """Answer by the state in force now: the body and the limits may have taken long, the answer may, too.

        A large answer is within the memory limit of all streams. Raises AccessRevoked.
        """
        route = context.route
        if route.may_stream or route.may_be_large:
            await self._admit(context)
        if route.may_stream:
            self.recorder.stream_started(context)
            context.require_access = check
        try:
            context.state, context.recipient = check.current()
            response = await route.handler(context)
            if not response.prepared:
                check()
            return response
        finally:
            if route.may_stream:
                # The check refers to the context: without the cycle both are freed at once, with the request.
                context.require_access = nothing_revoked
                self.recorder.stream_ended(context)

    async def _admit(self, context: RequestContext) -> None:
        """Take memory for an answer from memory until it is sent, which is when the request's task ends."""
        if context.memory is not None:
            return
        memory, name = self.limits.memory, context.required_recipient.name
        context.memory = memory.enter_stream_at_once(name, FROM_MEMORY)
        if context.memory is None:
            context.memory = await memory.enter_stream(name, FROM_MEMORY)
        admitted(context.request)

    async def _issue(self, context: RequestContext, check: AccessCheck) -> web.StreamResponse:
        """Answer by a route that issues credentials, which outlive the request."""
        context.current_access = check.current
        try:
            return await context.route.handler(context)
        finally:
            context.current_access = no_access

    def _error_response(self, context: RequestContext, error: BaseException) -> web.StreamResponse:
        if isinstance(error, LimitExceeded):
            self.recorder.limited(error.limit)
            error = limit_error(error)
        if isinstance(error, _native.NativePanic) or not isinstance(error, Exception):
            self.recorder.native_panicked()
        answer = error_answer(error, context.id)
        # The record may be that of a cached answer, for other requests, too.
        context.record = copy(context.record)
        answer.put_on(context.record)
        if isinstance(error, NotShared) and context.state.catalog.has(context.names):
            context.record.refusal = "not granted"
        return answer.oauth_response() if context.route.is_for_clients else answer.response()


class AccessCheck(Struct, eq=False):
    """Checks whether a recipient may still read an answer: before it, with each chunk, before a whole one."""

    pipeline: RequestPipeline
    context: RequestContext
    credential: Credential
    checked: GatewayState
    """The state for which access was checked last."""

    def __call__(self) -> None:
        """Raise AccessRevoked when the token, the recipient or the grant of the table has ended."""
        if self._is_checked():
            return
        state, credential = self._identified()
        names = self.context.names
        if "table" not in names:
            return
        try:
            table = state.catalog.table(credential.recipient, names["share"], names["schema"], names["table"])
            before = self.checked.catalog.table(
                self.context.required_recipient, names["share"], names["schema"], names["table"]
            )
            if not table.is_answered_by(before):
                raise AccessRevoked
        except GatewayError:
            raise AccessRevoked from None
        self.checked, self.credential = state, credential

    def current(self) -> tuple[GatewayState, Recipient]:
        """Return the state in force and the recipient. Raises AccessRevoked. Checks no grant."""
        if not self._is_checked():
            self.checked, self.credential = self._identified()
        return self.checked, self.credential.recipient

    def _is_checked(self) -> bool:
        state, credential = self.pipeline.state, self.credential
        # Most tokens have no end, which needs no clock.
        return state is self.checked and (
            credential.expires_ms is None or not credential.has_expired(state.now_ms())
        )

    def _identified(self) -> tuple[GatewayState, Credential]:
        """Return the state in force and the credential in it. Raises AccessRevoked."""
        state, context = self.pipeline.state, self.context
        try:
            credential = self.pipeline.tokens.renewed(context.request, self.credential, state)
        except (GatewayError, TokenRefused):
            raise AccessRevoked from None
        if credential is None or credential.recipient.name != context.required_recipient.name:
            raise AccessRevoked
        if not allowed(credential.recipient.networks, context.address):
            raise AccessRevoked
        return state, credential


def _is_preflight(request: web.BaseRequest, cors: Cors) -> bool:
    headers = request.headers
    return "Access-Control-Request-Method" in headers and cors.allows(headers.get("Origin"))


def _preflight(cors: Cors, methods: tuple[str, ...]) -> Route:
    """Return the route for a browser's preflight request. It reveals no share."""

    async def preflight(context: RequestContext) -> web.StreamResponse:
        requested = ",".join(context.request.headers.getall("Access-Control-Request-Headers", []))
        return WholeResponse(headers=cors.preflight_headers(methods, requested))

    return Route("OPTIONS", "", preflight, is_public=True)


def _add_headers(response: web.StreamResponse, headers: FieldLines) -> None:
    if isinstance(response, WholeResponse):
        response.field_lines += "".join([f"{name}: {value}\r\n" for name, value in headers])
    else:
        response.headers.extend(headers)
