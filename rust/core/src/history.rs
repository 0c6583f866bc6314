//! Commit timestamps, and the version of a timestamp.
//!
//! Takes a listing of the log and the table's latest metadata. Returns timestamps of commits and versions found by
//! timestamp. In-commit timestamps apply from the version that enabled them. Before it, and in other tables,
//! modification times of the commit files apply, adjusted as in `segment/times.rs` (PROTOCOL, section In-Commit
//! Timestamps). Both ranges are searched separately.
//!
//! In-commit timestamps require the table feature in the protocol and the enabling property. A commit that must have one
//! and lacks it has no known timestamp: modification times are another clock, and mixing both would order versions
//! wrongly. Only a request that needs this timestamp fails.

use crate::actions::{Metadata, Protocol};
use crate::commit::CommitFile;
use crate::error::{Error, Result};
use crate::log_path::{commit_name, log_file_path};
use crate::segment::{Listing, check_listed};
use crate::storage::{LogFileEntry, Storage};

/// Bytes to read for an in-commit timestamp: by PROTOCOL `commitInfo` is the first action of such a commit.
const FIRST_LINE_BYTES: usize = 16 << 10;

/// The start of a table's in-commit timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InCommitTimestamps {
    /// The version; 0 if the table always had them.
    from_version: i64,
    /// The timestamp of that version; `None` if the metadata has none, because there are no earlier versions.
    from_ms: Option<i64>,
}

impl InCommitTimestamps {
    /// Returns `None` if in-commit timestamps do not apply.
    pub(crate) fn of(protocol: &Protocol, metadata: &Metadata) -> Option<Self> {
        let number = |name| metadata.property(name).and_then(|value| value.parse().ok());
        let is_enabled = metadata
            .property("delta.enableInCommitTimestamps")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        (is_enabled && protocol.supports_in_commit_timestamps()).then(|| Self {
            from_version: number("delta.inCommitTimestampEnablementVersion").unwrap_or(0),
            from_ms: number("delta.inCommitTimestampEnablementTimestamp"),
        })
    }

    pub(crate) fn covers(&self, version: i64) -> bool {
        version >= self.from_version
    }
}

/// The commits of a table with their timestamps.
#[derive(Debug)]
pub struct History {
    storage: Storage,
    root: String,
    /// All versions that can be rebuilt and have their commit, ascending.
    commits: Vec<Commit>,
    in_commit: Option<InCommitTimestamps>,
    /// The latest version, whose commit may be gone.
    latest: i64,
}

#[derive(Debug)]
struct Commit {
    version: i64,
    file: LogFileEntry,
    /// The timestamp by modification times.
    modified_ms: i64,
}

impl History {
    /// Lists the whole log. `protocol` and `metadata` are of the latest version.
    pub fn read(storage: &Storage, root: &str, protocol: &Protocol, metadata: &Metadata) -> Result<Self> {
        let listing = Listing::read(storage, root, 0)?;
        let earliest = listing.earliest().ok_or_else(Error::no_log)?;
        let latest = listing.latest().unwrap_or(earliest);
        let commits = listing
            .timestamps_ms(i64::MAX)
            .zip(listing.commits.values())
            .filter(|((version, _), _)| *version >= earliest)
            .map(|((version, modified_ms), file)| Commit { version, file: file.clone(), modified_ms })
            .collect();
        let in_commit = InCommitTimestamps::of(protocol, metadata);
        Ok(Self { storage: storage.clone(), root: root.to_owned(), commits, in_commit, latest })
    }

    /// Returns an error if the listing lacks the commit of a version that was known before, and the commit is still there.
    pub(crate) fn check_listed(&self, version: i64, commit: Option<&LogFileEntry>) -> Result<()> {
        let last = self.commits.last().map_or(-1, |last| last.version);
        check_listed(&self.storage, &self.root, last, (version, commit))
    }

    /// Returns the commit timestamp of a version, in milliseconds since the epoch; `None` without its commit.
    pub fn timestamp_ms(&self, version: i64) -> Result<Option<i64>> {
        let position = self.commits.binary_search_by_key(&version, |commit| commit.version);
        position.ok().map(|index| self.at(index)).transpose()
    }

