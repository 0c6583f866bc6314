"""The admin API through a real socket: the same operations as the command line, and its document is true."""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import replace

import pytest

from gateway.access.authentication import token_hash
from gateway.access.recipient_store import RecipientDatabase
from gateway.admin.app import Administration, ReloadResult, WorkerReload, create_admin_app
from gateway.admin.openapi import DOCUMENT

NOW_MS = 1_700_000_000_000
TOKEN = "the-admin-token"
METRICS_TOKEN = "the-metrics-token"


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def recorded():
    return []


@pytest.fixture
def open_database(tmp_path, recorded):
    def open_database(actor, *, create=False, read_only=False):
        return RecipientDatabase(
            tmp_path / "recipients.db",
            now_ms=lambda: NOW_MS,
            actor=actor,
            create=create,
            read_only=read_only,
            known_shares=lambda: ["sales", "logs", "a share", *(f"share{number}" for number in range(30))],
            taken_names=lambda: frozenset({"from-yaml"}),
            on_change=recorded.append,
        )

    return open_database


async def reloaded():
    return ReloadResult(None, [WorkerReload(0, 17, None), WorkerReload(1, 18, "the port cannot change")])


def administration(open_database):
    return Administration(
        open_database=open_database,
        endpoint=lambda: "https://share.example/delta-sharing",
        metrics_page=lambda: b"# metrics\n",
        reload=reloaded,
        token_sha256=sha256(TOKEN),
        metrics_token_sha256=sha256(METRICS_TOKEN),
    )


@pytest.fixture
async def client(aiohttp_client, open_database):
    app = create_admin_app(administration(open_database))
    return await aiohttp_client(app, headers={"Authorization": f"Bearer {TOKEN}"})


async def answer(response, status=200):
    assert response.status == status, await response.text()
    assert response.headers["Content-Type"] == "application/json; charset=utf-8"
    return await response.json()


@pytest.mark.parametrize(
    "authorization", [None, "Bearer", "Bearer wrong-token", f"Basic {TOKEN}", f"Bearer {METRICS_TOKEN}"]
)
async def test_a_request_without_a_valid_token_is_counted_and_logged_without_it(
    aiohttp_client, open_database, authorization, caplog
):
    refused = []
    made = replace(administration(open_database), count_refused=lambda: refused.append(1))
    client = await aiohttp_client(create_admin_app(made))
    headers = {} if authorization is None else {"Authorization": authorization}
    assert (await client.get("/recipients", headers=headers)).status == 401
    assert len(refused) == 1
    (record,) = [record for record in caplog.records if record.name == "gateway.admin"]
    assert record.levelname == "WARNING"
    assert record.message == "a request of the admin listener without a valid token: from 127.0.0.1"
    assert (await client.get("/healthz")).status == 200
    assert (await client.get("/recipients", headers={"Authorization": f"Bearer {TOKEN}"})).status == 200
    assert len(refused) == 1


async def test_a_reload_tells_what_each_worker_did(client):
    assert await answer(await client.post("/reload")) == {
        "reloaded": False,
        "refused": None,
        "workers": [
            {"worker": 0, "processId": 17, "reloaded": True, "refused": None},
            {"worker": 1, "processId": 18, "reloaded": False, "refused": "the port cannot change"},
        ],
    }


