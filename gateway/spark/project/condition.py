"""The condition of a rule, which is a pure function of the columns of one row.

In: the columns of a source, and a text in Spark SQL. Out: the condition as Spark resolves it, or InvalidRule.
Every expression of the resolved and of the folded condition is on a list of pure ones. What Spark's parser
turns into a value by the clock, such as `DATE 'today'`, is found by the text that a literal comes from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gateway.spark import java
from gateway.spark.project.errors import InvalidRule

_PACKAGE = "org.apache.spark.sql.catalyst.expressions."
_PURE_NAMES = """
Alias AttributeReference Literal TypedNullLiteral Cast And Or Not EqualTo EqualNullSafe LessThan
LessThanOrEqual GreaterThan GreaterThanOrEqual Between In InSet IsNull IsNotNull IsNaN If CaseWhen Coalesce
NullIf Nvl Nvl2 Greatest Least With CommonExpressionDef CommonExpressionRef Add Subtract Multiply Divide
IntegralDivide Remainder Pmod UnaryMinus UnaryPositive Abs Floor Ceil Round TryAdd TrySubtract TryMultiply
TryDivide TryEval CheckOverflow MakeDecimal UnscaledValue BitwiseAnd BitwiseOr BitwiseXor BitwiseNot
ShiftLeft ShiftRight ShiftRightUnsigned Like ILike RLike LikeAll LikeAny NotLikeAll NotLikeAny StartsWith
EndsWith Contains Upper Lower StringTrim StringTrimLeft StringTrimRight Substring Left Right SubstringIndex
Length OctetLength BitLength Concat ConcatWs StringReplace StringTranslate StringLocate StringInstr
StringLPad StringRPad StringSplit RegExpExtract RegExpReplace Ascii Hex Md5 Sha1 Sha2 Crc32 Murmur3Hash
XxHash64 Year Quarter Month DayOfMonth DayOfWeek WeekDay WeekOfYear DayOfYear Hour Minute Second DateAdd
DateSub DateDiff AddMonths LastDay TruncDate TruncTimestamp MakeDate UnixDate DateFromUnixDate UnixSeconds
UnixMillis UnixMicros SecondsToTimestamp MillisToTimestamp MicrosToTimestamp DatetimeSub DateAddInterval
DateAddYMInterval TimestampAddInterval TimestampAddYMInterval SubtractDates SubtractTimestamps
GetStructField GetArrayStructFields GetArrayItem GetMapValue ElementAt Size ArrayContains ArraysOverlap
MapKeys MapValues CreateArray CreateNamedStruct LambdaFunction NamedLambdaVariable ArrayExists ArrayForAll
ArrayFilter ArrayTransform
"""
_PURE = frozenset(_PURE_NAMES.split())
"""Spark's expressions whose value follows from their children's, on any day, machine and in any zone."""

_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
_CLOCKED = re.compile(r"string|char|varchar|time\(")
"""Starts of names of types whose values may be a time of a day, which Spark puts on the day of the run."""

_HOURS = r"[T ]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,9})?)?(Z|UTC|[+-]\d{1,2}:\d{2})?"
_DATED = re.compile(rf"\s*\d{{4}}(-\d{{1,2}}(-\d{{1,2}}({_HOURS})?)?)?\s*")
"""A text that is the same moment at all times."""

_TYPED = re.compile(r"(?:DATE|TIMESTAMP(?:_LTZ|_NTZ)?)\s*(['\"])(?P<text>[^'\"\\]*)\1", re.IGNORECASE)
"""A date or a time as the parser makes one of a text."""


def resolved(frame: DataFrame, where: str) -> str:
    """Return a condition as Spark resolves it over the columns of a source. Raises InvalidRule."""
    if "${" in where:
        raise InvalidRule("where: ${ } is a variable of the process; give its value")
    spark = frame.sparkSession
    # Columns alone: the files of the source have others, such as `_metadata`.
    columns = spark.createDataFrame([], frame.schema)
    try:
        parsed = java.parsed(spark, where)
        condition = java.condition_of(columns.where(f.expr(where)))
        folded = java.first_of(columns.select(f.expr(where)))
    except AnalysisException as error:
        # The text of an analysis has the rule and names of columns, and no rows.
        raise InvalidRule(f"where: {str(error).strip().splitlines()[0]}") from None
    except Py4JError:
        raise InvalidRule("where: Spark cannot describe the condition") from None
    _check_literals(parsed, where)
    _check_tree(condition)
    _check_tree(folded)
    return str(condition.sql())


def _check_literals(parsed: Any, where: str) -> None:
    for expression in _expressions(parsed):
        if _name(expression) != "Literal" or _types(expression.dataType()).isdisjoint(_TIMES):
            continue
        origin = expression.origin()
        text = where[origin.startIndex().get() : origin.stopIndex().get() + 1]
        match = _TYPED.fullmatch(text)
        if match is None or not _DATED.fullmatch(match["text"]):
            raise _undated()


def _check_tree(condition: Any) -> None:
    expressions = list(_expressions(condition))
    impure = {name for name in map(_name, expressions) if name not in _PURE}
    if impure:
        named = ", ".join(sorted(impure))
        raise InvalidRule(
            f"where: {named} is not among the functions of a condition, which depends on the columns of one "
            "row alone"
        )
    for expression in expressions:
        if _name(expression) == "Cast":
            _check_cast(expression)


def _check_cast(cast: Any) -> None:
    """Refuse a text as a date or a time where it may be read by the clock."""
    child, target = cast.child(), _types(cast.dataType())
    if target.isdisjoint(_TIMES) or not any(map(_CLOCKED.match, _types(child.dataType()))):
        return
    if _name(child) == "Literal":
        if child.value() is not None and not _DATED.fullmatch(str(child.value().toString())):
            raise _undated()
    # 'today' is read in constants alone, and a time of a day is no date.
    elif child.foldable() or "timestamp" in target:
        raise _undated()


def _undated() -> InvalidRule:
    return InvalidRule(
        "where: a text as a time, such as 'now' or '12:30', depends on the day of the run; give a date, as "
        "in TIMESTAMP '2024-01-31 12:30:00Z', and cast texts of columns to DATE or TIMESTAMP_NTZ"
    )


def _expressions(root: Any) -> Iterator[Any]:
    pending = [root]
    while pending:
        expression = pending.pop()
        yield expression
        children = expression.children()
        pending += [children.apply(index) for index in range(children.size())]


def _name(expression: Any) -> str:
    """Return the name of an expression's class, in full for one that is not Spark's own."""
    return str(expression.getClass().getName()).removeprefix(_PACKAGE)


def _types(data_type: Any) -> set[str]:
    """Return the names of the types that are within a type."""
    return set(_names(json.loads(data_type.json())))


def _names(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
        return
    if node["type"] == "struct":
        for field in node["fields"]:
            yield from _names(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        if part in node:
            yield from _names(node[part])
