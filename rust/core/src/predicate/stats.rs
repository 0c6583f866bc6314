//! Statistics of a batch of files as typed columns, built when a predicate needs them for the first time.
//!
//! A missing bound means "any value": the least key for a missing minimum, the greatest for a missing maximum. Bounds
//! are valid for files with deletion vectors and with `tightBounds` false, as they cover all rows ever written. A null
//! count proves something only if it is zero or equals the number of rows (PROTOCOL, section Per-file Statistics), and the
//! latter only without a bound, which is a value.

mod extract;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use self::extract::{ColumnStats, Extractor, FileStats};
use super::bind::BoundColumn;
use super::values::bounds::{ReadMax, Source, proves_no_nulls, text_max, true_bound};
use super::values::keys::{KeyType, Scalar, narrow, stats_spread};
use super::values::number::HUGE;
use super::values::ranges::{TextMax, text_head};
use crate::actions::FileBatch;

/// A row may be null.
pub(crate) const NULLS: u8 = 1;
/// A row may hold a value.
pub(crate) const VALUES: u8 = 2;
/// The text maximum is the first string that no row reaches.
const MAX_EXCLUSIVE: u8 = 4;

/// Number of files whose statistics are unescaped at a time.
const UNESCAPED_FILES: usize = 256;

/// What a cached column costs beside its bounds: its path as a key, and its place.
const ENTRY_BYTES: usize = 256;

/// The bytes that the typed statistics of all cached batches may have together. A predicate has up to a thousand columns,
/// each of them larger than what the log has of it.
#[derive(Debug)]
pub struct StatsBudget {
    most: AtomicUsize,
    used: AtomicUsize,
}

