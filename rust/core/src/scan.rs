//! The live files of a snapshot as one ordered, lazy stream, pruned by a predicate and cut by limits.
//!
//! The order is fixed by (table, version, checkpoint): adds of the commits from the newest, then those of the
//! checkpoint's parts, row by row. A [`Cursor`] identifies a file in that order, so a page continues on any replica where
//! the previous one ended. Files come from the log, one row group at a time, or from cached columns; results are equal.

mod build;
mod cursor;
mod precount;
mod read_ahead;
mod stages;
mod stats_prefetch;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use self::stages::Stage;
use self::stats_prefetch::StatsPrefetch;
use crate::actions::{RowIndices, Totals};
use crate::column_cache::{CachedBatch, ColumnCache, ColumnsKey};
use crate::pool::Pool;
use crate::predicate::{BoundRule, Limit, PartitionVerdicts, Predicate, PruneCounts, RuleVerdicts};
use crate::snapshot::Snapshot;
use crate::stop::Stop;
use crate::{Error, Result};

pub use cursor::Cursor;
pub use precount::Precount;

/// Options of a scan.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// Keeps the files of the rule; the scan knows of no others and counts none of them.
    pub rule: Option<Arc<BoundRule>>,
    /// Drops files that hold no matching row.
    pub predicate: Arc<Predicate>,
    /// Number of rows after the predicate that suffice.
    pub limit_hint: Option<u64>,
    /// Maximum number of files of a page.
    pub max_files: Option<u64>,
    /// The end of the previous page.
    pub after: Option<Cursor>,
    /// Whether to read fields that only the delta format has.
    pub delta_fields: bool,
}

impl ScanOptions {
    /// Options for all live files.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            rule: None,
            predicate: Arc::new(Predicate::keep_all()),
            limit_hint: None,
            max_files: None,
            after: None,
            delta_fields: true,
        }
    }

    /// Whether the scan, with the pages before and after it, returns every file.
    #[must_use]
    pub fn lists_all(&self) -> bool {
        self.predicate.is_trivial() && self.limit_hint.is_none()
    }

    /// Whether the scan reads a checkpoint to its end with all columns. Files outside of the rule are read, too, if the
    /// columns are built from them.
    #[must_use]
    pub fn reads_all(&self) -> bool {
        self.lists_all() && self.max_files.is_none() && self.after.is_none()
    }
}

/// Counts of the files that a source read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Live files of the version that were evaluated.
    pub considered: u64,
    /// Files pruned by partition values.
    pub pruned_by_partition: u64,
    /// Files pruned by statistics.
    pub pruned_by_stats: u64,
    /// Files pruned because earlier files have enough rows.
    pub pruned_by_limit: u64,
    /// The start of the next page.
    pub next_cursor: Option<String>,
}

/// Selected files of one batch.
#[derive(Debug, Clone)]
pub struct Selected {
    /// The batch.
    pub batch: Arc<CachedBatch>,
    /// The selected rows of the batch.
    pub rows: RowIndices,
}

/// The result of a step of a scan.
#[derive(Debug)]
pub enum ScanStep {
    /// At least one selected file.
    Files(Selected),
    /// No file so far.
    Pending,
    /// The end of the scan.
    End,
}

/// Selections below this size are copied out of their batch.
const FEW_FILES: usize = 128;

impl Selected {
    /// Copies a small selection out of a transient batch. A batch holds every page of its files, so collecting files
    /// of a sparse answer would hold the whole log.
    fn compact(self) -> Self {
        if self.rows.is_empty() || self.rows.len() >= FEW_FILES {
            return self;
        }
        let files = Arc::new(self.batch.files.only(&self.rows));
        Self { rows: (0..files.len() as u32).collect(), batch: Arc::new(CachedBatch::transient(files)) }
    }
}

/// A scan over the live files of a snapshot. [`Scan::next_files`] reads.
#[derive(Debug)]
pub struct Scan {
    snapshot: Arc<Snapshot>,
    options: ScanOptions,
    cache: Option<(Arc<ColumnCache>, ColumnsKey)>,
    /// The bytes of typed statistics at its start.
    stats_bytes_before: usize,
    stage: Stage,
    verdicts: PartitionVerdicts,
    rule_verdicts: RuleVerdicts,
    counts: PruneCounts,
    limit: Limit,
    files_left: u64,
    outcome: Outcome,
    /// The files of this scan and of the pages before it, if they are to be the whole table.
    counted: Option<Totals>,
    /// Files that the precount selected.
    ahead: VecDeque<Selected>,
    /// Builds statistics in the background until the scan ends.
    stats_prefetch: Option<Arc<StatsPrefetch>>,
    /// The pool whose threads decode ahead.
    pool: Option<Pool>,
    /// Whether a build of columns waits for the writer of their file. Never for the scan of an answer.
    waits: bool,
    /// Counts the rows of the row groups that were read.
    rows_read: Arc<AtomicU64>,
    /// The error that ended the scan. Later calls return it as well, never an end.
    failure: Option<Error>,
}

