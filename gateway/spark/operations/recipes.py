"""The tables that `generate` writes: one recipe for each feature that a reader must support."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Recipe:
    """The statements that make one table, in order.

    `{t}` is the table, `{rows}` a relation with a column `id`, `r(k)` a number in [0, k) drawn by id and
    seed.
    """

    about: str
    statements: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the session that writes the table."""


_NO_VECTORS = "delta.enableDeletionVectors = false"
_CDF = "delta.enableChangeDataFeed = true"
_BASE = "id, concat('name-', r(1000)) name, r(100000) / 100 amount, date_add(date'2024-01-01', r(366)) day"
_MAPPED = "delta.columnMapping.mode = '{}', delta.minReaderVersion = 2, delta.minWriterVersion = 5"

_PARTITIONS = (
    "CASE r(5) WHEN 0 THEN NULL WHEN 1 THEN 'é / %20 + b' WHEN 2 THEN 'a=b' ELSE concat('p', r(2)) END"
)

_ODD_DOUBLES = (
    "element_at(array(double('NaN'), 0D, -0D, double('Infinity'), double('-Infinity'), 4.9E-324D, "
    "1.7976931348623157E308D, NULL, 0.1D), r(9) + 1)"
)
_ODD_STRINGS = (
    "element_at(array('', ' ', NULL, '\\u0000', '\\u2028\\u0085', 'é', '😀', '\"\\\\', 'null'), r(9) + 1)"
)
_ODD_TIMES = (
    "element_at(array(timestamp'0001-01-01 00:00:00', timestamp'9999-12-31 23:59:59.999999', NULL, "
    "timestamp'1969-12-31 23:59:59.999999', timestamp'1582-10-15 00:00:00'), r(5) + 1)"
)

_VECTORS = "delta.enableDeletionVectors = true"


def _mapped_changes(mode: str, *, vectors: bool) -> Recipe:
    how = "by deletion vectors" if vectors else "by files"
    return Recipe(
        f"change data {how}, columns mapped by {mode}",
        (
            "CREATE TABLE {t} (id BIGINT, `the amount` DOUBLE, place STRUCT<zone: INT>, part INT) USING delta "
            f"PARTITIONED BY (part) TBLPROPERTIES ({_CDF}, {_VECTORS if vectors else _NO_VECTORS}, "
            f"{_MAPPED.format(mode)})",
            "INSERT INTO {t} SELECT id, r(100) / 4, named_struct('zone', r(9)), r(2) FROM {rows}",
            "UPDATE {t} SET `the amount` = -1, place = named_struct('zone', 99) WHERE id % 10 = 0",
            "DELETE FROM {t} WHERE id % 10 = 1",
            "MERGE INTO {t} a USING (SELECT id * 2 id, 1 part FROM {rows}) b ON a.id = b.id AND a.id % 5 = 2 "
            "WHEN MATCHED THEN UPDATE SET place = NULL WHEN NOT MATCHED THEN INSERT (id, part) VALUES (b.id, b.part)",
            "DELETE FROM {t} WHERE part = 0",
        ),
    )


# As Spark 2 wrote: the hybrid calendar, and times by the rules of old Java, in the zone of the session.
_LEGACY = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.session.timeZone": "America/Los_Angeles",
}
_OLD_DAYS = (
    "date'0001-01-01', date'0300-03-01', date'1000-02-28', date'1500-03-01', date'1582-10-04', "
    "date'1582-10-15', date'1899-12-31', date'2024-02-29', NULL"
)
_OLD_TIMES = (
    "timestamp'0001-01-01 00:00:00', timestamp'0900-02-28 23:59:59.999999', timestamp'1582-10-04 12:00:00', "
    "timestamp'1582-10-15 00:00:00', timestamp'1883-11-18 12:00:00', timestamp'1899-12-31 23:00:00', "
    "timestamp'1960-07-01 00:00:00', timestamp'2024-02-29 12:00:00', NULL"
)


