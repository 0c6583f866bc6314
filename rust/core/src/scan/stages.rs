//! The stages of a scan: batches of commits first, then cached columns or the checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cursor::start_in;
use super::read_ahead::{Measures, ReadAhead};
use super::{Scan, ScanOptions};
use crate::actions::{FileBatch, RowIndices};
use crate::checkpoint::{self, Needs, PartReader, PartReaders, Position, ReadOptions, Span};
use crate::column_cache::{
    CachedBatch, CachedColumns, ColumnCache, ColumnsBuilder, ColumnsKey, Pushed, SelectionBuilder,
};
use crate::pool::Pool;
use crate::snapshot::CHECKPOINT_SOURCE;
use crate::{Error, Result};

/// Batches of a selective predicate are small: a row group of them is decoded ahead.
const FEW_BYTES_AHEAD: usize = 512 << 10;

#[derive(Debug)]
pub(super) enum Stage {
    Commits {
        next: usize,
    },
    Cached {
        columns: Arc<CachedColumns>,
        next: usize,
    },
    /// The selected files of an earlier scan with the same predicate.
    Selected {
        columns: Arc<CachedColumns>,
        next: usize,
        key: ColumnsKey,
    },
    Log {
        batches: Box<ReadAhead<PartReaders, PartReader, FileBatch>>,
        builder: Option<ColumnsBuilder>,
        selection: Option<Box<SelectionBuilder>>,
        /// The adds so far, if every add of the checkpoint is read.
        adds: Option<u64>,
        /// The adds that the opened parts have at most, if every part is opened.
        most_adds: Option<Arc<AtomicU64>>,
    },
    End,
}

impl Scan {
    /// Returns the next batch with its live rows after the end of the previous page.
    pub(super) fn next_live(&mut self) -> Result<Option<(Arc<CachedBatch>, RowIndices)>> {
        loop {
            let live = |batch: Arc<CachedBatch>| {
                let live = batch.live_rows(self.snapshot.seen());
                (batch, live)
            };
            let found = match &mut self.stage {
                Stage::End => return Ok(None),
                Stage::Commits { next } => {
                    let found = self.snapshot.commit_batches().get(*next);
                    *next += 1;
                    found.map(|(files, live)| {
                        (Arc::new(CachedBatch::transient(Arc::clone(files))), live.clone())
                    })
                }
                Stage::Cached { columns, next } => {
                    let (index, found) = (*next, columns.batch(*next));
                    *next += 1;
                    let Ok(found) = found else {
                        let damaged = Arc::clone(columns);
                        self.leave_damaged(&damaged, index)?;
                        continue;
                    };
                    found.map(live)
                }
                Stage::Selected { columns, next, .. } => {
                    let damaged = |_| Error::Internal { detail: "a selection in memory is damaged".into() };
                    let found = columns.batch(*next).map_err(damaged)?;
                    *next += 1;
                    found.map(live)
                }
                Stage::Log { batches, builder, selection, adds, .. } => match batches.next().transpose()? {
                    Some(mut files) => {
                        if let Some(adds) = adds {
                            *adds += files.len() as u64;
                        }
                        if selection.as_mut().is_some_and(|selection| !selection.push(&files)) {
                            *selection = None;
                        }
                        if builder.is_some() {
                            files.prepare_for_cache();
                        }
                        let live = self.snapshot.live_rows(&files);
                        let files = Arc::new(files);
                        let batch = match builder {
                            Some(builder) => builder.batch(files),
                            None => CachedBatch::transient(files),
                        };
                        let batch = Arc::new(batch);
                        let pushed = builder.as_mut().map(|builder| builder.push(&batch, self.waits));
                        match pushed {
                            Some(Pushed::Yes) | None => {}
                            Some(Pushed::No) => *builder = None,
                            Some(Pushed::Full) => {
                                let (builder, files) = (builder.take(), Arc::clone(&batch.files));
                                self.build_rest(builder, &files)?;
                            }
                        }
                        Some((batch, live))
                    }
                    None => None,
                },
            };
            match found {
                Some((batch, live)) => {
                    let live = self.behind_start(&batch.files, live);
                    let live = self.within_rule(&batch.files, live)?;
                    if !live.is_empty() {
                        return Ok(Some((batch, live)));
                    }
                }
                None => self.next_stage()?,
            }
        }
    }

    fn within_rule(&mut self, files: &FileBatch, live: RowIndices) -> Result<RowIndices> {
        match &self.options.rule {
            Some(rule) => rule.select(&files.partitions, live, &mut self.rule_verdicts),
            None => Ok(live),
        }
    }

