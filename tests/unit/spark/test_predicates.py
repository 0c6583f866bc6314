"""Filters as hints to a server: each text is read as the value that it is drawn from."""

import json

import pytest
from pyspark.sql import types as t

from gateway import _native
from gateway.spark.verify.predicates import _hint

TEXT = t.StructField("s", t.StringType())


@pytest.mark.parametrize("value", ["C:\\temp", "\\", "a\\'b", "it's", '"', "", "${x}", "a%_"])
def test_a_text_is_read_by_the_server_as_it_is_in_the_rows(value: str) -> None:
    schema = t.StructType([TEXT]).json()
    hint = _hint(TEXT, "=", [value])
    assert hint is not None

    def may_match(bound: str) -> bool:
        made = _native.RowGroupFilter(
            schema,
            partition_columns=(),
            column_mapping_mode="none",
            predicate_hints=(hint,),
            json_predicate_hint=None,
        )
        bounds = {"minValues": {"s": bound}, "maxValues": {"s": bound}, "nullCount": {"s": 0}}
        return made.may_match(json.dumps({"numRecords": 1, **bounds}))

    assert may_match(value)
    assert not may_match(f"{value}, and more")
