"""Reassembles shredded variants of a Parquet file.

In: the struct of `metadata`, `value` and `typed_value` as Arrow reads it. Out: whole variants. The native
module encodes them, by the Parquet specification of variants.
"""

import pyarrow as pa
import pyarrow.compute as pc

from gateway.client.actions import UnsupportedTable
from gateway.client.native import native_module


def whole_variants(array: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """Return the values and the metadata of an array of shredded variants; both are empty for a null row.

    Raises UnsupportedTable for a shredded type that variants do not have, and for what is no variant.
    """
    native = native_module("tables with shredded variants")
    batch = pa.record_batch([array], ["variant"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    try:
        offsets, data = native.whole_variants(sink.getvalue().to_pybytes())
    except native.InvalidArgument as error:
        raise UnsupportedTable(str(error)) from None
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    values = pa.Array.from_buffers(pa.binary(), len(array), buffers)
    nothing = pa.scalar(b"", pa.binary())
    metadata = pc.if_else(array.is_valid(), array.field("metadata").cast(pa.binary()), nothing)
    return values, metadata