def _old_calendar(about: str, **settings: str) -> Recipe:
    return Recipe(
        about,
        (
            "CREATE TABLE {t} (id BIGINT, day DATE, at TIMESTAMP, deep ARRAY<STRUCT<day: DATE, at: TIMESTAMP>>) "
            "USING delta",
            "INSERT INTO {t} SELECT id, day, at, array(named_struct('day', day, 'at', at), NULL) FROM (SELECT id, "
            f"element_at(array({_OLD_DAYS}), r(9) + 1) day, element_at(array({_OLD_TIMES}), r(9) + 1) at FROM {{rows}})",
        ),
        {**_LEGACY, **{name.replace("_", "."): value for name, value in settings.items()}},
    )


RECIPES: dict[str, Recipe] = {
    "plain": Recipe(
        "two appends, nothing special",
        (
            f"CREATE TABLE {{t}} USING delta TBLPROPERTIES ({_NO_VECTORS}) AS SELECT {_BASE} FROM {{rows}}",
            f"INSERT INTO {{t}} SELECT {_BASE} FROM {{rows}}",
        ),
    ),
    "empty": Recipe("no files at all", ("CREATE TABLE {t} (id BIGINT, name STRING) USING delta",)),
    "partitioned": Recipe(
        "text partitions, with null and characters that paths escape",
        (
            "CREATE TABLE {t} (id BIGINT, name STRING, part STRING, day DATE) USING delta "
            f"PARTITIONED BY (part, day) TBLPROPERTIES ({_NO_VECTORS})",
            f"INSERT INTO {{t}} SELECT id, concat('name-', r(9)), {_PARTITIONS}, "
            "date_add(date'2024-01-01', r(3)) FROM {rows}",
            "DELETE FROM {t} WHERE part = 'a=b' AND id % 2 = 0",
        ),
    ),
    "partition_types": Recipe(
        "partitions of every other type",
        (
            "CREATE TABLE {t} (id BIGINT, i INT, b BOOLEAN, m DECIMAL(9, 2), at TIMESTAMP, n TIMESTAMP_NTZ, "
            f"d DOUBLE) USING delta PARTITIONED BY (i, b, m, at, n, d) TBLPROPERTIES ({_NO_VECTORS})",
            "INSERT INTO {t} SELECT id, r(2), r(2) = 1, cast(r(2) - 0.5 AS DECIMAL(9, 2)), "
            "timestamp_micros(1700000000123456 + r(2)), timestamp_ntz'2024-02-29 12:30:00.5', "
            "if(r(2) = 0, NULL, -1.5) FROM {rows}",
        ),
    ),
    "deletion_vectors": Recipe(
        "rows deleted and updated by deletion vectors, twice",
        (
            "CREATE TABLE {t} USING delta TBLPROPERTIES (delta.enableDeletionVectors = true) "
            f"AS SELECT {_BASE} FROM {{rows}}",
            "DELETE FROM {t} WHERE id % 7 = 3",
            "DELETE FROM {t} WHERE id % 11 = 5",
            "UPDATE {t} SET amount = -1 WHERE id % 13 = 1",
        ),
    ),
    "mapped_by_name": Recipe(
        "column mapping by name: a column renamed, one dropped, one added, one nested",
        (
            "CREATE TABLE {t} (id BIGINT, name STRING, gone INT, `odd name, (x)` DOUBLE, part STRING, "
            "place STRUCT<zone: INT, code: STRING>) USING delta PARTITIONED BY (part) "
            f"TBLPROPERTIES ({_MAPPED.format('name')})",
            "INSERT INTO {t} SELECT id, concat('n', r(10)), 1, r(100) / 8, concat('p', r(2)), "
            "named_struct('zone', r(5), 'code', 'c') FROM {rows}",
            "ALTER TABLE {t} RENAME COLUMN name TO label",
            "ALTER TABLE {t} RENAME COLUMN place.zone TO area",
            "ALTER TABLE {t} DROP COLUMN gone",
            "ALTER TABLE {t} ADD COLUMN name STRING",
            "INSERT INTO {t} SELECT id, 'later', 0.5, 'p9', named_struct('area', 9, 'code', NULL), 'new' FROM {rows}",
        ),
    ),
    "mapped_by_id": Recipe(
        "column mapping by field id, also inside of structs, arrays and maps",
        (
            "CREATE TABLE {t} (id BIGINT, part INT, items ARRAY<STRUCT<sku: STRING, count: INT>>, "
            "by_key MAP<STRING, STRUCT<score: DOUBLE>>) USING delta PARTITIONED BY (part) "
            f"TBLPROPERTIES ({_MAPPED.format('id')})",
            "INSERT INTO {t} SELECT id, r(3), array(named_struct('sku', concat('s', r(9)), 'count', r(4)), NULL), "
            "map('k', named_struct('score', r(10) / 4)) FROM {rows}",
            "ALTER TABLE {t} RENAME COLUMN items TO lines",
        ),
    ),
    "changes": Recipe(
        "change data files: update, delete, merge, a deleted partition",
        (
            "CREATE TABLE {t} (id BIGINT, amount DOUBLE, part INT) USING delta PARTITIONED BY (part) "
            f"TBLPROPERTIES ({_CDF}, {_NO_VECTORS})",
            "INSERT INTO {t} SELECT id, r(100) / 4, r(3) FROM {rows}",
            "UPDATE {t} SET amount = amount + 1 WHERE id % 10 = 0",
            "DELETE FROM {t} WHERE id % 10 = 1",
            "MERGE INTO {t} a USING (SELECT id * 2 id, -5D amount, 1 part FROM {rows}) b ON a.id = b.id "
            "WHEN MATCHED THEN UPDATE SET amount = b.amount WHEN NOT MATCHED THEN INSERT *",
            "DELETE FROM {t} WHERE part = 2",
        ),
    ),
    "changes_by_vectors": Recipe(
        "change data with deletion vectors: deletes without change files",
        (
            "CREATE TABLE {t} (id BIGINT, amount DOUBLE) USING delta "
            f"TBLPROPERTIES ({_CDF}, delta.enableDeletionVectors = true)",
            "INSERT INTO {t} SELECT id, r(100) / 4 FROM {rows}",
            "DELETE FROM {t} WHERE id % 10 = 1",
            "UPDATE {t} SET amount = 0 WHERE id % 10 = 2",
            "DELETE FROM {t} WHERE id % 10 = 3",
            "OPTIMIZE {t}",
        ),
    ),
    "v2_checkpoints": Recipe(
        "checkpoints of the second kind, with sidecars",
        (
            f"CREATE TABLE {{t}} USING delta TBLPROPERTIES (delta.checkpointPolicy = 'v2', "
            f"delta.checkpointInterval = 3) AS SELECT {_BASE} FROM {{rows}}",
            *(f"INSERT INTO {{t}} SELECT {_BASE} FROM {{rows}} WHERE id % 5 = {i}" for i in range(4)),
        ),
    ),
    "classic_checkpoints": Recipe(
        "classic checkpoints and removed files before them",
        (
            f"CREATE TABLE {{t}} USING delta TBLPROPERTIES (delta.checkpointInterval = 2, {_NO_VECTORS}) "
            f"AS SELECT {_BASE} FROM {{rows}}",
            "DELETE FROM {t} WHERE id % 3 = 0",
            f"INSERT INTO {{t}} SELECT {_BASE} FROM {{rows}} WHERE id % 5 = 0",
            "DELETE FROM {t} WHERE id % 3 = 1",
        ),
    ),
    "widened": Recipe(
        "types widened after rows were written",
        (
            "CREATE TABLE {t} (id INT, small SMALLINT, f FLOAT, m DECIMAL(6, 2), part INT) USING delta "
            "PARTITIONED BY (part) TBLPROPERTIES (delta.enableTypeWidening = true)",
            "INSERT INTO {t} SELECT id, r(100), r(100) / 8, r(1000) / 4, r(2) FROM {rows}",
            "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
            "ALTER TABLE {t} ALTER COLUMN small TYPE INT",
            "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE",
            "ALTER TABLE {t} ALTER COLUMN m TYPE DECIMAL(12, 3)",
            "ALTER TABLE {t} ALTER COLUMN part TYPE BIGINT",
            "INSERT INTO {t} SELECT id + 5000000000, 100000, 0.1, 123456.789, 5000000000 FROM {rows}",
        ),
    ),
    "nested": Recipe(
        "structs, arrays and maps in each other, with nulls and emptiness everywhere",
        (
            "CREATE TABLE {t} USING delta AS SELECT id, "
            "if(r(4) = 0, NULL, named_struct('a', if(r(3) = 0, NULL, r(9)), 'b', named_struct('c', 'x', 'd', r(2)))) s, "
            "CASE r(4) WHEN 0 THEN NULL WHEN 1 THEN array() WHEN 2 THEN array(NULL, 1) ELSE array(r(9), 2, 3) END l, "
            "CASE r(3) WHEN 0 THEN NULL WHEN 1 THEN map() "
            "ELSE map('k', array(r(5)), 'z', NULL, concat('v', r(9)), array()) END m, "
            "array(named_struct('p', map(r(3), named_struct('q', array(r(2) / 4)))), NULL) deep FROM {rows}",
        ),
    ),
    "odd_values": Recipe(
        "NaN, infinities, negative zero, extremes, unprintable text",
        (
            f"CREATE TABLE {{t}} USING delta AS SELECT id, {_ODD_DOUBLES} d, cast({_ODD_DOUBLES} AS FLOAT) f, "
            f"{_ODD_STRINGS} s, {_ODD_TIMES} at, cast(concat('b', r(3)) AS BINARY) bytes, "
            "element_at(array(cast('99999999999999999999999999999999999999' AS DECIMAL(38, 0)), "
            "cast('-1' AS DECIMAL(38, 0)), NULL), r(3) + 1) m, "
            "element_at(array(-9223372036854775808, 9223372036854775807, 0), r(3) + 1) l, "
            "element_at(array(date'0001-01-01', date'9999-12-31', NULL), r(3) + 1) day, "
            "cast(r(256) - 128 AS TINYINT) t, r(2) = 0 b FROM {rows}",
        ),
    ),
    "times": Recipe(
        "timestamps with and without a zone",
        (
            "CREATE TABLE {t} (id BIGINT, at TIMESTAMP, local TIMESTAMP_NTZ) USING delta",
            "INSERT INTO {t} SELECT id, timestamp_micros(1700000000000000 + id * 999983), "
            "cast(timestamp_micros(1700000000000000 + id * 999983) AS TIMESTAMP_NTZ) FROM {rows}",
        ),
    ),
    "evolved": Recipe(
        "columns added after rows were written, at the top and inside of a struct",
        (
            "CREATE TABLE {t} (id BIGINT, s STRUCT<a: INT>) USING delta",
            "INSERT INTO {t} SELECT id, named_struct('a', r(9)) FROM {rows}",
            "ALTER TABLE {t} ADD COLUMN (note STRING, s.b STRING)",
            "INSERT INTO {t} SELECT id, named_struct('a', 1, 'b', 'inner'), 'outer' FROM {rows}",
        ),
    ),
    "variants": Recipe(
        "variant values of several types",
        (
            "CREATE TABLE {t} USING delta AS SELECT id, "
            "parse_json(element_at(array('1', '1.5', '\"x\"', 'null', '[1, {{\"a\": true}}]', NULL), r(6) + 1)) v "
            "FROM {rows}",
        ),
    ),
    "shredded_variants": Recipe(
        "variants that files hold shredded: objects, arrays and values that do not fit",
        (
            "CREATE TABLE {t} (id BIGINT, v VARIANT) USING delta "
            "TBLPROPERTIES (delta.enableVariantShredding = true)",
            "INSERT INTO {t} SELECT id, parse_json(element_at(array("
            '\'{{"a": 1, "b": "x", "c": [1, 2]}}\', \'{{"a": 2.5, "d": {{"e": true}}}}\', '
            "'{{\"a\": null}}', '[1, \"x\"]', '7', 'null', '{{}}', NULL), r(8) + 1)) FROM {rows}",
        ),
        {
            "spark.sql.variant.writeShredding.enabled": "true",
            "spark.sql.variant.forceShreddingSchemaForTest": "a bigint, b string, c array<bigint>, "
            "d struct<e boolean, f string>",
        },
    ),
    "more_partition_types": Recipe(
        "partitions of small and large numbers, text that escapes, bytes and far days",
        (
            "CREATE TABLE {t} (id BIGINT, t TINYINT, s SMALLINT, l BIGINT, f FLOAT, x BINARY, day DATE, at TIMESTAMP, "
            f"v VARCHAR(20)) USING delta PARTITIONED BY (t, s, l, f, x, day, at, v) TBLPROPERTIES ({_NO_VECTORS})",
            "INSERT INTO {t} SELECT id, cast(k - 128 AS TINYINT), cast(k * 100 AS SMALLINT), "
            "element_at(array(-9223372036854775808, 9223372036854775807, NULL), k + 1), "
            "element_at(array(float('NaN'), float('-Infinity'), float('1.5')), k + 1), "
            "element_at(array(X'41', X'7A20', NULL), k + 1), "
            "element_at(array(date'0001-01-01', date_add(date'9999-12-31', 400), NULL), k + 1), "
            "element_at(array(timestamp'0001-01-01 00:00:00', timestamp'9999-12-31 23:59:59.999999', NULL), k + 1), "
            "element_at(array('a=b', 'é%', NULL), k + 1) FROM (SELECT id, r(3) k FROM {rows})",
        ),
    ),
    "local_partition_times": Recipe(
        "partitions of timestamps that are written without a zone, as older writers do",
        (
            "CREATE TABLE {t} (id BIGINT, at TIMESTAMP) USING delta PARTITIONED BY (at)",
            "INSERT INTO {t} SELECT id, timestamp_seconds(1700000000 + 7776000 * r(4)) FROM {rows}",
        ),
        {"spark.databricks.delta.write.utcTimestampPartitionValues": "false"},
    ),
    "lengths": Recipe(
        "CHAR and VARCHAR",
        (
            "CREATE TABLE {t} (id BIGINT, c CHAR(6), v VARCHAR(9)) USING delta",
            "INSERT INTO {t} SELECT id, concat('c', r(9)), if(r(3) = 0, NULL, concat('v', r(99))) FROM {rows}",
        ),
    ),
    "identity": Recipe(
        "an identity column",
        (
            "CREATE TABLE {t} (number BIGINT GENERATED ALWAYS AS IDENTITY, id BIGINT) USING delta",
            "INSERT INTO {t} (id) SELECT id FROM {rows}",
            "INSERT INTO {t} (id) SELECT id + 1000000 FROM {rows}",
        ),
    ),
    "generated_columns": Recipe(
        "generated columns, one of which partitions",
        (
            "CREATE TABLE {t} (id BIGINT, at TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), "
            "twice BIGINT GENERATED ALWAYS AS (id * 2)) USING delta PARTITIONED BY (day)",
            "INSERT INTO {t} (id, at) SELECT id, timestamp_seconds(1700000000 + 86400 * r(3)) FROM {rows}",
        ),
    ),
    "in_commit_timestamps": Recipe(
        "commit times in the commits, with change data",
        (
            f"CREATE TABLE {{t}} (id BIGINT, n INT) USING delta TBLPROPERTIES ({_CDF}, "
            "delta.enableInCommitTimestamps = true)",
            "INSERT INTO {t} SELECT id, r(9) FROM {rows}",
            "UPDATE {t} SET n = -1 WHERE id % 7 = 0",
        ),
    ),
    "clustered": Recipe(
        "liquid clustering",
        (
            "CREATE TABLE {t} (id BIGINT, city STRING) USING delta CLUSTER BY (city)",
            "INSERT INTO {t} SELECT id, concat('c', r(5)) FROM {rows}",
            "INSERT INTO {t} SELECT id, concat('c', r(5)) FROM {rows}",
            "OPTIMIZE {t}",
        ),
    ),
    "changes_mapped_by_name": _mapped_changes("name", vectors=False),
    "changes_mapped_by_id": _mapped_changes("id", vectors=False),
    "changes_mapped_by_name_by_vectors": _mapped_changes("name", vectors=True),
    "changes_mapped_by_id_by_vectors": _mapped_changes("id", vectors=True),
    "legacy_dates": _old_calendar(
        "dates and times in the calendar of Spark 2", spark_sql_parquet_outputTimestampType="TIMESTAMP_MICROS"
    ),
    "legacy_int96": _old_calendar(
        "times as INT96, in the calendar of Spark 2", spark_sql_parquet_outputTimestampType="INT96"
    ),
}
