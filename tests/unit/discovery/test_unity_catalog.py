"""Searches of a Unity Catalog: what they find and leave out, and what no catalog can make shared."""

import os
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
import yaml
from support.http_service import Response, json_response
from support.unity_catalog import Catalog, running_catalog

from gateway.config import Config, loads
from gateway.discovery import catalog_client, unity_catalog
from gateway.discovery.known_tables import KnownTables
from gateway.discovery.searches import search_once
from gateway.discovery.unity_catalog import search_catalog
from gateway.server.self_signed import self_signed_pair
from gateway.storage.registry import Storages

WITHIN = ["s3://lake/w"]


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with running_catalog() as running:
        for schema, name in (("hr", "people"), ("sales", "items"), ("sales", "orders")):
            running.add(schema, name, f"s3://lake/w/{schema}/{name}")
        yield running


def configured(catalog: Catalog, discovery: dict[str, Any] | None = None, **keys: Any) -> Config:
    section = {
        "url": catalog.url,
        "catalog": "main",
        "within": WITHIN,
        "allowPrivateAddresses": True,
        **keys,
    }
    shares = [{"name": "s", "tables": {"unityCatalog": section, **(discovery or {})}}]
    return loads(yaml.safe_dump({"version": 1, "shares": shares, "gateway": {"anonymous": True}}))


def searched(
    catalog: Catalog,
    known: KnownTables | None = None,
    discovery: dict[str, Any] | None = None,
    now_seconds: float = 0,
    **keys: Any,
) -> KnownTables:
    """What is known after one more search; a table that nothing is said about stays for a minute."""
    (source,) = configured(catalog, discovery, **keys).sources
    known = known or KnownTables()
    assert source.discovery.unity_catalog is not None
    result = search_catalog(source, source.discovery.unity_catalog, known)
    return known.after(result, now_seconds=now_seconds, keep_seconds=60)


def names_of(known: KnownTables) -> list[str]:
    return [f"{table.schema}.{table.name}" for table in known.distinct()[0]]


def reasons_of(known: KnownTables) -> dict[str, str]:
    return {one.name: one.reason for one in known.last.refused}


def test_the_tables_of_all_schemas_are_listed_page_by_page(catalog: Catalog) -> None:
    for number in range(120):
        catalog.add("many", f"t{number:03}", f"s3://lake/w/many/{number}")
    known = searched(catalog)
    assert len(known.seen) == 123
    assert known.last.problem == ""
    pages = [query for path, query in catalog.asked if path == "tables" and query["schema_name"] == "many"]
    assert [query.get("page_token") for query in pages] == [None, "t049", "t099"]
    assert known.last.calls == 1 + 2 + 3
    # One entry to a page, and an empty page at the end of each list.
    catalog.page = 1
    assert searched(catalog).seen.keys() == known.seen.keys()
    assert {table.location.url for table in known.seen if table.schema == "hr"} == {"s3://lake/w/hr/people"}


def test_schemas_and_names_are_those_of_the_configuration(catalog: Catalog) -> None:
    catalog.add("information_schema", "tables", None, table_type="VIEW")
    assert names_of(searched(catalog)) == ["hr.people", "sales.items", "sales.orders"]
    assert searched(catalog).last.refused == ()
    assert names_of(searched(catalog, schemas=["hr"])) == ["hr.people"]
    names = names_of(searched(catalog, names="{catalog}-{schema}.of {table}"))
    assert names == ["main-hr.of people", "main-sales.of items", "main-sales.of orders"]
    known = searched(catalog, schemas=["hr", "gone"])
    assert names_of(known) == ["hr.people"]
    assert known.last.problem == "the catalog has no schema 'gone'"


