"""Logs with paths outside of their tables, as of shallow clones: only `allowedRoots` are accessible."""

from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import RunningGateway, running_gateway, share, storage
from support.odd_tables import write_log
from support.raw_http import get
from support.versitygw import VersityGw

CONTENT = b"PAR1 not really PAR1"


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A source with data, one beside it, and clones that point into either."""
    for name in ("source", "source-of-others"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a b+%.parquet").write_bytes(CONTENT)
    source = tmp_path / "source"
    paths = {
        "inside": f"file://{source}/a%20b+%25.parquet",
        "plain": f"{source}/a%20b+%25.parquet",
        "beside": f"file://{tmp_path}/source-of-others/a%20b+%25.parquet",
        "climbing": f"file://{source}/../source-of-others/a%20b+%25.parquet",
        "climbing_encoded": f"file://{source}/%2e%2e/source-of-others/a%20b+%25.parquet",
    }
    for name, path in paths.items():
        write_log(tmp_path / "tables" / name, {path: CONTENT})
    return tmp_path


def url_of(gateway: RunningGateway, table: str) -> str:
    answer = gateway.query(f"clones.default.{table}")
    assert answer.status == 200, answer.body
    url: str = answer.lines[2]["file"]["url"]
    return url


def served(directory: Path, roots: list[str], tables: dict[str, str], **section: Any):
    section = {"allowedRoots": roots, "drainDelaySeconds": 0, **section}
    return running_gateway(directory, [share("clones", tables)], section)


def test_a_clone_reads_files_of_an_allowed_root_only(places: Path) -> None:
    tables = {path.name: str(path) for path in (places / "tables").iterdir()}
    with served(places, [str(places / "source")], tables) as gateway:
        for table in ("inside", "plain"):
            assert get(url_of(gateway, table)) == (200, CONTENT)
        for table in ("beside", "climbing", "climbing_encoded"):
            answer = gateway.query(f"clones.default.{table}")
            assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED"), table
            assert str(places) not in answer.body.decode()
            assert "source" not in answer.body.decode()


def test_without_allowed_roots_a_clone_is_refused(places: Path) -> None:
    with served(places, [], {"inside": str(places / "tables/inside")}) as gateway:
        answer = gateway.query("clones.default.inside")
        assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED")


def test_a_clone_in_one_bucket_reads_from_another_by_that_ones_keys(
    places: Path, versitygw: VersityGw
) -> None:
    write_log(places / "remote", {"s3://roots-source/kept here/a%20b+%25.parquet": CONTENT})
    versitygw.upload(places / "source", "roots-source", "kept here")
    versitygw.upload(places / "remote", "roots-clone", "t")
    storages = [storage(versitygw, f"s3://roots-{name}/") for name in ("source", "clone")]
    roots = ["s3://roots-source/kept here"]
    with served(places, roots, {"t": "s3://roots-clone/t"}, storages=storages) as gateway:
        assert get(url_of(gateway, "t")) == (200, CONTENT)
    with served(
        places, ["s3://roots-source/kept"], {"t": "s3://roots-clone/t"}, storages=storages
    ) as gateway:
        assert gateway.query("clones.default.t").status == 403