impl Scan {
    /// Starts at the first file, or after `options.after`.
    pub fn new(
        snapshot: Arc<Snapshot>,
        cache: Option<(Arc<ColumnCache>, ColumnsKey)>,
        options: ScanOptions,
    ) -> Result<Self> {
        if options.after.is_some_and(|cursor| !snapshot.has_source(cursor.source)) {
            return Err(Error::InvalidCursor);
        }
        let rows_requested = options.after.map_or(options.limit_hint, |cursor| cursor.limit_left);
        let before = options.after.map_or(Some(Totals::default()), |cursor| cursor.passed);
        Ok(Self {
            files_left: options.max_files.unwrap_or(u64::MAX),
            limit: Limit::new(rows_requested),
            snapshot,
            stats_bytes_before: cache.as_ref().map_or(0, |(cache, _)| cache.stats_budget().used()),
            cache,
            stage: Stage::Commits { next: 0 },
            verdicts: PartitionVerdicts::default(),
            rule_verdicts: RuleVerdicts::default(),
            counts: PruneCounts::default(),
            outcome: Outcome::default(),
            counted: before.filter(|_| options.lists_all()),
            ahead: VecDeque::new(),
            stats_prefetch: None,
            pool: None,
            waits: false,
            rows_read: Arc::default(),
            failure: None,
            options,
        })
    }

    /// Uses other threads of `pool` to decode the next batch of a checkpoint, and to build the statistics of cached
    /// columns that a predicate needs for the first time.
    pub fn prepare(&mut self, pool: &Pool) {
        self.pool = Some(pool.clone());
        let predicate = &self.options.predicate;
        // Statistics are not needed for files that partition values drop.
        if !predicate.needs_stats() || predicate.asks_partitions() {
            return;
        }
        if let Some((cache, key)) = &self.cache
            && let Some(columns) = cache.get(key)
        {
            self.stats_prefetch = Some(StatsPrefetch::start(columns, Arc::clone(predicate), pool));
        }
    }

    /// Returns the next selected files, never empty; `None` at the end.
    pub fn next_files(&mut self) -> Result<Option<Selected>> {
        loop {
            match self.step(&mut { usize::MAX })? {
                ScanStep::Files(found) => return Ok(Some(found)),
                ScanStep::Pending => {}
                ScanStep::End => return Ok(None),
            }
        }
    }