async def test_a_recipient_from_its_profile_to_its_end(client, open_database, recorded):
    added = await answer(
        await client.post("/recipients", json={"name": "alice", "shares": ["sales"], "expiresInSeconds": 60}),
        201,
    )
    token = added["profile"].pop("bearerToken")
    assert added == {
        "recipient": "alice",
        "profile": {
            "shareCredentialsVersion": 1,
            "endpoint": "https://share.example/delta-sharing",
            "expirationTime": "2023-11-14T22:14:20.000Z",
        },
    }
    assert open_database("t").show("alice").tokens[0].sha256 == token_hash(token).hex()
    shown = await answer(await client.get("/recipients/alice"))
    assert (shown["shares"], shown["networks"]) == (["sales"], [])
    assert shown["tokens"] == [{"createdMs": NOW_MS, "expiresMs": NOW_MS + 60_000}]
    assert token not in str(shown)
    assert token_hash(token).hex() not in str(shown)
    await answer(await client.put("/recipients/alice/shares/logs"))
    await answer(await client.put("/recipients/alice/networks", json={"networks": ["192.0.2.0/24"]}))
    rotated = await answer(await client.post("/recipients/alice/rotate", json={"oldExpiresInSeconds": 30}))
    assert rotated["profile"]["bearerToken"] != token
    taken = await answer(await client.delete("/recipients/alice/shares/sales"))
    assert (taken["shares"], taken["networks"]) == (["logs"], ["192.0.2.0/24"])
    revoked = await answer(await client.post("/recipients/alice/revoke"))
    assert all(token["expiresMs"] <= NOW_MS for token in revoked["tokens"])
    listed = await answer(await client.get("/recipients"))
    assert [recipient["name"] for recipient in listed["recipients"]] == ["alice"]
    deleted = await answer(await client.delete("/recipients/alice"))
    assert (deleted["name"], deleted["shares"]) == ("alice", ["logs"])
    assert (await answer(await client.get("/recipients")))["recipients"] == []
    await answer(await client.delete("/recipients/alice"), 404)
    assert [change.actor for change in recorded] == ["admin:127.0.0.1"] * 7
    assert recorded[-1].action == "deleteRecipient"


async def test_no_question_makes_a_database(client, tmp_path, recorded):
    assert await answer(await client.get("/recipients")) == {"recipients": []}
    for method, path in (
        ("GET", "/recipients/alice"),
        ("DELETE", "/recipients/alice"),
        ("POST", "/recipients/alice/rotate"),
        ("POST", "/recipients/alice/revoke"),
        ("PUT", "/recipients/alice/shares/sales"),
    ):
        await answer(await client.request(method, path), 404)
    await answer(await client.post("/purge", json={"tokensExpiredForSeconds": 0}), 404)
    assert list(tmp_path.iterdir()) == []
    assert recorded == []


async def test_shares_that_are_absent_are_granted_where_that_is_said(client):
    await answer(await client.post("/recipients", json={"name": "alice", "shares": ["a share"]}), 201)
    refused = await answer(await client.put("/recipients/alice/shares/news"), 400)
    assert "share 'news' is not in the configuration" in refused["message"]
    await answer(await client.post("/recipients", json={"name": "bob", "shares": ["news"]}), 400)
    granted = await answer(await client.put("/recipients/alice/shares/news?allowAbsent=true"))
    assert granted["shares"] == ["a share", "news"]
    body = {"name": "bob", "shares": ["news"], "allowAbsent": True}
    await answer(await client.post("/recipients", json=body), 201)


