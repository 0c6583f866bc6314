"""Reads directories of shares in a Spark with Hadoop's client of S3, and prints what was read as JSON.

python directory_reads.py PROFILE JARS ENDPOINT REGION TABLE_DIRECTORY share.schema.table share.schema.other
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from gateway.spark.read.directory import TableDirectory, table_directory
from gateway.spark.read.options import ReadOptions
from gateway.spark.source import read_directory
from gateway.spark.verify.digest import digest
from support.spark_session import SETTINGS

LEFT_TO_THE_WORKER = ("spark.python.daemon.module", "spark.driver.memory")


def main() -> None:
    """Runs the command line."""
    profile, jars, endpoint, region, direct, table, other = sys.argv[1:]
    client = {
        "endpoint": endpoint,
        "endpoint.region": region,
        "path.style.access": "true",
        # Keys of the session, and of the bucket, that the store does not know.
        "access.key": "wrong",
        "secret.key": "wrong",
        "bucket.directories.access.key": "wrong",
        "bucket.directories.secret.key": "wrong",
    }
    settings = {name: value for name, value in SETTINGS.items() if name not in LEFT_TO_THE_WORKER}
    settings |= {f"spark.hadoop.fs.s3a.{name}": value for name, value in client.items()}
    builder = SparkSession.builder.master("local[2]").config(map=settings)
    spark = builder.config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar")))).getOrCreate()
    frame = read_directory(spark, table, profile=profile)
    past = read_directory(spark, table, profile=profile, versionAsOf="0")
    columns = read_directory(spark, table, profile=profile, columns="name,id")
    of_table = spark.read.format("delta")
    neighbour = read_directory(spark, other, profile=profile)
    keys = directory(profile, table)
    secrets = [
        value for name, value in keys.options.items() if name.endswith(("secret.key", "session.token"))
    ]
    plan = frame._jdf.queryExecution().toString()
    answer = {
        "equal": digest(frame) == digest(of_table.load(direct)),
        "past_equal": digest(past) == digest(of_table.option("versionAsOf", 0).load(direct)),
        "counts": [frame.count(), past.count(), neighbour.count()],
        "filtered": [row["id"] for row in frame.where("id BETWEEN 8 AND 12").orderBy("id").collect()],
        "columns": columns.columns,
        "first": list(columns.orderBy("id").first() or ()),
        "secrets_in_the_plan": sum(secret in plan for secret in secrets),
        "another_table_by_these_keys": read(spark, keys, directory(profile, other)),
    }
    sys.stdout.write(json.dumps(answer))
    spark.stop()


def directory(profile: str, table: str) -> TableDirectory:
    """The location of a table, and keys for it."""
    return table_directory(ReadOptions.parse({"profile": profile, "path": table}))


def read(spark: SparkSession, keys: TableDirectory, other: TableDirectory) -> str:
    """What happens when another table is read by the keys of one."""
    try:
        return str(spark.read.format("delta").options(**keys.options).load(other.location).count())
    except Exception as refused:  # noqa: BLE001 - Delta's, Hadoop's or Amazon's
        return str(refused)


if __name__ == "__main__":
    main()
