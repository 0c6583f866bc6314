"""OpenTelemetry traces, for those who install the extra `tracing` and configure an endpoint.

In: the `tracing` section. Out: a middleware that makes one span a request, a child of the caller's when it
sent a `traceparent`. Without the section nothing here is imported and nothing is paid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.access_log import FACTS
from gateway.auth import RECIPIENT
from gateway.config import Tracing
from gateway.errors import request_id
from gateway.serving.guard import handler_name

SERVICE = "delta-sharing-gateway"
NAMES = ("share", "schema", "table")


def provider(settings: Tracing, exporter: SpanExporter | None = None) -> TracerProvider:
    """Make the provider that sends spans by OTLP over HTTP (or to another exporter)."""
    if exporter is None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        exporter = OTLPSpanExporter(endpoint=settings.endpoint)
    made = TracerProvider(
        resource=Resource.create({"service.name": SERVICE}),
        sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
    )
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made


def tracing(tracers: TracerProvider) -> Middleware:
    """Make the outermost middleware: a span from a request's head to the end of its answer."""
    tracer = tracers.get_tracer(SERVICE)
    propagator = TraceContextTextMapPropagator()

    @web.middleware
    async def trace(request: web.Request, handler: Handler) -> web.StreamResponse:
        context = propagator.extract(request.headers)
        route = handler_name(request)
        with tracer.start_as_current_span(route, context, SpanKind.SERVER) as span:
            response = await handler(request)
            span.set_attributes(_attributes(request, response))
            if response.status >= web.HTTPInternalServerError.status_code:
                span.set_status(Status(StatusCode.ERROR))
            return response

    return trace


def _attributes(request: web.Request, response: web.StreamResponse) -> Mapping[str, Any]:
    recipient = request.get(RECIPIENT)
    found: dict[str, Any] = {
        "http.request.method": request.method,
        "http.response.status_code": response.status,
        "delta_sharing.request_id": request_id(request),
        "delta_sharing.recipient": recipient.name if recipient else None,
        **{f"delta_sharing.{name}": request.match_info.get(name) for name in NAMES},
        **{f"delta_sharing.{name}": value for name, value in request[FACTS].items()},
    }
    return {key: value for key, value in found.items() if value is not None}