    /// Returns the first version committed at or after a timestamp; [`Error::TimestampOutOfRange`] after the last
    /// one.
    pub fn version_at_or_after(&self, timestamp_ms: i64) -> Result<i64> {
        let index = match self.by_modification(timestamp_ms) {
            Some(commits) => {
                commits.iter().position(|commit| commit.modified_ms >= timestamp_ms).unwrap_or(commits.len())
            }
            None => self.first_in_commit_at_or_after(timestamp_ms)?,
        };
        let commit = self.commits.get(index);
        commit.map(|commit| commit.version).map_or_else(|| Err(self.out_of_range(timestamp_ms)?), Ok)
    }

    /// Returns the last version committed at or before a timestamp; [`Error::TimestampOutOfRange`] before the first
    /// one.
    pub fn version_at_or_before(&self, timestamp_ms: i64) -> Result<i64> {
        let behind = match (self.by_modification(timestamp_ms), timestamp_ms.checked_add(1)) {
            (Some(commits), _) => commits
                .iter()
                .rposition(|commit| commit.modified_ms <= timestamp_ms)
                .map_or(0, |last| last + 1),
            (None, Some(next)) => self.first_in_commit_at_or_after(next)?,
            (None, None) => self.commits.len(),
        };
        let commit = behind.checked_sub(1).and_then(|index| self.commits.get(index));
        commit.map(|commit| commit.version).map_or_else(|| Err(self.out_of_range(timestamp_ms)?), Ok)
    }

    /// Returns the version of a time travel query: as [`Self::version_at_or_before`], but a timestamp after the last
    /// commit is [`Error::TimestampOutOfRange`] as well, because that version is not final.
    pub fn version_as_of(&self, timestamp_ms: i64) -> Result<i64> {
        let version = self.version_at_or_before(timestamp_ms)?;
        match self.commits.len().checked_sub(1) {
            Some(last) if self.at(last)? < timestamp_ms => Err(self.out_of_range(timestamp_ms)?),
            _ => Ok(version),
        }
    }

    /// The commits without in-commit timestamps, if a time is among theirs.
    fn by_modification(&self, timestamp_ms: i64) -> Option<&[Commit]> {
        let split = self.first_in_commit();
        let is_before_enablement =
            self.in_commit.is_none_or(|in_commit| in_commit.from_ms.is_some_and(|from| timestamp_ms < from));
        (split == self.commits.len() || is_before_enablement && split > 0).then(|| &self.commits[..split])
    }

