//! Builds the columns of a checkpoint, batch by batch, within the budget.

use std::sync::Arc;

use super::ColumnCache;
use super::batch::{CachedBatch, CachedColumns};
use super::key::ColumnsKey;
use super::state::{Entry, Slot, TooLarge, keep_within_budget};
use crate::actions::{FileBatch, PartitionTuple};

/// Number of files whose size is taken for that of the others. Columns that far exceed the budget by it are not built.
const SAMPLED_FILES: u64 = 16_384;

/// A build of columns. Dropping it before [`ColumnsBuilder::finish`] leaves no trace.
#[derive(Debug)]
pub struct ColumnsBuilder {
    pub(super) cache: Arc<ColumnCache>,
    pub(super) key: ColumnsKey,
    pub(super) columns: CachedColumns,
    /// The expected number of files, if known.
    pub(super) files: Option<u64>,
    pub(super) files_pushed: u64,
    pub(super) bytes: usize,
    /// The partition values that were counted. A dictionary grows from batch to batch, or starts again.
    pub(super) dictionary: Vec<Arc<PartitionTuple>>,
}

impl ColumnsBuilder {
    /// Adds the next batch. Returns false if it does not fit; the builder is unusable then.
    ///
    /// Other entries are evicted only for columns that are expected to fit as a whole, by the size of the files so
    /// far.
    #[must_use]
    pub fn push(&mut self, batch: &Arc<CachedBatch>) -> bool {
        self.columns.dictionary_bytes += self.count_dictionary(&batch.files);
        self.columns.batches.push(Arc::clone(batch));
        self.files_pushed += batch.files.len() as u64;
        self.bytes += batch.bytes();
        let bytes = self.bytes + self.columns.dictionary_bytes;
        let mut state = self.cache.lock();
        let entry = Entry::Columns(self.key.clone());
        let Some(Slot::Building { bytes: counted }) = state.slots.get_mut(&self.key) else {
            // The table was removed meanwhile.
            drop(state);
            self.columns.batches = Vec::new();
            return false;
        };
        let counted = std::mem::replace(counted, bytes);
        state.used_bytes = state.used_bytes - counted + bytes;
        let budget_bytes = state.budget_bytes;
        let mut evicted = Vec::new();
        let so_far = TooLarge { files: self.files_pushed, bytes };
        let expected = self.files.map(|files| so_far.expected(files.max(self.files_pushed)));
        // Files differ in size, so the sample decides only by a clear excess.
        let is_hopeless = self.files_pushed >= SAMPLED_FILES
            && expected.is_some_and(|expected| expected / 5 * 4 > budget_bytes);
        if is_hopeless {
            state.too_large.insert(self.key.table, so_far);
        } else if state.used_bytes > budget_bytes {
            if expected.is_some_and(|expected| expected <= budget_bytes) {
                evicted = state.shrink(budget_bytes);
            } else if expected.is_some() || bytes > budget_bytes {
                state.too_large.insert(self.key.table, so_far);
            }
        }
        let has_room = !is_hopeless && state.used_bytes <= budget_bytes;
        if !has_room {
            evicted.extend(state.remove(&entry));
        }
        drop(state);
        drop(evicted);
        if !has_room {
            self.columns.batches = Vec::new();
        }
        has_room
    }

    /// Returns the bytes of partition values that no earlier batch had.
    fn count_dictionary(&mut self, files: &FileBatch) -> usize {
        let dictionary = &files.partitions.dictionary;
        let grows = self.dictionary.first().zip(dictionary.first()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        if !grows {
            self.dictionary.clear();
        }
        let more = dictionary.get(self.dictionary.len()..).unwrap_or_default();
        self.dictionary.extend(more.iter().map(Arc::clone));
        more.iter().map(|tuple| tuple.memory_bytes()).sum()
    }

    /// Publishes the columns, after the checkpoint was read to its end.
    pub fn finish(mut self) {
        let columns = Arc::new(std::mem::take(&mut self.columns));
        let bytes = columns.bytes();
        let mut state = self.cache.lock();
        if !matches!(state.slots.get(&self.key), Some(Slot::Building { .. })) {
            return;
        }
        let _ = state.remove(&Entry::Columns(self.key.clone()));
        let last_used = state.tick();
        state.used_bytes += bytes;
        state.uses.insert(last_used, Entry::Columns(self.key.clone()));
        state.slots.insert(self.key.clone(), Slot::Ready { columns, bytes, last_used });
        let too_large = state.remove_too_large(&self.key);
        keep_within_budget(state);
        drop(too_large);
    }
}

impl Drop for ColumnsBuilder {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        if matches!(state.slots.get(&self.key), Some(Slot::Building { .. })) {
            let _ = state.remove(&Entry::Columns(self.key.clone()));
        }
    }
}
