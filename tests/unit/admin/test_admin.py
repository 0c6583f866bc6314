"""The admin API through a real socket: the same operations as the command line."""

import asyncio
import hashlib
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from aiohttp.test_utils import make_mocked_request

from gateway.admin.administration import (
    ADMINISTRATION,
    READS_AT_ONCE,
    Administration,
    ReloadResult,
    WorkerReload,
)
from gateway.admin.app import create_admin_app
from gateway.admin.middlewares import answer_database_errors
from gateway.authentication.credential_table import token_hash
from gateway.config import loads
from gateway.config.database import DatabasePlace
from gateway.database.errors import DatabaseError, DatabaseMissing
from gateway.errors import Unavailable
from gateway.governance.recipient_records import LinkInvalid
from gateway.governance.recipient_store import RecipientDatabase

NOW_MS = 1_700_000_000_000
TOKEN = "the-admin-token"
METRICS_TOKEN = "the-metrics-token"
ABSENT = "RESOURCE_DOES_NOT_EXIST"
INVALID = "INVALID_PARAMETER_VALUE"
MALFORMED = "MALFORMED_REQUEST"


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def recorded():
    return []


@pytest.fixture
def open_database(tmp_path, recorded):
    def open_database(actor, *, create=False, read_only=False):
        return RecipientDatabase(
            DatabasePlace(tmp_path / "recipients.db"),
            now_ms=lambda: NOW_MS,
            actor=actor,
            create=create,
            read_only=read_only,
            known_shares=lambda: ["sales", "logs", "a share", *(f"share{number}" for number in range(30))],
            known_issuers=lambda: ["https://idp.example.com"],
            taken_names=lambda: frozenset({"from-yaml"}),
            on_changes=recorded.extend,
        )

    return open_database


async def reloaded():
    return ReloadResult(None, [WorkerReload(0, 17, None), WorkerReload(1, 18, "the port cannot change")])


def no_shares(actor, *, create=False, read_only=False):
    raise DatabaseMissing


def administration(open_database):
    return Administration(
        open_database=open_database,
        open_shares=no_shares,
        config=lambda: loads("version: 1\ngateway: {anonymous: true, publicUrl: https://share.example}\n"),
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


@pytest.mark.parametrize("authorization", ["Bearer", "Bearer "])
async def test_no_hash_makes_an_empty_token_a_valid_one(aiohttp_client, open_database, authorization):
    made = replace(administration(open_database), token_sha256=sha256(""))
    client = await aiohttp_client(create_admin_app(made))
    assert (await client.get("/recipients", headers={"Authorization": authorization})).status == 401


@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer", "Bearer wrong-token", "Bearer \udcff", f"Basic {TOKEN}", f"Bearer {METRICS_TOKEN}"],
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


async def test_a_reload_answers_with_the_result_of_each_worker(client):
    assert await answer(await client.post("/reload")) == {
        "reloaded": False,
        "refused": None,
        "workers": [
            {"worker": 0, "processId": 17, "reloaded": True, "refused": None},
            {"worker": 1, "processId": 18, "reloaded": False, "refused": "the port cannot change"},
        ],
    }


async def test_a_link_in_place_of_a_profile(client, open_database):
    body = {"name": "alice", "shares": ["sales"], "expiresInSeconds": 60, "activation": True}
    issued = await answer(await client.post("/recipients", json=body), 201)
    assert "profile" not in issued
    page, _, code = issued["activationUrl"].partition("#")
    assert page == "https://share.example/delta-sharing/activate"
    with closing(open_database("tests")) as database:
        assert database.show("alice").tokens == ()
        given = database.activate(code)
        assert given.expires_ms == NOW_MS + 60_000
        with pytest.raises(LinkInvalid):
            database.activate(code)
    link = await answer(await client.post("/recipients/ALICE/activation-links", json={}), 201)
    assert link["expiresMs"] == NOW_MS + 3 * 86_400_000
    shown = await answer(await client.get("/recipients/alice"))
    assert [change["action"] for change in shown["history"]] == [
        "createRecipient",
        "activateRecipient",
        "createActivationLink",
    ]
    secret = link["activationUrl"].partition("#")[2]
    assert code not in str(shown)
    assert secret not in str(shown)
    assert len(shown["tokens"]) == 1


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/recipients/nobody/activation-links", {}, 404),
        ("/recipients/alice/activation-links", {"linkExpiresInSeconds": 0}, 400),
        ("/recipients/alice/activation-links", {"linkExpiresInSeconds": 31 * 86_400}, 400),
        ("/recipients", {"name": "bob", "activation": True, "federationPolicies": "POLICY"}, 400),
    ],
)
async def test_a_link_that_is_refused(client, path, body, status):
    await client.post("/recipients", json={"name": "alice"})
    if "federationPolicies" in body:
        body = body | {"federationPolicies": [POLICY]}
    await answer(await client.post(path, json=body), status)


