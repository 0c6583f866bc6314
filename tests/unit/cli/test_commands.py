"""`delta-gateway token`, `check`, `explain` and `demo` as commands."""

import errno
import hashlib
import json
import logging
import os
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tables.demo import ROWS

from gateway.__main__ import main
from gateway.config import ConfigError, load, loads
from gateway.demo import command as demo_command
from gateway.governance.audited_database import create_database
from gateway.server.accepted_config import accepted
from gateway.server.extras import TRACING_MODULES, ExtraMissing, check_extras

ED25519 = {"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}


@pytest.fixture
def configuration(demo_tables: Path, tmp_path: Path) -> Path:
    tables = [{"name": name, "location": str(demo_tables / name)} for name in ROWS]
    file = tmp_path / "share.yaml"
    file.write_text(shared(tables))
    return file


def shared(tables: list[dict[str, Any]]) -> str:
    shares = [{"name": "demo", "schemas": [{"name": "default", "tables": tables}]}]
    return yaml.safe_dump({"version": 1, "port": 8123, "shares": shares, "gateway": {"anonymous": True}})


def test_a_token_is_in_its_profile_and_its_hash_in_the_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "share.yaml").write_text("version: 1\nport: 8123\nshares: [{name: a}, {name: b}]\n")
    profile = tmp_path / "alice.share"
    arguments = ["token", "alice", "--shares", "a, b", "--expires", "90d"]
    assert main([*arguments, "--profile", str(profile), "-c", str(tmp_path / "share.yaml")]) == 0
    written = json.loads(profile.read_text())
    assert written["shareCredentialsVersion"] == 1
    assert written["endpoint"] == "http://localhost:8123/delta-sharing"
    expires = datetime.fromisoformat(written["expirationTime"])
    assert abs(expires - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=1)
    assert stat.S_IMODE(profile.stat().st_mode) == 0o600
    printed = capsys.readouterr()
    entry = yaml.safe_load(printed.out)[0]
    assert entry["name"] == "alice"
    assert entry["shares"] == ["a", "b"]
    assert entry["tokens"][0]["sha256"] == hashlib.sha256(written["bearerToken"].encode()).hexdigest()
    assert written["bearerToken"] not in printed.out + printed.err


def test_a_profile_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "alice.share"
    profile.write_text("an older one")
    assert main(["token", "alice", "--profile", str(profile), "--endpoint", "https://x.example"]) == 1
    assert profile.read_text() == "an older one"
    assert "alice.share exists" in capsys.readouterr().err


def test_a_profile_with_an_endpoint_that_is_no_url_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "alice.share"
    assert main(["token", "alice", "--profile", str(profile), "--endpoint", "share.example"]) == 1
    assert "--endpoint: 'share.example' is not a URL; accepted: https://host" in capsys.readouterr().err
    assert not profile.exists()


def test_a_file_that_cannot_be_made_is_named_without_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["demo", "--once", "--directory", str(tmp_path / "file" / "tables")]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"delta-gateway: {tmp_path / 'file' / 'tables'}")
    assert printed.endswith(": Not a directory\n")


def test_a_token_of_the_admin_api_is_shown_once_with_its_hash_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["token", "--admin"]) == 0
    printed = capsys.readouterr()
    token = printed.err.splitlines()[1]
    assert printed.out == f"{hashlib.sha256(token.encode()).hexdigest()}\n"
    text = f"version: 1\ngateway: {{anonymous: true, admin: {{tokenSha256: {printed.out.strip()}}}}}\n"
    assert loads(text).gateway.admin is not None
    for arguments in (["token"], ["token", "alice", "--admin"]):
        assert main(arguments) == 1
        assert "--admin" in capsys.readouterr().err


def test_a_token_without_a_profile_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "bob"]) == 0
    printed = capsys.readouterr()
    token = next(line for line in printed.err.splitlines() if len(line) == 43 and " " not in line)
    assert hashlib.sha256(token.encode()).hexdigest() in printed.out


@pytest.mark.parametrize("text", ["90", "d", "0d", "-1d", "1y"])
def test_a_duration_that_is_none_is_a_wrong_command_line(text: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["token", "alice", "--expires", text])
    assert caught.value.code == 2


@pytest.mark.parametrize("text", ["0", "-1", "two", "\u0662", "10000", "9" * 5000])
def test_a_number_of_workers_that_is_none_is_a_wrong_command_line(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_of:
        main(["serve", "-c", "share.yaml", f"--workers={text}"])
    assert exit_of.value.code == 2
    assert "is not a number from 1 to 9999" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["limit", "version"])
