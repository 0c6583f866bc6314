//! The versions of a range in order, each as a [`ChangeBatch`].

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::groups::Groups;
use super::removed::RemovedFiles;
use super::{ChangeKind, Changes, InForce, RangeCommit};
use crate::actions::{FileBatch, Metadata, Protocol, RowIndices, SourceId};
use crate::commit::{Columns, CommitFile};
use crate::error::{Error, Result};
use crate::history::{InCommitTimestamps, no_in_commit_timestamp};
use crate::partition::PartitionInterner;
use crate::schema::{PartitionNames, check_partition_columns};
use crate::segment::read_timestamps_ms;
use crate::stop::Stop;

/// The files of one kind in the answer of a version.
#[derive(Debug)]
pub struct ChangedFiles {
    /// All files of the kind in the commit. `source` is the index of the version in the range. The
    /// `modification_time_ms` of a remove is its `deletionTimestamp`.
    pub batch: FileBatch,
    /// The rows that belong to the answer.
    pub rows: RowIndices,
    /// Rows whose values of the current partition columns are unknown, shown as null in the batch. Predicates must
    /// keep them. The log lacks the values, or the file was written with other partition columns.
    pub without_partition_values: RowIndices,
}

impl ChangedFiles {
    fn of(batch: FileBatch, rows: RowIndices) -> Self {
        let fields = batch.remove_fields.as_ref();
        let partitions = &batch.partitions;
        let lacks = |row: &u32| {
            let row = *row as usize;
            fields.is_some_and(|fields| !fields[row].partition_values)
                || partitions.dictionary[partitions.keys[row] as usize].logged_json.is_some()
        };
        let without_partition_values = rows.iter().copied().filter(lacks).collect();
        Self { batch, rows, without_partition_values }
    }

    /// Returns whether the size and, in a partitioned table, the partition values of all `rows` are known.
    fn is_complete(&self, is_unpartitioned: bool) -> bool {
        let Some(fields) = &self.batch.remove_fields else { return true };
        let mut fields = self.rows.iter().map(|row| fields[*row as usize]);
        fields.all(|fields| fields.size && (fields.partition_values || is_unpartitioned))
    }
}

/// The changes of one version, in the order of the fields. Either cdc files or the others are present.
#[derive(Debug)]
pub struct ChangeBatch {
    /// The version.
    pub version: i64,
    /// The commit timestamp in milliseconds since the epoch; `None` if the commit lacks its required in-commit
    /// timestamp.
    pub timestamp_ms: Option<i64>,
    /// The protocol of the commit; `None` at the first version of the range, which heads the answer.
    pub protocol: Option<Arc<Protocol>>,
    /// The metadata of the commit; `None` at the first version of the range, which heads the answer.
    pub metadata: Option<Arc<Metadata>>,
    /// The metadata in force, which defines the partition columns of the files.
    pub metadata_in_force: Arc<Metadata>,
    /// Files of change data.
    pub cdc: ChangedFiles,
    /// Added files.
    pub adds: ChangedFiles,
    /// Removed files. An update by deletion vector is a remove and an add of one path.
    pub removes: ChangedFiles,
}

impl ChangeBatch {
    /// Returns the number of files in the answer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cdc.rows.len() + self.adds.rows.len() + self.removes.rows.len()
    }

    /// Returns whether the version changed no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads the versions of a range in order. An error ends it.
#[derive(Debug)]
pub struct ChangeBatches {
    kind: ChangeKind,
    commits: Arc<[RangeCommit]>,
    /// Contents that have been read, by index in `commits`.
    ready: std::vec::IntoIter<Result<Bytes>>,
    groups: Groups,
    surveyed: BTreeMap<i64, Bytes>,
    next: usize,
    starting_version: i64,
    effective: Effective,
    /// Timestamps by modification times that the range was opened without.
    later_timestamps: BTreeMap<i64, i64>,
    /// Completes removes, if they must have a size and partition values.
    removed: Option<RemovedFiles>,
}

/// The protocol and metadata in force at the current version.
#[derive(Debug)]
struct Effective {
    protocol: Arc<Protocol>,
    metadata: Arc<Metadata>,
    in_commit: Option<InCommitTimestamps>,
    interner: PartitionInterner,
}

impl Effective {
    fn new(InForce { protocol, metadata }: InForce) -> Result<Self> {
        check_partition_columns(&metadata)?;
        let interner = PartitionInterner::of(PartitionNames::of(&metadata)).keeping_logged();
        Ok(Self { in_commit: InCommitTimestamps::of(&protocol, &metadata), interner, protocol, metadata })
    }
}

impl ChangeBatches {
    pub(super) fn new(changes: &Changes, from_version: i64) -> Result<Self> {
        let next =
            from_version.checked_sub(changes.starting_version()).and_then(|next| usize::try_from(next).ok());
        let next = next.filter(|next| *next < changes.commits.len()).ok_or(Error::InvalidCursor)?;
        let in_force = changes.in_force_at(from_version)?;
        let surveyed: BTreeMap<_, _> =
            changes.kept.range(from_version..).map(|(version, bytes)| (*version, bytes.clone())).collect();
        // A survey keeps the first commits of the range without a gap.
        let first_unread = next + surveyed.len();
        Ok(Self {
            kind: changes.kind,
            commits: Arc::clone(&changes.commits),
            ready: Vec::new().into_iter(),
            groups: changes.groups(first_unread),
            surveyed,
            next,
            starting_version: changes.starting_version(),
            effective: Effective::new(in_force)?,
            later_timestamps: BTreeMap::new(),
            removed: None,
        })
    }

