"""The inner middleware: a recipient that is known is let in within its limits, or told when to come again.

In: requests whose recipient is known. Out: the handler's answer, or TooManyRequests and Unavailable with
seconds that clients survive. A body is read to its end within its time before anything else is taken.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.access_log import FACTS
from gateway.auth import RECIPIENT
from gateway.errors import GatewayError, MalformedRequest, PermissionDenied, TooManyRequests, Unavailable
from gateway.limits import DrainRate, Exceeded, Excess, MemoryGate, RecipientGates

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler, Middleware

    from gateway.metrics import Metrics
from gateway.networks import Address, allowed
from gateway.stream import DRAIN_RATE

STREAMING = frozenset({"query", "changes"})
"""The handlers whose answers may be long."""


@dataclass(slots=True)
class Guards:
    """The limits in force; swapped by a reload, while those inside leave the ones they entered."""

    recipients: RecipientGates
    memory: MemoryGate
    body_seconds: float
    drain_rate: DrainRate


def allow_listing(address: Callable[[web.Request], Address | None]) -> Middleware:
    """Make the middleware that keeps recipients out who come from elsewhere than they may."""

    @web.middleware
    async def allow_list(request: web.Request, handler: Handler) -> web.StreamResponse:
        recipient = request.get(RECIPIENT)
        if recipient is not None and recipient.networks and not allowed(recipient.networks, address(request)):
            request[FACTS]["refused_address"] = True
            raise PermissionDenied("this address is not on the recipient's allow-list")
        return await handler(request)

    return allow_list


def guarding(guards: Callable[[], Guards], metrics: Metrics) -> Middleware:
    """Make the middleware."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        recipient = request.get(RECIPIENT)
        if recipient is None:
            return await handler(request)
        inside = guards()
        request[DRAIN_RATE] = inside.drain_rate
        await _body(request, inside.body_seconds)
        gate = inside.recipients.gate(recipient.name)
        try:
            await gate.request()
            if handler_name(request) not in STREAMING:
                return await handler(request)
            async with gate.stream(), inside.memory.stream():
                metrics.streams.inc()
                try:
                    return await handler(request)
                finally:
                    metrics.streams.dec()
        except Exceeded as exceeded:
            metrics.limited.labels(exceeded.excess).inc()
            raise _refusal(exceeded) from None
        finally:
            gate.signed(request[FACTS].get("returned", 0))

    return guard


def handler_name(request: web.Request) -> str:
    """The name of the route's handler: a bounded set, unlike paths."""
    if request.match_info.http_exception is not None:
        return "unknown"
    return str(getattr(request.match_info.handler, "__name__", "unknown"))


async def _body(request: web.Request, seconds: float) -> None:
    if not request.body_exists:
        return
    if request.content.is_eof():
        # It came with the head: nothing has to be waited for.
        await request.read()
        return
    try:
        async with asyncio.timeout(seconds):
            await request.read()
    except TimeoutError:
        raise MalformedRequest(f"the body did not arrive within {seconds:g} s") from None


def _refusal(exceeded: Exceeded) -> GatewayError:
    seconds = exceeded.retry_after_seconds
    if exceeded.excess is Excess.MEMORY:
        return Unavailable("the server is busy", retry_after_seconds=seconds)
    return TooManyRequests(f"over the limit of {exceeded.excess}", retry_after_seconds=seconds)
