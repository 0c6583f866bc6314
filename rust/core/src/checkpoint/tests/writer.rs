//! Writes checkpoints from JSON rows by the Arrow writer, and logs around them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ::parquet::arrow::ArrowWriter;
use ::parquet::file::properties::WriterProperties;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    UInt8Type, UInt16Type, UInt32Type,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, ListArray, MapArray,
    NullArray, PrimitiveArray, RecordBatch, StringArray, StructArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use serde_json::Value;

use crate::log_path::commit_name;
use crate::segment::{CheckpointFiles, CheckpointKind};
use crate::storage::LogFileEntry;

pub(crate) const UUID: &str = "80a083e8-7026-4e79-81be-64bd76c43a11";

/// The name of a checkpoint in JSON.
pub(crate) fn checkpoint_name(version: i64) -> String {
    format!("{version:020}.checkpoint.{UUID}.json")
}

/// A struct type from `name, type` pairs, all nullable.
pub(crate) fn fields<const N: usize>(pairs: [(&str, DataType); N]) -> Fields {
    pairs.into_iter().map(|(name, data_type)| Field::new(name, data_type, true)).collect()
}

pub(crate) fn struct_of<const N: usize>(pairs: [(&str, DataType); N]) -> DataType {
    DataType::Struct(fields(pairs))
}

pub(crate) fn string_map() -> DataType {
    let entries = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, true),
    ]);
    DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(entries), false)), false)
}

pub(crate) fn string_list() -> DataType {
    DataType::List(Arc::new(Field::new("element", DataType::Utf8, true)))
}

/// The columns of `add` that every writer writes.
pub(crate) fn add_fields() -> Vec<(&'static str, DataType)> {
    vec![
        ("path", DataType::Utf8),
        ("partitionValues", string_map()),
        ("size", DataType::Int64),
        ("modificationTime", DataType::Int64),
        ("dataChange", DataType::Boolean),
        ("stats", DataType::Utf8),
        (
            "deletionVector",
            struct_of([
                ("storageType", DataType::Utf8),
                ("pathOrInlineDv", DataType::Utf8),
                ("offset", DataType::Int32),
                ("sizeInBytes", DataType::Int32),
                ("cardinality", DataType::Int64),
            ]),
        ),
        ("baseRowId", DataType::Int64),
        ("defaultRowCommitVersion", DataType::Int64),
        ("clusteringProvider", DataType::Utf8),
    ]
}

/// [`add_fields`] with another type of whole numbers.
pub(crate) fn with_type(integer: &DataType) -> Vec<(&'static str, DataType)> {
    let replaced = |data_type: DataType| match data_type {
        DataType::Int32 | DataType::Int64 => integer.clone(),
        DataType::Struct(children) => {
            let child = |child: &FieldRef| {
                let is_text = matches!(child.data_type(), DataType::Utf8);
                let data_type = if is_text { DataType::Utf8 } else { integer.clone() };
                Arc::new(Field::new(child.name(), data_type, true))
            };
            DataType::Struct(children.iter().map(child).collect())
        }
        other => other,
    };
    add_fields().into_iter().map(|(name, data_type)| (name, replaced(data_type))).collect()
}

/// A checkpoint's schema with the given columns of `add`.
pub(crate) fn schema_of(add: &[(&str, DataType)]) -> Schema {
    let add = add.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect();
    Schema::new(fields([
        ("txn", struct_of([("appId", DataType::Utf8), ("version", DataType::Int64)])),
        ("add", DataType::Struct(add)),
        ("remove", struct_of([("path", DataType::Utf8), ("deletionTimestamp", DataType::Int64)])),
        (
            "metaData",
            struct_of([
                ("id", DataType::Utf8),
                ("name", DataType::Utf8),
                ("description", DataType::Utf8),
                ("format", struct_of([("provider", DataType::Utf8), ("options", string_map())])),
                ("schemaString", DataType::Utf8),
                ("partitionColumns", string_list()),
                ("configuration", string_map()),
                ("createdTime", DataType::Int64),
            ]),
        ),
        (
            "protocol",
            struct_of([
                ("minReaderVersion", DataType::Int32),
                ("minWriterVersion", DataType::Int32),
                ("readerFeatures", string_list()),
                ("writerFeatures", string_list()),
            ]),
        ),
        ("sidecar", struct_of([("path", DataType::Utf8), ("sizeInBytes", DataType::Int64)])),
        ("checkpointMetadata", struct_of([("version", DataType::Int64), ("tags", string_map())])),
    ]))
}

