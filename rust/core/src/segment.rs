//! The files of a log that rebuild a version.
//!
//! Takes a table's root and a version, or a known segment. Returns the newest complete checkpoint up to the version and
//! the later commits, newest first. `_last_checkpoint` only sets the start of the listing; an invalid one costs a longer
//! listing. A missing commit is [`Error::CorruptLog`], a version that the log no longer holds is
//! [`Error::VersionNotFound`].
//!
//! Compaction files are not read. They are optional, commits are there as long as they are, and some writers leave out
//! removes that the commits have.

mod findings;
mod identity;
mod listing;
mod times;

use crate::actions::{lenient_i64, lenient_optional_i64};
use crate::error::{Error, Result};
use crate::log_faults::LogFault;
use crate::log_path::{LAST_CHECKPOINT, SIDECARS, commit_name, log_file_path};
use crate::storage::{LogFileEntry, Storage};

pub use identity::LogIdentity;
pub(crate) use identity::commit_mark;
pub(crate) use listing::Listing;
pub(crate) use times::read_timestamps_ms;

/// A complete checkpoint (PROTOCOL, section Checkpoints).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFiles {
    /// The version of the checkpoint.
    pub version: i64,
    /// The layout.
    pub kind: CheckpointKind,
    /// The files in `_delta_log/`, without sidecars: all parts in order, or the one top file.
    pub files: Vec<LogFileEntry>,
}

/// The layout by the file name. Whether it has sidecars depends on the content: a classic name may hold v2 content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckpointKind {
    /// `<version>.checkpoint.parquet`
    Classic,
    /// `<version>.checkpoint.<part>.<of>.parquet`
    MultiPart,
    /// `<version>.checkpoint.<uuid>.parquet`
    UuidParquet,
    /// `<version>.checkpoint.<uuid>.json`
    UuidJson,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitEntry {
    /// The version.
    pub version: i64,
    /// The file in `_delta_log/`.
    pub file: LogFileEntry,
}

/// A damaged file that is optional for readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The name, without its directory.
    pub file: String,
    /// Why it cannot be read.
    pub reason: String,
    /// The version of the checkpoint.
    pub version: i64,
    /// A number of actions that the checkpoint has at least.
    pub actions: u64,
    /// The checkpoint, unless the file is empty.
    checkpoint: Option<CheckpointFiles>,
}

/// The files that rebuild one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSegment {
    /// The version.
    pub version: i64,
    /// The checkpoint; without one, replay ends at commit 0.
    pub checkpoint: Option<CheckpointFiles>,
    /// The commits after the checkpoint, newest first.
    pub commits: Vec<CommitEntry>,
    /// The commit of the version; absent if cleanup deleted it but not the checkpoint.
    pub version_commit: Option<LogFileEntry>,
    /// The in-commit timestamp of the version, if its commit was read and a catalog ratifies commits.
    pub committed_ms: Option<i64>,
    /// The version's `.crc`.
    pub checksum: Option<LogFileEntry>,
    /// The `.crc` of the checkpoint's version, if that is an older one.
    pub base_checksum: Option<LogFileEntry>,
    /// Whether the log has a newer checkpoint for this version: a continued segment keeps its own.
    pub has_newer_checkpoint: bool,
    /// Whether `_last_checkpoint` exists but is unusable, so that the whole log was listed.
    pub has_bad_hint: bool,
    /// Checkpoints up to the version that are damaged: the file and the reason of each.
    pub left_out: Vec<LeftOut>,
    /// The number of adds in the checkpoint by `_last_checkpoint`.
    pub stated_adds: Option<u64>,
    /// Modification times of commits from shortly before the checkpoint on: (version, milliseconds), ascending.
    pub modified_ms: Vec<(i64, i64)>,
}

