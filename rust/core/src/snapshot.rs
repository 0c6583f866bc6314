//! One version of a table.
//!
//! In: a table's root, a version or a time, and perhaps an older snapshot of the table. Out: protocol,
//! metadata, the live adds of the commits after the checkpoint, and the set that tells which of the
//! checkpoint's rows are dead. The checkpoint's files are not read: [`Snapshot::checkpoint`] streams them.
//!
//! The order of files is fixed by [`Snapshot::identity`]: the commits newest first, each in its own order,
//! then the checkpoint's parts.

mod load;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use crate::actions::{FileBatch, Metadata, PartitionTuple, Protocol, RowIndices, SourceId, Totals};
use crate::checkpoint::{Checkpoint, IsDead, sizes_overflow};
use crate::column_cache::{Allocation, Decoding};
use crate::error::{Error, Result};
use crate::history::in_commit_timestamp_ms;
use crate::partition::{PartitionInterner, PartitionTimestamps};
use crate::replay::ReplaySet;
use crate::segment::{CommitEntry, LogIdentity, LogSegment};
use crate::stop::Stop;
use crate::storage::Storage;
use load::LoadRequest;

/// The source of a checkpoint's first part, whatever the version; the other parts follow, commits are before it.
pub const CHECKPOINT_SOURCE: SourceId = SourceId(1 << 31);

/// Threads that sum up a checkpoint: one sum is a fraction of a second, and other requests want to live.
const MAX_SUM_THREADS: usize = 4;

/// Which version is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeTravel {
    /// The newest one.
    Latest,
    /// A version by its number.
    Version(i64),
    /// The version that was the newest at a time, milliseconds since the epoch.
    Timestamp(i64),
}

/// One version of a table; immutable, shared by all who answer from it.
#[derive(Debug)]
pub struct Snapshot {
    storage: Storage,
    root: String,
    segment: LogSegment,
    /// Empty until the commit was read for it; `None` in it where the commit does not say it.
    timestamp: OnceLock<Option<i64>>,
    protocol: Arc<Protocol>,
    metadata: Arc<Metadata>,
    /// What `partitionValues` are keyed by, in the order of `metadata.partition_columns`.
    partition_names: Arc<[Box<str>]>,
    decoding: Decoding,
    partition_timestamps: OnceLock<Option<Arc<PartitionTimestamps>>>,
    commit_batches: Vec<(Arc<FileBatch>, RowIndices)>,
    seen: Arc<ReplaySet>,
    checkpoint: Arc<OnceLock<Checkpoint>>,
    totals: OnceLock<Totals>,
    is_lost: AtomicBool,
}

/// A snapshot to go on from.
#[derive(Debug, Clone, Copy)]
pub struct Base<'a> {
    /// It.
    pub snapshot: &'a Arc<Snapshot>,
    /// Whether the columns of its checkpoint are in memory. Once there is a newer checkpoint, an older one is worth
    /// keeping for that alone: whoever has to read it may find that log cleanup took it away.
    pub is_cached: bool,
}

impl Snapshot {
    /// Reads the version that `at` means. With `base`, an older or the same version of the same table, only
    /// what was committed since is read; the base itself is returned if nothing was.
    pub fn load(storage: &Storage, root: &str, at: TimeTravel, base: Option<Base<'_>>) -> Result<Arc<Self>> {
        Self::load_among(storage, root, at, base, &[])
    }

    /// As [`Self::load`]. Of `kin`, other snapshots of the table, the batches of equal commits are shared.
    pub(crate) fn load_among(
        storage: &Storage,
        root: &str,
        at: TimeTravel,
        base: Option<Base<'_>>,
        known: &[Arc<Self>],
    ) -> Result<Arc<Self>> {
        load::load(LoadRequest { storage, root, known }, at, base)
    }

    /// Reads the version of an identity from the very files that it names, so that the order of files is that
    /// of the snapshot that had the identity. Fails as [`LogSegment::find_identity`] if they are there no more.
    /// `kin` are other snapshots of the table, to share equal commits with.
    pub fn load_identity(
        storage: &Storage,
        root: &str,
        identity: &LogIdentity,
        known: &[Arc<Self>],
    ) -> Result<Arc<Self>> {
        load::load_identity(LoadRequest { storage, root, known }, identity)
    }

