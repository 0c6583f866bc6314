//! Loads a snapshot: one search for log files, one batch of reads, one pass over the commits.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::rule_totals::SnapshotId;
use super::{Base, Snapshot, TimeTravel, live_totals, source_of};
use crate::actions::{FileBatch, Metadata, Protocol, RowIndices};
use crate::checkpoint::Checkpoint;
use crate::column_cache::Decoding;
use crate::commit::{CommitFile, transaction_id};
use crate::crc::Checksum;
use crate::error::{Error, Result};
use crate::history::{History, InCommitTimestamps};
use crate::log_faults::LogFault;
use crate::log_path::commit_name;
use crate::partition::PartitionInterner;
use crate::replay::ReplaySet;
use crate::schema::{PartitionNames, check_partition_columns};
use crate::segment::{CommitEntry, LogIdentity, LogSegment};
use crate::storage::Storage;

/// A continued snapshot keeps its checkpoint and appends commits. After this many commits it is loaded from the
/// newest checkpoint, which bounds its memory and its replay.
const MAX_CONTINUED_COMMITS: usize = 64;
/// The same limit for keys of commits.
const MAX_CONTINUED_KEYS: usize = 200_000;

/// The same limit for the age of its checkpoint, by the timestamps of the store: cleanup deletes old checkpoints
/// once newer ones exist.
const MAX_CONTINUED_MS: i64 = 24 * 3600 * 1000;

/// How often a log is listed again when a file is not the listed one.
const MAX_LISTED_AGAIN: usize = 3;

/// The location of a table, and its cached snapshots.
#[derive(Clone, Copy)]
pub(super) struct LoadRequest<'a> {
    pub(super) storage: &'a Storage,
    pub(super) root: &'a str,
    /// Other snapshots of the table.
    pub(super) known: &'a [Arc<Snapshot>],
}

pub(super) fn load(
    request: LoadRequest<'_>,
    at: TimeTravel,
    base: Option<Base<'_>>,
) -> Result<Arc<Snapshot>> {
    list_again(try_load(request, at, base), || try_load(request, at, None))
}

/// Repeats a read whose files are not those that were listed: cleanup may delete one meanwhile, and a table may be
/// replaced. A file that each listing names and that is always missing stays [`Error::FileNotFound`]; otherwise the log
/// changes faster than it is read: [`Error::FileReplaced`].
pub(crate) fn list_again<T>(first: Result<T>, mut again: impl FnMut() -> Result<T>) -> Result<T> {
    let mut read = first;
    let mut missing = Vec::new();
    for _ in 0..MAX_LISTED_AGAIN {
        match &read {
            Err(Error::FileNotFound { file }) => missing.push(file.clone()),
            Err(Error::FileReplaced { .. }) => {}
            _ => return read,
        }
        read = again();
    }
    let is_always_missing =
        |file: &String| missing.len() == MAX_LISTED_AGAIN && missing.iter().all(|found| found == file);
    read.map_err(|error| match error {
        Error::FileNotFound { file } if !is_always_missing(&file) => Error::FileReplaced { file },
        error => error,
    })
}

fn try_load(request: LoadRequest<'_>, at: TimeTravel, base: Option<Base<'_>>) -> Result<Arc<Snapshot>> {
    let LoadRequest { storage, root, .. } = request;
    let version = match at {
        TimeTravel::Latest => None,
        TimeTravel::Version(version) => Some(version),
        TimeTravel::Timestamp(timestamp_ms) => {
            let latest = load(request, TimeTravel::Latest, base)?;
            let history = History::read(storage, root, &latest.protocol, &latest.metadata)?;
            let version = history.version_as_of(timestamp_ms)?;
            if version == latest.version() {
                return Ok(latest);
            }
            Some(version)
        }
    };
    let segment = LogSegment::find(storage, root, version, base.map(|base| &base.snapshot.segment))?;
    let Some(Base { snapshot: previous, is_cached }) =
        base.filter(|base| continues(&segment, &base.snapshot.segment))
    else {
        return from_start(request, segment);
    };
    let is_outlived = segment.has_newer_checkpoint;
    if previous.version() == segment.version && (is_cached || !is_outlived) {
        return Ok(Arc::clone(previous));
    }
    if is_outlived && (!is_cached || is_grown(previous) || is_aged(&segment)) {
        return from_start(request, LogSegment::find(storage, root, version, None)?);
    }
    let loader = Loader { storage, root, known: request.known, segment: segment.clone() };
    match loader.load(Some(previous))? {
        Some(advanced) => Ok(Arc::new(advanced)),
        None => from_start(request, segment),
    }
}

