//! The adds of one Parquet part, row group by row group.
//!
//! Reads only leaf columns that the caller needs and that have values. Skips a row group if its statistics show that it
//! has no adds or cannot match the filter. With a filter on partition values, the partition columns are read first and
//! the other columns only for the rows that pass.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::vec::IntoIter;

use arrow_array::{Array, RecordBatch, StringViewArray};
use parquet::file::metadata::RowGroupMetaData;

use super::adds::{self, Adds};
use super::kept_rows::RowNumbers;
use super::known_tuples::KnownTuples;
use super::parquet::calendar::Calendar;
use super::parquet::decoded_bytes;
use super::parquet::file::{
    ParquetFile, Projection, RowGroupReader, has_values, may_have_rows, null_count, rows_without_add,
};
use super::parquet::row_group_bounds::TypedLeaves;
use super::{BATCH_BYTES, MayMatch, Needs, REQUIRED_FIELDS, ReadOptions};
use crate::actions::{FileBatch, SourceId, Stats};
use crate::lock::lock;
use crate::partition::PartitionInterner;
use crate::{Error, Result};

/// Batches of fewer files are copied out of the pages that they are scattered over.
const FEW_FILES: usize = 128;

/// A filter on statistics is given up if it keeps more than one file of so many. Elsewhere their pages are read twice.
const FILES_PER_KEPT: usize = 16;

const DELTA_FIELDS: [&str; 5] =
    ["dataChange", "baseRowId", "defaultRowCommitVersion", "clusteringProvider", "tags"];

pub(super) struct PartBatches {
    file: ParquetFile,
    source: SourceId,
    options: ReadOptions,
    /// The selected rows of the part.
    rows: Range<u32>,
    next_row_group: usize,
    next_first_row: u32,
    columns: Columns,
    projection: Option<(Vec<usize>, Arc<Projection>)>,
    current: Option<OpenRowGroup>,
    /// To be locked for the work of one batch in memory, never while something is read. The dictionary is consistent at
    /// every point where a holder could panic.
    interner: Arc<Mutex<PartitionInterner>>,
    log_names: Arc<[Box<str>]>,
    tuples: KnownTuples,
    filter: Option<(MayMatch, TypedLeaves)>,
    calendar: Calendar,
}

struct OpenRowGroup {
    index: usize,
    /// The row group's rows in the part.
    all: Range<u32>,
    projection: Arc<Projection>,
    size: BatchSize,
    reader: RowGroupReader,
    /// The rows that are not yet decoded.
    rows: RowNumbers,
    /// The next decoded rows, in order.
    decoded: VecDeque<RecordBatch>,
    /// The statistics of the rows, if they were read before the other columns.
    stats: Option<Peekable<IntoIter<StatsOfRow>>>,
}

/// The statistics of a kept row. Reading them again would decompress most pages again.
type StatsOfRow = (u32, Option<Box<str>>);

/// The number of rows per batch of a row group. It shrinks at large pages and grows again after them.
struct BatchSize {
    rows: usize,
    /// The maximum, from the mean row size in the footer.
    most: usize,
    /// The number of batches of this size before a larger one is tried.
    wait: usize,
    next_wait: usize,
}

impl BatchSize {
    /// The factor by which a batch over the size limit shrinks.
    const FACTOR: usize = 8;

    fn new(most: usize) -> Self {
        Self { rows: most, most, wait: 0, next_wait: Self::FACTOR }
    }

    fn shrink(&mut self) {
        self.rows = (self.rows / Self::FACTOR).max(1);
        self.wait = self.next_wait;
    }

    /// Counts the next batch; returns true if it is larger than the last one.
    ///
    /// A larger batch is tried after as many rows as the batch over the limit had. Each try costs a new reader, so the
    /// wait doubles.
    fn grows(&mut self) -> bool {
        if self.rows == self.most {
            return false;
        }
        if let Some(wait) = self.wait.checked_sub(1) {
            self.wait = wait;
            return false;
        }
        self.rows = self.rows.saturating_mul(Self::FACTOR).min(self.most);
        self.wait = Self::FACTOR;
        self.next_wait = self.next_wait.saturating_mul(2);
        true
    }
}

impl OpenRowGroup {
    /// Opens a new reader for the remaining rows with the current batch size.
    fn read_again(&mut self, file: &ParquetFile) -> Result<()> {
        let selection = self.rows.selection(&self.all);
        self.reader = file.read_bounded(self.index, &self.projection, self.size.rows, selection)?;
        Ok(())
    }
}