impl StatsBudget {
    /// Creates a budget of at most `most` bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most: AtomicUsize::new(most), used: AtomicUsize::new(0) }
    }

    /// Changes the budget. What exceeds it stays until its batch is freed.
    pub fn set(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// The bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The typed statistics of one batch, cached with it or for one pass.
///
/// Usable by several predicates at once; two that need a column for the first time at the same time may both build
/// it.
#[derive(Debug)]
pub struct StatsCache {
    kept: Option<RwLock<Kept>>,
    budget: Arc<StatsBudget>,
}

#[derive(Debug, Default)]
struct Kept {
    columns: HashMap<(Vec<String>, KeyType), Arc<StatsColumn>>,
    records: Option<Arc<[i64]>>,
    bytes: usize,
}

impl StatsCache {
    /// Creates a cache for a cached batch: each column is built once.
    #[must_use]
    pub fn cached() -> Self {
        Self::cached_within(&Arc::new(StatsBudget::new(usize::MAX)))
    }

    /// As [`Self::cached`], for columns within a budget. Others are read at each evaluation.
    #[must_use]
    pub fn cached_within(budget: &Arc<StatsBudget>) -> Self {
        Self { kept: Some(RwLock::default()), budget: Arc::clone(budget) }
    }

    /// Creates a cache for a transient batch: reads only evaluated files and stores nothing.
    #[must_use]
    pub fn transient() -> Self {
        Self { kept: None, budget: Arc::new(StatsBudget::new(0)) }
    }

    /// Drops the cached columns.
    pub fn clear(&self) {
        let Some(kept) = &self.kept else { return };
        let cleared = std::mem::take(&mut *kept.write().unwrap_or_else(PoisonError::into_inner));
        self.budget.give_back(cleared.bytes);
    }

    /// Returns the memory of the cached columns in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.read().unwrap_or_else(PoisonError::into_inner).bytes)
    }

    /// Returns `numRecords` of each file, -1 if unknown.
    pub(crate) fn records(&self, batch: &FileBatch, rows: &[u32]) -> Records {
        let Some(kept) = &self.kept else { return Records::Of(read_records(batch, rows)) };
        if let Some(records) = &kept.read().unwrap_or_else(PoisonError::into_inner).records {
            return Records::All(Arc::clone(records));
        }
        let bytes = batch.len() * size_of::<i64>();
        if !is_worth_keeping(batch, rows) || !self.budget.take(bytes) {
            return Records::Of(read_records(batch, rows));
        }
        let records: Arc<[i64]> = read_records(batch, &every_row(batch)).into();
        let mut kept = kept.write().unwrap_or_else(PoisonError::into_inner);
        if kept.records.replace(Arc::clone(&records)).is_some() {
            self.budget.give_back(bytes);
        } else {
            kept.bytes += bytes;
        }
        Records::All(records)
    }

    /// Builds the missing columns of `wanted`; returns false if none is missing, or if they do not fit.
    pub(crate) fn prepare(&self, batch: &FileBatch, wanted: &[&BoundColumn]) -> bool {
        let is_there = |kept: &RwLock<Kept>| {
            let kept = kept.read().unwrap_or_else(PoisonError::into_inner);
            wanted.iter().all(|column| kept.columns.contains_key(&key(column)))
        };
        if self.kept.as_ref().is_none_or(is_there) {
            return false;
        }
        self.columns(batch, wanted, &every_row(batch)).is_some()
    }

    /// Returns the columns `wanted` of all files, or `None` if they are not worth keeping for `rows`, or do not fit.
    pub(crate) fn columns(
        &self,
        batch: &FileBatch,
        wanted: &[&BoundColumn],
        rows: &[u32],
    ) -> Option<Columns> {
        let kept = self.kept.as_ref()?;
        let found = {
            let kept = kept.read().unwrap_or_else(PoisonError::into_inner);
            wanted.iter().map(|column| kept.columns.get(&key(column)).map(Arc::clone)).collect::<Vec<_>>()
        };
        let missing: Vec<&BoundColumn> = wanted
            .iter()
            .zip(&found)
            .filter(|(_, found)| found.is_none())
            .map(|(column, _)| *column)
            .collect();
        if !missing.is_empty() && !is_worth_keeping(batch, rows) {
            return None;
        }
        let mut built = self.build_within(batch, &missing)?.into_iter();
        let mut columns = Vec::with_capacity(wanted.len());
        for (column, found) in wanted.iter().zip(found) {
            columns.push(found.or_else(|| {
                let (stats, is_counted) = built.next()?;
                if is_counted {
                    self.keep(kept, column, &stats);
                }
                Some(stats)
            })?);
        }
        Some(Columns { columns, of_all: true })
    }

    /// Builds columns of all files if they fit, and returns each with whether its bytes are counted.
    fn build_within(
        &self,
        batch: &FileBatch,
        missing: &[&BoundColumn],
    ) -> Option<Vec<(Arc<StatsColumn>, bool)>> {
        let least =
            missing.iter().map(|column| ENTRY_BYTES + least_bytes(column.key_type) * batch.len()).sum();
        if !self.budget.take(least) {
            return None;
        }
        let built = build(batch, missing, &every_row(batch));
        self.budget.give_back(least);
        Some(
            built
                .into_iter()
                .map(|stats| (Arc::clone(&stats), self.budget.take(stats.entry_bytes())))
                .collect(),
        )
    }

    fn keep(&self, kept: &RwLock<Kept>, column: &BoundColumn, stats: &Arc<StatsColumn>) {
        let bytes = stats.entry_bytes();
        let mut kept = kept.write().unwrap_or_else(PoisonError::into_inner);
        if kept.columns.insert(key(column), Arc::clone(stats)).is_some() {
            self.budget.give_back(bytes);
        } else {
            kept.bytes += bytes;
        }
    }
}

impl Drop for StatsCache {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The bytes of the bounds of a file without texts.
fn least_bytes(key_type: KeyType) -> usize {
    match key_type {
        KeyType::Opaque => 1,
        KeyType::Text => 33,
        wide if wide.is_wide() => 33,
        _ => 17,
    }
}

fn key(column: &BoundColumn) -> (Vec<String>, KeyType) {
    (column.column.physical.clone(), column.key_type)
}

/// Reading all files costs more than a predicate gains if it evaluates few of them.
fn is_worth_keeping(batch: &FileBatch, rows: &[u32]) -> bool {
    rows.len() * 8 >= batch.len()
}

fn every_row(batch: &FileBatch) -> Vec<u32> {
    (0..batch.len() as u32).collect()
}

/// Record counts of all files, or of some rows in their order.
#[derive(Debug)]
pub(crate) enum Records {
    All(Arc<[i64]>),
    Of(Vec<i64>),
}

impl Records {
    /// Returns the count of the file at `row`, which is requested row number `position`.
    pub(crate) fn at(&self, position: usize, row: u32) -> Option<u64> {
        let count = match self {
            Self::All(records) => records.get(row as usize),
            Self::Of(records) => records.get(position),
        };
        count.and_then(|count| u64::try_from(*count).ok())
    }
}

/// Typed columns of all files, or of some rows in their order.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) columns: Vec<Arc<StatsColumn>>,
    pub(crate) of_all: bool,
}