pub(super) fn load_identity(request: LoadRequest<'_>, identity: &LogIdentity) -> Result<Arc<Snapshot>> {
    let LoadRequest { storage, root, .. } = request;
    let load = || {
        let snapshot = from_segment(request, LogSegment::find_identity(storage, root, identity)?)?;
        let is_other = snapshot.segment.committed_ms.is_some() && !snapshot.has_identity(identity);
        if is_other { Err(Error::InvalidCursor) } else { Ok(snapshot) }
    };
    list_again(load(), load)
}

/// Loads a segment, or another one of its version if its checkpoint is damaged.
fn from_start(request: LoadRequest<'_>, mut segment: LogSegment) -> Result<Arc<Snapshot>> {
    let LoadRequest { storage, root, .. } = request;
    loop {
        let (version, checkpoint) = (segment.version, segment.checkpoint.clone());
        let loaded = from_segment(request, segment);
        let Err(error @ (Error::CorruptLog { .. } | Error::FileNotFound { .. })) = loaded else {
            return loaded;
        };
        let find = || LogSegment::find(storage, root, Some(version), None);
        let Some(checkpoint) = checkpoint else { return Err(error) };
        segment = find()?;
        if segment.checkpoint.as_ref() == Some(&checkpoint)
            && segment.leave_out_missing(storage, root, &error)
        {
            segment = find()?;
        }
        // Nothing else rebuilds the version.
        if segment.checkpoint == Some(checkpoint) {
            return Err(error);
        }
    }
}

fn from_segment(request: LoadRequest<'_>, segment: LogSegment) -> Result<Arc<Snapshot>> {
    let LoadRequest { storage, root, known } = request;
    let loaded = Loader { storage, root, known, segment }.load(None)?;
    loaded
        .map(Arc::new)
        .ok_or_else(|| Error::Internal { detail: "a snapshot did not continue itself".into() })
}

fn is_grown(snapshot: &Snapshot) -> bool {
    snapshot.segment.commits.len() >= MAX_CONTINUED_COMMITS || snapshot.seen.len() >= MAX_CONTINUED_KEYS
}

fn is_aged(segment: &LogSegment) -> bool {
    let base =
        segment.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files).map(|file| file.modified_ms).min();
    // Without a checkpoint the segment contains commits that cleanup deletes as well.
    let base_ms = base.or(segment.modified_ms.first().map(|(_, modified_ms)| *modified_ms));
    let newest_ms = segment.modified_ms.last().map(|(_, modified_ms)| *modified_ms);
    newest_ms.zip(base_ms).is_some_and(|(newest, base)| newest.saturating_sub(base) > MAX_CONTINUED_MS)
}

fn continues(segment: &LogSegment, previous: &LogSegment) -> bool {
    segment.version >= previous.version
        && segment.checkpoint == previous.checkpoint
        && segment.commits.ends_with(&previous.commits)
}

/// A commit and its content.
type Commit<'a> = (&'a CommitEntry, CommitFile);

struct Loader<'a> {
    storage: &'a Storage,
    root: &'a str,
    known: &'a [Arc<Snapshot>],
    segment: LogSegment,
}

