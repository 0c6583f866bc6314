"""Rows drawn as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def drawn(rows: Sequence[Mapping[str, object]], *, integers: Sequence[str] = ()) -> str:
    """Draw all columns of rows, texts whole. `integers` are columns of numbers that may be missing."""
    # A server has no use for it, and it would double the time of its start.
    import polars as pl  # noqa: PLC0415

    overrides = dict.fromkeys(integers, pl.Int64)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, fmt_str_lengths=120, tbl_hide_dataframe_shape=True):
        return f"{pl.DataFrame(rows, schema_overrides=overrides)}\n"
