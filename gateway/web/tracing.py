"""OpenTelemetry traces, with the extra `tracing` and a configured endpoint.

In: the `tracing` section. Out: one span for each request. Where a trusted proxy sends `traceparent`, the
span is a child of the caller's span and sampled like it. From other peers the header is ignored, because
forced traces could flood the collector. This module is imported only when the section is configured.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from aiohttp import web
from msgspec.structs import asdict
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.config import Tracing
from gateway.config.networks import contains, parse_address
from gateway.web.context import RequestContext
from gateway.web.error_response import SERVER_FAULT
from gateway.web.pipeline import Middleware, Next

SERVICE = "delta-sharing-gateway"
NAMES = ("share", "schema", "table")


def provider(settings: Tracing, exporter: SpanExporter | None = None) -> TracerProvider:
    """Return the provider that sends spans by OTLP over HTTP, or to another exporter."""
    if exporter is None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        exporter = OTLPSpanExporter(endpoint=settings.endpoint)
    made = TracerProvider(
        resource=Resource.create({"service.name": SERVICE}),
        sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        # `end` bounds the time.
        shutdown_on_exit=False,
    )
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made


def end(tracers: TracerProvider, seconds: float) -> None:
    """Send the last spans. After this time, which a collector may not keep, they are lost. Blocks."""
    sending = threading.Thread(target=tracers.shutdown, name="traces", daemon=True)
    sending.start()
    sending.join(seconds)


def tracing(tracers: TracerProvider) -> Middleware:
    """Return the middleware that traces a request from its head to the end of its answer."""
    tracer = tracers.get_tracer(SERVICE)
    propagator = TraceContextTextMapPropagator()

    async def trace(context: RequestContext, call_next: Next) -> web.StreamResponse:
        parent = propagator.extract(context.request.headers) if _is_trusted(context) else Context()
        with tracer.start_as_current_span(context.route.name, parent, SpanKind.SERVER) as span:
            response = await call_next(context)
            span.set_attributes(_attributes(context, response))
            if response.status >= SERVER_FAULT:
                span.set_status(Status(StatusCode.ERROR))
            return response

    return trace


def _is_trusted(context: RequestContext) -> bool:
    peer = parse_address(context.request.remote or "")
    return peer is not None and contains(context.state.trusted_proxies, peer)


def _attributes(context: RequestContext, response: web.StreamResponse) -> Mapping[str, Any]:
    attributes: dict[str, Any] = {
        "http.request.method": context.request.method,
        "http.response.status_code": response.status,
        "delta_sharing.request_id": context.id,
        "delta_sharing.recipient": context.recipient.name if context.recipient else None,
        **{f"delta_sharing.{name}": context.names.get(name) for name in NAMES},
        **{f"delta_sharing.{name}": value for name, value in asdict(context.record).items()},
    }
    return {key: value for key, value in attributes.items() if value is not None}
