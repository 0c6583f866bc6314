//! Converts Arrow columns of `add` to a [`FileBatch`].

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, MapArray, RecordBatch, StringViewArray,
    StructArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_select::filter::{FilterBuilder, FilterPredicate};

use super::kept_rows::Taken;
use super::parquet::calendar::Calendar;
use super::parquet::typed_column::TypedColumn;
use super::parquet::typed_stats;
use super::whole_numbers::{ints, longs};
use crate::actions::{
    DeletionVectorDescriptor, FileBatch, IncompleteVector, PartitionColumn, SourceId, Stats, VectorFields,
};
use crate::escape::object_text;
use crate::partition::PartitionInterner;
use crate::schema::PartitionNames;
use crate::{Error, Result};

/// Builds the batch of the adds among the kept rows. `taken` has the row numbers of `batch` in the file.
pub(super) fn file_batch(
    name: &str,
    source: SourceId,
    taken: Taken,
    batch: &RecordBatch,
    calendar: Calendar,
    interner: &mut PartitionInterner,
) -> Result<FileBatch> {
    let adds = Adds::new(name, batch, taken.kept, calendar)?;
    let mut rows = taken.rows;
    adds.retain(&mut rows);
    Ok(FileBatch {
        source,
        path: adds.required_strings("path")?,
        size: adds.sizes()?.into(),
        modification_time_ms: adds.required_longs("modificationTime")?.into(),
        data_change: adds.data_change()?,
        partitions: adds.partitions(interner, rows.len())?,
        stats: adds.stats()?.map(Stats::from),
        deletion_vector: adds.deletion_vectors()?,
        base_row_id: adds.longs("baseRowId")?,
        default_row_commit_version: adds.longs("defaultRowCommitVersion")?,
        clustering_provider: adds.strings("clusteringProvider")?,
        tags: adds.tags()?,
        remove_fields: None,
        row: rows.into(),
    })
}

/// The columns of `add` without the rows that are other actions or not kept.
pub(super) struct Adds<'a> {
    name: &'a str,
    columns: &'a StructArray,
    /// `None` if all rows are selected.
    filter: Option<(BooleanBuffer, FilterPredicate)>,
    /// The calendar of the typed columns.
    calendar: Calendar,
}

impl<'a> Adds<'a> {
    /// `kept` are the rows to select, `None` for all; `calendar` is that of the typed columns.
    pub(super) fn new(
        name: &'a str,
        batch: &'a RecordBatch,
        kept: Option<BooleanBuffer>,
        calendar: Calendar,
    ) -> Result<Self> {
        let columns = batch
            .column_by_name("add")
            .and_then(|column| column.as_struct_opt())
            .ok_or_else(|| Error::corrupt(name, "it has no add actions"))?;
        let adds = columns.nulls().filter(|nulls| nulls.null_count() > 0).map(NullBuffer::inner);
        let wanted = match (adds, kept) {
            (Some(adds), Some(kept)) => Some(adds & &kept),
            (Some(adds), None) => Some(adds.clone()),
            (None, kept) => kept,
        };
        let filter = wanted.map(|wanted| {
            let predicate = FilterBuilder::new(&BooleanArray::new(wanted.clone(), None)).optimize().build();
            (wanted, predicate)
        });
        Ok(Self { name, columns, filter, calendar })
    }

    /// Drops the numbers of the rows that are not selected.
    pub(super) fn retain(&self, rows: &mut Vec<u32>) {
        let Some((wanted, _)) = &self.filter else { return };
        let mut wanted = wanted.iter();
        rows.retain(|_| wanted.next().unwrap_or(false));
    }

    pub(super) fn required_strings(&self, field: &str) -> Result<StringViewArray> {
        let column = self.column(field)?.ok_or_else(|| self.missing(field))?;
        let strings = column.as_string_view_opt().ok_or_else(|| self.mistyped(field))?;
        if strings.null_count() > 0 { Err(self.missing(field)) } else { Ok(strings.clone()) }
    }

    pub(super) fn sizes(&self) -> Result<Vec<i64>> {
        let sizes = self.required_longs("size")?;
        // Branch-free: this loop is the main cost of a sum over a table.
        let any_negative = sizes.iter().fold(0, |bits, size| bits | size) < 0;
        if any_negative { Err(Error::corrupt(self.name, "an add has a negative size")) } else { Ok(sizes) }
    }

    fn required_longs(&self, field: &str) -> Result<Vec<i64>> {
        let column = self.column(field)?.ok_or_else(|| self.missing(field))?;
        let longs = longs(&column).ok_or_else(|| self.mistyped(field))?;
        if longs.null_count() > 0 { Err(self.missing(field)) } else { Ok(longs.values().to_vec()) }
    }

    fn strings(&self, field: &str) -> Result<Option<StringViewArray>> {
        let Some(column) = self.column(field)?.filter(has_values) else { return Ok(None) };
        Ok(Some(column.as_string_view_opt().ok_or_else(|| self.mistyped(field))?.clone()))
    }

