//! One version of a table.
//!
//! Takes a table's root, a version or a timestamp, and optionally an older snapshot of the table. Holds the protocol,
//! the metadata, the live adds of the commits after the checkpoint, and the set of keys that supersede rows of the
//! checkpoint. The files of the checkpoint are not read: [`Snapshot::checkpoint`] streams them.
//!
//! [`Snapshot::identity`] fixes the order of files: the commits from the newest, each in its own order, then the parts of
//! the checkpoint.

mod load;
mod rule_totals;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use crate::actions::{FileBatch, Metadata, PartitionTuple, Protocol, RowIndices, SourceId, Totals};
use crate::checkpoint::{Checkpoint, IsDead, ReadOptions, Sums, sizes_overflow};
use crate::column_cache::{Allocation, ColumnCache, Decoding, columns_digest};
use crate::error::{Error, Result};
use crate::history::{InCommitTimestamps, in_commit_timestamp_ms};
use crate::log_faults::LogFault;
use crate::partition::{PartitionInterner, PartitionTimestamps};
use crate::predicate::{BoundRule, RuleVerdicts};
use crate::replay::ReplaySet;
use crate::schema::PartitionNames;
use crate::segment::{CommitEntry, LogIdentity, LogSegment, commit_mark, read_timestamps_ms};
use crate::stop::Stop;
use crate::storage::Storage;
use load::LoadRequest;
pub(crate) use load::list_again;
use rule_totals::SnapshotId;

pub(crate) use rule_totals::sum as sum_within;
pub use rule_totals::{forget_rule_totals, rule_totals_bytes};

/// The source id of a checkpoint's first part in every version. Other parts follow; commits are before it.
pub const CHECKPOINT_SOURCE: SourceId = SourceId(1 << 31);

/// Threads that sum up a checkpoint. One sum takes a fraction of a second and must leave processors to other
/// requests.
const MAX_SUM_THREADS: usize = 4;
/// Size of a checkpoint, of some 50,000 files, whose paths are read in milliseconds.
const SMALL_BYTES: u64 = 4 << 20;

/// The requested version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeTravel {
    /// The latest version.
    Latest,
    /// A version by number.
    Version(i64),
    /// The version that was the latest at a timestamp, in milliseconds since the epoch.
    Timestamp(i64),
}

/// One version of a table. Immutable and shared.
#[derive(Debug)]
pub struct Snapshot {
    storage: Storage,
    root: String,
    segment: LogSegment,
    /// Empty until the commit has been read or the log been listed for it; contains `None` if the commit lacks an in-commit timestamp.
    timestamp: OnceLock<Option<i64>>,
    protocol: Arc<Protocol>,
    metadata: Arc<Metadata>,
    partition_names: PartitionNames,
    decoding: Decoding,
    identity: OnceLock<LogIdentity>,
    columns_digest: OnceLock<[u8; 32]>,
    partition_timestamps: OnceLock<Option<Arc<PartitionTimestamps>>>,
    commit_batches: Vec<(Arc<FileBatch>, RowIndices)>,
    seen: Arc<ReplaySet>,
    checkpoint: Arc<OnceLock<Checkpoint>>,
    totals: OnceLock<Totals>,
    checksum_totals: Option<Totals>,
    /// The number of files at the checkpoint's version, by its `.crc`.
    base_files: Option<u64>,
    id: SnapshotId,
    is_lost: AtomicBool,
    is_counted_by_sizes: AtomicBool,
}

/// A snapshot to load later versions from.
#[derive(Debug, Clone, Copy)]
pub struct Base<'a> {
    /// The snapshot.
    pub snapshot: &'a Arc<Snapshot>,
    /// Whether the columns of its checkpoint are cached. Only then it is worth keeping once there is a newer
    /// checkpoint, since log cleanup may delete the older one.
    pub is_cached: bool,
}

impl Snapshot {
    /// Loads a version. With `base`, an older or the same version of the same table, reads only later commits, and
    /// returns the base itself if there are none.
    pub fn load(storage: &Storage, root: &str, at: TimeTravel, base: Option<Base<'_>>) -> Result<Arc<Self>> {
        Self::load_among(storage, root, at, base, &[])
    }

