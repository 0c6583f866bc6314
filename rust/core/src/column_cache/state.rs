//! The entries of the cache, their sizes and their order of use.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use super::batch::{CachedBatch, CachedColumns};
use super::key::ColumnsKey;
use crate::lock::lock;

/// The part of the budget that selections may have. Whoever sends many predicates does not evict whole columns.
const SELECTIONS_SHARE: usize = 8;

/// Maximum number of selections that are known to be too large.
const KNOWN_WIDE: usize = 4096;

/// A shared part of memory, identified by its address. It counts once for all holders.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocation {
    pub(super) address: usize,
    pub(super) bytes: usize,
}

impl Allocation {
    /// Describes the value of an `Arc`, whose size the caller knows.
    pub(crate) fn shared<T: ?Sized>(shared: &Arc<T>, bytes: usize) -> Self {
        Self { address: Arc::as_ptr(shared).cast::<u8>() as usize, bytes }
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The bytes that columns may have.
    pub(super) budget_bytes: usize,
    /// The bytes that snapshots and ranges may have with any budget.
    pub(super) least_bytes: usize,
    pub(super) used_bytes: usize,
    pub(super) slots: HashMap<ColumnsKey, Slot>,
    pub(super) kept: HashMap<u64, Retained>,
    /// Shared parts by address: the bytes and the number of holders.
    pub(super) parts: HashMap<usize, (usize, usize)>,
    /// Tables whose columns do not fit.
    pub(super) too_large: HashMap<u64, TooLarge>,
    /// Bytes of selections, also of those that are collected: a part of `used_bytes`.
    pub(super) selected_bytes: usize,
    /// Selections in the order of their use: the selections among `uses`, which has many other entries.
    pub(super) selection_uses: BTreeMap<u64, ColumnsKey>,
    /// Selections that exceed what all of them may have.
    pub(super) wide: HashSet<ColumnsKey>,
    pub(super) missed: HashMap<ColumnsKey, u32>,
    /// Evictable entries, the least recently used first.
    pub(super) uses: BTreeMap<u64, Entry>,
    /// Counts uses.
    pub(super) clock: u64,
}

#[derive(Debug)]
pub(super) enum Slot {
    /// A scan is building it and holds these bytes, those of `kept`.
    Building { bytes: usize, kept: Arc<KeptBatches> },
    Ready {
        columns: Arc<CachedColumns>,
        bytes: usize,
        last_used: u64,
        /// Whether these are selected files of a checkpoint.
        is_selection: bool,
    },
}

/// The batches of a build that stay in memory; none if the build has given them up.
///
/// The cache has them, too: a build may wait for a slow client, and cannot give back anything itself meanwhile.
#[derive(Debug)]
pub(super) struct KeptBatches(Mutex<Option<Vec<Arc<CachedBatch>>>>);

impl KeptBatches {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Vec::new()))))
    }

    /// Adds a batch. Returns false if the build has given up its batches.
    #[must_use]
    pub(super) fn push(&self, batch: &Arc<CachedBatch>) -> bool {
        lock(&self.0).as_mut().map(|batches| batches.push(Arc::clone(batch))).is_some()
    }

    pub(super) fn are_there(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// Ends keeping batches.
    pub(super) fn take(&self) -> Option<Vec<Arc<CachedBatch>>> {
        lock(&self.0).take()
    }
}

/// A cached snapshot or range.
#[derive(Debug)]
pub(super) struct Retained {
    pub(super) table: u64,
    pub(super) item: Item,
    pub(super) parts: Vec<Allocation>,
    pub(super) last_used: u64,
}

pub(super) type Item = Arc<dyn Any + Send + Sync>;

#[derive(Debug, Clone)]
pub(super) enum Entry {
    Columns(ColumnsKey),
    Retained(u64),
}

/// Columns that exceeded the budget.
#[derive(Debug, Clone, Copy)]
pub(super) struct TooLarge {
    pub(super) files: u64,
    /// Their bytes, as far as they were decoded.
    pub(super) bytes: usize,
}

/// Evicted entries. Freeing gigabytes takes long, so they are dropped after the lock is released.
pub(super) type Evicted = Vec<Item>;

impl State {
    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Adds columns as the most recently used ones.
    pub(super) fn insert(&mut self, key: ColumnsKey, columns: Arc<CachedColumns>, bytes: usize) {
        self.insert_slot(key, columns, bytes, false);
    }

    /// Adds a selection as the most recently used one.
    pub(super) fn insert_selection(&mut self, key: ColumnsKey, columns: Arc<CachedColumns>, bytes: usize) {
        self.selected_bytes += bytes;
        self.insert_slot(key, columns, bytes, true);
    }

