//! A batch of files with values derived from it, and the columns of a checkpoint as batches.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::actions::{FileBatch, RowIndices};
use crate::file_id::{FileIds, IdScheme};
use crate::predicate::StatsCache;
use crate::replay::ReplaySet;

/// A batch of files with values derived by scans.
#[derive(Debug)]
pub struct CachedBatch {
    /// The files.
    pub files: Arc<FileBatch>,
    /// Typed statistics, built when predicates need them.
    pub stats: StatsCache,
    /// Computed once, since the sum over deletion vectors is slow.
    pub(super) file_bytes: usize,
    ids: Option<Ids>,
    tombstones: Mutex<Tombstones>,
}

/// The ids of the files in either scheme, computed when needed.
#[derive(Debug, Default)]
struct Ids {
    parquet: OnceLock<FileIds>,
    delta: OnceLock<FileIds>,
}

/// The dead files of a batch in the version of the last request.
#[derive(Debug, Default)]
struct Tombstones {
    /// The set that identifies the version, while it exists.
    seen: Weak<ReplaySet>,
    /// Ascending.
    dead: RowIndices,
}

impl CachedBatch {
    /// Creates a cached batch: typed statistics and ids are computed once.
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

    /// Creates a batch that is used once.
    #[must_use]
    pub fn transient(files: Arc<FileBatch>) -> Self {
        Self { files, stats: StatsCache::transient(), file_bytes: 0, ids: None, tombstones: Mutex::default() }
    }

    /// Returns the rows whose keys are not in `seen`. The result for the last set is cached.
    #[must_use]
    pub fn live_rows(&self, seen: &Arc<ReplaySet>) -> RowIndices {
        let mut tombstones = self.tombstones.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::ptr::eq(tombstones.seen.as_ptr(), Arc::as_ptr(seen)) {
            let dead = seen.dead(&self.files);
            *tombstones = Tombstones { seen: Arc::downgrade(seen), dead };
        }
        all_but(&tombstones.dead, self.files.len() as u32)
    }

    /// Returns the ids of all files, for an answer with `wanted` of them. Returns `None` for a transient batch, and
    /// if computing all ids costs more than the wanted ones.
    #[must_use]
    pub fn ids(&self, scheme: IdScheme, wanted: usize) -> Option<&FileIds> {
        let ids = self.ids.as_ref()?.of(scheme);
        if wanted * 8 < self.files.len() {
            return ids.get();
        }
        Some(ids.get_or_init(|| FileIds::of(scheme, &self.files.path)))
    }

    /// The bytes of a cached batch without shared partition values.
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

/// Returns the rows before `end` that are not in `dead`, which is ascending.
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
    /// Bytes of the partition values that the batches share.
    pub(super) dictionary_bytes: usize,
}

impl CachedColumns {
    /// Reads a few numbers of each batch. Not to be called with the lock of the cache.
    pub(super) fn bytes(&self) -> usize {
        self.dictionary_bytes + self.batches.iter().map(|batch| batch.bytes()).sum::<usize>()
    }
}
