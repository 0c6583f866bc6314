//! A batch of files with values derived from it, and the columns of a checkpoint as batches.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::actions::{FileBatch, RowIndices};
use crate::file_id::{FileIds, IdScheme};
use crate::predicate::StatsCache;
use crate::replay::ReplaySet;

/// A batch, and what scans have asked of it.
#[derive(Debug)]
pub struct CachedBatch {
    /// The files.
    pub files: Arc<FileBatch>,
    /// Built as predicates need them.
    pub stats: StatsCache,
    /// Counted once: it is the deletion vectors' number that it takes to count.
    pub(super) file_bytes: usize,
    ids: Option<Ids>,
    tombstones: Mutex<Tombstones>,
}

/// The files' ids by either scheme, made when they are first asked for.
#[derive(Debug, Default)]
struct Ids {
    parquet: OnceLock<FileIds>,
    delta: OnceLock<FileIds>,
}

/// Which files of a batch are dead in the version that asked last.
#[derive(Debug, Default)]
struct Tombstones {
    /// By this set, while there is one: versions are told apart by what their commits have decided about.
    seen: Weak<ReplaySet>,
    /// Ascending.
    dead: RowIndices,
}

impl CachedBatch {
    /// A batch that stays: typed statistics and ids are made once.
    #[must_use]
    pub fn cached(files: Arc<FileBatch>) -> Self {
        Self {
            file_bytes: files.memory_bytes(),
            files,
            stats: StatsCache::cached(),
            ids: Some(Ids::default()),
            tombstones: Mutex::default(),
        }
    }

    /// A batch that passes by.
    #[must_use]
    pub fn transient(files: Arc<FileBatch>) -> Self {
        Self { files, stats: StatsCache::transient(), file_bytes: 0, ids: None, tombstones: Mutex::default() }
    }

    /// The files that nothing in `decided` speaks of. For the same set as before they are not looked up again.
    #[must_use]
    pub fn live_rows(&self, seen: &Arc<ReplaySet>) -> RowIndices {
        let mut tombstones = self.tombstones.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::ptr::eq(tombstones.seen.as_ptr(), Arc::as_ptr(seen)) {
            let dead = seen.dead(&self.files);
            *tombstones = Tombstones { seen: Arc::downgrade(seen), dead };
        }
        all_but(&tombstones.dead, self.files.len() as u32)
    }

    /// The ids of all files, for an answer that holds `wanted` of them. `None` where to make them all costs more
    /// than these few, and in a batch that passes by.
    #[must_use]
    pub fn ids(&self, scheme: IdScheme, wanted: usize) -> Option<&FileIds> {
        let ids = self.ids.as_ref()?.of(scheme);
        if wanted * 8 < self.files.len() {
            return ids.get();
        }
        Some(ids.get_or_init(|| FileIds::of(scheme, &self.files.path)))
    }

    /// What a batch that stays holds, without the partition values that it shares with others.
    pub(super) fn bytes(&self) -> usize {
        self.file_bytes + self.stats.memory_bytes() + self.ids.as_ref().map_or(0, Ids::memory_bytes)
    }
}

impl Ids {
    fn of(&self, scheme: IdScheme) -> &OnceLock<FileIds> {
        match scheme {
            IdScheme::Parquet => &self.parquet,
            IdScheme::Delta => &self.delta,
        }
    }

    fn memory_bytes(&self) -> usize {
        [&self.parquet, &self.delta].into_iter().filter_map(OnceLock::get).map(FileIds::memory_bytes).sum()
    }
}

/// The rows before `end` that are not in `dead`, which ascends.
fn all_but(dead: &[u32], end: u32) -> RowIndices {
    let mut rows = Vec::with_capacity(end as usize);
    let mut next = 0;
    for row in dead {
        rows.extend(next..*row);
        next = row + 1;
    }
    rows.extend(next..end);
    rows
}

/// All batches of a checkpoint, in order.
#[derive(Debug, Default)]
pub struct CachedColumns {
    /// The batches.
    pub batches: Vec<Arc<CachedBatch>>,
    /// The partition values that the batches share.
    pub(super) dictionary_bytes: usize,
}

impl CachedColumns {
    /// Reads a few numbers of each batch. Not for a thread that holds the cache's state.
    pub(super) fn bytes(&self) -> usize {
        self.dictionary_bytes + self.batches.iter().map(|batch| batch.bytes()).sum::<usize>()
    }
}
