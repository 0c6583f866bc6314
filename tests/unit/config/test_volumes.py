"""Volumes of a configuration: which directories are refused, and why."""

from typing import Any

import pytest
import yaml

from gateway.config import Config, ConfigError, loads

ROLE = "arn:aws:iam::123456789012:role/reader"
STORAGES: list[dict[str, Any]] = [
    {"prefix": "s3://lake/", "roleArn": ROLE},
    {"prefix": "s3://plain/"},
    {"prefix": "s3://other/", "endpoint": "https://minio.example", "directoryRoleArn": ROLE},
    {"prefix": "abfss://flat@acct.dfs.core.windows.net/"},
    {"prefix": "gs://google/"},
    {"prefix": "s3://google/", "endpoint": "https://storage.googleapis.com"},
]


def configured(*volumes: Any, tables: Any = (), others: Any = (), **section: Any) -> Config:
    """A configuration with volumes in a share, and further ones in another share."""
    named = [{"name": f"v{number}", "location": location} for number, location in enumerate(volumes)]
    further = [{"name": f"w{number}", "location": location} for number, location in enumerate(others)]
    shared = [{"name": f"t{number}", **table} for number, table in enumerate(tables)]
    settings = {
        "version": 1,
        "shares": [
            {"name": "s", "schemas": [{"name": "d", "volumes": named}, {"name": "e", "tables": shared}]},
            {"name": "o", "schemas": [{"name": "d", "volumes": further}]},
        ],
        "gateway": {"storages": STORAGES, "anonymous": True, **section},
    }
    return loads(yaml.safe_dump(settings))


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("/data/files", "local files have no credentials"),
        ("s3://lake", "its root is a whole bucket"),
        ("s3://plain/files", "give directoryRoleArn or roleArn"),
        ("abfss://flat@acct.dfs.core.windows.net/files", "flat namespace"),
        ("s3://other/files", "give stsEndpoint"),
    ],
)
def test_a_directory_without_limited_credentials_is_no_volume(location: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r"the volume s\.d\.v0 cannot be shared: .*") as refused:
        configured(location)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"location": "s3://lake/files"}, "the files of s.e.t0 lie within its directory"),
        ({"location": "s3://lake/files/t"}, "the files of s.e.t0 lie within its directory"),
        ({"location": "s3a://lake/files/t/"}, "the files of s.e.t0 lie within its directory"),
        ({"location": "s3://LAKE/files/t"}, "the files of s.e.t0 lie within its directory"),
        (
            {"location": "s3://points-123-s3alias/files/t"},
            "the files of s.e.t0 (by the alias of an access point) lie within its directory",
        ),
        ({"location": "s3://lake"}, "its directory lies within that of s.e.t0"),
    ],
)
def test_a_volume_shares_no_file_with_a_table(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured("s3://lake/files", tables=[table])
    assert problem in str(refused.value)
    assert "move one of them, or remove the volume" in str(refused.value)


def test_a_volume_shares_no_file_with_the_further_directories_of_a_table() -> None:
    table = {
        "location": "s3://lake/t",
        "historyShared": True,
        "accessModes": ["dir"],
        "auxiliaryLocations": ["s3://lake/files/source"],
    }
    with pytest.raises(ConfigError, match=r"the files of s\.e\.t0 lie within its directory"):
        configured("s3://lake/files", tables=[table], allowedRoots=["s3://lake/files"])


def test_a_volume_contains_no_directory_with_files_of_shallow_clones() -> None:
    for root in ("s3://lake/files", "s3://lake/files/sources"):
        with pytest.raises(ConfigError, match=r"the files of gateway\.allowedRoots lie within"):
            configured("s3://lake/files", allowedRoots=[root])
    # Such a root may be a whole bucket.
    configured("s3://lake/files", allowedRoots=["s3://lake"])


@pytest.mark.parametrize("other", ["s3://lake/files/inner", "s3://lake"])
def test_a_volume_shares_no_file_with_a_volume_of_another_directory(other: str) -> None:
    with pytest.raises(ConfigError):
        configured("s3://lake/files", other)
    with pytest.raises(ConfigError):
        configured("s3://lake/files", others=[other])


def test_a_bucket_of_google_is_one_bucket_by_both_of_its_interfaces() -> None:
    with pytest.raises(ConfigError, match="lie within its directory"):
        configured("gs://google/files", tables=[{"location": "s3://google/files/t"}])


def test_neighbours_and_the_same_directory_in_another_share_are_accepted() -> None:
    config = configured(
        "s3://lake/files",
        "s3://lake/files2",
        others=["s3a://lake/files"],
        tables=[{"location": "s3://lake/t"}],
    )
    assert [volume.location.key for volume in config.shares[0].schemas[0].volumes] == ["files", "files2"]


def test_recipients_with_networks_are_refused_where_credentials_work_from_elsewhere() -> None:
    alice = {"name": "alice", "tokens": [{"sha256": "a" * 64}], "networks": ["192.0.2.0/24"]}
    with pytest.raises(ConfigError, match="the recipient alice has networks"):
        configured("gs://google/files", recipients=[{**alice, "shares": ["s"]}])
    configured("gs://google/files", recipients=[{**alice, "shares": ["o"]}])
    configured("s3://lake/files", recipients=[{**alice, "shares": ["s"]}])


@pytest.mark.parametrize(
    ("volumes", "problem"),
    [
        ([{"name": "a"}], "location"),
        ([{"name": "a/b", "location": "s3://lake/f"}], "name"),
        ([{"name": "a", "location": "s3://lake/f"}, {"name": "A", "location": "s3://lake/g"}], "volumes"),
        ([{"name": "a", "location": "s3://lake/f", "comment": "x" * 65_537}], "comment"),
    ],
)
def test_malformed_volumes_are_refused_by_their_key(volumes: Any, problem: str) -> None:
    settings = {
        "version": 1,
        "shares": [{"name": "s", "schemas": [{"name": "d", "volumes": volumes}]}],
        "gateway": {"storages": STORAGES, "anonymous": True},
    }
    with pytest.raises(ConfigError, match=problem):
        loads(yaml.safe_dump(settings))