POLICY = {
    "name": "reporting",
    "oidc_policy": {
        "issuer": "https://idp.example.com",
        "subject": "acme",
        "audiences": ["sharing"],
        "subject_claim": "azp",
        "claims": {"tid": "t1"},
    },
}


async def test_a_recipient_of_an_identity_provider_and_its_policies(client):
    body = {"name": "alice", "shares": ["sales"], "federationPolicies": [POLICY]}
    issued = await answer(await client.post("/recipients", json=body), 201)
    assert issued["profile"]["type"] == "oauth_client_credentials"
    assert "bearerToken" not in issued["profile"]
    shown = await answer(await client.get("/recipients/alice"))
    assert (shown["tokens"], shown["federationPolicies"]) == ([], [POLICY | {"create_time": NOW_MS}])
    policies = "/recipients/ALICE/federation-policies"
    second = POLICY | {"name": "second"}
    assert await answer(await client.post(policies, json=second), 201) == second | {"create_time": NOW_MS}
    listed = await answer(await client.get(policies))
    assert [one["name"] for one in listed["policies"]] == ["reporting", "second"]
    assert (await answer(await client.get(f"{policies}/second")))["oidc_policy"] == POLICY["oidc_policy"]
    left = await answer(await client.delete(f"{policies}/reporting"))
    assert [one["name"] for one in left["policies"]] == ["second"]
    assert (await client.delete(f"{policies}/reporting")).status == 404
    assert (await client.get(f"{policies}/reporting")).status == 404


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"name": "Reporting"}, 400),
        ({"oidc_policy": POLICY["oidc_policy"] | {"audiences": []}}, 400),
        ({"oidc_policy": POLICY["oidc_policy"] | {"subject": ""}}, 400),
        ({"oidc_policy": POLICY["oidc_policy"] | {"issuer": "https://idp.example.com/"}}, 400),
        ({"oidc_policy": POLICY["oidc_policy"] | {"subject": "a\nb"}}, 400),
        ({"oidc_policy": POLICY["oidc_policy"] | {"subjectClaim": "oid"}}, 400),
        ({"oidc_policy": POLICY["oidc_policy"] | {"claim": {"tid": "t1"}}}, 400),
        ({"oidc": {}}, 400),
        ({"name": "taken"}, 409),
    ],
)
async def test_a_policy_that_is_refused_changes_nothing(client, changes, status):
    await client.post("/recipients", json={"name": "alice"})
    policies = "/recipients/alice/federation-policies"
    await client.post(policies, json=POLICY | {"name": "taken"})
    before = await answer(await client.get(policies))
    assert (await client.post(policies, json=POLICY | changes)).status == status
    assert await answer(await client.get(policies)) == before


@pytest.mark.parametrize(
    ("life", "ends_ms"),
    [
        ({}, NOW_MS + 90 * 86_400_000),
        ({"expiresInSeconds": None}, None),
        ({"expiresInSeconds": 60}, NOW_MS + 60_000),
    ],
)
async def test_a_token_ends_after_90_days_unless_another_end_is_given(client, open_database, life, ends_ms):
    await answer(await client.post("/recipients", json={"name": "alice", "shares": ["sales"], **life}), 201)
    await answer(await client.post("/recipients", json={"name": "bob", "activation": True, **life}), 201)
    await answer(await client.post("/recipients/alice/rotate", json=life))
    await answer(await client.post("/recipients", json={"name": "carol", "oauthClient": True, **life}), 201)
    link = await answer(await client.post("/recipients/bob/activation-links", json=life), 201)
    with closing(open_database("tests")) as database:
        assert database.activate(link["activationUrl"].partition("#")[2]).expires_ms == ends_ms
        assert database.show("alice").tokens[-1].expires_ms == ends_ms
        assert database.show("carol").clients[0].secrets[0].expires_ms == ends_ms


async def test_no_read_and_no_change_of_an_absent_recipient_creates_a_database(client, tmp_path, recorded):
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