async def test_expired_tokens_and_old_history_are_purged(client, recorded):
    await answer(await client.post("/recipients", json={"name": "alice"}), 201)
    await answer(await client.post("/recipients/alice/rotate"))
    purged = await answer(await client.post("/purge", json={"tokensExpiredForSeconds": 0}))
    assert purged == {"tokens": 1, "changes": 0}
    purged = await answer(await client.post("/purge", json={"historyOlderThanSeconds": 0}))
    assert purged == {"tokens": 0, "changes": 3}
    assert [change.action for change in recorded][-2:] == ["purgeRecipients"] * 2
    assert dict(recorded[-1].detail) == {"historyOlderThanSeconds": "0", "tokens": "0", "changes": "3"}
    shown = await answer(await client.get("/recipients/alice"))
    assert len(shown["tokens"]) == 1
    await answer(await client.post("/purge", json={}), 400)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/recipients", b"{", 400),
        ("POST", "/recipients", b"[]", 400),
        ("POST", "/recipients", b"[" * 50_000, 400),
        ("POST", "/recipients", b"{}", 400),
        ("POST", "/recipients", b'{"name": 7}', 400),
        ("POST", "/recipients", b'{"name": "a b"}', 400),
        ("POST", "/recipients", b'{"name": "x", "other": 1}', 400),
        ("POST", "/recipients", b'{"name": "x", "shares": "sales"}', 400),
        ("POST", "/recipients", b'{"name": "x", "networks": ["everywhere"]}', 400),
        ("POST", "/recipients", b'{"name": "x", "expiresInSeconds": 0}', 400),
        ("POST", "/recipients", b'{"name": "x", "expiresInSeconds": true}', 400),
        ("POST", "/recipients", b'{"name": "x", "expiresInSeconds": 1e99}', 400),
        ("POST", "/recipients", b'{"name": "From-Yaml"}', 409),
        ("POST", "/recipients", b'{"name": "' + b"x" * 70_000 + b'"}', 413),
        ("GET", "/recipients/nobody", b"", 404),
        ("POST", "/recipients/nobody/rotate", b"", 404),
        ("POST", "/recipients/nobody/revoke", b"", 404),
        ("PUT", "/recipients/nobody/shares/sales", b"", 404),
        ("PUT", "/recipients/nobody/networks", b'{"networks": []}', 404),
        ("PUT", "/recipients/nobody/networks", b"{}", 400),
        ("GET", "/nothing", b"", 404),
        ("PATCH", "/recipients", b"", 405),
    ],
)
async def test_what_is_not_accepted_is_said_and_changes_nothing(
    client, recorded, *, method, path, body, status
):
    response = await client.request(method, path, data=body)
    said = await answer(response, status)
    assert set(said) == {"errorCode", "message"}
    assert recorded == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {METRICS_TOKEN}"},
        {"Authorization": "Bearer \udcff"},
    ],
)
async def test_nobody_else_comes_in(aiohttp_client, open_database, headers):
    client = await aiohttp_client(create_admin_app(administration(open_database)))
    for path in ("/recipients", "/recipients/alice", "/openapi.json"):
        assert (await answer(await client.get(path, headers=headers), 401))["errorCode"] == "UNAUTHENTICATED"
    assert (await client.get("/healthz", headers=headers)).status == 200


async def test_the_metrics_token_opens_metrics_alone(aiohttp_client, open_database):
    client = await aiohttp_client(create_admin_app(administration(open_database)))
    response = await client.get("/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
    assert (response.status, await response.read()) == (200, b"# metrics\n")


async def test_reading_opens_the_database_read_only(aiohttp_client, open_database):
    opened = []

    def recording(actor, *, create=False, read_only=False):
        opened.append(read_only)
        return open_database(actor, create=create, read_only=read_only)

    app = create_admin_app(administration(recording))
    client = await aiohttp_client(app, headers={"Authorization": f"Bearer {TOKEN}"})
    assert (await client.post("/recipients", json={"name": "alice"})).status == 201
    for path in ("/recipients", "/recipients/alice"):
        assert (await client.get(path)).status == 200
    assert opened == [False, True, True]


async def test_two_admins_at_once_lose_no_change(client, open_database):
    await answer(await client.post("/recipients", json={"name": "alice"}), 201)
    shares = [f"share{number}" for number in range(30)]
    answers = await asyncio.gather(*(client.put(f"/recipients/alice/shares/{share}") for share in shares))
    assert [response.status for response in answers] == [200] * 30
    assert open_database("t").show("alice").shares == tuple(sorted(shares))


def test_the_document_and_the_routes_are_the_same(open_database):
    app = create_admin_app(administration(open_database))
    routes = {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD"
    }
    methods = {"get", "put", "post", "delete"}
    described = {
        (method, path) for path, item in DOCUMENT["paths"].items() for method in item if method in methods
    }
    assert described == routes


def test_every_schema_that_is_named_is_there():
    named = set(re.findall(r"#/components/schemas/(\w+)", str(DOCUMENT)))
    assert named == set(DOCUMENT["components"]["schemas"])


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_database_that_cannot_be_read_is_no_defect(client, tmp_path, method):
    place, body = tmp_path / "recipients.db", {"name": "alice"} if method == "POST" else None
    for spoil in (lambda: place.write_bytes(b"no database " * 1000), lambda: (place.unlink(), place.mkdir())):
        spoil()
        response = await client.request(method, "/recipients", json=body)
        refused = await answer(response, 503)
        assert refused["errorCode"] == "TEMPORARILY_UNAVAILABLE"
        assert refused["message"] == "the recipients' database is busy or cannot be written"
