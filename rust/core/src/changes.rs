//! The changes of a table over a range of versions.
//!
//! Takes a table's root and a range. Returns, version by version, the files of the change data feed or the
//! data-changing adds and removes, with the metadata and the protocol that each version brought. Each commit is read
//! when it is needed, with the next ones prefetched, so memory is bounded for any range.
//!
//! A cursor in a range is (version, index in the [`ChangeBatch`] of that version). It has the same meaning on every
//! replica while the commit exists.

mod batches;
mod groups;
mod removed;
mod survey;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::actions::{Metadata, Protocol};
use crate::column_cache::Allocation;
use crate::error::{Error, Result};
use crate::log_path::commit_name;
use crate::segment::{Listing, commit_mark};
use crate::snapshot::{Base, Snapshot, TimeTravel};
use crate::storage::{LogFileEntry, Storage};

pub use batches::{ChangeBatch, ChangeBatches, ChangedFiles};
use survey::Survey;

/// Maximum bytes of commits per batch of reads. One batch is processed while the next is read.
const GROUP_BYTES: u64 = 8 << 20;
/// Maximum commits per batch of reads.
const GROUP_COMMITS: usize = 128;

/// The kind of changes of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The change data feed (`/changes`): cdc files of a version replace its adds and removes.
    ChangeDataFeed,
    /// The files (`/query` with a starting version): adds and removes, no cdc files.
    Files,
}

/// A range of versions, inclusive.
#[derive(Debug)]
pub struct Changes {
    storage: Storage,
    root: String,
    kind: ChangeKind,
    /// In ascending order of versions.
    commits: Arc<[RangeCommit]>,
    head: Arc<Snapshot>,
    /// The version whose metadata heads the answer. Later pages use it from here after log cleanup.
    heading: Arc<Snapshot>,
    client_reader_features: Vec<String>,
    kept: BTreeMap<i64, Bytes>,
    survey: Option<Survey>,
}

/// The protocol and the metadata in force at a version.
#[derive(Debug, Clone)]
struct InForce {
    protocol: Arc<Protocol>,
    metadata: Arc<Metadata>,
}

impl InForce {
    fn at(snapshot: &Snapshot) -> Self {
        Self { protocol: Arc::clone(snapshot.protocol()), metadata: Arc::clone(snapshot.metadata()) }
    }
}

#[derive(Debug)]
struct RangeCommit {
    version: i64,
    file: LogFileEntry,
    /// The timestamp by modification times; `None` if the log was not listed far enough back for it.
    timestamp_ms: Option<i64>,
}

impl Changes {
    /// Finds the commits of a range. An end after the latest version means the latest version. A start outside of
    /// the log is [`Error::VersionNotFound`], a commit that the listing lacks is [`Error::FileNotFound`]. `known`, a
    /// snapshot of the table, may save reads.
    pub fn open(
        storage: &Storage,
        root: &str,
        kind: ChangeKind,
        starting_version: i64,
        ending_version: Option<i64>,
        known: Option<&Arc<Snapshot>>,
    ) -> Result<Self> {
        if ending_version.is_some_and(|end| end < starting_version) || starting_version < 0 {
            return Err(Error::InvalidArgument("the range of versions is empty".into()));
        }
        let (head, commits) = head_and_commits(storage, root, starting_version, ending_version, known)?;
        let client_reader_features = head.client_reader_features();
        let (storage, root) = (storage.clone(), root.to_owned());
        Ok(Self {
            storage,
            root,
            kind,
            commits,
            heading: Arc::clone(&head),
            head,
            client_reader_features,
            kept: BTreeMap::new(),
            survey: None,
        })
    }

    /// The memory that the range holds, as far as it grows with the log.
    pub(crate) fn parts(self: &Arc<Self>) -> Vec<Allocation> {
        let commits = self.commits.iter().map(|commit| size_of::<RangeCommit>() + commit.file.name.len());
        let kept = self.kept.values().map(Bytes::len);
        let mut parts = self.head.parts();
        if !Arc::ptr_eq(&self.heading, &self.head) {
            parts.extend(self.heading.parts());
        }
        parts.push(Allocation::shared(self, size_of::<Self>() + kept.sum::<usize>()));
        parts.push(Allocation::shared(&self.commits, commits.sum()));
        if let Some(survey) = &self.survey {
            parts.push(Allocation::shared(&survey.changed, survey.changed.len() * survey::ENTRY_BYTES));
            parts.extend(
                survey.metadata().map(|metadata| Allocation::shared(metadata, metadata.memory_bytes())),
            );
        }
        parts
    }

