//! Finds out without a listing whether a known version is still the latest one.
//!
//! Two requests for properties run in parallel. The next commit must be absent: writers never skip a version. The commit
//! of the known version must be the listed one: otherwise the table was deleted, restored, or replaced by another one.
//! Any other result requires a listing, as do some cases that a probe cannot see: a newer checkpoint, a gap in the log.
//! So a listing also follows after [`MAX_UNLISTED`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Table;
use crate::log_path::{self, log_file_path};
use crate::snapshot::Snapshot;
use crate::storage::{FileProperties, LogFileEntry};
use crate::{Error, Result};

/// Maximum age of the last listing when a probe replaces the next one.
const MAX_UNLISTED: Duration = Duration::from_secs(60);

/// Listings in a row that a probe requires and that find nothing new, until probes pause. The store denies requests for
/// absent files, or sends other properties than it lists.
const MAX_USELESS: u32 = 2;

const PAUSE: Duration = Duration::from_secs(600);

/// A refresh without a listing.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) known: Arc<Snapshot>,
    /// When it began.
    pub(super) began: Instant,
    /// The commit of the known version, as it was listed.
    pub(super) commit: LogFileEntry,
    paths: [String; 2],
}

/// The result of a probe.
#[derive(Debug)]
pub struct Probed {
    /// The number under which the probe was started.
    pub number: u64,
    /// Its table.
    pub table: Arc<Table>,
    /// The latest version, or `None` if the log has to be listed, which [`Table::latest`] does.
    pub found: Result<Option<Arc<Snapshot>>>,
}

impl Probe {
    /// Returns the probe of a version. `None` if log cleanup deleted its commit, which identifies the table.
    pub(super) fn of(known: &Arc<Snapshot>, root: &str, began: Instant) -> Option<Self> {
        let commit = known.segment().version_commit.clone()?;
        let next = log_path::commit_name(known.version().checked_add(1)?);
        let paths = [log_file_path(root, &next), log_file_path(root, &commit.name)];
        Some(Self { known: Arc::clone(known), began, commit, paths })
    }

    /// The next commit and the known one.
    pub(super) fn paths(&self) -> &[String; 2] {
        &self.paths
    }
}

/// A listed commit, and the entity tag that the store sends with it.
#[derive(Debug, PartialEq, Eq)]
struct SentTag {
    listed: LogFileEntry,
    sent: Option<Box<str>>,
}

/// The earlier probes and listings of a table.
#[derive(Debug, Default)]
pub(super) struct ProbeHistory {
    listed_at: Option<Instant>,
    /// Whether the last probe required a listing that has not ended.
    requires_listing: bool,
    /// Listings in a row that a probe required and that found nothing new.
    useless: u32,
    paused_until: Option<Instant>,
    /// The tag that the store sends for a commit with another listed tag. Known once a listing has shown the commit
    /// unchanged after such a tag.
    sent_tag: Option<SentTag>,
    /// As `sent_tag`, before that listing.
    differing_tag: Option<SentTag>,
    /// The commit that a probe has found after the known one, until a listing has it.
    pub(super) next: Option<(i64, LogFileEntry)>,
}

impl ProbeHistory {
    pub(super) fn is_listing_due(&self, now: Instant) -> bool {
        self.requires_listing
            || self.paused_until.is_some_and(|until| now < until)
            || self.listed_at.is_none_or(|listed_at| now.saturating_duration_since(listed_at) >= MAX_UNLISTED)
    }

    /// Records a listing that began at `began`, and whether it found nothing new.
    pub(super) fn listed(&mut self, began: Instant, is_unchanged: bool) {
        self.listed_at = Some(began);
        self.next = None;
        let was_required = std::mem::take(&mut self.requires_listing);
        if let Some(tag) = self.differing_tag.take().filter(|_| is_unchanged) {
            self.sent_tag = Some(tag);
        }
        if !is_unchanged {
            self.useless = 0;
        } else if was_required {
            self.useless += 1;
        }
        if self.useless >= MAX_USELESS {
            self.useless = 0;
            self.paused_until = Some(began + PAUSE);
        }
    }

    /// Returns whether the results of a probe show that `version`, with the `listed` commit, is still the latest one.
    pub(super) fn is_unchanged(
        &mut self,
        version: i64,
        listed: &LogFileEntry,
        found: Result<[Option<FileProperties>; 2]>,
    ) -> Result<bool> {
        let is_unchanged = match found {
            Ok([None, Some(commit)]) => self.is_listed_commit(listed, commit),
            Ok([Some(next), Some(commit)]) if commit.matches(listed).is_some() => {
                let version = version.saturating_add(1);
                self.next = Some((version, next.into_entry(log_path::commit_name(version))));
                false
            }
            // An absent object is denied where its bucket may not be listed; a listing shows the difference.
            // Some stores refuse requests for properties alone.
            Ok(_) | Err(Error::StorageDenied { .. } | Error::StorageRefused { .. }) => false,
            Err(error) => return Err(error),
        };
        if is_unchanged {
            self.useless = 0;
        } else {
            self.requires_listing = true;
        }
        Ok(is_unchanged)
    }

