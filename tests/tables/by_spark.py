"""Tables written by delta-spark: each function takes a session and a path.

The names are those of the share `written`. Functions use SQL where Delta's documentation does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Writing:
    """How one table is written and what a test must know about it."""

    write: Callable[[Any, str], None]
    change_data_feed: bool = False
    """Whether Spark can read its changes from version 0 on."""
    kernel: bool = True
    """Whether the official client's kernel reads it."""
    settings: dict[str, str] = field(default_factory=dict)


WRITINGS: dict[str, Writing] = {}


def writing(**options: Any) -> Callable[[Callable[[Any, str], None]], Callable[[Any, str], None]]:
    """Registers a table under its function's name."""

    def register(function: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
        WRITINGS[function.__name__] = Writing(function, **options)
        return function

    return register


def create(
    spark: Any, path: str, columns: str, *, properties: dict[str, str] | None = None, more: str = ""
) -> None:
    """CREATE TABLE at a path."""
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in (properties or {}).items())
    ending = f"TBLPROPERTIES ({listed})" if listed else ""
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {more} {ending}")


def insert(spark: Any, path: str, values: str) -> None:
    """INSERT INTO a path."""
    spark.sql(f"INSERT INTO delta.`{path}` VALUES {values}")


VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


@writing()
def partition_values(spark: Any, path: str) -> None:
    """Every type that can partition, with null, blank and what must be escaped."""
    create(
        spark,
        path,
        "id INT, s STRING, d DATE, t TIMESTAMP, b BOOLEAN, n DECIMAL(10,3), l BIGINT, f DOUBLE, y BINARY",
        more="PARTITIONED BY (s, d, t, b, n, l, f, y)",
    )
    insert(
        spark,
        path,
        "(1, 'a b', DATE'2024-02-29', TIMESTAMP'2024-02-29 12:34:56.789', true, 1.500, 7, 1.5, X'4142'),"
        "(2, '50%', DATE'0001-01-01', TIMESTAMP'1969-12-31 23:59:59', false, -0.001, -7, -0.0, X'61'),"
        "(3, 'k=v/ü+\"{}', NULL, NULL, NULL, NULL, NULL, NULL, NULL),"
        "(4, NULL, DATE'9999-12-31', TIMESTAMP'2038-01-19 03:14:08', "
        "true, 9999999.999, 9223372036854775807, 1e300, X'7F'),"
        "(5, '', DATE'2024-01-01', TIMESTAMP'2024-01-01 00:00:00.000001', true, 0, 0, 0, X'20')",
    )


@writing()
def nested_and_odd_values(spark: Any, path: str) -> None:
    """All primitive types, structs, arrays and maps, values at their limits, text that escapes."""
    create(
        spark,
        path,
        "id INT, by TINYINT, sh SMALLINT, fl FLOAT, db DOUBLE, de DECIMAL(38,18), da DATE, ts TIMESTAMP, "
        "tx STRING, bi BINARY, st STRUCT<a: INT, b: STRUCT<c: STRING>>, "
        "ar ARRAY<STRUCT<x: INT>>, mp MAP<STRING, INT>",
    )
    insert(
        spark,
        path,
        "(1, 127Y, 32767S, CAST('NaN' AS FLOAT), CAST('Infinity' AS DOUBLE), "
        "12345678901234567890.123456789012345678, "
        "DATE'2024-02-29', TIMESTAMP'2024-02-29 23:59:59.999999', "
        "'line\\u2028end \\u0085 \\\\ \"quoted\"', X'DEADBEEF', "
        "struct(1, struct('c')), array(struct(1), NULL), map('k', 1, 'n', NULL)),"
        "(2, -128Y, -32768S, -0.0F, CAST('NaN' AS DOUBLE), -0.000000000000000001, DATE'0001-01-01', "
        "TIMESTAMP'1900-01-01 00:00:00', repeat('long text ', 20), X'', NULL, array(), map()),"
        "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, struct(NULL, NULL), NULL, NULL)",
    )


@writing(change_data_feed=True)
def deletion_vectors(spark: Any, path: str) -> None:
    """Deletes, updates and merges by vectors, several on one file."""
    create(spark, path, "id BIGINT, word STRING", properties={**VECTORS, **FEED})
    spark.sql(f"INSERT INTO delta.`{path}` SELECT /*+ REPARTITION(2) */ id, concat('w', id) FROM range(200)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 7 = 0")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 11 = 0")
    spark.sql(f"UPDATE delta.`{path}` SET word = 'updated' WHERE id BETWEEN 20 AND 25")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT id + 190 AS id FROM range(20)) s ON t.id = s.id "
        "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET word = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (id, word) VALUES (s.id, 'inserted')"
    )


