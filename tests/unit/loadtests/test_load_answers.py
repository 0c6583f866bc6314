"""The load tests reject cut, short, doubled and altered answers."""

import hashlib
import importlib.util
import sys

import html5lib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import ROOT

sys.path.insert(0, str(ROOT / "loadtests"))
from answers import Digest, Reader, WrongAnswer, read

HEADER = b'{"protocol":{"minReaderVersion":1}}\n{"metaData":{"id":"0123456789abcdef0123456789abcdef"}}\n'
IDS = [hashlib.md5(b"%d" % number).hexdigest() for number in range(50)]
LINES = [b'{"file":{"url":"https://x/?sig=%d","id":"%s"}}\n' % (n, id_.encode()) for n, id_ in enumerate(IDS)]
END = b'{"endStreamAction":{"nextPageToken":"t"}}\n'
RIGHT = Digest(50, sum(int(id_, 16) for id_ in IDS) % (1 << 128))


@given(st.lists(st.integers(1, 3000), max_size=20), st.booleans())
def test_pieces_of_any_size_give_the_same_digest(sizes, with_end):
    body = HEADER + b"".join(LINES) + (END if with_end else b"")
    pieces, at = [], 0
    for size in sizes:
        pieces.append(body[at : at + size])
        at += size
    assert read([*pieces, body[at:]]) == RIGHT


@pytest.mark.parametrize(
    "lines",
    [
        LINES[:-1],
        [*LINES, LINES[0]],
        [*LINES[:-1], LINES[0]],
        [LINES[0].replace(IDS[0].encode(), b"0" * 32), *LINES[1:]],
    ],
    ids=["short", "doubled", "one_twice_for_another", "altered"],
)
def test_other_files_are_another_digest(lines):
    assert read([HEADER, *lines]) != RIGHT
    with pytest.raises(WrongAnswer, match="expected 50"):
        read([HEADER, *lines]).check(RIGHT, "answer")


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_cut_line_is_seen(cut):
    with pytest.raises(WrongAnswer, match="cut"):
        read([HEADER, b"".join(LINES)[:-cut]])


def test_a_line_that_is_no_file_is_seen():
    reader = Reader()
    reader.feed(HEADER + b'{"errorCode":"INTERNAL_ERROR","message":"x"}\n')
    with pytest.raises(WrongAnswer, match="3 lines but 0 files"):
        reader.finish()


def load_report():
    place = ROOT / "loadtests" / "report.py"
    spec = importlib.util.spec_from_file_location("load_report", place)
    report = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    return report


@pytest.mark.parametrize(
    ("shape", "seconds", "judged"), [("steady", 3600, False), ("soak", 60, False), ("soak", 900, True)]
)
def test_only_a_long_soak_is_judged_by_how_fast_memory_grows(shape, seconds, judged):
    report = load_report()
    summary = {
        "options": {"shape": shape, "seconds": str(seconds)},
        "failures": 0,
        "discovery_p99_ms": 101,
        "memory_after_percent": 110,
        "memory_slope_percent_per_hour": 30,
    }
    kept = {row["figure"]: row["kept"] for row in report.bars(summary)}
    growth = {"memory_slope_percent_per_hour": False} if judged else {}
    assert kept == {"failures": True, "discovery_p99_ms": False, "memory_after_percent": True, **growth}


def test_the_page_of_a_load_test_begins_with_failures_and_has_ticks():
    kind = {"requests": 9, "p50_ms": "3", "p99_ms": "N/A", "max_ms": "1200.123456", "per_second": 4.5}
    summary = {
        "options": {"shape": "steady", "seconds": "12"},
        "machine": {"cpus": 2, "memory_bytes": 8 << 30, "system": "<system>", "python": "3"},
        "failures": 3,
        "discovery_p99_ms": 99.5,
        "memory_after_percent": 104,
        "kinds": [{"name": "pages", "failures": 0, **kind}, {"name": "<b>", "failures": 3, **kind}],
        "memory": {"before_bytes": 1e8, "after_bytes": 1.04e8},
        "descriptors": {"before": 20, "after": 21},
        "ceiling": None,
        "samples": [
            {"second": second, "resident_bytes": 1e8, "descriptors": 20, "cpu_seconds": second / 100}
            for second in range(13)
        ],
        "history": [],
    }
    page = load_report().page(summary, [("all figures", "summary.json")])
    html5lib.HTMLParser(strict=True).parse(page)
    assert "3 wrong or failed; 1 of 3 bars missed." in page
    assert (
        page.index("wrong answers and errors") < page.index("To do: Read the failures") < page.index("<table")
    )
    assert page.index("&lt;b&gt;") < page.index(">pages<")
    assert all(label in page for label in ("0.005 cores", "0.010 cores", "50 MB", "1.2 s", "8.59 GB"))
