mod damage;
mod golden;
mod indexes;
mod layouts;
mod naive;
mod sums;
mod typed;
pub(crate) mod writer;

use ::parquet::file::properties::WriterProperties;
use arrow_schema::Schema;
use serde_json::{Value, json};

use super::*;
use crate::actions::{FileBatch, Stats, Totals};
use crate::stop::Stop;
use writer::{Log, parquet};

fn everything() -> ReadOptions {
    ReadOptions { needs: Needs { stats: true, delta_fields: true }, ..ReadOptions::default() }
}

fn open(root: &str, files: &CheckpointFiles) -> Result<Checkpoint> {
    Checkpoint::open(&Storage::local(), root, files)
}

/// A classic checkpoint of these rows.
fn open_classic(
    log: &Log,
    schema: &Schema,
    rows: &[Value],
    properties: WriterProperties,
) -> Result<Checkpoint> {
    open(log.root(), &log.classic(&parquet(schema, rows, properties)))
}

fn read(checkpoint: &Checkpoint, options: ReadOptions) -> Result<Vec<FileBatch>> {
    let columns =
        checkpoint.metadata().map(|metadata| metadata.partition_columns.clone()).unwrap_or_default();
    checkpoint.batches(PartitionInterner::new(&columns), options).collect()
}

/// The totals of the live files.
fn live(checkpoint: &Checkpoint, is_dead: Option<IsDead<'_>>) -> Totals {
    checkpoint.totals(is_dead, 2, &Stop::default()).unwrap().live
}

/// A protocol, metadata and some adds.
pub(crate) fn rows_of(files: usize) -> Vec<Value> {
    [protocol_row(), metadata_row(&["day", "city"])].into_iter().chain((0..files).map(add_row)).collect()
}

pub(crate) fn protocol_row() -> Value {
    json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
}

pub(crate) fn metadata_row(partition_columns: &[&str]) -> Value {
    json!({"metaData": {
        "id": "table-id", "format": {"provider": "parquet", "options": {}}, "schemaString": "{}",
        "partitionColumns": partition_columns, "configuration": {"a": "b"}, "createdTime": 5,
    }})
}

/// Returns an add with all fields; its number makes it distinct.
pub(crate) fn add_row(number: usize) -> Value {
    json!({"add": {
        "path": format!("day=2024-01-0{}/part-{number}.parquet", number % 3),
        "partitionValues": {"day": format!("2024-01-0{}", number % 3), "city": null},
        "size": number * 10, "modificationTime": number + 1_700_000_000_000_usize, "dataChange": number.is_multiple_of(2),
        "stats": format!("{{\"numRecords\":{number}}}"),
        "deletionVector": if number.is_multiple_of(4) { json!({
            "storageType": "u", "pathOrInlineDv": format!("vector{number}"), "offset": 1, "sizeInBytes": 36,
            "cardinality": number,
        }) } else { Value::Null },
        "baseRowId": number * 1000, "defaultRowCommitVersion": 3, "clusteringProvider": "liquid",
    }})
}

/// The adds of batches as JSON, with the place each has.
fn adds(batches: &[FileBatch]) -> Vec<(u32, u32, Value)> {
    batches.iter().flat_map(|batch| (0..batch.len()).map(|file| add(batch, file))).collect()
}

pub(crate) fn add(batch: &FileBatch, file: usize) -> (u32, u32, Value) {
    let text =
        |column: &Option<arrow_array::StringViewArray>| column.as_ref()?.iter().nth(file)?.map(str::to_owned);
    let long = |column: &Option<arrow_array::Int64Array>| column.as_ref()?.iter().nth(file)?;
    let tuple = &batch.partitions.dictionary[batch.partitions.keys[file] as usize];
    let add = json!({
        "path": batch.path.value(file),
        "partitionValues": serde_json::from_slice::<Value>(&tuple.json).unwrap(),
        "size": batch.size[file],
        "modificationTime": batch.modification_time_ms[file],
        "dataChange": batch.data_change.as_ref().is_none_or(|flags| flags[file]),
        "stats": text(&batch.stats.clone().map(Stats::into_raw)),
        "deletionVector": batch.deletion_vector_at(file).map(|vector| json!({
            "storageType": char::from(vector.storage_type).to_string(),
            "pathOrInlineDv": vector.path_or_inline, "offset": vector.offset,
            "sizeInBytes": vector.size_in_bytes, "cardinality": vector.cardinality,
        })),
        "baseRowId": long(&batch.base_row_id),
        "defaultRowCommitVersion": long(&batch.default_row_commit_version),
        "clusteringProvider": text(&batch.clustering_provider),
    });
    (batch.source.0, batch.row[file], add)
}