impl Columns {
    pub(crate) fn of_rows(batch: &FileBatch, wanted: &[&BoundColumn], rows: &[u32]) -> Self {
        Self { columns: build(batch, wanted, rows), of_all: false }
    }
}

/// The bounds of one column in each file.
#[derive(Debug)]
pub(crate) struct StatsColumn {
    pub(crate) flags: Vec<u8>,
    pub(crate) bounds: Bounds,
}

#[derive(Debug)]
pub(crate) enum Bounds {
    /// Only the presence of nulls is known.
    None,
    Narrow {
        min: Vec<i64>,
        max: Vec<i64>,
    },
    Wide {
        min: Vec<i128>,
        max: Vec<i128>,
    },
    Text(TextBounds),
}

#[derive(Debug, Default)]
pub(crate) struct TextBounds {
    arena: Vec<u8>,
    min: Vec<Slice>,
    max: Vec<Slice>,
    heads: Vec<(u64, u64)>,
}

/// A span of the arena; `start` is `u32::MAX` for an unknown bound.
#[derive(Debug, Clone, Copy)]
struct Slice {
    start: u32,
    length: u32,
}

const NOTHING: Slice = Slice { start: u32::MAX, length: 0 };

impl StatsColumn {
    fn new(key_type: KeyType, files: usize) -> Self {
        let bounds = match key_type {
            KeyType::Opaque => Bounds::None,
            KeyType::Text => Bounds::Text(TextBounds {
                arena: Vec::new(),
                min: Vec::with_capacity(files),
                max: Vec::with_capacity(files),
                heads: Vec::with_capacity(files),
            }),
            wide if wide.is_wide() => {
                Bounds::Wide { min: Vec::with_capacity(files), max: Vec::with_capacity(files) }
            }
            _ => Bounds::Narrow { min: Vec::with_capacity(files), max: Vec::with_capacity(files) },
        };
        Self { flags: Vec::with_capacity(files), bounds }
    }

    fn push(
        &mut self,
        column: &BoundColumn,
        source: Source,
        stats: ColumnStats<'_>,
        num_records: Option<i64>,
    ) {
        let may_be_null = stats.null_count != Some(0) || !proves_no_nulls(&column.column);
        let has_bound = stats.min.or(stats.max).is_some();
        let all_null = !has_bound
            && column.counts_own_nulls()
            && stats.null_count.is_some_and(|nulls| nulls > 0 && Some(nulls) == num_records);
        let mut flags = u8::from(may_be_null) * NULLS + u8::from(!all_null) * VALUES;
        match &mut self.bounds {
            Bounds::None => {}
            Bounds::Text(bounds) => flags += bounds.push(source, stats),
            Bounds::Narrow { min, max } => {
                let (low, high) = key_bounds(column.key_type, source, stats);
                min.push(low.map_or(i64::MIN, narrow));
                max.push(high.map_or(i64::MAX, narrow));
            }
            Bounds::Wide { min, max } => {
                let (low, high) = key_bounds(column.key_type, source, stats);
                min.push(low.unwrap_or(-HUGE));
                max.push(high.unwrap_or(HUGE));
            }
        }
        self.flags.push(flags);
    }

    fn entry_bytes(&self) -> usize {
        ENTRY_BYTES + self.memory_bytes()
    }

    fn memory_bytes(&self) -> usize {
        let bounds = match &self.bounds {
            Bounds::None => 0,
            Bounds::Narrow { min, .. } => min.capacity() * 16,
            Bounds::Wide { min, .. } => min.capacity() * 32,
            Bounds::Text(text) => text.arena.capacity() + text.min.capacity() * 32,
        };
        bounds + self.flags.capacity()
    }
}

/// Returns the minimum and maximum keys, if known; neither if they contradict each other.
fn key_bounds(key_type: KeyType, source: Source, stats: ColumnStats<'_>) -> (Option<i128>, Option<i128>) {
    let bound = |scalar: Scalar<'_>| {
        // The bounds of a row group with strings of numbers are in the order of strings.
        if source == Source::RowGroup && scalar.is_text() && !key_type.is_temporal() {
            return None;
        }
        true_bound(key_type, source, stats_spread(key_type, scalar)?)
    };
    let low = stats.min.and_then(bound).map(|spread| spread.low);
    let high = stats.max.and_then(bound).map(|spread| spread.high);
    match (low, high) {
        (Some(low), Some(high)) if low > high => (None, None),
        bounds => bounds,
    }
}

