"""Tables that a Unity Catalog manages, over HTTP: what recipients get, and what the catalog is asked."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.gateway_app import PREFIX, bearer, recipients, serve
from support.history_table import Client, lines_of
from support.http_service import Response, json_response
from support.ratified_log import RatifiedLog
from support.unity_catalog import Catalog, loaded_table, running_catalog

from gateway.catalog.catalog import Catalog as Shares
from gateway.catalog.discovered import Discovered, with_discovered
from gateway.config import ConfigError, loads
from gateway.discovery.known_tables import KnownTables
from gateway.discovery.unity_catalog import search_catalog
from gateway.storage import refreshing_credentials, registry

TABLE = f"{PREFIX}/shares/s/schemas/d/tables/t"
NAME = "main/sales/orders"
CAPABLE = {"delta-sharing-capabilities": "responseformat=delta;includeendstreamaction=true"}


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with running_catalog() as running:
        yield running


@pytest.fixture
def log(catalog: Catalog, tmp_path: Path) -> RatifiedLog:
    made = catalog.managed[NAME] = RatifiedLog(tmp_path / "table")
    made.commit()
    made.commit(removes=1)
    return made


@asynccontextmanager
async def served(
    catalog: Catalog, log: RatifiedLog, *, section: str | None = None, gateway: str = ""
) -> AsyncIterator[Client]:
    section = f"url: '{catalog.url}', name: main.sales.orders, allowPrivateAddresses: true{section or ''}"
    async with serving_table(log, f"{{{section}}}", gateway) as client:
        yield client


@asynccontextmanager
async def serving_table(log: RatifiedLog, section: str, gateway: str = "") -> AsyncIterator[Client]:
    table = f"{{name: t, location: '{log.root}', historyShared: true, catalog: {section}}}"
    shares = f"shares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]\n"
    client, _ = await serve(f"{shares}{recipients(alice='s')}{gateway}")
    try:
        yield client
    finally:
        await client.close()


async def query(client: Client, **body: Any) -> tuple[int, Any]:
    async with client.post(f"{TABLE}/query", json=body, headers=bearer() | CAPABLE) as response:
        content = await response.read()
        return response.status, lines_of(content) if response.status == 200 else response


def files_of(lines: list[dict[str, Any]]) -> set[str]:
    files = (line["file"]["deltaSingleAction"]["add"]["path"] for line in lines if "file" in line)
    return {url.partition("?")[0].rpartition("/")[2] for url in files}


def asked(catalog: Catalog) -> int:
    return sum(path.startswith("delta/v1/") for path, _ in catalog.asked)


async def test_unpublished_commits_are_served_and_each_refresh_asks_once(
    catalog: Catalog, log: RatifiedLog
) -> None:
    async with served(catalog, log) as client:
        status, lines = await query(client)
        assert (status, files_of(lines)) == (200, log.files(2))
        assert "catalog" not in str(lines[0]).lower()
        assert asked(catalog) == 1
        log.publish_all()
        log.commit()
        # Requests that wait together share a request to the catalog, which begins after they arrived.
        answers = await asyncio.gather(*(query(client) for _ in range(8)))
        assert [files_of(lines) for _, lines in answers] == [log.files(3)] * 8
        assert asked(catalog) <= 3
        log.write_beside()
        assert files_of((await query(client))[1]) == log.files(3)


async def test_history_changes_and_pages_of_a_managed_table(catalog: Catalog, log: RatifiedLog) -> None:
    async with served(catalog, log) as client:
        assert files_of((await query(client, version=1))[1]) == log.files(1)
        assert (await query(client, version=3))[0] == 400
        async with client.get(f"{TABLE}/changes?startingVersion=0", headers=bearer() | CAPABLE) as response:
            changed = lines_of(await response.read())
        assert [line["file"]["version"] for line in changed if "file" in line] == [1, 2, 2]
        async with client.get(
            f"{TABLE}/version?startingTimestamp=2023-11-14T22:13:22Z", headers=bearer()
        ) as response:
            assert response.headers["delta-table-version"] == "2"
        log.commit()
        found: set[str] = set()
        token: dict[str, Any] = {}
        while True:
            _, lines = await query(client, maxFiles=1, **token)
            found |= files_of(lines)
            following = lines[-1].get("endStreamAction", {}).get("nextPageToken")
            # What is published between two pages is the same version.
            log.publish()
            if not following:
                break
            token = {"pageToken": following}
        assert found == log.files(3)


async def test_a_catalog_that_is_away_is_a_503_without_its_host_until_it_is_back(
    catalog: Catalog, log: RatifiedLog
) -> None:
    async with served(catalog, log, gateway="  storageFaults: {failures: 2, openSeconds: 1}\n") as client:
        catalog.loading[NAME] = Response(503)
        for _ in range(4):
            status, response = await query(client)
            assert status == 503
            assert int(response.headers["Retry-After"]) >= 1
            text = await response.text()
            assert "127.0.0.1" not in text
            assert "catalog" in text
        # The breaker of the catalog stops requests, and that of the storage does not open.
        assert asked(catalog) == 2
        assert catalog.loading.pop(NAME)

        async def is_back() -> bool:
            return (await query(client))[0] == 200

        async with asyncio.timeout(30):
            while not await is_back():
                await asyncio.sleep(0.05)


async def test_the_last_state_is_served_while_it_may_be_stale(catalog: Catalog, log: RatifiedLog) -> None:
    async with served(catalog, log, gateway="  maxStalenessSeconds: 3600\n") as client:
        assert (await query(client))[0] == 200
        catalog.loading[NAME] = Response(503)
        log.commit()
        assert files_of((await query(client))[1]) == log.files(2)
        assert files_of((await query(client, version=1))[1]) == log.files(1)
        assert asked(catalog) == 1


@pytest.mark.parametrize(
    ("answered", "status", "text"),
    [
        (401, 403, "denies access"),
        (403, 403, "denies access"),
        (404, 503, "unavailable"),
        (400, 403, "refuses the table"),
        (302, 403, "refuses the table"),
        (429, 503, "unavailable"),
        (500, 503, "unavailable"),
    ],
)
async def test_refusals_of_the_catalog(
    catalog: Catalog, log: RatifiedLog, answered: int, status: int, text: str
) -> None:
    catalog.loading[NAME] = Response(answered, b"secret", {"Location": f"{catalog.url}/secret"})
    async with served(catalog, log) as client:
        found, response = await query(client)
        message = await response.text()
        assert (found, text in message, "secret" in message) == (status, True, False)
    assert len(catalog.asked) == 1, "no redirect is followed"


async def test_a_table_that_the_catalog_does_not_have_is_a_404(catalog: Catalog, log: RatifiedLog) -> None:
    del catalog.managed[NAME]
    async with served(catalog, log) as client:
        status, response = await query(client)
        message = await response.text()
    assert (status, "does not have the table" in message, "secret" in message) == (404, True, False)


def _changed(**changes: Any) -> Any:
    return lambda loaded: loaded | {key.replace("_", "-"): value for key, value in changes.items()}


def _commit(**changes: Any) -> Any:
    named = {key.replace("_", "-"): value for key, value in changes.items()}
    return lambda loaded: loaded | {"commits": [loaded["commits"][0] | named, *loaded["commits"][1:]]}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda _: {}, 503),
        (lambda _: [], 503),
        (_changed(latest_table_version="2"), 503),
        (_changed(latest_table_version=-1), 503),
        (_changed(latest_table_version=1), 503),
        (_changed(commits=[{}]), 503),
        (_commit(version=1), 503),
        (_commit(file_size=-1), 503),
        (_commit(file_name="../../secret/00000000000000000002.x.json"), 503),
        (_commit(file_name="00000000000000000001.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"), 503),
        (_commit(file_size=1), 503),
        (_changed(latest_table_version=3), 503),
        (_changed(commits=[]), 500),
        (_changed(latest_table_version=None, commits=[]), 503),
        (_changed(latest_table_version=None, commits=[], metadata={"location": None}), 503),
        (lambda loaded: loaded | {"metadata": {"location": "s3://other/table"}}, 403),
    ],
)
async def test_an_odd_answer_of_the_catalog_is_an_error_and_never_a_short_answer(
    catalog: Catalog, log: RatifiedLog, change: Any, status: int
) -> None:
    log.publish()
    catalog.loading[NAME] = json_response(change(loaded_table(log)))
    async with served(catalog, log) as client:
        found, _ = await query(client)
    assert found == status


async def test_an_answer_without_the_latest_version_opens_no_version_that_nobody_ratified(
    catalog: Catalog, log: RatifiedLog
) -> None:
    log.publish_all()
    log.write_beside()
    whole = loaded_table(log)
    torn = json_response({"metadata": {"location": whole["metadata"]["location"]}, "commits": []})
    async with served(catalog, log) as client, served(catalog, log) as late:
        assert files_of((await query(client))[1]) == log.files(2)
        catalog.loading[NAME] = torn
        for body in (
            {},
            {"version": 3},
            {"version": 1},
            {"timestamp": "1970-01-01T00:00:00.001Z"},
            {"startingVersion": 0},
            {"startingVersion": 3},
        ):
            statuses = [(await query(one, **body))[0] for one in (client, late)]
            assert statuses == [500, 500], body
        del catalog.loading[NAME]
        assert files_of((await query(client))[1]) == log.files(2)


async def test_a_version_from_before_a_restore_of_the_catalog_is_not_served_from_memory(
    catalog: Catalog, log: RatifiedLog
) -> None:
    async with served(catalog, log) as client:
        assert files_of((await query(client, version=2))[1]) == log.files(2)
        log.restore(1)
        log.commit()
        catalog.loading[NAME] = json_response(
            {"metadata": loaded_table(log)["metadata"] | {"properties": {}}}
        )
        assert (await query(client, version=2))[0] == 500
        del catalog.loading[NAME]
        assert files_of((await query(client, version=2))[1]) == log.files(2)


async def test_a_list_of_commits_with_a_gap_is_an_error_whatever_lies_in_the_log(
    catalog: Catalog, log: RatifiedLog
) -> None:
    log.publish()
    log.commit()
    log.commit()
    for version in (3, 4):
        (log.log / f"{version:020}.json").write_text('{"commitInfo": {"inCommitTimestamp": 1}}\n')
    whole = loaded_table(log)
    async with served(catalog, log) as client:
        for version in (3, 4):
            commits = [commit for commit in whole["commits"] if commit["version"] != version]
            catalog.loading[NAME] = json_response(whole | {"commits": commits})
            assert (await query(client))[0] == 503
        del catalog.loading[NAME]
        assert files_of((await query(client))[1]) == log.files(4)


async def test_a_table_that_has_just_come_to_its_catalog_is_never_its_log_alone(
    catalog: Catalog, log: RatifiedLog
) -> None:
    log.move()
    log.commit()
    log.move(publishes=False)
    log.commit()
    whole = loaded_table(log)
    async with served(catalog, log) as client:
        catalog.loading[NAME] = json_response(whole | {"commits": []})
        for body in ({}, {"version": log.latest - 2}):
            assert (await query(client, **body))[0] == 500
        del catalog.loading[NAME]
        assert files_of((await query(client))[1]) == log.files(log.latest)


async def test_a_page_goes_on_with_its_own_version_in_every_process_or_is_refused(
    catalog: Catalog, log: RatifiedLog
) -> None:
    log.commit()
    log.commit()
    async with served(catalog, log) as first, served(catalog, log) as second:
        _, lines = await query(first, maxFiles=1)
        found, token = files_of(lines), lines[-1]["endStreamAction"]["nextPageToken"]
        restored = RatifiedLog.__new__(RatifiedLog)
        vars(restored).update(vars(log) | {"history": [*log.history], "unpublished": {**log.unpublished}})
        log.publish_all()
        _, lines = await query(second, pageToken=token)
        assert found | files_of(lines) == log.files(log.latest)
        for version in (3, 4):
            (log.log / f"{version:020}.json").unlink()
        restored.restore(2)
        restored.commit(removes=1)
        restored.commit()
        catalog.managed[NAME] = restored
        async with served(catalog, restored) as third:
            for client in (first, second, third):
                assert (await query(client, pageToken=token))[0] == 400
                assert files_of((await query(client))[1]) == restored.files(restored.latest)


async def test_odd_answers_about_one_table_stop_no_other_table_of_the_catalog(
    catalog: Catalog, log: RatifiedLog
) -> None:
    async with served(catalog, log, gateway="  storageFaults: {failures: 2, openSeconds: 3600}\n") as client:
        for body in (b"<html>", json_response(loaded_table(log) | {"latest-table-version": 9}).body):
            catalog.loading[NAME] = Response(200, body)
            for _ in range(3):
                assert (await query(client))[0] == 503
        del catalog.loading[NAME]
        assert (await query(client))[0] == 200


async def test_a_catalog_that_answers_whole_again_is_asked_at_once(
    catalog: Catalog, log: RatifiedLog
) -> None:
    async with served(catalog, log, gateway="  maxStalenessSeconds: 3600\n") as client:
        catalog.loading[NAME] = json_response(loaded_table(log) | {"commits": []})
        assert (await query(client, version=1))[0] == 500
        del catalog.loading[NAME]
        for _ in range(2):
            assert files_of((await query(client, version=1))[1]) == log.files(1)
        assert asked(catalog) == 2


async def test_a_catalog_that_sends_byte_by_byte_holds_no_request(
    log: RatifiedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "CATALOG_SECONDS", 0.3)
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not ended.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        section = f"{{url: '{url}', name: main.sales.orders, allowPrivateAddresses: true}}"
        async with serving_table(log, section) as client:
            try:
                async with asyncio.timeout(8):
                    assert (await query(client))[0] == 503
            finally:
                ended.set()
                dripping.join()


async def test_tokens_of_an_oauth_client_are_requested_once_and_renewed(
    catalog: Catalog, log: RatifiedLog
) -> None:
    catalog.clients["id 1"] = "s:1"
    catalog.token = "none yet"
    keys = "clientId: id 1, clientSecret: 's:1', scope: all-apis"
    section = f", oauth: {{tokenEndpoint: '{catalog.url}/token', {keys}}}"
    async with served(catalog, log, section=section) as client:
        for _ in range(3):
            assert (await query(client))[0] == 200
    forms = [one.form for one in catalog.service.requests if one.path == "/token"]
    assert forms == [{"grant_type": "client_credentials", "scope": "all-apis"}]


async def test_a_token_that_the_catalog_forgot_is_requested_again(
    catalog: Catalog, log: RatifiedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refreshing_credentials, "REFUSED_SECONDS", 0.0)
    catalog.clients["forgotten"] = "secret"
    keys = "clientId: forgotten, clientSecret: secret"
    section = f", oauth: {{tokenEndpoint: '{catalog.url}/token', {keys}}}"
    async with served(catalog, log, section=section) as client:
        assert (await query(client))[0] == 200
        catalog.token = "another"
        assert [(await query(client))[0] for _ in range(2)] == [403, 200]


async def test_a_client_that_gets_no_token_is_an_error(catalog: Catalog, log: RatifiedLog) -> None:
    section = f", oauth: {{tokenEndpoint: '{catalog.url}/token', clientId: a, clientSecret: b}}"
    async with served(catalog, log, section=section) as client:
        status, response = await query(client)
        assert (status, "127.0.0.1" in await response.text()) == (403, False)
    assert asked(catalog) == 0


async def test_a_managed_table_without_its_catalog_is_refused(log: RatifiedLog) -> None:
    log.publish_all()
    table = f"{{name: t, location: '{log.root}'}}"
    shares = f"shares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]\n"
    client, _ = await serve(f"{shares}{recipients(alice='s')}")
    status, response = await query(client)
    assert (status, "which the provider must configure" in await response.text()) == (400, True)
    await client.close()


def test_discovery_takes_managed_tables_with_their_catalog(catalog: Catalog, log: RatifiedLog) -> None:
    properties = {"delta.feature.catalogManaged": "supported"}
    catalog.add("sales", "orders", str(log.root), table_type="MANAGED", properties=properties)
    catalog.add("sales", "plain", f"{log.root}-2")
    keys = f"catalog: main, within: ['{log.root.parent}'], allowPrivateAddresses: true"
    section = f"{{url: '{catalog.url}', {keys}}}"
    config = loads(
        f"version: 1\nshares: [{{name: s, tables: {{unityCatalog: {section}}}}}]\n"
        "gateway: {anonymous: true}"
    )
    (source,) = config.sources
    assert source.discovery.unity_catalog is not None
    found = search_catalog(source, source.discovery.unity_catalog, KnownTables()).tables
    shares = with_discovered(config, Discovered({source.key: tuple(found)})).shares
    managed = {table.name: table.managed_by for table in Shares.of(shares).tables()}
    assert managed["plain"] is None
    assert managed["orders"] is not None
    assert managed["orders"].name == "main.sales.orders"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("catalog: {url: 'https://c.example', name: t}", "expected catalog.schema.table"),
        ("catalog: {url: 'https://c.example', name: a.b/c.t}", "expected catalog.schema.table"),
        ("catalog: {url: 'http://c.example', name: a.b.t}", "https only"),
        ("catalog: {url: 'https://127.0.0.1', name: a.b.t}", "private addresses"),
        ("catalog: {url: 'https://c.example', name: a.b.t, token: two words}", "no client can send"),
        ("catalog: {url: 'https://c.example', name: a.b.t}, accessModes: [dir]", "which commits count"),
        ("catalog: {name: a.b.t}", "must be given"),
        ("catalogue: {url: 'https://c.example', name: a.b.t}", "did you mean catalog"),
    ],
)
def test_an_odd_section_of_a_catalog_is_refused(table: str, problem: str) -> None:
    text = (
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{{name: t, location: 's3://b/t', {table}}}]}}]}}]"
    )
    with pytest.raises(ConfigError, match=problem):
        loads(f"version: 1\n{text}\ngateway: {{anonymous: true}}")