    /// All that it holds in memory, as far as it grows with the log.
    pub(crate) fn parts(self: &Arc<Self>) -> Vec<Allocation> {
        let rows: usize =
            self.commit_batches.iter().map(|(_, rows)| rows.capacity() * size_of::<u32>()).sum();
        let own = size_of::<Self>() + self.segment.memory_bytes() + self.root.len() + rows;
        let mut parts = vec![
            Allocation::shared(self, own),
            Allocation::shared(&self.metadata, self.metadata.memory_bytes()),
            Allocation::shared(&self.seen, self.seen.bytes()),
        ];
        if let Some(opened) = self.checkpoint.get() {
            parts.push(Allocation::shared(&self.checkpoint, opened.memory_bytes()));
        }
        // A dictionary grows from batch to batch: that of one has the tuples of those before, and its first one tells
        // which these are.
        let mut dictionaries: HashMap<*const PartitionTuple, &Vec<Arc<PartitionTuple>>> = HashMap::new();
        for (batch, _) in &self.commit_batches {
            let dictionary = &batch.partitions.dictionary;
            let places = dictionary.len() * size_of::<usize>();
            parts.push(Allocation::shared(batch, batch.memory_bytes() + places));
            if let Some(first) = dictionary.first() {
                let longest = dictionaries.entry(Arc::as_ptr(first)).or_insert(dictionary);
                if longest.len() < dictionary.len() {
                    *longest = dictionary;
                }
            }
        }
        for dictionary in dictionaries.values() {
            let bytes = dictionary.iter().map(|tuple| tuple.memory_bytes()).sum();
            parts.extend(dictionary.first().map(|first| Allocation::shared(first, bytes)));
        }
        parts
    }

    /// The files that a commit or a compaction file adds, if the version was rebuilt from it.
    fn batch_of(&self, entry: &CommitEntry) -> Option<&Arc<FileBatch>> {
        self.segment.commits.iter().find(|known| *known == entry)?;
        let source = source_of(entry.end, self.segment.base_version());
        self.commit_batches.iter().map(|(batch, _)| batch).find(|batch| batch.source == source)
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.segment.version
    }

    /// When it was committed, milliseconds since the epoch: in-commit where the table has that, and `None` where the
    /// commit then lacks it. May read the commit.
    pub fn timestamp_ms(&self) -> Result<Option<i64>> {
        if let Some(known) = self.timestamp.get() {
            return Ok(*known);
        }
        let found = match &self.segment.version_commit {
            Some(file) => in_commit_timestamp_ms(&self.storage, &self.root, file)?,
            None => None,
        };
        Ok(*self.timestamp.get_or_init(|| found))
    }

    /// The protocol in force.
    #[must_use]
    pub fn protocol(&self) -> &Arc<Protocol> {
        &self.protocol
    }

