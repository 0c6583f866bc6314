//! Size and partition values of removed files, for removes that lack them.
//!
//! Old writers log only the path of a removed file; the add in force before the remove has the other fields. Paths of
//! many versions are collected, then one scan of the table before them finds their adds. Each scan covers twice as many
//! groups of commits as the previous one: the first files arrive soon and a long range needs few scans. After the scan
//! the adds of each version replace the known values, since a path may be added again.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::groups::Groups;
use super::{ChangeKind, RangeCommit};
use crate::actions::{FileBatch, PartitionTuple};
use crate::checkpoint::ReadOptions;
use crate::commit::{CommitFile, FileFacts};
use crate::error::{Error, Result};
use crate::log_path::normal_path;
use crate::snapshot::{Snapshot, TimeTravel};
use crate::stop::Stop;
use crate::storage::Storage;

/// Maximum bytes of collected paths per scan, without the paths of the last commit.
const SCAN_BYTES: usize = 8 << 20;
/// How often a version is loaded whose checkpoint turns out to be damaged or deleted.
const MAX_TRIES: usize = 3;

/// The known fields of removed files.
#[derive(Debug)]
pub(super) struct RemovedFiles {
    storage: Storage,
    root: String,
    kind: ChangeKind,
    stop: Stop,
    commits: Arc<[RangeCommit]>,
    /// The end of the commits whose removes were completed by a scan.
    scanned_until: usize,
    /// Number of groups of commits that the next scan covers.
    groups_a_look: usize,
    /// The add in force of each collected path, `None` if unknown.
    found: HashMap<Box<str>, Option<Facts>, RandomState>,
}

#[derive(Debug)]
struct Facts {
    size: i64,
    partition_values: PartitionValues,
}

#[derive(Debug)]
enum PartitionValues {
    Coded(Arc<PartitionTuple>),
    Logged(Box<str>),
}

impl RemovedFiles {
    /// Creates the completion of removes of `commits`. Scans end at `stop`.
    pub(super) fn new(
        storage: Storage,
        root: String,
        kind: ChangeKind,
        commits: Arc<[RangeCommit]>,
        stop: Stop,
    ) -> Self {
        Self {
            storage,
            root,
            kind,
            stop,
            commits,
            scanned_until: 0,
            groups_a_look: 1,
            found: HashMap::default(),
        }
    }

    /// Finds the adds in force before the commit at `position`, which is `file`. Positions ascend without a gap, and
    /// [`Self::pass`] follows each call.
    pub(super) fn complete(&mut self, position: usize, file: &CommitFile) -> Result<()> {
        if position < self.scanned_until || lacking(self.kind, file).next().is_none() {
            return Ok(());
        }
        self.found.clear();
        self.collect_paths(position)?;
        self.find_before(position)?;
        self.groups_a_look = self.groups_a_look.saturating_mul(2);
        Ok(())
    }

    /// Applies the adds of a processed commit, which are in force from the next version on.
    pub(super) fn pass(&mut self, file: &CommitFile) {
        if self.found.is_empty() {
            return;
        }
        for index in 0..file.adds.len() {
            let Some(found) = self.found.get_mut(normal_path(file.adds.path(index))) else { continue };
            *found = file.adds.facts(index).map(|facts| Facts {
                size: facts.size,
                partition_values: PartitionValues::Logged(facts.partition_values.into()),
            });
        }
    }

    /// Returns the known fields of a removed file.
    pub(super) fn get(&self, path: &str) -> Option<FileFacts<'_>> {
        let facts = self.found.get(normal_path(path))?.as_ref()?;
        let partition_values = match &facts.partition_values {
            PartitionValues::Coded(tuple) => std::str::from_utf8(&tuple.json).ok()?,
            PartitionValues::Logged(json) => json,
        };
        Some(FileFacts { size: facts.size, partition_values })
    }

    /// Collects the paths of incomplete removes from `position` on.
    fn collect_paths(&mut self, position: usize) -> Result<()> {
        let mut bytes = 0;
        let mut groups = self.groups(position);
        for _ in 0..self.groups_a_look {
            let Some((group, contents)) = groups.next() else { break };
            for (position, content) in group.zip(contents) {
                self.stop.check()?;
                let file = CommitFile::parse(&self.commits[position].file.name, &content?)?;
                for index in lacking(self.kind, &file) {
                    let path = normal_path(file.removes.path(index));
                    if !self.found.contains_key(path) {
                        self.found.insert(path.into(), None);
                        bytes += path.len() + size_of::<(Box<str>, Option<Facts>)>();
                    }
                }
                self.scanned_until = position + 1;
                if bytes > SCAN_BYTES {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Scans the files of the table before the commit at `position`, as far as the log has them.
    fn find_before(&mut self, position: usize) -> Result<()> {
        let Some(before) = self.commits[position].version.checked_sub(1).filter(|version| *version >= 0)
        else {
            return Ok(());
        };
        let at = TimeTravel::Version(before);
        for tries_left in (0..MAX_TRIES).rev() {
            let snapshot = match Snapshot::load(&self.storage, &self.root, at, None) {
                Err(Error::VersionNotFound { .. }) => break,
                loaded => loaded?,
            };
            match self.find_in(&snapshot) {
                // Without its damaged checkpoint, or from a new listing.
                Err(_) if snapshot.is_lost() && tries_left > 0 => {}
                found => return found,
            }
        }
        Ok(())
    }

    fn find_in(&mut self, snapshot: &Snapshot) -> Result<()> {
        let mut missing = self.found.values().filter(|found| found.is_none()).count();
        // The newest first: the first add of a path is the one in force.
        for (batch, _) in snapshot.commit_batches() {
            missing -= self.take_batch(batch);
        }
        if let Some(checkpoint) = snapshot.checkpoint()? {
            for batch in checkpoint.batches(snapshot.interner(), ReadOptions::default()) {
                if missing == 0 {
                    break;
                }
                self.stop.check()?;
                missing -= self.take_batch(&batch.map_err(|error| snapshot.read_error(error))?);
            }
        }
        Ok(())
    }

    /// Stores the adds of missing paths and returns their number.
    fn take_batch(&mut self, batch: &FileBatch) -> usize {
        let mut taken = 0;
        for row in 0..batch.len() {
            let Some(found @ None) = self.found.get_mut(normal_path(batch.path.value(row))) else { continue };
            let tuple = batch.partitions.dictionary.get(batch.partitions.keys[row] as usize);
            *found = tuple.map(|tuple| Facts {
                size: batch.size[row],
                partition_values: PartitionValues::Coded(Arc::clone(tuple)),
            });
            taken += usize::from(found.is_some());
        }
        taken
    }

    fn groups(&self, first: usize) -> Groups {
        Groups::new(self.storage.clone(), self.root.clone(), Arc::clone(&self.commits), first)
    }
}

/// The incomplete removes of an answer.
fn lacking(kind: ChangeKind, file: &CommitFile) -> impl Iterator<Item = usize> + '_ {
    let removes = &file.removes;
    let is_hidden = kind == ChangeKind::ChangeDataFeed && file.hides_files_from_feed();
    let wanted = if is_hidden { 0 } else { removes.len() };
    (0..wanted).filter(|index| removes.is_data_change(*index) && !removes.is_complete(*index))
}