    /// The index of the first commit at or after a time, among those with in-commit timestamps; the number of commits
    /// if there is none. Searches by bisection; each step reads the start of one commit.
    fn first_in_commit_at_or_after(&self, timestamp_ms: i64) -> Result<usize> {
        let (mut low, mut high) = (self.first_in_commit(), self.commits.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at(middle)? < timestamp_ms {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn first_in_commit(&self) -> usize {
        self.in_commit.map_or(self.commits.len(), |in_commit| {
            self.commits.partition_point(|commit| !in_commit.covers(commit.version))
        })
    }

    fn at(&self, index: usize) -> Result<i64> {
        let commit = &self.commits[index];
        if index < self.first_in_commit() {
            return Ok(commit.modified_ms);
        }
        let timestamp_ms = in_commit_timestamp_ms(&self.storage, &self.root, &commit.file)?;
        timestamp_ms.ok_or_else(|| no_in_commit_timestamp(&commit.file.name))
    }

    fn out_of_range(&self, requested_ms: i64) -> Result<Error> {
        let Some(last) = self.commits.len().checked_sub(1) else {
            // The log is there: cleanup left its checkpoint alone.
            return Ok(Error::FileNotFound { file: commit_name(self.latest) });
        };
        Ok(Error::TimestampOutOfRange { requested_ms, earliest_ms: self.at(0)?, latest_ms: self.at(last)? })
    }
}

/// Reads the in-commit timestamp of a commit, if any.
pub(crate) fn in_commit_timestamp_ms(
    storage: &Storage,
    root: &str,
    file: &LogFileEntry,
) -> Result<Option<i64>> {
    let whole =
        || Ok(CommitFile::parse(&file.name, &storage.read_log_file(root, file)?)?.in_commit_timestamp_ms);
    if file.is_staged() {
        return whole();
    }
    let stored = storage.open_listed(&log_file_path(root, &file.name), file)?;
    let start = stored.read_range(0, FIRST_LINE_BYTES.min(stored.size() as usize))?;
    let first_line = memchr::memchr(b'\n', &start).map(|end| start.slice(..end));
    let from_first_line = first_line
        .and_then(|line| CommitFile::parse(&file.name, &line).ok())
        .and_then(|commit| commit.in_commit_timestamp_ms);
    match from_first_line {
        Some(timestamp_ms) => Ok(Some(timestamp_ms)),
        None => whole(),
    }
}

/// The error for a commit that lacks its required in-commit timestamp.
pub(crate) fn no_in_commit_timestamp(file: &str) -> Error {
    Error::corrupt(
        file,
        "in-commit timestamps are enabled and this commit has none; read its version by number, not by time",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::tests::writer::Log;

    /// Commits from `first` on, by modification time and in-commit timestamp.
    fn log_of(first: i64, commits: &[(u64, Option<i64>)]) -> Log {
        let table = Log::new();
        for (version, (modified_ms, in_commit)) in (first..).zip(commits) {
            let info = in_commit.map_or(String::new(), |at| format!(r#""inCommitTimestamp":{at}"#));
            let long = " ".repeat(if version % 2 == 0 { 0 } else { FIRST_LINE_BYTES });
            let lines = [format!("{{\"commitInfo\":{{{info}}}}}{long}"), "{\"txn\":{}}\n".to_owned()];
            table.write_commit(version, &lines);
            table.touch(&commit_name(version), *modified_ms);
        }
        table
    }

    fn history(log: &Log, properties: &[(&str, &str)]) -> History {
        let configuration = properties.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let metadata = Metadata { configuration, ..Metadata::default() };
        History::read(&Storage::local(), log.root(), &protocol(&["inCommitTimestamp"]), &metadata).unwrap()
    }

    fn protocol(writer_features: &[&str]) -> Protocol {
        Protocol {
            min_reader_version: 1,
            min_writer_version: 7,
            reader_features: None,
            writer_features: Some(writer_features.iter().map(|name| (*name).into()).collect()),
        }
    }

    const ENABLED: (&str, &str) = ("delta.enableInCommitTimestamps", "true");
    const ENABLED_FROM_2: [(&str, &str); 3] = [
        ENABLED,
        ("delta.inCommitTimestampEnablementVersion", "2"),
        ("delta.inCommitTimestampEnablementTimestamp", "5000"),
    ];

    fn is_out_of_range<T>(result: &Result<T>) -> bool {
        matches!(result, Err(Error::TimestampOutOfRange { .. }))
    }

    #[test]
    fn modification_times_are_made_monotonic() {
        let history = history(&log_of(0, &[(1000, None), (1000, None), (500, None), (2000, None)]), &[]);
        let times: Vec<_> = (0..4).map(|version| history.timestamp_ms(version).unwrap().unwrap()).collect();
        assert_eq!(times, [1000, 1001, 1002, 2000]);
        assert_eq!(history.timestamp_ms(4).unwrap(), None);
    }

    #[test]
    fn a_time_finds_its_own_commit_and_its_neighbours() {
        let history = history(&log_of(0, &[(1000, None), (2000, None), (3000, None)]), &[]);
        for (time, after, before) in [(1000, 0, 0), (1001, 1, 0), (2000, 1, 1), (2999, 2, 1), (3000, 2, 2)] {
            assert_eq!(history.version_at_or_after(time).unwrap(), after, "{time}");
            assert_eq!(history.version_at_or_before(time).unwrap(), before, "{time}");
            assert_eq!(history.version_as_of(time).unwrap(), before, "{time}");
        }
        assert_eq!(history.version_at_or_after(i64::MIN).unwrap(), 0);
        assert_eq!(history.version_at_or_before(i64::MAX).unwrap(), 2);
        assert!(is_out_of_range(&history.version_at_or_after(3001)));
        assert!(is_out_of_range(&history.version_at_or_before(999)));
        assert!(is_out_of_range(&history.version_as_of(3001)));
    }

    #[test]
    fn in_commit_timestamps_count_from_the_version_that_enabled_them() {
        // The files of the later commits were copied: their modification times mean nothing.
        let log =
            log_of(0, &[(1000, None), (2000, None), (9000, Some(5000)), (100, Some(6000)), (0, Some(7000))]);
        let history = history(&log, &ENABLED_FROM_2);
        let times: Vec<_> = (0..5).map(|version| history.timestamp_ms(version).unwrap().unwrap()).collect();
        assert_eq!(times, [1000, 2000, 5000, 6000, 7000]);
        let expected = [
            (1000, 0, 0),
            (2000, 1, 1),
            (2001, 2, 1),
            (4999, 2, 1),
            (5000, 2, 2),
            (5001, 3, 2),
            (6000, 3, 3),
            (7000, 4, 4),
        ];
        for (time, after, before) in expected {
            assert_eq!(history.version_at_or_after(time).unwrap(), after, "{time}");
            assert_eq!(history.version_at_or_before(time).unwrap(), before, "{time}");
        }
        assert!(is_out_of_range(&history.version_at_or_after(7001)));
    }

    #[test]
    fn a_time_before_in_commit_timestamps_finds_no_file_that_is_written_later() {
        // The files of a copy are younger than all in-commit timestamps.
        let log = log_of(0, &[(8000, None), (9000, None), (9000, Some(5000))]);
        let history = history(&log, &ENABLED_FROM_2);
        for time in [4998, 4999] {
            assert!(is_out_of_range(&history.version_at_or_before(time)), "{time}");
        }
        assert_eq!(history.version_at_or_before(5000).unwrap(), 2);
    }

    #[test]
    fn a_table_that_always_had_in_commit_timestamps_needs_no_enablement_version() {
        let log = log_of(0, &[(9, Some(100)), (9, Some(200))]);
        let history = history(&log, &[ENABLED]);
        assert_eq!(history.version_at_or_after(150).unwrap(), 1);
        assert_eq!(history.version_at_or_before(150).unwrap(), 0);
        assert!(is_out_of_range(&history.version_at_or_before(99)));
    }

    #[test]
    fn a_commit_without_its_timestamp_is_corrupt() {
        let log = log_of(0, &[(9, Some(100)), (9, None)]);
        let history = history(&log, &[ENABLED]);
        let error = history.version_at_or_after(150).unwrap_err();
        assert!(matches!(error, Error::CorruptLog { .. }), "{error:?}");
        assert!(error.to_string().contains("in-commit timestamps are enabled"), "{error}");
        assert_eq!(history.timestamp_ms(0).unwrap(), Some(100));
    }

    #[test]
    fn in_commit_timestamps_need_the_table_feature_and_the_property() {
        let of = |protocol: &Protocol, (key, value): (&str, &str)| {
            let configuration = vec![(key.into(), value.into())];
            InCommitTimestamps::of(protocol, &Metadata { configuration, ..Metadata::default() })
        };
        let supported = protocol(&["appendOnly", "inCommitTimestamp"]);
        assert!(of(&supported, ENABLED).is_some());
        assert!(of(&supported, (ENABLED.0, "false")).is_none());
        assert!(of(&protocol(&["appendOnly"]), ENABLED).is_none());
        assert!(of(&Protocol { min_writer_version: 6, ..supported }, ENABLED).is_none());
    }

    #[test]
    fn commits_that_cannot_be_rebuilt_any_more_are_no_answer() {
        let log = log_of(4, &[(1000, None), (2000, None), (3000, None)]);
        log.write("00000000000000000005.checkpoint.parquet", "x");
        let history = history(&log, &[]);
        assert_eq!(history.version_at_or_after(0).unwrap(), 5);
        assert!(is_out_of_range(&history.version_at_or_before(1500)));
        assert_eq!(history.timestamp_ms(4).unwrap(), None);
    }

    #[test]
    fn a_log_without_commits_lacks_the_one_of_its_version() {
        let log = Log::new();
        log.write("00000000000000000005.checkpoint.parquet", "x");
        let history = history(&log, &[]);
        for found in
            [history.version_at_or_after(0), history.version_at_or_before(9), history.version_as_of(9)]
        {
            let error = found.unwrap_err();
            assert!(matches!(&error, Error::FileNotFound { file } if *file == commit_name(5)), "{error:?}");
        }
    }
}