    /// The metadata in force.
    #[must_use]
    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.metadata
    }

    /// The files of the log that it was read from.
    #[must_use]
    pub fn segment(&self) -> &LogSegment {
        &self.segment
    }

    /// Names what fixes the order of files; part of page cursors.
    #[must_use]
    pub fn identity(&self) -> LogIdentity {
        self.segment.identity()
    }

    /// What the columns of its checkpoint are decoded by.
    #[must_use]
    pub fn decoding(&self) -> Decoding {
        self.decoding
    }

    /// Whether it was rebuilt from the files that `identity` names.
    #[must_use]
    pub fn has_identity(&self, identity: &LogIdentity) -> bool {
        self.version() == identity.version() && self.identity() == *identity
    }

    /// Whether a file of its log was missed: what is not in memory of it cannot be read any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Takes note of an error that reading its files ended in.
    pub(crate) fn record_error(&self, error: &Error) {
        if matches!(error, Error::FileNotFound { .. }) {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }

    /// The error for whoever can only go on with this very snapshot: if cleanup took the file that `error` misses,
    /// what the log still has.
    #[must_use]
    pub fn explain_missing(&self, error: Error) -> Error {
        if !matches!(error, Error::FileNotFound { .. }) {
            return error;
        }
        LogSegment::find_identity(&self.storage, &self.root, &self.identity()).err().unwrap_or(error)
    }

    /// Whether the table's change data feed is on at this version.
    #[must_use]
    pub fn change_data_feed(&self) -> bool {
        self.metadata.is_change_data_feed_on()
    }

    /// See [`Protocol::client_reader_features`].
    #[must_use]
    pub fn client_reader_features(&self) -> Vec<String> {
        self.protocol.client_reader_features(&self.metadata)
    }

    /// See [`Protocol::needs_delta_format`].
    #[must_use]
    pub fn needs_delta_format(&self) -> bool {
        self.protocol.needs_delta_format(&self.metadata)
    }

    /// The adds of the commits after the checkpoint, newest first, and which of them are live.
    #[must_use]
    pub fn commit_batches(&self) -> &[(Arc<FileBatch>, RowIndices)] {
        &self.commit_batches
    }

    /// What the commits have decided about: rows of the checkpoint that are in it are dead.
    #[must_use]
    pub fn seen(&self) -> &Arc<ReplaySet> {
        &self.seen
    }

    /// The live files of a batch of the checkpoint.
    #[must_use]
    pub fn live_rows(&self, batch: &FileBatch) -> RowIndices {
        self.seen.live(batch)
    }

    /// The checkpoint, opened at the first call: its file actions are read by [`Checkpoint::batches`].
    pub fn checkpoint(&self) -> Result<Option<&Checkpoint>> {
        let Some(files) = &self.segment.checkpoint else { return Ok(None) };
        if let Some(opened) = self.checkpoint.get() {
            return Ok(Some(opened));
        }
        let opened = Checkpoint::open(&self.storage, &self.root, files);
        let opened = opened.inspect_err(|error| self.record_error(error))?;
        Ok(Some(self.checkpoint.get_or_init(|| opened)))
    }

    /// Whether a batch with this source may belong to the version. Of the checkpoint's parts only the first is
    /// known to be there.
    #[must_use]
    pub fn has_source(&self, source: SourceId) -> bool {
        match source.0.checked_sub(CHECKPOINT_SOURCE.0) {
            Some(_) => self.segment.checkpoint.is_some(),
            None => source >= source_of(self.version(), self.segment.base_version()),
        }
    }

    /// Codes partition values as this version names them.
    #[must_use]
    pub fn interner(&self) -> PartitionInterner {
        PartitionInterner::new(&self.partition_names)
    }

    /// Which of its partition columns are timestamps; `None` where none is.
    pub(crate) fn partition_timestamps(&self) -> Option<&Arc<PartitionTimestamps>> {
        self.partition_timestamps.get_or_init(|| PartitionTimestamps::of(&self.metadata)).as_ref()
    }

    /// Count and size of the files, if they are known without reading the checkpoint.
    #[must_use]
    pub fn known_totals(&self) -> Option<Totals> {
        self.totals.get().copied()
    }

    /// Keeps what a scan of all files has found.
    pub fn set_totals(&self, totals: Totals) {
        self.totals.get_or_init(|| totals);
    }

    /// Count and size of the files. Reads paths and sizes of the checkpoint if nobody knows them yet.
    pub fn totals(&self) -> Result<Totals> {
        self.totals_until(&Stop::default())
    }

    /// The same, until `stop`.
    pub fn totals_until(&self, stop: &Stop) -> Result<Totals> {
        if let Some(known) = self.known_totals() {
            return Ok(known);
        }
        let mut totals = live_totals(&self.commit_batches);
        if let Some(checkpoint) = self.checkpoint()? {
            let seen = |path: &str, vector: Option<&_>| self.seen.contains(path, vector);
            let is_dead: Option<IsDead<'_>> = if self.seen.is_empty() { None } else { Some(&seen) };
            let found = checkpoint
                .totals(is_dead, self.sum_threads(), stop)
                .inspect_err(|error| self.record_error(error))?;
            totals = totals.plus(found).ok_or_else(|| sizes_overflow("checkpoint"))?;
        }
        Ok(*self.totals.get_or_init(|| totals))
    }

    /// Threads that read a bucket mostly wait for it, however many processors there are.
    fn sum_threads(&self) -> usize {
        let processors = available_parallelism().map_or(1, std::num::NonZero::get);
        if self.storage.is_remote() { MAX_SUM_THREADS } else { processors.min(MAX_SUM_THREADS) }
    }
}

fn live_totals(batches: &[(Arc<FileBatch>, RowIndices)]) -> Totals {
    let mut totals = Totals::default();
    for (batch, rows) in batches {
        totals.add(batch, rows);
    }
    totals
}

/// A commit's place in the order of files, counted from the checkpoint: it stays what it is while newer commits
/// come.
fn source_of(commit: i64, base_version: i64) -> SourceId {
    SourceId(CHECKPOINT_SOURCE.0 - (commit - base_version) as u32)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
