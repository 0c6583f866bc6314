//! The file actions of one kind in one JSON file, as columns.

use std::ops::Deref;
use std::sync::LazyLock;

use arrow_array::Int64Array;
use bytes::Bytes;

use super::json::{FileJson, StringEntry, string_entries};
use super::text::{Span, Text};
use crate::actions::{DeletionVectorDescriptor, FileBatch, PartitionColumn, RemoveFields, SourceId, Stats};
use crate::error::{Error, Result};
use crate::escape::object_text;
use crate::partition::PartitionInterner;

/// The file actions of one kind in one file. Without any it takes no memory: a log may have many commits of one line.
#[derive(Debug, Default)]
pub struct Columns(Option<Box<FileColumns>>);

impl Columns {
    pub(super) fn push(&mut self, file: &Bytes, row: u32, action: FileJson<'_>) {
        let new = || Box::new(FileColumns { text: Text::new(file), ..FileColumns::default() });
        self.0.get_or_insert_with(new).push(row, action);
    }

    /// Must be called after the last [`Self::push`], before any getter.
    pub(super) fn seal(&mut self) {
        if let Some(columns) = &mut self.0 {
            columns.text.seal();
        }
    }
}

impl Deref for Columns {
    type Target = FileColumns;

    fn deref(&self) -> &FileColumns {
        static NONE: LazyLock<FileColumns> = LazyLock::new(FileColumns::default);
        self.0.as_deref().unwrap_or(&NONE)
    }
}

/// Columns of equal length, in the file's order. Strings are views into the file.
#[derive(Debug, Default)]
pub struct FileColumns {
    text: Text,
    row: Vec<u32>,
    path: Vec<Span>,
    partition_values: Vec<Option<Span>>,
    size: Vec<Option<i64>>,
    modification_time_ms: Vec<Option<i64>>,
    data_change: Vec<bool>,
    stats: Vec<Option<Span>>,
    deletion_vector: Vec<Option<Box<DeletionVectorDescriptor>>>,
    base_row_id: Vec<Option<i64>>,
    default_row_commit_version: Vec<Option<i64>>,
    clustering_provider: Vec<Option<Span>>,
    tags: Vec<Option<Span>>,
    extended_file_metadata: Vec<Option<bool>>,
}

/// The size and partition values of a file from another action, for a `remove` without them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileFacts<'a> {
    pub(crate) size: i64,
    /// A JSON object, as in `partitionValues`.
    pub(crate) partition_values: &'a str,
}

impl FileColumns {
    fn push(&mut self, row: u32, file: FileJson<'_>) {
        self.row.push(row);
        self.path.push(self.text.span(&file.path));
        self.partition_values.push(file.partition_values.map(|raw| self.text.span(raw.get())));
        self.size.push(file.size);
        self.modification_time_ms.push(file.modification_time.or(file.deletion_timestamp));
        self.data_change.push(file.data_change.unwrap_or(true));
        self.stats.push(file.stats.and_then(|raw| self.text.string_span(raw.get())));
        self.deletion_vector.push(file.deletion_vector);
        self.base_row_id.push(file.base_row_id);
        self.default_row_commit_version.push(file.default_row_commit_version);
        self.clustering_provider.push(file.clustering_provider.map(|name| self.text.span(&name)));
        let tags = file.tags.and_then(|raw| string_entries(raw.get()).ok().flatten());
        let tags = tags.map(|entries| object_text(entries.iter().map(borrowed)));
        self.tags.push(tags.map(|object| self.text.span(&object)));
        self.extended_file_metadata.push(file.extended_file_metadata);
    }