impl PartBatches {
    pub(super) fn new(
        file: ParquetFile,
        source: SourceId,
        rows: Range<u32>,
        options: ReadOptions,
        interner: &Arc<Mutex<PartitionInterner>>,
        tuples: &KnownTuples,
    ) -> Self {
        let names = lock(interner).names().clone();
        let columns = Columns::new(&file);
        let calendar = file.calendar();
        // The bounds of typed columns say nothing of values by other names.
        let may_match = options.may_match.clone().filter(|_| names.left_behind.is_empty());
        let filter = may_match.map(|filter| (filter, TypedLeaves::of(&file, &names.columns)));
        Self {
            file,
            source,
            options,
            rows,
            next_row_group: 0,
            next_first_row: 0,
            columns,
            projection: None,
            current: None,
            interner: Arc::clone(interner),
            log_names: names.all(),
            tuples: tuples.clone(),
            filter,
            calendar,
        }
    }

    /// Returns the next batch with at least one file.
    pub(super) fn next(&mut self) -> Result<Option<FileBatch>> {
        loop {
            let Some(current) = &mut self.current else {
                if !self.open_next()? {
                    return Ok(None);
                }
                continue;
            };
            let Some(batch) = current.decoded.pop_front() else {
                if !self.decode()? {
                    self.current = None;
                }
                continue;
            };
            let taken = current.rows.take(batch.num_rows());
            if taken.rows.len() < batch.num_rows() {
                return Err(self.corrupt("a row group has more rows than it says"));
            }
            let is_sparse = taken.kept.is_some();
            let name = self.file.name();
            let mut interner = lock(&self.interner);
            let mut batch = adds::file_batch(name, self.source, taken, &batch, self.calendar, &mut interner)?;
            drop(interner);
            if let Some(stats) = &mut current.stats {
                let of_row = |row: &u32| {
                    while stats.next_if(|(other, _)| other < row).is_some() {}
                    stats.next_if(|(other, _)| other == row).and_then(|(_, text)| text)
                };
                let stats: StringViewArray = batch.row.iter().map(of_row).collect();
                batch.stats = Some(stats).filter(|stats| stats.null_count() < stats.len()).map(Stats::from);
            }
            if batch.is_empty() {
                continue;
            }
            // A batch holds every page of its files, and several batches wait for their consumer.
            let is_copied = is_sparse && batch.len() < FEW_FILES;
            return Ok(Some(if is_copied {
                batch.only(&(0..batch.len() as u32).collect::<Vec<_>>())
            } else {
                batch
            }));
        }
    }

    /// Decodes the next rows of the row group; returns false at its end.
    fn decode(&mut self) -> Result<bool> {
        let Some(current) = &mut self.current else { return Ok(false) };
        if !current.rows.is_empty() && current.size.grows() {
            current.read_again(&self.file)?;
        }
        match current.reader.next() {
            Some(Ok(batch)) => {
                let Some(decoded) = decoded_bytes::cut(batch, BATCH_BYTES) else {
                    return Err(self.corrupt("the texts of an action are too long"));
                };
                current.decoded = decoded.into();
                Ok(true)
            }
            Some(Err(_)) if current.reader.is_too_large() && current.size.rows > 1 => {
                current.size.shrink();
                current.read_again(&self.file)?;
                Ok(true)
            }
            Some(Err(error)) => Err(error),
            None if current.rows.is_empty() => Ok(false),
            None => Err(self.corrupt("a row group ends early")),
        }
    }