    /// Evaluates up to `batches` batches until one has selected files, and subtracts the evaluated ones from
    /// `batches`.
    pub fn step(&mut self, batches: &mut usize) -> Result<ScanStep> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.step_within(batches).map_err(|error| self.failed(error))
    }

    fn failed(&mut self, error: Error) -> Error {
        let error = self.explain(error);
        // This drops an unfinished build of columns.
        self.stage = Stage::End;
        self.failure = Some(error.clone());
        error
    }

    fn explain(&self, error: Error) -> Error {
        let error = self.snapshot.read_error(error);
        // A request without a previous page can be repeated, and then reads the version from other files.
        if self.options.after.is_some() { self.snapshot.explain_missing(error) } else { error }
    }

    fn step_within(&mut self, batches: &mut usize) -> Result<ScanStep> {
        if let Some(found) = self.ahead.pop_front() {
            return Ok(ScanStep::Files(found));
        }
        while let Some(left) = batches.checked_sub(1) {
            *batches = left;
            match self.next_batch()? {
                Some(selected) if selected.rows.is_empty() => {}
                Some(selected) => return Ok(ScanStep::Files(selected)),
                None => return Ok(ScanStep::End),
            }
        }
        Ok(ScanStep::Pending)
    }

    /// Returns the next batch with its selected files, if any.
    fn next_batch(&mut self) -> Result<Option<Selected>> {
        if self.limit.is_reached() {
            self.end_by_limit()?;
        }
        let Some((batch, live)) = self.next_live()? else {
            self.check_counted()?;
            return Ok(None);
        };
        let passes = matches!(self.stage, Stage::Log { builder: None, .. });
        let rows = self.options.predicate.select(
            &batch.files,
            &batch.stats,
            live,
            &mut self.verdicts,
            &mut self.counts,
        );
        let selected = Selected { rows: self.cut(&batch, rows)?, batch };
        Ok(Some(if passes { selected.compact() } else { selected }))
    }

    /// Returns the counts of the scan; complete once [`Self::next_files`] has returned `None`.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome {
            considered: self.outcome.considered.max(self.counts.considered),
            pruned_by_partition: self.outcome.pruned_by_partition + self.counts.by_partition,
            pruned_by_stats: self.outcome.pruned_by_stats + self.counts.by_stats,
            ..self.outcome.clone()
        }
    }

    /// The number and size of the files that the scan may return, if known.
    fn known_totals(&self) -> Option<Totals> {
        self.snapshot.known_totals_within(self.options.rule.as_ref())
    }

    /// Counts files that the reader of the checkpoint pruned by partition values, or with their row group.
    fn count_unseen(&mut self) {
        let is_whole = self.options.after.is_none();
        if let Some(totals) = self.known_totals().filter(|_| is_whole) {
            self.outcome.considered = totals.files;
            let unseen = totals.files.saturating_sub(self.counts.considered);
            if self.options.predicate.asks_partitions() {
                self.outcome.pruned_by_partition = unseen;
            } else {
                self.outcome.pruned_by_stats = unseen;
            }
        }
    }

    /// Returns [`Error::Contradiction`] at the end of a whole table, or of its last page, if the files are not those that
    /// the header counts. Columns that were read are discarded: the next answer reads them again.
    fn check_counted(&self) -> Result<()> {
        let Some(counted) = self.counted.filter(|_| self.outcome.next_cursor.is_none()) else {
            return Ok(());
        };
        let rule = self.options.rule.as_ref();
        let checked = self.snapshot.check_counted(rule, counted);
        if let (Err(_), Some((cache, key))) = (&checked, &self.cache)
            && let Some(columns) = cache.get(key)
        {
            cache.discard(key, &columns);
        }
        checked
    }

    /// Applies the page size and the row limit.
    fn cut(&mut self, batch: &CachedBatch, mut rows: RowIndices) -> Result<RowIndices> {
        let files = &batch.files;
        let free = usize::try_from(self.files_left).unwrap_or(usize::MAX);
        let beyond_page = rows.len().saturating_sub(free);
        rows.truncate(free);
        let wanted = rows.len();
        rows = self.limit.take(&self.options.predicate, files, &batch.stats, rows, &mut self.verdicts);
        self.outcome.pruned_by_limit += (wanted - rows.len()) as u64;
        self.files_left -= rows.len() as u64;
        if let Some(counted) = &mut self.counted {
            counted.add(files, &rows);
        }
        let last = rows.last().map(|index| (files.source, files.row[*index as usize]));
        if self.limit.is_reached() {
            self.outcome.pruned_by_limit += beyond_page as u64;
            self.end_by_limit()?;
        } else if let Some((source, row)) = last.filter(|_| self.files_left == 0) {
            if beyond_page > 0 || self.has_more()? {
                let limit_left = self.limit.records_left();
                self.outcome.next_cursor =
                    Some(Cursor { source, row, limit_left, passed: self.counted }.to_text());
            }
            self.end();
        }
        Ok(rows)
    }

    /// Counts files after the limit as pruned.
    fn end_by_limit(&mut self) -> Result<()> {
        if !matches!(self.stage, Stage::End) && self.options.after.is_none() {
            let rule = self.options.rule.as_ref();
            let Totals { files, .. } = self.snapshot.totals_within(rule, &Stop::default())?;
            self.outcome.considered = files;
            self.outcome.pruned_by_limit += files.saturating_sub(self.counts.considered);
        }
        self.end();
        Ok(())
    }

    /// Returns whether another file follows. The last page has no cursor.
    fn has_more(&mut self) -> Result<bool> {
        let counts = self.counts;
        let mut more = false;
        while let Some((batch, live)) = self.next_live()? {
            let predicate = &self.options.predicate;
            if !predicate
                .select(&batch.files, &batch.stats, live, &mut self.verdicts, &mut self.counts)
                .is_empty()
            {
                more = true;
                break;
            }
        }
        self.counts = counts;
        Ok(more)
    }
}

#[cfg(test)]
mod tests;