impl LogSegment {
    /// Finds the files of the latest version, or of `version`.
    ///
    /// With a `known` segment of the same table the listing starts at its version, and its checkpoint is kept if
    /// `version` is not older; `None` starts from the newest checkpoint.
    pub fn find(storage: &Storage, root: &str, version: Option<i64>, known: Option<&Self>) -> Result<Self> {
        if let Some(advanced) = Self::advance(storage, root, version, known)? {
            return Ok(advanced);
        }
        let hint = last_checkpoint(storage, root)?;
        let mut has_bad_hint = matches!(hint, Hint::Unreadable);
        if let Hint::Checkpoint(hint) = &hint
            && version.is_none_or(|version| hint.version <= version)
        {
            let listing = Listing::read(storage, root, hint.version)?;
            let is_within =
                version.is_none_or(|version| listing.latest().is_some_and(|latest| version <= latest));
            if let (true, Ok(segment)) = (is_within, listing.segment_of_rest(version)) {
                hint.check_listed(storage, root, segment.version)?;
                return Ok(segment.with_hint(hint));
            }
            has_bad_hint = is_within && !listing.has_left_out(hint.version);
        }
        if has_bad_hint {
            LogFault::Hint.count();
        }
        let found = Self::from_whole_listing(storage, root, version);
        let last = match &found {
            Ok(segment) if version.is_none() => Some(segment.version),
            Ok(_) => None,
            Err(Error::VersionNotFound { latest, .. }) => Some(*latest),
            Err(Error::TableNotFound { .. }) => Some(-1),
            Err(_) => return found,
        };
        let segment = match &hint {
            Hint::Checkpoint(hint) => {
                if let Some(last) = last {
                    hint.check_listed(storage, root, last)?;
                }
                found?.with_hint(hint)
            }
            Hint::Absent | Hint::Unreadable => found?,
        };
        Ok(Self { has_bad_hint, ..segment })
    }

    fn with_hint(mut self, hint: &LastCheckpoint) -> Self {
        let adds = hint.num_of_add_files.filter(|_| self.base_version() == hint.version);
        self.stated_adds = adds.and_then(|adds| u64::try_from(adds).ok());
        let stated = hint.num_of_add_files.and_then(|adds| u64::try_from(adds).ok()).unwrap_or_default();
        for left_out in self.left_out.iter_mut().filter(|left_out| left_out.version == hint.version) {
            left_out.actions = left_out.actions.max(stated);
        }
        self
    }