async def test_a_recipient_that_cannot_be_read_is_not_absent_from_the_list(client, tmp_path):
    for name in ("alice", "bob"):
        await client.post("/recipients", json={"name": name})
    with closing(sqlite3.connect(tmp_path / "recipients.db")) as database:
        database.execute("UPDATE recipients SET properties = '{' WHERE key = 'bob'")
        database.execute("INSERT INTO recipients VALUES (CAST(X'ff41' AS TEXT), 'x', '', 1, '{}', 0)")
        database.commit()
    listed = await answer(await client.get("/recipients"))
    assert [one["name"] for one in listed["recipients"]] == ["alice"]
    assert {one["name"]: one["reason"] for one in listed["unreadable"]} == {
        "bob": "its properties are invalid",
        "\\udcffA": "its name, or its key, which is not that of the name, is invalid",
    }


async def test_expired_tokens_and_old_history_are_purged(client, recorded):
    await answer(await client.post("/recipients", json={"name": "alice"}), 201)
    await answer(await client.post("/recipients/alice/rotate"))
    purged = await answer(await client.post("/purge", json={"tokensExpiredForSeconds": 0}))
    # The rotated token has no row any more.
    assert purged == {"tokens": 0, "changes": 0}
    purged = await answer(await client.post("/purge", json={"historyOlderThanSeconds": 0}))
    assert purged == {"tokens": 0, "changes": 3}
    assert [change.action for change in recorded][-2:] == ["purgeRecipients"] * 2
    assert dict(recorded[-1].detail) == {"historyOlderThanSeconds": "0", "tokens": "0", "changes": "3"}
    shown = await answer(await client.get("/recipients/alice"))
    assert len(shown["tokens"]) == 1
    await answer(await client.post("/purge", json={}), 400)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/recipients", b'{"name": "a b"}', 400, INVALID),
        ("POST", "/recipients", b'{"name": "x", "networks": ["everywhere"]}', 400, INVALID),
        ("POST", "/recipients", b'{"name": "From-Yaml"}', 409, INVALID),
        ("POST", "/recipients", b'{"name": "' + b"x" * 70_000 + b'"}', 413, MALFORMED),
        ("GET", "/recipients/nobody", b"", 404, ABSENT),
        ("POST", "/recipients/nobody/rotate", b"", 404, ABSENT),
        ("POST", "/recipients/nobody/revoke", b"", 404, ABSENT),
        ("PUT", "/recipients/nobody/shares/sales", b"", 404, ABSENT),
        ("PUT", "/recipients/nobody/shares/sales?allowAbsent=yes", b"", 400, MALFORMED),
        ("PUT", "/recipients/nobody/networks", b'{"networks": []}', 404, ABSENT),
        ("GET", "/nothing", b"", 404, ABSENT),
        ("PATCH", "/recipients", b"", 405, "UNSUPPORTED_OPERATION"),
    ],
)
async def test_a_request_that_is_refused_changes_nothing(
    client, recorded, *, method, path, body, status, code
):
    response = await client.request(method, path, data=body)
    refused = await answer(response, status)
    assert set(refused) == {"errorCode", "message"}
    assert refused["errorCode"] == code
    assert recorded == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/shares/logs", b'{"condition": "country = recipient.country"}'),
        ("PUT", "/shares/logs?schema=public", b""),
        ("PUT", "/grants?condition=false", b'{"share": "logs"}'),
        ("DELETE", "/shares/sales", b'{"allParts": true}'),
        ("POST", "/grants/revoke?allParts=true", b'{"share": "sales"}'),
        ("POST", "/revoke", b'{"shares": ["sales"]}'),
        ("DELETE", "?dryRun=true", b""),
        ("POST", "/rotate?oldExpiresInSeconds=60", b""),
    ],
)
async def test_a_field_that_would_be_ignored_is_refused(client, recorded, *, method, path, body):
    await client.post("/recipients", json={"name": "alice", "shares": ["sales"]})
    recorded.clear()
    refused = await answer(await client.request(method, f"/recipients/alice{path}", data=body), 400)
    assert "unknown field" in refused["message"]
    assert recorded == []
    assert await answer(await client.put("/recipients/alice/shares/logs", data=b"{}"))


