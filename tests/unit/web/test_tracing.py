"""Traces: one span a request, the caller's child, without tokens; nothing imported when they are off."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from support.gateway_app import PipelineServer

import gateway

pytest.importorskip("gateway._native", reason="the native module is not built", exc_type=ImportError)

from gateway.config import Tracing, loads
from gateway.state import GatewayState
from gateway.telemetry.metrics import Metrics
from gateway.times import epoch_ms
from gateway.web.context import Route
from gateway.web.pipeline import RequestPipeline
from gateway.web.recorder import RequestRecorder
from gateway.web.request_limits import RequestLimits
from gateway.web.response import WholeResponse
from gateway.web.router import Router
from gateway.web.tracing import end, provider, tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(params=[(1.0, "[127.0.0.0/8]")])
async def traced(request):
    sample_ratio, trusted = request.param
    exporter = InMemorySpanExporter()
    tracers = provider(Tracing("http://collector.test", sample_ratio=sample_ratio), exporter)

    async def get_share(context):
        if context.names["share"] == "broken":
            raise RuntimeError("no")
        return WholeResponse(b"ok")

    config = loads(
        "version: 1\nhost: 127.0.0.1\nport: 80\nshares: []\n"
        f"gateway: {{anonymous: true, trustedProxies: {trusted}}}\n"
    )
    pipeline = RequestPipeline(
        Router([Route("GET", "/shares/{share}", get_share, is_public=True)]),
        GatewayState.of(config),
        RequestLimits.of(config),
        RequestRecorder(Metrics(), None, epoch_ms),
        middleware=tracing(tracers),
    )
    client = TestClient(PipelineServer(pipeline))
    await client.start_server()

    def spans():
        tracers.force_flush()
        return exporter.get_finished_spans()

    yield client, spans
    await client.close()
    tracers.shutdown()


async def test_a_request_is_one_span_of_its_callers_trace_and_names_no_token(traced):
    client, spans = traced
    headers = {"Authorization": "Bearer secret-token", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    await client.get("/shares/sales?pageToken=sealed", headers=headers)
    (span,) = spans()
    assert span.name == "get_share"
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["delta_sharing.share"] == "sales"
    assert "secret-token" not in str(span.to_json())
    assert "sealed" not in str(span.to_json())


CALLERS = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": "not a list of members"}


@pytest.mark.parametrize("traced", [(0.0, "[]"), (0.0, "[10.0.0.0/8]")], indirect=True)
async def test_an_untrusted_client_cannot_force_a_trace_or_a_log_entry(traced, caplog):
    client, spans = traced
    for _ in range(20):
        await client.get("/shares/sales", headers=CALLERS)
    assert spans() == ()
    assert "not a list of members" not in caplog.text


@pytest.mark.parametrize("traced", [(1.0, "[]")], indirect=True)
async def test_the_sample_ratio_applies_to_untrusted_clients_whose_traces_are_not_continued(traced):
    client, spans = traced
    await client.get("/shares/sales", headers=CALLERS | {"traceparent": f"00-{TRACE}-b7ad6b7169203331-00"})
    (span,) = spans()
    assert f"{span.context.trace_id:032x}" != TRACE
    assert span.parent is None


@pytest.mark.parametrize("traced", [(0.0, "[127.0.0.0/8]")], indirect=True)
async def test_a_trusted_proxy_decides_whether_a_request_is_traced(traced):
    client, spans = traced
    await client.get("/shares/sales", headers={"traceparent": CALLERS["traceparent"]})
    await client.get("/shares/sales")
    (span,) = spans()
    assert f"{span.context.trace_id:032x}" == TRACE


async def test_a_server_error_is_an_error_of_the_span(traced):
    client, spans = traced
    assert (await client.get("/shares/broken")).status == 500
    (span,) = spans()
    assert span.status.status_code is StatusCode.ERROR


def test_the_end_sends_the_last_spans_and_waits_a_bounded_time_for_the_collector():
    collector, is_answered = InMemorySpanExporter(), threading.Event()
    tracers = provider(Tracing("http://collector.test", sample_ratio=1.0), collector)
    tracers.get_tracer("test").start_span("last").end()
    end(tracers, 30)
    assert [span.name for span in collector.get_finished_spans()] == ["last"]

    class Hanging(InMemorySpanExporter):
        def export(self, spans):
            is_answered.wait()
            return super().export(spans)

    tracers = provider(Tracing("http://collector.test", sample_ratio=1.0), Hanging())
    tracers.get_tracer("test").start_span("last").end()
    begin = time.monotonic()
    end(tracers, 0.05)
    assert time.monotonic() - begin < 5
    is_answered.set()


@pytest.mark.processes
def test_no_tracing_library_is_imported_without_the_section():
    code = (
        "import sys, gateway.server.run; assert not {'opentelemetry', 'opentelemetry.sdk'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(gateway.__file__).parent.parent)