def test_a_name_of_the_catalog_is_not_read_as_a_form_of_names(catalog: Catalog) -> None:
    catalog.add("hr", "{schema}", "s3://lake/w/odd")
    catalog.add("hr", "a.b", "s3://lake/w/dots")
    assert "hr.{schema}" in names_of(searched(catalog))
    assert "hr.a.b" in names_of(searched(catalog))
    assert "hr.a_b" in names_of(searched(catalog, discovery={"replaceDots": True}))


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("s3://other/w/t", "not in `within`"),
        ("s3://lake/w2/t", "not in `within`"),
        ("s3://lake/", "not in `within`"),
        ("s3://lake/w/../secret", "in no storage"),
        ("s3://lake/w//t", "in no storage"),
        ("gs://lake/w/t", "not in `within`"),
        ("file:///w/t", "not in `within`"),
        ("/etc", "not in `within`"),
        ("abfss://lake@acct.dfs.core.windows.net/w/t", "not in `within`"),
        ("abfss://lake@acct.dfs.core.evil.example/w/t", "not in `within`"),
        ("http://169.254.169.254/latest", "in no storage"),
        ("dbfs:/w/t", "in no storage"),
        ("S3://lake/w/./t", "in no storage"),
        ("s3://lake@other/w/t", "in no storage"),
        ("s3://LAKE/w/t", "not in `within`"),
        ("s3://lake-s3alias/w/t", "not in `within`"),
        ("s3://lake/W/t", "not in `within`"),
        ("s3://lake/w%2F..%2Fsecret", "not in `within`"),
        ("file:///w/%2e%2e/etc", "in no storage"),
        ("https://acct.blob.core.windows.net/lake/w/%2e%2e/x", "in no storage"),
        ("https://lake.s3.amazonaws.com/w/t", "in no storage"),
        ("", "has no location"),
        (None, "has no location"),
    ],
)
def test_no_location_leads_out_of_the_allowed_ones(
    catalog: Catalog, location: str | None, reason: str
) -> None:
    catalog.add("hr", "hostile", location)
    known = searched(catalog)
    assert names_of(known) == ["hr.people", "sales.items", "sales.orders"]
    assert reason in reasons_of(known)["main.hr.hostile"]


def test_a_local_directory_that_is_a_link_out_of_the_allowed_ones_is_left_out(
    catalog: Catalog, tmp_path: Path
) -> None:
    for name in ("in/real", "secret"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "in/link").symlink_to(tmp_path / "secret")
    (tmp_path / "in/inner").symlink_to(tmp_path / "in/real")
    for name in ("real", "link", "inner"):
        catalog.add("local", name, f"file://{tmp_path}/in/{name}")
    known = searched(catalog, within=[f"{tmp_path}/in"])
    assert names_of(known) == ["local.inner", "local.real"]
    assert "a link out of" in reasons_of(known)["main.local.link"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"table_type": "VIEW"}, "it is VIEW"),
        ({"table_type": "METRIC_VIEW"}, "it is METRIC_VIEW"),
        ({"table_type": "FOREIGN"}, "it is FOREIGN"),
        ({"table_type": "<script>\n"}, "of an unknown type"),
        ({"table_type": None}, "of an unknown type"),
        ({"data_source_format": "ICEBERG"}, "no Delta table"),
        ({"data_source_format": None}, "no Delta table"),
        ({"row_filter": {"function_name": "f", "input_column_names": ["a"]}}, "row filter"),
        ({"row_filter": {}}, "row filter"),
        ({"columns": [{"name": "a"}, {"name": "b", "mask": {"function_name": "f"}}]}, "column mask"),
        ({"securable_kind_manifest": {"capabilities": ["HAS_SELECT"]}}, "no other engine"),
        ({"securable_kind_manifest": {}}, "no other engine"),
    ],
)
def test_what_files_alone_do_not_protect_is_left_out_with_the_reason(
    catalog: Catalog, fields: dict[str, Any], reason: str
) -> None:
    catalog.add("hr", "protected", "s3://lake/w/hr/protected", **fields)
    known = searched(catalog)
    assert names_of(known) == ["hr.people", "sales.items", "sales.orders"]
    assert reason in reasons_of(known)["main.hr.protected"]


