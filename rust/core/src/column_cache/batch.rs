//! A batch of files with values derived from it, and the columns of a checkpoint as batches.

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use arrow_buffer::ScalarBuffer;

use super::columns_file::{Invalid, MappedFile};
use crate::actions::{DeletionVectorDescriptor, FileBatch, RowIndices, SourceId, Totals};
use crate::file_id::{FileIds, IdScheme};
use crate::lock::lock;
use crate::predicate::{StatsBudget, StatsCache};
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
    are_mapped: bool,
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
    /// Creates a cached batch: ids are computed once, and typed statistics within their budget.
    #[must_use]
    pub fn cached(files: Arc<FileBatch>, stats: &Arc<StatsBudget>) -> Self {
        Self {
            file_bytes: files.memory_bytes(),
            files,
            stats: StatsCache::cached_within(stats),
            ids: Some(Ids::default()),
            tombstones: Mutex::default(),
        }
    }

    /// Creates a cached batch whose columns are in a mapped file.
    fn mapped(
        files: FileBatch,
        [parquet, delta]: [FileIds; 2],
        own_bytes: usize,
        stats: &Arc<StatsBudget>,
    ) -> Self {
        let ids = Ids { parquet: OnceLock::from(parquet), delta: OnceLock::from(delta), are_mapped: true };
        let files = Arc::new(files);
        Self {
            file_bytes: own_bytes,
            files,
            stats: StatsCache::cached_within(stats),
            ids: Some(ids),
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
        let mut tombstones = lock(&self.tombstones);
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
        if self.are_mapped {
            return 0;
        }
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
#[derive(Debug)]
pub struct CachedColumns(Content);

#[derive(Debug)]
enum Content {
    Memory {
        batches: Vec<Arc<CachedBatch>>,
        /// Bytes of the partition values that the batches share.
        dictionary_bytes: usize,
    },
    Mapped {
        file: MappedFile,
        /// The verified batches.
        batches: Vec<OnceLock<Arc<CachedBatch>>>,
        stats: Arc<StatsBudget>,
        touched_at: Mutex<Instant>,
    },
}

/// Raised for a batch of a file that was altered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedBatch;

impl CachedColumns {
    pub(super) fn in_memory(batches: Vec<Arc<CachedBatch>>, dictionary_bytes: usize) -> Self {
        Self(Content::Memory { batches, dictionary_bytes })
    }

    pub(super) fn mapped(file: MappedFile, stats: Arc<StatsBudget>) -> Self {
        let batches = (0..file.batches()).map(|_| OnceLock::new()).collect();
        Self(Content::Mapped { file, batches, stats, touched_at: Mutex::new(Instant::now()) })
    }

    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.0, Content::Mapped { .. })
    }

    /// The time of the last use that its file shows; `None` without a file.
    pub(super) fn touched_at(&self) -> Option<&Mutex<Instant>> {
        match &self.0 {
            Content::Memory { .. } => None,
            Content::Mapped { touched_at, .. } => Some(touched_at),
        }
    }

    /// Returns the number of batches.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Content::Memory { batches, .. } => batches.len(),
            Content::Mapped { batches, .. } => batches.len(),
        }
    }

    /// Returns whether there are no batches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a batch; `None` after the last one. A batch of a file is verified at its first use.
    pub fn batch(&self, index: usize) -> Result<Option<Arc<CachedBatch>>, DamagedBatch> {
        match &self.0 {
            Content::Memory { batches, .. } => Ok(batches.get(index).map(Arc::clone)),
            Content::Mapped { file, batches, stats, .. } => {
                let Some(known) = batches.get(index) else { return Ok(None) };
                if let Some(batch) = known.get() {
                    return Ok(Some(Arc::clone(batch)));
                }
                let read = file.batch(index).map_err(|Invalid| DamagedBatch)?;
                let batch = Arc::new(CachedBatch::mapped(read.files, read.ids, read.own_bytes, stats));
                Ok(Some(Arc::clone(known.get_or_init(|| batch))))
            }
        }
    }

    /// Returns the sizes of the files of a batch. Of a batch of a file that was not used, only they are verified.
    pub fn sizes(&self, index: usize) -> Result<ScalarBuffer<i64>, DamagedBatch> {
        match &self.0 {
            Content::Memory { batches, .. } => {
                batches.get(index).map(|batch| batch.files.size.clone()).ok_or(DamagedBatch)
            }
            Content::Mapped { file, batches, .. } => match batches.get(index).and_then(OnceLock::get) {
                Some(batch) => Ok(batch.files.size.clone()),
                None => file.sizes(index).map_err(|Invalid| DamagedBatch),
            },
        }
    }

    /// Calls `each` with the path and the deletion vector of files of a batch. Of a batch of a file that was not used,
    /// only these columns are verified.
    pub fn for_each_key(
        &self,
        index: usize,
        rows: &[u32],
        mut each: impl FnMut(u32, &str, Option<&DeletionVectorDescriptor>),
    ) -> Result<(), DamagedBatch> {
        let batch = match &self.0 {
            Content::Memory { batches, .. } => Some(batches.get(index).ok_or(DamagedBatch)?),
            Content::Mapped { batches, .. } => batches.get(index).and_then(OnceLock::get),
        };
        let keys = match (batch, &self.0) {
            (None, Content::Mapped { file, .. }) => file.keys(index).map_err(|Invalid| DamagedBatch)?,
            (Some(batch), _) => {
                let files = &batch.files;
                for row in rows {
                    let file = *row as usize;
                    each(*row, files.path.value(file), files.deletion_vector_at(file));
                }
                return Ok(());
            }
            (None, Content::Memory { .. }) => return Err(DamagedBatch),
        };
        for row in rows {
            let file = *row as usize;
            let vector = keys.deletion_vector.as_ref().and_then(|vectors| vectors[file].as_deref());
            each(*row, keys.path.value(file), vector);
        }
        Ok(())
    }

    /// Returns the positions of the first and the last file of a batch, without a use of the batch.
    #[must_use]
    pub fn positions(&self, index: usize) -> Option<[(SourceId, u32); 2]> {
        match &self.0 {
            Content::Memory { batches, .. } => {
                let files = &batches.get(index)?.files;
                Some([(files.source, *files.row.first()?), (files.source, *files.row.last()?)])
            }
            Content::Mapped { file, .. } => file.positions(index),
        }
    }

    /// Returns the number and total size of all files, dead ones included, if they are known.
    #[must_use]
    pub fn known_totals(&self) -> Option<Totals> {
        match &self.0 {
            Content::Memory { .. } => None,
            Content::Mapped { file, .. } => Some(file.totals()),
        }
    }

    pub(crate) fn files(&self) -> u64 {
        match &self.0 {
            Content::Memory { batches, .. } => batches.iter().map(|batch| batch.files.len() as u64).sum(),
            Content::Mapped { file, .. } => file.totals().files,
        }
    }

    /// Drops the typed statistics of all batches.
    pub(super) fn clear_stats(&self) {
        match &self.0 {
            Content::Memory { batches, .. } => batches.iter().for_each(|batch| batch.stats.clear()),
            Content::Mapped { batches, .. } => {
                batches.iter().filter_map(OnceLock::get).for_each(|batch| batch.stats.clear());
            }
        }
    }

    /// Returns the bytes of the columns as the log has them, in memory or in their file.
    pub(crate) fn content_bytes(&self) -> usize {
        match &self.0 {
            Content::Memory { batches, .. } => batches.iter().map(|batch| batch.file_bytes).sum(),
            Content::Mapped { file, .. } => file.content_bytes(),
        }
    }

    /// Reads a few numbers of each batch. Not to be called with the lock of the cache.
    pub(super) fn bytes(&self) -> usize {
        match &self.0 {
            Content::Memory { batches, dictionary_bytes } => {
                dictionary_bytes + batches.iter().map(|batch| batch.bytes()).sum::<usize>()
            }
            Content::Mapped { file, batches, .. } => {
                let known = batches.iter().filter_map(OnceLock::get);
                file.own_bytes() + known.map(|batch| batch.bytes()).sum::<usize>()
            }
        }
    }
}
