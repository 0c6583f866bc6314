"""Shares by the admin API, with the field names of Databricks."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from gateway.__main__ import main
from gateway.admin import share_handlers
from gateway.admin.administration import ReloadResult
from gateway.admin.app import create_admin_app
from gateway.admin.setup import administer
from gateway.admin.share_messages import DataObject, DataObjectUpdate, DiscoveredTables
from gateway.authentication.credential_table import token_hash
from gateway.catalog.stored_shares import StoredShare
from gateway.config import Admin, Config, Location, load, loads
from gateway.config.entries import DISCOVERY_KEYS
from gateway.config.known_keys import camel_case
from gateway.governance import share_edits
from gateway.telemetry.metrics import AdminMetrics

TOKEN = "the-admin-token"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
OF_FILE = [{"name": "File", "schemas": [{"name": "d", "tables": [{"name": "t", "location": "/t"}]}]}]


async def reloaded() -> ReloadResult:
    return ReloadResult(None)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[TestClient[Any, Any]]:
    file = tmp_path / "share.yaml"
    recipient = {"name": "r", "tokens": [{"sha256": "a" * 64}], "shares": ["*"]}
    file.write_text(yaml.safe_dump({"version": 1, "shares": OF_FILE, "gateway": {"recipients": [recipient]}}))
    async with TestClient(TestServer(admin_app(load(file))), headers=HEADERS) as opened:
        yield opened


def admin_app(config: Config) -> web.Application:
    return create_admin_app(
        administer(
            Admin(token_hash(TOKEN).hex()),
            lambda: config,
            audit=None,
            metrics_page=lambda: b"",
            reload=reloaded,
            had_database=lambda: False,
            metrics=AdminMetrics(CollectorRegistry()),
            now_ms=lambda: 1_700_000_000_000,
        )
    )


async def call(
    client: TestClient[Any, Any], method: str, path: str, body: Any = None, status: int = 200
) -> Any:
    answer = await client.request(method, path, json=body)
    assert answer.status == status, await answer.text()
    return await answer.json()


def update(action: str, shared_as: str, kind: str = "TABLE", **fields: Any) -> dict[str, Any]:
    return {"action": action, "data_object": {"shared_as": shared_as, "data_object_type": kind, **fields}}


async def test_a_share_lives_from_its_addition_to_its_removal(client: TestClient[Any, Any]) -> None:
    of_file = {"name": "File", "source": "configuration"}
    assert await call(client, "GET", "/shares") == {"shares": [of_file], "left_out": []}
    added = await call(client, "POST", "/shares", {"name": "sales", "comment": "x"}, 201)
    assert added == {"name": "sales", "source": "database", "comment": "x", "objects": []}
    updates = [
        update("ADD", "public", "SCHEMA"),
        update("ADD", "public.orders", name="/orders", history_data_sharing_status="ENABLED"),
        update("ADD", "public.other", name="/other", start_version=3, id="i"),
    ]
    changed = await call(
        client, "PATCH", "/shares/SALES", {"comment": "", "properties": {"a": "b"}, "updates": updates}
    )
    orders = {
        "shared_as": "public.orders",
        "name": "file:///orders",
        "data_object_type": "TABLE",
        "history_data_sharing_status": "ENABLED",
        "start_version": 0,
        "access_modes": ["url"],
    }
    assert changed["properties"] == {"a": "b"}
    assert "comment" not in changed
    assert changed["objects"][:2] == [{"shared_as": "public", "data_object_type": "SCHEMA"}, orders]
    assert changed["objects"][2]["id"] == "i"
    assert await call(client, "GET", "/shares/sales") == changed
    replaced = await call(
        client, "PATCH", "/shares/sales", {"updates": [update("UPDATE", "public.orders", name="/orders")]}
    )
    histories = [one.get("history_data_sharing_status") for one in replaced["objects"]]
    assert histories[1:] == ["ENABLED", "DISABLED"]
    emptied = await call(
        client,
        "PATCH",
        "/shares/sales",
        {"updates": [update("REMOVE", "public.orders"), update("REMOVE", "public", "SCHEMA")]},
    )
    assert emptied["objects"] == []
    assert (await call(client, "DELETE", "/shares/sales"))["name"] == "sales"
    await call(client, "GET", "/shares/sales", status=404)
    assert (await call(client, "GET", "/shares/file"))["objects"][1]["shared_as"] == "d.t"


async def test_tables_are_discovered_in_a_share_and_in_a_schema(client: TestClient[Any, Any]) -> None:
    tables = {"discover": "/w/{schema}/{table}", "max_tables": 7, "history_data_sharing_status": "ENABLED"}
    added = await call(client, "POST", "/shares", {"name": "s", "tables": tables}, 201)
    assert added["tables"] == tables | {
        "every_seconds": 300.0,
        "keep_seconds": 86400.0,
        "max_depth": 0,
        "max_calls": 20_000,
        "replace_dots": False,
    }
    of_schema = update("ADD", "d", "SCHEMA", tables={"discover": "/d/{table}"})
    changed = await call(client, "PATCH", "/shares/s", {"updates": [of_schema]})
    assert changed["objects"][0]["tables"]["discover"] == "/d/{table}"
    of_schema = update("UPDATE", "d", "SCHEMA", tables={"discover": "/e/{table}", "every_seconds": 5})
    changed = await call(client, "PATCH", "/shares/s", {"comment": "x", "updates": [of_schema]})
    assert changed["objects"][0]["tables"]["discover"] == "/e/{table}"
    assert changed["objects"][0]["tables"]["every_seconds"] == 5
    assert changed["tables"] == added["tables"]
    assert "tables" not in await call(client, "PATCH", "/shares/s", {"tables": None})
    for body, text in (
        ({"tables": {"discover": "/w/{table}"}}, "has no {schema}"),
        ({"tables": {"discover": "/w/{schema}/{table}", "max_depth": 9}}, "too large"),
        ({"tables": {"unity_catalog": {"url": "https://uc.example.com"}}}, ""),
        ({"updates": [update("ADD", "f.t", name="/t", tables=tables)]}, "in a share or a SCHEMA"),
        ({"updates": [update("ADD", "f", "SCHEMA", tables=tables)]}, "{table} alone"),
    ):
        assert text in (await call(client, "PATCH", "/shares/s", body, 400))["message"]
    listed = {"updates": [update("ADD", "d.t", name="/t")]}
    assert "are discovered" in (await call(client, "PATCH", "/shares/s", listed, 409))["message"]


async def test_the_history_says_where_tables_are_discovered(
    client: TestClient[Any, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await call(client, "POST", "/shares", {"name": "s", "tables": {"discover": "/v/{schema}/{table}"}}, 201)
    await call(client, "PATCH", "/shares/s", {"tables": {"discover": "/w/{schema}/{table}"}})
    of_schema = update("ADD", "d", "SCHEMA", tables={"discover": "/d/{table}"})
    await call(client, "PATCH", "/shares/s", {"tables": None, "updates": [of_schema]})
    main(["share", "history", "s", "-c", str(tmp_path / "share.yaml")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" s: ")[2] for line in lines] == [
        "discover /v/{schema}/{table}",
        "discover /w/{schema}/{table}",
        "discover nothing, 0 ADD SCHEMA d, 0 discover /d/{table}",
    ]


async def test_a_change_is_made_as_a_whole_or_not_at_all(client: TestClient[Any, Any]) -> None:
    await call(client, "POST", "/shares", {"name": "s"}, 201)
    for bad, text in (
        (update("ADD", "d.u", name="no location"), "is not a location"),
        (update("ADD", "d.u"), "name must be given"),
        (update("ADD", "d", name="/u"), "expected schema.name"),
        (update("ADD", "d.v", "VOLUME", name="/v"), "local files have no credentials"),
        (update("UPDATE", "d", "SCHEMA"), "nothing to update"),
        (
            update("ADD", "e", "SCHEMA", start_version=3, tables={"discover": "/e/{table}"}),
            "e: a SCHEMA has no start_version",
        ),
        (update("ADD", "d.v", "VOLUME", name="s3://b/v", access_modes=["url"]), "VOLUME has no access_modes"),
    ):
        body = {"updates": [update("ADD", "d.t", name="/t"), bad]}
        assert text in (await call(client, "PATCH", "/shares/s", body, 400))["message"]
    assert (await call(client, "GET", "/shares/s"))["objects"] == []
    missing = {"updates": [update("ADD", "d.t", name="/t"), update("REMOVE", "d.x")]}
    assert "no table 'x'" in (await call(client, "PATCH", "/shares/s", missing, 404))["message"]
    twice = {"updates": [update("ADD", "d.t", name="/t"), update("ADD", "D.T", name="/t")]}
    assert "has a table" in (await call(client, "PATCH", "/shares/s", twice, 409))["message"]
    await call(client, "PATCH", "/shares/s", {"update": []}, 400)


async def test_shares_of_the_configuration_are_read_only(client: TestClient[Any, Any]) -> None:
    for method, path, body in (
        ("POST", "/shares", {"name": "fILE"}),
        ("PATCH", "/shares/file", {"comment": "x"}),
        ("DELETE", "/shares/file", None),
    ):
        assert "configuration file" in (await call(client, method, path, body, 409))["message"]


def assigned(name: str, *grants: str, source: str = "database") -> dict[str, Any]:
    return {"principal": name, "privileges": ["SELECT"], "grants": [*grants], "source": source}


OF_THE_FILE = assigned("r", "*", source="configuration")


async def test_permissions_name_everyone_who_may_read_something_of_the_share(
    client: TestClient[Any, Any],
) -> None:
    await call(client, "POST", "/shares", {"name": "s"}, 201)
    table = {"action": "ADD", "data_object": {"shared_as": "d.t", "data_object_type": "TABLE", "name": "/t2"}}
    await call(client, "PATCH", "/shares/s", {"updates": [table]})
    places = {
        "all": {"share": "*"},
        "every": {"share": "*", "schema": "d"},
        "none": {"share": "*", "schema": "absent"},
        "part": {"share": "s", "schema": "d", "table": "t"},
        "other": {"share": "file"},
    }
    for name, place in places.items():
        await call(client, "POST", "/recipients", {"name": name}, 201)
        await call(client, "PUT", f"/recipients/{name}/grants", place)
    found = await call(client, "GET", "/shares/s/permissions")
    assert found["privilege_assignments"] == [
        OF_THE_FILE,
        assigned("all", "*"),
        assigned("every", "*.d"),
        assigned("part", "s.d.t"),
    ]


async def test_what_is_taken_back_names_the_grants_that_remain(client: TestClient[Any, Any]) -> None:
    await call(client, "POST", "/shares", {"name": "s"}, 201)
    await call(client, "POST", "/recipients", {"name": "a", "shares": ["s"]}, 201)
    for place in ({"share": "s", "schema": "p", "table": "ints"}, {"share": "*", "schema": "p"}):
        await call(client, "PUT", "/recipients/a/grants", place)
    taken = await call(client, "DELETE", "/recipients/a/shares/S")
    assert taken["stillReadableBy"] == ["*.p", "s.p.ints"]
    await call(client, "DELETE", "/recipients/a/shares/s?allparts=true", status=400)
    taken = await call(client, "DELETE", "/recipients/a/shares/s?allParts=true")
    assert taken["stillReadableBy"] == ["*.p"]
    assert [(grant["share"], grant["schema"]) for grant in taken["grants"]] == [("*", "p")]
    await call(client, "DELETE", "/recipients/a/shares/s?allParts=true", status=400)
    taken = await call(client, "POST", "/recipients/a/grants/revoke", {"share": "*", "schema": "p"})
    assert taken["stillReadableBy"] == []


async def test_permissions_are_grants_of_the_whole_share(client: TestClient[Any, Any]) -> None:
    await call(client, "POST", "/shares", {"name": "s"}, 201)
    for name in ("a", "b"):
        await call(client, "POST", "/recipients", {"name": name}, 201)
    changes = [{"principal": name, "add": ["SELECT"]} for name in ("a", "b")]
    granted = await call(client, "PATCH", "/shares/S/permissions", {"changes": changes})
    assignments = [OF_THE_FILE, *(assigned(name, "s") for name in ("a", "b"))]
    assert granted == {"privilege_assignments": assignments}
    body = {"changes": [{"principal": "a", "remove": ["SELECT"]}, {"principal": "x", "add": ["SELECT"]}]}
    await call(client, "PATCH", "/shares/s/permissions", body, 404)
    assert await call(client, "GET", "/shares/s/permissions") == granted
    body = {"changes": [{"principal": "a", "remove": ["SELECT"]}], "omit_permissions_list": True}
    assert await call(client, "PATCH", "/shares/s/permissions", body) == {"privilege_assignments": []}
    left = await call(client, "GET", "/shares/s/permissions")
    assert left == {"privilege_assignments": [OF_THE_FILE, assigned("b", "s")]}
    await call(client, "GET", "/shares/x/permissions", status=404)


async def test_permissions_of_one_share_are_never_those_of_every_share(client: TestClient[Any, Any]) -> None:
    await call(client, "POST", "/recipients", {"name": "a"}, 201)
    refused = await call(client, "POST", "/shares", {"name": "*"}, 400)
    assert "may not be '*'" in refused["message"]
    body = {"changes": [{"principal": "a", "add": ["SELECT"]}]}
    await call(client, "PATCH", "/shares/*/permissions", body, 404)
    assert (await call(client, "GET", "/recipients/a"))["shares"] == []


async def test_permissions_of_a_request_are_changed_together_or_not_at_all(
    client: TestClient[Any, Any],
) -> None:
    await call(client, "POST", "/shares", {"name": "s"}, 201)
    for name in ("a", "b"):
        await call(client, "POST", "/recipients", {"name": name}, 201)
    changes = [{"principal": "A", "add": ["SELECT"]}, {"principal": "b", "remove": ["SELECT"]}]
    refused = await call(client, "PATCH", "/shares/s/permissions", {"changes": changes}, 400)
    assert "not granted to 'b'" in refused["message"]
    assert await call(client, "GET", "/shares/s/permissions") == {"privilege_assignments": [OF_THE_FILE]}
    for name in ("a", "b"):
        assert [one["action"] for one in await history(client, name)] == ["createRecipient"]
    changes[1]["add"] = ["SELECT"]
    found = await call(client, "PATCH", "/shares/s/permissions", {"changes": changes})
    assert [one["principal"] for one in found["privilege_assignments"]] == ["r", "a"]
    assert (await history(client, "a"))[1]["detail"] == {"granted": "s"}
    assert (await history(client, "b"))[1]["detail"] == {"granted": "s", "revoked": "s"}


async def history(client: TestClient[Any, Any], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await call(client, "GET", f"/recipients/{name}"))["history"]
    return found


async def test_a_list_of_many_shares_takes_its_time_on_no_loop(tmp_path: Path) -> None:
    shares = "".join(f"- {{name: share-{number}}}\n" for number in range(4000))
    config = loads(f"version: 1\nshares:\n{shares}", directory=tmp_path, needs_readers=False)
    async with TestClient(TestServer(admin_app(config)), headers=HEADERS) as client:
        answer = asyncio.ensure_future(call(client, "GET", "/shares"))
        worst_seconds = 0.0
        # A collection of what earlier tests left would take longer.
        gc.disable()
        try:
            while not answer.done():
                # What this thread itself does, which other work of the machine does not lengthen.
                before = time.thread_time()
                await asyncio.sleep(0)
                worst_seconds = max(worst_seconds, time.thread_time() - before)
        finally:
            gc.enable()
        assert len((await answer)["shares"]) == 4000
    assert worst_seconds < 0.1


async def test_a_change_of_a_share_that_is_based_on_an_earlier_state_is_refused(
    client: TestClient[Any, Any],
) -> None:
    await call(client, "POST", "/shares", {"name": "sales"}, 201)
    seen = {"If-Match": (await client.get("/shares/sales")).headers["ETag"]}
    changed = await client.patch("/shares/sales", json={"comment": "first"}, headers=seen)
    assert changed.status == 200
    for method, body in (("PATCH", {"comment": "second"}), ("DELETE", None)):
        refused = await client.request(method, "/shares/sales", json=body, headers=seen)
        assert refused.status == 412
    assert (await call(client, "GET", "/shares/sales"))["comment"] == "first"
    # The changed records are those of recipients.
    grants = {"changes": [{"principal": "ana", "add": ["SELECT"]}]}
    await call(client, "POST", "/recipients", {"name": "ana"}, 201)
    refused = await client.patch("/shares/sales/permissions", json=grants, headers=seen)
    assert refused.status == 412
    assert (await call(client, "GET", "/recipients/ana"))["shares"] == []


async def test_an_update_of_a_table_keeps_what_it_does_not_give(client: TestClient[Any, Any]) -> None:
    await call(client, "POST", "/shares", {"name": "sales"}, 201)
    table = {"name": "file:///orders", "access_modes": ["url"], "history_data_sharing_status": "ENABLED"}
    added = [update("ADD", "public.orders", **table, id="t")]
    await call(client, "PATCH", "/shares/sales", {"updates": added})
    changes = [update("UPDATE", "public.orders", start_version=3)]
    changed = await call(client, "PATCH", "/shares/sales", {"updates": changes})
    orders = changed["objects"][1]
    assert orders == {**orders, **table, "id": "t", "start_version": 3}


def test_an_update_of_a_volume_keeps_what_it_does_not_give() -> None:
    stored = {"name": "v", "location": "/v", "comment": "papers"}
    share = share_edits.with_volume(StoredShare("s"), "d", stored)
    found = DataObject("d.v", data_object_type="VOLUME", id="i")
    (schema,) = share_handlers.updated(share, DataObjectUpdate("UPDATE", found)).schemas
    assert schema.options == {"volumes": [{**stored, "id": "i"}]}


def test_discovered_tables_have_every_key_that_the_database_stores() -> None:
    keys = {camel_case(field) for field in DiscoveredTables.__struct_fields__}
    assert keys - {"historyDataSharingStatus"} | {"historyShared"} == DISCOVERY_KEYS


async def test_an_answer_that_is_sent_back_changes_nothing(
    client: TestClient[Any, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {"discover": "/w/{schema}/{table}", "replaceDots": True, "historyShared": True}
    locations = [
        "/100%",
        "/a%20b",
        "/a b",
        "/a?b#c",
        "/\u00fc",
        "s3://bucket/a%20b?c",
        "https://account.blob.core.windows.net/container/a%3Fb",
    ]
    listed = [{"name": f"t{number}", "location": text} for number, text in enumerate(locations)]
    share = {"name": "s", "tables": tables, "schemas": [{"name": "d", "tables": listed}]}
    command = ["-c", str(tmp_path / "share.yaml")]
    (tmp_path / "shares.yaml").write_text(yaml.safe_dump({"shares": [share]}))
    assert main(["apply", str(tmp_path / "shares.yaml"), *command]) == 0

    def stored() -> tuple[Any, list[str]]:
        capsys.readouterr()
        assert main(["export", *command]) == 0
        (share,) = yaml.safe_load(capsys.readouterr().out)["shares"]
        (schema,) = share["schemas"]
        return share["tables"], [Location.parse(table["location"]).url for table in schema["tables"]]

    discovered, before = stored()
    found = await call(client, "GET", "/shares/s")
    changes = [{"action": "UPDATE", "data_object": one} for one in found["objects"][1:]]
    await call(client, "PATCH", "/shares/s", {"tables": found["tables"], "updates": changes})
    discovered_after, after = stored()
    assert after == before
    assert discovered_after == {**discovered_after, **discovered}
