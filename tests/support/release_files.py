"""Files that a release writes and later ones read: its configuration, database, sealed tokens and columns.

    python tests/support/release_files.py      writes those of the present release, before it is tagged

They are in `tests/integration/compatibility/VERSION` and are never changed after the release. They are made
by the commands and by requests to a running server.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tools
from tables.large_logs import make_log

from support.gateway_process import Answer, RunningGateway
from support.processes import (
    PACKAGE,
    free_port,
    gateway_command,
    package_environment,
    server_process,
    wait_for_port,
)
from support.waiting import wait_until

UPGRADE_FROM = "DELTA_GATEWAY_UPGRADE_FROM"
FIXTURES = tools.ROOT / "tests/integration/compatibility"
ADDS = 40
PAGE = 15
# The longest lifetime that the configuration accepts.
LIFETIME_MS = 2**53
TIME_NS = 1_700_000_000_000_000_000
TABLE = "sales.public.orders"
SHARE_YAML = f"""# Of one release; later releases read it without a warning.
version: 1
host: 127.0.0.1
port: ${{PORT}}
queryTablePageTokenTtlMs: {LIFETIME_MS}
refreshTokenTtlMs: {LIFETIME_MS}
shares:
  - name: sales
    schemas:
      - name: public
        tables:
          - {{name: orders, location: "${{TABLE}}", id: orders-1, historyShared: true}}
          - {{name: returns, location: "${{TABLE}}", id: orders-1, historyShared: true, startVersion: 1}}
  - {{name: stock, schemas: []}}
gateway:
  publicUrl: https://sharing.example.com
  recipientsDatabase: ${{STATE_DIRECTORY}}/recipients.db
  tokenKeys:
    - {{id: k1, secretFile: token-key}}
  cache: {{directory: "${{STATE_DIRECTORY}}/columns", memoryBytes: 100000000, diskBytes: 100000000}}
"""


@contextmanager
def serving(directory: Path, state: Path, table: Path, token: str) -> Iterator[RunningGateway]:
    """Serve a release's configuration with a copy of its files."""
    port, log = free_port(), state / "log"
    named = patch.dict(os.environ, variables(state, table, port))
    with named, server_process(directory / "share.yaml", log) as process:
        try:
            wait_for_port(port, process)
        except RuntimeError as failure:
            raise RuntimeError(log.read_text()) from failure
        yield RunningGateway(port, process, state / "no-profile", log, token)


def variables(state: Path, table: Path, port: int) -> dict[str, str]:
    """The variables that the configuration names."""
    return {"STATE_DIRECTORY": str(state), "TABLE": str(table), "PORT": str(port)}


def fix_times(table: Path) -> None:
    """Give the files of a log the times that tokens were made with."""
    for path in table.rglob("*"):
        os.utime(path, ns=(TIME_NS, TIME_NS))


def query(gateway: RunningGateway, **body: Any) -> Answer:
    """Query the table; the answer is complete."""
    answer = gateway.query(TABLE, body, "responseformat=parquet;includeendstreamaction=true")
    assert answer.status == 200, answer.body
    return answer


def ids(answer: Answer) -> list[str]:
    """The ids of an answer's files, in their order."""
    return [line["file"]["id"] for line in answer.lines if "file" in line]


def end(answer: Answer) -> Mapping[str, Any]:
    """The last line of an answer."""
    last: Mapping[str, Any] = answer.lines[-1]["endStreamAction"]
    return last


def present() -> Path:
    """Return the directory of the present release."""
    return FIXTURES / version("delta-sharing-gateway")


