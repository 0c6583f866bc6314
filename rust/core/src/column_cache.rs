//! Columns of frequently read tables and recently used snapshots, in memory within one budget of bytes.
//!
//! An entry holds the file batches of one checkpoint, immutable and complete. Later commits are small and live with
//! their snapshot, so a new version only needs to know which rows are dead. Columns are built by the first scan that
//! reads a checkpoint to its end; of several such scans only one builds. Eviction is LRU; running scans keep evicted
//! columns until they end.
//!
//! The files that a predicate selects from a checkpoint are kept as small columns of their own, so a query that is
//! repeated does not read the log while the columns of all files do not exist, or do not fit. They share an eighth of the
//! budget, since every predicate has its own.

mod batch;
mod builder;
mod columns_file;
mod disk;
mod key;
mod selection;
mod state;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

pub use batch::{CachedBatch, CachedColumns, DamagedBatch};
pub use builder::{ColumnsBuilder, Pushed};
use disk::Begun;
pub use disk::{DiskCache, DiskCounts};
pub use key::{ColumnsKey, Decoding, columns_digest};
pub use selection::SelectionBuilder;
pub(crate) use state::Allocation;
use state::{Entry, Item, KeptBatches, Retained, Slot, State, keep_within_budget};

use crate::lock::lock;
use crate::pool;
use crate::predicate::StatsBudget;

/// Default budget of a process.
pub const DEFAULT_CACHE_BYTES: usize = 512 << 20;

/// The bytes that snapshots and ranges may have with any budget, enough for some hundred small tables.
const LEAST_BYTES: usize = 1 << 20;

/// Number of misses before a partial scan triggers a build: the first partial scan of a table may be its last.
const MISSES_TO_BUILD: u32 = 2;
/// Maximum number of tables whose misses are counted.
const COUNTED_MISSES: usize = 4096;

/// The columns of all tables of a process, and cached snapshots and ranges, within one budget of bytes. Eviction is
/// LRU over all entries.
#[derive(Debug)]
pub struct ColumnCache {
    state: Mutex<State>,
    disk: RwLock<Option<Arc<DiskCache>>>,
    /// Typed statistics count as a part of their columns once a scan has ended. Until then, and where the columns have
    /// left and a scan still has them, only this bounds them.
    stats_budget: Arc<StatsBudget>,
}

impl ColumnCache {
    /// Creates a cache of at most `budget_bytes`; zero disables it.
    #[must_use]
    pub fn new(budget_bytes: usize) -> Self {
        Self::with_least(budget_bytes, LEAST_BYTES)
    }

    /// As [`Self::new`]; snapshots and ranges may have `least_bytes` with any budget.
    pub(crate) fn with_least(budget_bytes: usize, least_bytes: usize) -> Self {
        let state = Mutex::new(State { budget_bytes, least_bytes, ..State::default() });
        Self { state, disk: RwLock::default(), stats_budget: Arc::new(StatsBudget::new(budget_bytes)) }
    }

    /// The bytes that typed statistics may have.
    pub(crate) fn stats_budget(&self) -> &Arc<StatsBudget> {
        &self.stats_budget
    }

    /// Keeps columns in files from now on. Without `disk`, in memory.
    pub fn set_disk(&self, disk: Option<Arc<DiskCache>>) {
        let before = std::mem::replace(&mut *self.disk.write().unwrap_or_else(PoisonError::into_inner), disk);
        drop(before);
    }