def test_a_table_that_other_engines_may_read_is_shared(catalog: Catalog) -> None:
    manifest = {"capabilities": ["HAS_DIRECT_EXTERNAL_ENGINE_READ_SUPPORT", "OTHER"]}
    catalog.add("hr", "managed", "s3a://lake/w/m", table_type="MANAGED", securable_kind_manifest=manifest)
    assert "hr.managed" in names_of(searched(catalog))
    assert all(
        query["include_manifest_capabilities"] == "true" for path, query in catalog.asked if path == "tables"
    )


@pytest.mark.parametrize("name", ["a/b", "a\nb", "right\u202eleft", "x" * 256, ".."])
def test_odd_names_are_refused_one_by_one(catalog: Catalog, name: str) -> None:
    catalog.add("hr", name, "s3://lake/w/odd")
    known = searched(catalog)
    assert names_of(known) == ["hr.people", "sales.items", "sales.orders"]
    assert len(known.last.refused) == 1


@pytest.mark.parametrize("entry", [{"name": "\ud800"}, {"name": 1}, {}, "t", {"name": "t", "columns": [1]}])
def test_a_page_without_the_documented_form_ends_the_listing_of_its_schema_alone(
    catalog: Catalog, entry: Any
) -> None:
    known = searched(catalog)
    catalog.failing["tables", "hr"] = json_response({"tables": [entry]})
    known = searched(catalog, known)
    assert names_of(known) == ["hr.people", "sales.items", "sales.orders"]
    assert "documented form" in known.last.problem
    assert known.last.is_cut
    assert {table.schema for table in known.last.unknown_tables} == {"hr"}


def test_none_of_two_tables_gets_a_common_name_or_location(catalog: Catalog) -> None:
    catalog.add("hr", "PEOPLE", "s3://lake/w/hr/others")
    catalog.add("sales", "again", "s3://lake/w/sales/orders")
    known = searched(catalog)
    assert names_of(known) == ["sales.items"]
    reasons = [one.reason for one in known.distinct()[1]]
    assert (
        sorted(reasons)
        == ["another table has its location"] * 2 + ["another table has its name without case"] * 2
    )


def test_a_table_that_the_catalog_drops_or_moves_is_withdrawn_at_once(catalog: Catalog) -> None:
    known = searched(catalog)
    catalog.drop("sales", "orders")
    catalog.add("hr", "people", "s3://elsewhere/people")
    known = searched(catalog, known)
    assert names_of(known) == ["sales.items"]
    # Of a whole schema, a second search has to agree.
    del catalog.tables["main", "sales"]
    known = searched(catalog, known)
    assert names_of(known) == ["sales.items"]
    assert names_of(searched(catalog, known)) == []


@pytest.mark.parametrize(
    ("operation", "answer", "problem"),
    [
        (("schemas", ""), Response(503), "answers 503"),
        (("schemas", ""), Response(302, headers={"Location": "http://127.0.0.1:1/x"}), "answers 302"),
        (("schemas", ""), Response(200, b"<html>"), "documented form"),
        (("schemas", ""), Response(200, b"[" * 100_000), "documented form"),
        (("schemas", ""), json_response({"schemas": [{"name": 1}]}), "documented form"),
        (("schemas", ""), json_response({"tables": []}), "documented form"),
        (("schemas", ""), json_response({"error_code": "PERMISSION_DENIED"}, 403), "403 (PERMISSION_DENIED)"),
        (("schemas", ""), json_response({"error_code": "a secret\n"}, 500), "answers 500"),
        (("schemas", ""), Response(200, b"{}", {"Content-Encoding": "gzip"}), "compressed"),
        (("schemas", ""), json_response({"schemas": [], "next_page_token": "x"}), "names a page twice"),
        (("schemas", ""), json_response({}), "lists no schema"),
        (("schemas", ""), json_response({"schemas": []}), "lists no schema"),
        (("schemas", ""), json_response({"schemas": None}), "documented form"),
        (("schemas", ""), json_response({"error_code": "PERMISSION_DENIED"}), "200 (PERMISSION_DENIED)"),
    ],
)
def test_a_catalog_that_fails_keeps_what_was_known_for_a_time(
    catalog: Catalog, operation: tuple[str, str], answer: Response, problem: str
) -> None:
    known = searched(catalog)
    catalog.failing[operation] = answer
    catalog.drop("sales", "orders")
    known = searched(catalog, known, now_seconds=60)
    assert names_of(known) == ["hr.people", "sales.items", "sales.orders"]
    assert problem in known.last.problem
    assert "secret" not in known.last.problem
    assert names_of(searched(catalog, known, now_seconds=61)) == []