    fn behind_start(&self, files: &FileBatch, mut live: RowIndices) -> RowIndices {
        if let Some(start) = self.options.after
            && files.row.first().is_some_and(|row| !start.is_before(files.source, *row))
        {
            live.retain(|index| start.is_before(files.source, files.row[*index as usize]));
        }
        live
    }

    fn next_stage(&mut self) -> Result<()> {
        let stage = std::mem::replace(&mut self.stage, Stage::End);
        if let Stage::Log { adds: Some(adds), .. } = stage {
            self.snapshot.check_adds(adds)?;
        }
        if let Stage::Log { most_adds: Some(most), .. } = &stage {
            self.snapshot.check_most_adds(most.load(Ordering::Relaxed))?;
        }
        match stage {
            Stage::Commits { .. } => self.stage = self.checkpoint_stage()?,
            Stage::Log { builder: Some(builder), .. } => {
                self.check_counted()?;
                builder.finish();
            }
            Stage::Log { builder: None, selection, .. } if self.is_filtered() => {
                self.count_unseen();
                self.record_whole_miss()?;
                if let Some(selection) = selection {
                    selection.finish();
                }
            }
            Stage::Selected { .. } => {
                self.count_unseen();
                self.count_built(&stage);
            }
            Stage::Cached { .. } => self.count_built(&stage),
            Stage::Log { builder: None, .. } | Stage::End => {}
        }
        Ok(())
    }

    /// Ends the scan before its last batch. Columns are counted batch by batch, so only if statistics were built.
    pub(super) fn end(&mut self) {
        if self.stats_bytes() == self.stats_bytes_before {
            self.stage = Stage::End;
            return;
        }
        let stage = std::mem::replace(&mut self.stage, Stage::End);
        self.count_built(&stage);
    }

