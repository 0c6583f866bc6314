//! The single rows of a checkpoint's top file: the protocol, the metadata and the sidecars.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use parquet::file::reader::ChunkReader;

use super::adds::string_entries;
use super::parquet::file::{ParquetFile, has_values};
use crate::actions::{Metadata, Protocol};
use crate::{Error, Result};

/// The actions of a top file that are not file actions.
#[derive(Debug, Default)]
pub(super) struct TopFile {
    pub(super) protocol: Option<Protocol>,
    pub(super) metadata: Option<Metadata>,
    /// The sidecars, in the order of the top file.
    pub(super) sidecars: Vec<Sidecar>,
}

/// The `sidecar` action (PROTOCOL, section Sidecar File Information).
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sidecar {
    /// A file name in `_delta_log/_sidecars/`, or a URI.
    pub(super) path: String,
    pub(super) size_in_bytes: u64,
}

impl TopFile {
    /// Adds the actions of `file` to those of the parts before it.
    ///
    /// Only the columns of these actions are read, and only from row groups that hold one of them.
    pub(super) fn read<R: ChunkReader + 'static>(&mut self, file: &ParquetFile<R>) -> Result<()> {
        let columns = ["protocol", "metaData", "sidecar"];
        let leaves =
            file.leaves(|path| path.first().is_some_and(|action| columns.contains(&action.as_str())));
        for (index, row_group) in file.row_groups().iter().enumerate() {
            let leaves: Vec<_> = leaves.iter().copied().filter(|leaf| has_values(row_group, *leaf)).collect();
            if leaves.is_empty() {
                continue;
            }
            let projection = file.project(&leaves)?;
            for batch in file.read(index, &projection, file.batch_rows(index, &leaves), None)? {
                let batch = batch?;
                self.collect(file.name(), &batch)?;
                let has_sidecars = batch.column_by_name("sidecar").is_some();
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
            self.protocol = Some(protocol(action).ok_or_else(|| wrong("protocol"))?);
        }
        for action in action_rows(batch, "metaData") {
            self.metadata = Some(metadata(action).ok_or_else(|| wrong("metaData"))?);
        }
        for action in action_rows(batch, "sidecar") {
            self.sidecars.push(sidecar(action).ok_or_else(|| wrong("sidecar"))?);
        }
        Ok(())
    }
}

fn protocol(action: Action<'_>) -> Option<Protocol> {
    Some(Protocol {
        min_reader_version: action.int("minReaderVersion")?,
        min_writer_version: action.int("minWriterVersion")?,
        reader_features: action.strings("readerFeatures"),
        writer_features: action.strings("writerFeatures"),
    })
}

fn metadata(action: Action<'_>) -> Option<Metadata> {
    let format = action.child("format");
    Some(Metadata {
        id: action.string("id")?,
        name: action.string("name"),
        description: action.string("description"),
        format_provider: format
            .and_then(|format| format.string("provider"))
            .unwrap_or_else(|| "parquet".into()),
        format_options: format.and_then(|format| format.pairs("options")).unwrap_or_default(),
        schema_string: action.string("schemaString"),
        partition_columns: action.strings("partitionColumns").unwrap_or_default(),
        configuration: action.pairs("configuration").unwrap_or_default(),
        created_time_ms: action.long("createdTime"),
    })
}

fn sidecar(action: Action<'_>) -> Option<Sidecar> {
    let size_in_bytes = u64::try_from(action.long("sizeInBytes")?).ok()?;
    Some(Sidecar { path: action.string("path")?, size_in_bytes })
}

/// The rows of `batch` that are actions of this kind.
fn action_rows<'a>(batch: &'a RecordBatch, action: &str) -> Vec<Action<'a>> {
    let Some(fields) = batch.column_by_name(action).and_then(|column| column.as_struct_opt()) else {
        return Vec::new();
    };
    let rows: Vec<usize> = match fields.nulls() {
        Some(nulls) => nulls.valid_indices().collect(),
        None => (0..fields.len()).collect(),
    };
    rows.into_iter().map(|row| Action { fields, row }).collect()
}

/// One action: its fields by name. An absent field, a null and a wrong type are all `None`.
#[derive(Clone, Copy)]
struct Action<'a> {
    fields: &'a StructArray,
    row: usize,
}

impl<'a> Action<'a> {
    fn field(self, name: &str) -> Option<&'a ArrayRef> {
        self.fields.column_by_name(name).filter(|column| column.is_valid(self.row))
    }

    fn child(self, name: &str) -> Option<Self> {
        Some(Self { fields: self.field(name)?.as_struct_opt()?, row: self.row })
    }

    fn string(self, name: &str) -> Option<String> {
        Some(self.field(name)?.as_string_view_opt()?.value(self.row).to_owned())
    }

    fn int(self, name: &str) -> Option<i32> {
        Some(self.field(name)?.as_primitive_opt::<Int32Type>()?.value(self.row))
    }

    fn long(self, name: &str) -> Option<i64> {
        Some(self.field(name)?.as_primitive_opt::<Int64Type>()?.value(self.row))
    }

    fn strings(self, name: &str) -> Option<Vec<String>> {
        let items = self.field(name)?.as_list_opt::<i32>()?.value(self.row);
        Some(items.as_string_view_opt()?.iter().flatten().map(str::to_owned).collect())
    }

    fn pairs(self, name: &str) -> Option<Vec<(String, String)>> {
        let maps = self.field(name)?.as_map_opt()?;
        let (keys, values) = string_entries(maps)?;
        let offsets = maps.value_offsets();
        let entries = *offsets.get(self.row)? as usize..*offsets.get(self.row + 1)? as usize;
        let pair = |entry| (keys.value(entry).to_owned(), values.value(entry).to_owned());
        Some(entries.filter(|entry| values.is_valid(*entry)).map(pair).collect())
    }
}
