"""Settings of a Spark that is started here. No Spark session."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.spark import session
from gateway.spark.project.evaluation import _is_of_rows


class Builder:
    """A session builder that keeps its settings."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def master(self, _url: str) -> "Builder":
        return self

    def config(self, name: str, value: str) -> "Builder":
        self.settings[name] = value
        return self


@pytest.mark.parametrize(("given", "taken"), [({}, "2g"), ({"SPARK_DRIVER_MEMORY": "16g"}, "16g")])
def test_memory_gives_way_to_any_setting_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str], taken: str
) -> None:
    """Spark takes a builder's setting before those of files, and the environment's after them."""
    monkeypatch.setattr(os, "environ", given)
    (tmp_path / "delta-spark.jar").touch()
    local = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "3"}
    builder = session._on_this_machine(Builder(), tmp_path, None, local)
    assert "spark.driver.memory" not in builder.settings
    assert builder.settings["spark.sql.shuffle.partitions"] == "3"
    assert os.environ["SPARK_DRIVER_MEMORY"] == taken


class Prepared(Builder):
    """A builder of spark-submit's session."""

    def appName(self, _name: str) -> "Prepared":  # noqa: N802 - Spark's name
        return self

    def getOrCreate(self) -> SimpleNamespace:  # noqa: N802 - Spark's name
        return SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=lambda _level: None))


def test_no_session_asks_java_where_each_column_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where the rules of projections are evaluated, which keep no setting that changes a row."""
    builder = Prepared()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(
        session, "SparkSession", SimpleNamespace(getActiveSession=lambda: None, builder=builder)
    )
    session.delta_session("tests")
    assert builder.settings.items() >= session.QUIET.items()
    # Of no file that cannot be read, such as a log that is cut, are the rows left out.
    assert builder.settings.items() >= session.WHOLE_FILES.items()
    assert not any(map(_is_of_rows, session.QUIET))
