//! Collects the files that a predicate selects from a checkpoint while a scan reads them.

use std::collections::HashMap;
use std::sync::Arc;

use super::ColumnCache;
use super::batch::{CachedBatch, CachedColumns};
use super::key::ColumnsKey;
use super::state::{Entry, keep_within_budget};
use crate::actions::{FileBatch, PartitionTuple};

/// What an entry costs beside its batches, and a batch beside its files.
const OVERHEAD_BYTES: usize = 1 << 10;

/// Selected files of a checkpoint, dead ones included: an older or a newer version has the same checkpoint and other
/// dead files. Its bytes count from the first batch on. Dropping it before [`SelectionBuilder::finish`] leaves no trace.
#[derive(Debug)]
pub struct SelectionBuilder {
    cache: Arc<ColumnCache>,
    key: ColumnsKey,
    /// The bytes that the cache counts.
    reserved_bytes: usize,
    batches: Vec<FileBatch>,
    tuples: Tuples,
}

/// The partition values of the selected files, in a separate dictionary: the dictionary of the scan has the values of
/// all files.
#[derive(Debug, Default)]
struct Tuples {
    dictionary: Vec<Arc<PartitionTuple>>,
    /// The positions in `dictionary`, by the position in the dictionary of the scan.
    positions: HashMap<u32, u32>,
    /// The dictionary of the scan.
    of_scan: Option<Arc<Vec<Arc<PartitionTuple>>>>,
}

impl SelectionBuilder {
    pub(super) fn new(cache: Arc<ColumnCache>, key: ColumnsKey) -> Self {
        Self { cache, key, reserved_bytes: 0, batches: Vec::new(), tuples: Tuples::default() }
    }

    /// Adds the next files. Returns false if there is no room for them; the builder is unusable then.
    #[must_use]
    pub fn push(&mut self, files: &FileBatch) -> bool {
        if files.is_empty() {
            return true;
        }
        let rows: Vec<u32> = (0..files.len() as u32).collect();
        let mut selected = files.only(&rows);
        selected.prepare_for_cache();
        let (keys, tuple_bytes) = self.tuples.translate(files);
        selected.partitions.keys = keys.into();
        // That of the scan is another one for each batch that adds tuples to it, and counts nowhere.
        selected.partitions.dictionary = Arc::default();
        let bytes = selected.memory_bytes() + tuple_bytes + OVERHEAD_BYTES;
        self.batches.push(selected);
        let mut state = self.cache.lock();
        if self.reserved_bytes + bytes > state.most_selected_bytes() {
            // It would evict all others, and so would the next query with this predicate.
            state.record_wide(self.key);
            return false;
        }
        let (has_room, evicted) = state.reserve_selected(bytes);
        drop(state);
        drop(evicted);
        if has_room {
            self.reserved_bytes += bytes;
        }
        has_room
    }

    /// Keeps the selection, after the checkpoint was read to its end.
    pub fn finish(mut self) {
        // One dictionary for all batches: verdicts on partition values are kept from batch to batch.
        let dictionary = Arc::new(std::mem::take(&mut self.tuples.dictionary));
        let batches: Vec<_> = std::mem::take(&mut self.batches)
            .into_iter()
            .map(|mut files| {
                files.partitions.dictionary = Arc::clone(&dictionary);
                Arc::new(CachedBatch::cached(Arc::new(files), self.cache.stats_budget()))
            })
            .collect();
        let tuple_bytes: usize = dictionary.iter().map(|tuple| tuple.memory_bytes()).sum();
        let beside_bytes = tuple_bytes + OVERHEAD_BYTES * (batches.len() + 1);
        let columns = CachedColumns::in_memory(batches, beside_bytes);
        let bytes = columns.bytes();
        let mut state = self.cache.lock();
        state.release_selected(std::mem::take(&mut self.reserved_bytes));
        let (has_room, evicted) = state.reserve_selected(bytes);
        let mut replaced = None;
        if has_room {
            state.release_selected(bytes);
            // Another scan may have collected the same files meanwhile.
            replaced = state.remove(&Entry::Columns(self.key));
            state.insert_selection(self.key, Arc::new(columns), bytes);
        }
        keep_within_budget(state);
        drop((evicted, replaced));
    }
}

impl Drop for SelectionBuilder {
    fn drop(&mut self) {
        if self.reserved_bytes > 0 {
            self.cache.lock().release_selected(self.reserved_bytes);
        }
    }
}

impl Tuples {
    /// Returns the keys of the files in the own dictionary, and the bytes of partition values that are new in it.
    fn translate(&mut self, files: &FileBatch) -> (Vec<u32>, usize) {
        let of_scan = &files.partitions.dictionary;
        if !files.partitions.continues(self.of_scan.as_ref().and_then(|known| known.first())) {
            self.positions.clear();
        }
        self.of_scan = Some(Arc::clone(of_scan));
        let mut bytes = 0;
        let keys = files.partitions.keys.iter().map(|key| {
            *self.positions.entry(*key).or_insert_with(|| {
                // A copy: a dictionary is identified by the address of its first tuple.
                let tuple = PartitionTuple::clone(&of_scan[*key as usize]);
                bytes += tuple.memory_bytes();
                self.dictionary.push(Arc::new(tuple));
                self.dictionary.len() as u32 - 1
            })
        });
        (keys.collect(), bytes)
    }
}
