"""OpenTelemetry traces, for those who install the extra `tracing` and configure an endpoint.

In: the `tracing` section. Out: one span for each request. It is a child of the caller's, and sampled as that
is, when a proxy of `trustedProxies` sent the `traceparent`; from anyone else the header is ignored, because
whoever may force traces could flood the collector. Without the section nothing here is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.config import Tracing
from gateway.config.networks import contains, parse_address
from gateway.web.context import Exchange
from gateway.web.error_response import SERVER_FAULT
from gateway.web.pipeline import Answering, Around

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


def tracing(tracers: TracerProvider) -> Around:
    """Make what goes around each exchange: a span from a request's head to the end of its answer."""
    tracer = tracers.get_tracer(SERVICE)
    propagator = TraceContextTextMapPropagator()

    async def trace(exchange: Exchange, answering: Answering) -> web.StreamResponse:
        context = propagator.extract(exchange.request.headers) if _is_trusted(exchange) else Context()
        with tracer.start_as_current_span(exchange.route.name, context, SpanKind.SERVER) as span:
            response = await answering(exchange)
            span.set_attributes(_attributes(exchange, response))
            if response.status >= SERVER_FAULT:
                span.set_status(Status(StatusCode.ERROR))
            return response

    return trace


def _is_trusted(exchange: Exchange) -> bool:
    peer = parse_address(exchange.request.remote or "")
    return peer is not None and contains(exchange.sharing.trusted_proxies, peer)


def _attributes(exchange: Exchange, response: web.StreamResponse) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        "http.request.method": exchange.request.method,
        "http.response.status_code": response.status,
        "delta_sharing.request_id": exchange.id,
        "delta_sharing.recipient": exchange.asking.name if exchange.asking else None,
        **{f"delta_sharing.{name}": exchange.names.get(name) for name in NAMES},
        **{f"delta_sharing.{name}": value for name, value in exchange.facts.items()},
    }
    return {key: value for key, value in found.items() if value is not None}