    /// As [`Self::load`], and shares the batches of equal commits with `known`, other snapshots of the table.
    pub(crate) fn load_among(
        storage: &Storage,
        root: &str,
        at: TimeTravel,
        base: Option<Base<'_>>,
        known: &[Arc<Self>],
    ) -> Result<Arc<Self>> {
        load::load(LoadRequest { storage, root, known }, at, base)
    }

    /// Loads the version of an identity from the log files that it names, in the same order of files. Fails as
    /// [`LogSegment::find_identity`] if they no longer exist. Shares equal commits with `known`, other snapshots of
    /// the table.
    pub fn load_identity(
        storage: &Storage,
        root: &str,
        identity: &LogIdentity,
        known: &[Arc<Self>],
    ) -> Result<Arc<Self>> {
        load::load_identity(LoadRequest { storage, root, known }, identity)
    }

    /// The memory that the snapshot holds, as far as it grows with the log.
    pub(crate) fn parts(self: &Arc<Self>) -> Vec<Allocation> {
        let rows: usize =
            self.commit_batches.iter().map(|(_, rows)| rows.capacity() * size_of::<u32>()).sum();
        let own_bytes = size_of::<Self>() + self.segment.memory_bytes() + self.root.len() + rows;
        let mut parts = vec![
            Allocation::shared(self, own_bytes),
            Allocation::shared(&self.metadata, self.metadata.memory_bytes()),
            Allocation::shared(&self.seen, self.seen.bytes()),
        ];
        parts.push(self.footers());
        // A dictionary grows from batch to batch and contains the tuples of earlier ones; the first tuple identifies
        // it.
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

    /// The footers of the checkpoint, if it was opened.
    fn footers(&self) -> Allocation {
        Allocation::shared(&self.checkpoint, self.checkpoint.get().map_or(0, Checkpoint::memory_bytes))
    }

    /// Counts the footers of a checkpoint that was opened after the snapshot was cached.
    pub(crate) fn count_footers(&self, cache: &ColumnCache) {
        cache.resize_part(self.footers());
    }

    /// The adds of a commit, if the version was loaded from it.
    fn batch_of(&self, entry: &CommitEntry) -> Option<&Arc<FileBatch>> {
        self.segment.commits.iter().find(|known| *known == entry)?;
        let source = source_of(entry.version, self.segment.base_version());
        self.commit_batches.iter().map(|(batch, _)| batch).find(|batch| batch.source == source)
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.segment.version
    }

    /// The commit timestamp in milliseconds since the epoch: in-commit if the table has it, and then `None` if the
    /// commit lacks it. May read the commit or list the log.
    pub fn timestamp_ms(&self) -> Result<Option<i64>> {
        if let Some(known) = self.timestamp.get() {
            return Ok(*known);
        }
        let (storage, root, version) = (&self.storage, &self.root, self.version());
        let read = match &self.segment.version_commit {
            Some(file) if self.has_in_commit_timestamp() => in_commit_timestamp_ms(storage, root, file),
            Some(file) => read_timestamps_ms(storage, root, (version, file), version)
                .map(|times| times.first().map(|(_, timestamp_ms)| *timestamp_ms)),
            None => Ok(None),
        };
        let timestamp_ms = read.map_err(|error| self.read_error(error))?;
        Ok(*self.timestamp.get_or_init(|| timestamp_ms))
    }

    /// Returns whether the timestamp of the version is in its commit.
    pub(crate) fn has_in_commit_timestamp(&self) -> bool {
        InCommitTimestamps::of(&self.protocol, &self.metadata)
            .is_some_and(|in_commit| in_commit.covers(self.version()))
    }

    /// The protocol of this version.
    #[must_use]
    pub fn protocol(&self) -> &Arc<Protocol> {
        &self.protocol
    }

    /// The metadata of this version.
    #[must_use]
    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.metadata
    }