@writing()
def deletion_vectors_without_a_feed(spark: Any, path: str) -> None:
    """The same path removed and added in one commit; a file wholly deleted; vectors rewritten by OPTIMIZE."""
    create(spark, path, "id BIGINT, part INT", properties=VECTORS, more="PARTITIONED BY (part)")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, CAST(id % 3 AS INT) FROM range(300)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id < 50")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE part = 1")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id BETWEEN 100 AND 120")
    spark.sql(f"OPTIMIZE delta.`{path}` WHERE part = 0")


@writing()
def renamed_and_dropped_columns(spark: Any, path: str) -> None:
    """Column mapping by name; columns renamed, one dropped and another added under its name."""
    properties = {
        "delta.columnMapping.mode": "name",
        "delta.minReaderVersion": "2",
        "delta.minWriterVersion": "5",
    }
    create(
        spark,
        path,
        "id INT, part STRING, old STRING, st STRUCT<a: INT>",
        properties=properties,
        more="PARTITIONED BY (part)",
    )
    insert(spark, path, "(1, 'p q', 'x', struct(1)), (2, NULL, 'y', struct(2))")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN part TO `part of`")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN st.a TO b")
    spark.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN old")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN old INT")
    insert(spark, path, "(3, 'r', struct(3), 33)")


@writing()
def column_mapping_by_id(spark: Any, path: str) -> None:
    """Column mapping by field id, with deletion vectors."""
    create(spark, path, "id INT, `a b` STRING", properties={"delta.columnMapping.mode": "id", **VECTORS})
    insert(spark, path, "(1, 'x'), (2, 'y'), (3, 'z')")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")


@writing()
def mapping_switched_on_later(spark: Any, path: str) -> None:
    """Files written before column mapping keep their names."""
    create(spark, path, "id INT, word STRING")
    insert(spark, path, "(1, 'x')")
    spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
        "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')"
    )
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN word TO term")
    insert(spark, path, "(2, 'y')")


@writing()
def v2_checkpoints(spark: Any, path: str) -> None:
    """UUID-named checkpoints with sidecars, commits after."""
    properties = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "3"}
    create(spark, path, "id INT, part INT", properties=properties, more="PARTITIONED BY (part)")
    for number in range(8):
        insert(spark, path, f"({number}, {number % 2}), ({number + 100}, NULL)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")


@writing(settings={"spark.databricks.delta.checkpointV2.topLevelFileFormat": "json"})
def v2_checkpoints_in_json(spark: Any, path: str) -> None:
    """UUID-named checkpoints whose top file is JSON, statistics as structs only."""
    properties = {
        "delta.checkpointPolicy": "v2",
        "delta.checkpointInterval": "2",
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpoint.writeStatsAsJson": "false",
    }
    create(spark, path, "id INT, word STRING", properties=properties)
    for number in range(3):
        insert(spark, path, f"({number}, 'w')")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")


@writing(settings={"spark.databricks.delta.checkpoint.partSize": "5"})
def multi_part_checkpoints(spark: Any, path: str) -> None:
    """Classic checkpoints in parts, statistics as structs only."""
    properties = {
        "delta.checkpointInterval": "4",
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpoint.writeStatsAsJson": "false",
    }
    create(
        spark, path, "id INT, part STRING, at TIMESTAMP", properties=properties, more="PARTITIONED BY (part)"
    )
    for number in range(9):
        insert(
            spark,
            path,
            f"({number}, 'p{number % 3}', TIMESTAMP'2024-01-01 00:00:00' + INTERVAL '{number}' HOUR)",
        )


@writing(change_data_feed=True)
def in_commit_timestamps(spark: Any, path: str) -> None:
    """Commit times from the commits."""
    create(spark, path, "id INT", properties={**FEED, "delta.enableInCommitTimestamps": "true"})
    for number in range(4):
        insert(spark, path, f"({number})")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")


@writing()
def in_commit_timestamps_later(spark: Any, path: str) -> None:
    """Commit times from files first, from commits after."""
    create(spark, path, "id INT")
    insert(spark, path, "(1)")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    insert(spark, path, "(2)")


