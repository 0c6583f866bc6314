"""Conditions of projections: pure functions of the columns of one row are accepted, all else is refused."""

from typing import Any

import pytest

from gateway.config import ProjectedColumn, Projection
from gateway.config.locations import Location
from gateway.spark import java
from gateway.spark.project.condition import resolved
from gateway.spark.project.errors import InvalidRule
from gateway.spark.project.evaluation import Evaluation, rule_session
from gateway.spark.session import session_like

pytestmark = pytest.mark.usefixtures("few_rows")

COLUMNS = (
    "id BIGINT, amount DECIMAL(10, 2), country STRING, status STRING, hidden BOOLEAN, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, day DATE, tags ARRAY<STRING>, nested STRUCT<a: INT>, entries MAP<STRING, INT>"
)
PURE = [
    "country = 'de' AND NOT hidden",
    "status = 'today' OR status IN ('now', '12:30')",
    "at > '2024-01-01' AND day < DATE '2024-02-01' AND at < TIMESTAMP '2024-01-31 12:30:00.5Z'",
    "CAST(status AS DATE) < day AND try_cast(status AS TIMESTAMP_NTZ) < local",
    "year(day) = 2024 AND datediff(day, '2024-01-01') > 3 AND date_trunc('day', at) - INTERVAL 1 DAY < at",
    "id BETWEEN 3 AND 4 OR amount * 2 > 3 OR id % 7 = 3 OR nullif(id, 3) = 4",
    "left(status, 2) LIKE 'a%' OR upper(trim(country)) IN ('DE', 'FR') OR sha2(status, 256) < '8'",
    "exists(tags, tag -> tag = 'a') OR nested.a IN (1, 2) OR entries['a'] = 3 OR size(tags) > 2",
    "CASE WHEN coalesce(status, '') RLIKE 'a.*' THEN true ELSE hidden END",
]
IMPURE = [
    "CAST('12:30' AS TIMESTAMP) < at",
    "at > '12:30'",
    "at > ' Yesterday UTC'",
    "day < 'today'",
    "day < DATE 'today'",
    "at < TIMESTAMP /* of the run */ 'now'",
    "at < TIMESTAMP '12:30'",
    "at > concat('to', 'day')",
    "CAST(array('12:30') AS ARRAY<TIMESTAMP>)[0] < at",
    "CAST(status AS TIMESTAMP) < at",
    "hour(status) = 3",
    "to_date('today') = day",
    "at < current_timestamp()",
    "current_user() = country",
    "current_timezone() = country",
    "rand() < 0.5",
    "uuid() = status",
    "base64(aes_encrypt(status, '0000111122223333')) = 'x'",
    "status = '${env:HOME}'",
    "reflect('java.lang.Math', 'random') = status",
    "input_file_name() = status",
    "_metadata.file_size > 3",
    "id IN (SELECT id FROM range(3))",
    "of_python(id) > 3",
    "no_such_column = 1",
    "country =",
    "id + 1",
]


def test_a_condition_is_a_pure_function_of_the_columns_of_one_row(spark: Any) -> None:
    session = rule_session(spark)
    session.udf.register("of_python", lambda number: number, "BIGINT")
    frame = session.createDataFrame([], COLUMNS)
    for condition in PURE:
        assert resolved(frame, condition)
    for condition in IMPURE:
        with pytest.raises(InvalidRule, match="where: "):
            pytest.fail(f"{condition} is accepted: {resolved(frame, condition)}")


def test_no_setting_of_a_session_changes_what_a_condition_means(spark: Any) -> None:
    """With these it has no column "de", reads other texts of times, and compares other types of them."""
    odd = session_like(
        spark,
        {
            "spark.sql.ansi.doubleQuotedIdentifiers": "true",
            "spark.sql.legacy.timeParserPolicy": "LEGACY",
            "spark.sql.parser.escapedStringLiterals": "true",
            "spark.sql.timestampType": "TIMESTAMP_NTZ",
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.session.timeZone": "Asia/Kolkata",
        },
    )
    where = r"""country = "de" AND at > TIMESTAMP '2024-01-01' AND status RLIKE '\\d' """
    usual, session = rule_session(spark), rule_session(odd)
    assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    # VACUUM would begin as many tasks, 10,000 by Spark's default.
    assert session.conf.get("spark.sql.sources.parallelPartitionDiscovery.parallelism") == "32"
    with java.active(odd):
        condition = resolved(session.createDataFrame([], COLUMNS), where)
    assert condition == resolved(usual.createDataFrame([], COLUMNS), where)
    projection = Projection(source=Location("file", "", "source"), columns=(ProjectedColumn("id"),))
    made = [Evaluation.of(one, projection, condition) for one in (usual, session, odd)]
    assert made[0] == made[1]
    assert "timeParserPolicy" in made[0].difference(made[2])


def test_the_resolved_condition_names_the_casts_that_spark_adds(spark: Any) -> None:
    frame = rule_session(spark).createDataFrame([], COLUMNS)
    assert resolved(frame, "at > '2024-01-01'") == "(at > CAST('2024-01-01' AS TIMESTAMP))"
