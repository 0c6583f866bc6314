//! The commits that the catalog of a table has ratified, joined with listings of its log (PROTOCOL, section
//! Catalog-managed tables).
//!
//! Takes the catalog's answers. A listing then has the ratified commits that are not published yet, and no version after
//! the latest ratified one. Each listing uses an answer from before it began: what is published since the answer is
//! listed. The commit of the catalog counts, not a published file of its version.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::LogFileEntry;
use crate::error::{Error, Result};
use crate::hashing::hex_text;
use crate::lock::lock;
use crate::log_path::{LOG_DIRECTORY, LogFileName, STAGED_COMMITS, commit_name};

/// Why neither the answer of the catalog nor the log alone is read.
pub(crate) const DIFFER: &str = "the catalog and the log differ on whether a catalog manages the table";

/// A commit of the catalog's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RatifiedCommit {
    /// The version.
    pub version: i64,
    /// The staged file. An inline commit has a name of the same form, which no file has.
    pub file: LogFileEntry,
    /// The content of an inline commit.
    pub content: Option<Bytes>,
}

impl RatifiedCommit {
    /// A commit in a file of `_staged_commits/`, with the properties that the catalog states.
    #[must_use]
    pub fn staged(version: i64, file_name: &str, size: u64, modified_ms: i64) -> Self {
        Self { version, file: entry(file_name, size, modified_ms), content: None }
    }

    /// A commit whose content the catalog has.
    #[must_use]
    pub fn inline(version: i64, content: Bytes, modified_ms: i64) -> Self {
        let file_name = format!("{version:020}.inline.json");
        // The name is not unique, as after a restore of the catalog.
        let entity_tag = Some(hex_text(&Sha256::digest(&content).into()).into_boxed_str());
        let file = LogFileEntry { entity_tag, ..entry(&file_name, content.len() as u64, modified_ms) };
        Self { version, file, content: Some(content) }
    }
}

fn entry(file_name: &str, size: u64, modified_ms: i64) -> LogFileEntry {
    let name = format!("{STAGED_COMMITS}/{file_name}");
    LogFileEntry { name, size, modified_ms, entity_tag: None, identity: 0 }
}

/// An answer of the catalog.
#[derive(Debug, PartialEq, Eq)]
pub struct Ratified {
    latest: Option<i64>,
    commits: Vec<RatifiedCommit>,
}

impl Ratified {
    /// `latest` is the latest ratified version; `None` if the catalog does not manage the table. Returns
    /// [`Error::InvalidArgument`] for commits that no table has, and for a list with a gap: what lies in the log for the
    /// version that is left out need not be ratified.
    pub fn new(latest: Option<i64>, mut commits: Vec<RatifiedCommit>) -> Result<Self> {
        commits.sort_by_key(|commit| commit.version);
        let is_of_table = |commit: &RatifiedCommit| {
            (0..=latest.unwrap_or(-1)).contains(&commit.version)
                && LogFileName::parse(&commit.file.name) == Some(LogFileName::Commit(commit.version))
        };
        let is_whole = || {
            commits.windows(2).all(|pair| pair[1].version - pair[0].version == 1)
                && commits.last().is_none_or(|last| Some(last.version) == latest)
        };
        if latest.is_some_and(|latest| latest < 0) || !commits.iter().all(is_of_table) || !is_whole() {
            return Err(Error::InvalidArgument("the catalog names commits that no table has".into()));
        }
        Ok(Self { latest, commits })
    }

    pub(crate) fn latest(&self) -> Option<i64> {
        self.latest
    }

    /// The place of a version among the commits, which have no gap.
    fn place(&self, version: i64) -> Option<usize> {
        let place = usize::try_from(version.checked_sub(self.commits.first()?.version)?).ok()?;
        (place < self.commits.len()).then_some(place)
    }

    /// Returns the files of a listing that began at a name, with those of the catalog. A missing latest version is
    /// [`Error::CorruptLog`], as is an answer that the catalog does not manage the table.
    fn join(&self, mut entries: Vec<LogFileEntry>, from_name: &str) -> Result<Vec<LogFileEntry>> {
        let latest = self.latest.ok_or_else(|| Error::corrupt(LOG_DIRECTORY, DIFFER))?;
        entries.retain(|entry| LogFileName::parse(&entry.name).is_none_or(|name| name.version() <= latest));
        let mut published = vec![false; self.commits.len()];
        for entry in &mut entries {
            let Some(LogFileName::Commit(version)) = LogFileName::parse(&entry.name) else { continue };
            let Some(place) = self.place(version) else { continue };
            if entry.name == *commit_name(version) {
                *entry = self.commits[place].file.clone();
                published[place] = true;
            }
        }
        let unpublished = self.commits.iter().zip(published).filter(|(_, is_published)| !is_published);
        entries.extend(
            unpublished
                .filter(|(commit, _)| *commit_name(commit.version) >= *from_name)
                .map(|(commit, _)| commit.file.clone()),
        );
        let has_latest = |entry: &LogFileEntry| match LogFileName::parse(&entry.name) {
            Some(LogFileName::Checksum(_)) | None => false,
            Some(name) => name.version() == latest,
        };
        if *commit_name(latest) >= *from_name && !entries.iter().any(has_latest) {
            return Err(Error::corrupt(commit_name(latest), "the commit is ratified and missing"));
        }
        Ok(entries)
    }
}

