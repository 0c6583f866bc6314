//! A listing of `_delta_log/`, classified by file names.

use std::collections::BTreeMap;

use super::{CheckpointFiles, CheckpointKind, CommitEntry, LeftOut, LogIdentity, LogSegment, findings};
use crate::error::{Error, Result};
use crate::log_path::{self, LogFileName};
use crate::storage::{LogFileEntry, Storage};

/// Versions before the requested one that are listed for its timestamp.
pub(super) const LOOK_BACK: i64 = 32;
/// Maximum number of damaged files that a segment names.
const MAX_LEFT_OUT: usize = 8;

/// The files of a log from a version on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listing {
    /// The version that the listing began at.
    pub(super) from: i64,
    has_catalog: bool,
    pub(crate) commits: BTreeMap<i64, LogFileEntry>,
    checksums: BTreeMap<i64, LogFileEntry>,
    /// Complete ones only, the preferred first.
    checkpoints: BTreeMap<i64, Vec<CheckpointFiles>>,
    damaged: BTreeMap<i64, Vec<CheckpointFiles>>,
    /// These and empty ones, by version.
    left_out: Vec<LeftOut>,
}

impl Listing {
    /// The listing begins [`LOOK_BACK`] versions before `from`.
    pub(crate) fn read(storage: &Storage, root: &str, from: i64) -> Result<Self> {
        let from = from.saturating_sub(LOOK_BACK).max(0);
        let from_name = if from > 0 { log_path::first_name_of(from) } else { String::new() };
        let mut listing = Self::of(storage.list_log(root, &from_name)?, from);
        listing.has_catalog = storage.catalog().is_some();
        listing.leave_out(storage, root);
        Ok(listing)
    }

    fn leave_out(&mut self, storage: &Storage, root: &str) {
        for (version, checkpoint) in std::mem::take(&mut self.checkpoints)
            .into_iter()
            .flat_map(|(version, found)| found.into_iter().map(move |checkpoint| (version, checkpoint)))
        {
            let Some((error, actions)) = findings::damage(storage, root, &checkpoint) else {
                self.checkpoints.entry(version).or_default().push(checkpoint);
                continue;
            };
            let first = checkpoint.files.first().map(|file| file.name.clone()).unwrap_or_default();
            let (file, reason) = match error {
                Error::CorruptLog { file, reason } => (file, reason),
                error => (first, error.to_string()),
            };
            let of = Some(checkpoint.clone());
            self.left_out.push(LeftOut { file, reason, version, actions, checkpoint: of });
            self.damaged.entry(version).or_default().push(checkpoint);
        }
    }

    /// Returns whether a checkpoint of a version is damaged.
    pub(super) fn has_left_out(&self, version: i64) -> bool {
        self.left_out.iter().any(|left_out| left_out.version == version)
    }

    /// Returns the error of the newest damaged checkpoint up to a version that cannot be rebuilt without it.
    fn damage(&self, version: i64) -> Option<Error> {
        let older = self.left_out.iter().filter(|left_out| left_out.version <= version);
        let newest = older.max_by_key(|left_out| left_out.version)?;
        Some(Error::corrupt(&newest.file, &newest.reason))
    }

