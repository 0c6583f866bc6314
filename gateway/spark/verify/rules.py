"""The rows of a table that a recipient's rule selects, as Spark finds them on all rows.

In: a DataFrame of delta-spark's, and a condition. Out: the rows for which it is true. No statistics of the
table decide.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from gateway.spark.targets import Target
from gateway.spark.verify.digest import new_name

RECIPIENT = "recipient"


def within_rule(frame: DataFrame, target: Target) -> DataFrame:
    """Return the rows for which Spark finds the rule of the recipient true. Raises ValueError.

    The properties are fields of a struct, so that Spark resolves `recipient.name` as the server does.
    """
    if target.condition is None:
        return frame
    if not target.properties:
        return filtered_without_skipping(frame, f.expr(target.condition))
    if RECIPIENT in (name.lower() for name in frame.columns):
        raise ValueError("the table has a column 'recipient', so Spark cannot evaluate the recipient's rule")
    properties = [f.lit(text).alias(name) for name, text in target.properties.items()]
    with_properties = frame.withColumn(RECIPIENT, f.struct(*properties))
    return filtered_without_skipping(with_properties, f.expr(target.condition)).drop(RECIPIENT)


def filtered_without_skipping(frame: DataFrame, condition: Column) -> DataFrame:
    """Return the rows of a Delta table for which a condition is true, evaluated on all rows.

    Spark moves no filter below a column that is not deterministic, so Delta does not see it. Delta's own
    setting does not do: with `stats.skipping` off it cannot read deletion vectors.
    """
    place = new_name(frame.columns)
    numbered = frame.withColumn(place, f.monotonically_increasing_id())
    return numbered.where(condition & (f.col(place) >= f.lit(0))).drop(place)
