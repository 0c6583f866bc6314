"""Other implementations read the same rows from the demo's tables."""

import importlib.util
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from support.official_client import OfficialClient
from support.processes import free_port, gateway_command, package_environment, wait_for_port
from support.waiting import wait_until
from tables import demo_archive
from tables.demo import ORDER_CHANGES, ROWS, in_any_order
from tools import ROOT

from gateway.__main__ import main
from gateway.demo.command import lay_out_missing, prepare, user_cache_directory
from gateway.demo.stores import StoredTables
from gateway.demo.tables import ARCHIVE, TABLES


@pytest.mark.parametrize("table", ROWS)
def test_delta_rs_reads_the_rows(demo_tables: Path, table: str) -> None:
    assert in_any_order(pl.scan_delta(str(demo_tables / table)).collect().rows()) == in_any_order(ROWS[table])


@pytest.mark.parametrize("table", ROWS)
def test_spark_reads_the_rows(demo_tables: Path, spark: Any, table: str) -> None:
    rows = spark.read.format("delta").load(str(demo_tables / table)).toArrow()
    found = pl.DataFrame(rows).rows()
    assert in_any_order(found) == in_any_order(ROWS[table])


def test_spark_reads_the_changes(demo_tables: Path, spark: Any) -> None:
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    changes = reader.load(str(demo_tables / "orders"))
    columns = ["_commit_version", "_change_type", "order", "customer", "amount"]
    assert in_any_order(changes.select(columns).collect()) == in_any_order(ORDER_CHANGES)


def test_statistics_are_those_of_the_files(demo_tables: Path) -> None:
    for commit in demo_tables.glob("*/_delta_log/*.json"):
        adds = [
            action["add"] for action in map(json.loads, commit.read_text().splitlines()) if "add" in action
        ]
        for add in adds:
            stats = json.loads(add["stats"])
            (path,) = (demo_tables / commit.parts[-3]).rglob(add["path"].rsplit("/", 1)[-1])
            rows = pl.read_parquet(path)
            assert (stats["numRecords"], add["size"]) == (rows.height, path.stat().st_size)
            assert stats["nullCount"] == {name: rows[name].null_count() for name in rows.columns}


def test_a_version_is_as_old_as_its_commit_says(demo_tables: Path) -> None:
    for commit in demo_tables.glob("*/_delta_log/*.json"):
        info = json.loads(commit.read_text().splitlines()[0])["commitInfo"]
        assert int(commit.stat().st_mtime * 1000) == pytest.approx(info["timestamp"], abs=1)


def test_the_packages_tables_are_those_of_their_script() -> None:
    drawn = zipfile.ZipFile(io.BytesIO(demo_archive.archive()))
    with drawn, zipfile.ZipFile(ARCHIVE) as kept:
        assert {name: kept.read(name) for name in kept.namelist()} == {
            name: drawn.read(name) for name in drawn.namelist()
        }, "run: python tests/tables/demo_archive.py"


@pytest.mark.processes
def test_it_reads_its_own_shares(demo_tables: Path, tmp_path: Path) -> None:
    """As a user runs it; a second time in the same directory, over the same tables."""
    for _ in range(2):
        ended = demo_once(tmp_path / "kept")
        assert ended.returncode == 0, ended.stderr
        for table, rows in ROWS.items():
            assert f"demo.default.{table}: {len(rows)} rows" in ended.stdout
        assert "Alps + lakes" in ended.stdout
        assert "│" not in ended.stdout, "borders in a pipe"
    for name in ("demo.share", "gateway.yaml"):
        assert (tmp_path / "kept" / name).stat().st_mode & 0o077 == 0


@pytest.mark.processes
def test_the_picture_is_what_a_terminal_shows(tmp_path: Path) -> None:
    image = terminal_session()
    once = image.on_a_terminal(
        gateway_command("demo", "--once", "--directory", tmp_path), env=package_environment(), cwd="/"
    )
    assert "Alps + lakes │" in once
    assert image.IMAGE.read_text() == image.svg(image.session(once)), "run: python docs/images/demo.py"


def terminal_session() -> ModuleType:
    """The script that draws the README's session."""
    spec = importlib.util.spec_from_file_location("terminal_session", ROOT / "docs/images/demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.processes
def test_a_port_where_another_program_listens_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for number, reason in ((port, "Address already in use"), (65536, "accepted: 0 to 65535")):
            ended = demo_once(tmp_path / "none", "--port", str(number))
            message = f"cannot listen on 127.0.0.1 port {number}: {reason}; --port names another"
            assert (ended.returncode, ended.stdout) == (1, "")
            assert ended.stderr == f"delta-gateway: {message}\n"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["gateway.yaml", "demo.share"])
