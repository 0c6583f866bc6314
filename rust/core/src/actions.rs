//! The actions of a Delta log as this crate carries them.
//!
//! `Protocol` and `Metadata` are single values. File actions come by the hundred thousand, so they are
//! columns: a [`FileBatch`] holds the adds of a piece of one log file, whether that is a commit or a row
//! group of a checkpoint, and everything after the log (replay, predicates, signing, lines) works on batches
//! and on [`RowIndices`] chosen from them.

mod coded_stats;
mod lenient;
mod stats;

use std::fmt;
use std::sync::Arc;

use arrow_array::{Array as _, ArrayAccessor, Int64Array, StringViewArray};
use arrow_buffer::ScalarBuffer;

pub use coded_stats::CodedStats;
pub(crate) use coded_stats::form;
use lenient::lenient_i32;
pub(crate) use lenient::{lenient_i64, lenient_optional_i32, lenient_optional_i64};
pub use stats::Stats;
pub(crate) use stats::StatsText;

/// The `protocol` action (PROTOCOL, section Protocol Evolution).
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    /// The required reader version, 1 to 3.
    #[serde(deserialize_with = "lenient_i32")]
    pub min_reader_version: i32,
    /// The required writer version, 1 to 7.
    #[serde(deserialize_with = "lenient_i32")]
    pub min_writer_version: i32,
    /// Only at reader version 3.
    pub reader_features: Option<Vec<String>>,
    /// Only at writer version 7.
    pub writer_features: Option<Vec<String>>,
}

/// The `metaData` action (PROTOCOL, section Change Metadata).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// The table's id.
    pub id: String,
    /// The table's name, if it has one.
    pub name: Option<String>,
    /// The table's description, if it has one.
    pub description: Option<String>,
    /// `format.provider`, always `parquet` today.
    pub format_provider: String,
    /// `format.options`, in the log's order.
    pub format_options: Vec<(String, String)>,
    /// The schema's JSON, byte for byte as in the log; `None` in logs that break the protocol.
    pub schema_string: Option<String>,
    /// Logical names of the partition columns.
    pub partition_columns: Vec<String>,
    /// Table properties, in the log's order.
    pub configuration: Vec<(String, String)>,
    /// Milliseconds since the epoch, if known.
    pub created_time_ms: Option<i64>,
}

impl Metadata {
    /// Returns its size in memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let pairs = self.format_options.iter().chain(&self.configuration);
        let texts = [&self.name, &self.description, &self.schema_string];
        size_of::<Self>()
            + self.id.len()
            + texts.into_iter().flatten().map(String::len).sum::<usize>()
            + self.partition_columns.iter().map(|column| size_of::<String>() + column.len()).sum::<usize>()
            + pairs.map(|(key, value)| 2 * size_of::<String>() + key.len() + value.len()).sum::<usize>()
    }

    /// Returns a table property by its full name.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        self.configuration.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A deletion vector's descriptor (PROTOCOL, section Deletion Vectors).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeletionVectorDescriptor {
    /// `u` relative by uuid, `p` absolute path, `i` inline.
    pub storage_type: u8,
    /// z85 uuid with an optional prefix, an absolute path, or the z85 vector itself.
    pub path_or_inline: String,
    /// Offset of the vector in the file, in bytes.
    pub offset: Option<i32>,
    /// The serialized vector's size in bytes.
    pub size_in_bytes: i32,
    /// Number of deleted rows.
    pub cardinality: i64,
}

impl DeletionVectorDescriptor {
    /// Returns the id that distinguishes the logical files of one path: `storageType pathOrInlineDv [@offset]`.
    #[must_use]
    pub fn unique_id(&self) -> String {
        let kind = char::from(self.storage_type);
        match self.offset {
            Some(offset) => format!("{kind}{}@{offset}", self.path_or_inline),
            None => format!("{kind}{}", self.path_or_inline),
        }
    }
}

/// The fields of a `deletionVector` as a log file has them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VectorFields<'a> {
    pub(crate) storage_type: Option<&'a str>,
    pub(crate) path_or_inline: Option<&'a str>,
    pub(crate) offset: Option<i32>,
    pub(crate) size_in_bytes: Option<i32>,
    pub(crate) cardinality: Option<i64>,
}

/// Raised for a deletion vector that lacks a field or has a negative number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IncompleteVector;