pub(crate) fn schema() -> Schema {
    schema_of(&add_fields())
}

/// A schema with another type of one column.
pub(crate) fn with_column(schema: &Schema, name: &str, data_type: DataType) -> Schema {
    let mut fields = schema.fields().to_vec();
    let field = fields.iter_mut().find(|field| field.name() == name).unwrap();
    *field = Arc::new(Field::new(name, data_type, true));
    Schema::new(fields)
}

/// A Parquet file of `rows`, objects such as `{"add": {"path": ...}}`.
pub(crate) fn parquet(schema: &Schema, rows: &[Value], properties: WriterProperties) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, Arc::new(schema.clone()), Some(properties)).unwrap();
    for rows in rows.chunks(1000) {
        let rows: Vec<_> = rows.iter().collect();
        let columns = schema.fields().iter().map(|field| array(field.data_type(), &children(&rows, field)));
        let batch = RecordBatch::try_new(Arc::new(schema.clone()), columns.collect()).unwrap();
        writer.write(&batch).unwrap();
    }
    writer.close().unwrap();
    file
}

/// A table's directory with one log file each.
pub(crate) struct Log(tempfile::TempDir);

impl Log {
    pub(crate) fn new() -> Self {
        let log = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir_all(log.0.path().join("_delta_log/_sidecars")).unwrap();
        log
    }

    pub(crate) fn root(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// A log of the lines of commits.
    pub(crate) fn of<L: ToString>(commits: &[Vec<L>]) -> Self {
        let log = Self::new();
        for (version, lines) in (0..).zip(commits) {
            log.write_commit(version, lines);
        }
        log
    }

    /// The path of a file below `_delta_log`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("_delta_log").join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &(impl AsRef<[u8]> + ?Sized)) -> LogFileEntry {
        std::fs::write(self.path(name), content).unwrap();
        let size = content.as_ref().len() as u64;
        LogFileEntry { name: name.to_owned(), size, modified_ms: 0, entity_tag: None, identity: 0 }
    }

    pub(crate) fn write_commit<L: ToString>(&self, version: i64, lines: &[L]) -> LogFileEntry {
        let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        self.write(&commit_name(version), &lines.join("\n"))
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    /// Sets the modification time of a file.
    pub(crate) fn touch(&self, name: &str, modified_ms: u64) {
        let file = std::fs::File::options().append(true).open(self.path(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_millis(modified_ms)).unwrap();
    }

    pub(crate) fn classic(&self, content: &[u8]) -> CheckpointFiles {
        self.checkpoint(CheckpointKind::Classic, [("parquet".to_owned(), content)])
    }

    pub(crate) fn in_json(&self, content: &[u8]) -> CheckpointFiles {
        self.checkpoint(CheckpointKind::UuidJson, [(format!("{UUID}.json"), content)])
    }

    pub(crate) fn multi_part(&self, parts: &[Vec<u8>]) -> CheckpointFiles {
        let named = (1..)
            .zip(parts)
            .map(|(number, part): (u32, _)| (format!("{number:010}.{:010}.parquet", parts.len()), &part[..]));
        self.checkpoint(CheckpointKind::MultiPart, named)
    }

    /// Writes a checkpoint of version 7 from the ends of its names and their content.
    fn checkpoint<'a>(
        &self,
        kind: CheckpointKind,
        named: impl IntoIterator<Item = (String, &'a [u8])>,
    ) -> CheckpointFiles {
        let write = |(end, content)| self.write(&format!("{:020}.checkpoint.{end}", 7), content);
        CheckpointFiles { version: 7, kind, files: named.into_iter().map(write).collect() }
    }
}

fn children<'a>(rows: &[&'a Value], field: &Field) -> Vec<&'a Value> {
    rows.iter().map(|row| row.get(field.name()).unwrap_or(&Value::Null)).collect()
}

