//! The single rows of a checkpoint's top file: the protocol, the metadata and the sidecars.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::DataType;

use super::adds::string_entries;
use super::kept_rows::RowNumbers;
use super::parquet::decoded_bytes;
use super::parquet::file::{ParquetFile, has_values, may_have_rows};
use super::whole_numbers::{ints, longs};
use super::{BATCH_BYTES, BATCH_ROWS};
use crate::actions::{Metadata, Protocol, lenient_i64};
use crate::{Error, Result};

/// The actions of a top file that are not file actions.
#[derive(Debug, Default)]
pub(super) struct TopFile {
    pub(super) protocol: Option<Protocol>,
    pub(super) metadata: Option<Metadata>,
    /// The sidecars, in the order of the top file.
    pub(super) sidecars: Vec<Sidecar>,
    /// The number of adds in a JSON file.
    pub(super) adds: u64,
    /// The number of adds that `checkpointMetadata` states.
    pub(super) stated_adds: Option<u64>,
}

/// The tag of `checkpointMetadata` by which Spark states the number of adds.
pub(super) const STATED_ADDS: &str = "numOfAddFiles";

/// The `sidecar` action (PROTOCOL, section Sidecar File Information).
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sidecar {
    /// A file name in `_delta_log/_sidecars/`, or a URI.
    pub(super) path: String,
    #[serde(deserialize_with = "size")]
    pub(super) size_in_bytes: u64,
}

fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    u64::try_from(lenient_i64(deserializer)?).map_err(serde::de::Error::custom)
}

impl TopFile {
    /// Adds the actions of `file` to the actions of earlier parts.
    ///
    /// Only the columns of these actions are read, and only from row groups that hold one of them.
    pub(super) fn read(&mut self, file: &ParquetFile) -> Result<()> {
        let actions = ["protocol", "metaData", "sidecar", "checkpointMetadata"]
            .map(|action| file.leaves(|path| path.first().is_some_and(|first| first == action)));
        for (index, row_group) in file.row_groups().iter().enumerate() {
            // Each action has a required field that is not a list.
            let has_action = |leaves: &&Vec<usize>| leaves.iter().any(|leaf| has_values(row_group, *leaf));
            let leaves = actions.iter().filter(has_action).flatten().copied();
            let leaves: Vec<_> = leaves.filter(|leaf| may_have_rows(row_group, *leaf)).collect();
            if leaves.is_empty() {
                continue;
            }
            let selection = match rows_of_actions(file, index, &leaves)? {
                RowNumbers::Range(rows) if rows.is_empty() => continue,
                rows => rows.selection(&(0..row_group.num_rows() as u32)),
            };
            let projection = file.project(&leaves)?;
            for batch in file.read(index, &projection, file.batch_rows(index, &leaves), selection)? {
                let batch = batch?;
                let has_sidecars = batch.column_by_name("sidecar").is_some();
                for batch in decoded_bytes::cut(batch, BATCH_BYTES)
                    .ok_or_else(|| Error::corrupt(&**file.name(), "the texts of an action are too long"))?
                {
                    self.collect(file.name(), &batch)?;
                }
                if self.protocol.is_some() && self.metadata.is_some() && !has_sidecars {
                    break;
                }
            }
        }
        Ok(())
    }

    fn collect(&mut self, name: &str, batch: &RecordBatch) -> Result<()> {
        let wrong =
            |action: &str| Error::corrupt(name, format!("its {action} action is incomplete or mistyped"));
        for action in action_rows(batch, "protocol") {
            self.protocol = Some(protocol(action).map_err(|Malformed| wrong("protocol"))?);
        }
        for action in action_rows(batch, "metaData") {
            self.metadata = Some(metadata(action).map_err(|Malformed| wrong("metaData"))?);
        }
        for action in action_rows(batch, "sidecar") {
            self.sidecars.push(sidecar(action).map_err(|Malformed| wrong("sidecar"))?);
        }
        for action in action_rows(batch, "checkpointMetadata") {
            let tags = action.pairs("tags").map_err(|Malformed| wrong("checkpointMetadata"))?;
            let stated = tags.into_iter().flatten().find(|(tag, _)| tag == STATED_ADDS);
            self.stated_adds = stated.and_then(|(_, adds)| adds.parse().ok());
        }
        Ok(())
    }
}

/// Returns the rows of a row group up to the protocol and the metadata, or all sidecars: few rows among those of many
/// files, and their lists cost more to decode than one field of each action.
fn rows_of_actions(file: &ParquetFile, row_group: usize, leaves: &[usize]) -> Result<RowNumbers> {
    let all = 0..file.row_groups()[row_group].num_rows() as u32;
    if all.len() <= BATCH_ROWS {
        return Ok(RowNumbers::Range(all));
    }
    let is_flat = |leaf: &usize| file.schema().column(*leaf).max_rep_level() == 0;
    let mut fields: Vec<usize> = leaves.iter().copied().filter(is_flat).collect();
    fields.dedup_by_key(|leaf| file.leaf_path(*leaf).first());
    let projection = file.project(&fields)?;
    let (mut rows, mut first, mut heads) = (Vec::new(), 0, [false; 2]);
    for batch in file.read(row_group, &projection, BATCH_ROWS, None)? {
        let batch = batch?;
        for column in batch.columns() {
            rows.extend(valid_rows(column).into_iter().map(|row| first + row as u32));
        }
        first += batch.num_rows() as u32;
        for (head, action) in heads.iter_mut().zip(["protocol", "metaData"]) {
            *head |= batch.column_by_name(action).is_some_and(|column| column.null_count() < column.len());
        }
        if heads == [true; 2] && batch.column_by_name("sidecar").is_none() {
            break;
        }
    }
    rows.sort_unstable();
    rows.dedup();
    Ok(RowNumbers::of(rows, all))
}