    /// The files of columns, if they are kept in files.
    #[must_use]
    pub fn disk(&self) -> Option<Arc<DiskCache>> {
        self.disk.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether columns are in memory or mapped. Never blocks.
    #[must_use]
    pub fn has(&self, key: &ColumnsKey) -> bool {
        matches!(self.lock().slots.get(key), Some(Slot::Ready { .. }))
    }

    /// Returns the columns if they are cached, and marks them as used. Opens their file if they are not in memory.
    #[must_use]
    pub fn get(self: &Arc<Self>, key: &ColumnsKey) -> Option<Arc<CachedColumns>> {
        let mut state = self.lock();
        let (ready, is_known) = (state.use_ready(key), state.slots.contains_key(key));
        drop(state);
        if let Some(columns) = &ready {
            self.touch_file(key, columns);
        }
        if is_known { ready } else { self.open_file(key) }
    }

    fn open_file(&self, key: &ColumnsKey) -> Option<Arc<CachedColumns>> {
        let disk = self.disk()?;
        let columns = Arc::new(pool::block_in_place(|| disk.find(key, &self.stats_budget))?);
        let bytes = columns.bytes();
        let mut state = self.lock();
        if !state.slots.contains_key(key) && bytes <= state.budget_bytes {
            state.insert(*key, Arc::clone(&columns), bytes);
        }
        keep_within_budget(state);
        Some(columns)
    }

    /// Shows other processes now and then that the file of mapped columns is in use.
    fn touch_file(self: &Arc<Self>, key: &ColumnsKey, columns: &CachedColumns) {
        let Some(touched_at) = columns.touched_at() else { return };
        let mut touched_at = lock(touched_at);
        if DiskCache::is_due(*touched_at)
            && let Some(disk) = self.disk()
        {
            *touched_at = Instant::now();
            disk.touch(self, key);
        }
    }

    /// Removes columns whose file turned out to be damaged, and the file.
    pub fn discard(&self, key: &ColumnsKey, damaged: &Arc<CachedColumns>) {
        let mut state = self.lock();
        let is_known = |columns: &Arc<CachedColumns>| Arc::ptr_eq(columns, damaged);
        let known = match state.slots.get(key) {
            Some(Slot::Ready { columns, .. }) if is_known(columns) => state.remove(&Entry::Columns(*key)),
            _ => None,
        };
        drop(state);
        // Other scans may find the damage as well; a file that was written since is left.
        if known.is_some()
            && let Some(disk) = self.disk()
        {
            pool::block_in_place(|| disk.discard(key));
        }
    }

    fn drop_mapped(&self, key: &ColumnsKey) {
        let mut state = self.lock();
        let removed = match state.slots.get(key) {
            Some(Slot::Ready { columns, .. }) if columns.is_mapped() => state.remove(&Entry::Columns(*key)),
            _ => None,
        };
        drop(state);
        drop(removed);
    }

    /// Ends a build without columns, if it is the one that keeps these batches.
    fn end_build(&self, key: &ColumnsKey, kept: &Arc<KeptBatches>) {
        let mut state = self.lock();
        let given_up = state.is_built_by(key, kept).then(|| state.remove(&Entry::Columns(*key)));
        drop(state);
        drop(given_up);
    }

    /// Ends a build in a file. The mapped columns take the place of those in memory.
    fn end_disk_build(&self, key: &ColumnsKey, kept: &Arc<KeptBatches>, mapped: Option<CachedColumns>) {
        let Some(mapped) = mapped else { return self.end_build(key, kept) };
        let (bytes, mapped) = (mapped.bytes(), Arc::new(mapped));
        let mut state = self.lock();
        // The table may have been removed meanwhile.
        if state.slots.contains_key(key) {
            let replaced = state.remove(&Entry::Columns(*key));
            if bytes <= state.budget_bytes {
                state.insert(*key, mapped, bytes);
            }
            keep_within_budget(state);
            drop(replaced);
        }
    }

    /// Claims the build of columns of about `files` files. Returns `None` if they exist, are being built, or are
    /// known not to fit. Without their number, the columns only use free memory.
    #[must_use]
    pub fn claim_build(self: &Arc<Self>, key: &ColumnsKey, files: Option<u64>) -> Option<ColumnsBuilder> {
        let mut state = self.lock();
        if state.slots.contains_key(key) {
            return None;
        }
        let may_fit = state.may_fit(key, files);
        let disk = self.disk();
        if !may_fit && disk.is_none() {
            return None;
        }
        let kept = KeptBatches::new();
        state.slots.insert(*key, Slot::Building { bytes: 0, kept: Arc::clone(&kept) });
        drop(state);
        let begun = disk.map(|disk| pool::block_in_place(|| disk.begin(key, files)));
        let build = match begun {
            Some(Begun::Build(build)) => Some(build),
            Some(Begun::No) | None if may_fit => None,
            Some(Begun::No | Begun::Elsewhere) | None => {
                self.end_build(key, &kept);
                return None;
            }
        };
        Some(ColumnsBuilder::new(Arc::clone(self), *key, files, kept, build))
    }

    /// Counts a partial scan that had to read the log. Returns true once the columns were missed often enough to
    /// build them by a separate scan.
    #[must_use]
    pub fn record_miss(&self, key: &ColumnsKey, files: Option<u64>) -> bool {
        let has_disk = self.disk().is_some();
        let mut state = self.lock();
        if state.slots.contains_key(key) || !(has_disk || state.may_fit(key, files)) {
            return false;
        }
        if state.missed.len() >= COUNTED_MISSES {
            state.missed.clear();
        }
        let missed = state.missed.entry(*key).or_default();
        *missed += 1;
        *missed >= MISSES_TO_BUILD && state.missed.remove(key).is_some()
    }

    /// Updates the size of columns by the statistics and ids built since, and evicts entries to stay within the
    /// budget. Columns that exceed the whole budget lose their statistics; if that is not enough, they are evicted alone
    /// and not built again.
    pub fn update_size(&self, key: &ColumnsKey) {
        let state = self.lock();
        let (columns, budget_bytes) = match state.slots.get(key) {
            Some(Slot::Ready { columns, .. }) => (Arc::clone(columns), state.budget_bytes),
            _ => return,
        };
        drop(state);
        let mut counted = columns.bytes();
        if counted > budget_bytes {
            columns.clear_stats();
            counted = columns.bytes();
        }
        let mut state = self.lock();
        state.resize(key, &columns, counted);
        let too_large = state.remove_too_large(key);
        let most = state.most_selected_bytes();
        let selections = state.shrink_selections(most);
        keep_within_budget(state);
        drop((too_large, selections));
    }

    /// Returns a selection that is in memory, and marks it as used. Never blocks.
    #[must_use]
    pub fn selection(&self, key: &ColumnsKey) -> Option<Arc<CachedColumns>> {
        self.lock().use_ready(key)
    }

    /// Begins to collect the files of a selection. Returns `None` if it exists or is too large, or if nothing is cached.
    #[must_use]
    pub fn collect_selection(self: &Arc<Self>, key: &ColumnsKey) -> Option<SelectionBuilder> {
        let is_wanted = self.lock().is_selection_wanted(key);
        is_wanted.then(|| SelectionBuilder::new(Arc::clone(self), *key))
    }

    /// Caches an item of a table and returns its number. Returns `None` if it does not fit, without evicting
    /// anything.
    pub(crate) fn keep(&self, table: u64, item: Item, parts: Vec<Allocation>) -> Option<u64> {
        let mut state = self.lock();
        let bytes = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.bytes));
        if bytes > state.limit_bytes() {
            return None;
        }
        let number = state.tick();
        for part in &parts {
            let (_, keepers) = state.parts.entry(part.address).or_insert((part.bytes, 0));
            *keepers += 1;
            if *keepers == 1 {
                state.used_bytes += part.bytes;
            }
        }
        state.kept.insert(number, Retained { table, item, parts, last_used: number });
        state.uses.insert(number, Entry::Retained(number));
        keep_within_budget(state);
        Some(number)
    }

    /// Replaces the size of a part of cached items that has grown.
    pub(crate) fn resize_part(&self, part: Allocation) {
        let mut state = self.lock();
        if let Some((bytes, _)) = state.parts.get_mut(&part.address) {
            let before = std::mem::replace(bytes, part.bytes);
            state.used_bytes = state.used_bytes - before + part.bytes;
            keep_within_budget(state);
        }
    }

    /// Marks an item as used; returns false if it was evicted.
    pub(crate) fn touch(&self, number: u64) -> bool {
        let mut state = self.lock();
        let now = state.tick();
        let Some(kept) = state.kept.get_mut(&number) else { return false };
        let before = std::mem::replace(&mut kept.last_used, now);
        state.mark_used(before, now);
        true
    }

    /// Removes an item.
    pub(crate) fn release(&self, number: u64) {
        let evicted = self.lock().remove(&Entry::Retained(number));
        drop(evicted);
    }

    /// Removes the columns of a table and the record of their size.
    pub fn forget_columns(&self, table: u64) {
        let evicted = self.lock().forget_columns(table);
        drop(evicted);
    }

    /// Removes all entries of a table.
    pub fn forget(&self, table: u64) {
        let mut state = self.lock();
        let mut evicted = state.forget_columns(table);
        let of_table = state.kept.iter().filter(|(_, retained)| retained.table == table);
        let numbers: Vec<u64> = of_table.map(|(number, _)| *number).collect();
        evicted.extend(numbers.into_iter().filter_map(|number| state.remove(&Entry::Retained(number))));
        drop(state);
        drop(evicted);
    }

    /// Evicts the least recently used entries until at most `bytes` are held, then what builds keep in memory. Running
    /// scans keep the columns that they read.
    pub fn shrink(&self, bytes: usize) {
        let mut state = self.lock();
        let mut evicted = state.shrink(bytes);
        evicted.extend(state.shrink_builds(bytes));
        drop(state);
        drop(evicted);
    }

    /// Evicts the least recently used snapshots and ranges, of `bytes` together if there are as many.
    pub fn shrink_logs(&self, bytes: u64) {
        let evicted = self.lock().shrink_retained(bytes);
        drop(evicted);
    }

    /// Changes the budget.
    pub fn set_budget(&self, budget_bytes: usize) {
        self.stats_budget.set(budget_bytes);
        let mut state = self.lock();
        state.set_budget(budget_bytes);
        keep_within_budget(state);
    }

    /// Returns the bytes that each table holds, by its number. A part that two tables share counts for both.
    #[must_use]
    pub fn bytes_by_table(&self) -> HashMap<u64, usize> {
        let state = self.lock();
        let mut held = HashMap::new();
        for (key, slot) in &state.slots {
            let (Slot::Building { bytes, .. } | Slot::Ready { bytes, .. }) = slot;
            *held.entry(key.table).or_default() += bytes;
        }
        let mut counted = HashSet::new();
        for retained in state.kept.values() {
            for part in retained.parts.iter().filter(|part| counted.insert((retained.table, part.address))) {
                let bytes = state.parts.get(&part.address).map_or(0, |(bytes, _)| *bytes);
                *held.entry(retained.table).or_default() += bytes;
            }
        }
        held
    }

    /// The number of bytes held.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.lock().used_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code between two changes of the state can panic.
        lock(&self.state)
    }
}

#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod tests;
