"""Damaged tables over HTTP: each fails alone, with a clear error that does not show its location."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.gateway_process import Answer, RunningGateway, running_gateway, share, table_path
from tables.golden import EVERY_FEATURE
from tables.random_logs import Log

SECRET = "a-directory-that-nobody-may-see"
SPARED = "whole"


def missing_commit(root: Path) -> None:
    (root / "_delta_log" / f"{1:020}.json").unlink()


def broken_json(root: Path) -> None:
    (root / "_delta_log" / f"{2:020}.json").write_text('{"add":{"path":"x"')


def noise(root: Path) -> None:
    (root / "_delta_log" / f"{2:020}.json").write_bytes(bytes(range(256)) * 20)


def deep_json(root: Path) -> None:
    (root / "_delta_log" / f"{2:020}.json").write_text('{"add":{"path":' + "[" * 2_000_000)


def wrong_types(root: Path) -> None:
    action = {
        "add": {"path": 7, "size": "many", "partitionValues": [], "modificationTime": {}, "dataChange": 1}
    }
    (root / "_delta_log" / f"{2:020}.json").write_text(json.dumps(action) + "\n")


def no_metadata(root: Path) -> None:
    path = root / "_delta_log" / f"{0:020}.json"
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines() if "metaData" not in line))


def broken_checkpoint(root: Path) -> None:
    log = root / "_delta_log"
    (log / f"{2:020}.checkpoint.parquet").write_bytes(b"PAR1 and no more PAR1")
    for version in range(3):
        (log / f"{version:020}.json").unlink()


def climbing_path(root: Path) -> None:
    add_path(root, "../other/x.parquet")


def climbing_encoded_path(root: Path) -> None:
    add_path(root, "%2e%2e/other/x.parquet")


def foreign_path(root: Path) -> None:
    add_path(root, "file:///etc/passwd")


def add_path(root: Path, path: str) -> None:
    add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    (root / "_delta_log" / f"{3:020}.json").write_text(json.dumps({"add": add}) + "\n")


CORRUPT = (500, "INTERNAL_ERROR")
DAMAGES = [
    missing_commit,
    broken_json,
    noise,
    deep_json,
    wrong_types,
    no_metadata,
    broken_checkpoint,
]
PATHS = [climbing_path, climbing_encoded_path, foreign_path]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A share with a table for each damage, and one that is whole."""
    directory = tmp_path_factory.mktemp("damaged") / SECRET
    roots = {damage.__name__: directory / damage.__name__ for damage in [*DAMAGES, *PATHS]}
    for root in [*roots.values(), directory / SPARED]:
        write_small_log(root)
    for damage in [*DAMAGES, *PATHS]:
        damage(roots[damage.__name__])
    tables = {name: str(root) for name, root in roots.items()} | {SPARED: str(directory / SPARED)}
    with running_gateway(tmp_path_factory.mktemp("serve"), [share("damaged", tables)]) as served:
        yield served


def write_small_log(root: Path) -> None:
    """Three versions, a file each."""
    log = Log(root, partitioned=False)
    for number in (1, 2):
        add = {
            "path": f"{number}.parquet",
            "partitionValues": {},
            "size": 5,
            "modificationTime": 1,
            "dataChange": True,
        }
        log.commit([{"add": add}])


def refused(answer: Answer) -> None:
    """Checks for an error of the protocol whose message has no path."""
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert set(answer.json) == {"errorCode", "message"}
    assert (answer.status, answer.json["errorCode"]) == CORRUPT, answer.body
    assert answer.json["message"]
    assert SECRET not in answer.body.decode()
    assert "other" not in answer.json["message"].split()
    assert "passwd" not in answer.body.decode()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_table_fails_alone(damaged: RunningGateway, damage: Callable[[Path], None]) -> None:
    refused(damaged.query(f"damaged.default.{damage.__name__}", capabilities=EVERY_FEATURE))
    capabilities = {"delta-sharing-capabilities": EVERY_FEATURE}
    path = f"{table_path(f'damaged.default.{damage.__name__}')}/metadata"
    refused(damaged.request("GET", path, headers=capabilities))
    whole = damaged.query(f"damaged.default.{SPARED}", capabilities=EVERY_FEATURE)
    assert (whole.status, len(whole.lines)) == (200, 4)


@pytest.mark.parametrize("damage", PATHS, ids=lambda damage: damage.__name__)
def test_a_path_that_leaves_the_table_gets_no_url(
    damaged: RunningGateway, damage: Callable[[Path], None]
) -> None:
    answer = damaged.query(f"damaged.default.{damage.__name__}", capabilities=EVERY_FEATURE)
    assert answer.status >= 400, answer.body
    assert b"http://" not in answer.body
    assert SECRET.encode() not in answer.body


def test_a_log_cut_at_any_byte_never_answers_with_fewer_files(tmp_path: Path) -> None:
    """The newest commit, truncated at each byte: an error, or what whole lines still say."""
    root = tmp_path / SECRET / "cut"
    write_small_log(root)
    newest = root / "_delta_log" / f"{2:020}.json"
    content = newest.read_bytes()
    (tmp_path / "serve").mkdir()
    with running_gateway(tmp_path / "serve", [share("damaged", {"cut": str(root)})]) as served:
        for length in range(len(content)):
            newest.write_bytes(content[:length])
            answer = served.query("damaged.default.cut", capabilities=EVERY_FEATURE)
            if answer.status != 200:
                refused(answer)
                continue
            # Only a cut between two lines leaves a log that a reader cannot tell from a whole one.
            assert (
                content[length : length + 1] in {b"\n", b"{"}
                or content[length - 1 : length] == b"\n"
                or length == 0
            )
        newest.write_bytes(content)
        assert len(served.query("damaged.default.cut", capabilities=EVERY_FEATURE).lines) == 4
