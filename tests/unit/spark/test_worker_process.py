"""What a reused worker of Spark keeps between its tasks."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

WORKER = """
import gc, importlib, json, sys
from zipimport import zipimporter
sys.path.append(sys.argv[1])
import in_archive, in_added_archive, in_folder
from gateway.spark.read.worker_process import prepare_next_task
def finders():
    return sorted(path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter))
before = finders()
prepare_next_task()
kept, frozen = finders(), gc.get_freeze_count()
importlib.invalidate_caches()
import also_in_archive
print(json.dumps({"before": before, "kept": kept, "frozen": frozen, "value": also_in_archive.VALUE}))
"""


def archive(path: Path, *modules: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for module in modules:
            file.writestr(f"{module}.py", "VALUE = 7\n")
    return path


def run_worker(tmp_path: Path, **variables: str) -> dict[str, object]:
    """Import from an archive of Spark's path, from one that was added later, and from a folder."""
    spark = archive(tmp_path / "pyspark.zip", "in_archive", "also_in_archive")
    added = archive(tmp_path / "added.zip", "in_added_archive")
    (tmp_path / "in_folder.py").touch()
    path = os.pathsep.join([str(spark), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-P", "-c", WORKER, str(added)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )
    found: dict[str, object] = json.loads(done.stdout)
    assert found["before"] == [str(added), str(spark)]
    return found


@pytest.mark.processes
def test_a_reused_worker_forgets_the_archives_of_spark_alone_and_imports_from_them(tmp_path: Path) -> None:
    found = run_worker(tmp_path, SPARK_REUSE_WORKER="1")
    assert found["kept"] == [str(tmp_path / "added.zip")]
    assert found["value"] == 7
    assert isinstance(found["frozen"], int)
    assert found["frozen"] > 1000


@pytest.mark.processes
def test_another_process_is_left_as_it_is(tmp_path: Path) -> None:
    found = run_worker(tmp_path)
    assert found["kept"] == found["before"]
    assert found["frozen"] == 0
