//! Finds the latest version of a table.
//!
//! A refresh finds it, and concurrent requests share the refresh. If a version is known, two requests for the
//! properties of files replace the listing: the next commit must be absent, and the commit of the known version
//! unchanged. See [`super::probe`]. The latest version goes back only if its commit is gone, as after a restore: a listing
//! that is late or short does not show an older table.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Table;
use super::probe::Probe;
use crate::lock::lock;
use crate::log_path;
use crate::pool::{self, Pool, Task};
use crate::segment::check_listed;
use crate::snapshot::{Base, Snapshot, TimeTravel};
use crate::storage::{DIFFER, FileProperties, LogFileEntry, Ratified};
use crate::{Error, Result};

/// Maximum age of the last refresh when a cached version is requested by number. The table may have been replaced by
/// another one since, which only a refresh detects.
const MAX_UNREFRESHED: Duration = Duration::from_secs(10);

/// The latest version. The cache owns its snapshot, within the budget of the process; it is loaded again after an
/// eviction.
#[derive(Debug, Clone)]
pub(super) struct Latest {
    pub(super) snapshot: Weak<Snapshot>,
    version: i64,
    commit: Option<LogFileEntry>,
    table_id: String,
    /// When the refresh that found it began, or the catalog's answer that it used was requested.
    refreshed_at: Instant,
    /// The catalog's answer that it was listed with.
    ratified: Option<Arc<Ratified>>,
}

impl Latest {
    fn of(snapshot: &Arc<Snapshot>, refreshed_at: Instant, ratified: Option<Arc<Ratified>>) -> Self {
        Self {
            snapshot: Arc::downgrade(snapshot),
            version: snapshot.version(),
            commit: snapshot.segment().version_commit.clone(),
            table_id: snapshot.metadata().id.clone(),
            refreshed_at,
            ratified,
        }
    }

    /// Returns whether the catalog has not answered otherwise since.
    fn is_of(&self, ratified: Option<&Arc<Ratified>>) -> bool {
        self.ratified.as_ref().map(Arc::as_ptr) == ratified.map(Arc::as_ptr)
    }

    /// Returns an error if a later listing ends with version `last` although this one is still there.
    pub(super) fn check_listed(&self, table: &Table, last: i64) -> Result<()> {
        check_listed(&table.storage, &table.root, last, (self.version, self.commit.as_ref()))
    }

    /// The snapshot, unless it was evicted or lost a file.
    fn usable(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.upgrade().filter(|snapshot| !snapshot.is_lost())
    }
}

#[derive(Debug)]
pub(super) struct FailedRefresh {
    began: Instant,
    error: Error,
}

impl Table {
    /// Returns the latest version as of a refresh that is at most `max_staleness` old.
    pub fn latest(self: &Arc<Self>, max_staleness: Duration, pool: &Pool) -> Result<Arc<Snapshot>> {
        let requested_at = Instant::now();
        self.latest_if_fresh(max_staleness, pool).map_or_else(|| self.refresh(requested_at), Ok)
    }

    /// As [`Self::latest`], but never reads: returns `None` if the last refresh is too old. After half of
    /// `max_staleness` starts the next refresh on `pool` in the background.
    #[must_use]
    pub fn latest_if_fresh(self: &Arc<Self>, max_staleness: Duration, pool: &Pool) -> Option<Arc<Snapshot>> {
        let latest = lock(&self.latest).clone()?;
        let age = latest.refreshed_at.elapsed();
        if age >= max_staleness {
            return None;
        }
        let snapshot = latest.usable()?;
        self.remember(&snapshot);
        // A refresh in the background would use the last answer of a catalog.
        let is_due = age > max_staleness / 2 && self.storage.catalog().is_none();
        if is_due && !self.refreshing.swap(true, Ordering::AcqRel) {
            pool.submit(Arc::new(BackgroundRefresh(Arc::clone(self))));
        }
        Some(snapshot)
    }

    /// Returns the latest known snapshot if its refresh is at most `max_age` old. Neither reads nor starts a read,
    /// so it does not depend on the storage.
    #[must_use]
    pub fn latest_known(&self, max_age: Duration) -> Option<Arc<Snapshot>> {
        let latest = lock(&self.latest).clone()?;
        if latest.refreshed_at.elapsed() <= max_age { latest.usable() } else { None }
    }

