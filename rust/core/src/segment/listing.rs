//! A listing of `_delta_log/`, classified by file names.

use std::collections::BTreeMap;

use super::{CheckpointFiles, CheckpointKind, CommitEntry, LogIdentity, LogSegment};
use crate::error::{Error, Result};
use crate::log_path::{self, LogFileName};
use crate::storage::{LogFileEntry, Storage};

const LOOK_BACK: i64 = 32;

/// The files of a log from a version on.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The version that the listing began at.
    from: i64,
    pub(crate) commits: BTreeMap<i64, LogFileEntry>,
    checksums: BTreeMap<i64, LogFileEntry>,
    /// Complete ones only, the preferred first.
    checkpoints: BTreeMap<i64, Vec<CheckpointFiles>>,
}

impl Listing {
    /// The listing begins a little before `from`: see [`Self::modified_ms`].
    pub(crate) fn read(storage: &Storage, root: &str, from: i64) -> Result<Self> {
        let from = from.saturating_sub(LOOK_BACK).max(0);
        let from_name = if from > 0 { log_path::first_name_of(from) } else { String::new() };
        Ok(Self::of(storage.list_log(root, &from_name)?, from))
    }

    fn of(entries: Vec<LogFileEntry>, from: i64) -> Self {
        let mut listing = Self { from, ..Self::default() };
        let mut parts: BTreeMap<(i64, u32), BTreeMap<u32, LogFileEntry>> = BTreeMap::new();
        for entry in entries {
            // A writer died after it created the file.
            let is_empty_checkpoint = entry.size == 0 && entry.name.contains(".checkpoint.");
            let Some(name) = LogFileName::parse(&entry.name).filter(|_| !is_empty_checkpoint) else {
                continue;
            };
            match name {
                LogFileName::Commit(version) => _ = listing.commits.insert(version, entry),
                LogFileName::Checksum(version) => _ = listing.checksums.insert(version, entry),
                LogFileName::ClassicCheckpoint(version) => {
                    listing.add_checkpoint(version, CheckpointKind::Classic, vec![entry]);
                }
                LogFileName::UuidCheckpoint { version, json, .. } => {
                    let kind = if json { CheckpointKind::UuidJson } else { CheckpointKind::UuidParquet };
                    listing.add_checkpoint(version, kind, vec![entry]);
                }
                LogFileName::MultiPartCheckpoint { version, part, of } => {
                    parts.entry((version, of)).or_default().insert(part, entry);
                }
            }
        }
        for ((version, of), parts) in parts {
            if parts.len() == of as usize {
                listing.add_checkpoint(version, CheckpointKind::MultiPart, parts.into_values().collect());
            }
        }
        for found in listing.checkpoints.values_mut() {
            // PROTOCOL allows any of them; the choice must be equal on all replicas.
            found.sort_by(|left, right| preference(left).cmp(&preference(right)));
        }
        listing
    }

    fn add_checkpoint(&mut self, version: i64, kind: CheckpointKind, files: Vec<LogFileEntry>) {
        self.checkpoints.entry(version).or_default().push(CheckpointFiles { version, kind, files });
    }

    /// The newest version.
    pub(crate) fn latest(&self) -> Option<i64> {
        let commit = self.commits.last_key_value().map(|(version, _)| *version);
        let checkpoint = self.checkpoints.last_key_value().map(|(version, _)| *version);
        commit.max(checkpoint)
    }

    /// The earliest version that the listed files rebuild.
    pub(crate) fn earliest(&self) -> Option<i64> {
        if self.from == 0 && self.commits.contains_key(&0) {
            return Some(0);
        }
        self.checkpoints.first_key_value().map(|(version, _)| *version)
    }

    pub(super) fn segment(&self, version: Option<i64>) -> Result<LogSegment> {
        let latest = self.latest().ok_or_else(Error::no_log)?;
        let target = version.unwrap_or(latest);
        // Without a checkpoint and without the first commit nothing can be rebuilt.
        let earliest = self.earliest().ok_or_else(|| missing(0))?;
        if !(earliest..=latest).contains(&target) {
            return Err(Error::VersionNotFound { requested: target, earliest, latest });
        }
        let checkpoint = self.checkpoints.range(..=target).next_back().and_then(|(_, found)| found.first());
        let base = checkpoint.map_or(-1, |checkpoint| checkpoint.version);
        let commits = self.commits_between(base, target)?;
        Ok(self.assemble(target, checkpoint.cloned(), commits))
    }

