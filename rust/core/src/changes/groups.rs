//! The commits of a range in groups. The next group is read while the current one is processed.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::{GROUP_BYTES, GROUP_COMMITS, RangeCommit, range_commits};
use crate::error::{Error, Result};
use crate::segment::Listing;
use crate::storage::{PendingReads, Storage};

/// Reads commits in groups, the next one while the current one is processed.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) storage: Storage,
    pub(super) root: String,
    commits: Arc<[RangeCommit]>,
    /// The end of the requested commits.
    requested: usize,
    pending: Option<(Range<usize>, PendingReads)>,
}

impl Groups {
    pub(super) fn new(storage: Storage, root: String, commits: Arc<[RangeCommit]>, first: usize) -> Self {
        Self { storage, root, commits, requested: first, pending: None }
    }

    /// Returns the indices of the group's commits and their contents.
    pub(super) fn next(&mut self) -> Option<(Range<usize>, Vec<Result<Bytes>>)> {
        let (group, reads) = match self.pending.take() {
            Some(pending) => pending,
            None => self.ask()?,
        };
        let contents = reads.wait();
        self.pending = self.ask();
        Some((group, contents))
    }

    /// Replaces the error of a missing commit by one with the available versions.
    pub(super) fn explain_missing(&self, error: Error, starting_version: i64) -> Error {
        if !matches!(error, Error::FileNotFound { .. }) {
            return error;
        }
        let end = self.commits.last().map_or(starting_version, |commit| commit.version);
        let again = Listing::read(&self.storage, &self.root, starting_version);
        match again.and_then(|listing| range_commits(&listing, starting_version, end)) {
            Ok(_) => error,
            // It was listed before.
            Err(Error::FileNotFound { file }) => Error::FileReplaced { file },
            Err(explained) => explained,
        }
    }

    fn ask(&mut self) -> Option<(Range<usize>, PendingReads)> {
        let start = self.requested;
        let mut bytes = 0;
        let fits = self.commits.get(start..)?.iter().take(GROUP_COMMITS).take_while(|commit| {
            // The first one may exceed the limit.
            let is_first = bytes == 0;
            bytes += commit.file.size.max(1);
            is_first || bytes <= GROUP_BYTES
        });
        let files: Vec<_> = fits.map(|commit| commit.file.clone()).collect();
        if files.is_empty() {
            return None;
        }
        self.requested = start + files.len();
        Some((start..self.requested, self.storage.start_log_reads(&self.root, files)))
    }
}
