//! The timestamps of commits by the modification times of their files, as one function of the log.
//!
//! Stores count in whole seconds, and copied files have the time of the copy. A version is therefore at least a
//! millisecond later than the one before it, as in Delta's own readers. This chain of adjustments begins at a commit
//! whose timestamp is its own time: the first of the log, or one that ends a calm window of commits. A time that is ahead
//! of the commits of a whole calm window does not count behind it.
//!
//! The timestamps depend on the log alone, not on the version that a reader lists it from. A listing may begin within a
//! calm window, which it does not recognise then; no commit of this window adjusts the last one, so a chain that begins
//! at any of them gives the same timestamps.

use super::{Listing, LogSegment, listing::LOOK_BACK};
use crate::error::{Error, Result};
use crate::log_path::commit_name;
use crate::storage::{LogFileEntry, Storage};

/// Minimum number of commits of a calm window before its last one.
const WINDOW: usize = LOOK_BACK as usize;
/// The maximum, so that a log of up to 50 commits a second is not listed whole.
const LONG_WINDOW: usize = 512;
/// Minimum duration of a calm window. Commits of a copy are written faster.
const WINDOW_MS: i64 = 10_000;
/// How many versions the log is listed back, in turn, if what was listed for other reasons has no start of a chain.
const FARTHER: [i64; 2] = [2 * LONG_WINDOW as i64, i64::MAX];

/// Returns the versions of commits with their timestamps in milliseconds. `times` are consecutive commits with the
/// modification times of their files, ascending by version. Commits before the first start of a chain are left out.
pub(super) fn adjusted(times: &[(i64, i64)], is_whole: bool) -> impl Iterator<Item = (i64, i64)> {
    let in_order = in_order(times);
    let starts =
        move |index: usize| is_whole && index == 0 || ends_calm_window(&times[..=index], in_order[index]);
    times
        .iter()
        .enumerate()
        .scan(None, move |last: &mut Option<(i64, i64)>, (index, &(version, modified_ms))| {
            let earliest_ms = match last {
                _ if starts(index) => Some(modified_ms),
                Some((before, timestamp_ms)) => Some(timestamp_ms.saturating_add(version - *before)),
                None => None,
            };
            *last = earliest_ms.map(|earliest_ms| (version, modified_ms.max(earliest_ms)));
            Some(*last)
        })
        .flatten()
}

/// Returns, for each commit, how many commits before it were written in order and do not adjust its time.
fn in_order(times: &[(i64, i64)]) -> Vec<usize> {
    let ahead_ms = |index: usize| times[index].1.saturating_sub(times[index].0);
    let mut counts: Vec<usize> = Vec::with_capacity(times.len());
    for index in 0..times.len() {
        let mut first = index;
        // The commits in order before an earlier one are in order before this one, too.
        while let Some(before) = first.checked_sub(1)
            && times[before].1 <= times[first].1
            && ahead_ms(before) <= ahead_ms(index)
        {
            first = before - counts[before];
        }
        counts.push(index - first);
    }
    counts
}

/// Returns whether the last of `times`, with that many commits before it in order, ends a calm window: they were not
/// written at once.
fn ends_calm_window(times: &[(i64, i64)], in_order: usize) -> bool {
    let window = &times[times.len() - 1 - in_order.min(LONG_WINDOW)..];
    let ends = window.first().zip(window.last());
    in_order >= WINDOW && ends.is_some_and(|(first, last)| last.1.saturating_sub(first.1) >= WINDOW_MS)
}

impl Listing {
    /// Lists a log far enough back for the timestamps from the version `first` on.
    pub(crate) fn with_timestamps(storage: &Storage, root: &str, first: i64) -> Result<Self> {
        let mut listing = Self::read(storage, root, first)?;
        for back in FARTHER {
            if listing.from == 0 || listing.timestamps_ms(first).next().is_some_and(|(from, _)| from <= first)
            {
                break;
            }
            listing = Self::read(storage, root, first.saturating_sub(back))?;
        }
        Ok(listing)
    }

    /// Returns versions and their timestamps by modification times, ascending to `last`, as far as the listing tells.
    pub(crate) fn timestamps_ms(&self, last: i64) -> impl Iterator<Item = (i64, i64)> {
        let times: Vec<_> =
            self.commits.range(..=last).map(|(version, file)| (*version, file.modified_ms)).collect();
        adjusted(&times, self.from == 0).collect::<Vec<_>>().into_iter()
    }
}

impl LogSegment {
    /// Returns the timestamp of the version by modification times, if the files of the segment tell it.
    pub(crate) fn timestamp_ms(&self) -> Option<i64> {
        let is_whole = self.modified_ms.first().is_some_and(|(first, _)| *first == 0);
        let newest = adjusted(&self.modified_ms, is_whole).last()?;
        (newest.0 == self.version).then_some(newest.1)
    }
}

/// Lists a log for the timestamps from the version `first` on, which `commit` has written, to `last`. Returns
/// [`Error::FileReplaced`] or [`Error::FileNotFound`] if the log has no longer this commit.
pub(crate) fn read_timestamps_ms(
    storage: &Storage,
    root: &str,
    (first, commit): (i64, &LogFileEntry),
    last: i64,
) -> Result<Vec<(i64, i64)>> {
    let listing = Listing::with_timestamps(storage, root, first)?;
    match listing.commits.get(&first) {
        Some(found) if found == commit => {
            Ok(listing.timestamps_ms(last).filter(|(version, _)| *version >= first).collect())
        }
        Some(_) => Err(Error::FileReplaced { file: commit_name(first) }),
        None => Err(Error::FileNotFound { file: commit_name(first) }),
    }
}