    /// Returns the number of actions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.row.len()
    }

    /// Returns whether there is no action.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.row.is_empty()
    }

    /// Returns the action's row in the file.
    #[must_use]
    pub fn row(&self, index: usize) -> u32 {
        self.row[index]
    }

    /// Returns the action's `path` as the log spells it.
    #[must_use]
    pub fn path(&self, index: usize) -> &str {
        self.text.get(self.path[index])
    }

    /// Returns the action's `deletionVector`.
    #[must_use]
    pub fn deletion_vector(&self, index: usize) -> Option<&DeletionVectorDescriptor> {
        self.deletion_vector[index].as_deref()
    }

    /// Returns the action's `size`, which an old `remove` may lack.
    #[must_use]
    pub fn size(&self, index: usize) -> Option<i64> {
        self.size[index]
    }

    /// Returns whether the action changes the table's rows (`dataChange`).
    #[must_use]
    pub fn is_data_change(&self, index: usize) -> bool {
        self.data_change[index]
    }

    /// Returns whether the action has `size` and `partitionValues`. An old `remove` may lack both.
    #[must_use]
    pub fn is_complete(&self, index: usize) -> bool {
        self.size[index].is_some() && self.has_partition_values(index)
    }

    /// Returns the action's `size` and `partitionValues` if it has both.
    pub(crate) fn facts(&self, index: usize) -> Option<FileFacts<'_>> {
        let partition_values = self.partition_values[index].map(|span| self.text.get(span))?;
        Some(FileFacts { size: self.size[index]?, partition_values })
    }

    fn has_partition_values(&self, index: usize) -> bool {
        self.partition_values[index].is_some_and(|span| self.text.get(span) != "null")
    }

    /// Returns all actions as a batch. Errors contain `name`, the name of the file.
    pub fn batch(&self, source: SourceId, name: &str, interner: &mut PartitionInterner) -> Result<FileBatch> {
        self.batch_with(source, name, interner, &|_| None)
    }

    /// Returns all removes as a batch. `found` supplies the missing fields of a path. Fields that it does not supply
    /// are 0 and null in the columns, and not set in [`RemoveFields`].
    pub(crate) fn removes<'a>(
        &self,
        source: SourceId,
        name: &str,
        interner: &mut PartitionInterner,
        found: impl Fn(&str) -> Option<FileFacts<'a>>,
    ) -> Result<FileBatch> {
        let found = |index: usize| if self.is_complete(index) { None } else { found(self.path(index)) };
        let mut batch = self.batch_with(source, name, interner, &found)?;
        let fields = |index: usize| {
            let is_found = found(index).is_some();
            RemoveFields {
                partition_values: is_found || self.has_partition_values(index),
                size: is_found || self.size[index].is_some(),
                deletion_timestamp: self.modification_time_ms[index].is_some(),
                extended_file_metadata: self.extended_file_metadata[index],
            }
        };
        batch.remove_fields = Some((0..self.len()).map(fields).collect());
        Ok(batch)
    }

    fn batch_with<'a>(
        &self,
        source: SourceId,
        name: &str,
        interner: &mut PartitionInterner,
        found: &dyn Fn(usize) -> Option<FileFacts<'a>>,
    ) -> Result<FileBatch> {
        let strings = |spans: &mut dyn Iterator<Item = Option<Span>>| {
            self.text.strings(spans).ok_or_else(|| Error::corrupt(name, "a string is broken"))
        };
        let optional = |spans: &[Option<Span>]| {
            let is_there = spans.iter().any(Option::is_some);
            is_there.then(|| strings(&mut spans.iter().copied())).transpose()
        };
        Ok(FileBatch {
            source,
            row: self.row.clone().into(),
            path: strings(&mut self.path.iter().copied().map(Some))?,
            size: self.sizes(found).into(),
            modification_time_ms: self.modification_time_ms.iter().map(|time| time.unwrap_or(0)).collect(),
            data_change: self.data_change.contains(&false).then(|| self.data_change.clone()),
            partitions: self.partitions(name, interner, found)?,
            stats: self.stats(name)?,
            deletion_vector: present(&self.deletion_vector).then(|| self.deletion_vector.clone()),
            base_row_id: numbers(&self.base_row_id),
            default_row_commit_version: numbers(&self.default_row_commit_version),
            clustering_provider: optional(&self.clustering_provider)?,
            tags: optional(&self.tags)?,
            remove_fields: None,
        })
    }

    fn stats(&self, name: &str) -> Result<Option<Stats>> {
        let stats = present(&self.stats).then(|| self.text.stats(&self.stats));
        stats.map(|stats| stats.ok_or_else(|| Error::corrupt(name, "a string is broken"))).transpose()
    }

    fn sizes<'a>(&self, found: &dyn Fn(usize) -> Option<FileFacts<'a>>) -> Vec<i64> {
        let size_of = |index: usize| self.size[index].or_else(|| Some(found(index)?.size)).unwrap_or(0);
        (0..self.len()).map(size_of).collect()
    }

    /// Returns an error if one of the actions has no `partitionValues`: nulls would be wrong values of a partitioned
    /// table.
    pub(crate) fn check_partition_values(
        &self,
        name: &str,
        rows: impl IntoIterator<Item = usize>,
    ) -> Result<()> {
        let has_all = rows.into_iter().all(|row| self.has_partition_values(row));
        if has_all { Ok(()) } else { Err(Error::corrupt(name, "a file has no partitionValues")) }
    }

    fn partitions<'a>(
        &self,
        name: &str,
        interner: &mut PartitionInterner,
        found: &dyn Fn(usize) -> Option<FileFacts<'a>>,
    ) -> Result<PartitionColumn> {
        let mut column = interner.column(self.len());
        for (index, span) in self.partition_values.iter().enumerate() {
            let logged = span.map(|span| self.text.get(span)).filter(|raw| *raw != "null");
            let raw = logged.or_else(|| Some(found(index)?.partition_values)).unwrap_or("{}");
            let entries = string_entries(raw)
                .map_err(|_| Error::corrupt(name, "partitionValues is no map of strings"))?
                .unwrap_or_default();
            column.push_logged(entries.iter().map(borrowed));
        }
        Ok(column.finish())
    }

    pub(super) fn has_sizes(&self) -> bool {
        self.size.iter().all(|size| size.is_some_and(|size| size >= 0))
    }
}

fn borrowed<'e>((key, value): &'e StringEntry<'_>) -> (&'e str, Option<&'e str>) {
    (key.as_ref(), value.as_deref())
}

fn present<T>(column: &[Option<T>]) -> bool {
    column.iter().any(Option::is_some)
}

fn numbers(column: &[Option<i64>]) -> Option<Int64Array> {
    present(column).then(|| column.iter().copied().collect())
}
