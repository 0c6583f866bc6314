"""What Spark says of comparisons, in both of its ANSI modes and in zones whose clocks skip hours or a day.

    python tests/tables/spark_truths.py rust/core/tests/predicate/spark_truths.tsv

A line that begins with `#` has a type and the values of a column `c`. The others have a condition on it, and
for each value one letter for each of `SETTINGS`: T(rue), F(alse), N(ull), E(rror).
"""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

SETTINGS = [
    (ansi, zone)
    for ansi in ("false", "true")
    for zone in ("America/Los_Angeles", "America/Sao_Paulo", "Pacific/Apia")
]
AT_ONCE = 8

# The values of a column, and the constants that it is compared with.
NUMBERS = ["'1'", "'01'", "'1.0'", "' 1'", "'1.5'", "'1e0'", "'x'", "1", "1.0", "1.5", "1D", "1F", "NULL"]
INSTANTS = [
    "TIMESTAMP '2024-03-10 03:30:00'",
    "TIMESTAMP '2018-11-04 01:00:00'",
    "TIMESTAMP '2011-12-31 00:00:00'",
]
LOCAL = [instant.replace("TIMESTAMP", "TIMESTAMP_NTZ") for instant in INSTANTS]
TEXTS = [
    "'2024-03-10'",
    "'2024-3-10'",
    "'2024-03-10 03:30:00'",
    "'2024-03-10T03:30:00'",
    "'2018-11-04 01:00:00'",
]
TEMPORAL = [*TEXTS, *INSTANTS, *LOCAL, "DATE '2024-03-10'", "DATE '2011-12-31'", "DATE '2018-11-04'", "NULL"]
COLUMNS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "boolean": (
        ["true", "false"],
        ["true", "'true'", "'TRUE'", "'t'", "' true'", "'1'", "'x'", "NULL"],
        ["BOOLEAN"],
    ),
    "byte": (["1", "2"], NUMBERS, ["INT", "DECIMAL(5,2)"]),
    "integer": (["1", "2"], NUMBERS, ["BIGINT", "DECIMAL(12,2)", "DOUBLE"]),
    "long": (
        ["1", "9007199254740993"],
        [*NUMBERS, "9007199254740993", "'9007199254740993'", "9007199254740992D", "'9007199254740992'"],
        ["DOUBLE", "FLOAT", "DECIMAL(20,0)"],
    ),
    "decimal(10,2)": (["1.00", "1.50"], [*NUMBERS, "'1.50'", "'1.5'"], ["DECIMAL(12,4)", "DOUBLE"]),
    "decimal(38,20)": (
        ["0.30000000000000000001"],
        ["0.3", "'0.3'", "0.3D", "0.30000000000000000001", "'0.30000000000000000001'", "NULL"],
        ["DOUBLE"],
    ),
    "float": (["0.1", "1.0"], [*NUMBERS, "0.1", "0.1F", "0.1D", "'0.1'"], ["DOUBLE"]),
    "double": (["0.1", "1.0"], [*NUMBERS, "0.1", "0.1F", "0.1D", "'0.1'", "'0.10'"], ["FLOAT"]),
    "string": (["1", "01", "a"], ["'1'", "'01'", "1", "1.0", "'a'", "'A'", "NULL"], []),
    "date": (
        ["2024-03-10", "2018-11-04", "2011-12-30", "2011-12-31"],
        TEMPORAL,
        ["TIMESTAMP", "TIMESTAMP_NTZ"],
    ),
    "timestamp": (["2024-03-10T10:30:00Z", "2018-11-04T03:00:00Z"], TEMPORAL, ["TIMESTAMP"]),
    "timestamp_ntz": (
        ["2024-03-10 02:30:00", "2024-03-10 03:30:00", "2018-11-04 00:00:00", "2011-12-30 00:00:00"],
        TEMPORAL,
        ["TIMESTAMP"],
    ),
}
NUMERIC_CASTS = ("INT", "DOUBLE", "DECIMAL(5,2)")
TEMPORAL_CASTS = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


def conditions(constants: list[str], casts: list[str], casts_of_texts: tuple[str, ...]) -> Iterator[str]:
    """The operators and casts of the grammar, on the column `c`."""
    for constant in constants:
        for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
            yield f"c {operator} {constant}"
        yield f"NOT (c <=> {constant})"
        yield f"c IN ({constant})"
        yield f"c NOT IN ({constant})"
        yield f"c BETWEEN {constant} AND {constant}"
        for cast in casts:
            for operator in ("=", "<>", "<", ">="):
                yield f"CAST(c AS {cast}) {operator} {constant}"
            yield f"CAST(c AS {cast}) NOT IN ({constant})"
        if constant.startswith("'"):
            for cast in casts_of_texts:
                yield f"c = CAST({constant} AS {cast})"
                yield f"c <> CAST({constant} AS {cast})"
    for one, other in zip(constants, constants[1:] + constants[:1], strict=True):
        yield f"c IN ({one}, {other})"
        yield f"c NOT IN ({one}, {other})"


def truths(rows: DataFrame, wanted: list[str]) -> list[list[str]]:
    """The letters of each condition, one for each row. A condition that fails is found by halves."""
    try:
        found = rows.selectExpr(*wanted).collect()
    except PySparkException:
        if len(wanted) == 1:
            return [["E"] * len(rows.collect())]
        middle = len(wanted) // 2
        return truths(rows, wanted[:middle]) + truths(rows, wanted[middle:])
    letter = {True: "T", False: "F", None: "N"}
    return [[letter[row[index]] for row in found] for index in range(len(wanted))]


def main(path: Path) -> None:
    """Write the table."""
    # PySpark logs the stack of each condition that fails.
    logging.disable()
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    lines: list[str] = []
    for name, (values, constants, casts) in COLUMNS.items():
        is_temporal = constants is TEMPORAL
        casts_of_texts = (
            TEMPORAL_CASTS if is_temporal else () if name in ("boolean", "string") else NUMERIC_CASTS
        )
        wanted = list(dict.fromkeys(conditions(constants, casts, casts_of_texts)))
        letters = {(condition, row): "" for condition in wanted for row in range(len(values))}
        for ansi, zone in SETTINGS:
            if not is_temporal and zone != SETTINGS[0][1]:
                continue
            session.conf.set("spark.sql.ansi.enabled", ansi)
            session.conf.set("spark.sql.session.timeZone", zone)
            sql_type = {"byte": "TINYINT", "integer": "INT", "long": "BIGINT"}.get(name, name)
            listed = ", ".join(f"(CAST('{value}' AS {sql_type}))" for value in values)
            rows = session.sql(f"SELECT c FROM VALUES {listed} AS t(c)")
            for begin in range(0, len(wanted), AT_ONCE):
                some = wanted[begin : begin + AT_ONCE]
                for condition, found in zip(some, truths(rows, some), strict=True):
                    for row, letter in enumerate(found):
                        letters[condition, row] += letter
        lines.append("#" + "\t".join([name, *values]))
        for condition in wanted:
            found = " ".join(letters[condition, row] for row in range(len(values)))
            lines.append(f"{condition}\t{found}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