    /// The log files of this version.
    #[must_use]
    pub fn segment(&self) -> &LogSegment {
        &self.segment
    }

    /// Identifies the order of files; part of page tokens.
    #[must_use]
    pub fn identity(&self) -> &LogIdentity {
        self.identity.get_or_init(|| self.segment.identity())
    }

    /// Identifies the columns of the checkpoint, in every process; `None` without a checkpoint.
    #[must_use]
    pub fn columns_digest(&self) -> Option<[u8; 32]> {
        let checkpoint = self.segment.checkpoint.as_ref()?;
        let compute = || {
            let [kind, endpoint, bucket] = self.storage.location();
            columns_digest(&[kind, endpoint, bucket, &self.root], checkpoint, &self.decoding)
        };
        Some(*self.columns_digest.get_or_init(compute))
    }

    /// Returns a text that distinguishes the commit of the version from one that was written in its place. `None` if
    /// cleanup deleted it, or a catalog ratifies commits.
    #[must_use]
    pub fn commit_mark(&self) -> Option<String> {
        self.segment.version_commit.as_ref().and_then(|commit| commit_mark(&self.storage, commit))
    }

    /// Returns whether the version was loaded from the files that `identity` names.
    #[must_use]
    pub fn has_identity(&self, identity: &LogIdentity) -> bool {
        self.version() == identity.version() && self.identity() == identity
    }

    /// Returns whether a log file of this version is missing or was replaced: data that is not in memory cannot be read.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Records an error of a read of its files, and returns it. The next request reads the log again, without a
    /// checkpoint that is damaged. A file that cleanup deleted since it was listed is [`Error::FileReplaced`]; one that
    /// the log still names stays [`Error::FileNotFound`].
    pub(crate) fn read_error(&self, error: Error) -> Error {
        let error = match error {
            Error::FileNotFound { file } if self.is_cleaned_up() => Error::FileReplaced { file },
            error => error,
        };
        self.record_error(&error);
        error
    }

    fn is_cleaned_up(&self) -> bool {
        LogSegment::listed(&self.storage, &self.root, self.identity()).is_ok_and(|listed| listed.is_none())
    }

