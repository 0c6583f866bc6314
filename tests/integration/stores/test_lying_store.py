"""A store that does not tell the truth: the answer is the whole one or an error, and never a short one."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import RunningGateway, running_gateway, share
from support.google_storage import GoogleStorage
from support.http_service import Request, Response
from support.odd_tables import write_log

BUCKET = "lies"
HMAC_KEY = {"accessKeyId": "GOOG1ELIES", "secretAccessKey": "the-secret-of-the-lies"}
COMMITS = 6
LOG = "_delta_log/"
CHECKPOINTED = "checkpointed"
"""With a checkpoint that is damaged, before which cleanup may have deleted commits."""

Lie = Callable[[Request, Response], Response]


def of_listings(change: Callable[[bytes], bytes]) -> Lie:
    """Change the listings of logs."""

    def lie(request: Request, answer: Response) -> Response:
        is_listing = request.query.get("prefix", "").endswith(LOG)
        return replace(answer, body=change(answer.body)) if is_listing else answer

    return lie


def of_commit(change: Callable[[Response], Response]) -> Lie:
    """Change one commit."""
    name = f"{COMMITS // 2:020}.json"
    return lambda request, answer: change(answer) if request.path.endswith(name) else answer


def entries(body: bytes) -> list[bytes]:
    return re.findall(rb"<Contents>.*?</Contents>", body)


def reordered(body: bytes) -> bytes:
    found = entries(body)
    return body.replace(b"".join(found), b"".join(reversed(found)))


def truncated(body: bytes) -> bytes:
    """The first two names, and no token of the next ones."""
    found = entries(body)
    body = re.sub(rb"<KeyCount>\d+<", b"<KeyCount>%d<" % min(2, len(found)), body)
    more = b"<IsTruncated>true<" if len(found) > 2 else b"<IsTruncated>false<"
    return body.replace(b"".join(found), b"".join(found[:2])).replace(b"<IsTruncated>false<", more)


def without_commit(body: bytes) -> bytes:
    """One name fewer, as in a listing of files that change."""
    kept = [entry for entry in entries(body) if f"{COMMITS // 2:020}.json".encode() not in entry]
    body = re.sub(rb"<KeyCount>\d+<", b"<KeyCount>%d<" % len(kept), body)
    return body.replace(b"".join(entries(body)), b"".join(kept))


def of_proxy(request: Request, answer: Response) -> Response:
    """The 404 of a server that has no route to the store."""
    body = b'{"code": "NOT_FOUND", "message": "no route"}'
    return Response(404, body) if request.query.get("prefix", "").endswith(LOG) else answer


def without_end(body: bytes) -> bytes:
    """Each page names the first one as the next one."""
    token = b"<NextContinuationToken>a</NextContinuationToken>"
    return body.replace(b"<IsTruncated>false</IsTruncated>", b"<IsTruncated>true</IsTruncated>" + token)


def refused(status: int, code: str) -> Callable[[Response], Response]:
    body = f"<Error><Code>{code}</Code><Message>Told so.</Message></Error>".encode()
    return lambda _answer: Response(status, body)


def with_headers(**headers: str) -> Callable[[Response], Response]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda answer: replace(answer, headers={**answer.headers, **named})


LIES: dict[str, tuple[Lie, set[int]]] = {
    "a page of a proxy": (of_listings(lambda _body: b"<html><body>It works</body></html>"), {503}),
    "a proxy without a route": (of_proxy, {503}),
    "JSON": (of_listings(lambda _body: b'{"kind": "storage#objects"}'), {503}),
    "nothing": (of_listings(lambda _body: b""), {503}),
    "an error with 200": (of_listings(lambda _body: b"<Error><Code>SlowDown</Code></Error>"), {503}),
    "half a listing": (of_listings(lambda body: body[: len(body) // 2]), {503}),
    "fewer names than are counted": (
        of_listings(lambda body: body.replace(b"".join(entries(body)[-2:]), b"")),
        {503},
    ),
    "a truncated listing": (of_listings(truncated), {200}),
    "a listing without end": (of_listings(without_end), {503}),
    "a listing in no order": (of_listings(reordered), {200}),
    "a short commit": (of_commit(lambda answer: replace(answer, body=answer.body[:-300])), {503}),
    "no commit": (of_commit(lambda answer: replace(answer, body=b"")), {503}),
    "another commit": (
        of_commit(with_headers(ETag='"x"', Last_Modified="Sat, 25 May 2013 00:00:00 GMT")),
        {503},
    ),
    "another tag": (of_commit(with_headers(ETag='"x"')), {200}),
    "a key that is disabled": (of_commit(refused(400, "KMS.DisabledException")), {403}),
    "an archived object": (of_commit(refused(403, "InvalidObjectState")), {403}),
    "a conflict": (of_commit(refused(409, "LeaseIdMissing")), {403}),
    "a store without HEAD": (
        lambda request, answer: Response(405) if request.method == "HEAD" else answer,
        {200},
    ),
    "times of another form": (
        lambda _request, answer: with_headers(Last_Modified="Fri May 24 00:00:00 2013")(answer),
        {200},
    ),
}


def table_of(lie: str) -> str:
    return lie.replace(" ", "_")


@pytest.fixture(scope="module")
def store(
    google_storage_server: GoogleStorage, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GoogleStorage]:
    first = tmp_path_factory.mktemp("lies") / "table"
    write_log(first, {"part-0.parquet": b"0"})
    log = first / "_delta_log"
    add = (log / f"{0:020}.json").read_text().splitlines()[-1]
    for version in range(1, COMMITS):
        text = "".join(add.replace("part-0", f"part-{version}-{number}") + "\n" for number in range(10))
        (log / f"{version:020}.json").write_text(text)
    for lie in LIES:
        google_storage_server.upload(first, BUCKET, table_of(lie))
    (log / f"{COMMITS - 1:020}.checkpoint.parquet").write_bytes(b"PAR1")
    google_storage_server.upload(first, BUCKET, CHECKPOINTED)
    google_storage_server.secrets[HMAC_KEY["accessKeyId"]] = HMAC_KEY["secretAccessKey"]
    yield google_storage_server
    google_storage_server.lie = None


def section_of(store: GoogleStorage, failures: int = 1000) -> dict[str, Any]:
    entry = {"prefix": f"gs://{BUCKET}/", "endpoint": store.endpoint, "retrySeconds": 0, **HMAC_KEY}
    return {"storages": [entry], "storageFaults": {"failures": failures}, "drainDelaySeconds": 0}


@pytest.fixture(scope="module")
def gateway(store: GoogleStorage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    shared = [share("lies", {table_of(lie): f"gs://{BUCKET}/{table_of(lie)}" for lie in LIES})]
    with running_gateway(tmp_path_factory.mktemp("lying"), shared, section_of(store)) as running:
        yield running


def files_of(lines: list[dict[str, Any]]) -> list[str]:
    return sorted(line[kind]["id"] for line in lines for kind in ("file", "add") if kind in line)


@pytest.mark.parametrize("name", LIES)
def test_the_answer_is_whole_or_an_error(store: GoogleStorage, gateway: RunningGateway, name: str) -> None:
    table = f"lies.default.{table_of(name)}"
    lie, expected = LIES[name]
    store.lie = lie
    cold = gateway.query(table)
    store.lie = None
    whole = gateway.query(table)
    assert whole.status == 200
    assert len(files_of(whole.lines)) == 1 + 10 * (COMMITS - 1)
    store.lie = lie
    hot = [gateway.query(table) for _ in range(3)]
    store.lie = None
    assert {cold.status} == expected, cold.body
    assert {answer.status for answer in hot} <= {200, *expected}
    for answer in (cold, *hot):
        if answer.status == 200:
            assert files_of(answer.lines) == files_of(whole.lines)
        else:
            assert set(answer.json) == {"errorCode", "message"}
            assert answer.status != 503 or answer.headers["Retry-After"]


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize(
    ("table", "body"),
    [("JSON", {}), ("JSON", {"startingVersion": 1}), (CHECKPOINTED, {"startingVersion": 1})],
)
def test_a_listing_that_lacks_a_commit_is_read_again(
    store: GoogleStorage, tmp_path: Path, table: str, body: dict[str, int], number: int
) -> None:
    shared = [share("lies", {table: f"gs://{BUCKET}/{table}"})]
    listings = iter(range(1, 100))

    def lie(request: Request, answer: Response) -> Response:
        if request.query.get("prefix", "").endswith(LOG) and next(listings) == number:
            return replace(answer, body=without_commit(answer.body))
        return answer

    with running_gateway(tmp_path, shared, section_of(store)) as gateway:
        store.lie = lie
        answer = gateway.query(f"lies.default.{table}", body)
        store.lie = None
        assert answer.status == 200, answer.body
        assert len(files_of(answer.lines)) == 10 * (COMMITS - 1) + (not body)


def test_a_fault_of_one_object_keeps_no_other_table_from_being_read(
    store: GoogleStorage, tmp_path: Path
) -> None:
    sick, well = "a_key_that_is_disabled", "JSON"
    shared = [share("lies", {table: f"gs://{BUCKET}/{table}" for table in (sick, well)})]
    refuse = refused(400, "KMS.DisabledException")
    store.lie = lambda request, answer: refuse(answer) if sick in request.path else answer
    with running_gateway(tmp_path, shared, section_of(store, failures=2)) as gateway:
        assert [gateway.query(f"lies.default.{sick}").status for _ in range(5)] == [403] * 5
        assert gateway.query(f"lies.default.{well}").status == 200
        assert "KMS.DisabledException" in gateway.logged("KMS.DisabledException")
    store.lie = None
