"""Spark's and Delta's Java classes, which Python reaches by names that PySpark calls private.

They are those of the driver: a session of Spark Connect has none.
"""

# ruff: noqa: SLF001 - what this module is for

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

_PYTHON_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def classes(spark: SparkSession) -> Any:
    """Return the root of all Java packages."""
    return spark._jvm


def session(spark: SparkSession) -> Any:
    """Return a session as Java sees it."""
    return spark._jsparkSession


def hadoop_settings(spark: SparkSession) -> Any:
    """Return the settings of a session's clients of stores."""
    return session(spark).sessionState().newHadoopConf()


def path_and_files(spark: SparkSession, *parts: Any) -> tuple[Any, Any]:
    """Return a path of Hadoop, of a location or of a path and a name in it, and its file system."""
    path = classes(spark).org.apache.hadoop.fs.Path(*parts)
    return path, path.getFileSystem(hadoop_settings(spark))


def condition_of(filtered: DataFrame) -> Any:
    """Return the resolved condition of a DataFrame that `where` has made."""
    return filtered._jdf.queryExecution().analyzed().condition()


def parsed(spark: SparkSession, text: str) -> Any:
    """Return an expression of SQL, of which no name is resolved."""
    return session(spark).sessionState().sqlParser().parseExpression(text)


def first_of(selected: DataFrame) -> Any:
    """Return the first column of a DataFrame that `select` has made, as the optimizer leaves it."""
    return selected._jdf.queryExecution().optimizedPlan().projectList().apply(0)


def row_bytes(rows: DataFrame) -> int:
    """Return Spark's estimate of the bytes of a row, by the types of its columns."""
    return int(rows._jdf.schema().defaultSize())


def dataset(rows: DataFrame) -> Any:
    """Return a DataFrame as Java sees it."""
    return rows._jdf


def companion(package: Any, name: str) -> Any:
    """Return the object beside a class of Scala."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def is_missing(error: Py4JJavaError) -> bool:
    """Return whether an error of Java says that a file is not there."""
    return str(error.java_exception.getClass().getSimpleName()) == "FileNotFoundException"


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make a session the one whose settings Delta takes, in this thread, within the block."""
    sessions = classes(spark).org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session(spark))
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def frame(rows: Any, spark: SparkSession) -> DataFrame:
    """Return a DataFrame of Java as one of Python."""
    return DataFrame(rows, spark)


def pair(values: Any) -> tuple[Any, Any]:
    return values._1(), values._2()


def none(spark: SparkSession) -> Any:
    """Return Scala's empty option."""
    return classes(spark).scala.Option.empty()


def sequence(spark: SparkSession, items: Iterable[Any]) -> Any:
    """Return items as an immutable sequence of Scala."""
    java_list = classes(spark).java.util.ArrayList()
    for item in items:
        java_list.add(item)
    return classes(spark).scala.jdk.javaapi.CollectionConverters.asScala(java_list).toSeq()


def longs(spark: SparkSession, numbers: Collection[int]) -> Any:
    """Return numbers of 64 bits as a sequence of Scala, by one call for all of them."""
    java = classes(spark)
    gateway: Any = spark.sparkContext._gateway
    words = java.java.nio.ByteBuffer.wrap(bytearray(struct.pack(f">{len(numbers)}q", *numbers)))
    array = gateway.new_array(java.long, len(numbers))
    words.asLongBuffer().get(array)
    return java.scala.Predef.wrapLongArray(array).toSeq()


def is_among(spark: SparkSession, column: Column, numbers: Collection[int]) -> Column:
    """Return whether a column of 64 bits has one of some numbers.

    They are one constant: thousands of them as literals cost each of Spark's rules and its parser more than
    the comparison of a few million rows.
    """
    java = classes(spark)
    values = longs(spark, numbers).toSet()
    utils = java.org.apache.spark.sql.classic.ExpressionUtils
    child = utils.expression(column._jc)
    condition = java.org.apache.spark.sql.catalyst.expressions.InSet(child, values)
    return ClassicColumn(utils.column(condition))


def branches(rows: DataFrame) -> list[DataFrame]:
    """Return the DataFrames of which a DataFrame is the union; itself, if it is none.

    They are those of the optimizer, which moves filters and columns below a union, but no aggregate.
    """
    plan, spark = rows._jdf.queryExecution().optimizedPlan(), rows.sparkSession
    if plan.nodeName() != "Union":
        return [rows]
    frames = companion(classes(spark).org.apache.spark.sql.classic, "Dataset")
    children = (frames.ofRows(session(spark), child) for child in as_list(spark, plan.children()))
    return [frame(branch, spark).toDF(*rows.columns) for branch in children]


def as_list(spark: SparkSession, items: Any) -> list[Any]:
    """Return a sequence of Scala as a list."""
    elements = classes(spark).scala.jdk.javaapi.CollectionConverters.asJava(items)
    # An iterator of Java ends with an exception, which takes longer than all else.
    return [elements.get(index) for index in range(elements.size())]


@contextmanager
def without_log(spark: SparkSession) -> Iterator[None]:
    """Turn off Spark's log in this process within the block: its errors quote values of the rows."""
    level = classes(spark).org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()
    before = [(logger, logger.disabled) for logger in map(PySparkLogger.getLogger, _PYTHON_LOGGERS)]
    spark.sparkContext.setLogLevel("OFF")
    for logger, _ in before:
        logger.disabled = True
    try:
        yield
    finally:
        spark.sparkContext.setLogLevel(level)
        for logger, was_disabled in before:
            logger.disabled = was_disabled
