"""Small answers of one second are signed once for equal requests."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestClient
from support.gateway_app import PREFIX, Clock, bearer, recipients, serve
from tables.large_logs import make_log

from gateway.authentication.credential_table import CredentialTable
from gateway.errors import Unavailable
from gateway.routes import query
from gateway.routes.cached_answer import CachedQuery
from gateway.tables.answer_cache import MAX_ANSWER_BYTES, MAX_ANSWERS, AnswerCache, CachedAnswer
from gateway.tables.native import CorruptLog
from gateway.tables.open_table import LatestTable
from gateway.telemetry.request_record import RequestRecord
from gateway.web.answer import Answer
from gateway.web.context import RequestContext

Client = TestClient[Any, Any]
NOW_MS = 1_750_000_000_250
ADDS = 20
DELTA = {"delta-sharing-capabilities": "responseformat=delta;readerfeatures=deletionvectors"}


def answer(body: bytes = b"{}") -> CachedAnswer:
    return CachedAnswer(body, "", RequestRecord())


def test_an_answer_lasts_as_long_as_its_second() -> None:
    answer_cache, kept = AnswerCache(), answer()
    answer_cache.put("q", kept, now_ms=1000)
    assert answer_cache.find("q", now_ms=1999) is kept
    assert answer_cache.find("other", now_ms=1999) is None
    assert answer_cache.find("q", now_ms=2000) is None
    assert answer_cache.find("q", now_ms=999) is None
    answer_cache.put("other", answer(), now_ms=2000)
    assert answer_cache.find("q", now_ms=1000) is None


def test_the_cache_is_bounded_in_number_and_size() -> None:
    answer_cache = AnswerCache()
    answer_cache.put("large", answer(b"x" * (MAX_ANSWER_BYTES + 1)), now_ms=0)
    for number in range(MAX_ANSWERS + 1):
        answer_cache.put(number, answer(), now_ms=0)
    found = [answer_cache.find(question, now_ms=0) for question in ["large", *range(MAX_ANSWERS + 1)]]
    assert [kept is not None for kept in found] == [False, *[True] * MAX_ANSWERS, False]
    assert [answer_cache.has_room(now_ms) for now_ms in (999, 1000)] == [False, True]


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW_MS)


@pytest.fixture
async def client(tmp_path: Path, clock: Clock) -> AsyncIterator[Client]:
    maker = make_log()
    maker.make_log(tmp_path / "t", maker.LogOptions(adds=ADDS, commits=0))
    shares = "".join(
        f"- {{name: {share}, schemas: [{{name: d, tables: [{{name: t, location: '{tmp_path / 't'}'}}]}}]}}\n"
        for share in ("s", "other")
    )
    granted = recipients(alice="s", bob="s,other")
    started, _ = await serve(f"shares:\n{shares}{granted}  maxStalenessSeconds: 3600\n", clock=clock)
    await until_in_memory(started)
    yield started
    await started.close()


async def until_in_memory(client: Client) -> None:
    """The columns of a table are kept by its first answer, a moment after it."""
    end = time.monotonic() + 10
    while not client.server.pipeline.state.answer_cache._answers:  # type: ignore[attr-defined]
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
        await ask(client)


async def ask(
    client: Client, body: Any = None, *, name: str = "alice", share: str = "s", **headers: str
) -> bytes:
    path = f"{PREFIX}/shares/{share}/schemas/d/tables/t/query"
    sent = bearer(name) | {"Accept-Encoding": "identity"} | headers
    async with client.post(path, data=orjson.dumps(body or {}), headers=sent) as response:
        assert response.status == 200, await response.read()
        return await response.read()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every answer that is not from the cache."""
    calls: list[int] = []
    make = query.start_snapshot

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return make(*arguments)

    monkeypatch.setattr(query, "start_snapshot", counted)
    return calls


async def test_equal_requests_within_a_second_share_one_signing(
    client: Client, clock: Clock, made: list[int]
) -> None:
    first = await ask(client)
    assert [await ask(client, name=name) for name in ("alice", "bob", "alice")] == [first] * 3
    assert not made
    clock.now_ms += 1000
    later = await ask(client)
    assert len(made) == 1
    assert later != first
    assert later.count(b"\n") == first.count(b"\n") == ADDS + 2


async def test_an_answer_that_a_thread_has_started_is_not_kept(
    client: Client, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It may be of a later version than the one that was looked for.
    monkeypatch.setattr(LatestTable, "is_in_memory", property(lambda _: False))
    for number in (1, 2):
        await ask(client, {"limitHint": 3})
        assert len(made) == number


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"limitHint": 1}, {}),
        ({"predicateHints": ["date = '2024-01-01'"]}, {}),
        ({}, DELTA),
        ({}, {"fileidhash": "delta"}),
    ],
)
async def test_a_different_request_gets_a_different_answer(
    client: Client, made: list[int], body: Any, headers: dict[str, str]
) -> None:
    plain = await ask(client)
    other = await ask(client, body, **headers)
    assert len(made) == 1
    assert other != plain
    assert await ask(client, body, **headers) == other
    assert await ask(client) == plain
    assert len(made) == 1


async def test_a_share_that_was_not_granted_is_not_opened_by_anothers_question(client: Client) -> None:
    await ask(client, name="bob", share="other")
    path = f"{PREFIX}/shares/other/schemas/d/tables/t/query"
    assert (await client.post(path, data=b"{}", headers=bearer("alice"))).status == 404