fn longs<T: ArrowPrimitiveType>(values: &[&Value]) -> PrimitiveArray<T>
where
    T::Native: TryFrom<i64, Error: std::fmt::Debug>,
{
    values.iter().map(|value| value.as_i64().map(|value| value.try_into().unwrap())).collect()
}

/// Dates are days, timestamps microseconds, decimals strings of digits, floats numbers or `"NaN"`.
fn array(data_type: &DataType, values: &[&Value]) -> ArrayRef {
    let nulls: NullBuffer = values.iter().map(|value| !value.is_null()).collect();
    let text = || values.iter().map(|value| value.as_str());
    let doubles = || values.iter().map(|value| value.as_f64().or_else(|| value.as_str()?.parse().ok()));
    match data_type {
        DataType::Utf8 => Arc::new(text().collect::<StringArray>()),
        DataType::Binary => Arc::new(text().map(|text| text.map(str::as_bytes)).collect::<BinaryArray>()),
        DataType::Boolean => Arc::new(values.iter().map(|value| value.as_bool()).collect::<BooleanArray>()),
        DataType::Int8 => Arc::new(longs::<Int8Type>(values)),
        DataType::Int16 => Arc::new(longs::<Int16Type>(values)),
        DataType::Int32 => Arc::new(longs::<Int32Type>(values)),
        DataType::Int64 => Arc::new(longs::<Int64Type>(values)),
        DataType::UInt8 => Arc::new(longs::<UInt8Type>(values)),
        DataType::UInt16 => Arc::new(longs::<UInt16Type>(values)),
        DataType::UInt32 => Arc::new(longs::<UInt32Type>(values)),
        DataType::UInt64 => Arc::new(values.iter().map(|value| value.as_u64()).collect::<UInt64Array>()),
        DataType::Null => Arc::new(NullArray::new(values.len())),
        DataType::Date32 => Arc::new(longs::<Date32Type>(values)),
        DataType::Float64 => Arc::new(doubles().collect::<Float64Array>()),
        DataType::Float32 => Arc::new(doubles().map(|d| d.map(|d| d as f32)).collect::<Float32Array>()),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            Arc::new(longs::<TimestampMicrosecondType>(values).with_timezone_opt(zone.clone()))
        }
        DataType::Decimal128(precision, scale) => Arc::new(
            text()
                .map(|text| text.map(|text| text.parse().unwrap()))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(*precision, *scale)
                .unwrap(),
        ),
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| array(field.data_type(), &children(values, field)));
            Arc::new(StructArray::new(fields.clone(), columns.collect(), Some(nulls)))
        }
        DataType::List(item) => {
            let items: Vec<&[Value]> = values.iter().map(|v| v.as_array().map_or(&[][..], |v| v)).collect();
            let offsets = OffsetBuffer::from_lengths(items.iter().map(|items| items.len()));
            let flat: Vec<&Value> = items.into_iter().flatten().collect();
            Arc::new(ListArray::new(Arc::clone(item), offsets, array(item.data_type(), &flat), Some(nulls)))
        }
        DataType::Map(entries, sorted) => {
            let objects: Vec<_> = values.iter().map(|v| v.as_object().cloned().unwrap_or_default()).collect();
            let offsets = OffsetBuffer::from_lengths(objects.iter().map(serde_json::Map::len));
            let keys: StringArray = objects.iter().flat_map(|object| object.keys().map(Some)).collect();
            let items: StringArray =
                objects.iter().flat_map(|object| object.values().map(Value::as_str)).collect();
            let DataType::Struct(fields) = entries.data_type() else { unreachable!() };
            let pairs = StructArray::new(fields.clone(), vec![Arc::new(keys), Arc::new(items)], None);
            Arc::new(MapArray::new(Arc::clone(entries), offsets, pairs, Some(nulls), *sorted))
        }
        other => unreachable!("{other}"),
    }
}
