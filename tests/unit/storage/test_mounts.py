"""Mounts are found in the system's list, without access to a mount that hangs."""

import pytest

from gateway.config import Location
from gateway.storage.local.mounts import mount_of, mount_points, parse
from gateway.storage.registry import name_of

ROWS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 0:30 / /data rw,relatime - nfs4 server:/export rw,hard
32 31 0:31 / /data/warm rw,relatime - fuse.s3 s3 rw
33 22 0:32 / /mnt/two\040words\134 rw - nfs4 server:/other rw
""".strip().splitlines()


@pytest.mark.parametrize(
    ("directory", "mount"),
    [
        ("/data/tables/orders", "/data"),
        ("/data/warm/orders", "/data/warm"),
        ("/data/warmer/orders", "/data"),
        ("/data", "/data"),
        ("/database/orders", "/"),
        ("/mnt/two words\\/orders", "/mnt/two words\\"),
        ("/", "/"),
    ],
)
def test_a_directory_lies_on_the_innermost_mount_that_holds_it(directory, mount):
    assert mount_of(directory, parse(ROWS)) == mount
    assert mount_of(directory, []) == "/"


def test_the_machine_knows_its_mounts():
    assert "/proc" in mount_points()


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("s3://bucket/t", "s3://bucket"),
        ("s3a://bucket/u", "s3://bucket"),
        ("gs://bucket/t", "gs://bucket"),
        ("abfss://one@acct.dfs.core.windows.net/t", "https://acct.blob.core.windows.net"),
        ("wasbs://two@acct.blob.core.windows.net/t", "https://acct.blob.core.windows.net"),
        ("/proc/a", "file:///proc"),
    ],
)
def test_locations_that_fail_together_have_one_name(location, name):
    assert name_of(Location.parse(location)) == name