def test_files_of_someone_else_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / name).write_text("theirs")
    (tmp_path / "orders").mkdir()
    assert main(["demo", "--once", "--directory", str(tmp_path)]) == 1
    assert f"{tmp_path / name} exists, and is not of a demo" in capsys.readouterr().err
    files = filter(Path.is_file, tmp_path.rglob("*"))
    assert [(file.name, file.read_text()) for file in files] == [(name, "theirs")]


def test_missing_tables_of_a_demo_are_written_again(tmp_path: Path) -> None:
    for missing in (TABLES, TABLES, TABLES[:1]):
        for table in missing:
            shutil.rmtree(tmp_path / table, ignore_errors=True)
        lay_out_missing(tmp_path)
        prepare(tmp_path, 1, StoredTables(str(tmp_path)))
        assert all((tmp_path / table / "_delta_log").is_dir() for table in TABLES)


def demo_once(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo, with a proxy in the environment that does not answer."""
    command = gateway_command("demo", "--once", "--directory", directory, *arguments)
    environment = package_environment(http_proxy="http://127.0.0.1:9", no_proxy="")
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd="/")


@pytest.mark.processes
def test_the_printed_commands_work(
    demo_tables: Path, tmp_path: Path, official_client: OfficialClient
) -> None:
    """The printed profile and curl line, and the table of the Python snippet."""
    command = [sys.executable, "-u", "-m", "gateway", "demo", "--directory", str(tmp_path / "kept")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, **pipes, env=package_environment(), cwd="/") as process:
        try:
            assert process.stdout is not None
            output = "".join(iter(process.stdout.readline, "curl:\n")) + process.stdout.readline()
            (profile,) = re.findall(r"^Profile: (.*)$", output, re.MULTILINE)
            (table,) = set(re.findall(rf"{re.escape(profile)}#([\w.]+)", output))
            port = int(re.findall(r"http://127\.0\.0\.1:(\d+)/", output)[0])
            wait_for_port(port, process)
            assert len(official_client.rows(Path(profile), table)) == len(ROWS["cities"])
            (curl,) = re.findall(r"^(curl .*)$", output, re.MULTILINE)
            said = subprocess.run(["bash", "-c", curl], check=True, capture_output=True, text=True).stdout
            assert [item["name"] for item in json.loads(said)["items"]] == list(ROWS)
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.mark.skipif(sys.platform == "darwin", reason="caches have another directory there")
def test_columns_of_the_demo_are_in_the_users_cache_directory_if_there_is_one(monkeypatch):
    monkeypatch.setenv("HOME", "/home/user")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert user_cache_directory() == Path("/caches/delta-sharing-gateway/columns")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert user_cache_directory() == Path("/home/user/.cache/delta-sharing-gateway/columns")

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert user_cache_directory() is None


@pytest.mark.processes
@pytest.mark.parametrize("store", ["azure", "s3"])
def test_a_store_that_cannot_be_reached_is_named_at_once(store: str) -> None:
    arguments = ("demo", "--store", store, "--store-endpoint", f"http://127.0.0.1:{free_port()}")
    environment = package_environment(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    begun = time.monotonic()
    ended = subprocess.run(
        gateway_command(*arguments), check=False, capture_output=True, text=True, env=environment
    )
    assert ended.returncode == 1
    assert re.fullmatch(
        r"delta-gateway: the store at 127\.0\.0\.1:\d+ cannot be reached: Connection refused\n", ended.stderr
    )
    assert time.monotonic() - begun < 30


@pytest.mark.processes
def test_sigterm_while_the_emulator_starts_ends_it_and_removes_the_directories(tmp_path: Path) -> None:
    programs, places, pid = tmp_path / "bin", tmp_path / "tmp", tmp_path / "pid"
    programs.mkdir()
    places.mkdir()
    emulator = programs / "azurite-blob"
    # It never listens.
    emulator.write_text(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nexec sleep 600\n")
    emulator.chmod(0o755)
    environment = package_environment(PATH=f"{programs}:{os.environ['PATH']}", TMPDIR=str(places))
    command = gateway_command("demo", "--store", "azure")
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            wait_until(pid.exists, 60)
            assert len([*places.iterdir()]) == 2
            process.terminate()
            assert process.wait(30) == 143
        finally:
            process.kill()
    assert [*places.iterdir()] == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
