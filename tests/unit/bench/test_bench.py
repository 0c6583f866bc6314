"""The benches: the table of scenarios, the bars and the reports, nightly the answers. No time is checked."""

import importlib
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import html5lib
import pytest
from tools import ROOT, program


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of the directory bench."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    return module


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_answers_with_a_hundred_thousand_files_are_complete_and_correct(tmp_path: Path) -> None:
    command = [sys.executable, "bench/run.py", "--short", "--logs", str(tmp_path)]
    server = program("versitygw")
    if server.exists():
        command += ["--versitygw", str(server)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "answers are right"
    is_measured = "default configuration, log on S3: small query, 20 files" in done.stdout
    assert is_measured == server.exists()


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.timeout(300)
def test_many_recipients_and_tables_change_no_answer_and_changes_are_seen_by_every_worker() -> None:
    command = [sys.executable, "bench/governance.py", "--short"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "answers are right"
    for kind in ("sqlite", "postgresql"):
        assert f"{kind:10} change of a grant until 4 workers answer by it, 4 changes" in done.stdout


@pytest.mark.processes
@pytest.mark.timeout(60)
def test_the_plan_of_a_large_table_has_all_of_its_files_within_bounded_memory() -> None:
    command = [sys.executable, "bench/spark_plan.py", "--files", "40000", "--columns", "10", "--statistics"]
    figures = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert figures["files"] == 40_000
    assert figures["memory_mb"] < 600


def test_every_bar_belongs_to_a_figure_of_the_table_of_scenarios(bench: Any) -> None:
    bars, scenarios = bench("bars"), bench("scenarios")
    sizes = {
        (found.setting, found.name, quantity, files)
        for found in scenarios.SCENARIOS
        for quantity in found.quantities
        for files in found.sizes_of(bars.TEN_MILLION)
    }
    missing = [bar for bar in bars.BARS if (bar.setting, bar.scenario, bar.quantity, bar.files) not in sizes]
    assert missing == []
    assert len({(bar.setting, bar.what) for bar in bars.BARS}) == len(bars.BARS)


def test_the_default_configuration_is_measured_first(bench: Any) -> None:
    scenarios = bench("scenarios")
    order = [scenarios.SETTINGS.index(found.setting) for found in scenarios.SCENARIOS]
    assert order == sorted(order)
    assert order[0] == 0


def test_the_digest_of_an_answer_does_not_depend_on_its_chunks(bench: Any) -> None:
    drain = bench("drain")
    ids = [f"{number * 7919 << 90:032x}" for number in range(1, 40)]
    lines = "".join(f'{{"file":{{"url":"{"u" * 300}","id":"{one}","size":1}}}}\n' for one in ids)
    head = '{"metaData":{"id":"00000000-0000-0000-0000-000000000001"}}\n'
    text = (head + lines).encode()
    expected = (len(ids), f"{sum(int(one, 16) for one in ids) % (1 << 128):032x}")
    assert drain.digest_of(text) == expected
    for step in (1, 2, 39, 97, 1000):
        found = drain.Ids()
        rest = b""
        for start, end in pairwise([*range(0, len(text), step), len(text)]):
            piece = bytearray(rest + text[start:end])
            kept = found.feed(piece, len(piece))
            rest = bytes(piece[len(piece) - kept :])
        assert (found.count, found.digest()) == expected


def results(bench: Any) -> Any:
    """Figures of both settings at four sizes, one of them far above its bar."""
    figures, scenarios = bench("figures"), bench("scenarios")
    found = figures.Results(
        "python bench/run.py", "2026-11-21", {"cpu": "a & b", "cores": 2, "versions": "v"}
    )
    for setting in (scenarios.DEFAULT, scenarios.LOCAL):
        for files, seconds in ((20, 0.002), (100_000, 0.1), (1_000_000, 1.25), (10_000_000, 12.5)):
            for subject in ("gateway", "another server"):
                for quantity, value, unit in (
                    ("cold time", seconds, "s"),
                    ("hot time", seconds / 2, "s"),
                    ("cold CPU per file", 2.123456789012e-6, "s"),
                    ("cold peak above idle", 50e6 * seconds, "B"),
                ):
                    found.figures.append(
                        figures.Figure(setting, "full answer", files, subject, quantity, value, unit)
                    )
    return found


def test_the_results_of_a_run_become_one_page_with_every_bar_and_curve(bench: Any) -> None:
    page = bench("report").write_report(results(bench))
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    figures = {figure.findtext("figcaption"): figure for figure in parser.parse(page).iter("figure")}
    curves = figures["Time of a full answer"]
    assert len(curves.findall(".//{*}use")) == 16
    labels = [text.text for text in curves.iter("{http://www.w3.org/2000/svg}text")]
    assert {"10 k", "10 M", "1 ms", "10 s"} <= set(labels)
    assert all(said in page for said in ("10,000,000", "another server", "a &amp; b", "not measured"))
    assert page.index("Default configuration, log on S3") < page.index("Local log, cache off or filled")


def test_a_missed_bar_is_first_on_the_page_with_an_action(bench: Any) -> None:
    page = bench("report").write_report(results(bench))
    missed = page.index("2.12 µs; the bar is at most 1.3 µs.")
    assert missed < page.index("<table")
    assert "Run the bench again" in page
    assert not re.search(r">[^<]*\d\.\d{4,}", page)


def test_limits_in_seconds_are_scaled_by_the_slowness_of_the_machine(bench: Any) -> None:
    bars, found = bench("bars"), results(bench)
    limit = bars.Bar(
        "default configuration, log on S3", "full answer", 1_000_000, "cold CPU per file", 1.3e-6
    )
    memory = bars.Bar(limit.setting, limit.scenario, limit.files, "cold peak above idle", 60e6)

    def verdicts() -> list[str]:
        return [row.verdict for row in bars.rows(found, [limit, memory])]

    assert verdicts() == ["MISSED", "MISSED"]
    stream = ("local log, cache off or filled", "hot answer beside a stream", 1_000_000, "bare aiohttp")
    found.figures.append(bench("figures").Figure(*stream, "CPU per file", 0.8e-6, "s"))
    assert verdicts() == ["holds scaled", "MISSED"]
    assert str(bars.rows(found, [limit])[0]).endswith("2.12 µs (at most 1.3 µs; scaled 2.6 µs)")
    found.figures[-1:] = [bench("figures").Figure(*stream, "CPU per file", 0.6e-6, "s")]
    assert verdicts() == ["MISSED", "MISSED"]


def test_the_tables_of_the_page_have_a_column_for_each_size_and_a_row_for_each_peer(bench: Any) -> None:
    lines = bench("markdown").write_table(results(bench)).splitlines()
    assert "### Default configuration, log on S3" in lines
    assert "| figure | 20 files | 100,000 files | 1,000,000 files | 10,000,000 files |" in lines
    assert "| full answer: cold time | 2 ms | 100 ms | 1.25 s | 12.5 s |" in lines
    assert "| full answer: cold time (another server) | 2 ms | 100 ms | 1.25 s | 12.5 s |" in lines
    assert any("**MISSED**" in line for line in lines)


def test_all_figures_are_stored(bench: Any, tmp_path: Path) -> None:
    found = results(bench)
    found.save(tmp_path / "figures.json")
    stored = json.loads((tmp_path / "figures.json").read_text())
    assert [bench("figures").Figure(**figure) for figure in stored["figures"]] == found.figures
