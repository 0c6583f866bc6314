"""Turns the Arrow types that writers choose into those of Parquet: lists of one form, texts and bytes.

A writer that uses Arrow leaves its types in the footer of a file, and Arrow reads the columns in them again:
files of Polars have long lists, lists of a fixed size, and views of texts. In: an array. Out: the same values
in types whose buffers have one known form, and of which Arrow can take rows.
"""

import pyarrow as pa
import pyarrow.compute as pc


def plain_array(array: pa.Array) -> pa.Array:
    """Return the same values without extensions, views and lists of other forms, at every depth."""
    kind = array.type
    if _is_plain(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        return plain_array(array.storage)
    if pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    if pa.types.is_struct(kind):
        children = [plain_array(array.field(index)) for index in range(kind.num_fields)]
        fields = [field.with_type(child.type) for field, child in zip(kind, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if pa.types.is_map(kind):
        keys, items = plain_array(array.keys), plain_array(array.items)
        target = pa.map_(kind.key_field.with_type(keys.type), kind.item_field.with_type(items.type))
        return with_entries(array, target, keys, items)
    # Not a cast: that of a list view gives a list with the offsets of the view.
    values = plain_array(pc.list_flatten(array))
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    return pa.ListArray.from_arrays(
        pa.concat_arrays([pa.array([0], pa.int32()), ends]),
        values,
        type=pa.list_(kind.value_field.with_type(values.type)),
        mask=array.is_null(),
    )


def with_children(array: pa.Array, target: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """Return the same lists (validity, offsets and slice) with other children, without a copy."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(array), [validity, offsets], array.null_count, array.offset, children
    )


def with_entries(array: pa.Array, target: pa.MapType, keys: pa.Array, items: pa.Array) -> pa.Array:
    """Return the same maps with other keys and values, without a copy."""
    entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    return with_children(array, target, [entries])


def _is_plain(kind: pa.DataType) -> bool:
    is_view = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    if is_view or isinstance(kind, pa.BaseExtensionType):
        return False
    if not pa.types.is_nested(kind):
        return True
    is_known = pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_list(kind)
    return is_known and all(_is_plain(kind.field(index).type) for index in range(kind.num_fields))
