"""Reads a share through a server of Spark Connect that it starts, and prints what was read as JSON.

python connect_reads.py PROFILE share.schema.orders
"""

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from gateway.spark.source import FORMAT, count_rows, read_where, register

CONDITION = "amount >= 25"
# A few rows are read once each: nothing that is compiled or collected beside it pays.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


def main() -> None:
    """Runs the command line."""
    profile, table = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    spark = builder.remote("local[2]").config(map=SETTINGS).getOrCreate()
    register(spark)
    # As two cells of a notebook do.
    register(spark)
    whole = spark.read.format(FORMAT).option("profile", profile).load(table)
    customers = spark.read.format(FORMAT).options(profile=profile, columns="customer").load(table)
    filtered = read_where(spark, table, CONDITION, profile=profile)
    found = {
        "module": type(spark).__module__,
        "rows": sorted(map(list, whole.collect())),
        "filtered": sorted(row["order"] for row in whole.where(CONDITION).collect()),
        "read_where": sorted(row["order"] for row in filtered.collect()),
        "columns": customers.columns,
        "counts": [count_rows(spark, table, profile=profile), customers.count()],
    }
    sys.stdout.write(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
