//! Builds the columns of a checkpoint, batch by batch: in memory within the budget, or in a file.

use std::sync::Arc;

use super::ColumnCache;
use super::batch::{CachedBatch, CachedColumns};
use super::disk::{DiskBuild, Queued};
use super::key::ColumnsKey;
use super::state::{Entry, KeptBatches, Slot, TooLarge, keep_within_budget};
use crate::actions::{FileBatch, PartitionTuple};

/// Number of files whose size estimates the size of the others. Columns far above the budget by this estimate are not
/// built.
const SAMPLED_FILES: u64 = 16_384;

/// Columns of this size are kept in memory until their file is written. Larger ones are used once the file is there.
const KEPT_WHILE_WRITTEN_BYTES: usize = 16 << 20;

/// A build of columns. Dropping it before [`ColumnsBuilder::finish`] leaves no trace.
#[derive(Debug)]
pub struct ColumnsBuilder {
    cache: Arc<ColumnCache>,
    key: ColumnsKey,
    /// Given up if the columns are in the file only, or the process needs their memory.
    kept: Arc<KeptBatches>,
    dictionary_bytes: usize,
    /// The expected number of files, if known.
    files: Option<u64>,
    files_pushed: u64,
    bytes: usize,
    /// The partition values that were counted.
    dictionary: Vec<Arc<PartitionTuple>>,
    disk: Option<DiskBuild>,
    /// Whether the writer of the file ends the build.
    is_handed_over: bool,
}

/// The result of [`ColumnsBuilder::push`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// The batch is a part of the columns.
    Yes,
    /// The writer of the file is behind. The batch can be pushed again.
    Full,
    /// The columns do not fit, or cannot be written. The builder is unusable.
    No,
}

impl ColumnsBuilder {
    pub(super) fn new(
        cache: Arc<ColumnCache>,
        key: ColumnsKey,
        files: Option<u64>,
        kept: Arc<KeptBatches>,
        disk: Option<DiskBuild>,
    ) -> Self {
        Self {
            cache,
            key,
            kept,
            dictionary_bytes: 0,
            files,
            files_pushed: 0,
            bytes: 0,
            dictionary: Vec::new(),
            disk,
            is_handed_over: false,
        }
    }

    /// Creates a batch of the columns.
    #[must_use]
    pub fn batch(&self, files: Arc<FileBatch>) -> CachedBatch {
        CachedBatch::cached(files, self.cache.stats_budget())
    }

    /// Adds the next batch. With `waits`, waits for a writer that is behind.
    ///
    /// In memory, other entries are evicted only for columns that are expected to fit as a whole, by the size of the
    /// files so far.
    #[must_use]
    pub fn push(&mut self, batch: &Arc<CachedBatch>, waits: bool) -> Pushed {
        let queued = self.disk.as_ref().map(|disk| disk.push(batch, waits));
        match queued {
            Some(Queued::Full) => return Pushed::Full,
            Some(Queued::Failed) => self.disk = None,
            Some(Queued::Yes) | None => {}
        }
        self.keep(batch);
        if self.kept.are_there() || self.disk.is_some() { Pushed::Yes } else { Pushed::No }
    }

    /// Keeps a batch in memory, if it and the batches before it may be there.
    fn keep(&mut self, batch: &Arc<CachedBatch>) {
        let dictionary_bytes = self.count_dictionary(&batch.files);
        self.dictionary_bytes += dictionary_bytes;
        self.files_pushed += batch.files.len() as u64;
        self.bytes += batch.bytes();
        let mut state = self.cache.lock();
        if !state.is_built_by(&self.key, &self.kept) {
            // The table was removed meanwhile.
            drop(state);
            self.disk = None;
            return;
        }
        // Under the lock of the state, by which other threads take them.
        if !self.kept.push(batch) {
            drop(state);
            self.dictionary = Vec::new();
            return;
        }
        let bytes = self.bytes + self.dictionary_bytes;
        let is_small = self.disk.is_none() || bytes <= KEPT_WHILE_WRITTEN_BYTES;
        let mut given_up = None;
        if !is_small {
            given_up = self.kept.take();
            self.dictionary = Vec::new();
        }
        let Some(Slot::Building { bytes: counted, .. }) = state.slots.get_mut(&self.key) else { return };
        let bytes = if is_small { bytes } else { 0 };
        let counted = std::mem::replace(counted, bytes);
        state.used_bytes = state.used_bytes - counted + bytes;
        let budget_bytes = state.budget_bytes;
        let mut evicted = Vec::new();
        let so_far = TooLarge { files: self.files_pushed, bytes };
        let expected = self.files.map(|files| so_far.expected(files.max(self.files_pushed)));
        // Files differ in size, so the sample decides only by a clear excess.
        let is_hopeless = self.files_pushed >= SAMPLED_FILES
            && expected.is_some_and(|expected| expected / 5 * 4 > budget_bytes);
        if is_hopeless && self.disk.is_none() {
            state.too_large.insert(self.key.table, so_far);
        } else if !is_hopeless && state.used_bytes > budget_bytes {
            if expected.is_some_and(|expected| expected <= budget_bytes) {
                evicted = state.shrink(budget_bytes);
            } else if (expected.is_some() || bytes > budget_bytes) && self.disk.is_none() {
                state.too_large.insert(self.key.table, so_far);
            }
        }
        let has_room = !is_hopeless && state.used_bytes <= budget_bytes;
        if !has_room {
            if self.disk.is_none() {
                evicted.extend(state.remove(&Entry::Columns(self.key)));
            } else if let Some(Slot::Building { bytes: counted, .. }) = state.slots.get_mut(&self.key) {
                let counted = std::mem::take(counted);
                state.used_bytes -= counted;
            }
            given_up = self.kept.take().or(given_up);
        }
        drop(state);
        drop((evicted, given_up));
    }

    /// Returns the bytes of partition values that no earlier batch had.
    fn count_dictionary(&mut self, files: &FileBatch) -> usize {
        if !self.kept.are_there() {
            return 0;
        }
        let dictionary = &files.partitions.dictionary;
        if !files.partitions.continues(self.dictionary.first()) {
            self.dictionary.clear();
        }
        let more = dictionary.get(self.dictionary.len()..).unwrap_or_default();
        self.dictionary.extend(more.iter().map(Arc::clone));
        more.iter().map(|tuple| tuple.memory_bytes()).sum()
    }

    /// Publishes the columns, after the checkpoint was read to its end: now if they are in memory, and once their file
    /// is complete.
    pub fn finish(mut self) {
        if let Some(batches) = self.kept.take() {
            self.publish(Arc::new(CachedColumns::in_memory(batches, self.dictionary_bytes)));
        }
        if let Some(disk) = self.disk.take() {
            self.is_handed_over = true;
            disk.finish(&self.cache, &self.key, &self.kept);
        }
    }

    fn publish(&self, columns: Arc<CachedColumns>) {
        let bytes = columns.bytes();
        let mut state = self.cache.lock();
        if !state.is_built_by(&self.key, &self.kept) {
            return;
        }
        let _ = state.remove(&Entry::Columns(self.key));
        state.insert(self.key, columns, bytes);
        let too_large = state.remove_too_large(&self.key);
        keep_within_budget(state);
        drop(too_large);
    }
}

impl Drop for ColumnsBuilder {
    fn drop(&mut self) {
        if !self.is_handed_over {
            self.cache.end_build(&self.key, &self.kept);
        }
    }
}