    fn insert_slot(
        &mut self,
        key: ColumnsKey,
        columns: Arc<CachedColumns>,
        bytes: usize,
        is_selection: bool,
    ) {
        let last_used = self.tick();
        self.used_bytes += bytes;
        self.uses.insert(last_used, Entry::Columns(key));
        if is_selection {
            self.selection_uses.insert(last_used, key);
        }
        self.slots.insert(key, Slot::Ready { columns, bytes, last_used, is_selection });
    }

    /// Records that a selection is too large to be collected again.
    pub(super) fn record_wide(&mut self, key: ColumnsKey) {
        if self.wide.len() >= KNOWN_WIDE {
            self.wide.clear();
        }
        self.wide.insert(key);
    }

    /// Whether a selection is neither there nor known to be too large.
    pub(super) fn is_selection_wanted(&self, key: &ColumnsKey) -> bool {
        self.budget_bytes > 0 && !self.slots.contains_key(key) && !self.wide.contains(key)
    }

    /// Changes the budget. The caller evicts.
    pub(super) fn set_budget(&mut self, budget_bytes: usize) {
        self.budget_bytes = budget_bytes;
        self.too_large.clear();
        self.wide.clear();
    }

    /// The bytes that all selections may have together.
    pub(super) fn most_selected_bytes(&self) -> usize {
        self.budget_bytes / SELECTIONS_SHARE
    }

    /// The bytes that all entries may have. Without a budget for columns, small snapshots are cached nevertheless:
    /// otherwise each request would load its table from the log.
    pub(super) fn limit_bytes(&self) -> usize {
        self.budget_bytes.max(self.least_bytes)
    }

    /// Counts bytes of a selection while it is collected, and evicts selections for them. Returns false if there is no
    /// room beside others that are collected.
    #[must_use]
    pub(super) fn reserve_selected(&mut self, bytes: usize) -> (bool, Evicted) {
        let most = self.most_selected_bytes();
        let mut evicted = self.shrink_selections(most.saturating_sub(bytes));
        let has_room = self.selected_bytes.saturating_add(bytes) <= most;
        if has_room {
            self.selected_bytes += bytes;
            self.used_bytes += bytes;
            evicted.extend(self.shrink(self.budget_bytes));
        }
        (has_room, evicted)
    }

    /// Takes bytes of [`Self::reserve_selected`] back.
    pub(super) fn release_selected(&mut self, bytes: usize) {
        self.selected_bytes -= bytes;
        self.used_bytes -= bytes;
    }

    /// Replaces the size of columns, of which more was built.
    pub(super) fn resize(&mut self, key: &ColumnsKey, columns: &Arc<CachedColumns>, counted: usize) {
        if let Some(Slot::Ready { columns: known, bytes, is_selection, .. }) = self.slots.get_mut(key)
            && Arc::ptr_eq(known, columns)
        {
            let before = std::mem::replace(bytes, counted);
            self.used_bytes = self.used_bytes - before + counted;
            if *is_selection {
                self.selected_bytes = self.selected_bytes - before + counted;
            }
        }
    }

    /// Evicts the least recently used selections until their bytes are at most `most`.
    #[must_use]
    pub(super) fn shrink_selections(&mut self, most: usize) -> Evicted {
        let mut evicted = Vec::new();
        while self.selected_bytes > most
            && let Some((_, key)) = self.selection_uses.pop_first()
        {
            evicted.extend(self.remove(&Entry::Columns(key)));
        }
        evicted
    }

    /// Marks columns that are ready as used, and returns them.
    pub(super) fn use_ready(&mut self, key: &ColumnsKey) -> Option<Arc<CachedColumns>> {
        let now = self.tick();
        let Some(Slot::Ready { columns, last_used, .. }) = self.slots.get_mut(key) else { return None };
        let (columns, before) = (Arc::clone(columns), std::mem::replace(last_used, now));
        self.mark_used(before, now);
        Some(columns)
    }

    pub(super) fn mark_used(&mut self, before: u64, now: u64) {
        if let Some(entry) = self.uses.remove(&before) {
            self.uses.insert(now, entry);
        }
        if let Some(key) = self.selection_uses.remove(&before) {
            self.selection_uses.insert(now, key);
        }
    }

    pub(super) fn may_fit(&self, key: &ColumnsKey, files: Option<u64>) -> bool {
        // A table that did not fit may fit with fewer files.
        let fits = |known: &TooLarge| files.is_some_and(|files| known.expected(files) <= self.budget_bytes);
        self.budget_bytes > 0 && self.too_large.get(&key.table).is_none_or(fits)
    }

