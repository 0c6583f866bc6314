"""`delta-gateway share`, `table`, `export` and `apply`, on a database of recipients and shares."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.__main__ import main
from gateway.catalog.grants import Grant
from gateway.catalog.stored_shares import StoredShare, StoredTable
from gateway.cli import apply
from gateway.cli.export import exported
from gateway.config import load
from gateway.governance import share_edits
from gateway.governance.audited_database import open_database, open_share_database
from gateway.governance.credentials import NewToken
from gateway.governance.grant_operations import grant_parts, revoke_parts, set_properties
from gateway.times import epoch_ms

OF_FILE = [{"name": "file", "schemas": [{"name": "d", "tables": [{"name": "t", "location": "/t"}]}]}]
HASH = "a" * 64


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "share.yaml"
    recipient = {"name": "r", "tokens": [{"sha256": HASH}], "shares": ["*"]}
    gateway = {"recipients": [recipient], "audit": {"file": "audit.jsonl"}}
    file.write_text(yaml.safe_dump({"version": 1, "shares": OF_FILE, "gateway": gateway}))
    return file


def run(config: Path, *arguments: str) -> int:
    return main([*arguments, "-c", str(config)])


def printed(config: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert run(config, *arguments) == 0
    return capsys.readouterr().out


def refused(config: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert run(config, *arguments) == 1
    found = capsys.readouterr()
    assert found.out == ""
    return found.err


def test_shares_and_tables_are_managed_while_servers_run(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "configuration" in printed(config, capsys, "share", "list")
    assert not (config.parent / "recipients.db").exists()
    assert run(config, "share", "add", "sales", "--comment", "for all", "--property", "a=b=c") == 0
    assert run(config, "table", "add", "sales.public.orders", "/orders", "--history-shared") == 0
    assert run(config, "table", "add", "sales.public.old", "/old", "--start-version", "3", "--id", "i") == 0
    shown = printed(config, capsys, "share", "show", "SALES")
    assert "comment: for all" in shown
    assert "property a: b=c" in shown
    assert "file:///orders" in shown
    assert (
        run(config, "share", "alter", "sales", "--comment", "", "--display-name", "S", "--property", "a=")
        == 0
    )
    shown = printed(config, capsys, "share", "show", "sales")
    assert "comment" not in shown
    assert "property" not in shown
    assert "display name: S" in shown
    listed = printed(config, capsys, "share", "list")
    assert "database" in listed
    assert "configuration" in listed
    assert run(config, "table", "remove", "sales.public.orders") == 0
    assert "orders" not in printed(config, capsys, "share", "show", "sales")
    assert run(config, "share", "remove", "sales") == 0
    history = printed(config, capsys, "share", "history", "sales")
    actions = [line.split()[2] for line in history.splitlines()]
    assert actions == ["createShare", "addTable", "addTable", "updateShare", "removeTable", "deleteShare"]
    records = [json.loads(line) for line in (config.parent / "audit.jsonl").read_text().splitlines()]
    assert [record["actionName"] for record in records] == actions
    assert {record["requestParams"]["share"] for record in records} == {"sales"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("share", "add", "FILE"), "in the configuration file"),
        (("share", "remove", "file"), "in the configuration file"),
        (("share", "add", "s"), "exists already"),
        (("share", "alter", "s"), "give --comment"),
        (("share", "alter", "s", "--property", "x"), "expected NAME=TEXT"),
        (("share", "show", "x"), "there is no share 'x'"),
        (("share", "remove", "x"), "no share 'x'"),
        (("table", "add", "file.d.u", "/u"), "in the configuration file"),
        (("table", "add", "s.d", "/u"), "is named share.schema.table"),
        (("table", "add", "s.d.t", "u"), "is not a location"),
        (("table", "add", "s.d.t", "/t", "--access-mode", "dir"), "historyShared: true"),
        (("table", "remove", "s.d.t"), "no schema 'd'"),
        (("table", "add", "s", "/w/{table}", "--discover"), "has no {schema}"),
        (("table", "add", "s.d", "/w/{schema}/{table}", "--discover"), "{table} alone"),
        (("table", "add", "x.d", "/w/{table}", "--discover"), "no share 'x'"),
        (("table", "add", "file", "/w/{schema}/{table}", "--discover"), "in the configuration file"),
        (("table", "add", "s", "/w/{schema}/{table}", "--discover", "--id", "i"), "only --history-shared"),
        (("table", "add", "s", "/w/{schema}/{table}", "--discover", "--max-tables", "0"), "too small"),
        (("table", "add", "s.d.t", "/t", "--max-tables", "3"), "give --discover"),
        (("table", "remove", "s", "--discover"), "no tables of 's' are discovered"),
        (("apply", "missing.yaml"), "No such file"),
    ],
)
def test_what_cannot_be_done_is_said(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], reason: str
) -> None:
    assert run(config, "share", "add", "s") == 0
    assert reason in refused(config, capsys, *arguments)


def test_stored_names_that_not_all_clients_can_address_are_warned_of(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in (("share", "add", "a.b"), ("table", "add", "a.b.c d.t", "/t")):
        assert run(config, *line) == 0
    warned = capsys.readouterr().err
    assert "delta-gateway share: warning: 'a.b' contains a dot" in warned
    assert "delta-gateway table: warning: 'c d' contains a blank" in warned


def test_tables_of_a_stored_share_are_discovered(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = tmp_path / "warehouse"
    (warehouse / "d/t/_delta_log").mkdir(parents=True)
    run(config, "share", "add", "my.lake")
    template = f"{warehouse}/{{schema}}/{{table}}"
    of_share = ("--discover", "--every-seconds", "2.5", "--max-depth", "1", "--history-shared")
    assert run(config, "table", "add", "my.lake", template, *of_share) == 0
    assert run(config, "table", "add", "my.lake.one", f"{warehouse}/d/{{table}}", "--discover") == 0
    shown = printed(config, capsys, "share", "show", "my.lake")
    assert f"my.lake: tables are discovered below file://{warehouse}" in shown
    assert "my.lake.one: tables are discovered" in shown
    history = printed(config, capsys, "share", "history", "my.lake")
    assert [line.split()[2] for line in history.splitlines()] == [
        "createShare",
        "addDiscovery",
        "addDiscovery",
    ]
    capsys.readouterr()
    main(["check", "-c", str(config)])
    checked = capsys.readouterr().out
    assert "my.lake: 1 tables found" in checked
    assert "my.lake.one.t" in checked
    exported = printed(config, capsys, "export")
    (share,) = yaml.safe_load(exported)["shares"]
    assert share["tables"] == {
        "discover": template,
        "everySeconds": 2.5,
        "maxDepth": 1,
        "historyShared": True,
    }
    assert share["schemas"] == [{"name": "one", "tables": {"discover": f"{warehouse}/d/{{table}}"}}]
    file = tmp_path / "exported.yaml"
    file.write_text(exported)
    assert "Nothing differs" in printed(config, capsys, "apply", str(file))
    for name in ("my.lake", "my.lake.one"):
        assert run(config, "table", "remove", name, "--discover") == 0
    assert "discovered" not in printed(config, capsys, "share", "show", "my.lake")
    shown = printed(config, capsys, "apply", str(file))
    assert f"+ tables of the share that are discovered in {template}" in shown
    assert f"+ tables of schema one that are discovered in {warehouse}/d/{{table}}" in shown
    assert "its description" not in shown
    assert f"+ tables of the share that are discovered in {template}" in printed(
        config, capsys, "share", "history", "my.lake"
    )
    assert printed(config, capsys, "export") == exported
    # Without --remove, what is discovered stays.
    bare = write(tmp_path / "bare.yaml", {"name": "my.lake", "comment": "x", "schemas": [{"name": "one"}]})
    shown = printed(config, capsys, "apply", bare)
    assert "its description" in shown
    assert "schema" not in shown
    assert run(config, "share", "alter", "my.lake", "--comment", "") == 0
    assert printed(config, capsys, "export") == exported
    tables = [table("t", "/t")]
    listing = write(tmp_path / "l.yaml", {"name": "my.lake", "schemas": [{"name": "one", "tables": tables}]})
    assert "listed tables and discovered ones" in refused(config, capsys, "apply", listing)
    # Listed tables are replaced by discovered ones only by --remove.
    run(config, "table", "remove", "my.lake.one", "--discover")
    run(config, "table", "add", "my.lake.one.t", "/t")
    assert "give --remove" in refused(config, capsys, "apply", str(file))
    assert run(config, "apply", str(file), "--remove") == 0
    assert printed(config, capsys, "export") == exported
    shown = printed(config, capsys, "apply", bare, "--remove", "--dry-run")
    assert f"- tables of the share that are discovered in {template}" in shown
    assert "- tables of schema one" in shown


def test_rows_that_are_invalid_are_named_and_keep_no_server_from_starting(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sales", "misnamed"):
        run(config, "share", "add", name)
    run(config, "recipient", "add", "bob", "--share", "sales")
    with closing(sqlite3.connect(config.parent / "recipients.db")) as database, database:
        database.execute("UPDATE recipients SET properties = '{'")
        database.execute("UPDATE shares SET name = 'Sales' WHERE key = 'misnamed'")
    capsys.readouterr()
    assert run(config, "check") == 1
    checked = capsys.readouterr().out
    assert "recipient 'bob' of the database is refused: its properties are invalid\n" in checked
    assert "The server would not start" not in checked
    listed = printed(config, capsys, "share", "list")
    assert "misnamed is stored and not shared: its name in the database is not that of this key" in listed
    assert run(config, "share", "remove", "misnamed") == 0
    assert "is stored and not shared" not in printed(config, capsys, "share", "list")
    assert "from the database" in printed(config, capsys, "share", "show", "sales")


def test_a_stored_share_whose_name_comes_into_the_configuration_can_only_be_removed(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = config.read_text()
    run(config, "share", "add", "sales", "--comment", "stored")
    config.write_text(before.replace("name: file", "name: Sales"))
    listed = printed(config, capsys, "share", "list")
    assert "sales is stored and not shared: the configuration has a share of this name" in listed
    assert "from the configuration" in printed(config, capsys, "share", "show", "sales")
    assert "in the configuration file" in refused(config, capsys, "share", "alter", "sales", "--comment", "x")
    assert "in the configuration file" in refused(config, capsys, "table", "add", "sales.d.u", "/u")
    config.write_text(before)
    assert "comment: stored" in printed(config, capsys, "share", "show", "sales")
    config.write_text(before.replace("name: file", "name: Sales"))
    assert run(config, "share", "remove", "sales") == 0
    assert "is stored and not shared" not in printed(config, capsys, "share", "list")
    assert "from the configuration" in printed(config, capsys, "share", "show", "sales")


def test_recipients_may_be_granted_stored_shares(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(config, "share", "add", "s")
    profile = str(config.parent / "p.share")
    assert run(config, "recipient", "add", "a", "--share", "s", "--profile", profile) == 0
    assert "x" in refused(config, capsys, "recipient", "add", "b", "--share", "x")


def write(file: Path, *shares: dict[str, Any], **keys: Any) -> str:
    file.write_text(yaml.safe_dump({"shares": list(shares), **keys}))
    return str(file)


def table(name: str, location: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "location": location, **options}


def test_a_file_is_applied_once_and_then_changes_nothing(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [table("t", "/t", historyShared=True), table("u", "/u")]
    first = write(
        tmp_path / "1.yaml", {"name": "a", "schemas": [{"name": "d", "tables": tables}]}, {"name": "b"}
    )
    assert run(config, "share", "add", "c") == 0
    shown = printed(config, capsys, "apply", first, "--dry-run")
    assert "+ share a" in shown
    assert "+ table d.t" in shown
    assert printed(config, capsys, "apply", first, "--dry-run") == shown
    assert printed(config, capsys, "apply", first) == shown
    assert printed(config, capsys, "apply", first) == "Nothing differs.\n"
    second = write(
        tmp_path / "2.yaml",
        {"name": "a", "comment": "x", "schemas": [{"name": "d", "tables": [table("t", "/v")]}]},
    )
    shown = printed(config, capsys, "apply", second)
    assert "~ share a" in shown
    assert "its description" in shown
    assert "~ table d.t" in shown
    assert "- " not in shown
    assert "file:///u" in printed(config, capsys, "share", "show", "a")
    shown = printed(config, capsys, "apply", second, "--remove")
    assert "- share b" in shown
    assert "- share c" in shown
    assert "- table d.u" in shown
    assert printed(config, capsys, "apply", second, "--remove") == "Nothing differs.\n"


def test_an_export_has_all_but_secrets_and_applies_to_another_database(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [table("t", "/t", historyShared=True, id="${HOME}"), table("ü", "/u")]
    share = {
        "name": "A",
        "comment": "x\ny",
        "properties": {"k": "v"},
        "schemas": [{"name": "D", "tables": tables}],
    }
    run(config, "apply", write(tmp_path / "1.yaml", share, {"name": "empty"}))
    profile = tmp_path / "p.share"
    run(
        config, "recipient", "add", "acme", "--share", "a", "--allow", "10.0.0.0/8", "--profile", str(profile)
    )
    text = printed(config, capsys, "export")
    token = json.loads(profile.read_text())["bearerToken"]
    assert token not in text
    assert "sha256" not in text
    document = yaml.safe_load(text)
    assert document["shares"] == [share, {"name": "empty", "schemas": []}]
    assert document["recipients"] == [{"name": "acme", "shares": ["a"], "networks": ["10.0.0.0/8"]}]
    other = tmp_path / "other" / "share.yaml"
    other.parent.mkdir()
    other.write_text(config.read_text())
    exported = tmp_path / "export.yaml"
    assert run(config, "export", "-o", str(exported)) == 0
    shown = printed(other, capsys, "apply", str(exported))
    assert "+ recipient acme, without a token" in shown
    assert printed(other, capsys, "export") == text
    assert printed(other, capsys, "apply", str(exported), "--remove") == "Nothing differs.\n"
    with open_share_database(load(other), "test", now_ms=epoch_ms, read_only=True) as database:
        assert set(database.all()) == {"a", "empty"}
    assert "remove it, or name another file" in refused(config, capsys, "export", "-o", str(exported))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[", "is not YAML"),
        ("[" * 100_000, "is not YAML"),
        ("shares:\n- a: b: c", "wanted.yaml:2 is not YAML: mapping values are not allowed"),
        ("shares:\n- {name: a, comment: 2026-02-30}", "wanted.yaml:2 is not YAML: no value of the tag"),
        ("[]", "expected a map"),
        ("shares: {}", "lists"),
        ("shares: [x]", "expected a map of keys"),
        ("share: []", "unknown key share"),
        ("shares: [{name: a}, {name: A}]", "twice"),
        ("shares: [{name: a, comments: x}]", "unknown key"),
        ("shares: [{name: a, properties: {until: 2026-01-01}}]", "a text needs quotes"),
        ("shares: [{name: a, properties: &p {k: *p}}]", "a text needs quotes"),
        ("shares: [{name: a, properties: {2026: x, k: y}}]", "a text needs quotes"),
        ("shares: [{name: a, properties: {k: .nan}}]", "a text needs quotes"),
        ("shares: [{name: a, comment: !!set {b}}]", "a text needs quotes"),
        ("shares: [{name: a, comment: !!binary aGk=}]", "a text needs quotes"),
        ("shares: [{name: file}]", "in the configuration file"),
    ],
)
def test_a_file_that_cannot_be_applied_is_refused(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    file = tmp_path / "wanted.yaml"
    file.write_text(text)
    capsys.readouterr()
    assert run(config, "apply", str(file)) == 1
    assert reason in capsys.readouterr().err


def test_recipients_of_a_file_get_grants_networks_and_policies(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {"name": "p", "issuer": "https://idp", "subject": "x", "audiences": ["a"]}
    first = {"name": "Acme", "comment": "c", "shares": ["file", "later"], "oidc": [policy]}
    shown = printed(config, capsys, "apply", write(tmp_path / "1.yaml", recipients=[first]))
    assert shown == "+ recipient Acme, without a token\n"
    exported = yaml.safe_load(printed(config, capsys, "export"))
    assert exported["recipients"] == [first | {"oidc": [{**policy, "subjectClaim": "sub"}]}]
    second = {"name": "acme", "shares": ["file", "new"], "networks": ["10.0.0.0/8"]}
    file = write(tmp_path / "2.yaml", recipients=[second])
    assert printed(config, capsys, "apply", file) == (
        "~ recipient Acme: + new\n~ recipient Acme: networks 10.0.0.0/8\n"
    )
    assert printed(config, capsys, "apply", file) == "Nothing differs.\n"
    assert printed(config, capsys, "apply", file, "--remove") == (
        "~ recipient Acme: - later\n~ recipient Acme: - policy p\n"
    )
    # A file without networks does not open a recipient to all addresses.
    third = write(tmp_path / "3.yaml", recipients=[{"name": "acme", "shares": ["file", "new"]}])
    assert printed(config, capsys, "apply", third, "--remove") == "Nothing differs.\n"


def test_a_policy_of_a_file_replaces_the_one_of_its_name(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {"name": "p", "issuer": "https://idp", "subject": "x", "audiences": ["a", "b"]}
    narrower = policy | {"audiences": ["a"], "claims": {"tid": "t"}}
    first = write(tmp_path / "1.yaml", recipients=[{"name": "acme", "oidc": [policy]}])
    second = write(tmp_path / "2.yaml", recipients=[{"name": "acme", "oidc": [narrower]}])
    printed(config, capsys, "apply", first)
    assert printed(config, capsys, "apply", second) == (
        "~ recipient acme: - policy p\n~ recipient acme: + policy p\n"
    )
    (exported,) = yaml.safe_load(printed(config, capsys, "export"))["recipients"]
    assert exported["oidc"] == [narrower | {"subjectClaim": "sub"}]
    assert printed(config, capsys, "apply", second) == "Nothing differs.\n"


def test_a_network_of_a_file_is_compared_as_it_is_stored(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    networks = ["192.0.2.7", "2001:DB8::/32", "192.0.2.7/32"]
    file = write(tmp_path / "1.yaml", recipients=[{"name": "acme", "networks": networks}])
    printed(config, capsys, "apply", file)
    assert printed(config, capsys, "apply", file) == "Nothing differs.\n"


def test_an_export_is_whole_or_an_error(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(config, capsys, "apply", write(tmp_path / "1.yaml", recipients=[{"name": "a"}, {"name": "bob"}]))
    with closing(sqlite3.connect(tmp_path / "recipients.db")) as database:
        database.execute("INSERT INTO tokens VALUES ('none', 'bob', 1, 2)")
        database.commit()
    assert "the rows of recipient 'bob' cannot be read: a token is invalid" in refused(
        config, capsys, "export", "-o", str(tmp_path / "export.yaml")
    )
    assert not (tmp_path / "export.yaml").exists()
    # Nor is it planned as a new one.
    for mode in ([], ["--dry-run"]):
        unreadable = write(tmp_path / "2.yaml", recipients=[{"name": "Bob"}])
        assert "the rows of recipient 'bob' cannot be read" in refused(
            config, capsys, "apply", unreadable, *mode
        )
    # Another one's plan does not depend on it.
    other = write(tmp_path / "3.yaml", recipients=[{"name": "a"}])
    assert printed(config, capsys, "apply", other, "--dry-run") == "Nothing differs.\n"


def test_a_recipient_that_is_exported_is_applied_elsewhere_with_its_rules(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = {"share": "sales", "schema": "eu", "table": "orders", "condition": "country = recipient.country"}
    first = {
        "name": "Acme",
        "shares": ["file", rule, {"share": "all", "condition": "day > '2026-01-01'"}],
        "properties": {"country": "de"},
        "forbidBearerTokens": True,
    }
    file = write(tmp_path / "1.yaml", recipients=[first])
    assert printed(config, capsys, "apply", file) == (
        "+ recipient Acme, without a token\n"
        "~ recipient Acme: + sales.eu.orders where country = recipient.country;"
        " + all where day > '2026-01-01'; properties country\n"
        "~ recipient Acme: bearer tokens forbidden\n"
    )
    assert printed(config, capsys, "apply", file) == "Nothing differs.\n"
    (exported,) = yaml.safe_load(printed(config, capsys, "export"))["recipients"]
    assert {**exported, "shares": sorted(map(str, exported["shares"]))} == (
        first | {"shares": sorted(map(str, first["shares"]))}
    )
    # Another condition takes the place of the one before, and one without a place is taken back on demand.
    narrower = {**rule, "condition": "country = recipient.country AND region = recipient.region"}
    second = {"name": "acme", "shares": ["file", narrower], "properties": {"country": "fr", "region": "x"}}
    file = write(tmp_path / "2.yaml", recipients=[second])
    assert printed(config, capsys, "apply", file) == (
        f"~ recipient Acme: + sales.eu.orders where {narrower['condition']}; properties country, region\n"
    )
    assert printed(config, capsys, "apply", file, "--remove") == "~ recipient Acme: - all\n"
    assert printed(config, capsys, "apply", file, "--remove") == "Nothing differs.\n"
    # A property that a condition needs stays, with all else of the step.
    third = write(tmp_path / "3.yaml", recipients=[{**second, "properties": {"country": "fr"}}])
    assert run(config, "apply", third, "--remove") == 1
    assert "region" in capsys.readouterr().err
    assert printed(config, capsys, "apply", file, "--remove") == "Nothing differs.\n"


def test_a_share_is_narrowed_and_widened_by_a_file(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = write(tmp_path / "whole.yaml", recipients=[{"name": "a", "shares": ["s"]}])
    part = write(
        tmp_path / "part.yaml", recipients=[{"name": "a", "shares": [{"share": "s", "condition": "p = 1"}]}]
    )
    printed(config, capsys, "apply", whole)
    for removes in ([], ["--remove"]):
        assert printed(config, capsys, "apply", part, *removes) == "~ recipient a: + s where p = 1\n"
        exported = yaml.safe_load(printed(config, capsys, "export"))
        assert exported["recipients"] == [{"name": "a", "shares": [{"share": "s", "condition": "p = 1"}]}]
        assert printed(config, capsys, "apply", whole, *removes) == "~ recipient a: + s\n"
        assert yaml.safe_load(printed(config, capsys, "export"))["recipients"] == [
            {"name": "a", "shares": ["s"]}
        ]


def test_recipients_of_a_file_are_those_of_their_names(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(config, capsys, "apply", write(tmp_path / "1.yaml", recipients=[{"name": "\u00e4"}]))
    other = write(tmp_path / "2.yaml", recipients=[{"name": "\u00c4", "shares": ["file"]}])
    assert run(config, "apply", other) == 1
    assert "easily taken for" in capsys.readouterr().err
    exported = yaml.safe_load(printed(config, capsys, "export"))["recipients"]
    assert exported == [{"name": "\u00e4"}]
    twice = write(tmp_path / "3.yaml", recipients=[{"name": "b"}, {"name": "B", "shares": ["file"]}])
    assert "is listed twice" in refused(config, capsys, "apply", twice)
    assert yaml.safe_load(printed(config, capsys, "export"))["recipients"] == exported


def test_apply_warns_of_a_dot_in_a_name(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [{"name": "t.u", "location": "/t"}, {"name": "v", "location": "/v"}]
    wanted = write(tmp_path / "1.yaml", {"name": "a.b", "schemas": [{"name": "c.d", "tables": tables}]})
    assert run(config, "apply", wanted) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if "dot" in line]
    assert [line.split("'")[1] for line in warned] == ["a.b", "c.d", "t.u"]


def test_a_dry_run_changes_no_file(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(config, capsys, "share", "add", "b")
    file = tmp_path / "recipients.db"
    audit = tmp_path / "audit.jsonl"
    before = file.read_bytes(), audit.read_bytes()
    wanted = write(tmp_path / "1.yaml", {"name": "a"}, recipients=[{"name": "new"}])
    shown = printed(config, capsys, "apply", wanted, "--dry-run")
    assert shown == "+ share a\n+ recipient new, without a token\n"
    assert (file.read_bytes(), audit.read_bytes()) == before
    assert not [*tmp_path.glob("recipients.db.*")]


def test_a_dry_run_without_a_database_shows_what_a_new_one_gets(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = write(tmp_path / "1.yaml", {"name": "a"}, recipients=[{"name": "new"}])
    before = {*tmp_path.iterdir()}
    shown = printed(config, capsys, "apply", wanted, "--dry-run")
    assert shown == "+ share a\n+ recipient new, without a token\n"
    assert {*tmp_path.iterdir()} == before
    # Nor does it plan for a new one where one is lost that took over a file.
    printed(config, capsys, "apply", wanted)
    settings = yaml.safe_load(config.read_text())
    settings["gateway"] = settings.get("gateway", {}) | {"database": {"url": "sqlite:///new.db"}}
    moved = tmp_path / "moved.yaml"
    moved.write_text(yaml.safe_dump(settings))
    assert printed(moved, capsys, "apply", wanted, "--dry-run") == "Nothing differs.\n"
    printed(moved, capsys, "apply", wanted)
    (tmp_path / "new.db").unlink()
    for mode in (["--dry-run"], []):
        assert "was taken over before" in refused(moved, capsys, "apply", wanted, *mode)
    wrong = write(tmp_path / "2.yaml", {"name": "a", "schemas": [{"name": "b/c"}]})
    assert run(config, "apply", wrong, "--dry-run") == 1


def others_between(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let someone else make a change between the plan of `apply` and its execution."""
    shown = apply._print

    def changed_meanwhile(*plan: Any) -> None:
        shown(*plan)
        change()

    monkeypatch.setattr(apply, "_print", changed_meanwhile)