    /// The kind of changes.
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        self.kind
    }

    /// The first version.
    #[must_use]
    pub fn starting_version(&self) -> i64 {
        self.head.version()
    }

    /// The last version.
    #[must_use]
    pub fn ending_version(&self) -> i64 {
        self.commits.last().map_or(self.starting_version(), |commit| commit.version)
    }

    /// The last version and its commit file, if the range has a commit.
    pub(crate) fn last_commit(&self) -> Option<(i64, &LogFileEntry)> {
        self.commits.last().map(|commit| (commit.version, &commit.file))
    }

    /// Sets another version whose metadata heads the answer. A client must know its reader features as well.
    pub fn head_by(&mut self, heading: Arc<Snapshot>) {
        self.require(heading.client_reader_features());
        self.heading = heading;
    }

    /// The version whose metadata heads the answer.
    #[must_use]
    pub fn heading_version(&self) -> i64 {
        self.heading.version()
    }

    /// The snapshot of [`Self::heading_version`].
    #[must_use]
    pub fn heading(&self) -> &Arc<Snapshot> {
        &self.heading
    }

    /// As [`Snapshot::is_lost`], of the versions that head the answer.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.head.is_lost() || self.heading.is_lost()
    }

    /// The snapshot of the first version.
    #[must_use]
    pub fn head(&self) -> &Arc<Snapshot> {
        &self.head
    }

    /// Returns the reader features that a client must announce, for the heading metadata and for all surveyed
    /// versions of the range.
    #[must_use]
    pub fn client_reader_features(&self) -> &[String] {
        &self.client_reader_features
    }

    /// Returns whether any of these versions cannot be represented in the parquet response format.
    #[must_use]
    pub fn needs_delta_format(&self) -> bool {
        !self.client_reader_features.is_empty()
    }

    /// Identifies the range and its heading; part of page tokens. The last commit distinguishes the range from one that
    /// was written after the log was restored to an earlier version.
    #[must_use]
    pub fn identity(&self) -> String {
        let mark = self.commits.last().and_then(|commit| commit_mark(&self.storage, &commit.file));
        let mark = mark.map_or_else(String::new, |mark| format!("~{mark}"));
        let range = format!("{}-{}{mark}", self.starting_version(), self.ending_version());
        match self.heading_version() {
            heading if heading == self.starting_version() => range,
            heading => format!("{range}-{heading}"),
        }
    }

    /// Returns the changes from `from_version` on, which must be in the range ([`Error::InvalidCursor`]). Earlier
    /// versions are not read.
    pub fn batches(&self, from_version: i64) -> Result<ChangeBatches> {
        ChangeBatches::new(self, from_version)
    }

    /// Returns the protocol and metadata in force at a version of the range.
    fn in_force_at(&self, version: i64) -> Result<InForce> {
        if version == self.starting_version() {
            return Ok(InForce::at(&self.head));
        }
        if let Some(in_force) = self.survey.as_ref().and_then(|survey| survey.in_force_at(version)) {
            return Ok(in_force);
        }
        // From the nearest checkpoint, since the start of the range may be far away.
        let snapshot = Snapshot::load(&self.storage, &self.root, TimeTravel::Version(version), None)?;
        Ok(InForce::at(&snapshot))
    }

    fn require(&mut self, features: Vec<String>) {
        for feature in features {
            if !self.client_reader_features.contains(&feature) {
                self.client_reader_features.push(feature);
            }
        }
    }

    fn check_feed(&self, version: i64, metadata: &Metadata) -> Result<()> {
        if self.kind == ChangeKind::ChangeDataFeed && !metadata.is_change_data_feed_on() {
            return Err(Error::ChangeDataFeedDisabled(version));
        }
        Ok(())
    }

    fn groups(&self, first: usize) -> groups::Groups {
        groups::Groups::new(self.storage.clone(), self.root.clone(), Arc::clone(&self.commits), first)
    }
}

/// Loads the head of a range and then lists its commits. A table may be replaced in between.
fn head_and_commits(
    storage: &Storage,
    root: &str,
    start: i64,
    end: Option<i64>,
    known: Option<&Arc<Snapshot>>,
) -> Result<(Arc<Snapshot>, Arc<[RangeCommit]>)> {
    // The checkpoint of a range's head is not read.
    let known = known.map(|snapshot| Base { snapshot, is_cached: true });
    let head = Snapshot::load(storage, root, TimeTravel::Version(start), known)?;
    let list = || {
        let listing = if head.has_in_commit_timestamp() {
            Listing::read(storage, root, start)?
        } else {
            Listing::with_timestamps(storage, root, start)?
        };
        if head.segment().version_commit.as_ref() != listing.commits.get(&start) {
            return Err(Error::FileReplaced { file: commit_name(start) });
        }
        let latest = listing.latest().unwrap_or(start);
        range_commits(&listing, start, end.map_or(latest, |end| end.min(latest)))
    };
    let commits = match list() {
        // A gap counts only if it is there twice: a listing may be older in one part than in the next one.
        Err(Error::VersionNotFound { .. }) => list()?,
        found => found?,
    };
    Ok((head, commits))
}

fn range_commits(listing: &Listing, start: i64, end: i64) -> Result<Arc<[RangeCommit]>> {
    // Cleanup may delete a version's commit and leave its checkpoint: its changes are unknown then.
    if let Some(missing) = (start..=end).rev().find(|version| !listing.commits.contains_key(version)) {
        let latest = listing.latest().unwrap_or(start);
        let later = listing.commits.range(missing..).next().map(|(version, _)| *version);
        return Err(match later.filter(|_| missing == start || listing.has_checkpoint_since(missing)) {
            Some(later) => Error::VersionNotFound { requested: start, earliest: later, latest },
            None => Error::FileNotFound { file: commit_name(missing) },
        });
    }
    let times: BTreeMap<i64, i64> = listing.timestamps_ms(end).collect();
    let commit = |(version, file): (&i64, &LogFileEntry)| RangeCommit {
        version: *version,
        file: file.clone(),
        timestamp_ms: times.get(version).copied(),
    };
    Ok(listing.commits.range(start..=end).map(commit).collect())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timestamp_tests;