@pytest.mark.parametrize(
    ("path", "body", "code", "message"),
    [
        ("/recipients", b"{", MALFORMED, "the body is not JSON in UTF-8"),
        ("/recipients", b"[" * 50_000, MALFORMED, "Expected `object`, got `array`"),
        ("/recipients", b'{"name": 7}', MALFORMED, "Expected `str`, got `int` - at `$.name`"),
        ("/recipients", '{"name": "Zoë"}'.encode("latin-1"), MALFORMED, "the body is not JSON in UTF-8"),
        ("/recipients", b'{"name": ""}', INVALID, "Expected `str` of length >= 1 - at `$.name`"),
        ("/recipients", b'{"name": "x", "other": 1}', MALFORMED, "Object contains unknown field `other`"),
        (
            "/recipients",
            b'{"name": "x", "shares": ["sales", null]}',
            MALFORMED,
            "Expected `str`, got `null` - at `$.shares[1]`",
        ),
        (
            "/recipients",
            b'{"name": "x", "networks": [' + b'"::",' * 1000 + b'"::"]}',
            INVALID,
            "Expected `array` of length <= 1000 - at `$.networks`",
        ),
        (
            "/recipients",
            b'{"name": "x", "expiresInSeconds": 0}',
            INVALID,
            "Expected `int` >= 1 - at `$.expiresInSeconds`",
        ),
        ("/recipients/x/networks", b"{}", MALFORMED, "Object missing required field `networks`"),
        ("/purge", b'{"historyOlderThanSeconds": -1}', INVALID, "Expected `int` >= 0 - at `$.history"),
    ],
)
async def test_a_body_of_other_types_is_refused_with_the_field(
    client, recorded, *, path, body, code, message
):
    response = await client.request("PUT" if path.endswith("networks") else "POST", path, data=body)
    refused = await answer(response, 400)
    assert (refused["errorCode"], refused["message"][: len(message)]) == (code, message)
    assert recorded == []


async def test_the_metrics_token_opens_metrics_alone(aiohttp_client, open_database):
    client = await aiohttp_client(create_admin_app(administration(open_database)))
    response = await client.get("/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
    assert (response.status, await response.read()) == (200, b"# metrics\n")


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/recipients", "/absent"])
async def test_no_answer_has_a_version_of_the_server(client, path):
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        response = await client.get(path, headers=headers)
        assert response.headers["Server"] == "delta-sharing-gateway"


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
    with closing(open_database("t")) as database:
        assert database.show("alice").shares == tuple(sorted(shares))


async def test_a_message_about_an_absent_share_names_few_of_many(client):
    refused = await answer(await client.post("/recipients", json={"name": "alice", "shares": ["b"]}), 400)
    assert "whose shares are: a share, logs, sales, share0," in refused["message"]
    assert "share23 and 13 more; to grant" in refused["message"]


async def test_a_change_waits_a_bounded_time_for_earlier_ones_and_a_read_not_at_all(client, monkeypatch):
    monkeypatch.setattr("gateway.admin.call.WAIT_SECONDS", 0.05)
    await answer(await client.post("/recipients", json={"name": "alice"}), 201)
    async with client.app[ADMINISTRATION].changes:
        refused = await answer(await client.post("/recipients", json={"name": "bob"}), 503)
        assert refused["errorCode"] == "TEMPORARILY_UNAVAILABLE"
        await answer(await client.get("/recipients/alice"), 200)
    await answer(await client.post("/recipients", json={"name": "bob"}), 201)


async def test_readings_of_a_database_that_hangs_leave_threads_to_the_metrics(aiohttp_client, open_database):
    hangs = threading.Event()

    def hanging(actor, **options):
        hangs.wait()
        return open_database(actor, **options)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(READS_AT_ONCE + 1))
    open_database("t", create=True).close()
    made = replace(administration(open_database), open_database=hanging)
    client = await aiohttp_client(create_admin_app(made), headers={"Authorization": f"Bearer {TOKEN}"})
    readings = [asyncio.ensure_future(client.get("/recipients")) for _ in range(2 * READS_AT_ONCE)]
    try:
        await asyncio.sleep(0.2)
        assert (await asyncio.wait_for(client.get("/metrics"), 20)).status == 200
    finally:
        hangs.set()
    assert [response.status for response in await asyncio.gather(*readings)] == [200] * 2 * READS_AT_ONCE


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_database_that_cannot_be_read_is_no_defect(client, tmp_path, method):
    place, body = tmp_path / "recipients.db", {"name": "alice"} if method == "POST" else None
    for spoil in (lambda: place.write_bytes(b"no database " * 1000), lambda: (place.unlink(), place.mkdir())):
        spoil()
        response = await client.request(method, "/recipients", json=body)
        refused = await answer(response, 503)
        assert refused["errorCode"] == "TEMPORARILY_UNAVAILABLE"
        assert refused["message"] == "the recipients' database is busy or cannot be written"


async def test_an_error_of_the_database_is_one_also_after_the_client_has_left(caplog):
    async def fail(_request):
        raise DatabaseError("the disk is full")

    request = make_mocked_request("GET", "/recipients")
    request.transport.is_closing.return_value = True
    with pytest.raises(Unavailable):
        await answer_database_errors(request, fail)
    assert "the recipients' database: the disk is full" in caplog.text