    /// The latest version by a refresh that is at most `max_staleness` old if it has `version`, otherwise by a new
    /// refresh.
    pub(super) fn latest_covering(&self, version: i64, max_staleness: Duration) -> Result<i64> {
        let known = lock(&self.latest).clone().filter(|latest| {
            latest.refreshed_at.elapsed() < max_staleness
                && latest.version >= version
                && !latest.snapshot.upgrade().is_some_and(|snapshot| snapshot.is_lost())
        });
        match known {
            Some(known) => Ok(known.version),
            None => Ok(self.refresh(Instant::now())?.version()),
        }
    }

    /// Refreshes if snapshots are cached and the last refresh is too old. A deleted table is an error; other
    /// failures are ignored without a catalog, and cached snapshots are used.
    pub(super) fn refresh_if_stale(&self) -> Result<()> {
        let requested_at = Instant::now();
        let latest = lock(&self.latest).clone();
        let is_seen = latest.as_ref().is_some_and(|latest| {
            requested_at.saturating_duration_since(latest.refreshed_at) < MAX_UNREFRESHED
                && latest.is_of(self.ratified().as_ref())
        });
        // A table with a catalog is listed once, which shows whether the catalog still manages it.
        let is_needless = latest.is_none() && self.storage.catalog().is_none();
        if is_seen || (is_needless && lock(&self.snapshots).all().is_empty()) {
            return Ok(());
        }
        match self.refresh(requested_at) {
            Err(error @ Error::TableNotFound { .. }) => Err(error),
            Ok(_) | Err(Error::UnsupportedFeature(_)) => Ok(()),
            // After a restore of the catalog, cached versions need not be those that are ratified.
            Err(error) if self.storage.catalog().is_some() => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// Returns whether the catalog was asked at most `max_age` ago, and the latest version was read by its answer.
    #[must_use]
    pub fn is_ratified(&self, max_age: Duration) -> bool {
        let asked_at = self.storage.catalog().and_then(|catalog| catalog.asked_at());
        let is_read =
            || lock(&self.latest).as_ref().is_some_and(|latest| latest.is_of(self.ratified().as_ref()));
        asked_at.is_some_and(|asked_at| asked_at.elapsed() <= max_age) && is_read()
    }

    pub(super) fn refresh(&self, requested_at: Instant) -> Result<Arc<Snapshot>> {
        let mut failed = lock(&self.refresh);
        let known = lock(&self.latest).clone();
        if let Some(latest) = &known
            && latest.refreshed_at >= requested_at
            && let Some(snapshot) = latest.usable()
        {
            // A refresh of another request started after this request.
            return Ok(snapshot);
        }
        if let Some(refresh) = &*failed
            && refresh.began >= requested_at
        {
            // Waiting requests share a failure: retrying in sequence would multiply the delay of a store that is
            // down.
            return Err(refresh.error.clone());
        }
        let asked_at = self.storage.catalog().and_then(|catalog| catalog.asked_at());
        let refreshed_at = asked_at.unwrap_or_else(Instant::now);
        let refreshed = self.refresh_now(refreshed_at, known.as_ref());
        *failed =
            refreshed.as_ref().err().map(|error| FailedRefresh { began: refreshed_at, error: error.clone() });
        refreshed
    }

    fn refresh_now(&self, refreshed_at: Instant, known: Option<&Latest>) -> Result<Arc<Snapshot>> {
        let base = known.and_then(Latest::usable);
        if let Some(probe) = base.as_ref().and_then(|known| self.probe(known, refreshed_at)) {
            let found = self.storage.properties(probe.paths());
            if let Some(unchanged) = self.end_probe(&probe, found)? {
                return Ok(unchanged);
            }
        }
        let ratified = self.ratified();
        let found = self.load_latest(self.base(base.as_ref()));
        let last = match &found {
            Ok(snapshot) => snapshot.version(),
            Err(Error::TableNotFound { .. }) => -1,
            Err(_) => return found,
        };
        if let Some(known) = known {
            known.check_listed(self, last)?;
        }
        let next = lock(&self.probes).next.clone();
        if let Some((version, commit)) = &next {
            check_listed(&self.storage, &self.root, last, (*version, Some(commit)))?;
        }
        let snapshot = found?;
        let latest = Latest::of(&snapshot, refreshed_at, ratified);
        let is_unchanged =
            known.is_some_and(|known| (known.version, &known.commit) == (latest.version, &latest.commit));
        lock(&self.probes).listed(refreshed_at, is_unchanged);
        self.forget_all_but_those_of(&snapshot, known);
        *lock(&self.latest) = Some(latest);
        self.remember(&snapshot);
        Ok(snapshot)
    }

    fn ratified(&self) -> Option<Arc<Ratified>> {
        self.storage.catalog().and_then(|catalog| catalog.answer())
    }

    /// Loads the latest version: the latest that the catalog has ratified, if its protocol says that a catalog manages
    /// the table, or the latest of the log otherwise. A table that leaves its catalog or comes back is read both ways.
    /// One that has left it has all versions that were ratified: a log that ends before lacks the commits since it came.
    fn load_latest(&self, base: Option<Base<'_>>) -> Result<Arc<Snapshot>> {
        let known = self.known_snapshots();
        let found = self.load(TimeTravel::Latest, base, &known);
        let Some(catalog) = self.storage.catalog() else { return found };
        let is_released = catalog.is_released();
        let latest = self.ratified().and_then(|answer| answer.latest());
        let is_right = |found: &Result<Arc<Snapshot>>, is_released: bool| {
            found.as_ref().is_ok_and(|found| {
                found.protocol().is_catalog_managed() != is_released
                    && !(is_released && Some(found.version()) < latest)
            })
        };
        if is_right(&found, is_released) || matches!(&found, Err(error) if !error.is_of_log()) {
            return found;
        }
        let storage = self.storage.of_table(Some(Arc::new(catalog.with_release(!is_released))));
        let other = Snapshot::load_among(&storage, &self.root, TimeTravel::Latest, None, &known);
        if is_right(&other, !is_released) {
            catalog.release(!is_released);
            return other;
        }
        // Both are out of date, or the catalog has another table.
        let found = if latest.is_none() && !is_released { other } else { found };
        found.and_then(|found| {
            catalog.release(false);
            Err(Error::corrupt(log_path::commit_name(found.version()), DIFFER))
        })
    }

    /// Returns the probe that replaces the next listing. `None` if no version is known or a listing is due.
    pub(super) fn due_probe(&self) -> Option<Probe> {
        let began = Instant::now();
        self.latest_usable().and_then(|known| self.probe(&known, began))
    }

    /// Starts a probe in the background. `then` takes the latest version, or `None` if the log has to be listed, on a
    /// thread of the storage. Returns an error if nothing was started.
    pub(super) fn start_probe(
        self: &Arc<Self>,
        probe: Probe,
        then: impl FnOnce(Result<Option<Arc<Snapshot>>>) + Send + 'static,
    ) -> Result<()> {
        let table = Arc::clone(self);
        self.storage
            .start_properties(probe.paths().clone(), move |found| then(table.end_probe(&probe, found)))
    }

    /// Returns the probe of a known version; `None` if a listing is due or the version has no commit.
    fn probe(&self, known: &Arc<Snapshot>, began: Instant) -> Option<Probe> {
        let is_of_answer =
            lock(&self.latest).as_ref().is_some_and(|latest| latest.is_of(self.ratified().as_ref()));
        if !is_of_answer || lock(&self.probes).is_listing_due(began) {
            return None;
        }
        Probe::of(known, &self.root, began)
    }

    /// Returns the version of a probe if the probe shows that it is still the latest one.
    pub(super) fn end_probe(
        &self,
        probe: &Probe,
        found: Result<[Option<FileProperties>; 2]>,
    ) -> Result<Option<Arc<Snapshot>>> {
        let found = match (found, self.storage.catalog()) {
            // A next commit that the catalog has not ratified does not count.
            (Ok([_, commit]), Some(catalog)) if !catalog.is_released() => Ok([None, commit]),
            (found, _) => found,
        };
        if !lock(&self.probes).is_unchanged(probe.known.version(), &probe.commit, found)? {
            return Ok(None);
        }
        {
            let mut latest = lock(&self.latest);
            // Another refresh may have found another version in the meantime.
            let is_probed =
                |latest: &&mut Latest| std::ptr::eq(latest.snapshot.as_ptr(), Arc::as_ptr(&probe.known));
            let latest = latest.as_mut().filter(is_probed).filter(|_| !probe.known.is_lost());
            let Some(latest) = latest else { return Ok(None) };
            latest.refreshed_at = latest.refreshed_at.max(probe.began);
        }
        self.remember(&probe.known);
        Ok(Some(Arc::clone(&probe.known)))
    }

    /// Versions of a table do not belong to a new table in the same location, nor those that were written after the
    /// version that a log was restored to. `known` is the latest version before `latest`.
    fn forget_all_but_those_of(&self, latest: &Snapshot, known: Option<&Latest>) {
        let is_same_table = |id: &str| id == latest.metadata().id;
        let is_kept = |snapshot: &Snapshot| {
            is_same_table(&snapshot.metadata().id)
                && latest
                    .segment()
                    .has_version_of(snapshot.version(), snapshot.segment().version_commit.as_ref())
        };
        let is_continued = known.is_none_or(|known| {
            is_same_table(&known.table_id)
                && latest.segment().has_version_of(known.version, known.commit.as_ref())
        });
        lock(&self.snapshots).retain(|snapshot| is_continued && is_kept(snapshot));
        lock(&self.ranges).retain(|range| {
            let has_last = |(last, commit): (i64, &_)| latest.segment().has_version_of(last, Some(commit));
            is_continued
                && is_kept(range.head())
                && is_kept(range.heading())
                && range.last_commit().is_none_or(has_last)
        });
        if !known.is_some_and(|known| is_same_table(&known.table_id)) {
            self.cache.forget_columns(self.id);
        }
    }

    pub(super) fn latest_usable(&self) -> Option<Arc<Snapshot>> {
        lock(&self.latest).as_ref().and_then(Latest::usable)
    }
}

struct BackgroundRefresh(Arc<Table>);

impl Task for BackgroundRefresh {
    fn step(self: Arc<Self>, _: &Pool) {
        let _ended = Refreshing(&self.0.refreshing);
        // A failure is repeated and reported by the first request after the staleness limit. This may wait for a
        // running refresh.
        let _ = pool::block_in_place(|| self.0.refresh(Instant::now()));
    }
}

/// Marks a running refresh. The mark ends with the refresh, also by a panic.
struct Refreshing<'a>(&'a AtomicBool);

impl Drop for Refreshing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::probe::ProbeHistory;
    use super::super::tests::{log_of, made_again, opened, table_of};
    use super::super::{LoopProbes, threaded_probes};
    use super::*;
    use crate::checkpoint::tests::writer::Log;
    use crate::checkpoint::tests::{add_row, metadata_row, protocol_row};
    use crate::column_cache::ColumnCache;
    use crate::log_path;
    use crate::storage::Storage;