    fn longs(&self, field: &str) -> Result<Option<Int64Array>> {
        let Some(column) = self.column(field)?.filter(has_values) else { return Ok(None) };
        Ok(Some(longs(&column).ok_or_else(|| self.mistyped(field))?))
    }

    /// Returns the maps as JSON objects.
    fn tags(&self) -> Result<Option<StringViewArray>> {
        let Some(column) = self.column("tags")?.filter(has_values) else { return Ok(None) };
        let wrong = || self.mistyped("tags");
        let maps = column.as_map_opt().ok_or_else(wrong)?;
        let (keys, values) = string_entries(maps).ok_or_else(wrong)?;
        let object = |entries: &[i32]| {
            let entries = entries[0] as usize..entries[1] as usize;
            let value = |entry| values.is_valid(entry).then(|| values.value(entry));
            object_text(entries.map(|entry| (keys.value(entry), value(entry))))
        };
        let rows = maps.value_offsets().windows(2).enumerate();
        Ok(Some(rows.map(|(row, entries)| maps.is_valid(row).then(|| object(entries))).collect()))
    }

    fn data_change(&self) -> Result<Option<Vec<bool>>> {
        let Some(column) = self.column("dataChange")? else { return Ok(None) };
        let flags = column.as_boolean_opt().ok_or_else(|| self.mistyped("dataChange"))?;
        if flags.null_count() > 0 {
            return Err(self.missing("dataChange"));
        }
        if flags.values().count_set_bits() == flags.len() {
            return Ok(None);
        }
        Ok(Some(flags.values().iter().collect()))
    }

    /// Returns the partition values only, and drops the rows that are not adds from `rows`.
    pub(super) fn partitions_of(
        &self,
        rows: &mut Vec<u32>,
        interner: &mut PartitionInterner,
    ) -> Result<PartitionColumn> {
        self.retain(rows);
        self.partitions(interner, rows.len())
    }

    fn partitions(&self, interner: &mut PartitionInterner, files: usize) -> Result<PartitionColumn> {
        if let Some(maps) = self.column("partitionValues")? {
            if !interner.log_names().is_empty() && maps.logical_null_count() > 0 {
                return Err(self.missing("partitionValues"));
            }
            if has_values(&maps) {
                let maps = maps.as_map_opt().ok_or_else(|| self.mistyped("partitionValues"))?;
                return self.partitions_of_maps(maps, interner);
            }
        }
        if let Some(typed) = self.column("partitionValues_parsed")? {
            let typed = typed.as_struct_opt().ok_or_else(|| self.mistyped("partitionValues_parsed"))?;
            return self.typed_partitions(typed, interner);
        }
        if !interner.log_names().is_empty() && files > 0 {
            return Err(self.missing("partitionValues"));
        }
        let mut column = interner.column(files);
        (0..files).for_each(|_| column.push(&[]));
        Ok(column.finish())
    }

    fn partitions_of_maps(
        &self,
        maps: &MapArray,
        interner: &mut PartitionInterner,
    ) -> Result<PartitionColumn> {
        let (keys, values) = string_entries(maps).ok_or_else(|| self.mistyped("partitionValues"))?;
        let mut column = interner.column(maps.len());
        let has_nulls = values.null_count() > 0;
        for row in maps.value_offsets().windows(2) {
            let entries = row[0] as usize..row[1] as usize;
            let strings = entries
                .clone()
                .map(|entry| (keys.value(entry), values.is_valid(entry).then(|| values.value(entry))));
            if has_nulls {
                column.push_entries(strings);
            } else {
                column.push_views(&keys.views()[entries.clone()], &values.views()[entries], strings);
            }
        }
        Ok(column.finish())
    }

    fn typed_partitions(
        &self,
        typed: &StructArray,
        interner: &mut PartitionInterner,
    ) -> Result<PartitionColumn> {
        let PartitionNames { columns, left_behind } = interner.names();
        let has = |name: Option<&Box<str>>| name.is_some_and(|name| typed.column_by_name(name).is_some());
        if !(0..columns.len()).all(|column| has(columns.get(column)) || has(left_behind.get(column))) {
            // A null in place of its values would be a wrong value.
            return Err(self.missing("partitionValues"));
        }
        let names = interner.names().all();
        let mut columns = Vec::with_capacity(names.len());
        for name in names.iter() {
            if let Some(column) = typed.column_by_name(name) {
                let values = TypedColumn::of(column, self.calendar);
                columns.push((name, column, values.ok_or_else(|| self.mistyped("partitionValues_parsed"))?));
            }
        }
        let mut partitions = interner.column(typed.len());
        let mut texts = vec![String::new(); columns.len()];
        for row in 0..typed.len() {
            for ((_, column, values), text) in columns.iter().zip(&mut texts) {
                text.clear();
                if column.is_valid(row) && !values.push_partition_value(text, row) {
                    return Err(self.uncertain());
                }
            }
            // The text of a null value is empty, and an empty partition value is null.
            let found = columns.iter().zip(&texts);
            partitions.push_entries(found.map(|((name, ..), text)| (&***name, Some(&**text))));
        }
        Ok(partitions.finish())
    }