async def test_the_clients_of_a_recipient(client, open_database):
    body = {"name": "alice", "shares": ["sales"], "oauthClient": True, "expiresInSeconds": 60}
    profile = (await answer(await client.post("/recipients", json=body), 201))["profile"]
    assert profile["tokenEndpoint"] == "https://share.example/delta-sharing/oauth/token"
    shown = await answer(await client.get("/recipients/alice"))
    assert (shown["tokens"], shown["bearerTokensForbidden"]) == ([], True)
    clients = "/recipients/ALICE/clients"
    issued = await answer(await client.post(clients, json={"expiresInSeconds": None}), 201)
    assert (issued["client_secret_expires_at"], issued["profile"]["clientSecret"]) == (
        0,
        issued["client_secret"],
    )
    assert len((await answer(await client.get(clients)))["clients"]) == 2
    one = f"{clients}/{profile['clientId']}"
    rotation = {"oldExpiresInSeconds": 30, "expiresInSeconds": 600}
    rotated = await answer(await client.post(f"{one}/rotate", json=rotation))
    assert rotated["client_id"] == profile["clientId"]
    found = await answer(await client.get(one))
    assert {secret["client_secret_expires_at"] for secret in found["client_secrets"]} == {
        NOW_MS // 1000 + 30,
        NOW_MS // 1000 + 600,
    }
    with closing(open_database("t")) as database:
        stored = database.show("alice").clients
    hashes = {secret.sha256 for record in stored for secret in record.secrets}
    assert token_hash(rotated["client_secret"]).hex() in hashes
    assert [left["client_id"] for left in (await answer(await client.delete(one)))["clients"]] == [
        issued["client_id"]
    ]
    assert (await client.get(one)).status == (await client.delete(one)).status == 404
    assert (await client.post("/recipients/alice/rotate", json={})).status == 400
    allowed = await answer(await client.put("/recipients/alice/bearer-tokens", json={"forbidden": False}))
    assert allowed["bearerTokensForbidden"] is False
    assert (await client.post("/recipients/alice/rotate", json={})).status == 200
    assert (await client.post("/recipients", json=body | {"federationPolicies": [POLICY]})).status == 400


async def test_a_share_of_a_part_is_known_and_what_is_wrong_with_a_grant_is_told(
    aiohttp_client, open_database
):
    checked = []

    def warnings(_stored, grants, properties):
        checked.append((grants, properties))
        return ["s.d.t is not checked"]

    known = replace(administration(open_database), grant_warnings=warnings)
    client = await aiohttp_client(create_admin_app(known), headers={"Authorization": f"Bearer {TOKEN}"})
    await answer(await client.post("/recipients", json={"name": "alice"}), 201)
    grant = {"share": "news", "schema": "d", "condition": "p = 1"}
    refused = await answer(await client.put("/recipients/alice/grants", json=grant), 400)
    assert "share 'news' is not in the configuration" in refused["message"]
    granted = await answer(await client.put("/recipients/alice/grants?allowAbsent=true", json=grant))
    assert granted["warnings"] == ["s.d.t is not checked"]
    assert [grants[0].share for grants, _ in checked] == ["news", "news"]


async def test_a_change_that_is_based_on_an_earlier_state_is_refused(client, open_database):
    with closing(open_database("tests", create=True)) as database:
        database.add("alice", shares=["sales"])
    tag = (await client.get("/recipients/alice")).headers["ETag"]
    networks = "/recipients/alice/networks"
    changed = await client.put(networks, json={"networks": ["192.0.2.0/24"]}, headers={"If-Match": tag})
    assert changed.status == 200
    for method, path, body in (
        ("PUT", networks, {"networks": []}),
        ("PUT", "/recipients/alice/properties", {"properties": {"tier": "gold"}}),
        ("DELETE", "/recipients/alice/shares/sales", None),
        ("DELETE", "/recipients/alice", None),
    ):
        refused = await client.request(method, path, json=body, headers={"If-Match": tag})
        assert (refused.status, (await refused.json())["errorCode"]) == (412, INVALID), path
    for malformed in ('"x"', "17", '"1", "2"'):
        refused = await client.put(networks, json={"networks": []}, headers={"If-Match": malformed})
        assert refused.status == 400, malformed
    with closing(open_database("tests")) as database:
        assert database.show("alice").networks == ("192.0.2.0/24",)
        assert len(database.history("alice")) == 2
    tag = (await client.get("/recipients/alice")).headers["ETag"]
    for sent in (tag, "*"):
        removed = await client.put(networks, json={"networks": []}, headers={"If-Match": sent})
        assert removed.status == 200