def test_a_schema_that_cannot_be_listed_keeps_its_tables_alone(catalog: Catalog) -> None:
    known = searched(catalog)
    catalog.failing["tables", "hr"] = json_response({"error_code": "PERMISSION_DENIED"}, 403)
    catalog.drop("hr", "people")
    catalog.drop("sales", "orders")
    catalog.add("sales", "new", "s3://lake/w/new")
    known = searched(catalog, known)
    assert names_of(known) == ["hr.people", "sales.items", "sales.new"]
    assert "403" in known.last.problem
    assert not known.last.is_cut, "lists are shown without a schema that the gateway has no right to list"
    # A schema that is gone keeps nothing, even if another one fails.
    del catalog.tables["main", "hr"]
    catalog.failing = {("tables", "sales"): Response(500)}
    known = searched(catalog, searched(catalog, known))
    assert known.last.is_cut
    assert names_of(known) == ["sales.items", "sales.new"]


def test_a_catalog_that_is_down_is_not_asked_for_each_schema(catalog: Catalog) -> None:
    for number in range(40):
        catalog.add(f"a{number:02}", "t", f"s3://lake/w/{number}")
        catalog.failing["tables", f"a{number:02}"] = Response(500)
    known = searched(catalog)
    assert known.last.calls == 1 + unity_catalog.CONCURRENT_SCHEMAS
    assert known.last.problem == "the catalog answers 500"


def test_limits_of_tables_and_requests_end_a_search(catalog: Catalog) -> None:
    known = searched(catalog)
    for number in range(60):
        catalog.add("aa", f"t{number}", f"s3://lake/w/aa/{number}")
    some = searched(catalog, known, {"maxTables": 5})
    assert len(some.seen) == 5
    assert {"hr.people", "sales.items", "sales.orders"} < {*names_of(some)}, "known tables stay"
    assert some.last.problem == "maxTables: 63 tables are there"
    few = searched(catalog, known, {"maxCalls": 2})
    assert few.last.calls == 2
    assert "maxCalls" in few.last.problem
    assert {"hr.people", "sales.items", "sales.orders"} < {*names_of(few)}


def test_an_answer_is_read_up_to_a_limit(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_client, "MAX_ANSWER_BYTES", 15_000)
    # A page of 50 tables is too long, and one of 8 tables is not.
    for number in range(40):
        catalog.add("wide", f"t{number:02}", f"s3://lake/w/wide/{number}", comment="x" * 1000)
    known = searched(catalog)
    assert known.last.problem == ""
    assert sum(table.schema == "wide" for table in known.seen) == 40
    asked = [query["max_results"] for path, query in catalog.asked if query.get("schema_name") == "wide"]
    assert asked == ["50"] + ["8"] * 6
    # One table whose entry is too long ends the listing of its schema alone.
    catalog.add("hr", "wider", "s3://lake/w/wider", comment="x" * 20_000)
    known = searched(catalog, known)
    assert "more than 15000 bytes" in known.last.problem
    assert not known.last.is_cut
    assert len(known.seen) == 43


def test_refusals_are_bounded(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unity_catalog, "MAX_REFUSALS", 3)
    for number in range(10):
        catalog.add("hr", f"v{number}", None, table_type="VIEW")
    assert len(searched(catalog).last.refused) == 3


