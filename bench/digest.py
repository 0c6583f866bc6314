"""Measures the digest of `verify` against `sha2(to_json(struct(*)))` of the same rows in the same session.

    python bench/digest.py --rows 20000000 --jars ~/.cache/delta-sharing-gateway/jars

Spark makes the rows while they are digested, so no file is read. Prints one JSON object. The digest is
checked: it stays the same when the rows are partitioned differently and changes with one row.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gateway.spark.session import delta_session
from gateway.spark.verify.digest import digest

COLUMNS = [
    "id",
    "cast(id % 1000 as int) quantity",
    "if(id % 2 = 0, 'delivered in full, signed for', 'returned to the warehouse') status",
    "id * 0.25D price",
    "cast(id % 97 as float) ratio",
    "date_add(date'2020-01-01', cast(id % 1000 as int)) day",
    "timestamp_micros(id * 1000003) at",
    "timestamp_micros(id * 1000033) changed_at",
    "cast(id % 1000000 as decimal(12, 2)) amount",
    "if(id % 7 = 0, null, id) reference",
    "id % 3 = 0 paid",
    "named_struct('zone', id % 3, 'area', id % 11) place",
]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--jars", type=Path)
    arguments = parser.parse_args()
    spark = delta_session("digest bench", jars=arguments.jars)
    rows = spark.range(arguments.rows).selectExpr(*COLUMNS)
    changed = rows.withColumn("quantity", f.when(f.col("id") == 1, 0).otherwise(f.col("quantity")))
    few = [frame.where("id < 100000") for frame in (rows, rows.repartition(3), changed)]
    correct = digest(few[0]) == digest(few[1]) != digest(few[2])
    of_verify = [seconds(lambda: digest(rows)) for _ in range(arguments.runs)]
    of_json = [seconds(lambda: json_digest(rows)) for _ in range(arguments.runs)]
    print(
        json.dumps(
            {
                "rows": arguments.rows,
                "columns": len(COLUMNS),
                "cores": os.cpu_count(),
                "digest_seconds": min(of_verify),
                "sha2_json_seconds": min(of_json),
                "times_as_fast": round(min(of_json) / min(of_verify), 2),
                "million_rows_per_second": round(arguments.rows / min(of_verify) / 1e6, 2),
                "correct": correct,
            }
        )
    )


def json_digest(rows: DataFrame) -> Any:
    """Compute the obvious digest: the hash of each row as JSON."""
    hashed = rows.select(f.sha2(f.to_json(f.struct("*")), 256).alias("h"))
    return hashed.agg(f.bit_xor(f.xxhash64("h")), f.count("h")).collect()


def seconds(work: Callable[[], Any]) -> float:
    """Return the wall time of some work."""
    started = time.perf_counter()
    work()
    return round(time.perf_counter() - started, 2)


if __name__ == "__main__":
    main()