    /// The bytes of all typed statistics in the cache.
    fn stats_bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, |(cache, _)| cache.stats_budget().used())
    }

    /// Counts what the scan has built of the cached columns of a stage.
    fn count_built(&self, stage: &Stage) {
        let Some((cache, key)) = &self.cache else { return };
        match stage {
            Stage::Selected { key, .. } => cache.update_size(key),
            Stage::Cached { .. } => cache.update_size(key),
            Stage::Commits { .. } | Stage::Log { .. } | Stage::End => {}
        }
    }

    /// Whether the reader of the log may drop files.
    fn is_filtered(&self) -> bool {
        !self.options.predicate.is_trivial() || self.options.rule.is_some()
    }

    /// The key of the files that this scan selects, before limits and a page cut them.
    pub(super) fn selection_key(&self) -> Option<(&Arc<ColumnCache>, ColumnsKey)> {
        let (cache, key) = self.cache.as_ref().filter(|_| self.is_filtered())?;
        let rule = self.options.rule.as_ref().map(|rule| rule.key());
        Some((cache, key.of_selection(self.options.predicate.key(), rule, self.options.delta_fields)))
    }

    /// Continues with the log in place of columns whose file was altered.
    fn leave_damaged(&mut self, columns: &Arc<CachedColumns>, index: usize) -> Result<()> {
        if let Some((cache, key)) = &self.cache {
            cache.discard(key, columns);
        }
        let start = columns
            .positions(index)
            .map(|[(source, row), _]| Position { part: source.0.saturating_sub(CHECKPOINT_SOURCE.0), row });
        self.stage = self.log_stage(start, None)?;
        Ok(())
    }

    /// Continues a build by another scan, which waits for the writer of the file. This scan must not.
    fn build_rest(&self, builder: Option<ColumnsBuilder>, next: &FileBatch) -> Result<()> {
        if let (Some(pool), Some(builder), Some(row)) = (&self.pool, builder, next.row.first()) {
            let options = ScanOptions::everything();
            let mut scan = Self::new(Arc::clone(&self.snapshot), None, options)?;
            let start = Position { part: next.source.0.saturating_sub(CHECKPOINT_SOURCE.0), row: *row };
            scan.waits = true;
            scan.counted = self.counted.filter(|_| self.options.rule.is_none());
            scan.stage = scan.log_stage(Some(start), Some(builder))?;
            scan.continue_in_background(pool);
        }
        Ok(())
    }

    fn checkpoint_stage(&self) -> Result<Stage> {
        if self.snapshot.segment().checkpoint.is_none() {
            return Ok(Stage::End);
        }
        if let Some((cache, key)) = &self.cache
            && let Some(columns) = cache.get(key)
        {
            let next = self.first_cached_batch(&columns);
            self.snapshot.check_most_adds(columns.files()).inspect_err(|_| cache.discard(key, &columns))?;
            return Ok(Stage::Cached { columns, next });
        }
        let selected = self.selection_key().and_then(|(cache, key)| Some((cache.selection(&key)?, key)));
        if let Some((columns, key)) = selected {
            let next = self.first_cached_batch(&columns);
            return Ok(Stage::Selected { columns, next, key });
        }
        // Only a full scan can build whole columns.
        let reads_all = self.options.reads_all();
        let builder = self.cache.as_ref().filter(|_| reads_all).and_then(|(cache, key)| {
            let files = self.snapshot.known_totals().map(|totals| totals.files);
            cache.claim_build(key, files)
        });
        self.log_stage(self.options.after.map(start_in), builder)
    }

    /// Reads the checkpoint from `start` on.
    fn log_stage(&self, start: Option<Position>, builder: Option<ColumnsBuilder>) -> Result<Stage> {
        let Some(checkpoint) = self.snapshot.checkpoint()? else { return Ok(Stage::End) };
        if let Some((cache, _)) = &self.cache {
            self.snapshot.count_footers(cache);
        }
        let needs = Needs { stats: true, delta_fields: builder.is_some() || self.options.delta_fields };
        let (keep_tuple, may_match) = self.filters(builder.is_some());
        // A page or an answer with a limit may end before the next batch.
        let pool = self
            .pool
            .clone()
            .filter(|_| self.options.max_files.is_none() && self.options.limit_hint.is_none());
        // Beside other scans, more readers of this one would only hold more pages.
        let by_slice = may_match.is_some() && pool.as_ref().is_some_and(Pool::is_idle);
        let reads_all = start.is_none() && keep_tuple.is_none() && may_match.is_none();
        let most_adds = start.is_none().then(Arc::default);
        let options = ReadOptions {
            needs,
            first_source: CHECKPOINT_SOURCE,
            span: start.map(|start| Span { start, end: None }),
            keep_tuple,
            keep_stats: self.keep_stats().filter(|_| by_slice),
            may_match,
            by_slice,
            rows_read: Some(Arc::clone(&self.rows_read)),
            most_adds: most_adds.clone(),
        };
        let parts = checkpoint.readers(self.snapshot.interner(), options);
        let measures = Measures {
            file: PartReader::file_bytes,
            reader_held: PartReader::held_bytes,
            batch: FileBatch::memory_bytes,
            few_bytes: FEW_BYTES_AHEAD,
        };
        // Only a scan that reads to the end without a page's start sees all selected files.
        let is_whole =
            start.is_none() && self.options.max_files.is_none() && self.options.limit_hint.is_none();
        let selection = self
            .selection_key()
            .filter(|_| builder.is_none() && is_whole)
            .and_then(|(cache, key)| cache.collect_selection(&key))
            .map(Box::new);
        let batches = Box::new(ReadAhead::new(parts, measures, pool));
        Ok(Stage::Log { batches, builder, selection, adds: reads_all.then_some(0), most_adds })
    }

    /// Returns the filters for the reader of the checkpoint. Whole columns are built without any.
    fn filters(&self, builds: bool) -> (Option<checkpoint::KeepTuple>, Option<checkpoint::MayMatch>) {
        let predicate = &self.options.predicate;
        let rule = self.options.rule.as_ref().filter(|_| !builds);
        let keep_tuple = (predicate.asks_partitions() || rule.is_some()).then(|| -> checkpoint::KeepTuple {
            let (predicate, rule) = (Arc::clone(predicate), rule.cloned());
            Arc::new(move |tuple| {
                predicate.keep_tuple(tuple) && rule.as_ref().is_none_or(|rule| rule.may_keep(tuple))
            })
        });
        let may_match = (!predicate.is_trivial() || rule.is_some()).then(|| -> checkpoint::MayMatch {
            let (predicate, rule) = (Arc::clone(predicate), rule.cloned());
            Arc::new(move |bounds| {
                predicate.may_match_row_group(bounds)
                    && rule.as_ref().is_none_or(|rule| rule.may_match_row_group(bounds))
            })
        });
        (keep_tuple, may_match)
    }

    /// Returns the filter on statistics, if files that it drops need no other count than [`Self::count_unseen`] gives them.
    fn keep_stats(&self) -> Option<checkpoint::KeepStats> {
        let is_counted = self.options.after.is_none() && self.known_totals().is_some();
        let predicate = Arc::clone(&self.options.predicate);
        (is_counted && predicate.asks_statistics_alone())
            .then(|| -> checkpoint::KeepStats { Arc::new(move |stats| predicate.keep_stats(stats)) })
    }

    fn first_cached_batch(&self, columns: &CachedColumns) -> usize {
        let Some(start) = self.options.after else { return 0 };
        let is_over = |index: usize| {
            columns.positions(index).is_none_or(|[_, (source, row)]| !start.is_before(source, row))
        };
        let (mut first, mut end) = (0, columns.len());
        while first < end {
            let middle = first.midpoint(end);
            if is_over(middle) { first = middle + 1 } else { end = middle }
        }
        first
    }
}