@pytest.mark.parametrize("text", ["-1", "1.5", "9" * 30])
def test_a_number_that_no_request_can_have_is_a_wrong_command_line(
    option: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_of:
        main(["explain", "s.d.t", "-c", "share.yaml", f"--{option}={text}"])
    assert exit_of.value.code == 2
    assert f"'{text}' is not a whole number of 0 or more" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["predicate", "json-predicate"])
def test_a_hint_that_is_not_utf_8_is_a_wrong_command_line(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_of:
        main(["explain", "s.d.t", "-c", "share.yaml", f"--{option}=\udcff"])
    assert exit_of.value.code == 2
    assert "expected UTF-8" in capsys.readouterr().err


def test_check_prints_its_findings_as_json(configuration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-c", str(configuration), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["good"]
    assert [table["table"] for table in document["tables"]] == [f"demo.default.{name}" for name in ROWS]
    assert {table["problem"] for table in document["tables"]} == {""}
    configuration.write_text(shared([{"name": "absent", "location": str(configuration.parent / "absent")}]))
    assert main(["check", "-c", str(configuration), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["good"]
    assert {table["table"] for table in document["tables"] if table["problem"]} == {"demo.default.absent"}


def test_check_opens_every_table(configuration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-c", str(configuration)]) == 0
    printed = capsys.readouterr().out
    assert "3 of 3 tables can be read." in printed
    header = printed.splitlines()[0]
    assert [cell.strip() for cell in header.split("\t")][2:6] == ["files", "bytes", "hot_bytes", "cold_bytes"]
    assert "i64" not in printed
    row = next(line for line in printed.splitlines() if "demo.default.reading" in line)
    assert "deletionVectors" in row
    assert "Python 1.4, Spark 4" in row


def test_check_fails_for_tables_that_recipients_could_not_read(
    demo_tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "gone" / "_delta_log"
    log.mkdir(parents=True)
    for name in (demo_tables / "orders" / "_delta_log").glob("*.json"):
        (log / name.name).write_bytes(name.read_bytes())
    file = tmp_path / "share.yaml"
    places = {"whole": demo_tables / "orders", "gone": tmp_path / "gone", "absent": tmp_path / "absent"}
    file.write_text(shared([{"name": name, "location": str(place)} for name, place in places.items()]))
    assert main(["check", "-c", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "1 of 3 tables can be read." in printed
    assert "a data file is missing" in printed
    absent = (tmp_path / "absent").as_uri()
    assert f"no Delta log at {absent}; a location is the directory that contains _delta_log" in printed


def test_check_names_the_command_that_publishes_a_projection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "share.yaml"
    projection = {"source": str(tmp_path / "source"), "columns": ["id"]}
    file.write_text(shared([{"name": "t", "location": str(tmp_path / "shared"), "projection": projection}]))
    assert main(["check", "-c", str(file)]) == 1
    assert "run `delta-gateway project`" in capsys.readouterr().out


def test_check_reports_errors_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "share.yaml").write_text("version: 1\nport: x\n")
    assert main(["check", "-c", str(tmp_path / "share.yaml")]) == 1
    assert "share.yaml:2: port: 'x' is not a whole number" in capsys.readouterr().err


@pytest.mark.parametrize("library", ["alembic", "py4j"])
def test_commands_do_not_print_the_steps_of_libraries(
    library: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    logging.getLogger(library).setLevel(logging.NOTSET)
    assert main(["check", "-c", str(tmp_path / "absent.yaml")]) == 1
    assert not logging.getLogger(library).isEnabledFor(logging.INFO)


def test_check_reports_problems_that_keep_a_server_from_starting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipients.db").write_bytes(b"no database at all" * 1000)
    (tmp_path / "share.yaml").write_text(
        "version: 1\nssl: {certificateFile: absent.pem, certificateKeyFile: key.pem}\n"
        "gateway: {anonymous: true, audit: {file: missing/audit.jsonl}, admin: {tokenSha256: "
        f"'{'0' * 64}', ssl: {{certificateFile: admin.pem, certificateKeyFile: key.pem}}}}}}\n"
    )
    assert main(["check", "-c", str(tmp_path / "share.yaml")]) == 1
    printed = capsys.readouterr().out.splitlines()
    troubles = [line for line in printed if line.startswith("The server would not start: ")]
    assert [trouble.partition(": ")[2].split()[:3] for trouble in troubles] == [
        ["the", "audit", "log"],
        ["the", "certificate", f"{tmp_path / 'absent.pem'}"],
        ["gateway.admin.ssl:", "the", "certificate"],
        ["the", "recipients'", "database"],
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipients.db", "share.yaml"]


def test_a_profile_of_token_for_this_machine_alone_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, profile = tmp_path / "share.yaml", tmp_path / "alice.share"
    file.write_text("version: 1\n")
    assert main(["token", "alice", "-c", str(file), "--profile", str(profile)]) == 0
    assert "token: warning: the profile names the host 'localhost'" in capsys.readouterr().err


def test_check_reports_hosts_of_other_machines_and_a_database_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "share.yaml"
    file.write_text("version: 1\nhost: 192.0.2.77\ngateway: {anonymous: true}\n")
    assert (
        main(["recipient", "add", "alice", "-c", str(file), "--profile", str(tmp_path / "alice.share")]) == 0
    )
    database = tmp_path / "recipients.db"
    # As on a file system that is mounted to be read: root may write every other file.
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != database)
    capsys.readouterr()
    assert main(["check", "-c", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "start: host: 192.0.2.77 is neither an address of this machine nor a name of one" in printed
    assert f"start: the recipients' database cannot be used: {database} cannot be written" in printed


def test_check_and_the_start_say_that_a_database_takes_no_changes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "share.yaml"
    file.write_text("version: 1\ngateway: {anonymous: true}\n")
    assert main(["recipient", "add", "alice", "-c", str(file)]) == 0
    said = f"{tmp_path / 'recipients.db'} takes no changes"
    capsys.readouterr()
    assert main(["check", "-c", str(file)]) == 0
    create_database(load(file), lambda: 0)
    assert said not in capsys.readouterr().out + caplog.text
    # As of a file that alone is mounted to be written.
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != tmp_path)
    assert main(["check", "-c", str(file)]) == 1
    create_database(load(file), lambda: 0)
    assert said in capsys.readouterr().out
    assert said in caplog.text


def test_check_reports_all_beside_a_database_that_it_may_not_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, database, stat = tmp_path / "share.yaml", tmp_path / "recipients.db", os.stat
    file.write_text("version: 1\ngateway: {anonymous: true}\n")
    assert main(["recipient", "add", "alice", "-c", str(file)]) == 0

    def looked_at(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        # As in a directory of the server's own user; root may look at every file.
        if path == database:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", looked_at)
    capsys.readouterr()
    assert main(["check", "-c", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "0 of 0 tables can be read." in printed
    assert f"The server would not start: [Errno 13] Permission denied: '{database}'" in printed


@pytest.mark.parametrize("link", ["recipients.db", "state"])
def test_check_and_the_start_refuse_a_database_behind_a_link_to_an_absent_directory(
    link: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, absent = tmp_path / "share.yaml", tmp_path / "mount"
    database = "recipients.db" if link == "recipients.db" else f"{link}/recipients.db"
    (tmp_path / link).symlink_to(absent / link)
    file.write_text(f"version: 1\ngateway: {{anonymous: true, recipientsDatabase: {database}}}\n")
    assert main(["check", "-c", str(file)]) == 1
    assert f"start: the recipients' database cannot be used: {tmp_path / database}" in capsys.readouterr().out
    with pytest.raises(OSError, match="recipients"):
        create_database(load(file), lambda: 0)
    (absent if link == "recipients.db" else absent / link).mkdir(parents=True)
    assert main(["check", "-c", str(file)]) == 0
    create_database(load(file), lambda: 0)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [(None, "No such file"), ("{}", "no set of keys"), (json.dumps({"keys": [ED25519]}), None)],
)
def test_check_reports_a_file_of_keys_that_verify_no_token(
    keys: str | None, reason: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if keys is not None:
        (tmp_path / "keys.json").write_text(keys)
    issuers = "[{issuer: 'https://idp.example', jwksFile: keys.json}]"
    (tmp_path / "share.yaml").write_text(
        f"version: 1\ngateway: {{anonymous: true, oidc: {{issuers: {issuers}}}}}\n"
    )
    assert main(["check", "-c", str(tmp_path / "share.yaml")]) == (0 if reason is None else 1)
    printed = capsys.readouterr().out
    assert ("every token of https://idp.example is refused" in printed) is (reason is not None)
    assert (reason or "") in printed


@pytest.mark.parametrize("command", [["check"], ["export", "--tables"]])
def test_a_configured_database_that_is_missing_is_no_empty_one(
    command: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "share.yaml"
    for keys, warnings in (("", 0), (", recipientsDatabase: mistyped.db", 1)):
        file.write_text(f"version: 1\ngateway: {{anonymous: true{keys}}}\n")
        assert main([*command, "-c", str(file)]) == 0
        assert caplog.text.count(f"{tmp_path / 'mistyped.db'} does not exist") == warnings


def test_the_shares_that_a_new_database_takes_over_are_not_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    file, keys = tmp_path / "share.yaml", "database: 'sqlite:///new.db'"
    file.write_text("version: 1\ngateway: {anonymous: true}\n")
    assert main(["share", "add", "kept", "-c", str(file)]) == 0
    assert main(["table", "add", "kept.d.t", "/none", "-c", str(file)]) == 0
    file.write_text(f"version: 1\ngateway: {{anonymous: true, {keys}}}\n")
    capsys.readouterr()
    assert main(["check", "-c", str(file)]) == 1
    assert "kept.d.t cannot be read" in capsys.readouterr().out
    assert main(["export", "--tables", "-c", str(file)]) == 0
    assert "kept.d.t" in capsys.readouterr().out
    assert "does not exist" not in caplog.text
    create_database(load(file), lambda: 0)
    (tmp_path / "new.db").unlink()
    # What was revoked since then is in no list of what was taken over.
    assert main(["export", "--tables", "-c", str(file)]) == 1


@pytest.mark.parametrize("missing", TRACING_MODULES)
def test_tracing_without_its_extra_is_one_line_of_serve_and_check(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "share.yaml").write_text(
        "version: 1\nport: 0\ngateway: {anonymous: true, tracing: {endpoint: 'http://127.0.0.1:1/v1/traces'}}\n"
    )
    # A module that is None cannot be imported, as one that is not installed.
    monkeypatch.setitem(sys.modules, missing.rpartition(".")[0], None)
    monkeypatch.delitem(sys.modules, missing, raising=False)
    # This process keeps its signal handlers.
    monkeypatch.setattr("gateway.cli.serve.ignore_hang_up", lambda: None)
    assert main(["check", "-c", str(tmp_path / "share.yaml")]) == 1
    assert "The server would not start: gateway.tracing needs the extra `tracing`" in capsys.readouterr().out
    for workers in ("1", "2"):
        assert main(["serve", "-c", str(tmp_path / "share.yaml"), "--workers", workers]) == 1
        (line,) = (line for line in capsys.readouterr().err.splitlines() if "extra" in line)
        assert line.endswith("pip install 'delta-sharing-gateway[tracing]'")


@pytest.mark.parametrize(
    ("installed", "is_old"), [("3.13.4", True), ("3.14.3", True), ("3.14.4", False), ("4.0", False)]
)
def test_a_server_beside_an_older_aiohttp_names_its_extra(
    installed: str, is_old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / f"aiohttp-{installed}.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: aiohttp\nVersion: {installed}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = loads("version: 1\nshares: []\ngateway: {anonymous: true}\n")
    if not is_old:
        check_extras(config)
        return
    message = rf"beside aiohttp {installed} needs the extra `server`.*'delta-sharing-gateway\[server\]'"
    with pytest.raises(ExtraMissing, match=message):
        check_extras(config)
    # Before it prints how to read what it will not serve.
    monkeypatch.setattr("gateway.demo.command.prepare", lambda *_: pytest.fail("the demo has begun"))
    with pytest.raises(ExtraMissing, match=message):
        demo_command.run(lambda _: 0, lambda _: None, directory=tmp_path / "demo", port=0, once=False)


@pytest.mark.parametrize(
    ("location", "storage", "missing", "extra"),
    [
        ("abfss://data@acct.dfs.core.windows.net/t", "", "azure.identity", "azure"),
        ("abfss://data@acct.dfs.core.windows.net/t", "", "azure.storage.blob", "azure"),
        ("gs://bucket/t", "", "google.auth", "gcp"),
        ("gs://bucket/t", "{prefix: 'gs://bucket/', maxRemoteSignatures: 1}", "google.oauth2", "gcp"),
        (
            "abfss://data@acct.dfs.core.windows.net/t",
            "{prefix: 'abfss://data@acct.dfs.core.windows.net/', accountKey: a2V5}",
            "azure.identity",
            None,
        ),
        (
            "gs://bucket/t",
            "{prefix: 'gs://bucket/', accessKeyId: a, secretAccessKey: b}",
            "google.auth",
            None,
        ),
    ],
)
def test_an_identity_without_its_extra_is_refused_at_start_and_reload(  # noqa: PLR0917 - the cases
    location: str,
    storage: str,
    missing: str,
    extra: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "share.yaml"
    text = "version: 1\nshares: [{{name: s, schemas: [{{name: d, tables: [{}]}}]}}]\n"
    gateway = f"gateway: {{anonymous: true, storages: [{storage}]}}\n"
    file.write_text(text.format("") + gateway)
    running = load(file)
    file.write_text(text.format(f"{{name: t, location: '{location}'}}") + gateway)
    monkeypatch.setitem(sys.modules, missing.rpartition(".")[0], None)
    monkeypatch.delitem(sys.modules, missing, raising=False)
    if extra is None:
        check_extras(accepted(file, running, workers=1))
        return
    with pytest.raises(ExtraMissing, match=rf"pip install 'delta-sharing-gateway\[{extra}\]'"):
        check_extras(load(file))
    with pytest.raises(ConfigError, match=f"needs the extra `{extra}`"):
        accepted(file, running, workers=1)


def test_explain_shows_the_files_that_each_hint_prunes(
    configuration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hints = [
        "--predicate",
        "region = 'a/b'",
        "--predicate",
        "inhabitants > 15000000 AND inhabitants IS NOT NULL",
        "--predicate",
        "nonsense (",
    ]
    assert main(["explain", "demo.default.cities", "-c", str(configuration), *hints]) == 0
    printed = capsys.readouterr().out
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in printed.splitlines() if "\t" in line}
    counts = [cell.strip() for cell in rows["region = 'a/b'"]]
    assert counts[0] != counts[4] == "1"
    assert rows["nonsense ("][-1] != ""
    assert "kept, for example:" in printed
    _, by_itself = printed.split("each condition by itself")
    conditions = {
        line.split("\t")[0]: line.split("\t")[2].strip() for line in by_itself.splitlines() if "\t" in line
    }
    assert conditions["`region` = 'a/b'"] == "partition"
    assert conditions["`inhabitants` > 15000000"] == "statistics"
    assert "NOT (`inhabitants` IS NULL)" in conditions


def test_explain_suggests_tables_of_near_names(
    configuration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "demo.default.Citys", "-c", str(configuration)]) == 1
    assert capsys.readouterr().err == (
        "delta-gateway: no table demo.default.Citys is shared; did you mean demo.default.cities?\n"
    )


@pytest.mark.parametrize(
    ("given", "program"),
    [
        (["check", "-c", "share.yaml", "--jsno"], "delta-gateway"),
        (["check", "--workers", "2"], "delta-gateway check"),
        (["recipient", "add"], "delta-gateway recipient add"),
        (["nothing"], "delta-gateway"),
    ],
)
def test_an_error_of_the_command_line_is_one_line_without_the_usage(
    given: list[str], program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f"{program}: ")
    assert hint == f"{program} --help shows what it takes."


def test_explain_shows_a_table_as_a_recipient_of_the_database_reads_it(
    configuration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explain = ["explain", "demo.default.cities", "-c", str(configuration), "--recipient"]
    assert main([*explain, "acme"]) == 1
    assert "there is no database of them" in capsys.readouterr().err
    recipient = ["recipient", "add", "Acme", "-c", str(configuration)]
    grant = ["recipient", "grant", "acme", "-c", str(configuration), "demo.default.cities"]
    assert main(recipient) == main([*grant, "--where", "region LIKE 'Alps%'"]) == 0
    capsys.readouterr()
    assert main([*explain, "ACME"]) == 0
    shown = capsys.readouterr().out
    assert "files where (`region` LIKE 'Alps%')" in shown
    assert "Alps + lakes" in shown
    assert "coast" not in shown
    assert main([*explain, "nobody"]) == 1
    assert "neither gateway.recipients nor the database has a recipient 'nobody'" in capsys.readouterr().err


def test_a_first_recipient_is_added_without_a_word_about_the_schema_of_its_database(
    configuration: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert main(["recipient", "add", "acme", "-c", str(configuration)]) == 0
    assert [record.name for record in caplog.records if not record.name.startswith("gateway.")] == []


def test_explain_refuses_a_table_that_is_not_shared(
    configuration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "demo.default.nothing", "-c", str(configuration)]) == 1
    assert "no table demo.default.nothing is shared\n" in capsys.readouterr().err


@pytest.mark.processes
def test_the_demo_without_its_extra_counts_the_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    assert main(["demo", "--once"]) == 0
    *counts, advice = capsys.readouterr().out.splitlines()
    assert counts == [f"demo.default.{name}: {len(rows)} rows" for name, rows in ROWS.items()]
    assert "pip install 'delta-sharing-gateway[demo]'" in advice
