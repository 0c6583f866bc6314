"""The official Python client, which runs in a separate environment and process."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("official_client_program.py")


class ClientError(Exception):
    """Raised with the text of an exception of the official client."""


@dataclass
class OfficialClient:
    """One process of the client; calls are answered in turn."""

    process: subprocess.Popen[str]

    def call(self, operation: str, profile: Path, table: str | None = None, **arguments: Any) -> Any:
        """Runs one of the program's operations. Raises ClientError with what the client raised."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"call": operation, "profile": str(profile), **arguments}
        self.process.stdin.write(json.dumps(request | ({"table": table} if table else {})) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer["value"]

    def rows(
        self, profile: Path, table: str, columns: list[str] | None = None, **options: Any
    ) -> list[tuple]:
        """Rows of a snapshot, in any order, cells as JSON spells them."""
        return chosen(self.call("load", profile, table, **options), columns)

    def changes(self, profile: Path, table: str, columns: list[str], **options: Any) -> list[tuple]:
        """Rows of the change data feed."""
        return chosen(self.call("changes", profile, table, **options), columns)


def chosen(frame: dict[str, Any], columns: list[str] | None) -> list[tuple]:
    """Some columns of a frame as sorted tuples."""
    places = [frame["columns"].index(column) for column in columns or frame["columns"]]
    return sorted((tuple(row[place] for place in places) for row in frame["rows"]), key=repr)


@pytest.fixture(scope="session")
def official_client(
    client_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OfficialClient]:
    """A process of the client for all tests."""
    errors = tmp_path_factory.mktemp("official-client") / "stderr"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [str(client_python), str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        yield OfficialClient(process)
        process.stdin.close()
        process.wait(30)