    pub(in crate::table) fn age_last_look(table: &Table) {
        let mut latest = lock(&table.latest);
        let latest = latest.as_mut().unwrap();
        latest.refreshed_at = latest.refreshed_at.checked_sub(MAX_UNREFRESHED).unwrap();
    }

    #[test]
    fn waiting_callers_share_a_failed_refresh_and_later_ones_refresh_again() {
        let log = Log::new();
        let (table, _) = opened(&log);
        let waiting_since = Instant::now();
        assert!(table.refresh(Instant::now()).is_err());
        log.write_commit(0, &[protocol_row(), metadata_row(&[])]);
        assert!(table.refresh(waiting_since).is_err());
        assert_eq!(table.refresh(Instant::now()).unwrap().version(), 0);
        assert_eq!(table.refresh(waiting_since).unwrap().version(), 0);
    }

    #[test]
    fn the_latest_snapshot_counts_in_the_budget_and_is_loaded_again_after_its_eviction() {
        let (log, log_bytes) = log_of(3);
        let (table, cache) = opened(&log);
        let known = Arc::downgrade(&table.refresh(Instant::now()).unwrap());
        assert!(cache.used_bytes() > log_bytes && known.upgrade().is_some());
        assert_eq!(cache.bytes_by_table(), [(table.number(), cache.used_bytes())].into());
        cache.shrink(0);
        assert_eq!(cache.used_bytes(), 0);
        assert!(known.upgrade().is_none() && table.latest_known(Duration::MAX).is_none());
        assert!(probe(&table).is_none(), "no version is in memory");
        assert_eq!(table.refresh(Instant::now()).unwrap().version(), 2);
        assert!(cache.used_bytes() > log_bytes);
        // One that is used is found without a cache, and counts again.
        let held = table.refresh(Instant::now()).unwrap();
        cache.shrink(0);
        assert!(Arc::ptr_eq(&held, &table.refresh(Instant::now()).unwrap()));
        assert!(cache.used_bytes() > log_bytes);
        drop(held);
        // Another table at the place is noticed as one, also without the snapshot of the first.
        let old = table.snapshot_at(TimeTravel::Version(1)).unwrap();
        made_again(&log, "another", 3);
        cache.shrink(0);
        assert_eq!(table.refresh(Instant::now()).unwrap().metadata().id, "another");
        assert!(!Arc::ptr_eq(&old, &table.snapshot_at(TimeTravel::Version(1)).unwrap()));
    }

