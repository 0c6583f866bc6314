"""The store fails in every way: no wrong or short answer looks complete, and every request ends."""

import asyncio
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from support.fault_proxy import HEALTHY, Fault, FaultProxy, running
from support.file_answers import Broken, Files, query
from support.gateway_process import Answer, RunningGateway, running_gateway, share, storage
from support.nightly import at_night
from support.waiting import WAIT_SECONDS, until
from tables.large_logs import make_log

pytestmark = pytest.mark.alone

ADDS = 20_000
SOON_SECONDS = 20.0
PATIENT_SECONDS = 60.0
STALE_SECONDS = 5.0
TABLE = "/shares/faulty/schemas/default/tables/t"


@dataclass
class Faulty:
    """A gateway whose one bucket lies behind the proxy and whose other does not."""

    gateway: RunningGateway
    proxy: FaultProxy
    expected: Files

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    async def ask(self, table: str = "faulty.default.t", **options: Any):
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(SOON_SECONDS):
            return await query(session, self.base, table, **options)

    async def heals(self):
        """Until the storage is no longer given up."""
        self.proxy.fault = HEALTHY
        end = time.monotonic() + SOON_SECONDS
        while True:
            try:
                answer = await self.ask()
            except Broken:
                assert time.monotonic() < end
                await asyncio.sleep(0.1)
            else:
                assert answer.files == self.expected
                return


@pytest.fixture(scope="module")
def stored(versitygw, tmp_path_factory):
    root = tmp_path_factory.mktemp("faults") / "table"
    maker = make_log()
    found = maker.make_log(root, maker.LogOptions(adds=ADDS, commits=5))
    for bucket in ("faulty", "healthy"):
        versitygw.upload(root, bucket, "t")
    return Files(found["files"], int(found["digest"], 16))


@pytest.fixture
def faulty(versitygw, stored, tmp_path):
    with behind_a_proxy(versitygw, stored, tmp_path, {"timeoutSeconds": 1, "retrySeconds": 2}) as found:
        yield found


@pytest.fixture
def patient(versitygw, stored, tmp_path):
    timings = {"timeoutSeconds": PATIENT_SECONDS, "retrySeconds": PATIENT_SECONDS}
    with behind_a_proxy(versitygw, stored, tmp_path, timings) as found:
        yield found


@pytest.fixture
def forgiven(versitygw, stored, tmp_path):
    """Its snapshots may be served for a while when the storage is down."""
    section = {
        "storageFaults": {"failures": 2, "openSeconds": 0.5, "staleSeconds": STALE_SECONDS},
        "cache": {},
    }
    timings = {"timeoutSeconds": 0.5, "retrySeconds": 0.2}
    with behind_a_proxy(versitygw, stored, tmp_path, timings, **section) as found:
        yield found


@contextmanager
def behind_a_proxy(versitygw, stored, tmp_path, timings: dict[str, float], **changed: Any):
    with running(int(versitygw.endpoint.rsplit(":", 1)[1])) as proxy:
        storages = [
            {**storage(versitygw, "s3://faulty/"), **timings, "endpoint": proxy.endpoint},
            {**storage(versitygw, "s3://healthy/"), **timings},
        ]
        shares = [share("faulty", {"t": "s3://faulty/t"}), share("healthy", {"t": "s3://healthy/t"})]
        section = {
            "storages": storages,
            "storageFaults": {"failures": 3, "openSeconds": 0.5},
            "drainDelaySeconds": 0,
            "cache": {"memoryBytes": 0},
            **changed,
        }
        with running_gateway(tmp_path, shares, section) as gateway:
            yield Faulty(gateway, proxy, stored)


FAULTS = {
    "answers_503": Fault(status=503),
    "hangs": Fault(hang=True),
}
NIGHTLY_FAULTS = {
    "answers_500": Fault(status=500),
    "refuses": Fault(refuse=True),
    "cuts_at_once": Fault(cut_after_bytes=0),
    "slow_bytes": Fault(bytes_per_second=200),
    "garbles_the_head": Fault(corrupt_at_byte=3),
}


@pytest.mark.parametrize(
    "fault", [*FAULTS.values(), *at_night(*NIGHTLY_FAULTS.values())], ids=[*FAULTS, *NIGHTLY_FAULTS]
)
async def test_a_failing_storage_gives_errors_without_delaying_others_and_recovers(faulty: Faulty, fault):
    async def seconds_of_healthy() -> float:
        started = time.monotonic()
        assert (await faulty.ask("healthy.default.t")).files == faulty.expected
        return time.monotonic() - started

    assert (await faulty.ask()).files == faulty.expected
    usual_seconds = await seconds_of_healthy()
    faulty.proxy.fault = fault
    requested = [asyncio.ensure_future(faulty.ask(with_end=number % 2 == 0)) for number in range(8)]
    slowest = max([await seconds_of_healthy() for _ in range(5)])
    for answer in await asyncio.gather(*requested, return_exceptions=True):
        assert isinstance(answer, Broken), answer
    assert slowest < usual_seconds + 3
    await faulty.heals()


async def test_a_storage_that_hangs_during_streams_holds_no_thread_of_others(patient: Faulty):
    assert (await patient.ask()).files == patient.expected
    # Listings are answered, so that more streams than there are threads begin to read the checkpoint.
    patient.proxy.fault = Fault(hang=True, only=lambda request: b".checkpoint.parquet" in request)
    requested = [asyncio.ensure_future(patient.ask()) for _ in range(4 * (os.cpu_count() or 2))]
    try:
        await until(lambda: patient.proxy.hanging >= 4)
        for _ in range(5):
            started = time.monotonic()
            assert (await patient.ask("healthy.default.t")).files == patient.expected
            assert time.monotonic() - started < PATIENT_SECONDS / 4
        assert not any(one.done() for one in requested)
    finally:
        for one in requested:
            one.cancel()
        await asyncio.gather(*requested, return_exceptions=True)
    patient.proxy.fault = HEALTHY
    assert (await patient.ask()).files == patient.expected


