"""Columns in `gateway.cache.directory`: shared by workers, found after a restart, not awaited by answers."""

import hashlib
import os
import resource
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.gateway_process import RunningGateway, running_gateway, share
from support.nightly import at_night
from support.processes import free_port, wait_for_port
from support.waiting import wait_until
from tables.large_logs import make_log

MIB = 1024 * 1024
ADDS = 20_000
OPERATOR = "an-operator-of-the-tests"

READS_UNDER_A_FILE_SIZE_LIMIT = """
import resource, select, sys
from gateway import _native
_, table, directory, limit = sys.argv
_native.configure_cache_directory(directory, disk_bytes=1 << 30)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
storage = _native.Storage.local()
signer = _native.Signer.local("http://localhost/files/t", key=b"k" * 32)
options = _native.AnswerOptions(
    _native.Signers(table, signer), response_format="parquet", now_ms=0, lifetime_seconds=3600
)
for attempt in range(3):
    chunks = _native.Table(storage, table).snapshot().files(options)
    lines = 0
    while True:
        chunk = chunks.next_chunk()
        if chunk is not None:
            lines += bytes(chunk).count(b"\\n")
        elif chunks.done:
            break
        else:
            select.select([chunks.fileno()], [], [])
    print(lines)
    _native.wait_for_cache_directory()
print(dict(_native.cache_directory_counts())["failed"])
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large") / "t"
    maker = make_log()
    maker.make_log(root, maker.LogOptions(adds=ADDS, commits=3))
    return root


@contextmanager
def serving(
    tmp_path: Path, table: Path, directory: Path, *, workers: int = 1
) -> Iterator[tuple[RunningGateway, int]]:
    """A gateway with a cache directory, and the port of its metrics."""
    port = free_port()
    admin = {"port": port, "tokenSha256": hashlib.sha256(OPERATOR.encode()).hexdigest()}
    cache = {"directory": str(directory), "diskBytes": 1 << 30}
    section = {"admin": admin, "cache": cache, "drainDelaySeconds": 0}
    with running_gateway(tmp_path, [share("s", {"t": str(table)})], section, workers=workers) as gateway:
        # The operator's listener comes when all workers are there.
        wait_for_port(port, gateway.process)
        yield gateway, port


def counted(port: int, outcome: str) -> float:
    """The number of events of an outcome, over all workers."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {OPERATOR}"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        lines = response.read().decode().splitlines()
    wanted = f'delta_gateway_cache_files_total{{outcome="{outcome}"}}'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted))


def file_ids(gateway: RunningGateway) -> list[str]:
    answer = gateway.query("s.default.t")
    assert answer.status == 200
    return [line["file"]["id"] for line in answer.lines if "file" in line]


def columns_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.columns"))


@pytest.mark.parametrize("other_file_system", [False, *at_night(True)])
def test_columns_are_found_again_after_a_restart(
    tmp_path: Path, table: Path, *, other_file_system: bool
) -> None:
    memory = Path("/dev/shm")
    if other_file_system and (not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev):
        pytest.skip("there is no other file system")
    directory = (memory / f"columns-{os.getpid()}") if other_file_system else tmp_path / "columns"
    try:
        with serving(tmp_path, table, directory) as (gateway, port):
            cold = file_ids(gateway)
            wait_until(lambda: counted(port, "written") == 1)
            assert file_ids(gateway) == cold
        files = columns_files(directory)
        assert len(files) == 1
        assert files[0].stat().st_mode & 0o777 == 0o600
        assert directory.stat().st_mode & 0o777 == 0o700
        with serving(tmp_path, table, directory) as (gateway, port):
            assert file_ids(gateway) == cold
            wait_until(lambda: counted(port, "hit") == 1)
            assert counted(port, "written") == 0
    finally:
        if other_file_system:
            for file in directory.glob("*"):
                file.unlink()
            directory.rmdir()


@pytest.mark.nightly
def test_workers_share_one_file(tmp_path: Path, table: Path) -> None:
    directory = tmp_path / "columns"
    with serving(tmp_path, table, directory, workers=2) as (gateway, port):
        answers = [file_ids(gateway) for _ in range(12)]
        assert all(answer == answers[0] for answer in answers)
        wait_until(lambda: counted(port, "written") == 1)
        assert [file_ids(gateway) for _ in range(12)] == answers
        assert counted(port, "invalid") == 0
    assert len(columns_files(directory)) == 1


def test_an_altered_file_is_counted_and_written_again(tmp_path: Path, table: Path) -> None:
    directory = tmp_path / "columns"
    with serving(tmp_path, table, directory) as (gateway, port):
        cold = file_ids(gateway)
        wait_until(lambda: counted(port, "written") == 1)
    (file,) = columns_files(directory)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with serving(tmp_path, table, directory) as (gateway, port):
        assert file_ids(gateway) == cold
        wait_until(lambda: counted(port, "invalid") == 1)
        assert file_ids(gateway) == cold
        wait_until(lambda: counted(port, "written") == 1)


def test_a_disk_that_is_full_costs_no_answer(tmp_path: Path, table: Path) -> None:
    directory = tmp_path / "columns"
    limit = MIB
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            READS_UNDER_A_FILE_SIZE_LIMIT,
            str(table),
            str(directory),
            str(limit),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *answers, failed = map(int, done.stdout.split())
    assert len(answers) == 3
    assert len(set(answers)) == 1
    assert answers[0] > ADDS
    assert failed == 1, "the disk is not tried again at once"
    assert [file.name for file in directory.iterdir()] == ["lock"]


def test_a_server_whose_disk_is_full_answers_as_before(tmp_path: Path, table: Path) -> None:
    directory = tmp_path / "columns"
    with serving(tmp_path, table, directory) as (gateway, port):
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (MIB, MIB))
        cold = file_ids(gateway)
        wait_until(lambda: counted(port, "failed") == 1)
        assert file_ids(gateway) == cold
    assert [file.name for file in directory.iterdir()] == ["lock"]


def test_a_directory_that_others_can_write_to_stops_the_start(tmp_path: Path, table: Path) -> None:
    directory = tmp_path / "columns"
    directory.mkdir()
    directory.chmod(0o777)
    with (
        pytest.raises(RuntimeError, match=r"gateway\.cache\.directory .* other users can write to it"),
        serving(tmp_path, table, directory),
    ):
        pass
