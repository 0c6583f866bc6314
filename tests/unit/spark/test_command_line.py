"""The commands report a missing prerequisite in one line and start nothing. No Spark session."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.spark import cli, session
from gateway.spark.session import SparkUnavailable, check_java

SHARE = {"shareCredentialsVersion": 1, "endpoint": "http://127.0.0.1:1/p", "bearerToken": "t"}


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    path = tmp_path / "tables.json"
    path.write_text(json.dumps({"tables": [{"table": "s.d.t", "location": "/nowhere"}]}))
    return path


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(builder: Any) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "_started", started)
    monkeypatch.setattr(session.SparkSession, "getActiveSession", staticmethod(lambda: None))


def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with the package that the tests run on."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "gateway", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("command", [("generate", "/tables"), ("project", "-c", "f"), ("verify", "-c", "f")])
@pytest.mark.parametrize("text", ["0", "-1", "two"])
def test_a_number_of_threads_that_is_none_is_a_wrong_command_line(
    command: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*command, f"--parallel={text}"])
    assert ended.value.code == 2
    assert f"--parallel: '{text}' is not a whole number of 1 or more" in capsys.readouterr().err


@pytest.mark.processes
@pytest.mark.parametrize(
    ("module", "missing"), [("pyspark", "pyspark.errors"), ("pyarrow", "pyarrow.fs"), ("delta", "delta")]
)
def test_a_missing_module_of_the_extra_is_one_message(module: str, missing: str, listed: Path) -> None:
    # Another test of this process may have imported what imports the module.
    code = f"import sys; sys.modules[{missing!r}] = None; from gateway.spark import cli; sys.exit(cli.main())"
    command = [sys.executable, "-P", "-c", code, "fleet", "-c", str(listed)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"the module {module} is not installed here" in ended.stderr
    assert "pip install 'delta-sharing-gateway[spark]'" in ended.stderr


@pytest.mark.processes
def test_a_missing_java_is_one_line(tmp_path: Path) -> None:
    done = run("generate", tmp_path / "t", JAVA_HOME="", PATH=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "Java 17 or later is needed" in line


@pytest.mark.processes
@pytest.mark.parametrize(("version", "enough"), [("11.0.2", False), ("17.0.1", True), ("21", True)])
def test_an_old_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, enough: bool
) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if enough:
        check_java()
        return
    with pytest.raises(SparkUnavailable, match="this is Java 11"):
        check_java()


@pytest.mark.spark  # needs Java
def test_without_the_network_one_line_names_the_option_for_jars(tmp_path: Path) -> None:
    away = " ".join(
        [
            f"-Duser.home={tmp_path}",
            *(f"-D{kind}.proxyHost=127.0.0.1 -D{kind}.proxyPort=1" for kind in ("http", "https")),
            # Maven's own repository on this machine is not looked at.
            f"-Dmaven.repo.local={tmp_path}",
        ]
    )
    # Java prints this variable.
    done = run("generate", tmp_path / "t", JDK_JAVA_OPTIONS=away)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "JDK_JAVA_OPTIONS" not in line]
    assert len(lines) == 1, done.stderr
    assert "--jars DIR" in lines[0]


@pytest.mark.parametrize("place", ["nowhere", "empty", "file"])
def test_jars_that_are_not_there_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_spark: None, place: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert cli.main(["generate", str(tmp_path / "t"), "--jars", str(tmp_path / place)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--jars {tmp_path / place}" in line


def test_a_connector_that_is_not_there_is_refused(
    tmp_path: Path, listed: Path, capsys: pytest.CaptureFixture[str], no_spark: None
) -> None:
    verify = ["verify", "-c", str(listed), "--profile", "x", "--connector", str(tmp_path / "c.jar")]
    assert cli.main(verify) == 2
    assert "--connector" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("{", "not JSON"),
        ("{}", "no bearerToken"),
        (json.dumps({**SHARE, "expirationTime": "2020-01-01T00:00:00Z"}), "has expired"),
        (json.dumps({**SHARE, "expirationTime": "2020-01-01T00:00:00"}), "has expired"),
        (json.dumps({**SHARE, "type": "oauth"}), "bearer token"),
    ],
)
def test_a_profile_is_checked_before_spark_is_started(
    listed: Path, capsys: pytest.CaptureFixture[str], no_spark: None, text: str | None, said: str
) -> None:
    profile = listed.with_name("profile.share")
    if text is not None:
        profile.write_text(text)
    assert cli.main(["verify", "-c", str(listed), "--profile", str(profile)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.usefixtures("no_spark")
def test_a_file_of_tables_that_is_missing_is_named_without_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, profile = tmp_path / "missing.yaml", tmp_path / "p.share"
    profile.write_text(json.dumps(SHARE))
    assert cli.main(["verify", "-c", str(missing), "--profile", str(profile)]) == 1
    assert capsys.readouterr().err == f"delta-gateway: {missing}: No such file or directory\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"shares: [", "is not YAML: "),
        (b"a: b: c", "bad.yaml:1 is not YAML: "),
        (b"a: !!bool b", "bad.yaml:1 is not YAML: "),
        (b"\xff\xfe\xff", "is not UTF-8 text"),
        (b"\x00", "is not YAML"),
        (b"tables: 3", "`tables` is not a list"),
        (b"tables: {a: b}", "`tables` is not a list"),
        (b"tables: [3]", "has a table (share.schema.name) and a location"),
    ],
)
@pytest.mark.usefixtures("no_spark")
def test_a_file_of_tables_that_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes, words: str
) -> None:
    bad, profile = tmp_path / "bad.yaml", tmp_path / "p.share"
    bad.write_bytes(text)
    profile.write_text(json.dumps(SHARE))
    assert cli.main(["verify", "-c", str(bad), "--profile", str(profile)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("place", ["missing/report.xml", "."])
def test_a_report_that_cannot_be_written_fails_before_the_work(
    tmp_path: Path, listed: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    profile = tmp_path / "p.share"
    profile.write_text(json.dumps(SHARE))
    report = tmp_path / place
    assert cli.main(["verify", "-c", str(listed), "--profile", str(profile), "--junit", str(report)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(report) in line


def test_incremental_needs_the_results_of_earlier_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "-c", "none.yaml", "--profile", "none.share", "--incremental"]) == 1
    assert "--incremental needs --results" in capsys.readouterr().err