    /// Removes columns that exceed the whole budget: evicting others would not make them fit.
    ///
    /// Those of a file are mapped again when they are used again.
    #[must_use]
    pub(super) fn remove_too_large(&mut self, key: &ColumnsKey) -> Option<Item> {
        let Some(Slot::Ready { columns, bytes, is_selection, .. }) = self.slots.get(key) else { return None };
        if *bytes <= self.budget_bytes {
            return None;
        }
        if !columns.is_mapped() && !is_selection {
            let too_large = TooLarge { files: columns.files(), bytes: *bytes };
            self.too_large.insert(key.table, too_large);
        }
        self.remove(&Entry::Columns(*key))
    }

    /// Evicts the least recently used entries. The caller drops them after it releases the lock.
    #[must_use]
    pub(super) fn shrink(&mut self, budget_bytes: usize) -> Evicted {
        let mut evicted = Vec::new();
        while self.used_bytes > budget_bytes
            && let Some((_, entry)) = self.uses.pop_first()
        {
            evicted.extend(self.remove(&entry));
        }
        evicted
    }

    /// Whether these columns are being built by the build that keeps these batches.
    pub(super) fn is_built_by(&self, key: &ColumnsKey, own: &Arc<KeptBatches>) -> bool {
        matches!(self.slots.get(key), Some(Slot::Building { kept, .. }) if Arc::ptr_eq(kept, own))
    }

    /// Takes from builds under way what they keep in memory, the largest first, until at most `bytes` are held. Their
    /// scans go on without.
    #[must_use]
    pub(super) fn shrink_builds(&mut self, bytes: usize) -> Evicted {
        let mut evicted = Evicted::new();
        while self.used_bytes > bytes {
            let builds = self.slots.values_mut().filter_map(|slot| match slot {
                Slot::Building { bytes, kept } if *bytes > 0 => Some((bytes, kept)),
                _ => None,
            });
            let Some((built, kept)) = builds.max_by_key(|(built, _)| **built) else { break };
            self.used_bytes -= std::mem::take(built);
            evicted.extend(kept.take().map(|batches| Arc::new(batches) as Item));
        }
        evicted
    }

    /// As [`Self::shrink`], of snapshots and ranges alone, until they have had `bytes`.
    #[must_use]
    pub(super) fn shrink_retained(&mut self, bytes: u64) -> Evicted {
        let before = self.used_bytes;
        let retained = |entry: &Entry| if let Entry::Retained(number) = entry { Some(*number) } else { None };
        let numbers: Vec<u64> = self.uses.values().filter_map(retained).collect();
        let mut evicted = Vec::new();
        for number in numbers {
            if (before - self.used_bytes) as u64 >= bytes {
                break;
            }
            evicted.extend(self.remove(&Entry::Retained(number)));
        }
        evicted
    }

    #[must_use]
    pub(super) fn remove(&mut self, entry: &Entry) -> Option<Item> {
        match entry {
            Entry::Columns(key) => match self.slots.remove(key)? {
                Slot::Building { bytes, kept } => {
                    self.used_bytes -= bytes;
                    kept.take().map(|batches| Arc::new(batches) as Item)
                }
                Slot::Ready { columns, bytes, last_used, is_selection } => {
                    self.used_bytes -= bytes;
                    if is_selection {
                        self.selected_bytes -= bytes;
                        self.selection_uses.remove(&last_used);
                    }
                    self.uses.remove(&last_used);
                    Some(columns)
                }
            },
            Entry::Retained(number) => {
                let retained = self.kept.remove(number)?;
                self.uses.remove(&retained.last_used);
                for part in &retained.parts {
                    if let Some((bytes, keepers)) = self.parts.get_mut(&part.address) {
                        *keepers -= 1;
                        if *keepers == 0 {
                            self.used_bytes -= *bytes;
                            self.parts.remove(&part.address);
                        }
                    }
                }
                Some(retained.item)
            }
        }
    }

    #[must_use]
    pub(super) fn forget_columns(&mut self, table: u64) -> Evicted {
        self.missed.retain(|key, _| key.table != table);
        self.wide.retain(|key| key.table != table);
        self.too_large.remove(&table);
        let keys: Vec<_> = self.slots.keys().filter(|key| key.table == table).copied().collect();
        keys.into_iter().filter_map(|key| self.remove(&Entry::Columns(key))).collect()
    }
}

impl TooLarge {
    /// Estimates the bytes of columns of `files` files.
    pub(super) fn expected(self, files: u64) -> usize {
        let bytes = self.bytes as u128 * u128::from(files) / u128::from(self.files.max(1));
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// Evicts entries beyond the budget and drops them after releasing the lock.
pub(super) fn keep_within_budget(mut state: MutexGuard<'_, State>) {
    let limit_bytes = state.limit_bytes();
    let evicted = state.shrink(limit_bytes);
    drop(state);
    drop(evicted);
}
