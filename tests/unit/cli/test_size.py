"""`delta-gateway size`: the model, its measured figures, and the tables that it measures."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.documentation import codes, page, rows, section
from tables.demo import ROWS
from tables.large_logs import make_log

from gateway import _native
from gateway.__main__ import main
from gateway.cli import sizing
from gateway.cli.size import cores, in_bytes, measure
from gateway.cli.sizing import Load, TableSize, need
from gateway.config import load
from gateway.state import GatewayState
from gateway.tables.native import AnswerOptions
from gateway.tables.runtime import read_whole

MIB = 1024 * 1024
LOAD = Load(
    requests_per_day=100_000,
    busiest_hour=0.2,
    selected=1.0,
    client_bytes_per_second=20e6,
    replicas=2,
    workers=1,
    cache_bytes=512 * MIB,
    has_cache_directory=False,
    stream_bytes=32 * MIB,
    max_staleness_seconds=0,
    compressed=True,
)
SCALES = {"µs": 1e-6, "MB": 1e6, "": 1.0}


def tables(number: int, files: int) -> list[TableSize]:
    return [TableSize(f"t{index}", files, 373, 923, is_local=False) for index in range(number)]


def share(file: Path, locations: dict[str, Path], section: str = "{}") -> Path:
    entries = ", ".join(f"{{name: {name}, location: {place}}}" for name, place in locations.items())
    shares = f"[{{name: s, schemas: [{{name: d, tables: [{entries}]}}]}}]"
    file.write_text(f"version: 1\nshares: {shares}\ngateway: {section}\n")
    return file


def test_the_figures_are_those_of_the_documentation() -> None:
    listed = {}
    for row in rows(section(page("sizing"), "Figures")):
        number, unit = re.fullmatch(r"([\d.]+) ?(.*)", row[1]).groups()
        listed[codes(row[0])[0]] = float(number) * SCALES[unit]
    assert listed == {name: pytest.approx(getattr(sizing, name)) for name in listed}
    named = {
        name for name in vars(sizing) if re.fullmatch(r"[A-Z0-9_]+(_SECONDS|_BYTES|_RATIO|_FACTOR)", name)
    }
    assert named - listed.keys() == {"COLUMN_FILE_BYTES"}


def test_the_examples_of_the_documentation_are_computed() -> None:
    lines = [line for line in section(page("sizing"), "Examples").splitlines() if re.match(r"\| \d", line)]
    assert len(lines) >= 6
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        number, files, requests = (int(cell.replace(",", "")) for cell in cells[:3])
        replicas, workers = map(int, cells[3].split(" \N{MULTIPLICATION SIGN} "))
        example = replace(
            LOAD,
            requests_per_day=requests,
            replicas=replicas,
            workers=workers,
            cache_bytes=int(cells[4].removesuffix(" MiB")) * MIB,
            has_cache_directory=workers > 1,
        )
        found = need(tables(number, files), example)
        shown = [in_bytes(found.column_bytes), f"{found.cores:.2f}", cores(found.replica_cores)]
        assert cells[5:] == [*shown, in_bytes(found.replica_bytes)], line


def test_more_of_anything_never_needs_less() -> None:
    small = need(tables(10, 100_000), LOAD)
    for more in (
        need(tables(20, 100_000), LOAD),
        need(tables(10, 200_000), LOAD),
        need(tables(10, 100_000), replace(LOAD, requests_per_day=10_000_000)),
        need(tables(10, 100_000), replace(LOAD, workers=4)),
        need(tables(10, 100_000), replace(LOAD, client_bytes_per_second=1e5)),
        need(tables(10, 100_000), replace(LOAD, stream_bytes=512 * MIB)),
    ):
        assert more.replica_cores >= small.replica_cores
        assert more.replica_bytes >= small.replica_bytes
        assert (more.replica_cores, more.replica_bytes) != (small.replica_cores, small.replica_bytes)


def test_predicates_replicas_and_an_older_version_need_less() -> None:
    many = replace(LOAD, requests_per_day=10_000_000)
    full = need(tables(10, 100_000), many)
    assert need(tables(10, 100_000), replace(many, selected=0.01)).cores < full.cores / 10
    assert need(tables(10, 100_000), replace(many, replicas=3)).replica_cores < full.replica_cores
    assert (
        need(tables(10, 100), replace(many, max_staleness_seconds=5)).cores
        < need(tables(10, 100), many).cores
    )
    assert need(tables(10, 100_000), replace(many, compressed=False)).cores < full.cores
    assert need([], many).cores == 0


def test_columns_that_do_not_fit_are_read_from_the_log() -> None:
    large, hot = tables(10, 1_000_000), replace(LOAD, cache_bytes=6 * 1024 * MIB)
    assert not need(large, LOAD).columns_fit
    assert need(large, hot).columns_fit
    assert need(large, LOAD).cores > need(large, hot).cores
    assert need(large, LOAD).replica_bytes < need(large, hot).replica_bytes
    # The budget is divided by the workers, and files of a directory are shared by them.
    assert not need(large, replace(hot, workers=2)).columns_fit
    assert need(large, replace(hot, workers=2, has_cache_directory=True)).columns_fit


def test_the_measured_columns_and_lines_are_those_of_an_answer(tmp_path: Path) -> None:
    files, script = 20_000, make_log()
    script.make_log(tmp_path / "log", script.LogOptions(adds=files))
    state = GatewayState.of(
        load(share(tmp_path / "share.yaml", {"large": tmp_path / "log"}), needs_readers=False)
    )
    problems: list[str] = []
    (size,) = measure(state, problems)
    assert problems == []
    state = GatewayState.of(state.config)
    opened = state.tables.open(next(iter(state.catalog.tables())))
    options = AnswerOptions(
        opened.signers, response_format="delta", now_ms=state.now_ms(), lifetime_seconds=3600
    )
    before = _native.cache_used_bytes()
    answer = b""
    snapshot = opened.snapshot()
    # The second answer is the one that builds columns.
    for _ in range(3):
        answer = read_whole(snapshot.files(options))
    state.tables.close()
    assert size.files == snapshot.totals()[0]
    assert size.answer_bytes == pytest.approx(len(answer), rel=0.02)
    assert size.column_bytes == pytest.approx(_native.cache_used_bytes() - before, rel=0.15)


def test_the_tables_of_a_configuration_and_their_need_are_printed(
    demo_tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = share(tmp_path / "share.yaml", {name: demo_tables / name for name in ROWS})
    assert main(["size", "-c", str(file), "--requests-per-day", "5e6", "--selected", "10%"]) == 0
    printed = capsys.readouterr().out
    assert all(f"s.d.{name}" in printed for name in ROWS)
    assert (
        "5,000,000 queries a day, 20% of them in the busiest hour (277.78 a second), each for 10%" in printed
    )
    assert "Each of 2 replicas with 1 worker, with one replica away:" in printed
    assert "cache directory" not in printed
    caches = f"{{cache: {{directory: {tmp_path / 'columns'}}}}}"
    file = share(tmp_path / "share.yaml", {"orders": demo_tables / "orders"}, caches)
    assert main(["size", "-c", str(file), "--replicas", "1"]) == 0
    assert "cache directory" in capsys.readouterr().out
    assert not (tmp_path / "columns").exists()
    file = share(tmp_path / "share.yaml", {"orders": demo_tables / "orders"}, "{cache: {memoryBytes: 0}}")
    assert main(["size", "-c", str(file)]) == 0
    assert "The columns do not fit in gateway.cache.memoryBytes, 0 bytes" in capsys.readouterr().out


def test_a_table_that_cannot_be_read_is_named(
    demo_tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"orders": demo_tables / "orders", "absent": tmp_path / "absent"}
    assert main(["size", "-c", str(share(tmp_path / "share.yaml", places))]) == 1
    printed = capsys.readouterr().out
    assert "s.d.orders" in printed
    assert "s.d.absent cannot be read: the table has no Delta log" in printed
    assert main(["size", "-c", str(share(tmp_path / "share.yaml", {}))]) == 0
    assert capsys.readouterr().out == "No table is shared.\n"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--requests-per-day", "0"),
        ("--requests-per-day", "nan"),
        ("--requests-per-day", "many"),
        ("--busiest-hour", "101"),
        ("--selected", "-1"),
        ("--replicas", "0"),
        ("--workers", "1.5"),
        ("--client-rate", "inf"),
    ],
)
def test_a_load_that_cannot_be_is_a_wrong_command_line(option: str, value: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["size", "-c", "share.yaml", f"{option}={value}"])
    assert ended.value.code == 2