@pytest.mark.parametrize("body", [{"maxFiles": 5}, {"includeRefreshToken": True}])
async def test_tokens_are_one_recipients_and_never_repeated(
    client: Client, made: list[int], body: Any
) -> None:
    assert await ask(client, body) != await ask(client, body)
    assert len(made) == 2


async def test_an_answer_that_is_coded_for_some_is_made_for_each(client: Client, made: list[int]) -> None:
    pipeline = client.server.pipeline  # type: ignore[attr-defined]
    config = pipeline.state.config
    compression = replace(config.gateway.compression, minimum_files=ADDS)
    gateway = replace(config.gateway, compression=compression)
    pipeline.state = replace(
        pipeline.state, config=replace(config, gateway=gateway), answer_cache=AnswerCache()
    )
    path = f"{PREFIX}/shares/s/schemas/d/tables/t/query"
    for _ in range(2):
        plain = await ask(client)
        async with client.session.post(
            client.make_url(path),
            data=b"{}",
            headers=bearer() | {"Accept-Encoding": "gzip"},
            auto_decompress=False,
        ) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(await response.read()) == plain
    assert len(made) == 4


async def test_a_client_that_excludes_identity_coding_gets_no_cached_answer(client: Client) -> None:
    path = client.make_url(f"{PREFIX}/shares/s/schemas/d/tables/t/query")
    nothing = {"Accept-Encoding": "br, *;q=0"}
    for accepted, coding in (("gzip, identity;q=0", "gzip"), ("zstd, *;q=0", "zstd"), ("identity", None)):
        # What accepts no coding of the server gets the same answer.
        plain = await ask(client, **nothing)
        assert await ask(client) == plain
        async with client.session.post(
            path, data=b"{}", headers=bearer() | {"Accept-Encoding": accepted}, auto_decompress=False
        ) as response:
            assert response.headers.get("Content-Encoding") == coding
            assert (await response.read() == plain) == (coding is None)


async def test_an_answer_of_a_second_attempt_is_not_cached(
    client: Client, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    send, faults = query.stream.send, [CorruptLog("damaged")]

    async def send_after_faults(context: RequestContext, answer: Answer) -> Any:
        if faults:
            raise faults.pop()
        return await send(context, answer)

    monkeypatch.setattr(query, "is_worth_another_try", lambda *_of_attempt: True)
    monkeypatch.setattr(query.stream, "send", send_after_faults)
    body = {"limitHint": 3}
    assert await ask(client, body)
    assert len(made) == 1
    await ask(client, body)
    assert len(made) == 2


async def test_a_stale_answer_is_not_cached_for_the_version_in_memory(
    client: Client, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, faults = query.start_snapshot, [Unavailable("no credentials")]

    def make_after_faults(*arguments: Any) -> Any:
        if faults:
            raise faults.pop()
        return make(*arguments)

    monkeypatch.setattr(query, "start_snapshot", make_after_faults)
    tables = client.server.pipeline.state.tables  # type: ignore[attr-defined]
    gateway = tables._config.gateway
    gateway = replace(gateway, storage_faults=replace(gateway.storage_faults, stale_seconds=60.0))
    monkeypatch.setattr(tables, "_config", replace(tables._config, gateway=gateway))
    body = {"limitHint": 3}
    assert await ask(client, body)
    assert len(made) == 1
    await ask(client, body)
    assert len(made) == 2


async def test_log_and_metrics_count_a_repeated_answer_as_any_other(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.access")
    for _ in range(2):
        await ask(client)
    lines = [orjson.loads(line) for record in caplog.records for line in record.message.splitlines()]
    logged = [
        {k: v for k, v in line.items() if k not in ("time_ms", "request", "duration_ms")} for line in lines
    ]
    assert len(logged) == 2
    assert logged[0] == logged[1]
    assert logged[0]["returned"] == ADDS


async def test_an_answer_that_is_refused_at_its_end_leaves_the_cached_one_as_it_is(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = client.server.pipeline  # type: ignore[attr-defined]
    await ask(client)
    cached = pipeline.state.answer_cache
    find = CachedQuery.find

    def found_and_revoked(self: CachedQuery, opened: LatestTable) -> CachedAnswer | None:
        pipeline.state = replace(pipeline.state, credentials=CredentialTable(()))
        return find(self, opened)

    monkeypatch.setattr(CachedQuery, "find", found_and_revoked)
    path = f"{PREFIX}/shares/s/schemas/d/tables/t/query"
    async with client.post(path, data=b"{}", headers=bearer()) as response:
        assert response.status == 403
    assert [(kept.record.refusal, kept.record.error_code) for kept in cached._answers.values()] == [
        (None, None)
    ]


async def test_a_large_body_delays_no_other_request(client: Client) -> None:
    longest_seconds = 0.0

    async def measure_steps() -> None:
        """The processor's time of this thread alone, which other work of the machine does not lengthen."""
        nonlocal longest_seconds
        while True:
            start = time.thread_time()
            await asyncio.sleep(0)
            longest_seconds = max(longest_seconds, time.thread_time() - start)

    body = {"predicateHints": ["value = 1"] * 60_000}
    measuring = asyncio.ensure_future(measure_steps())
    start, start_here = time.process_time(), time.thread_time()
    await ask(client, body)
    seconds_of_threads = time.process_time() - start - (time.thread_time() - start_here)
    measuring.cancel()
    assert longest_seconds < seconds_of_threads