    /// Returns the bytes that the reader holds between two batches.
    pub(super) fn held_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |current| current.reader.held_bytes())
    }

    /// Opens the next row group that may have selected adds; returns false after the last one.
    fn open_next(&mut self) -> Result<bool> {
        while let Some(row_group) = self.file.row_groups().get(self.next_row_group) {
            let index = self.next_row_group;
            let all = self.next_first_row..self.next_first_row + row_group.num_rows() as u32;
            let wanted = all.start.max(self.rows.start)..all.end.min(self.rows.end);
            let has_adds = !wanted.is_empty() && self.columns.has_adds(row_group);
            self.next_row_group += 1;
            self.next_first_row = all.end;
            if !has_adds || !self.may_match(index) {
                continue;
            }
            if let Some(rows_read) = &self.options.rows_read {
                rows_read.fetch_add(wanted.len() as u64, Ordering::Relaxed);
            }
            let mut rows = self.kept(index, &all, wanted.clone())?;
            let stats = self.kept_by_stats(index, &all, &rows, wanted.len())?;
            if let Some(stats) = &stats {
                rows = RowNumbers::of(stats.iter().map(|(row, _)| *row).collect(), wanted);
            }
            if rows.is_empty() {
                continue;
            }
            let mut needs = self.options.needs;
            needs.stats &= stats.is_none();
            let leaves = self.columns.wanted(&self.file.row_groups()[index], needs, &self.log_names);
            let batch_rows = rows.batch_rows(self.file.batch_rows(index, &leaves));
            let projection = self.project(leaves)?;
            let reader = self.file.read_bounded(index, &projection, batch_rows, rows.selection(&all))?;
            let decoded = VecDeque::new();
            let size = BatchSize::new(batch_rows);
            let stats = stats.map(|stats| stats.into_iter().peekable());
            self.current = Some(OpenRowGroup { index, all, projection, size, reader, rows, decoded, stats });
            return Ok(true);
        }
        Ok(false)
    }

    fn may_match(&self, row_group: usize) -> bool {
        let Some((may_match, leaves)) = &self.filter else { return true };
        leaves.bounds(&self.file, row_group).is_none_or(|bounds| may_match(&bounds))
    }

    /// Returns the rows of `wanted` whose partition values the caller keeps.
    fn kept(&mut self, row_group: usize, all: &Range<u32>, wanted: Range<u32>) -> Result<RowNumbers> {
        let Some(keep) = self.options.keep_tuple.clone() else { return Ok(RowNumbers::Range(wanted)) };
        let leaves = self.columns.partition_leaves(&self.file.row_groups()[row_group], &self.log_names);
        let mut tuples = self.tuples.take();
        if leaves.is_empty() {
            if !self.log_names.is_empty() {
                return Err(self.corrupt("an add has no partitionValues"));
            }
            // There is one tuple, the empty one.
            let mut column = tuples.interner.column(1);
            column.push(&[]);
            let column = column.finish();
            let kept = keep(&column.dictionary[column.keys[0] as usize]);
            return Ok(RowNumbers::Range(if kept { wanted } else { wanted.start..wanted.start }));
        }
        let mut left = RowNumbers::Range(wanted.clone());
        let mut kept = Vec::new();
        let projection = self.file.project(&leaves)?;
        let batch_rows = self.file.batch_rows(row_group, &leaves);
        for batch in self.file.read(row_group, &projection, batch_rows, left.selection(all))? {
            let batch = batch?;
            let mut rows = left.take(batch.num_rows()).rows;
            let adds = Adds::new(self.file.name(), &batch, None, self.calendar)?;
            let column = adds.partitions_of(&mut rows, &mut tuples.interner)?;
            tuples.verdicts.retain(&mut rows, &column, &keep);
            kept.append(&mut rows);
        }
        if !left.is_empty() {
            return Err(self.corrupt("a row group ends early"));
        }
        self.tuples.put(tuples);
        Ok(RowNumbers::of(kept, wanted))
    }

    /// Returns those of `rows` whose statistics the caller keeps, if they are few among `all_rows`.
    fn kept_by_stats(
        &self,
        row_group: usize,
        all: &Range<u32>,
        rows: &RowNumbers,
        all_rows: usize,
    ) -> Result<Option<Vec<StatsOfRow>>> {
        let Some(keep) = self.options.keep_stats.as_ref().filter(|_| !rows.is_empty()) else {
            return Ok(None);
        };
        let leaves = self.columns.stats_leaves(&self.file.row_groups()[row_group]);
        let batch_rows = rows.batch_rows(self.file.batch_rows(row_group, &leaves));
        if leaves.is_empty() || batch_rows == 1 {
            return Ok(None);
        }
        let projection = self.file.project(&leaves)?;
        let mut reader = self.file.read_bounded(row_group, &projection, batch_rows, rows.selection(all))?;
        let (mut left, mut seen, mut bytes, mut kept) = (rows.clone(), 0, 0, Vec::new());
        while let Some(batch) = reader.next() {
            if batch.is_err() && reader.is_too_large() {
                return Ok(None);
            }
            let Some(pieces) = decoded_bytes::cut(batch?, BATCH_BYTES) else { return Ok(None) };
            for piece in pieces {
                let taken = left.take(piece.num_rows());
                if taken.rows.len() < piece.num_rows() {
                    return Err(self.corrupt("a row group has more rows than it says"));
                }
                let adds = Adds::new(self.file.name(), &piece, taken.kept, self.calendar)?;
                let mut rows = taken.rows;
                adds.retain(&mut rows);
                seen += rows.len();
                let texts = adds.stats()?.unwrap_or_else(|| StringViewArray::new_null(rows.len()));
                for position in keep(texts.clone()) {
                    let position = position as usize;
                    let text = texts.is_valid(position).then(|| texts.value(position));
                    bytes += text.map_or(0, str::len);
                    kept.push((rows[position], text.map(Box::from)));
                }
            }
            if kept.len() * FILES_PER_KEPT > seen.max(all_rows / FILES_PER_KEPT) || bytes > BATCH_BYTES {
                return Ok(None);
            }
        }
        if !left.is_empty() {
            return Err(self.corrupt("a row group ends early"));
        }
        Ok(Some(kept))
    }

    /// Returns the projection of `leaves`. The last one is cached: most row groups need the same leaves.
    fn project(&mut self, leaves: Vec<usize>) -> Result<Arc<Projection>> {
        if let Some((known, projection)) = &self.projection
            && *known == leaves
        {
            return Ok(Arc::clone(projection));
        }
        let projection = Arc::new(self.file.project(&leaves)?);
        self.projection = Some((leaves, Arc::clone(&projection)));
        Ok(projection)
    }

    fn corrupt(&self, reason: &str) -> Error {
        Error::corrupt(&**self.file.name(), reason)
    }
}