async def test_a_storage_that_breaks_streams_is_given_up_for_a_while(faulty: Faulty):
    assert (await faulty.ask()).files == faulty.expected
    faulty.proxy.fault = Fault(cut_after_bytes=30_000, only=lambda request: b".checkpoint.parquet" in request)
    for _ in range(3):
        with pytest.raises(Broken):
            await faulty.ask()
    with pytest.raises(Broken, match="the storage does not answer"):
        await faulty.ask()
    await faulty.heals()


@pytest.mark.nightly
async def test_a_storage_that_cuts_its_answers_short_ends_in_errors_and_heals(faulty: Faulty):
    assert (await faulty.ask()).files == faulty.expected
    faulty.proxy.fault = Fault(cut_after_bytes=30_000)
    requested = (faulty.ask(with_end=number % 2 == 0) for number in range(8))
    for answer in await asyncio.gather(*requested, return_exceptions=True):
        assert isinstance(answer, Broken), answer
    await faulty.heals()


@pytest.mark.parametrize(
    "fault",
    [Fault(bytes_per_second=10_000_000), *at_night(Fault(delay_seconds=0.001))],
    ids=["throttles", "delays"],
)
async def test_a_slow_storage_gives_the_whole_answer(faulty: Faulty, fault):
    faulty.proxy.fault = fault
    assert (await faulty.ask()).files == faulty.expected


async def test_a_request_to_a_storage_that_fails_for_a_moment_is_retried(faulty: Faulty):
    faulty.proxy.fault = Fault(status=503)
    requested = asyncio.ensure_future(faulty.ask())
    before = len(faulty.proxy.requests)
    await until(lambda: len(faulty.proxy.requests) > before + 1)
    faulty.proxy.fault = HEALTHY
    assert (await requested).files == faulty.expected


@pytest.mark.parametrize("at", [10_000, *at_night(1_000, 100_000, 1_000_000)])
async def test_a_corrupted_byte_of_a_checkpoint_is_found_by_its_checksums(faulty: Faulty, at):
    # The commits do not have the files of this log's checkpoint, and do not replace it.
    for flipped in (at, at + 1):
        faulty.proxy.fault = Fault(
            corrupt_at_byte=flipped, only=lambda request: b".checkpoint.parquet" in request
        )
        with pytest.raises(Broken):
            await faulty.ask()
    faulty.proxy.fault = HEALTHY
    await faulty.heals()


@pytest.mark.parametrize("at", [400, *at_night(1_000)])
async def test_a_corrupted_byte_of_a_commit_ends_and_is_not_remembered(faulty: Faulty, at):
    # A commit has no checksum, and plain HTTP has none: a byte flipped in a value is a value. What may not be
    # is a crash, a hang, or its trace in later answers.
    faulty.proxy.fault = Fault(corrupt_at_byte=at, only=lambda request: b".json" in request)
    with suppress(Broken):
        await faulty.ask()
    faulty.proxy.fault = HEALTHY
    assert (await faulty.ask()).files == faulty.expected


async def test_a_kept_snapshot_is_served_up_to_its_age_limit_while_the_storage_is_down(
    forgiven: Faulty,
):
    async def answers() -> list[Answer]:
        ask = forgiven.gateway.request
        requested = [("GET", "/version", None), ("GET", "/metadata", None), ("POST", "/query", {})]
        return [await asyncio.to_thread(ask, method, TABLE + path, body) for method, path, body in requested]

    fresh = await answers()
    assert [(answer.status, answer.headers["delta-sharing-stale"]) for answer in fresh] == [(200, None)] * 3
    forgiven.proxy.fault = Fault(refuse=True)
    started = time.monotonic()
    stale = await answers()
    assert time.monotonic() - started < STALE_SECONDS
    assert [(answer.status, answer.headers["delta-sharing-stale"]) for answer in stale] == [(200, "true")] * 3
    assert stale[1].body == fresh[1].body
    assert (await forgiven.ask()).files == forgiven.expected
    # A version of one's own choice is no kept snapshot's.
    historic = await asyncio.to_thread(forgiven.gateway.request, "GET", f"{TABLE}/metadata?version=1")
    assert (historic.status, historic.json["errorCode"]) == (503, "TEMPORARILY_UNAVAILABLE")
    while (answer := (await answers())[-1]).status == 200:
        assert answer.headers["delta-sharing-stale"] == "true"
        assert time.monotonic() - started < STALE_SECONDS + WAIT_SECONDS
        await asyncio.sleep(0.05)
    assert time.monotonic() - started > STALE_SECONDS / 2
    for answer in await answers():
        assert (answer.status, answer.json["errorCode"]) == (503, "TEMPORARILY_UNAVAILABLE")
        assert 1 <= int(answer.headers["Retry-After"]) <= 6
    await forgiven.heals()
    assert (await answers())[0].headers["delta-sharing-stale"] is None


async def test_errors_do_not_reveal_the_storage(faulty: Faulty):
    faulty.proxy.fault = Fault(status=500)
    with pytest.raises(Broken) as broken:
        await faulty.ask()
    for word in ("faulty/", "127.0.0.1", str(faulty.proxy.port), "_delta_log", "s3:", "tests-access-key"):
        assert word not in str(broken.value)
