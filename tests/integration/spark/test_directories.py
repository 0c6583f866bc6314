"""Directories of shares on a store with sessions, read by delta-spark with the keys of an answer.

A Java process with Hadoop's client of S3: all of it is the long form, `DELTA_GATEWAY_LONG_DIRECTORIES=1`.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import tools
from support.gateway_process import running_gateway, storage_with_sessions
from support.processes import answer_of_script
from support.versitygw import S3Server

IS_LONG = bool(os.environ.get("DELTA_GATEWAY_LONG_DIRECTORIES"))
SCRIPT = Path(__file__).parents[2] / "support" / "directory_reads.py"
BUCKET = "directories"
ROWS = 40


def write(spark: Any, place: Path) -> None:
    """Three versions: rows, a deletion vector, and more rows. Columns are mapped."""
    name = f"delta.`{place}`"
    spark.range(ROWS).selectExpr("id", "concat('name ', id) name", "id % 3 part").write.format(
        "delta"
    ).partitionBy("part").options(
        **{"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    ).save(str(place))
    spark.sql(f"DELETE FROM {name} WHERE id % 10 = 9")
    spark.sql(f"INSERT INTO {name} VALUES ({ROWS}, 'last', 0)")


if IS_LONG:

    @pytest.mark.timeout(900)
    def test_delta_reads_the_directory_at_the_version_of_the_call(
        spark: Any, s3_with_sts: S3Server, tmp_path: Path
    ) -> None:
        for name in ("orders", "orders2"):
            write(spark, tmp_path / name)
            s3_with_sts.upload(tmp_path / name, BUCKET, f"lake/{name}")
        location = f"s3://{BUCKET}/lake"
        tables = [
            {
                "name": name,
                "location": f"{location}/{name}",
                "historyShared": True,
                "accessModes": ["url", "dir"],
            }
            for name in ("orders", "orders2")
        ]
        jars = tmp_path / "jars"
        jars.mkdir()
        for jar in [*(tools.CACHE / "s3a_jars").glob("*.jar"), *(tools.CACHE / "jars").glob("*.jar")]:
            (jars / jar.name).unlink(missing_ok=True)
            (jars / jar.name).symlink_to(jar)
        shares = [{"name": "s", "schemas": [{"name": "d", "tables": tables}]}]
        section = {"storages": [storage_with_sessions(s3_with_sts, f"s3://{BUCKET}/")]}
        with running_gateway(tmp_path, shares, section, temporaryCredentialValiditySeconds=900) as server:
            words = [server.profile, jars, s3_with_sts.endpoint, s3_with_sts.region, tmp_path / "orders"]
            found = answer_of_script(
                SCRIPT,
                *words,
                "s.d.orders",
                "s.d.orders2",
                packages=SCRIPT.parent.parent,
                directory=tmp_path,
                seconds=600,
            )
        assert found["equal"]
        assert found["past_equal"]
        assert found["counts"] == [ROWS - 4 + 1, ROWS, ROWS - 4 + 1]
        assert found["filtered"] == [8, 10, 11, 12]
        assert found["columns"] == ["name", "id"]
        assert found["first"] == ["name 0", 0]
        assert found["secrets_in_the_plan"] == 0
        assert "AccessDenied" in found["another_table_by_these_keys"]
