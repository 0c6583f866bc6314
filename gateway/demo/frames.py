"""The rows of shared tables as polars frames."""

import io
from collections.abc import Mapping

import polars as pl

from gateway.demo.reader import DataFile, SharedRows

_POLARS_TYPES: Mapping[str, pl.DataType] = {
    "long": pl.Int64(),
    "double": pl.Float64(),
    "string": pl.String(),
    "date": pl.Date(),
    "timestamp": pl.Datetime("us", "UTC"),
}


def frame(table: SharedRows) -> pl.DataFrame:
    """Return the rows of a table."""
    schema = {name: _POLARS_TYPES[kind] for name, kind in table.schema.items()}
    parts = [_frame_of_file(file, schema) for file in table.files]
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def _frame_of_file(file: DataFile, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return a file's rows without its deleted ones, with its partition values as columns."""
    rows = pl.read_parquet(io.BytesIO(file.content))
    is_kept = [place not in file.deleted_rows for place in range(rows.height)]
    values = {
        name: pl.lit(value, dtype=pl.String).cast(schema[name])
        for name, value in file.partition_values.items()
    }
    return rows.filter(pl.Series(is_kept, dtype=pl.Boolean)).with_columns(**values).select(list(schema))