def write(target: Path) -> None:
    """Write the files of the present release."""
    target.mkdir(parents=True)
    (target / "share.yaml").write_text(SHARE_YAML)
    (target / "token-key").write_text("0123456789abcdef0123456789abcdef\n")
    maker = make_log()
    maker.make_log(target / "table", maker.LogOptions(adds=ADDS, commits=3))
    for note in (target / "table").glob("*.json"):
        note.unlink()
    fix_times(target / "table")
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch)
        os.environ.update(variables(state, target / "table", 1))
        profile = state / "profile"
        add = ["recipient", "add", "alice", "-c", target / "share.yaml", "--share", "*"]
        run_command(*add, "--profile", profile, "--allow", "127.0.0.0/8", "--comment", "a text")
        bob = ["bob", "-c", target / "share.yaml"]
        run_command("recipient", "add", *bob, "--share", "sales", "--expires", "3650d")
        run_command("recipient", "revoke", *bob)
        token = json.loads(profile.read_text())["bearerToken"]
        with serving(target, state, target / "table", token) as gateway:
            answers = _answers(gateway)
            wait_until(lambda: list((state / "columns").glob("*.columns")))
        (target / "columns").mkdir()
        for columns in (state / "columns").glob("*.columns"):
            shutil.copy(columns, target / "columns")
        shutil.copy(state / "recipients.db", target)
    (target / "answers.json").write_text(json.dumps({"bearerToken": token, **answers}, indent=1) + "\n")


def last_release() -> str | None:
    """The commit of the last tag `vX.Y.Z` before this one, or the one that is named; None without a tag."""
    named = os.environ.get(UPGRADE_FROM)
    if named is None:
        if tools.output("git", "rev-parse", "--is-shallow-repository").strip() != "false":
            raise tools.Missing(
                "a shallow clone does not tell which releases are tagged: git fetch --unshallow --tags"
            )
        tags = ["git", "tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname"]
        named = next(iter(tools.output(*tags).split()), None)
    return named and tools.output("git", "rev-parse", "--verify", f"{named}^{{commit}}").strip()


def built_release(commit: str) -> Path:
    """A directory with the `checkout` of a commit, by `git worktree`, and `packages`: what its wheel has."""
    directory = tools.CACHE / "releases" / commit

    def build() -> None:
        scripts, checkout = tools.environment("project"), directory / "checkout"
        tools.run("git", "worktree", "prune")
        tools.run("git", "worktree", "add", "--quiet", "--detach", checkout, commit)
        wheels = directory / "wheel"
        tools.run(scripts / "maturin", "build", "--release", "--locked", "--out", wheels, directory=checkout)
        install = [*tools.into(scripts / "python"), "--no-deps", "--target", directory / "packages"]
        tools.run(*install, *wheels.glob("*.whl"))

    return tools.made(directory, [commit], build)


def write_by(commit: str, target: Path) -> None:
    """Let the release of a commit write its own files: by its package and its form of this module."""
    release = built_release(commit)
    program = "import pathlib, support.release_files as r, sys; r.write(pathlib.Path(sys.argv[1]))"
    places = f"{release / 'packages'}{os.pathsep}{release / 'checkout/tests'}"
    command = [sys.executable, "-P", "-c", program, target]
    subprocess.run(command, check=True, cwd=release, env={**os.environ, "PYTHONPATH": places})


def _answers(gateway: RunningGateway) -> dict[str, Any]:
    """Tokens of the server, and what an answer that continues by them has."""
    page = query(gateway, maxFiles=PAGE)
    shares = gateway.request("GET", "/shares?maxResults=1").json
    return {
        "ids": ids(query(gateway)),
        "firstPage": ids(page),
        "pageToken": end(page)["nextPageToken"],
        "refreshToken": end(query(gateway, includeRefreshToken=True))["refreshToken"],
        "firstShares": [share["name"] for share in shares["items"]],
        "sharesPageToken": shares["nextPageToken"],
    }


def run_command(*arguments: str | Path) -> None:
    """Run a command of the gateway, where no checkout is imported in place of the package."""
    command, environment = gateway_command(*arguments), package_environment()
    subprocess.run(command, check=True, cwd=PACKAGE, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    directory = present()
    if directory.exists():
        sys.exit(f"{directory} is there: files of a release are not changed; delete it before the release")
    write(directory)