@writing(kernel=False)
def type_widening(spark: Any, path: str) -> None:
    """Integers, decimals and dates that became wider; partition values too."""
    properties = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
    columns = "id INT, part INT, small TINYINT, n DECIMAL(6,2), da DATE"
    create(spark, path, columns, properties=properties, more="PARTITIONED BY (part)")
    insert(spark, path, "(1, 1, 1Y, 1.25, DATE'2024-01-01')")
    wider = {"id": "BIGINT", "part": "BIGINT", "small": "INT", "n": "DECIMAL(12,4)", "da": "TIMESTAMP_NTZ"}
    for column, kind in wider.items():
        spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN {column} TYPE {kind}")
    insert(spark, path, "(5000000000, 5000000000, 100000, 12345678.1234, TIMESTAMP_NTZ'2024-01-02 03:04:05')")


@writing()
def clustering(spark: Any, path: str) -> None:
    """Liquid clustering, optimized."""
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, city STRING) USING delta CLUSTER BY (city)")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, concat('c', id % 5) FROM range(100)")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, concat('c', id % 5) FROM range(100, 200)")
    spark.sql(f"OPTIMIZE delta.`{path}`")


@writing(change_data_feed=True)
def change_data(spark: Any, path: str) -> None:
    """Insert, update, delete, merge, optimize, restore, overwrite and a new column, without vectors."""
    create(
        spark,
        path,
        "id INT, part STRING",
        properties={**FEED, "delta.enableDeletionVectors": "false"},
        more="PARTITIONED BY (part)",
    )
    insert(spark, path, "(1, 'a b'), (2, 'a b'), (3, NULL), (4, 'ü')")
    spark.sql(f"UPDATE delta.`{path}` SET id = id + 10 WHERE part = 'a b'")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 11")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT 12 AS id, 'moved' AS part UNION ALL SELECT 99, 'new') s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"OPTIMIZE delta.`{path}`")
    # It writes files again and changes no row.
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT 12 AS id) s ON t.id = s.id "
        "WHEN MATCHED AND part = 'none' THEN DELETE WHEN NOT MATCHED BY SOURCE AND part = 'none' THEN DELETE"
    )
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 2")
    spark.sql(f"INSERT OVERWRITE delta.`{path}` VALUES (7, 'only')")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN extra STRING")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (8, 'more', 'x')")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE part = 'only'")


@writing()
def vacuumed(spark: Any, path: str) -> None:
    """Optimized and vacuumed, with the check that forbids old writers."""
    create(spark, path, "id INT", properties={"delta.checkpointInterval": "2"})
    for number in range(4):
        insert(spark, path, f"({number})")
    spark.sql(f"OPTIMIZE delta.`{path}`")
    spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')"
    )


@writing()
def restored(spark: Any, path: str) -> None:
    """Files that were removed and came back."""
    create(spark, path, "id INT")
    for number in range(3):
        insert(spark, path, f"({number})")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id < 2")
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 2")


@writing(kernel=True)
def shallow_clone(spark: Any, path: str) -> None:
    """Absolute paths into another table, and rows of its own."""
    source = f"{path}-source"
    create(spark, source, "id INT, part STRING", properties=VECTORS, more="PARTITIONED BY (part)")
    insert(spark, source, "(1, 'a b'), (2, 'a b'), (3, '50%')")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE id = 2")
    spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{source}`")
    insert(spark, path, "(4, 'own')")


@writing()
def row_tracking(spark: Any, path: str) -> None:
    """Base row ids and default row commit versions."""
    create(spark, path, "id INT", properties={"delta.enableRowTracking": "true", **VECTORS})
    insert(spark, path, "(1), (2), (3)")
    insert(spark, path, "(4)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")


@writing()
def timestamps_without_a_zone(spark: Any, path: str) -> None:
    """TIMESTAMP_NTZ as data and as partition."""
    create(spark, path, "id INT, at TIMESTAMP_NTZ, part TIMESTAMP_NTZ", more="PARTITIONED BY (part)")
    insert(
        spark,
        path,
        "(1, TIMESTAMP_NTZ'2024-03-31 02:30:00', TIMESTAMP_NTZ'2024-03-31 02:30:00.5'), (2, NULL, NULL)",
    )


@writing(kernel=False)
def variants(spark: Any, path: str) -> None:
    """Semi-structured values."""
    create(spark, path, "id INT, v VARIANT")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT 1, parse_json('{{\"a\": [1, null]}}')")


@writing()
def generated_and_constrained(spark: Any, path: str) -> None:
    """Writer features that readers need not know."""
    create(spark, path, "id INT, part INT", properties={"delta.appendOnly": "false"})
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT positive CHECK (id > 0)")
    insert(spark, path, "(1, 1), (2, 2)")