    fn record_error(&self, error: &Error) {
        let parts = self.checkpoint.get().into_iter().flat_map(Checkpoint::names);
        let actions = self.checkpoint.get().map_or(0, Checkpoint::actions);
        let is_left_out = self.segment.leave_out(&self.storage, &self.root, error, parts, actions);
        if is_left_out || error.is_outdated_listing() {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }

    /// The numbers of adds that the checkpoint has by other files and by its own metadata.
    fn stated_adds(&self) -> impl Iterator<Item = (&str, u64)> {
        let of_checkpoint = self.checkpoint.get().and_then(Checkpoint::stated_adds);
        let of_base = self.segment.base_checksum.as_ref().map_or("", |checksum| &checksum.name);
        [
            ("_last_checkpoint", self.segment.stated_adds),
            ("its metadata", of_checkpoint),
            (of_base, self.base_files),
        ]
        .into_iter()
        .filter_map(|(source, stated)| Some((source, stated?)))
    }

    /// Returns [`Error::CorruptLog`] if a checkpoint of `adds` has other adds than another file or its own metadata states.
    pub(crate) fn check_adds(&self, adds: u64) -> Result<()> {
        let Some(file) = self.segment.checkpoint_file() else { return Ok(()) };
        match self.stated_adds().find(|(_, stated)| *stated != adds) {
            Some((source, stated)) => {
                Err(Error::corrupt(&file.name, format!("it has {adds} adds, {source} states {stated}")))
            }
            None => Ok(()),
        }
    }

    /// As [`Self::check_adds`] of a checkpoint of `most` adds at most, which also costs answers of some files nothing: it
    /// has too few of them for another file, or for the files that the checksum file counts.
    pub(crate) fn check_most_adds(&self, most: u64) -> Result<()> {
        let Some(file) = self.segment.checkpoint_file() else { return Ok(()) };
        let newer: u64 = self.commit_batches.iter().map(|(_, rows)| rows.len() as u64).sum();
        let of_version = self.segment.checksum.as_ref().zip(self.checksum_totals);
        let of_version =
            of_version.map(|(checksum, totals)| (checksum.name.as_str(), totals.files.saturating_sub(newer)));
        match self.stated_adds().chain(of_version).find(|(_, stated)| *stated > most) {
            Some((source, stated)) => {
                let reason = format!("it has at most {most} adds, {source} requires {stated}");
                Err(Error::corrupt(&file.name, reason))
            }
            None => Ok(()),
        }
    }

    /// Replaces the error of a missing or replaced file by one with the available versions, for callers that need
    /// exactly this snapshot.
    #[must_use]
    pub fn explain_missing(&self, error: Error) -> Error {
        if !error.is_outdated_listing() {
            return error;
        }
        LogSegment::find_identity(&self.storage, &self.root, self.identity()).err().unwrap_or(error)
    }

    /// Whether the change data feed is enabled at this version.
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

    /// The adds of the commits after the checkpoint, newest first, with their live rows.
    #[must_use]
    pub fn commit_batches(&self) -> &[(Arc<FileBatch>, RowIndices)] {
        &self.commit_batches
    }

    /// The keys of the commits' actions. Rows of the checkpoint with these keys are dead.
    #[must_use]
    pub fn seen(&self) -> &Arc<ReplaySet> {
        &self.seen
    }

    /// The live rows of a batch of the checkpoint.
    #[must_use]
    pub fn live_rows(&self, batch: &FileBatch) -> RowIndices {
        self.seen.live(batch)
    }

    /// The checkpoint, opened at the first call. [`Checkpoint::batches`] reads its file actions.
    pub fn checkpoint(&self) -> Result<Option<&Checkpoint>> {
        let Some(files) = &self.segment.checkpoint else { return Ok(None) };
        let opened = if let Some(opened) = self.checkpoint.get() {
            opened
        } else {
            let opened = Checkpoint::open(&self.storage, &self.root, files);
            let opened = opened.map_err(|error| self.read_error(error))?;
            self.checkpoint.get_or_init(|| opened)
        };
        if let Some(most) = opened.most_adds() {
            self.check_most_adds(most).map_err(|error| self.read_error(error))?;
        }
        Ok(Some(opened))
    }

    /// Returns whether a batch with this source may belong to the version. Only the first part of a checkpoint is
    /// known to exist.
    #[must_use]
    pub fn has_source(&self, source: SourceId) -> bool {
        match source.0.checked_sub(CHECKPOINT_SOURCE.0) {
            Some(_) => self.segment.checkpoint.is_some(),
            None => source >= source_of(self.version(), self.segment.base_version()),
        }
    }

    /// Returns a dictionary for partition values by this version's column names.
    #[must_use]
    pub fn interner(&self) -> PartitionInterner {
        PartitionInterner::of(self.partition_names.clone())
    }

    /// The partition columns of timestamp types; `None` if there are none.
    pub(crate) fn partition_timestamps(&self) -> Option<&Arc<PartitionTimestamps>> {
        self.partition_timestamps.get_or_init(|| PartitionTimestamps::of(&self.metadata)).as_ref()
    }

    /// The number and total size of the files, if they are known without reading the checkpoint.
    #[must_use]
    pub fn known_totals(&self) -> Option<Totals> {
        self.totals.get().copied()
    }

    /// Sets the totals that a full scan computed.
    pub fn set_totals(&self, totals: Totals) {
        self.totals.get_or_init(|| totals);
    }

    /// Returns the number and total size of the files. Reads the sizes of the checkpoint, and paths as far as
    /// necessary, if they are not known.
    pub fn totals(&self) -> Result<Totals> {
        self.totals_until(&Stop::default())
    }

    /// As [`Self::totals`], but ends with an error at `stop`.
    pub fn totals_until(&self, stop: &Stop) -> Result<Totals> {
        if let Some(known) = self.known_totals() {
            return Ok(known);
        }
        let mut totals = live_totals(&self.commit_batches);
        if let Some(checkpoint) = self.checkpoint()? {
            let of_checkpoint =
                self.checkpoint_totals(checkpoint, stop).map_err(|error| self.read_error(error))?;
            totals = totals.plus(of_checkpoint).ok_or_else(|| sizes_overflow("checkpoint"))?;
        }
        Ok(*self.totals.get_or_init(|| totals))
    }

    /// Compares the totals with the checksum file. Returns [`Error::Contradiction`] if they differ, for which the
    /// log is read again by the next request.
    pub(crate) fn check_totals(&self) -> Result<()> {
        match self.known_totals().zip(self.checksum_totals) {
            Some((counted, stated)) if counted != stated => Err(self.contradiction(stated, counted)),
            _ => Ok(()),
        }
    }

    /// Compares the totals within a rule with `counted`, the files of a whole answer. As [`Self::check_totals`].
    pub(crate) fn check_counted(&self, rule: Option<&Arc<BoundRule>>, counted: Totals) -> Result<()> {
        match (self.known_totals_within(rule), rule) {
            (Some(stated), _) if stated != counted => return Err(self.contradiction(stated, counted)),
            (Some(_), _) => {}
            (None, None) => self.set_totals(counted),
            (None, Some(rule)) => self.set_totals_within(rule, counted),
        }
        Ok(())
    }

    /// The next request reads the log again: without the checkpoint if it contradicts the checksum file, and with all
    /// paths if it was counted by sizes.
    fn contradiction(&self, stated: Totals, counted: Totals) -> Error {
        self.is_lost.store(true, Ordering::Relaxed);
        LogFault::Contradiction.count();
        let checksum = self.segment.checksum.as_ref().filter(|_| self.checksum_totals == Some(stated));
        let source = checksum.map_or("the header of the answer", |checksum| &checksum.name);
        if let (Some(_), Some(file)) = (checksum, self.segment.checkpoint_file()) {
            let reason = format!("with it the version has {counted}, {source} counts {stated}");
            self.record_error(&Error::corrupt(&file.name, reason));
        } else if self.is_counted_by_sizes.load(Ordering::Relaxed) {
            self.segment.count_by_paths(&self.storage, &self.root);
        }
        let version = self.version();
        Error::Contradiction { detail: format!("version {version} has {counted}, {source} counts {stated}") }
    }

    /// As [`Self::known_totals`], of the files within a rule.
    #[must_use]
    pub fn known_totals_within(&self, rule: Option<&Arc<BoundRule>>) -> Option<Totals> {
        let Some(rule) = rule else { return self.known_totals() };
        rule_totals::known(self.id, rule.key())
    }

    /// Sets the totals of the files within a rule, as computed by a scan of all files.
    pub fn set_totals_within(&self, rule: &BoundRule, totals: Totals) {
        rule_totals::set(self.id, rule.key(), totals);
    }

    /// As [`Self::totals_until`], of the files within a rule. Reads sizes and partition values of the checkpoint, and
    /// the paths of its files, if the totals are not known.
    pub fn totals_within(&self, rule: Option<&Arc<BoundRule>>, stop: &Stop) -> Result<Totals> {
        let Some(rule) = rule else { return self.totals_until(stop) };
        if let Some(known) = self.known_totals_within(Some(rule)) {
            return Ok(known);
        }
        let mut verdicts = RuleVerdicts::default();
        let mut totals = self.commit_totals_within(rule, &mut verdicts)?;
        if let Some(checkpoint) = self.checkpoint()? {
            let filter = Arc::clone(rule);
            let options = ReadOptions {
                keep_tuple: Some(Arc::new(move |tuple| filter.may_keep(tuple))),
                by_slice: true,
                ..ReadOptions::default()
            };
            let readers: Vec<_> = checkpoint.readers(self.interner(), options).collect();
            let of_checkpoint =
                rule_totals::sum(readers.into_iter(), self.sum_threads(), |reader, verdicts| {
                    let mut totals = Totals::default();
                    for batch in reader {
                        stop.check()?;
                        let batch = batch.map_err(|error| self.read_error(error))?;
                        let rows = rule.select(&batch.partitions, self.live_rows(&batch), verdicts)?;
                        totals.add(&batch, &rows);
                    }
                    Ok(totals)
                })?;
            totals = totals.plus(of_checkpoint).ok_or_else(|| sizes_overflow("checkpoint"))?;
        }
        self.set_totals_within(rule, totals);
        Ok(totals)
    }

    /// Sums up the live files of the commits that are within a rule.
    pub(crate) fn commit_totals_within(
        &self,
        rule: &BoundRule,
        verdicts: &mut RuleVerdicts,
    ) -> Result<Totals> {
        let mut totals = Totals::default();
        for (batch, live) in &self.commit_batches {
            totals.add(batch, &rule.select(&batch.partitions, live.clone(), verdicts)?);
        }
        Ok(totals)
    }

    /// Sums up the live files of the checkpoint.
    ///
    /// The sizes that the commits state select the adds whose paths are read. They are right if this finds every file
    /// that the commits only remove: otherwise a writer stated a wrong size, and all paths are read. So are those of a small
    /// checkpoint, and of one whose files were added again with other sizes, which some writers do without a remove.
    fn checkpoint_totals(&self, checkpoint: &Checkpoint, stop: &Stop) -> Result<Totals> {
        let threads = self.sum_threads();
        let checked = |sums: Sums| self.check_adds(sums.adds).map(|()| sums.live);
        if self.seen.is_empty() {
            return checked(checkpoint.totals(None, threads, stop)?);
        }
        let sizes = self.counted_sizes(checkpoint.size_bytes() > SMALL_BYTES);
        if let Some(sizes) = sizes {
            let is_seen: Vec<AtomicBool> = (0..self.seen.len()).map(|_| AtomicBool::new(false)).collect();
            let is_dead: IsDead<'_> = &|path, vector| {
                let position = self.seen.position(path, vector);
                position.inspect(|position| is_seen[*position].store(true, Ordering::Relaxed)).is_some()
            };
            let sums = checkpoint.totals_without(is_dead, &sizes, threads, stop)?;
            if self.seen.older_files().all(|position| is_seen[position].load(Ordering::Relaxed)) {
                self.set_counted_by_sizes();
                return checked(sums);
            }
        }
        checked(checkpoint.totals(Some(&|path, vector| self.seen.contains(path, vector)), threads, stop)?)
    }