impl VectorFields<'_> {
    /// Returns the vector. A group of nulls, or of empty texts and zeros, is none: some writers cannot write a null group.
    pub(crate) fn vector(self) -> std::result::Result<Option<DeletionVectorDescriptor>, IncompleteVector> {
        let is_empty = |text: Option<&str>| text.is_none_or(str::is_empty);
        let numbers = [self.offset, self.size_in_bytes].into_iter().flatten().map(i64::from);
        let is_zero = numbers.clone().chain(self.cardinality).all(|number| number == 0);
        if is_empty(self.storage_type) && is_empty(self.path_or_inline) && is_zero {
            return Ok(None);
        }
        let Some(&[storage_type]) = self.storage_type.map(str::as_bytes) else {
            return Err(IncompleteVector);
        };
        if numbers.chain(self.cardinality).any(|number| number < 0) {
            return Err(IncompleteVector);
        }
        Ok(Some(DeletionVectorDescriptor {
            storage_type,
            path_or_inline: self.path_or_inline.ok_or(IncompleteVector)?.to_owned(),
            offset: self.offset,
            size_in_bytes: self.size_in_bytes.ok_or(IncompleteVector)?,
            cardinality: self.cardinality.ok_or(IncompleteVector)?,
        }))
    }
}

/// The partition values of a set of files that share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionTuple {
    /// One value for each of `Metadata::partition_columns`, in that order; an empty string is already null.
    pub values: Box<[Option<Box<str>>]>,
    /// The encoded `partitionValues` object of an answer, keyed by the log's (physical) names, with U+0085, U+2028
    /// and U+2029 escaped.
    pub json: Box<[u8]>,
    /// The object of the log, if its keys differ from the partition columns in force and the interner keeps it.
    /// `values` and `json` do not represent it then.
    pub logged_json: Option<Box<[u8]>>,
}

impl PartitionTuple {
    /// Returns its size in memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let values = self
            .values
            .iter()
            .map(|value| size_of::<Option<Box<str>>>() + value.as_ref().map_or(0, |value| value.len()));
        let logged = self.logged_json.as_ref().map_or(0, |json| json.len());
        size_of::<Arc<Self>>() + size_of::<Self>() + self.json.len() + logged + values.sum::<usize>()
    }
}

/// Dictionary-coded partition values.
#[derive(Debug, Clone)]
pub struct PartitionColumn {
    /// The distinct tuples. Batches of a scan share them until the dictionary is too large and a new one starts.
    pub dictionary: Arc<Vec<Arc<PartitionTuple>>>,
    /// The index in `dictionary` of each file.
    pub keys: ScalarBuffer<u32>,
}

impl PartitionColumn {
    /// Whether the dictionary is the one with this first tuple, perhaps grown since. It grows from batch to batch, or
    /// starts again.
    pub(crate) fn continues(&self, first: Option<&Arc<PartitionTuple>>) -> bool {
        first.zip(self.dictionary.first()).is_some_and(|(known, first)| Arc::ptr_eq(known, first))
    }
}

/// The source of a batch in the fixed order of a snapshot: the commits from the newest, then the checkpoint's parts
/// (or sidecars).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// Add actions of a part of one log file, as columns of equal length.
#[derive(Debug)]
pub struct FileBatch {
    /// The source log file.
    pub source: SourceId,
    /// The row of each file in that log file, ascending. `(source, row)` is a position in the snapshot's order.
    pub row: ScalarBuffer<u32>,
    /// `add.path` as in the log: a percent-encoded relative or absolute URI.
    pub path: StringViewArray,
    /// `add.size` in bytes.
    pub size: ScalarBuffer<i64>,
    /// `add.modificationTime`, milliseconds since the epoch.
    pub modification_time_ms: ScalarBuffer<i64>,
    /// `add.dataChange`; `None` means true for every file.
    pub data_change: Option<Vec<bool>>,
    /// `add.partitionValues`.
    pub partitions: PartitionColumn,
    /// `add.stats`. `None` if no file has stats or they were not requested.
    pub stats: Option<Stats>,
    /// `add.deletionVector`. `None` where no file has one.
    pub deletion_vector: Option<Vec<Option<Box<DeletionVectorDescriptor>>>>,
    /// `add.baseRowId`. `None` where no file has one.
    pub base_row_id: Option<Int64Array>,
    /// `add.defaultRowCommitVersion`. `None` where no file has one.
    pub default_row_commit_version: Option<Int64Array>,
    /// `add.clusteringProvider`. `None` where no file has one.
    pub clustering_provider: Option<StringViewArray>,
    /// `add.tags`, JSON objects. `None` where no file has them.
    pub tags: Option<StringViewArray>,
    /// The present fields of removes; `None` for other actions, which are complete.
    pub remove_fields: Option<Vec<RemoveFields>>,
}

/// The fields of a `remove` beside its path and `dataChange`; old writers omit them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoveFields {
    /// Whether the batch's partition values equal the file's.
    pub partition_values: bool,
    /// Whether the batch's size equals the file's.
    pub size: bool,
    /// Whether it has a `deletionTimestamp`.
    pub deletion_timestamp: bool,
    /// `remove.extendedFileMetadata`.
    pub extended_file_metadata: Option<bool>,
}

