"""The demo's tables as fixtures, and their rows as literals."""

import time
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

CITIES = [
    ("Zürich", 436_000, date(1218, 1, 1), "Alps + lakes"),
    ("Genève", 206_000, None, "Alps + lakes"),
    ("São Paulo", 11_452_000, date(1554, 1, 25), "100% coast"),
    ("東京", 14_178_000, date(1457, 1, 1), "日本"),
    ("Reykjavík", 140_000, None, "64°=N"),
    ("Lagos", 15_388_000, None, "a/b"),
    ("Atlantis", None, None, None),
    ("Ys", 0, None, None),
]
READINGS = [
    (f"roof-{hour % 3}", datetime(2026, 1, 1, hour, tzinfo=UTC), celsius)
    for hour, celsius in {0: -0.5, 2: 1.25, 4: 3.5, 5: 4.0, 7: 6.0, 8: 7.25, 9: 7.0, 10: 6.5, 11: 5.0}.items()
]
ORDERS = [(1, "ann", 10.0), (2, "bob", 25.0), (4, "ann", 40.0), (5, "dee", 50.0)]
ROWS = {"cities": CITIES, "readings": READINGS, "orders": ORDERS}

ORDER_CHANGES = [
    (0, "insert", 1, "ann", 10.0),
    (0, "insert", 2, "bob", 20.0),
    (0, "insert", 3, "cyd", 30.0),
    (0, "insert", 4, "ann", 40.0),
    (1, "update_postimage", 2, "bob", 25.0),
    (1, "update_preimage", 2, "bob", 20.0),
    (2, "delete", 3, "cyd", 30.0),
    (3, "insert", 5, "dee", 50.0),
]


def in_any_order(rows: list[tuple]) -> list[tuple]:
    """Rows sorted by their text: nulls have no order."""
    return sorted((tuple(row) for row in rows), key=repr)


@pytest.fixture(scope="session")
def demo_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that holds the three tables."""
    demo = pytest.importorskip("gateway.demo", reason="the native module is not built", exc_type=ImportError)
    directory = tmp_path_factory.mktemp("demo")
    demo.lay_out(directory, now_seconds=time.time())
    return directory
