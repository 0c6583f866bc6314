"""Writes the checkpoint of a log by the programs that write those of users.

    python bench/writers.py DIRECTORY deltalake
    python bench/writers.py DIRECTORY delta-spark [zstd]

What matters to a reader is theirs: rows of a row group and of a page, codec, page indexes, typed statistics,
and the order of the files.
"""

import sys
from pathlib import Path
from typing import Any

from store import CACHE


def by_deltalake(directory: Path) -> None:
    """Write a checkpoint by delta-rs."""
    from deltalake import DeltaTable  # noqa: PLC0415

    DeltaTable(str(directory)).create_checkpoint()


def by_spark(directory: Path, codec: str) -> None:
    """Write a checkpoint by delta-spark."""
    from gateway.spark.session import delta_session  # noqa: PLC0415

    settings = {"spark.sql.parquet.compression.codec": codec, "spark.driver.memory": "6g"}
    spark = delta_session("checkpoint", jars=CACHE / "jars", local=settings)
    java: Any = spark.sparkContext._jvm  # noqa: SLF001
    session = spark._jsparkSession  # noqa: SLF001
    java.org.apache.spark.sql.delta.DeltaLog.forTable(session, str(directory)).checkpoint()
    spark.stop()


def main() -> None:
    """Write the checkpoint of the table's latest version."""
    directory, writer, *form = sys.argv[1:]
    if writer == "deltalake":
        by_deltalake(Path(directory))
    else:
        by_spark(Path(directory), "zstd" if "zstd" in form else "snappy")


if __name__ == "__main__":
    main()