/// Raised for an action that lacks a required field or has a field of a wrong type.
struct Malformed;

fn protocol(action: Action<'_>) -> Result<Protocol, Malformed> {
    Ok(Protocol {
        min_reader_version: action.int("minReaderVersion")?.ok_or(Malformed)?,
        min_writer_version: action.int("minWriterVersion")?.ok_or(Malformed)?,
        reader_features: action.strings("readerFeatures")?,
        writer_features: action.strings("writerFeatures")?,
    })
}

fn metadata(action: Action<'_>) -> Result<Metadata, Malformed> {
    let format = action.child("format")?;
    let (provider, options) = match format {
        Some(format) => (format.string("provider")?, format.pairs("options")?),
        None => (None, None),
    };
    Ok(Metadata {
        id: action.string("id")?.ok_or(Malformed)?,
        name: action.string("name")?,
        description: action.string("description")?,
        format_provider: provider.unwrap_or_else(|| "parquet".into()),
        format_options: options.unwrap_or_default(),
        schema_string: action.string("schemaString")?,
        partition_columns: action.strings("partitionColumns")?.unwrap_or_default(),
        configuration: action.pairs("configuration")?.unwrap_or_default(),
        created_time_ms: action.long("createdTime")?,
    })
}

fn sidecar(action: Action<'_>) -> Result<Sidecar, Malformed> {
    let size_in_bytes = action.long("sizeInBytes")?.and_then(|size| u64::try_from(size).ok());
    let path = action.string("path")?.ok_or(Malformed)?;
    Ok(Sidecar { path, size_in_bytes: size_in_bytes.ok_or(Malformed)? })
}

/// The rows of `batch` that are actions of this kind.
fn action_rows<'a>(batch: &'a RecordBatch, action: &str) -> Vec<Action<'a>> {
    let Some(fields) = batch.column_by_name(action).and_then(|column| column.as_struct_opt()) else {
        return Vec::new();
    };
    valid_rows(fields).into_iter().map(|row| Action { fields, row }).collect()
}

fn valid_rows(column: &dyn Array) -> Vec<usize> {
    match column.nulls() {
        Some(nulls) => nulls.valid_indices().collect(),
        None => (0..column.len()).collect(),
    }
}

/// One action: its fields by name. A null field is absent.
#[derive(Clone, Copy)]
struct Action<'a> {
    fields: &'a StructArray,
    row: usize,
}

impl<'a> Action<'a> {
    /// Reads a field; `read` returns `None` for a wrong type.
    fn field<T>(
        self,
        name: &str,
        read: impl FnOnce(&'a ArrayRef) -> Option<T>,
    ) -> Result<Option<T>, Malformed> {
        // Some writers give a field without values the type of nulls, whose array has no bits for them.
        let is_valid =
            |column: &&ArrayRef| column.is_valid(self.row) && *column.data_type() != DataType::Null;
        let column = self.fields.column_by_name(name).filter(is_valid);
        column.map(|column| read(column).ok_or(Malformed)).transpose()
    }

    fn child(self, name: &str) -> Result<Option<Self>, Malformed> {
        self.field(name, |column| Some(Self { fields: column.as_struct_opt()?, row: self.row }))
    }

    fn string(self, name: &str) -> Result<Option<String>, Malformed> {
        self.field(name, |column| Some(column.as_string_view_opt()?.value(self.row).to_owned()))
    }

    fn int(self, name: &str) -> Result<Option<i32>, Malformed> {
        self.field(name, |column| Some(ints(&column.slice(self.row, 1))?.value(0)))
    }

    fn long(self, name: &str) -> Result<Option<i64>, Malformed> {
        self.field(name, |column| Some(longs(&column.slice(self.row, 1))?.value(0)))
    }

    fn strings(self, name: &str) -> Result<Option<Vec<String>>, Malformed> {
        self.field(name, |column| {
            let items = column.as_list_opt::<i32>()?.value(self.row);
            if items.is_empty() {
                // Some writers take the type of the items from the items.
                return Some(Vec::new());
            }
            items.as_string_view_opt()?.iter().map(|item| Some(item?.to_owned())).collect()
        })
    }

    fn pairs(self, name: &str) -> Result<Option<Vec<(String, String)>>, Malformed> {
        self.field(name, |column| {
            let maps = column.as_map_opt()?;
            let offsets = maps.value_offsets();
            let entries = *offsets.get(self.row)? as usize..*offsets.get(self.row + 1)? as usize;
            if entries.is_empty() {
                return Some(Vec::new());
            }
            let (keys, values) = string_entries(maps)?;
            let pair = |entry| (keys.value(entry).to_owned(), values.value(entry).to_owned());
            Some(entries.filter(|entry| values.is_valid(*entry)).map(pair).collect())
        })
    }
}