    /// The file of the checkpoint that errors name.
    pub(crate) fn checkpoint_file(&self) -> Option<&LogFileEntry> {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.files.first())
    }

    /// Returns the error of a damaged checkpoint that the commits do not replace, since some writers begin a log with a
    /// checkpoint. The checkpoint is tried again by the next request.
    ///
    /// `actions` counts those of the commits up to a version, 0 if none of them adds a file, and `has_older_files` says
    /// whether the commits remove files that they do not add.
    pub(crate) fn check_replaced(
        &self,
        storage: &Storage,
        root: &str,
        actions: impl Fn(i64) -> u64,
        has_older_files: bool,
    ) -> Result<()> {
        if self.checkpoint.is_some() {
            return Ok(());
        }
        let lacks =
            |left_out: &&LeftOut| has_older_files || actions(left_out.version) < left_out.actions.max(1);
        let Some(LeftOut { file, reason, checkpoint, .. }) = self.left_out.iter().find(lacks) else {
            return Ok(());
        };
        if let Some(checkpoint) = checkpoint {
            findings::forget(storage, root, checkpoint);
        }
        Err(Error::corrupt(file.clone(), format!("{reason}; the commits do not have all of its files")))
    }

    /// Counts the files of the checkpoint by their paths from here on, not by their sizes.
    pub(crate) fn count_by_paths(&self, storage: &Storage, root: &str) {
        if let Some(checkpoint) = &self.checkpoint {
            findings::count_by_paths(storage, root, checkpoint);
        }
    }

    /// Returns whether files of the checkpoint are counted by their paths.
    pub(crate) fn is_counted_by_paths(&self, storage: &Storage, root: &str) -> bool {
        let checkpoint = self.checkpoint.as_ref();
        checkpoint.is_some_and(|checkpoint| findings::is_counted_by_paths(storage, root, checkpoint))
    }

    /// Leaves the checkpoint out of later segments if the error of a read is a fault of its files. `parts` are the
    /// names of all of its parts, also of sidecars, and `actions` is the number of its actions as far as they are known.
    /// Returns whether it is left out. A listed file that is missing is left to a new listing: cleanup deletes files.
    pub(crate) fn leave_out<'a>(
        &self,
        storage: &Storage,
        root: &str,
        error: &Error,
        mut parts: impl Iterator<Item = &'a str>,
        actions: u64,
    ) -> bool {
        let Some(checkpoint) = &self.checkpoint else { return false };
        let is_listed = |file: &str| checkpoint.files.iter().any(|listed| listed.name == file);
        let is_damaged = match error {
            Error::CorruptLog { file, .. } => {
                file == SIDECARS || is_listed(file) || parts.any(|part| part == file)
            }
            Error::FileNotFound { file } => !is_listed(file) && parts.any(|part| part == file),
            _ => false,
        };
        if is_damaged {
            findings::leave_out(storage, root, checkpoint, error.clone(), actions);
        }
        is_damaged
    }

    /// Leaves the checkpoint out of later segments if a file of it is missing though it was listed twice.
    pub(crate) fn leave_out_missing(&self, storage: &Storage, root: &str, error: &Error) -> bool {
        let (Some(checkpoint), Error::FileNotFound { file }) = (&self.checkpoint, error) else {
            return false;
        };
        let is_listed = checkpoint.files.iter().any(|listed| listed.name == *file);
        if is_listed {
            findings::leave_out(storage, root, checkpoint, error.clone(), 0);
        }
        is_listed
    }

    fn from_whole_listing(storage: &Storage, root: &str, version: Option<i64>) -> Result<Self> {
        // A page of a listing may be older than the next one, and so miss a commit that the next one has a
        // successor of: a gap counts only if it is there twice.
        match Listing::read(storage, root, 0)?.segment(version) {
            Err(Error::CorruptLog { .. }) => {
                let listing = Listing::read(storage, root, 0)?;
                listing.segment(version).map_err(|gap| listing.cleaned_up(version).unwrap_or(gap))
            }
            found => found,
        }
    }

    /// Finds the files of an identity, which have the same order on every replica and after every later commit
    /// or checkpoint. If log cleanup deleted one, returns [`Error::VersionNotFound`], or [`Error::InvalidCursor`] if
    /// other files rebuild the version in another order.
    pub fn find_identity(storage: &Storage, root: &str, identity: &LogIdentity) -> Result<Self> {
        if let Some(found) = Self::listed(storage, root, identity)? {
            return Ok(found);
        }
        Self::from_whole_listing(storage, root, Some(identity.version()))?;
        Err(Error::InvalidCursor)
    }

    /// Lists the files of an identity; `None` if one is gone or another.
    pub(crate) fn listed(storage: &Storage, root: &str, identity: &LogIdentity) -> Result<Option<Self>> {
        let from = identity.checkpoint_version().unwrap_or(0);
        Ok(Listing::read(storage, root, from)?.segment_of(identity))
    }

    /// Returns the memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of_file =
            |file: &LogFileEntry| file.name.capacity() + file.entity_tag.as_ref().map_or(0, |tag| tag.len());
        let checkpoint = self.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
        let commits = self.commits.iter().map(|commit| &commit.file);
        self.commits.capacity() * size_of::<CommitEntry>()
            + checkpoint.clone().count() * size_of::<LogFileEntry>()
            + commits.chain(checkpoint).map(of_file).sum::<usize>()
            + self.modified_ms.capacity() * size_of::<(i64, i64)>()
    }

    /// Returns the identity that fixes the order of files.
    #[must_use]
    pub fn identity(&self) -> LogIdentity {
        LogIdentity::of(self)
    }

    /// Returns the version of the checkpoint, or -1.
    #[must_use]
    pub fn base_version(&self) -> i64 {
        self.checkpoint.as_ref().map_or(-1, |checkpoint| checkpoint.version)
    }

    /// Returns whether `version` was written by `commit`, as far as this log tells: after a restore it may be another one.
    #[must_use]
    pub(crate) fn has_version_of(&self, version: i64, commit: Option<&LogFileEntry>) -> bool {
        let Some(commit) = commit else { return version <= self.version };
        if version >= self.version {
            return version == self.version
                && self.version_commit.as_ref().is_none_or(|found| found == commit);
        }
        let older = self.commits.partition_point(|entry| entry.version > version);
        if let Some(entry) = self.commits.get(older).filter(|entry| entry.version == version) {
            return entry.file == *commit;
        }
        // The time of a commit before the checkpoint.
        let listed = self.modified_ms.iter().find(|(listed, _)| *listed == version);
        listed.is_none_or(|(_, modified_ms)| *modified_ms == commit.modified_ms)
    }

    /// Continues `known` with new commits. Returns `None` if a search from the start is necessary.
    fn advance(
        storage: &Storage,
        root: &str,
        version: Option<i64>,
        known: Option<&Self>,
    ) -> Result<Option<Self>> {
        let Some(known) = known else { return Ok(None) };
        if version.is_some_and(|version| version < known.version) {
            return Ok(None);
        }
        let listing = Listing::read(storage, root, known.version)?;
        Ok(listing.advance(known, version))
    }
}