impl FileBatch {
    /// Creates a batch of files of which nothing but statistics is known.
    #[must_use]
    pub fn of_stats(stats: StringViewArray) -> Self {
        let files = stats.len();
        Self {
            source: SourceId::default(),
            row: (0..files as u32).collect(),
            path: StringViewArray::new_null(files),
            size: vec![0; files].into(),
            modification_time_ms: vec![0; files].into(),
            data_change: None,
            partitions: PartitionColumn { dictionary: Arc::default(), keys: ScalarBuffer::default() },
            stats: Some(stats.into()),
            deletion_vector: None,
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
            tags: None,
            remove_fields: None,
        }
    }

    /// Returns the number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.row.len()
    }

    /// Returns whether there are no files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.row.is_empty()
    }

    /// Optimises the batch for caching: releases reserved memory, copies texts out of the pages of the log, and
    /// codes the statistics.
    pub fn prepare_for_cache(&mut self) {
        self.path = self.path.gc();
        self.clustering_provider = self.clustering_provider.as_ref().map(StringViewArray::gc);
        self.tags = self.tags.as_ref().map(StringViewArray::gc);
        self.stats = self.stats.take().map(Stats::coded);
        self.row.shrink_to_fit();
        self.size.shrink_to_fit();
        self.modification_time_ms.shrink_to_fit();
        self.partitions.keys.shrink_to_fit();
        if let Some(flags) = &mut self.data_change {
            flags.shrink_to_fit();
        }
        if let Some(vectors) = &mut self.deletion_vector {
            vectors.shrink_to_fit();
        }
    }

    /// Copies the selected files to a batch that shares no memory with this one.
    #[must_use]
    pub fn only(&self, rows: &[u32]) -> Self {
        fn each<T: Clone>(values: &[T], rows: &[u32]) -> Vec<T> {
            rows.iter().map(|row| values[*row as usize].clone()).collect()
        }
        // Arrow's own selections keep the buffers whole.
        fn values<A: ArrayAccessor + Copy, C: FromIterator<Option<A::Item>>>(column: A, rows: &[u32]) -> C {
            let value = |row: usize| column.is_valid(row).then(|| column.value(row));
            rows.iter().map(|row| value(*row as usize)).collect()
        }
        Self {
            source: self.source,
            row: each(&self.row, rows).into(),
            path: values(&self.path, rows),
            size: each(&self.size, rows).into(),
            modification_time_ms: each(&self.modification_time_ms, rows).into(),
            data_change: self.data_change.as_ref().map(|flags| each(flags, rows)),
            partitions: PartitionColumn {
                dictionary: Arc::clone(&self.partitions.dictionary),
                keys: each(&self.partitions.keys, rows).into(),
            },
            stats: self.stats.as_ref().map(|stats| stats.only(rows)),
            deletion_vector: self.deletion_vector.as_ref().map(|vectors| each(vectors, rows)),
            base_row_id: self.base_row_id.as_ref().map(|all| values(all, rows)),
            default_row_commit_version: self.default_row_commit_version.as_ref().map(|all| values(all, rows)),
            clustering_provider: self.clustering_provider.as_ref().map(|all| values(all, rows)),
            tags: self.tags.as_ref().map(|all| values(all, rows)),
            remove_fields: self.remove_fields.as_ref().map(|fields| each(fields, rows)),
        }
    }

    /// Returns the memory of the batch in bytes. Shared buffers count for each batch.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        // Texts of a commit are views into one file.
        let mut counted: Vec<*const u8> = Vec::new();
        let mut views = |column: &StringViewArray| {
            let bytes = column.len() * size_of::<u128>() + column.nulls().map_or(0, |nulls| nulls.len() / 8);
            let mut buffers = 0;
            for buffer in column.data_buffers().iter() {
                if !counted.contains(&buffer.data_ptr().as_ptr().cast_const()) {
                    counted.push(buffer.data_ptr().as_ptr());
                    buffers += buffer.capacity();
                }
            }
            bytes + buffers
        };
        let numbers =
            |column: &Option<Int64Array>| column.as_ref().map_or(0, Int64Array::get_array_memory_size);
        let vectors = self.deletion_vector.iter().flatten().flatten();
        let vector_bytes: usize = vectors
            .map(|vector| size_of::<DeletionVectorDescriptor>() + vector.path_or_inline.capacity())
            .sum();
        views(&self.path)
            + self.stats.as_ref().map_or(0, |stats| match stats {
                Stats::Raw(texts) | Stats::EscapedViews(texts) => views(texts),
                Stats::Coded(coded) => coded.memory_bytes(),
            })
            + self.clustering_provider.as_ref().map_or(0, &mut views)
            + self.tags.as_ref().map_or(0, views)
            + self.remove_fields.as_ref().map_or(0, |fields| fields.capacity() * size_of::<RemoveFields>())
            + numbers(&self.base_row_id)
            + numbers(&self.default_row_commit_version)
            + self.row.inner().capacity()
            + self.partitions.keys.inner().capacity()
            + self.size.inner().capacity()
            + self.modification_time_ms.inner().capacity()
            + self.data_change.as_ref().map_or(0, Vec::capacity)
            + self.deletion_vector.as_ref().map_or(0, |column| column.capacity() * size_of::<usize>())
            + vector_bytes
    }

    /// Estimates the bytes of a file's line without the query of its URL: its texts once, before escaping.
    #[must_use]
    pub fn line_bytes(&self, row: u32) -> usize {
        let text = |column: &StringViewArray| column.views().get(row as usize).map_or(0, |view| *view as u32);
        let index = row as usize;
        let tuple =
            self.partitions.keys.get(index).and_then(|key| self.partitions.dictionary.get(*key as usize));
        text(&self.path) as usize
            + self.stats.as_ref().map_or(0, |stats| stats.bytes_of(index))
            + tuple.map_or(0, |tuple| {
                tuple.logged_json.as_ref().unwrap_or(&tuple.json).len().max(tuple.json.len())
            })
            + self.deletion_vector_at(index).map_or(0, |vector| vector.path_or_inline.len())
            + self.clustering_provider.as_ref().map_or(0, |column| text(column) as usize)
            + self.tags.as_ref().map_or(0, |column| text(column) as usize)
    }

    /// Returns the first of `rows`: at most `count` and about `bytes` of lines, but at least one. Subtracts from
    /// both.
    pub(crate) fn first_lines<'rows>(
        &self,
        rows: &'rows [u32],
        count: &mut usize,
        bytes: &mut usize,
    ) -> &'rows [u32] {
        let mut taken = 0;
        for row in rows.iter().take(*count) {
            let line_bytes = self.line_bytes(*row);
            if taken > 0 && line_bytes > *bytes {
                break;
            }
            taken += 1;
            *bytes = bytes.saturating_sub(line_bytes);
        }
        *count -= taken;
        &rows[..taken]
    }

    /// The deletion vector of file `index`, if it has one.
    #[must_use]
    pub fn deletion_vector_at(&self, index: usize) -> Option<&DeletionVectorDescriptor> {
        self.deletion_vector.as_ref()?.get(index)?.as_deref()
    }
}