/// What the catalog of a table has answered. Every listing of the table uses the last answer.
#[derive(Debug, Default)]
pub struct TableCatalog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last answer, and when it was requested.
    answer: Option<(Arc<Ratified>, Instant)>,
    /// Whether the catalog does not manage the table, as its log says, too: the log alone has its versions.
    is_released: bool,
}

impl TableCatalog {
    /// Takes an answer that was requested at `asked_at`.
    pub fn ratify(&self, answer: Ratified, asked_at: Instant) {
        let mut state = lock(&self.0);
        if let Some((known, at)) = &mut state.answer
            && **known == answer
        {
            *at = asked_at;
            return;
        }
        // Before a refresh has read that no catalog manages the table, no request may read the log without one.
        *state = State { is_released: false, answer: Some((Arc::new(answer), asked_at)) };
    }

    /// The last answer. An equal one is the same value.
    pub(crate) fn answer(&self) -> Option<Arc<Ratified>> {
        lock(&self.0).answer.as_ref().map(|(answer, _)| Arc::clone(answer))
    }

    /// When the last answer was requested.
    #[must_use]
    pub fn asked_at(&self) -> Option<Instant> {
        lock(&self.0).answer.as_ref().map(|(_, asked_at)| *asked_at)
    }

    pub(crate) fn is_released(&self) -> bool {
        lock(&self.0).is_released
    }

    /// Changes whether the versions of the log count without the catalog, until its next other answer.
    pub(crate) fn release(&self, is_released: bool) {
        lock(&self.0).is_released = is_released;
    }

    /// Returns the same answer with or without the release.
    pub(crate) fn with_release(&self, is_released: bool) -> Self {
        Self(Mutex::new(State { answer: lock(&self.0).answer.clone(), is_released }))
    }

    /// Lists by `list`, which begins after the answer of the catalog, and joins both.
    pub(super) fn joined(
        &self,
        from_name: &str,
        list: impl FnOnce() -> Result<Vec<LogFileEntry>>,
    ) -> Result<Vec<LogFileEntry>> {
        let detail = || "the catalog of the table has not answered".into();
        let answer = self.answer().ok_or_else(|| Error::StorageUnavailable { detail: detail() })?;
        let is_released = self.is_released();
        let entries = list()?;
        if is_released { Ok(entries) } else { answer.join(entries, from_name) }
    }

    /// The content of an inline commit, as long as the catalog has it.
    pub(super) fn inline(&self, file: &LogFileEntry) -> Option<Bytes> {
        let answer = self.answer()?;
        let commit = &answer.commits[answer.place(LogFileName::parse(&file.name)?.version())?];
        (commit.file == *file).then(|| commit.content.clone())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSIONS: i64 = 6;

    fn published(version: i64) -> LogFileEntry {
        LogFileEntry { name: commit_name(version), ..entry("", 1, 0) }
    }

    fn answer(versions: std::ops::Range<i64>, latest: i64) -> Ratified {
        let staged = |version| RatifiedCommit::staged(version, &format!("{version:020}.a.json"), 2, 0);
        Ratified::new(Some(latest), versions.map(staged).collect()).unwrap()
    }

    /// Joins commit by commit, each with a search of the whole listing.
    fn one_by_one(answer: &Ratified, mut entries: Vec<LogFileEntry>, from_name: &str) -> Vec<LogFileEntry> {
        entries.retain(|entry| {
            LogFileName::parse(&entry.name).is_none_or(|name| Some(name.version()) <= answer.latest)
        });
        for commit in &answer.commits {
            let name = commit_name(commit.version);
            match entries.iter().position(|entry| entry.name == name) {
                Some(place) => entries[place] = commit.file.clone(),
                None if *name >= *from_name => entries.push(commit.file.clone()),
                None => {}
            }
        }
        entries
    }

    #[test]
    fn a_joined_listing_is_the_one_of_each_commit_in_turn() {
        let mut compared = 0;
        for latest in 0..VERSIONS {
            for first in 0..=latest + 1 {
                let answer = answer(first..latest + 1, latest);
                for listed in 0..1_u32 << VERSIONS {
                    for from in 0..=VERSIONS {
                        let from_name = commit_name(from);
                        let mut entries: Vec<_> = (from..VERSIONS)
                            .filter(|version| listed >> version & 1 == 1)
                            .map(published)
                            .collect();
                        entries.push(entry("unknown", 3, 0));
                        let expected = one_by_one(&answer, entries.clone(), &from_name);
                        if let Ok(joined) = answer.join(entries, &from_name) {
                            assert_eq!(joined, expected);
                            compared += 1;
                        }
                    }
                }
            }
        }
        assert!(compared > 5_000, "{compared}");
    }

    #[test]
    fn an_inline_commit_is_read_by_its_file_alone() {
        let inline = RatifiedCommit::inline(3, Bytes::from_static(b"content"), 0);
        let file = inline.file.clone();
        let catalog = TableCatalog::default();
        assert_eq!(catalog.inline(&file), None);
        let staged = RatifiedCommit::staged(2, &format!("{:020}.a.json", 2), 2, 0);
        catalog.ratify(Ratified::new(Some(3), vec![staged.clone(), inline]).unwrap(), Instant::now());
        assert_eq!(catalog.inline(&file), Some(Bytes::from_static(b"content")));
        assert_eq!(catalog.inline(&LogFileEntry { size: 1, ..file }), None);
        assert_eq!(catalog.inline(&staged.file), None);
        assert_eq!(catalog.inline(&published(7)), None);
    }
}