    /// The error for a version that misses commits before a later checkpoint: log cleanup took them, and has left
    /// or not yet reached an older checkpoint.
    pub(super) fn cleaned_up(&self, version: Option<i64>) -> Option<Error> {
        let (requested, latest) = (version?, self.latest()?);
        let (earliest, _) = self.checkpoints.range(requested.saturating_add(1)..).next()?;
        Some(Error::VersionNotFound { requested, earliest: *earliest, latest })
    }

    pub(super) fn segment_of(&self, identity: &LogIdentity) -> Option<LogSegment> {
        let checkpoint = match identity.checkpoint_version() {
            None => None,
            Some(version) => {
                let found = self.checkpoints.get(&version)?;
                Some(found.iter().find(|checkpoint| identity.is_checkpoint(checkpoint))?.clone())
            }
        };
        let base = checkpoint.as_ref().map_or(-1, |checkpoint| checkpoint.version);
        let commits = self.commits_between(base, identity.version()).ok()?;
        let segment = self.assemble(identity.version(), checkpoint, commits);
        (segment.identity() == *identity).then_some(segment)
    }

    /// Returns `known` with the commits since then; `None` if the listing does not clearly continue it.
    pub(super) fn advance(&self, known: &LogSegment, version: Option<i64>) -> Option<LogSegment> {
        let latest = self.latest()?;
        let target = version.unwrap_or(latest);
        let known_commit = self.commits.get(&known.version);
        if target > latest || known_commit.is_none() || known_commit != known.version_commit.as_ref() {
            return None;
        }
        if target == known.version {
            let mut same = known.clone();
            same.checksum = self.checksums.get(&target).cloned();
            same.has_newer_checkpoint |= self.has_checkpoint_after(known.base_version(), target);
            return Some(same);
        }
        let mut commits = self.commits_between(known.version, target).ok()?;
        commits.extend(known.commits.iter().cloned());
        let mut advanced = self.assemble(target, known.checkpoint.clone(), commits);
        advanced.has_newer_checkpoint |= known.has_newer_checkpoint;
        advanced.has_bad_hint = known.has_bad_hint;
        let added = advanced.modified_ms.into_iter().filter(|(version, _)| *version > known.version);
        advanced.modified_ms = known.modified_ms.iter().copied().chain(added).collect();
        Some(advanced)
    }

    fn assemble(
        &self,
        version: i64,
        checkpoint: Option<CheckpointFiles>,
        commits: Vec<CommitEntry>,
    ) -> LogSegment {
        let base = checkpoint.as_ref().map_or(-1, |checkpoint| checkpoint.version);
        LogSegment {
            version,
            has_newer_checkpoint: self.has_checkpoint_after(base, version),
            has_bad_hint: false,
            commits,
            version_commit: self.commits.get(&version).cloned(),
            checksum: self.checksums.get(&version).cloned(),
            modified_ms: self.modified_ms(base.max(0), version),
            checkpoint,
        }
    }

    /// Whether cleanup may have deleted the commit of `version`.
    pub(crate) fn has_checkpoint_since(&self, version: i64) -> bool {
        self.checkpoints.range(version..).next().is_some()
    }

    /// Whether there is a checkpoint behind `base` up to `version`.
    fn has_checkpoint_after(&self, base: i64, version: i64) -> bool {
        let newest = self.checkpoints.range(..=version).next_back();
        newest.is_some_and(|(found, _)| *found > base)
    }

    /// When the commits `first..=last` and some before them were written. Stores count in whole seconds, so that
    /// what is made of these times depends on where one begins: a second holds fewer commits than are looked
    /// back at.
    pub(crate) fn modified_ms(&self, first: i64, last: i64) -> Vec<(i64, i64)> {
        let written = self.commits.range(first.saturating_sub(LOOK_BACK)..=last);
        written.map(|(version, entry)| (*version, entry.modified_ms)).collect()
    }

    /// The commits after `base` up to `target`, newest first.
    fn commits_between(&self, base: i64, target: i64) -> Result<Vec<CommitEntry>> {
        let commit = |version: i64| match self.commits.get(&version) {
            Some(file) => Ok(CommitEntry { version, file: file.clone() }),
            None => Err(missing(version)),
        };
        (base..=target).rev().take_while(|version| *version > base).map(commit).collect()
    }
}

fn missing(version: i64) -> Error {
    Error::corrupt(log_path::commit_name(version), "the commit is missing")
}

fn preference(checkpoint: &CheckpointFiles) -> (bool, bool, usize, &str) {
    let has_uuid = matches!(checkpoint.kind, CheckpointKind::UuidJson | CheckpointKind::UuidParquet);
    let first_name = checkpoint.files.first().map_or("", |file| file.name.as_str());
    (has_uuid, checkpoint.kind == CheckpointKind::MultiPart, checkpoint.files.len(), first_name)
}