impl Loader<'_> {
    /// Loads the snapshot, as a continuation of `previous` if given. Returns `None` if new metadata renames
    /// partition columns, which makes the existing batches unusable.
    fn load(self, previous: Option<&Snapshot>) -> Result<Option<Snapshot>> {
        let known = previous.map_or(0, |previous| previous.segment.commits.len());
        let (commits, checksum, base_checksum) =
            self.read(self.segment.commits.len() - known, previous.is_none())?;
        let mut seen = ReplaySet::default();
        let live: Vec<RowIndices> =
            commits.iter().map(|(_, commit)| seen.take_commit(&commit.adds, &commit.removes)).collect();
        if previous.is_none() && !self.segment.left_out.is_empty() {
            let actions = |version: i64| {
                let older = commits.iter().filter(|(entry, _)| entry.version <= version);
                let actions = older.clone().map(|(_, commit)| u64::from(commit.actions)).sum();
                let has_adds = older.clone().any(|(_, commit)| !commit.adds.is_empty());
                if has_adds { actions } else { 0 }
            };
            let has_older_files = seen.older_files().next().is_some();
            self.segment.check_replaced(self.storage, self.root, actions, has_older_files)?;
        }

        let checkpoint = previous.map_or_else(Arc::default, |previous| Arc::clone(&previous.checkpoint));
        let (protocol, metadata) = self.heads(&commits, previous, checksum.as_ref(), &checkpoint)?;
        let timestamp = self.timestamp(&protocol, &metadata, &commits, checksum.as_ref());
        let has_catalog = self.storage.catalog().is_some();
        let newest =
            commits.first().filter(|(entry, _)| has_catalog && entry.version == self.segment.version);
        let committed_ms = newest.and_then(|(_, commit)| commit.in_commit_timestamp_ms);
        if !previous.is_some_and(|previous| Arc::ptr_eq(&previous.metadata, &metadata)) {
            check_partition_columns(&metadata)?;
        }
        let partition_names = PartitionNames::of(&metadata);
        if previous.is_some_and(|previous| previous.partition_names != partition_names) {
            return Ok(None);
        }
        let mut commit_batches = self.batches(&commits, live, &partition_names)?;
        let seen = match previous {
            None => Arc::new(seen),
            Some(previous) => {
                commit_batches.extend(still_live(&previous.commit_batches, &seen));
                previous.seen_with(&seen)
            }
        };
        let metadata = self.shared_metadata(metadata);
        let decoding = previous
            .filter(|previous| Arc::ptr_eq(&previous.metadata, &metadata))
            .map_or_else(|| Decoding::of(&metadata), |previous| previous.decoding);
        let checksum = checksum.filter(|checksum| checksum.agrees(&protocol, &metadata));
        let base_files = match previous {
            Some(previous) => previous.base_files,
            None => base_checksum
                .filter(|base| base.metadata.as_ref().is_none_or(|of_base| of_base.id == metadata.id))
                .map(|base| base.totals.files),
        };
        let mut checksum_totals = checksum.map(|checksum| checksum.totals);
        let totals = match checksum_totals {
            _ if self.segment.checkpoint.is_none() => {
                let counted = live_totals(&commit_batches);
                // Version 0 is one file, which was read whole: nothing of it can be missing.
                if self.segment.version == 0 && checksum_totals.is_some_and(|stated| stated != counted) {
                    LogFault::Checksum.count();
                    checksum_totals = None;
                }
                OnceLock::from(counted)
            }
            Some(totals) => OnceLock::from(totals),
            None => OnceLock::new(),
        };
        Ok(Some(Snapshot {
            storage: self.storage.clone(),
            root: self.root.to_owned(),
            segment: LogSegment { committed_ms, ..self.segment },
            timestamp,
            protocol,
            metadata,
            partition_names,
            decoding,
            identity: OnceLock::new(),
            columns_digest: OnceLock::new(),
            partition_timestamps: OnceLock::new(),
            commit_batches,
            seen,
            checkpoint,
            totals,
            checksum_totals,
            base_files,
            id: SnapshotId::next(),
            is_lost: AtomicBool::new(false),
            is_counted_by_sizes: AtomicBool::new(false),
        }))
    }

    /// The newest `count` commits and the version's checksum, in one batch of reads. Without the latter, and with
    /// `reads_base`, the checksum of the checkpoint's version.
    fn read(
        &self,
        count: usize,
        reads_base: bool,
    ) -> Result<(Vec<Commit<'_>>, Option<Checksum>, Option<Checksum>)> {
        let entries = &self.segment.commits[..count];
        let checksum_file = self.segment.checksum.as_ref();
        let base = self.segment.base_checksum.as_ref().filter(|_| reads_base && checksum_file.is_none());
        let files: Vec<_> =
            entries.iter().map(|entry| &entry.file).chain(checksum_file).chain(base).collect();
        let mut contents = self.storage.read_log_files(self.root, &files);
        let checksum = contents.get(entries.len()).and_then(|read| read.as_ref().ok());
        let base_checksum = base.and(checksum).and_then(|bytes| Checksum::parse(bytes));
        let checksum = checksum_file.and(checksum);
        let newest = contents.first().filter(|_| !entries.is_empty()).and_then(|read| read.as_ref().ok());
        let checksum = checksum.and_then(|bytes| {
            let parsed = Checksum::parse(bytes).filter(|parsed| self.is_current(parsed, newest));
            if parsed.is_none() {
                LogFault::Checksum.count();
            }
            parsed
        });
        contents.truncate(entries.len());
        let commits = entries.iter().zip(contents);
        let commits =
            commits.map(|(entry, bytes)| Ok((entry, CommitFile::parse(&entry.file.name, &bytes?)?)));
        Ok((commits.collect::<Result<Vec<_>>>()?, checksum, base_checksum))
    }

    /// Returns whether a checksum file describes the commit of its version: a log may have been cut back and continued
    /// by a writer without such files. `newest` is the commit, if it is read.
    fn is_current(&self, checksum: &Checksum, newest: Option<&Bytes>) -> bool {
        let (commit, file) = (&self.segment.version_commit, &self.segment.checksum);
        let is_newer = commit
            .as_ref()
            .zip(file.as_ref())
            .is_none_or(|(commit, file)| file.modified_ms >= commit.modified_ms);
        // A writer that puts the id into the checksum file puts it into the commit, too.
        let is_same = match (&checksum.transaction_id, newest) {
            (Some(stated), Some(commit)) => transaction_id(commit).is_some_and(|id| id == *stated),
            _ => true,
        };
        // The checksum file may be older than the published copy of a commit.
        let has_own =
            self.storage.catalog().is_some() && checksum.transaction_id.is_some() && newest.is_some();
        (is_newer || has_own) && is_same
    }

    /// The protocol and the metadata of the version, from the newest file that has them.
    fn heads(
        &self,
        commits: &[Commit<'_>],
        previous: Option<&Snapshot>,
        checksum: Option<&Checksum>,
        checkpoint: &OnceLock<Checkpoint>,
    ) -> Result<(Arc<Protocol>, Arc<Metadata>)> {
        let mut protocol = commits.iter().find_map(|(_, commit)| commit.protocol.clone()).map(Arc::new);
        let mut metadata = commits.iter().find_map(|(_, commit)| commit.metadata.clone()).map(Arc::new);
        if let Some(previous) = previous {
            protocol.get_or_insert_with(|| Arc::clone(&previous.protocol));
            metadata.get_or_insert_with(|| Arc::clone(&previous.metadata));
        }
        let is_known = protocol.is_some() && metadata.is_some();
        if let Some(files) = self.segment.checkpoint.as_ref().filter(|_| !is_known) {
            let from_checksum =
                checksum.and_then(|checksum| checksum.heads_beside(protocol.as_deref(), metadata.as_deref()));
            let (older_protocol, older_metadata) = if let Some((protocol, metadata)) = from_checksum {
                (Some(protocol), Some(metadata))
            } else {
                let opened = Checkpoint::open(self.storage, self.root, files);
                let opened = opened.inspect_err(|error| self.leave_out(error))?;
                let opened = checkpoint.get_or_init(|| opened);
                (opened.protocol().cloned(), opened.metadata().cloned())
            };
            protocol = protocol.or(older_protocol.map(Arc::new));
            metadata = metadata.or(older_metadata.map(Arc::new));
        }
        let name = commit_name(self.segment.version);
        let protocol = protocol.ok_or_else(|| self.missing("protocol"))?;
        let has_catalog = self.storage.catalog().is_some();
        let protocol = match previous.filter(|previous| Arc::ptr_eq(&previous.protocol, &protocol)) {
            Some(_) => protocol,
            None => Arc::new(Protocol::clone(&protocol).checked(&name, has_catalog)?),
        };
        Ok((protocol, metadata.ok_or_else(|| self.missing("metaData"))?))
    }

    /// The error of an action that the oldest file must have: the checkpoint, or the first commit.
    fn missing(&self, action: &str) -> Error {
        let base = self.segment.checkpoint_file();
        let oldest = base.or(self.segment.commits.last().map(|commit| &commit.file));
        let name = oldest.map_or_else(|| commit_name(self.segment.version), |file| file.name.clone());
        let error = Error::corrupt(name, format!("it has no {action}, and no later file has one"));
        self.leave_out(&error);
        error
    }

    fn leave_out(&self, error: &Error) {
        self.segment.leave_out(self.storage, self.root, error, std::iter::empty(), 0);
    }

    fn batches(
        &self,
        commits: &[Commit<'_>],
        live: Vec<RowIndices>,
        partition_names: &PartitionNames,
    ) -> Result<Vec<(Arc<FileBatch>, RowIndices)>> {
        let base_version = self.segment.base_version();
        let mut interner = PartitionInterner::of(partition_names.clone());
        // Their batches equal those of this snapshot.
        let known: Vec<_> = self
            .known
            .iter()
            .filter(|known| {
                known.segment.base_version() == base_version && known.partition_names == *partition_names
            })
            .collect();
        let with_files = commits.iter().zip(live).filter(|(_, rows)| !rows.is_empty());
        with_files
            .map(|((entry, commit), rows)| {
                if let Some(known) = known.iter().find_map(|known| known.batch_of(entry)) {
                    return Ok((Arc::clone(known), rows));
                }
                if !partition_names.columns.is_empty() {
                    // Not of dead files, which may be older than the partitions.
                    commit.adds.check_partition_values(&commit.name, rows.iter().map(|row| *row as usize))?;
                }
                let source = source_of(entry.version, base_version);
                Ok((Arc::new(commit.adds.batch(source, &commit.name, &mut interner)?), rows))
            })
            .collect()
    }

    /// Shares equal metadata, as most versions do not change it.
    fn shared_metadata(&self, metadata: Arc<Metadata>) -> Arc<Metadata> {
        let known = self.known.iter().find(|known| *known.metadata == *metadata);
        known.map_or(metadata, |known| Arc::clone(&known.metadata))
    }

    /// The commit timestamp; empty if the commit has to be read or the log to be listed for it.
    fn timestamp(
        &self,
        protocol: &Protocol,
        metadata: &Metadata,
        commits: &[Commit<'_>],
        checksum: Option<&Checksum>,
    ) -> OnceLock<Option<i64>> {
        let version = self.segment.version;
        let in_commit = InCommitTimestamps::of(protocol, metadata);
        let has_own = in_commit.is_some_and(|in_commit| in_commit.covers(version));
        let timestamp_ms = match &self.segment.version_commit {
            Some(_) if has_own => {
                let newest = commits.first().filter(|(entry, _)| entry.version == version);
                let known = newest.and_then(|(_, commit)| commit.in_commit_timestamp_ms);
                let known = known.or(checksum.and_then(|checksum| checksum.in_commit_timestamp_ms));
                match (known, newest) {
                    (None, None) => return OnceLock::new(),
                    (known, _) => known,
                }
            }
            Some(_) => match self.segment.timestamp_ms() {
                Some(timestamp_ms) => Some(timestamp_ms),
                None => return OnceLock::new(),
            },
            // Cleanup deleted the commit but not its checkpoint, whose modification time is unrelated.
            None if has_own => checksum.and_then(|checksum| checksum.in_commit_timestamp_ms),
            None => {
                let written = self.segment.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
                Some(written.map(|file| file.modified_ms).max().unwrap_or(0))
            }
        };
        OnceLock::from(timestamp_ms)
    }
}

impl Snapshot {
    /// The keys of newer commits and of this version together.
    fn seen_with(&self, newer: &ReplaySet) -> Arc<ReplaySet> {
        if newer.is_empty() {
            return Arc::clone(&self.seen);
        }
        let mut all = ReplaySet::clone(&self.seen);
        all.extend(newer);
        Arc::new(all)
    }
}

/// The files of older commits without an action in newer ones.
fn still_live(
    batches: &[(Arc<FileBatch>, RowIndices)],
    seen: &ReplaySet,
) -> impl Iterator<Item = (Arc<FileBatch>, RowIndices)> {
    batches.iter().filter_map(|(batch, rows)| {
        let rows: RowIndices = rows.iter().copied().filter(|row| seen.is_live(batch, *row)).collect();
        (!rows.is_empty()).then(|| (Arc::clone(batch), rows))
    })
}
