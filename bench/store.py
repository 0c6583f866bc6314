"""The object store of a run: versitygw, an S3 server that verifies signatures, started as in the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.versitygw import VersityGw

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path.home() / ".cache" / os.environ.get("XDG_CACHE_HOME", "") / "delta-sharing-gateway"
BUCKET = "bench"


@dataclass
class Store:
    """A running server and the tables in it."""

    server: VersityGw
    _uploaded: set[str] = field(default_factory=set)

    def location(self, directory: Path, name: str) -> str:
        """Return the location of a table; upload its log on first use."""
        if name not in self._uploaded:
            self.server.upload(directory, BUCKET, name)
            self._uploaded.add(name)
        return f"s3://{BUCKET}/{name}"

    @property
    def section(self) -> dict[str, object]:
        """The entry of the bucket in `gateway.storages`."""
        return {
            "prefix": f"s3://{BUCKET}/",
            "region": self.server.region,
            "endpoint": self.server.endpoint,
            "pathStyle": True,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The credentials, as the environment of a server has them."""
        return {
            "AWS_ACCESS_KEY_ID": self.server.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.server.secret_access_key,
        }


def installed() -> Path | None:
    """Return the program that the test command has installed; None without one."""
    return next(iter(sorted((CACHE / "bin").glob("versitygw-*"), reverse=True)), None)


@contextmanager
def running(program: Path, directory: Path) -> Iterator[Store]:
    """Run the server over an empty directory until the block ends."""
    # At the end: `run` is a module here and among the tests.
    sys.path.append(str(ROOT / "tests"))
    from support.versitygw import running as serve  # noqa: PLC0415

    directory.mkdir(parents=True)
    with serve(program, directory) as server:
        yield Store(server)