/// The indices of the leaf columns of `add`.
struct Columns {
    required: Vec<usize>,
    partition_values: Vec<usize>,
    /// The name of the partition column and the index of each leaf.
    typed_partition_values: Vec<(String, usize)>,
    stats: Vec<usize>,
    typed_stats: Vec<usize>,
    deletion_vector: Vec<usize>,
    delta_fields: Vec<usize>,
}

impl Columns {
    fn new(file: &ParquetFile) -> Self {
        let of = |fields: &[&str]| file.leaves_of_add(fields);
        let typed_partition_values = of(&["partitionValues_parsed"]).into_iter();
        let column_of = |leaf: usize| file.leaf_path(leaf).get(2).cloned().unwrap_or_default();
        Self {
            required: of(&REQUIRED_FIELDS),
            partition_values: of(&["partitionValues"]),
            typed_partition_values: typed_partition_values.map(|leaf| (column_of(leaf), leaf)).collect(),
            stats: of(&["stats"]),
            typed_stats: of(&["stats_parsed"]),
            deletion_vector: of(&["deletionVector"]),
            delta_fields: of(&DELTA_FIELDS),
        }
    }

    fn has_adds(&self, row_group: &RowGroupMetaData) -> bool {
        self.required.iter().any(|leaf| has_values(row_group, *leaf))
    }

    /// Returns the leaves of a batch, without optional columns that have no value in the row group.
    fn wanted(
        &self,
        row_group: &RowGroupMetaData,
        needs: Needs,
        partition_columns: &[Box<str>],
    ) -> Vec<usize> {
        let mut leaves = self.required.clone();
        leaves.extend(self.partition_leaves(row_group, partition_columns));
        if needs.stats {
            leaves.extend(self.stats_leaves(row_group));
        }
        if self.deletion_vector.iter().any(|leaf| has_values(row_group, *leaf)) {
            leaves.extend(&self.deletion_vector);
        }
        if needs.delta_fields {
            let delta_fields = self.delta_fields.iter().copied();
            leaves.extend(delta_fields.filter(|leaf| may_have_rows(row_group, *leaf)));
        }
        leaves
    }

    /// Returns the leaves of the map, or of the typed columns if the row group has no map.
    fn partition_leaves(&self, row_group: &RowGroupMetaData, partition_columns: &[Box<str>]) -> Vec<usize> {
        if partition_columns.is_empty() {
            return Vec::new();
        }
        if self.partition_values.iter().any(|leaf| has_values(row_group, *leaf)) {
            return self.partition_values.clone();
        }
        let is_wanted = |name: &str| partition_columns.iter().any(|column| **column == *name);
        let typed = self.typed_partition_values.iter().filter(|(name, _)| is_wanted(name));
        let typed: Vec<_> = typed.map(|(_, leaf)| *leaf).collect();
        // The maps may be empty, which is no error, or null, which is one.
        if typed.is_empty() { self.partition_values.clone() } else { typed }
    }

    /// Returns the leaf of the text, and the leaves of the typed columns if some file has no text.
    fn stats_leaves(&self, row_group: &RowGroupMetaData) -> Vec<usize> {
        let mut leaves: Vec<_> = with_values(row_group, &self.stats).collect();
        let nulls = leaves.first().and_then(|leaf| null_count(row_group, *leaf));
        let is_complete = match (nulls, rows_without_add(row_group, &self.required)) {
            (Some(stats), Some(others)) => stats <= others,
            _ => false,
        };
        if !is_complete {
            leaves.extend(with_values(row_group, &self.typed_stats));
        }
        leaves
    }
}

fn with_values(row_group: &RowGroupMetaData, leaves: &[usize]) -> impl Iterator<Item = usize> {
    leaves.iter().copied().filter(|leaf| has_values(row_group, *leaf))
}
