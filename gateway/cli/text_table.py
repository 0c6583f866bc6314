"""Rows as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def text_table(rows: Sequence[Mapping[str, object]], *, integers: Sequence[str] = ()) -> str:
    """Return a table with all columns of the rows. `integers` are number columns with missing values."""
    # Imported only here: the library takes longer to load than a command may.
    import polars as pl  # noqa: PLC0415

    overrides = dict.fromkeys(integers, pl.Int64)
    with pl.Config(
        tbl_rows=-1,
        tbl_cols=-1,
        fmt_str_lengths=120,
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
    ):
        return f"{pl.DataFrame(rows, schema_overrides=overrides)}\n"
