//! Splits decoded rows by their size after decoding.
//!
//! A dictionary stores a text once for all rows that refer to it. Later forms (escaped statistics, text written from
//! typed columns, deletion vectors, lines) store it once per row.
//!
//! Without it: an add with a text of 60 MB, which fits into a page, is held in several forms at once.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::FieldRef;

/// Assumed bytes of a number, its key and quotes in statistics that are written from typed columns.
const TYPED_VALUE_BYTES: usize = 48;

/// The most text of one action. Its later forms hold it several times.
const MAX_ACTION_BYTES: usize = 8 << 20;

/// The rows of a batch in pieces whose actions come to at most `limit` bytes of text each, or have one row. Returns `None`
/// if the text of one action is too long.
pub(crate) fn cut(batch: RecordBatch, limit: usize) -> Option<Vec<RecordBatch>> {
    let bytes = action_bytes(&batch);
    if bytes <= limit || batch.num_rows() <= 1 {
        return (bytes <= limit.max(MAX_ACTION_BYTES)).then(|| vec![batch]);
    }
    let pieces = bytes.div_ceil(limit).clamp(2, batch.num_rows());
    let rows = batch.num_rows().div_ceil(pieces);
    let starts = (0..batch.num_rows()).step_by(rows);
    // The texts of one piece may be longer than those of another.
    let mut cut_rows = Vec::with_capacity(pieces);
    for start in starts {
        cut_rows.append(&mut cut(batch.slice(start, rows.min(batch.num_rows() - start)), limit)?);
    }
    Some(cut_rows)
}

fn action_bytes(batch: &RecordBatch) -> usize {
    let schema = batch.schema_ref();
    let actions = schema.fields().iter().zip(batch.columns());
    let bytes = |(action, column): (&FieldRef, &ArrayRef)| match column.as_struct_opt() {
        Some(adds) if action.name() == "add" => add_bytes(adds),
        _ => text_bytes(column),
    };
    actions.map(bytes).sum()
}

/// Partition values are not counted: each of them is kept once.
fn add_bytes(adds: &StructArray) -> usize {
    let columns = adds.fields().iter().zip(adds.columns());
    columns
        .map(|(field, column)| match field.name().as_str() {
            "partitionValues" | "partitionValues_parsed" => 0,
            "stats_parsed" => {
                (column.len() - column.null_count()) * typed_values(column) * TYPED_VALUE_BYTES
                    + text_bytes(column)
            }
            _ => text_bytes(column),
        })
        .sum()
}

fn typed_values(column: &ArrayRef) -> usize {
    column.as_struct_opt().map_or(1, |columns| columns.columns().iter().map(typed_values).sum())
}

fn text_bytes(column: &ArrayRef) -> usize {
    if let Some(columns) = column.as_struct_opt() {
        return columns.columns().iter().map(text_bytes).sum();
    }
    if let Some(texts) = column.as_string_view_opt() {
        return texts.lengths().map(|length| length as usize).sum();
    }
    let inner = |offsets: &[i32]| (offsets[0] as usize, (offsets[offsets.len() - 1] - offsets[0]) as usize);
    if let Some(list) = column.as_list_opt::<i32>() {
        let (start, length) = inner(list.value_offsets());
        return text_bytes(&list.values().slice(start, length));
    }
    if let Some(maps) = column.as_map_opt() {
        let (start, length) = inner(maps.value_offsets());
        return maps.entries().slice(start, length).columns().iter().map(text_bytes).sum();
    }
    column.as_binary_view_opt().map_or(0, |texts| texts.lengths().map(|length| length as usize).sum())
}