    fn of(entries: Vec<LogFileEntry>, from: i64) -> Self {
        let mut listing = Self { from, ..Self::default() };
        let mut parts: BTreeMap<(i64, u32), BTreeMap<u32, LogFileEntry>> = BTreeMap::new();
        for entry in entries {
            let Some(name) = LogFileName::parse(&entry.name) else { continue };
            if let Some(version) = name.checkpoint_version().filter(|_| entry.size == 0) {
                // A writer died after it created the file.
                let (file, reason) = (entry.name, "it is empty".into());
                listing.left_out.push(LeftOut { file, reason, version, actions: 0, checkpoint: None });
                continue;
            }
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
        for candidates in listing.checkpoints.values_mut() {
            // PROTOCOL allows any of them; the choice must be equal on all replicas.
            candidates.sort_by(|left, right| preference(left).cmp(&preference(right)));
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

    /// The earliest version that the listed files rebuild; that of a damaged checkpoint if there is no other start.
    pub(crate) fn earliest(&self) -> Option<i64> {
        if self.from == 0 && self.commits.contains_key(&0) {
            return Some(0);
        }
        let first = self.checkpoints.first_key_value().or_else(|| self.damaged.first_key_value());
        first.map(|(version, _)| *version)
    }

    /// Returns the segment without damaged checkpoints, or with them if nothing else rebuilds the version: a read of
    /// what is damaged is an error then.
    pub(super) fn segment(&self, version: Option<i64>) -> Result<LogSegment> {
        self.segment_of_rest(version).or_else(|error| {
            let with_damaged = Some(&self.damaged).filter(|damaged| !damaged.is_empty()).map(|damaged| {
                let mut all = self.clone();
                all.left_out.clear();
                for (version, found) in damaged {
                    all.checkpoints.entry(*version).or_default().extend_from_slice(found);
                }
                all.segment_of_rest(version)
            });
            match (with_damaged, version, self.latest()) {
                (Some(Ok(segment)), ..) => Ok(segment),
                (_, Some(version), Some(latest)) if version > latest => Err(error),
                _ => Err(self.damage(version.unwrap_or(i64::MAX)).unwrap_or(error)),
            }
        })
    }

    /// The segment of the files that are not left out.
    pub(super) fn segment_of_rest(&self, version: Option<i64>) -> Result<LogSegment> {
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
        if self.damage(requested).is_some() {
            return None;
        }
        let (earliest, _) = self.checkpoints.range(requested.saturating_add(1)..).next()?;
        Some(Error::VersionNotFound { requested, earliest: *earliest, latest })
    }

    pub(super) fn segment_of(&self, identity: &LogIdentity) -> Option<LogSegment> {
        let checkpoint = match identity.checkpoint_version() {
            None => None,
            Some(version) => {
                // A page continues the order of a checkpoint that was found damaged meanwhile.
                let candidates =
                    [&self.checkpoints, &self.damaged].into_iter().filter_map(|all| all.get(&version));
                Some(candidates.flatten().find(|checkpoint| identity.is_checkpoint(checkpoint))?.clone())
            }
        };
        let base = checkpoint.as_ref().map_or(-1, |checkpoint| checkpoint.version);
        let commits = self.commits_between(base, identity.version()).ok()?;
        let segment = self.assemble(identity.version(), checkpoint, commits);
        segment.identity().is_same_order(identity, self.has_catalog).then_some(segment)
    }

    /// Returns `known` with the commits since then; `None` if the listing does not clearly continue it.
    pub(super) fn advance(&self, known: &LogSegment, version: Option<i64>) -> Option<LogSegment> {
        let latest = self.latest()?;
        let target = version.unwrap_or(latest);
        let known_commit = self.commits.get(&known.version);
        if target > latest || known_commit.is_none() || known_commit != known.version_commit.as_ref() {
            return None;
        }
        if self.has_others_than(known) {
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
        advanced.stated_adds = known.stated_adds;
        advanced.base_checksum.clone_from(&known.base_checksum);
        let added = advanced.left_out.into_iter().filter(|left_out| !known.left_out.contains(left_out));
        advanced.left_out = known.left_out.iter().cloned().chain(added).take(MAX_LEFT_OUT).collect();
        let added = advanced.modified_ms.into_iter().filter(|(version, _)| *version > known.version);
        advanced.modified_ms = known.modified_ms.iter().copied().chain(added).collect();
        Some(advanced)
    }

    /// Returns whether a file of a segment was written again since then, as by a repair. One that cleanup deleted
    /// was not.
    fn has_others_than(&self, known: &LogSegment) -> bool {
        let is_other =
            |entry: &CommitEntry| self.commits.get(&entry.version).is_some_and(|file| *file != entry.file);
        let is_replaced = |checkpoint: &CheckpointFiles| {
            let names = |found: &&CheckpointFiles| {
                let pairs = found.files.iter().zip(&checkpoint.files);
                found.kind == checkpoint.kind && pairs.clone().all(|(found, known)| found.name == known.name)
            };
            let listed = self.checkpoints.get(&checkpoint.version).into_iter().flatten();
            listed.filter(names).any(|found| found != checkpoint)
        };
        known.commits.iter().any(is_other) || known.checkpoint.as_ref().is_some_and(is_replaced)
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
            left_out: self.left_out_between(base, version),
            stated_adds: None,
            commits,
            version_commit: self.commits.get(&version).cloned(),
            committed_ms: None,
            checksum: self.checksums.get(&version).cloned(),
            base_checksum: self.base_checksum(base).filter(|_| base < version),
            modified_ms: self.modified_ms(base.max(0), version),
            checkpoint,
        }
    }

    /// The checksum file of a checkpoint's version, unless a commit was written after it.
    fn base_checksum(&self, base: i64) -> Option<LogFileEntry> {
        let is_current = |file: &&LogFileEntry| {
            self.commits.get(&base).is_none_or(|commit| file.modified_ms >= commit.modified_ms)
        };
        self.checksums.get(&base).filter(is_current).cloned()
    }

    /// Whether cleanup may have deleted the commit of `version`.
    pub(crate) fn has_checkpoint_since(&self, version: i64) -> bool {
        self.checkpoints.range(version..).next().is_some()
    }

    fn left_out_between(&self, base: i64, version: i64) -> Vec<LeftOut> {
        let newer = self.left_out.iter().filter(|left_out| (base..=version).contains(&left_out.version));
        newer.take(MAX_LEFT_OUT).cloned().collect()
    }

    /// Whether there is a checkpoint behind `base` up to `version`.
    fn has_checkpoint_after(&self, base: i64, version: i64) -> bool {
        let newest = self.checkpoints.range(..=version).next_back();
        newest.is_some_and(|(found, _)| *found > base)
    }

    /// When the commits `first..=last` and some before them were written, as their timestamps depend on earlier ones.
    fn modified_ms(&self, first: i64, last: i64) -> Vec<(i64, i64)> {
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
