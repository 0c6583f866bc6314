//! Snapshots that later requests come back to: the next page of an answer, a version that was asked for by number.
//!
//! A page goes on in the order of the first one, which only the very files that gave it can tell; log cleanup may
//! take them while a client still reads. So what was begun stays in memory for as long as it is used, and the
//! least recently used leaves first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::segment::LogIdentity;
use crate::snapshot::Snapshot;

/// As many readers may be amid their pages of as many versions.
const MAX_SNAPSHOTS: usize = 128;
/// What their replay sets may take together. The newest snapshot is kept whatever it takes.
const MAX_BYTES: usize = 32 << 20;
/// Clients ask for a page when they have read the one before.
const MAX_IDLE: Duration = Duration::from_secs(3600);

/// Most recently used last.
#[derive(Debug, Default)]
pub(super) struct Remembered(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    snapshot: Arc<Snapshot>,
    used_at: Instant,
}

impl Remembered {
    pub(super) fn version(&mut self, version: i64, now: Instant) -> Option<Arc<Snapshot>> {
        self.find(now, |snapshot| snapshot.version() == version)
    }

    pub(super) fn identity(&mut self, identity: &LogIdentity, now: Instant) -> Option<Arc<Snapshot>> {
        self.find(now, |snapshot| snapshot.has_identity(identity))
    }

    pub(super) fn insert(&mut self, snapshot: &Arc<Snapshot>, now: Instant) {
        let identity = snapshot.identity();
        self.0.retain(|entry| !entry.snapshot.has_identity(&identity));
        self.0.push(Entry { snapshot: Arc::clone(snapshot), used_at: now });
        let mut bytes = 0;
        let fitting = self.0.iter().rev().take(MAX_SNAPSHOTS).take_while(|entry| {
            bytes += entry.snapshot.decided().bytes();
            Arc::ptr_eq(&entry.snapshot, snapshot)
                || bytes <= MAX_BYTES && now.saturating_duration_since(entry.used_at) < MAX_IDLE
        });
        let kept = fitting.count();
        self.0.drain(..self.0.len() - kept);
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Snapshot) -> bool) {
        self.0.retain(|entry| is_kept(&entry.snapshot));
    }

    fn find(&mut self, now: Instant, is_wanted: impl Fn(&Snapshot) -> bool) -> Option<Arc<Snapshot>> {
        let place =
            self.0.iter().rposition(|entry| !entry.snapshot.is_lost() && is_wanted(&entry.snapshot))?;
        let mut found = self.0.remove(place);
        found.used_at = now;
        let snapshot = Arc::clone(&found.snapshot);
        self.0.push(found);
        Some(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::checkpoint::tests::writer::Log;
    use crate::log_path::commit_name;
    use crate::snapshot::At;
    use crate::storage::Storage;

    /// Snapshots of a log's first versions.
    fn snapshots(count: i64) -> Vec<Arc<Snapshot>> {
        let log = Log::new();
        let first = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
            {"metaData":{"id":"t","format":{"provider":"parquet"},"schemaString":"{}","partitionColumns":[]}}"#
            .replace("            ", "");
        let load = |version| {
            let content = if version == 0 { first.as_bytes() } else { b"" };
            log.write(&commit_name(version), content);
            Snapshot::load(&Storage::local(), log.root(), At::Version(version), None).unwrap()
        };
        (0..count).map(load).collect()
    }

    #[test]
    fn the_least_recently_used_leaves_first() {
        let now = Instant::now();
        let snapshots = snapshots(MAX_SNAPSHOTS as i64 + 1);
        let (last, others) = snapshots.split_last().unwrap();
        let mut remembered = Remembered::default();
        for snapshot in others {
            remembered.insert(snapshot, now);
        }
        assert!(remembered.version(0, now).is_some());
        remembered.insert(last, now);
        assert!(remembered.version(1, now).is_none());
        for version in [0, 2, last.version()] {
            assert_eq!(remembered.version(version, now).unwrap().version(), version);
        }
    }

    #[test]
    fn what_nobody_used_for_long_leaves_with_the_next_one_that_comes() {
        let now = Instant::now();
        let snapshots = snapshots(3);
        let mut remembered = Remembered::default();
        remembered.insert(&snapshots[0], now);
        remembered.insert(&snapshots[1], now);
        let later = now + MAX_IDLE / 2;
        assert!(remembered.identity(&snapshots[0].identity(), later).is_some());
        remembered.insert(&snapshots[2], now + MAX_IDLE);
        assert!(remembered.version(1, later).is_none());
        assert!(remembered.version(0, later).is_some());
    }

    #[test]
    fn a_snapshot_that_lost_its_files_is_not_found() {
        let now = Instant::now();
        let snapshot = snapshots(1).remove(0);
        let mut remembered = Remembered::default();
        remembered.insert(&snapshot, now);
        snapshot.note(&Error::FileNotFound { file: "a".into() });
        assert!(remembered.version(0, now).is_none());
    }
}