    fn is_listed_commit(&mut self, listed: &LogFileEntry, properties: FileProperties) -> bool {
        match properties.matches(listed) {
            None => false,
            Some(true) => true,
            Some(false) => {
                let tag = SentTag { listed: listed.clone(), sent: properties.entity_tag };
                let is_known = self.sent_tag.as_ref() == Some(&tag);
                self.differing_tag = Some(tag).filter(|_| !is_known);
                is_known
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(tag: &str) -> LogFileEntry {
        let (name, entity_tag) = (log_path::commit_name(3), Some(tag.into()));
        LogFileEntry { name, size: 10, modified_ms: 5_700, entity_tag, identity: 0 }
    }

    fn sent(tag: Option<&str>) -> FileProperties {
        FileProperties { size: 10, modified_s: 5, entity_tag: tag.map(Box::from), identity: 0 }
    }

    #[test]
    fn a_version_is_unchanged_only_if_its_commit_is_the_listed_one_and_the_next_one_is_absent() {
        let commit = listed("a");
        let other_size = FileProperties { size: 11, ..sent(Some("a")) };
        let other_time = FileProperties { modified_s: 6, ..sent(Some("a")) };
        for (found, expected) in [
            ([None, Some(sent(Some("a")))], true),
            ([Some(sent(None)), Some(sent(Some("a")))], false),
            ([None, None], false),
            ([None, Some(sent(Some("b")))], false),
            ([None, Some(other_size)], false),
            ([None, Some(other_time)], false),
        ] {
            let mut history = ProbeHistory { listed_at: Some(Instant::now()), ..Default::default() };
            assert_eq!(history.is_unchanged(3, &commit, Ok(found.clone())).unwrap(), expected, "{found:?}");
            assert_eq!(history.is_listing_due(Instant::now()), !expected);
        }
    }

    #[test]
    fn the_next_commit_is_remembered_until_a_listing_if_the_known_one_is_the_listed_one() {
        let next = FileProperties { size: 7, modified_s: 9, ..sent(Some("n")) };
        for (known, is_found) in [(Some(sent(Some("a"))), true), (Some(sent(None)), true), (None, false)] {
            let mut history = ProbeHistory::default();
            assert!(!history.is_unchanged(3, &listed("a"), Ok([Some(next.clone()), known])).unwrap());
            let found = history.next.take().filter(|(version, commit)| {
                *version == 4 && commit.name == log_path::commit_name(4) && next.matches(commit) == Some(true)
            });
            assert_eq!(found.is_some(), is_found);
            history.next = found;
            history.listed(Instant::now(), true);
            assert_eq!(history.next, None);
        }
    }

    #[test]
    fn a_listing_is_due_before_the_first_probe_and_after_a_minute() {
        let mut history = ProbeHistory::default();
        let now = Instant::now();
        assert!(history.is_listing_due(now));
        history.listed(now, false);
        let due = now + MAX_UNLISTED;
        assert!(!history.is_listing_due(due.checked_sub(Duration::from_millis(1)).unwrap()));
        assert!(history.is_listing_due(due));
    }

    #[test]
    fn probes_pause_where_the_store_denies_requests_for_absent_files() {
        let mut history = ProbeHistory::default();
        let now = Instant::now();
        history.listed(now, false);
        for _ in 0..MAX_USELESS {
            assert!(!history.is_listing_due(now));
            let denied = Err(Error::StorageDenied { detail: String::new() });
            assert!(!history.is_unchanged(3, &listed("a"), denied).unwrap());
            history.listed(now, true);
        }
        let resumed = now + PAUSE;
        assert!(history.is_listing_due(resumed.checked_sub(Duration::from_millis(1)).unwrap()));
        history.listed(resumed, true);
        assert!(!history.is_listing_due(resumed));
    }

    #[test]
    fn a_storage_that_does_not_answer_is_an_error_and_requires_no_listing() {
        let mut history = ProbeHistory::default();
        history.listed(Instant::now(), false);
        let down = Err(Error::StorageUnavailable { detail: String::new() });
        assert!(matches!(history.is_unchanged(3, &listed("a"), down), Err(Error::StorageUnavailable { .. })));
        assert!(!history.is_listing_due(Instant::now()));
    }

    #[test]
    fn a_store_that_sends_another_tag_than_it_lists_is_known_after_one_listing() {
        for tag in [Some("other"), None] {
            let mut history = ProbeHistory::default();
            let (now, commit) = (Instant::now(), listed("a"));
            history.listed(now, false);
            let ask = |history: &mut ProbeHistory, tag| {
                history.is_unchanged(3, &commit, Ok([None, Some(sent(tag))])).unwrap()
            };
            assert!(!ask(&mut history, tag));
            history.listed(now, true);
            assert!(ask(&mut history, tag) && ask(&mut history, tag));
            assert!(!ask(&mut history, Some("third")), "the file was replaced");
            history.listed(now, false);
            assert!(ask(&mut history, tag) && !ask(&mut history, Some("third")));
        }
    }
}