BEFORE: dict[str, Any] = {
    "shares": [
        {
            "name": "s",
            "comment": "c",
            "schemas": [{"name": "d", "tables": [table("t", "/t"), table("u", "/u")]}],
        },
        {"name": "gone"},
    ],
    "recipients": [
        {
            "name": "acme",
            "shares": ["s", {"share": "s", "schema": "d", "condition": "p = 1"}],
            "properties": {"country": "de"},
            "networks": ["10.0.0.0/8"],
            "oidc": [{"name": "p", "issuer": "https://i", "subject": "x", "audiences": ["a"]}],
        }
    ],
}
OF_SHARES = {
    "another table": lambda one: one.edit(
        "s", lambda s: share_edits.with_table(s, "d", StoredTable("v", "/v"))
    ),
    "another location": lambda one: one.edit(
        "s", lambda s: share_edits.with_table(s, "d", StoredTable("t", "/other"), is_new=False)
    ),
    "no table": lambda one: one.edit("s", lambda s: share_edits.without_table(s, "d", "u")),
    "another comment": lambda one: one.edit("s", lambda s: share_edits.with_options(s, {"comment": "other"})),
    "no share": lambda one: one.remove("s"),
    "a table of a removed share": lambda one: one.edit(
        "gone", lambda s: share_edits.with_table(s, "d", StoredTable("v", "/v"))
    ),
    "the new share": lambda one: one.add(StoredShare("new")),
}
OF_RECIPIENTS = {
    "networks": lambda one: one.allow("acme", ["10.1.0.0/16"]),
    "a grant": lambda one: one.grant("acme", ["x"], allow_absent=True),
    "no grant": lambda one: one.revoke("acme", shares=["s"]),
    "a condition": lambda one: grant_parts(one, "acme", [Grant.of("s", "d", None, "p = 2")], lambda _: None),
    "no condition": lambda one: revoke_parts(one, "acme", [Grant.of("s", "d", None, None)]),
    "a property": lambda one: set_properties(one, "acme", {"country": "fr"}, lambda _: None),
    "no policy": lambda one: one.remove_policy("acme", "p"),
    "bearer tokens": lambda one: one.forbid_bearer_tokens("acme", forbidden=True),
    "no recipient": lambda one: one.delete("acme"),
    "the new recipient": lambda one: one.add("new"),
}


