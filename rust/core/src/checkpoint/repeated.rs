//! Adds of the same file in one checkpoint, of which the last one counts.
//!
//! delta-rs before 0.17 (deltalake before 0.15.2 for Python) keeps an add for each time that a file was added, and writes
//! all of them. Its files name their writer. Checkpoints of other writers are not searched, as this reads all paths.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::parquet::file::ParquetFile;
use super::{Checkpoint, Part, ReadOptions};
use crate::Result;
use crate::actions::{DeletionVectorDescriptor, FileBatch, RowIndices};
use crate::log_path::normal_path;
use crate::partition::PartitionInterner;

/// The library for Parquet that the first delta-rs without repeated adds uses.
const FIRST_WITHOUT: u32 = 50;
/// Maximum number of keys in memory: 24 MiB. More files are searched in several passes.
const MAX_KEYS: u64 = 1 << 20;

/// Returns whether a file may be by a writer that repeats adds.
pub(super) fn is_possible(file: &ParquetFile) -> bool {
    let library = file.created_by().and_then(|name| name.strip_prefix("parquet-rs version "));
    let major = library.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    major.is_some_and(|major| major < FIRST_WITHOUT)
}

impl Checkpoint {
    /// Leaves out the repeated adds of a checkpoint in one part.
    pub(super) fn leave_out_repeated(&mut self) -> Result<()> {
        let [part] = &*self.parts else { return Ok(()) };
        let passes = part.most_adds.unwrap_or(0).div_ceil(MAX_KEYS);
        let mut repeated = Vec::new();
        for pass in 0..passes {
            let mut keys: Vec<([u64; 2], u32)> = Vec::new();
            for batch in self.batches(PartitionInterner::new::<&str>(&[]), ReadOptions::default()) {
                let batch = batch?;
                let hashes = (0..batch.len()).map(|file| (key_hash(&batch, file), batch.row[file]));
                keys.extend(hashes.filter(|([hash, _], _)| hash % passes == pass));
            }
            keys.sort_unstable();
            let same = keys.windows(2).filter(|pair| pair[0].0 == pair[1].0);
            repeated.extend(same.map(|pair| pair[0].1));
        }
        repeated.sort_unstable();
        let most_adds = part.most_adds.map(|adds| adds.saturating_sub(repeated.len() as u64));
        self.parts = [Part { repeated: repeated.into(), most_adds, ..part.clone() }].into();
        Ok(())
    }
}

fn key_hash(batch: &FileBatch, file: usize) -> [u64; 2] {
    let vector = batch.deletion_vector_at(file).map(DeletionVectorDescriptor::unique_id);
    let key = (normal_path(batch.path.value(file)), vector);
    [1, 2].map(|seed| FixedState::with_seed(seed).hash_one(&key))
}

impl Part {
    pub(super) fn without_repeated(&self, batch: FileBatch) -> FileBatch {
        if self.repeated.is_empty() {
            return batch;
        }
        let is_last = |file: &u32| self.repeated.binary_search(&batch.row[*file as usize]).is_err();
        let last: RowIndices = (0..batch.len() as u32).filter(is_last).collect();
        if last.len() == batch.len() { batch } else { batch.only(&last) }
    }
}