/// Selected files of a batch: ascending indices into its columns.
pub type RowIndices = Vec<u32>;

/// The number and total size of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// `numFiles`
    pub files: u64,
    /// The sum of the files' sizes.
    pub size_bytes: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} files of {} bytes", self.files, self.size_bytes)
    }
}

impl Totals {
    /// Adds the selected files of a batch.
    pub fn add(&mut self, batch: &FileBatch, rows: &[u32]) {
        self.files += rows.len() as u64;
        let sizes = rows.iter().filter_map(|row| u64::try_from(*batch.size.get(*row as usize)?).ok());
        self.size_bytes = sizes.fold(self.size_bytes, u64::saturating_add);
    }

    /// Subtracts totals that are part of these.
    #[must_use]
    pub fn minus(self, part: Self) -> Self {
        Self {
            files: self.files.saturating_sub(part.files),
            size_bytes: self.size_bytes.saturating_sub(part.size_bytes),
        }
    }

    /// Adds a file or other totals; `None` on overflow.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            files: self.files.checked_add(other.files)?,
            size_bytes: self.size_bytes.checked_add(other.size_bytes)?,
        })
    }
}

/// Small batches for tests of other modules.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Files of an unpartitioned table with only a path and a size of one byte.
    pub(crate) fn files_named<P: AsRef<str>>(paths: &[P]) -> FileBatch {
        let tuple =
            PartitionTuple { values: Box::default(), json: b"{}".as_slice().into(), logged_json: None };
        FileBatch {
            path: StringViewArray::from_iter_values(paths),
            size: vec![1; paths.len()].into(),
            partitions: PartitionColumn {
                dictionary: Arc::new(vec![Arc::new(tuple)]),
                keys: vec![0; paths.len()].into(),
            },
            stats: None,
            ..FileBatch::of_stats(StringViewArray::new_null(paths.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settled_batch_keeps_no_page_of_the_log_for_a_few_files_of_it() {
        let paths: Vec<String> = (0..1000).map(|file| format!("part-{file:040}.parquet")).collect();
        let mut batch = testing::files_named(&paths);
        let whole = batch.path.get_array_memory_size();
        batch.path = batch.path.slice(0, 10);
        batch.prepare_for_cache();
        assert!(batch.path.get_array_memory_size() < whole / 10);
        assert!(batch.path.iter().flatten().eq(paths[..10].iter().map(String::as_str)));
    }
}