    /// Returns the text statistics of each file, or the typed columns' if it has no text.
    pub(super) fn stats(&self) -> Result<Option<StringViewArray>> {
        let text = self.strings("stats")?;
        let Some(typed) = self.column("stats_parsed")?.filter(has_values) else { return Ok(text) };
        let stats = typed_stats::stats(text.as_ref(), &typed, self.calendar);
        stats.map(Some).ok_or_else(|| self.mistyped("stats_parsed"))
    }

    pub(super) fn deletion_vectors(&self) -> Result<Option<Vec<Option<Box<DeletionVectorDescriptor>>>>> {
        let field = "deletionVector";
        let Some(column) = self.column(field)?.filter(has_values) else { return Ok(None) };
        let columns = column.as_struct_opt().ok_or_else(|| self.mistyped(field))?;
        let vectors = DeletionVectors::new(columns).ok_or_else(|| self.mistyped(field))?;
        let vectors: Result<Vec<_>, IncompleteVector> =
            (0..columns.len()).map(|row| vectors.at(row)).collect();
        let incomplete =
            |IncompleteVector| Error::corrupt(self.name, "the deletionVector of an add is incomplete");
        let vectors = vectors.map_err(incomplete)?;
        Ok(Some(vectors).filter(|vectors| vectors.iter().any(Option::is_some)))
    }

    /// Returns a column of `add` with the selected rows.
    fn column(&self, field: &str) -> Result<Option<ArrayRef>> {
        let Some(column) = self.columns.column_by_name(field) else { return Ok(None) };
        let Some((_, filter)) = &self.filter else { return Ok(Some(Arc::clone(column))) };
        let filtered = filter.filter(column);
        Ok(Some(filtered.map_err(|error| Error::corrupt(self.name, error.to_string()))?))
    }

    fn missing(&self, field: &str) -> Error {
        Error::corrupt(self.name, format!("an add has no {field}"))
    }

    fn uncertain(&self) -> Error {
        let reason = "an add has no partitionValues, and partitionValues_parsed does not tell them: it is of an \
                      unknown old calendar, or has bytes that are no text";
        Error::corrupt(self.name, reason)
    }

    fn mistyped(&self, field: &str) -> Error {
        Error::corrupt(self.name, format!("add.{field} has a wrong type"))
    }
}

/// Some writers give a column without values the type of nulls, in place of its own.
fn has_values(column: &ArrayRef) -> bool {
    column.logical_null_count() < column.len()
}

pub(super) fn string_entries(maps: &MapArray) -> Option<(&StringViewArray, &StringViewArray)> {
    let keys = maps.keys().as_string_view_opt()?;
    let values = maps.values().as_string_view_opt()?;
    (keys.null_count() == 0).then_some((keys, values))
}

struct DeletionVectors<'a> {
    columns: &'a StructArray,
    storage_type: &'a StringViewArray,
    path_or_inline: &'a StringViewArray,
    offset: Option<Int32Array>,
    size_in_bytes: Int32Array,
    cardinality: Int64Array,
}

impl<'a> DeletionVectors<'a> {
    /// Returns `None` if a column is absent or has a wrong type.
    fn new(columns: &'a StructArray) -> Option<Self> {
        Some(Self {
            columns,
            storage_type: columns.column_by_name("storageType")?.as_string_view_opt()?,
            path_or_inline: columns.column_by_name("pathOrInlineDv")?.as_string_view_opt()?,
            offset: match columns.column_by_name("offset").filter(|column| has_values(column)) {
                Some(offset) => Some(ints(offset)?),
                None => None,
            },
            size_in_bytes: ints(columns.column_by_name("sizeInBytes")?)?,
            cardinality: longs(columns.column_by_name("cardinality")?)?,
        })
    }

    fn at(&self, row: usize) -> Result<Option<Box<DeletionVectorDescriptor>>, IncompleteVector> {
        if self.columns.is_null(row) {
            return Ok(None);
        }
        let fields = VectorFields {
            storage_type: self.storage_type.is_valid(row).then(|| self.storage_type.value(row)),
            path_or_inline: self.path_or_inline.is_valid(row).then(|| self.path_or_inline.value(row)),
            offset: self
                .offset
                .as_ref()
                .filter(|offset| offset.is_valid(row))
                .map(|offset| offset.value(row)),
            size_in_bytes: self.size_in_bytes.is_valid(row).then(|| self.size_in_bytes.value(row)),
            cardinality: self.cardinality.is_valid(row).then(|| self.cardinality.value(row)),
        };
        Ok(fields.vector()?.map(Box::new))
    }
}