def test_a_search_ends_by_a_time_limit(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    known = searched(catalog)
    monkeypatch.setattr(unity_catalog, "SEARCH_SECONDS", 0.0)
    late = searched(catalog, known)
    assert "the search ends after 0 s" in late.last.problem
    assert names_of(late) == names_of(known)


def test_the_token_is_sent_to_the_catalog_alone_and_is_in_no_message(tmp_path: Path) -> None:
    with running_catalog(token="sec-ret") as catalog, running_catalog() as other:
        catalog.add("hr", "people", "s3://lake/w/t")
        assert names_of(searched(catalog, token="sec-ret")) == ["hr.people"]
        refused = searched(catalog, token="wrong-one")
        assert refused.last.problem == "the catalog answers 401 (UNAUTHENTICATED)"
        assert names_of(refused) == []
        file = tmp_path / "token"
        file.write_text("sec-ret\n")
        assert names_of(searched(catalog, tokenFile=str(file))) == ["hr.people"]
        assert "sec-ret" not in repr([*configured(catalog, tokenFile=str(file)).sources])
        catalog.failing["schemas", ""] = Response(307, headers={"Location": f"{other.url}/api"})
        assert "307" in searched(catalog, token="sec-ret").last.problem
        assert other.asked == []


def test_a_name_with_a_private_address_is_not_asked(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "socket.getaddrinfo", lambda host, port, *_, **__: [(2, 1, 6, "", ("127.0.0.1", port))]
    )
    (source,) = configured(catalog, url="https://catalog.example.com", allowPrivateAddresses=False).sources
    assert source.discovery.unity_catalog is not None
    result = search_catalog(source, source.discovery.unity_catalog, KnownTables())
    assert "private address" in result.problem


@pytest.mark.processes
def test_only_a_trusted_certificate_is_that_of_a_catalog(tmp_path: Path) -> None:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(self_signed_pair("127.0.0.1"))
    with running_catalog(pair, token="sec-ret") as catalog:
        (tmp_path / "w").mkdir()
        catalog.add("hr", "people", f"{tmp_path}/w/people")
        config = configured(catalog, token="sec-ret", within=[f"{tmp_path}/w"])
        file = tmp_path / "share.yaml"
        file.write_text(config.text)

        def checked(**variables: str) -> str:
            # A process reads the trusted authorities once.
            command = [sys.executable, "-P", "-m", "gateway", "check", "-c", str(file)]
            run = subprocess.run(
                command, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=60
            )
            return run.stdout

        untrusted = checked()
        assert "the search is not complete: the catalog cannot be reached" in untrusted
        assert "certificate" in untrusted
        assert catalog.asked == [], "no token was sent"
        trusted = checked(SSL_CERT_FILE=str(pair))
        assert "s: 1 tables found in the catalog 'main'" in trusted
        assert "not complete" not in trusted
        assert "sec-ret" not in untrusted + trusted


def test_a_search_of_commands_has_both_kinds(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "d/t/_delta_log").mkdir(parents=True)
    settings = yaml.safe_load(configured(catalog).text)
    settings["shares"].append({"name": "o", "tables": {"discover": f"{tmp_path}/{{schema}}/{{table}}"}})
    config = loads(yaml.safe_dump(settings))
    storages = Storages(config, url_key=b"", environment={})
    try:
        found = search_once(config, storages)
    finally:
        storages.close()
    listed = [names_of(known) for known in found.values()]
    assert listed == [["hr.people", "sales.items", "sales.orders"], ["d.t"]]


FILTER = {"row_filter": {"function_name": "f", "input_column_names": ["a"]}}


def page_of(catalog: Catalog, *entries: dict[str, Any], token: str | None = None) -> Response:
    return json_response({"tables": [*entries], "next_page_token": token})


@pytest.mark.parametrize("name", ["people", "renamed"])
@pytest.mark.parametrize("answer", [Response(500), Response(403)])
def test_a_table_that_gets_a_row_filter_is_withdrawn_though_its_schema_cannot_be_listed_to_the_end(
    catalog: Catalog, name: str, answer: Response
) -> None:
    known = searched(catalog)
    entry = catalog.entry("hr", name, "s3://lake/w/hr/people", **FILTER)
    catalog.pages = {("hr", ""): page_of(catalog, entry, token="x"), ("hr", "x"): answer}
    known = searched(catalog, known)
    assert names_of(known) == ["sales.items", "sales.orders"]
    assert "row filter" in reasons_of(known)[f"main.hr.{name}"]


def test_a_table_that_moves_is_shared_though_its_schema_cannot_be_listed_to_the_end(
    catalog: Catalog,
) -> None:
    known = searched(catalog)
    moved = catalog.entry("hr", "people", "s3://lake/w/hr/moved")
    catalog.pages = {("hr", ""): page_of(catalog, moved, token="x"), ("hr", "x"): Response(500)}
    known = searched(catalog, known)
    found = {table.name: table.location.url for table in known.distinct()[0] if table.schema == "hr"}
    assert found == {"people": "s3://lake/w/hr/moved"}


@pytest.mark.parametrize("kind", ["EXTERNAL", "STREAMING_TABLE"])
def test_a_protected_table_is_shared_by_no_other_entry_at_its_location(catalog: Catalog, kind: str) -> None:
    catalog.add("zz", "filtered", "s3://lake/w/hr/people", table_type=kind, **FILTER)
    catalog.add("sales", "csv", "s3://lake/w/sales/items", data_source_format="CSV")
    known = searched(catalog)
    assert names_of(known) == ["sales.items", "sales.orders"]
    assert reasons_of(known)["main.hr.people"] == "a table at its location cannot be shared"


def test_too_many_protected_tables_end_the_search(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    known = searched(catalog)
    monkeypatch.setattr(unity_catalog, "MAX_PROTECTED", 2)
    for number in range(3):
        catalog.add("aa", f"t{number}", f"s3://lake/w/aa/{number}", **FILTER)
    many = searched(catalog, known)
    assert "more than 2 tables" in many.last.problem
    assert not many.last.is_cut
    assert names_of(many) == names_of(known)


def test_a_repeated_entry_takes_the_place_of_no_other_table(catalog: Catalog) -> None:
    known = searched(catalog)
    entry = catalog.entry("hr", "people", "s3://lake/w/hr/people")
    catalog.pages["hr", ""] = page_of(catalog, *[entry] * 20)
    again = searched(catalog, known, {"maxTables": 10})
    assert names_of(again) == names_of(known)
    assert again.last.problem == ""


def test_pages_that_name_each_other_end_the_listing_of_their_schema(catalog: Catalog) -> None:
    entry = catalog.entry("hr", "people", "s3://lake/w/hr/people")
    for token, after in (("", "a"), ("a", "b"), ("b", "a")):
        catalog.pages["hr", token] = page_of(catalog, entry, token=after)
    known = searched(catalog)
    assert "names a page twice" in known.last.problem
    assert known.last.is_cut
    assert known.last.calls == 1 + 3 + 1
    assert names_of(known) == ["hr.people", "sales.items", "sales.orders"]


def test_names_that_look_the_same_are_one_name(catalog: Catalog) -> None:
    spellings = [unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD")]
    for number, name in enumerate(spellings):
        catalog.add("hr", name, f"s3://lake/w/{number}")
    known = searched(catalog)
    assert names_of(known) == ["hr.people", "sales.items", "sales.orders"]
    assert [one.reason for one in known.distinct()[1]] == ["another table has its name without case"] * 2


def test_long_texts_of_a_catalog_are_not_kept(catalog: Catalog) -> None:
    catalog.add("hr", "x" * 100_000, "s3://lake/w/t")
    catalog.add("hr", "far", "s3://lake/w/" + "x" * 100_000)
    catalog.add("y" * 100_000, "t", "s3://lake/w/t")
    known = searched(catalog)
    assert names_of(known) == ["hr.people", "sales.items", "sales.orders"]
    assert len(known.last.refused) == 3
    assert all(len(one.name) <= unity_catalog.MAX_SHOWN_LENGTH + 3 for one in known.last.refused)
    assert known.last.problem == ""


def test_as_many_schemas_are_kept_as_requests_are_allowed(catalog: Catalog) -> None:
    known = searched(catalog)
    schemas = [{"name": f"a{number}"} for number in range(9)]
    catalog.failing["schemas", ""] = json_response({"schemas": schemas})
    for number in range(9):
        catalog.pages[f"a{number}", ""] = page_of(catalog)
    few = searched(catalog, known, {"maxCalls": 4})
    assert (few.last.calls, few.last.limit) == (4, "calls")
    assert names_of(few) == names_of(known)
    known = searched(catalog, known)
    assert len(known.missing) == 3
    assert names_of(searched(catalog, known)) == []


@pytest.mark.parametrize(
    "answer",
    [
        b"a secret line\r\nand another\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad secret\0line: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsecret\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsecret",
    ],
)
def test_an_answer_that_is_no_http_is_in_no_message(catalog: Catalog, answer: bytes) -> None:
    (source,) = configured(catalog).sources
    settings = source.discovery.unity_catalog
    assert settings is not None
    with create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with closing(server.accept()[0]) as connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        settings = replace(settings, url=f"http://127.0.0.1:{server.getsockname()[1]}")
        result = search_catalog(source, settings, KnownTables())
        thread.join()
    assert result.problem == "the catalog cannot be reached: its answer is not valid HTTP"


def test_what_a_netrc_has_for_the_catalog_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "netrc"
    file.write_text("default login someone password secret\n")
    monkeypatch.setenv("NETRC", str(file))
    with running_catalog(token="the-token") as catalog:
        catalog.add("hr", "people", "s3://lake/w/t")
        assert names_of(searched(catalog, token="the-token")) == ["hr.people"]
        assert "401" in searched(catalog).last.problem
        sent = [
            {name.lower(): text for name, text in one.headers.items()} for one in catalog.service.requests
        ]
        assert "authorization" not in sent[-1]


def test_another_token_is_requested_when_the_catalog_has_forgotten_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As soon as a moment has passed since the last one.
    monkeypatch.setattr("gateway.storage.refreshing_credentials.REFUSED_SECONDS", 0)
    catalog.clients["forgotten"] = "word"
    client = {"tokenEndpoint": f"{catalog.url}/token", "clientId": "forgotten", "clientSecret": "word"}
    assert names_of(searched(catalog, oauth=client)) == ["hr.people", "sales.items", "sales.orders"]
    catalog.token = "another"
    assert "401" in searched(catalog, oauth=client).last.problem
    assert names_of(searched(catalog, oauth=client)) == ["hr.people", "sales.items", "sales.orders"]


def test_requests_go_through_the_proxy_of_the_environment(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_catalog() as proxy:
        address = proxy.url.removeprefix("http://")
        monkeypatch.setenv("no_proxy", "")
        for variable, url in (
            ("http_proxy", f"http://someone:word@{address}"),
            ("http_proxy", f"someone:word@{address}"),
            ("http_proxy", f"HTTP://someone:word@{address}"),
            ("all_proxy", f"http://someone:word@{address}"),
        ):
            monkeypatch.delenv("http_proxy", raising=False)
            monkeypatch.setenv(variable, url)
            searched(catalog, url="http://localhost:1")
            sent = {name.lower(): text for name, text in proxy.service.requests[-1].headers.items()}
            assert sent["host"] == "localhost:1"
            assert sent["proxy-authorization"] == "Basic c29tZW9uZTp3b3Jk"
            proxy.service.requests.clear()
        for listed in ("127.0.0.1", catalog.url.removeprefix("http://")):
            monkeypatch.setenv("no_proxy", listed)
            assert names_of(searched(catalog)) == ["hr.people", "sales.items", "sales.orders"]
        assert not proxy.service.requests


def test_no_request_passes_by_a_proxy_of_another_kind(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    assert searched(catalog).last.problem.endswith("the environment names for it is none of HTTP")
    assert not catalog.service.requests
    # Of all programs, it is left to those that know it.
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1")
    assert names_of(searched(catalog)) == ["hr.people", "sales.items", "sales.orders"]


def test_the_password_of_a_proxy_is_in_no_message(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", "http://someone:secret@127.0.0.1:x")
    known = searched(catalog)
    assert known.last.problem.endswith("its URL, or the URL of the proxy, is not valid")
