"""The official Python client gets its tokens from the gateway itself, and reads tables with them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.gateway_process import share
from support.official_client import ClientError, OfficialClient
from support.processes import free_port, server_process, wait_for_port
from tables.demo import ROWS

from gateway.__main__ import main

TABLE = "demo.default.cities"
WORKERS = 2


@pytest.fixture(scope="module")
def profile(demo_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The profile of a client at a gateway of two workers, without any key for clients or tokens."""
    directory = tmp_path_factory.mktemp("token-endpoint")
    config, port = directory / "share.yaml", free_port()
    shares = [share("demo", {name: str(demo_tables / name) for name in ROWS})]
    config.write_text(yaml.safe_dump({"version": 1, "host": "127.0.0.1", "port": port, "shares": shares}))
    made = directory / "acme.share"
    options = ["-c", str(config), "--share", "demo", "--oauth", "--expires", "1d", "--profile", str(made)]
    assert main(["recipient", "add", "acme", *options]) == 0
    with server_process(config, directory / "log", workers=WORKERS) as process:
        wait_for_port(port, process)
        yield made
        log = (directory / "log").read_text()
        assert "Traceback" not in log
        assert json.loads(made.read_text())["clientSecret"] not in log


def read_until_refused(client: OfficialClient, profile: Path) -> None:
    # The test's time limit ends a secret that stays in force.
    while True:
        client.call("shares", profile)


def test_the_official_client_reads_by_tokens_of_the_gateway(
    official_client: OfficialClient, profile: Path
) -> None:
    for _ in range(WORKERS):
        assert TABLE in official_client.call("shares", profile)
    rows = official_client.rows(profile, TABLE, ["city"])
    assert rows == sorted((row[0],) for row in ROWS["cities"])


def test_the_doctor_reads_by_tokens_of_the_gateway_and_names_a_wrong_secret(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", f"{profile}#{TABLE}"]) == 0
    assert "the token endpoint of the server issues tokens" in capsys.readouterr().out
    assert main(["doctor", str(wrong(profile))]) == 1
    printed = capsys.readouterr().out
    assert "-> provider: the secret was replaced, was revoked or has expired" in printed
    assert "another" not in printed


def test_a_rotated_secret_has_an_overlap_and_then_ends(
    official_client: OfficialClient, profile: Path
) -> None:
    config, rotated = str(profile.parent / "share.yaml"), profile.parent / "rotated.share"
    rotate = ["recipient", "client", "rotate", "acme", "-c", config, "--overwrite", "--profile", str(rotated)]
    assert main([*rotate, "--old-expires", "1h"]) == 0
    with pytest.raises(ClientError, match="401"):
        official_client.call("shares", wrong(rotated))
    while True:
        # Until the server has read the change.
        try:
            assert TABLE in official_client.call("shares", rotated)
            break
        except ClientError:
            continue
    assert TABLE in official_client.call("shares", profile)
    assert main(["recipient", "revoke", "acme", "-c", config]) == 0
    for ended in (profile, rotated):
        with pytest.raises(ClientError, match="401"):
            read_until_refused(official_client, ended)


def wrong(profile: Path) -> Path:
    """A profile with another secret."""
    made = profile.with_suffix(".wrong")
    made.write_text(json.dumps(json.loads(profile.read_text()) | {"clientSecret": "another"}))
    return made