/// Returns an error if a listing ends with version `last`, and the commit of a later version that is `known` is still there.
/// A restored log has lost it, or has another one. Where a catalog ratifies commits, others do not count.
pub(crate) fn check_listed(
    storage: &Storage,
    root: &str,
    last: i64,
    known: (i64, Option<&LogFileEntry>),
) -> Result<()> {
    let (version, Some(commit)) = known else { return Ok(()) };
    if last >= version || storage.catalog().is_some() {
        return Ok(());
    }
    let found = storage.known_properties(log_file_path(root, &commit.name))?;
    if found.is_some_and(|properties| properties.matches(commit).is_some()) {
        return Err(short_listing(root, &commit.name));
    }
    Ok(())
}

fn short_listing(root: &str, commit: &str) -> Error {
    Error::StorageUnavailable { detail: format!("the listing of {root} lacks {commit}, which is there") }
}

/// The content of `_last_checkpoint`.
enum Hint {
    Absent,
    Unreadable,
    Checkpoint(LastCheckpoint),
}

/// Its `size` is not compared: writers state the number of actions with or without `txn` and removes, or the bytes of the
/// checkpoint.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct LastCheckpoint {
    #[serde(deserialize_with = "lenient_i64")]
    version: i64,
    #[serde(default, deserialize_with = "lenient_optional_i64")]
    num_of_add_files: Option<i64>,
}

impl LastCheckpoint {
    /// Returns an error if a listing ends with version `last` before the checkpoint, and the commit of the checkpoint's
    /// version is there. Where a catalog ratifies commits, others do not count.
    fn check_listed(&self, storage: &Storage, root: &str, last: i64) -> Result<()> {
        if last >= self.version || storage.catalog().is_some() {
            return Ok(());
        }
        let commit = commit_name(self.version);
        match storage.known_properties(log_file_path(root, &commit))? {
            Some(_) => Err(short_listing(root, &commit)),
            None => Ok(()),
        }
    }
}

/// The checksum is not verified: the listing detects a wrong version.
fn last_checkpoint(storage: &Storage, root: &str) -> Result<Hint> {
    match storage.read(&log_file_path(root, LAST_CHECKPOINT)) {
        Ok(bytes) => Ok(match serde_json::from_slice::<LastCheckpoint>(&bytes) {
            Ok(hint) if hint.version >= 0 => Hint::Checkpoint(hint),
            _ => Hint::Unreadable,
        }),
        Err(Error::FileNotFound { .. }) => Ok(Hint::Absent),
        Err(Error::CorruptLog { .. }) => Ok(Hint::Unreadable),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