    /// Returns the sizes that select the files of the checkpoint whose paths count: see [`Self::checkpoint_totals`].
    pub(crate) fn counted_sizes(&self, is_large: bool) -> Option<Vec<i64>> {
        let is_by_sizes = is_large && !self.segment.is_counted_by_paths(&self.storage, &self.root);
        if is_by_sizes { self.seen.sizes() } else { None }
    }

    /// Records that the totals are by sizes.
    pub(crate) fn set_counted_by_sizes(&self) {
        self.is_counted_by_sizes.store(true, Ordering::Relaxed);
    }

    /// Threads that read a bucket mostly wait, so their number does not depend on the processors.
    pub(crate) fn sum_threads(&self) -> usize {
        let processors = available_parallelism().map_or(1, std::num::NonZero::get);
        if self.storage.is_remote() { MAX_SUM_THREADS } else { processors.min(MAX_SUM_THREADS) }
    }
}

pub(crate) fn live_totals(batches: &[(Arc<FileBatch>, RowIndices)]) -> Totals {
    let mut totals = Totals::default();
    for (batch, rows) in batches {
        totals.add(batch, rows);
    }
    totals
}

/// The position of a commit in the order of files, counted from the checkpoint. It does not change with newer
/// commits.
fn source_of(commit: i64, base_version: i64) -> SourceId {
    SourceId(CHECKPOINT_SOURCE.0 - (commit - base_version) as u32)
}

#[cfg(test)]
pub(crate) mod damage;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod sums;
#[cfg(test)]
mod tests;