    /// Completes removes without size or partition values from the adds that they remove. A version with a remove
    /// whose add is no longer in the log is [`Error::IncompleteRemove`]. The search for adds ends at `stop`.
    #[must_use]
    pub fn with_complete_removes(mut self, stop: &Stop) -> Self {
        let Groups { storage, root, .. } = &self.groups;
        let commits = Arc::clone(&self.commits);
        self.removed =
            Some(RemovedFiles::new(storage.clone(), root.clone(), self.kind, commits, stop.clone()));
        self
    }

    /// Returns the next version, also without changes; `None` after the last one.
    pub fn next_version(&mut self) -> Result<Option<ChangeBatch>> {
        let commits = Arc::clone(&self.commits);
        let Some(commit) = commits.get(self.next) else { return Ok(None) };
        let batch = self.content(commit.version).and_then(|bytes| self.read(commit, &bytes));
        let batch = batch.map_err(|error| self.groups.explain_missing(error, self.starting_version));
        self.next = if batch.is_ok() { self.next + 1 } else { self.commits.len() };
        batch.map(Some)
    }

    fn content(&mut self, version: i64) -> Result<Bytes> {
        if let Some(bytes) = self.surveyed.remove(&version) {
            return Ok(bytes);
        }
        if let Some(ready) = self.ready.next() {
            return ready;
        }
        let (_, contents) = self.groups.next().ok_or_else(|| Error::Internal {
            detail: "a range of versions ended before its last commit".into(),
        })?;
        self.ready = contents.into_iter();
        self.ready.next().unwrap_or_else(|| Err(Error::Internal { detail: "an empty batch of reads".into() }))
    }

    fn read(&mut self, commit: &RangeCommit, bytes: &Bytes) -> Result<ChangeBatch> {
        let mut file = CommitFile::parse(&commit.file.name, bytes)?;
        let is_head = commit.version == self.starting_version;
        let has_catalog = self.groups.storage.catalog().is_some();
        let protocol = file.protocol.take().filter(|_| !is_head);
        let protocol = protocol.map(|protocol| protocol.checked(&file.name, has_catalog));
        let protocol = protocol.transpose()?.map(Arc::new);
        let metadata = file.metadata.take().filter(|_| !is_head).map(Arc::new);
        if protocol.is_some() || metadata.is_some() {
            self.effective = Effective::new(InForce {
                protocol: Arc::clone(protocol.as_ref().unwrap_or(&self.effective.protocol)),
                metadata: Arc::clone(metadata.as_ref().unwrap_or(&self.effective.metadata)),
            })?;
        }
        let is_feed = self.kind == ChangeKind::ChangeDataFeed;
        if is_feed && !self.effective.metadata.is_change_data_feed_on() {
            return Err(Error::ChangeDataFeedDisabled(commit.version));
        }
        let source = SourceId((commit.version - self.starting_version) as u32);
        let has_files = !(is_feed && file.hides_files_from_feed());
        if let Some(removed) = &mut self.removed {
            removed.complete(self.next, &file)?;
        }
        let timestamp_ms = self.timestamp_ms(commit, &file)?;
        let interner = &mut self.effective.interner;
        let data_changes = |columns: &Columns| -> RowIndices {
            let is_chosen = |index: &usize| has_files && columns.is_data_change(*index);
            (0..columns.len()).filter(is_chosen).map(|index| index as u32).collect()
        };
        let cdc_rows = if is_feed { (0..file.cdc.len() as u32).collect() } else { RowIndices::new() };
        let add_rows = data_changes(&file.adds);
        if !interner.log_names().is_empty() {
            for (files, rows) in [(&file.cdc, &cdc_rows), (&file.adds, &add_rows)] {
                files.check_partition_values(&file.name, rows.iter().map(|row| *row as usize))?;
            }
        }
        let cdc = ChangedFiles::of(file.cdc.batch(source, &file.name, interner)?, cdc_rows);
        let adds = ChangedFiles::of(file.adds.batch(source, &file.name, interner)?, add_rows);
        let removed_facts = |path: &str| self.removed.as_ref()?.get(path);
        let removes = file.removes.removes(source, &file.name, interner, removed_facts)?;
        let removes = ChangedFiles::of(removes, data_changes(&file.removes));
        if let Some(removed) = &mut self.removed {
            if !removes.is_complete(interner.log_names().is_empty()) {
                return Err(Error::IncompleteRemove(commit.version));
            }
            removed.pass(&file);
        }
        let batch = ChangeBatch {
            version: commit.version,
            cdc,
            adds,
            removes,
            timestamp_ms,
            metadata_in_force: Arc::clone(&self.effective.metadata),
            protocol,
            metadata,
        };
        // The timestamp is a column of the change data feed, but optional in lines of files.
        if is_feed && batch.timestamp_ms.is_none() && !batch.is_empty() {
            return Err(no_in_commit_timestamp(&commit.file.name));
        }
        Ok(batch)
    }

    fn timestamp_ms(&mut self, commit: &RangeCommit, file: &CommitFile) -> Result<Option<i64>> {
        if self.effective.in_commit.is_some_and(|in_commit| in_commit.covers(commit.version)) {
            return Ok(file.in_commit_timestamp_ms);
        }
        if commit.timestamp_ms.is_some() {
            return Ok(commit.timestamp_ms);
        }
        // In-commit timestamps are in force at the start of the range and end within it.
        if !self.later_timestamps.contains_key(&commit.version) {
            let Groups { storage, root, .. } = &self.groups;
            let last = self.commits.last().map_or(commit.version, |last| last.version);
            let times = read_timestamps_ms(storage, root, (commit.version, &commit.file), last)?;
            self.later_timestamps = times.into_iter().collect();
        }
        Ok(self.later_timestamps.get(&commit.version).copied())
    }
}

impl Iterator for ChangeBatches {
    type Item = Result<ChangeBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_version().transpose()
    }
}