impl TextBounds {
    pub(crate) fn min_at(&self, file: usize) -> Option<&[u8]> {
        self.slice(*self.min.get(file)?)
    }

    pub(crate) fn max_at(&self, file: usize, flags: u8) -> TextMax<'_> {
        match self.max.get(file).and_then(|slice| self.slice(*slice)) {
            Some(max) if flags & MAX_EXCLUSIVE == 0 => TextMax::Value(max),
            Some(max) => TextMax::Before(max),
            None => TextMax::Unknown,
        }
    }

    /// The heads of minimum and maximum, as [`TextHeads::verdict`] takes them.
    pub(crate) fn heads_at(&self, file: usize) -> Option<(u64, u64)> {
        self.heads.get(file).copied()
    }

    fn slice(&self, slice: Slice) -> Option<&[u8]> {
        let start = slice.start as usize;
        self.arena.get(start..start.checked_add(slice.length as usize)?)
    }

    /// Stores the bounds of one more file; the flag is the kind of the maximum.
    fn push(&mut self, source: Source, stats: ColumnStats<'_>) -> u8 {
        let min = stats.min.and_then(Scalar::unescaped);
        let max = stats.max.and_then(Scalar::unescaped);
        let min_slice = min.as_deref().map_or(NOTHING, |min| self.store(min.as_bytes()));
        let (max_slice, exclusive) = match max.as_deref().map(|max| text_max(source, max)) {
            None | Some(ReadMax::Unknown) => (NOTHING, false),
            Some(ReadMax::Value(max)) => (self.store(max.as_bytes()), false),
            Some(ReadMax::Before(cut)) => (self.store(&cut.bytes), true),
        };
        let contradict = matches!((min.as_deref(), max.as_deref()), (Some(min), Some(max)) if min > max);
        let (min_slice, max_slice) = if contradict { (NOTHING, NOTHING) } else { (min_slice, max_slice) };
        let head = |slice, unknown| self.slice(slice).map_or(unknown, text_head);
        let heads = (head(min_slice, 0), head(max_slice, u64::MAX));
        self.min.push(min_slice);
        self.max.push(max_slice);
        self.heads.push(heads);
        u8::from(exclusive) * MAX_EXCLUSIVE
    }

    fn store(&mut self, bytes: &[u8]) -> Slice {
        let (Ok(start), Ok(length)) = (u32::try_from(self.arena.len()), u32::try_from(bytes.len())) else {
            return NOTHING;
        };
        self.arena.extend_from_slice(bytes);
        Slice { start, length }
    }
}

fn build(batch: &FileBatch, wanted: &[&BoundColumn], rows: &[u32]) -> Vec<Arc<StatsColumn>> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let extractor = Extractor::new(wanted.iter().map(|column| column.column.physical.as_slice()));
    let mut columns: Vec<StatsColumn> =
        wanted.iter().map(|column| StatsColumn::new(column.key_type, rows.len())).collect();
    for_each(batch, rows, extractor, |file| {
        for ((column, bound), stats) in columns.iter_mut().zip(wanted).zip(&file.columns) {
            column.push(bound, Source::File, *stats, file.num_records);
        }
    });
    columns.into_iter().map(Arc::new).collect()
}

/// The column of one text of statistics.
pub(crate) fn of_one(column: &BoundColumn, source: Source, json: &str) -> Option<StatsColumn> {
    let mut file = FileStats::default();
    Extractor::new([column.column.physical.as_slice()]).extract(json, &mut file);
    let mut stats = StatsColumn::new(column.key_type, 1);
    stats.push(column, source, *file.columns.first()?, file.num_records);
    Some(stats)
}

fn read_records(batch: &FileBatch, rows: &[u32]) -> Vec<i64> {
    let mut records = Vec::with_capacity(rows.len());
    for_each(batch, rows, Extractor::new([]), |file| records.push(file.num_records.unwrap_or(-1)));
    records
}

/// Shows `take` the statistics of the file at each of `rows`.
fn for_each(batch: &FileBatch, rows: &[u32], mut extractor: Extractor, mut take: impl FnMut(&FileStats<'_>)) {
    for rows in rows.chunks(UNESCAPED_FILES) {
        let texts = batch.stats.as_ref().map(|stats| stats.raw_of(rows));
        let mut file = FileStats::default();
        for position in 0..rows.len() {
            let json = texts.as_ref().map_or("", |texts| texts.get(position));
            extractor.extract(json, &mut file);
            take(&file);
        }
    }
}
