"""The memory of a table's answers as `delta-gateway check` prints it."""

from pathlib import Path

import pytest
import yaml
from tables.large_logs import make_log

from gateway import _native
from gateway.cli.check import signed_files
from gateway.cli.table_memory import COLD_ANSWER_BYTES, cold_bytes, hot_bytes
from gateway.config import load
from gateway.state import GatewayState
from gateway.tables.native import AnswerOptions
from gateway.tables.runtime import read_whole


def test_the_estimated_columns_are_those_of_an_answer(tmp_path: Path) -> None:
    script = make_log()
    script.make_log(tmp_path / "log", script.LogOptions(adds=20_000))
    tables = [{"name": "large", "location": str(tmp_path / "log")}]
    shares = [{"name": "s", "schemas": [{"name": "d", "tables": tables}]}]
    (tmp_path / "share.yaml").write_text(yaml.safe_dump({"version": 1, "shares": shares}))
    state = GatewayState.of(load(tmp_path / "share.yaml", needs_readers=False))
    (table,) = state.catalog.tables()
    opened = state.tables.open(table)
    snapshot = opened.snapshot()
    hot = hot_bytes(table, snapshot.totals()[0], signed_files(state, table, snapshot))
    options = AnswerOptions(
        opened.signers, response_format="delta", now_ms=state.now_ms(), lifetime_seconds=3600
    )
    before = _native.cache_used_bytes()
    # The second answer is the one that builds columns.
    for _ in range(3):
        read_whole(snapshot.files(options))
    state.tables.close()
    assert hot == pytest.approx(_native.cache_used_bytes() - before, rel=0.15)
    assert cold_bytes(hot) == hot
    assert cold_bytes(2**40) == COLD_ANSWER_BYTES
    assert hot_bytes(table, 0, []) == 0