@pytest.mark.parametrize("change", [*OF_SHARES, *OF_RECIPIENTS])
def test_what_someone_else_changes_after_the_plan_stays_as_a_whole(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    file = tmp_path / "before.yaml"
    file.write_text(yaml.safe_dump(BEFORE))
    printed(config, capsys, "apply", str(file))
    of_shares, of_recipients = OF_SHARES.get(change), OF_RECIPIENTS.get(change)
    states: list[str] = []

    def changed() -> None:
        open_it: Any = open_share_database if of_shares is not None else open_database
        with open_it(load(config), "another", now_ms=epoch_ms) as database:
            (of_shares or of_recipients or print)(database)
        export(states)

    def export(into: list[str]) -> None:
        with (
            open_share_database(load(config), "test", now_ms=epoch_ms) as shares,
            open_database(load(config), "test", now_ms=epoch_ms) as recipients,
        ):
            into.append(exported(shares, recipients.list()))

    others_between(monkeypatch, changed)
    wanted = write(
        tmp_path / "wanted.yaml",
        {"name": "s", "comment": "wanted", "schemas": [{"name": "d", "tables": [table("t", "/w")]}]},
        {"name": "new", "comment": "wanted"},
        recipients=[{"name": "acme", "shares": ["file"], "networks": ["10.2.0.0/16"]}, {"name": "new"}],
    )
    capsys.readouterr()
    assert run(config, "apply", wanted, "--remove") == 1
    reason = capsys.readouterr().err
    assert "changed meanwhile; run the command again" in reason or "exists already" in reason
    export(states)
    assert states[0] == states[1]


def test_a_token_that_is_rotated_after_the_plan_keeps_no_step_back(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(config, "apply", write(tmp_path / "0.yaml", {"name": "s"}, recipients=[{"name": "acme"}]))

    def rotated() -> None:
        with closing(open_database(load(config), "another", now_ms=epoch_ms)) as database:
            database.issue("acme", NewToken())
        with open_share_database(load(config), "another", now_ms=epoch_ms) as shares:
            shares.add(StoredShare("beside"))

    others_between(monkeypatch, rotated)
    wanted = write(
        tmp_path / "1.yaml", {"name": "s", "comment": "x"}, recipients=[{"name": "acme", "shares": ["s"]}]
    )
    printed(config, capsys, "apply", wanted)
    monkeypatch.undo()
    assert printed(config, capsys, "apply", wanted) == "Nothing differs.\n"


def test_what_others_make_invalid_after_the_check_is_not_applied(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def added() -> None:
        share = share_edits.with_table(StoredShare("other"), "d", StoredTable("t", "/t", {"id": "one"}))
        with open_share_database(load(config), "another", now_ms=epoch_ms) as shares:
            shares.add(share)

    others_between(monkeypatch, added)
    tables = [table("t", "/elsewhere", id="one")]
    wanted = write(tmp_path / "1.yaml", {"name": "s", "schemas": [{"name": "d", "tables": tables}]})
    assert run(config, "apply", wanted) == 1
    assert "belongs to a table of another location" in capsys.readouterr().err
    assert [one["name"] for one in yaml.safe_load(printed(config, capsys, "export"))["shares"]] == ["other"]


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (
            ({"name": "z", "schemas": [{"name": "d", "tables": [table("t", "ftp://x")]}]}, {"name": "z"}),
            "ftp",
        ),
        (({"name": "z"}, {"name": "z", "networks": ["no network"]}), "no network"),
    ],
)
def test_an_apply_that_fails_at_its_last_step_leaves_nothing(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    last: tuple[dict[str, Any], dict[str, Any]],
    reason: str,
) -> None:
    share, recipient = last
    run(config, "share", "add", "kept")
    audited = (tmp_path / "audit.jsonl").read_text()
    text = printed(config, capsys, "export")
    wanted = write(tmp_path / "1.yaml", {"name": "a"}, share, recipients=[{"name": "a"}, recipient])
    assert run(config, "apply", wanted, "--remove") == 1
    assert reason in capsys.readouterr().err
    assert printed(config, capsys, "export") == text
    assert (tmp_path / "audit.jsonl").read_text() == audited
    assert "no change of a share 'a'" in refused(config, capsys, "share", "history", "a")


POLICY = {"name": "p", "issuer": "i", "subject": "s", "audiences": ["a"]}


@pytest.mark.parametrize(
    ("recipient", "reason"),
    [
        ("x", "maps with a name"),
        ({"name": 1}, "maps with a name"),
        ({"name": "a", "tokens": []}, "unknown key tokens"),
        ({"name": "a", "shares": [{"share": "s", "table": "t"}]}, "names its schema"),
        ({"name": "a", "shares": [{"share": "s", "where": "x = 1"}]}, "unknown key where of a grant"),
        ({"name": "a", "shares": ["s", {"share": "S", "condition": "x = 1"}]}, "one place twice"),
        ({"name": "a", "shares": [1]}, "a grant is a share's name"),
        ({"name": "a", "shares": [{"share": "s", "schema": 1}]}, "are texts"),
        ({"name": "a", "shares": "s"}, "is a list"),
        ({"name": "a", "properties": {"x": 1}}, "a map of texts"),
        ({"name": "a", "forbidBearerTokens": "yes"}, "true or false"),
        ({"name": "a", "oidc": [{"name": "p"}]}, "name, issuer, subject"),
        ({"name": "a", "oidc": [POLICY | {"audiences": "https://a"}]}, "audiences, a list"),
        ({"name": "a", "oidc": [POLICY] * 2}, "a name twice"),
        ({"name": "a", "shares": [{"share": "s", "condition": None}]}, "no value for condition of a grant"),
        ({"name": "a", "shares": [{"share": "s", "schema": None}]}, "no value for schema of a grant"),
        ({"name": "a", "networks": None}, "no value for networks"),
        ({"name": "a", "forbidBearerTokens": None}, "no value for forbidBearerTokens"),
        ({"name": "a", "oidc": [POLICY | {"claims": None}]}, "no value for claims of a policy"),
        ({"name": "a", "oidc": [POLICY | {"claim": {"tid": "t"}}]}, "unknown key claim of a policy"),
        ({"name": "a", "oidc": [POLICY | {"subjectClaim": ""}]}, "subject claim"),
        ({"name": "a", "properties": {"x": ""}}, "expected a text"),
        ({"name": "a", "networks": ["x"]}, "x"),
    ],
)
def test_a_recipient_that_cannot_be_applied_is_refused(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], recipient: Any, reason: str
) -> None:
    file = write(tmp_path / "1.yaml", recipients=[recipient])
    capsys.readouterr()
    assert run(config, "apply", file) == 1
    assert reason in capsys.readouterr().err
    assert yaml.safe_load(printed(config, capsys, "export")) == {"shares": [], "recipients": []}


def test_the_history_of_an_unknown_share_is_none_that_is_empty(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "share", "add", "sales") == 0
    assert "no change of a share 'sale'" in refused(config, capsys, "share", "history", "sale")


def test_a_location_is_shown_as_a_command_takes_it(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "share", "add", "sales\u202e") == 0
    assert run(config, "table", "add", "sales\u202e.d.t", "/a%20b") == 0
    shown = printed(config, capsys, "share", "show", "sales\u202e")
    assert "file:///a%2520b" in shown
    assert shown.startswith("sales\\u202e, from")


def test_a_stored_share_that_is_left_out_fails_a_check_unless_the_file_has_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "share.yaml"
    config.write_text("version: 1\ngateway: {anonymous: true}\n")
    assert run(config, "share", "add", "sales") == 0
    assert run(config, "check") == 0
    config.write_text("version: 1\nshares: [{name: Sales}]\ngateway: {anonymous: true}\n")
    assert "'sales' is stored and not shared" in printed(config, capsys, "check")
    config.write_text("version: 1\ngateway: {anonymous: true}\n")
    with closing(sqlite3.connect(tmp_path / "recipients.db")) as database, database:
        database.execute("UPDATE shares SET options = '{'")
    assert run(config, "check") == 1
