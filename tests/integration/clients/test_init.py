"""`delta-gateway init` end to end: the share that it writes and serves, read by the official client."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.commands import forked_command
from support.nightly import at_night
from support.official_client import OfficialClient
from support.processes import free_port, gateway_command, package_environment, wait_for_port
from support.versitygw import VersityGw
from tables.demo import ORDERS, ROWS, in_any_order

COLUMNS = ["order", "customer", "amount"]


@contextmanager
def initialized(directory: Path, *arguments: str | Path, **variables: str) -> Iterator[str]:
    """Runs `init --serve` in a directory until the block ends; gives what it printed."""
    port, out = free_port(), directory / "out.txt"
    words = ("init", *arguments, "--recipient", "alice", "--port", str(port), "--serve")
    environment = package_environment(**variables)
    with (
        out.open("wb") as output,
        subprocess.Popen(
            gateway_command(*words), cwd=directory, env=environment, stdout=output, stdin=subprocess.DEVNULL
        ) as process,
    ):
        try:
            wait_for_port(port, process)
            yield out.read_text()
        finally:
            process.terminate()
    checked = forked_command("check", "-c", "share.yaml", directory=directory, **variables)
    assert checked.returncode == 0, checked.stdout


def table_of(printed: str) -> tuple[Path, str]:
    """The profile and the table of the printed Python command."""
    profile, table = re.findall(r'load_as_pandas\("(.*)#(.*)"\)', printed)[0]
    return Path(profile), table


def test_a_wrong_region_is_named_with_the_option_that_sets_it(versitygw: VersityGw, tmp_path: Path) -> None:
    ended = init_of_an_empty_bucket(
        versitygw, tmp_path, "s3://init-empty/", versitygw.secret_access_key, "mars-north-1"
    )
    assert ended.returncode == 1
    assert "region" in ended.stderr
    assert ended.stderr.endswith("the operator sets `region`, here by --region\n")


def init_of_an_empty_bucket(
    versitygw: VersityGw, directory: Path, location: str, key: str, region: str
) -> subprocess.CompletedProcess[str]:
    (directory / "other").mkdir()
    (directory / "other" / "file").write_text("")
    versitygw.upload(directory / "other", "init-empty", "nothing")
    (directory / "here").mkdir()
    options = ["--recipient", "alice", "--endpoint", versitygw.endpoint, "--region", region]
    keys = {"AWS_ACCESS_KEY_ID": versitygw.access_key_id, "AWS_SECRET_ACCESS_KEY": key}
    return subprocess.run(
        gateway_command("init", location, *options),
        cwd=directory / "here",
        env={**package_environment(), **keys},
        capture_output=True,
        text=True,
        check=False,
    )


def test_directories_with_blanks_and_other_letters_are_shared(
    demo_tables: Path, official_client: OfficialClient, tmp_path: Path
) -> None:
    shutil.copytree(demo_tables, tmp_path / "ware ${house} 100%" / "Zürich 東京")
    with initialized(tmp_path, "ware ${house} 100%") as printed:
        profile, table = table_of(printed)
        share = table.rpartition(".")[0]
        assert share == "ware_house_100.Zürich_東京"
        for name, rows in ROWS.items():
            assert len(official_client.rows(profile, f"{share}.{name}")) == len(rows)
        curl = printed.split("curl:\n")[1].splitlines()[0].strip()
        listed = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True)
        assert all(f'"{name}"' in listed.stdout for name in ROWS)


@pytest.mark.parametrize("prefix", ["/ware house/50%+=ü", *at_night("")])
def test_a_bucket_is_shared(
    demo_tables: Path, versitygw: VersityGw, official_client: OfficialClient, tmp_path: Path, prefix: str
) -> None:
    bucket = f"init-{len(prefix)}"
    for name in ("orders", "cities"):
        versitygw.upload(demo_tables / name, bucket, f"{prefix}/eu/{name}".removeprefix("/"))
    keys = {
        "AWS_ACCESS_KEY_ID": versitygw.access_key_id,
        "AWS_SECRET_ACCESS_KEY": versitygw.secret_access_key,
        "AWS_REGION": versitygw.region,
        "AWS_ENDPOINT_URL": versitygw.endpoint,
    }
    with initialized(tmp_path, f"s3://{bucket}{prefix}", **keys) as printed:
        profile, table = table_of(printed)
        schema = table.rpartition(".")[0]
        assert schema == f"{'50_ü' if prefix else bucket}.eu"
        assert official_client.rows(profile, f"{schema}.orders", COLUMNS) == in_any_order(ORDERS)
        assert len(official_client.rows(profile, f"{schema}.cities")) == len(ROWS["cities"])
    assert versitygw.secret_access_key not in (tmp_path / "share.yaml").read_text()


@pytest.mark.parametrize(
    ("location", "key", "words"),
    [
        ("s3://init-none/x", "tests-secret-key", "there is no bucket 'init-none'"),
        ("s3://init-empty/nothing/here", "tests-secret-key", "no Delta table (a directory with _delta_log)"),
        ("s3://init-empty/", "a-wrong-key", "cannot be read: "),
    ],
)
def test_a_bucket_without_tables_or_access_is_one_line(
    versitygw: VersityGw, tmp_path: Path, location: str, key: str, words: str
) -> None:
    ended = init_of_an_empty_bucket(versitygw, tmp_path, location, key, versitygw.region)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert words in ended.stderr
    assert list((tmp_path / "here").iterdir()) == []