    /// The result of a refresh without a listing.
    fn probe(table: &Arc<Table>) -> Option<Result<Option<Arc<Snapshot>>>> {
        let probes = LoopProbes::new().unwrap();
        if !probes.start(1, table).unwrap() {
            return None;
        }
        loop {
            if let Some(probed) = probes.take().pop() {
                assert!(probed.number == 1 && Arc::ptr_eq(&probed.table, table));
                return Some(probed.found);
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn systems_without_epoll_probe_by_threads() {
        let (_log, table) = table_of(3);
        let probes = threaded_probes::LoopProbes::new().unwrap();
        assert!(!probes.start(1, &table).unwrap(), "no version is known");
        let known = table.refresh(Instant::now()).unwrap();
        assert!(probes.start(2, &table).unwrap() && probes.fd() >= 0);
        let result = loop {
            if let Some(result) = probes.take().pop() {
                break result;
            }
            std::thread::yield_now();
        };
        assert!(result.number == 2 && Arc::ptr_eq(&result.table, &table));
        assert!(Arc::ptr_eq(&result.found.unwrap().unwrap(), &known));
        assert_eq!(probes.sent_by_loop(), 0);
    }

    #[test]
    fn a_version_is_still_the_latest_one_by_two_files_and_now_and_then_by_a_listing() {
        let (log, table) = table_of(3);
        assert!(probe(&table).is_none(), "no version is known");
        let known = table.refresh(Instant::now()).unwrap();
        // Only a listing shows a gap.
        log.write(&log_path::commit_name(4), b"{}");
        let began = Instant::now();
        assert!(Arc::ptr_eq(&known, &probe(&table).unwrap().unwrap().unwrap()));
        assert!(lock(&table.latest).as_ref().unwrap().refreshed_at >= began);
        assert!(Arc::ptr_eq(&known, &table.refresh(Instant::now()).unwrap()));
        *lock(&table.probes) = ProbeHistory::default();
        assert!(probe(&table).is_none(), "a listing is due");
        assert!(matches!(table.refresh(Instant::now()), Err(Error::CorruptLog { .. })));
    }

    #[test]
    fn a_probe_leaves_every_change_of_the_table_to_a_listing() {
        let (log, table) = table_of(3);
        let latest = || -> Result<(String, i64)> {
            let refreshed = table.refresh(Instant::now())?;
            Ok((refreshed.metadata().id.clone(), refreshed.version()))
        };
        let changed = |table| {
            assert!(probe(table).unwrap().unwrap().is_none());
            assert!(probe(table).is_none(), "a listing is due");
        };
        let expected = |id: &str, version| (id.to_owned(), version);
        assert_eq!(latest().unwrap(), expected("t", 2));
        for version in [3, 4] {
            log.write_commit(version, &[add_row(1)]);
            changed(&table);
            assert_eq!(latest().unwrap(), expected("t", version));
        }
        made_again(&log, "u", 5);
        changed(&table);
        assert_eq!(latest().unwrap(), expected("u", 4), "another table with as many versions");
        log.remove(&log_path::commit_name(4));
        changed(&table);
        assert_eq!(latest().unwrap(), expected("u", 3), "the log was restored to an earlier version");
        std::fs::remove_dir_all(log.path("")).unwrap();
        changed(&table);
        let gone = latest();
        assert!(matches!(gone, Err(Error::TableNotFound { .. })));
    }

    #[test]
    fn a_probe_of_a_version_that_another_refresh_has_replaced_is_no_answer() {
        let (log, table) = table_of(3);
        let known = table.refresh(Instant::now()).unwrap();
        let earlier = table.probe(&known, Instant::now()).unwrap();
        let found = table.storage.properties(earlier.paths());
        log.write_commit(3, &[add_row(1)]);
        assert_eq!(table.refresh(Instant::now()).unwrap().version(), 3);
        assert!(table.end_probe(&earlier, found).unwrap().is_none());
        assert_eq!(table.refresh(Instant::now()).unwrap().version(), 3);
    }

    #[test]
    fn a_refresh_that_panics_lets_the_next_one_begin() {
        let cache = Arc::new(ColumnCache::new(0));
        let table = Arc::new(Table::new(Storage::local(), "/nowhere".to_owned(), cache));
        table.refreshing.store(true, Ordering::Release);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ended = Refreshing(&table.refreshing);
            panic!("a defect");
        }));
        assert!(panicked.is_err() && !table.refreshing.load(Ordering::Acquire));
        table.refreshing.store(true, Ordering::Release);
        Arc::new(BackgroundRefresh(Arc::clone(&table))).step(&Pool::new(1).unwrap());
        assert!(!table.refreshing.load(Ordering::Acquire), "nor does one that fails");
    }
}
