"""What a table's own log says of it, whatever a server states.

In: a location that Delta has read. Out: facts of the metadata. No file of the table is read.
"""

from pyspark.sql import SparkSession

from gateway.spark import java

_FEED = "delta.enableChangeDataFeed"


def has_feed(spark: SparkSession, location: str) -> bool:
    """Return whether the latest version that Delta has seen has a change data feed."""
    log = java.classes(spark).org.apache.spark.sql.delta.DeltaLog.forTable(java.session(spark), location)
    value = log.unsafeVolatileSnapshot().metadata().configuration().get(_FEED)
    return bool(value.isDefined()) and str(value.get()).lower() == "true"
