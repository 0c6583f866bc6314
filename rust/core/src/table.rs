//! One table over time: finds its versions and caches their snapshots.
//!
//! A refresh finds the latest version: see [`latest`].

mod cached_totals;
mod latest;
#[cfg(target_os = "linux")]
mod loop_probes;
mod probe;
mod ranges;
mod snapshot_cache;
#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", allow(unreachable_pub))] // only tested
mod threaded_probes;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::actions::{Metadata, Totals};
use crate::changes::Changes;
use crate::column_cache::{Allocation, ColumnCache, ColumnsKey};
use crate::history::History;
use crate::lock::lock;
use crate::pool::Pool;
use crate::predicate::{BoundRule, NamedRule, Rule};
use crate::segment::LogIdentity;
use crate::snapshot::{Base, Snapshot, TimeTravel, list_again};
use crate::stop::Stop;
use crate::storage::Storage;
use crate::{Error, Result};
use cached_totals::{cached_totals, cached_totals_within};
use latest::{FailedRefresh, Latest};
#[cfg(target_os = "linux")]
pub use loop_probes::LoopProbes;
use probe::ProbeHistory;
pub use probe::Probed;
pub use ranges::{ChangesRequest, Heading};
use snapshot_cache::SnapshotCache;
#[cfg(not(target_os = "linux"))]
pub use threaded_probes::LoopProbes;

/// One shared table. Thread-safe.
#[derive(Debug)]
pub struct Table {
    id: u64,
    storage: Storage,
    root: String,
    cache: Arc<ColumnCache>,
    latest: Mutex<Option<Latest>>,
    /// Held during a refresh, so that only one runs at a time. Contains the last refresh if it failed.
    refresh: Mutex<Option<FailedRefresh>>,
    refreshing: AtomicBool,
    probes: Mutex<ProbeHistory>,
    snapshots: Mutex<SnapshotCache<Snapshot>>,
    /// Surveyed ranges of versions. Their later pages need no second survey.
    ranges: Mutex<SnapshotCache<Changes>>,
}

impl Table {
    /// Creates a table without reading anything. `root` is a directory in local storage, or a key prefix in the
    /// bucket.
    #[must_use]
    pub fn new(storage: Storage, root: String, cache: Arc<ColumnCache>) -> Self {
        static TABLES: AtomicU64 = AtomicU64::new(0);
        let id = TABLES.fetch_add(1, Ordering::Relaxed);
        Self {
            id,
            storage,
            root,
            latest: Mutex::default(),
            refresh: Mutex::default(),
            refreshing: AtomicBool::new(false),
            probes: Mutex::default(),
            snapshots: Mutex::new(SnapshotCache::new(id, Arc::clone(&cache))),
            ranges: Mutex::new(SnapshotCache::new(id, Arc::clone(&cache))),
            cache,
        }
    }

    /// The number of the table in the process: see [`ColumnCache::bytes_by_table`].
    #[must_use]
    pub fn number(&self) -> u64 {
        self.id
    }

    /// The storage of the table.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns a rule with the names of the latest known version, which is read if none is known.
    pub fn named_rule(&self, rule: &Arc<Rule>) -> Result<NamedRule> {
        let known = self.known_metadata();
        let names = match known {
            Some(names) => names,
            None => Arc::clone(self.refresh(Instant::now())?.metadata()),
        };
        Ok(NamedRule { rule: Arc::clone(rule), names })
    }

    /// Binds a rule with the names of the latest version to the partition columns of a snapshot. No rule is bound to
    /// none.
    pub fn bound_rule(
        &self,
        rule: Option<&Arc<Rule>>,
        snapshot: &Snapshot,
    ) -> Result<Option<Arc<BoundRule>>> {
        let bound = rule.map(|rule| self.named_rule(rule)?.bind(snapshot.metadata())).transpose()?;
        Ok(bound.inspect(|bound| self.keep_rule(bound)))
    }

    /// Marks a bound rule as used and caches it, also if it was evicted before.
    fn keep_rule(&self, bound: &Arc<BoundRule>) {
        if bound.kept() == 0 || !self.cache.touch(bound.kept()) {
            let parts = vec![Allocation::shared(bound, bound.memory_bytes())];
            bound.set_kept(self.cache.keep(self.id, Arc::clone(bound) as _, parts).unwrap_or_default());
        }
    }

    /// As [`Self::bound_rule`], if it was bound before. Does not block.
    #[must_use]
    pub fn known_rule(&self, rule: &Rule, snapshot: &Snapshot) -> Option<Arc<BoundRule>> {
        let bound = rule.known(snapshot.metadata(), &self.known_metadata()?)?;
        self.keep_rule(&bound);
        Some(bound)
    }

    fn known_metadata(&self) -> Option<Arc<Metadata>> {
        let snapshot = lock(&self.latest).as_ref().and_then(|latest| latest.snapshot.upgrade())?;
        Some(Arc::clone(snapshot.metadata()))
    }

    /// Returns whether the files of a snapshot can be listed without reading anything.
    #[must_use]
    pub fn is_in_memory(&self, snapshot: &Snapshot, rule: Option<&Arc<BoundRule>>) -> bool {
        snapshot.known_totals_within(rule).is_some() && self.is_cached(snapshot)
    }

    /// Returns the number and total size of a snapshot's files, computed from cached columns if there are any. Ends
    /// with an error at `stop`.
    pub fn totals(&self, snapshot: &Snapshot, stop: &Stop) -> Result<Totals> {
        if snapshot.known_totals().is_none()
            && let Some(columns) = self.column_cache(snapshot).and_then(|(cache, key)| cache.get(&key))
            && let Some(totals) = cached_totals(snapshot, &columns, stop)?
        {
            snapshot.set_totals(totals);
        }
        let totals = snapshot.totals_until(stop);
        snapshot.count_footers(&self.cache);
        totals
    }

    /// As [`Self::totals`], of the files within a rule.
    pub fn totals_within(
        &self,
        snapshot: &Snapshot,
        rule: Option<&Arc<BoundRule>>,
        stop: &Stop,
    ) -> Result<Totals> {
        let Some(rule) = rule else { return self.totals(snapshot, stop) };
        if let Some(known) = snapshot.known_totals_within(Some(rule)) {
            return Ok(known);
        }
        let Some((cache, key)) = self.column_cache(snapshot) else {
            // Costs nothing, and small tables are answered at once by it.
            self.totals(snapshot, stop)?;
            return snapshot.totals_within(Some(rule), stop);
        };
        if let Some(columns) = cache.get(&key)
            && let Some(totals) = cached_totals_within(snapshot, &columns, rule, stop)?
        {
            self.totals(snapshot, stop)?;
            snapshot.set_totals_within(rule, totals);
        }
        snapshot.totals_within(Some(rule), stop)
    }

    /// Estimates the bytes that the log has of a snapshot's files: the texts of live files of commits, and the cached
    /// columns of the checkpoint.
    pub(crate) fn file_bytes(&self, snapshot: &Snapshot) -> usize {
        let of_commits = snapshot
            .commit_batches()
            .iter()
            .flat_map(|(batch, rows)| rows.iter().map(|row| batch.line_bytes(*row)))
            .sum::<usize>();
        let columns = self.column_cache(snapshot).and_then(|(cache, key)| cache.get(&key));
        of_commits + columns.map_or(0, |columns| columns.content_bytes())
    }

    fn is_cached(&self, snapshot: &Snapshot) -> bool {
        self.column_cache(snapshot).is_none_or(|(cache, key)| cache.has(&key))
    }

    /// Returns a snapshot by version or timestamp. A version that the log no longer holds is an error with the
    /// available versions.
    pub fn snapshot_at(&self, at: TimeTravel) -> Result<Arc<Snapshot>> {
        self.refresh_if_stale()?;
        if let TimeTravel::Version(version) = at
            && let Some(known) = self.known(|snapshot| snapshot.version() == version)
        {
            return Ok(known);
        }
        let known_snapshots = self.known_snapshots();
        let snapshot = self.if_listed(match nearest(at, &known_snapshots) {
            // A past version is ordered by the newest checkpoint before it, independent of earlier requests.
            Some(older) => self.load(at, Some(Base { snapshot: &older, is_cached: false }), &known_snapshots),
            None => self.load(at, self.base(self.latest_usable().as_ref()), &known_snapshots),
        })?;
        self.remember(&snapshot);
        Ok(snapshot)
    }

    /// Returns the snapshot with the order of files that `identity` names.
    pub fn snapshot_with_identity(&self, identity: &str) -> Result<Arc<Snapshot>> {
        let identity: LogIdentity = identity.parse()?;
        if self.storage.catalog().is_some() {
            self.refresh_if_stale()?;
        }
        if let Some(known) = self.known(|snapshot| snapshot.has_identity(&identity)) {
            return Ok(known);
        }
        let found = Snapshot::load_identity(&self.storage, &self.root, &identity, &self.known_snapshots());
        let snapshot = self.if_listed(found)?;
        self.remember(&snapshot);
        Ok(snapshot)
    }

    /// Returns what was found, or the error of a short listing where a version was not found in a log that ends before
    /// the latest known version, whose commit is still there.
    fn if_listed<T>(&self, found: Result<T>) -> Result<T> {
        if let Err(Error::VersionNotFound { latest: last, .. }) = &found {
            let latest = lock(&self.latest).clone();
            latest.map_or(Ok(()), |latest| latest.check_listed(self, *last))?;
        }
        found
    }

    /// Caches a snapshot for requests that continue it, also after log cleanup.
    pub fn remember(&self, snapshot: &Arc<Snapshot>) {
        keep(&self.snapshots, snapshot, Snapshot::parts);
    }

    /// Finds a version in the commit timestamps of the table's versions.
    pub fn version_by_time(
        self: &Arc<Self>,
        pool: &Pool,
        find: impl Fn(&History) -> Result<i64>,
    ) -> Result<i64> {
        let read = || {
            let latest = self.latest(Duration::ZERO, pool)?;
            let history = History::read(&self.storage, &self.root, latest.protocol(), latest.metadata())?;
            history.check_listed(latest.version(), latest.segment().version_commit.as_ref())?;
            find(&history)
        };
        list_again(read(), read)
    }

    /// Returns the column cache and the key of the columns of a snapshot's checkpoint.
    #[must_use]
    pub fn column_cache(&self, snapshot: &Snapshot) -> Option<(Arc<ColumnCache>, ColumnsKey)> {
        let key = ColumnsKey { table: self.id, digest: snapshot.columns_digest()? };
        Some((Arc::clone(&self.cache), key))
    }

    /// `known_snapshots` are cached snapshots of the table. The new snapshot shares equal parts with them.
    fn load(
        &self,
        at: TimeTravel,
        base: Option<Base<'_>>,
        known_snapshots: &[Arc<Snapshot>],
    ) -> Result<Arc<Snapshot>> {
        Snapshot::load_among(&self.storage, &self.root, at, base, known_snapshots)
    }

    fn base<'a>(&self, snapshot: Option<&'a Arc<Snapshot>>) -> Option<Base<'a>> {
        snapshot.map(|snapshot| Base { snapshot, is_cached: self.is_cached(snapshot) })
    }

    fn known_snapshots(&self) -> Vec<Arc<Snapshot>> {
        let mut known_snapshots = lock(&self.snapshots).all();
        known_snapshots.extend(self.latest_usable());
        known_snapshots
    }

    fn known(&self, is_wanted: impl Fn(&Snapshot) -> bool) -> Option<Arc<Snapshot>> {
        let latest = self.latest_usable().filter(|latest| is_wanted(latest));
        let is_wanted = |snapshot: &Snapshot| !snapshot.is_lost() && is_wanted(snapshot);
        latest.or_else(|| find_kept(&self.snapshots, is_wanted, Snapshot::parts))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.cache.forget(self.id);
    }
}

/// Returns the newest snapshot that is not newer than the requested version.
fn nearest(at: TimeTravel, known_snapshots: &[Arc<Snapshot>]) -> Option<Arc<Snapshot>> {
    let TimeTravel::Version(version) = at else { return None };
    let older =
        known_snapshots.iter().filter(|snapshot| snapshot.version() <= version && !snapshot.is_lost());
    older.max_by_key(|snapshot| snapshot.version()).cloned()
}

/// Marks an item as used and caches it, also if it was evicted before.
fn keep<T: Any + Send + Sync>(
    snapshots: &Mutex<SnapshotCache<T>>,
    item: &Arc<T>,
    parts: impl FnOnce(&Arc<T>) -> Vec<Allocation>,
) {
    let now = Instant::now();
    if !lock(snapshots).touch(item, now) {
        // Computed without the lock.
        let parts = parts(item);
        lock(snapshots).insert(item, parts, now);
    }
}

/// Finds an item and caches it.
fn find_kept<T: Any + Send + Sync>(
    snapshots: &Mutex<SnapshotCache<T>>,
    is_wanted: impl Fn(&T) -> bool,
    parts: impl FnOnce(&Arc<T>) -> Vec<Allocation>,
) -> Option<Arc<T>> {
    let snapshot = lock(snapshots).find(is_wanted)?;
    keep(snapshots, &snapshot, parts);
    Some(snapshot)
}

#[cfg(test)]
mod tests {
    use ::parquet::file::properties::WriterProperties;

    use super::latest::tests::age_last_look;
    use super::*;
    use crate::changes::ChangeKind;
    use crate::checkpoint::tests::writer::{Log, parquet, schema};
    use crate::checkpoint::tests::{add_row, metadata_row, protocol_row};
    use crate::log_path;
    use crate::snapshot::damage::{Form, LATEST, log_with_damage};

    /// A log of versions without a checkpoint, and the bytes of its commits.
    pub(super) fn log_of(versions: i64) -> (Log, usize) {
        let log = Log::new();
        let mut bytes = 0;
        for version in 0..versions {
            let head = [protocol_row(), metadata_row(&[])].into_iter().filter(|_| version == 0);
            let adds = (0..50).map(|number| {
                let mut add = add_row(number);
                add["add"]["path"] = format!("part-{version}-{number}.parquet").into();
                add["add"]["stats"] = "x".repeat(3000).into();
                add
            });
            bytes += log.write_commit(version, &head.chain(adds).collect::<Vec<_>>()).size as usize;
        }
        (log, bytes)
    }

    pub(super) fn opened(log: &Log) -> (Arc<Table>, Arc<ColumnCache>) {
        let cache = Arc::new(ColumnCache::new(1 << 30));
        (Arc::new(Table::new(Storage::local(), log.root().to_owned(), Arc::clone(&cache))), cache)
    }

    /// A table of some versions and its log.
    pub(super) fn table_of(versions: i64) -> (Log, Arc<Table>) {
        let log = Log::new();
        made_again(&log, "t", versions);
        let (table, _) = opened(&log);
        (log, table)
    }

    #[test]
    fn snapshots_of_many_versions_share_equal_parts_in_any_order_of_requests() {
        const VERSIONS: i64 = 30;
        let (log, log_bytes) = log_of(VERSIONS);
        for is_ascending in [true, false] {
            let (table, cache) = opened(&log);
            table.refresh(Instant::now()).unwrap();
            let ask = |version| table.snapshot_at(TimeTravel::Version(version)).unwrap();
            let version_at = |turn| if is_ascending { turn } else { VERSIONS - 1 - turn };
            let requested: Vec<_> = (0..VERSIONS).map(|turn| ask(version_at(turn))).collect();
            let kept = cache.used_bytes();
            assert!(
                log_bytes < kept && kept < 2 * log_bytes,
                "{kept} of {log_bytes}, ascending: {is_ascending}"
            );
            assert!(requested.iter().all(|snapshot| Arc::ptr_eq(snapshot, &ask(snapshot.version()))));
            drop(table);
            assert_eq!(cache.used_bytes(), 0);
        }
    }

    #[test]
    fn snapshots_over_the_budget_are_not_cached() {
        const VERSIONS: i64 = 30;
        let (log, log_bytes) = log_of(VERSIONS);
        let cache = Arc::new(ColumnCache::new(log_bytes / 2));
        let table = Table::new(Storage::local(), log.root().to_owned(), Arc::clone(&cache));
        let mut requested = Vec::new();
        for version in (0..VERSIONS).chain((0..VERSIONS).rev()) {
            let snapshot = table.snapshot_at(TimeTravel::Version(version)).unwrap();
            assert_eq!(snapshot.commit_batches().len() as i64, version + 1);
            assert!(cache.used_bytes() <= log_bytes / 2);
            requested.push(Arc::downgrade(&snapshot));
        }
        let held: Vec<_> = requested.iter().filter_map(std::sync::Weak::upgrade).collect();
        let latest = VERSIONS - 1;
        let is_small = |version: i64| version < VERSIONS / 2 || version == latest;
        assert!(held.iter().all(|snapshot| is_small(snapshot.version())), "the larger ones do not fit");
        assert!(!held.is_empty());
    }

    #[test]
    fn the_footers_of_a_checkpoint_count_once_it_is_opened() {
        let log = Log::new();
        let head = [protocol_row(), metadata_row(&[])];
        let rows: Vec<_> = head.iter().cloned().chain((0..9).map(add_row)).collect();
        let content = parquet(&schema(), &rows, WriterProperties::default());
        log.write("00000000000000000000.checkpoint.parquet", &content);
        // With the heads in a commit, the checkpoint is not opened to load the version.
        log.write_commit(1, &head);
        let (table, cache) = opened(&log);
        let snapshot = table.refresh(Instant::now()).unwrap();
        let before = cache.used_bytes();
        table.totals(&snapshot, &Stop::default()).unwrap();
        let footers = snapshot.checkpoint().unwrap().unwrap().memory_bytes();
        assert_eq!(cache.used_bytes(), before + footers);
        drop((snapshot, table));
        assert_eq!(cache.used_bytes(), 0);
    }

    #[test]
    fn bound_rules_count_in_the_budget_and_are_bound_again_after_their_eviction() {
        let log = Log::new();
        let mut metadata = metadata_row(&["p"]);
        metadata["metaData"]["schemaString"] =
            r#"{"type":"struct","fields":[{"name":"p","type":"string","nullable":true,"metadata":{}}]}"#
                .into();
        log.write_commit(0, &[protocol_row(), metadata]);
        let (table, cache) = opened(&log);
        let snapshot = table.refresh(Instant::now()).unwrap();
        let values: Vec<_> = (0..1000).map(|number| format!("'value-{number}'")).collect();
        let condition = format!("p IN ({})", values.join(", "));
        let rule = Arc::new(Rule::parse(std::slice::from_ref(&condition), &[]).unwrap());
        let before = cache.used_bytes();
        let bound = || table.bound_rule(Some(&rule), &snapshot).unwrap().unwrap();
        let first = Arc::downgrade(&bound());
        let used = cache.used_bytes() - before;
        assert!(condition.len() < used && used < 20 * condition.len(), "{used} bytes");
        assert!(Arc::ptr_eq(&bound(), &first.upgrade().unwrap()));
        assert!(table.known_rule(&rule, &snapshot).is_some());
        assert_eq!(cache.used_bytes(), before + used, "it counts once");
        cache.shrink(0);
        assert!(first.upgrade().is_none() && table.known_rule(&rule, &snapshot).is_none());
        let again = bound();
        assert!(cache.used_bytes() >= used);
        // One that is used is found without a cache, and counts again.
        cache.shrink(0);
        assert!(Arc::ptr_eq(&again, &table.known_rule(&rule, &snapshot).unwrap()));
        assert_eq!(cache.used_bytes(), used);
        drop((again, table));
        assert_eq!(cache.used_bytes(), 0);
    }

    /// Replaces the table's log by one with another table id.
    pub(super) fn made_again(log: &Log, id: &str, versions: i64) {
        for version in 0..versions {
            let mut metadata = metadata_row(&[]);
            metadata["metaData"]["id"] = id.into();
            let head = [protocol_row(), metadata].into_iter().filter(|_| version == 0);
            let mut add = add_row(1);
            add["add"]["path"] = format!("{id}-{version}.parquet").into();
            log.write_commit(version, &head.chain([add]).collect::<Vec<_>>());
        }
    }

    fn range_of(start: i64, end: Option<i64>, heading: Heading) -> ChangesRequest {
        ChangesRequest { kind: ChangeKind::Files, start, end, heading, max_staleness: Duration::ZERO }
    }

    #[test]
    fn a_recreated_table_is_found_by_requests_for_versions_only() {
        let (log, table) = table_of(3);
        let id_at = |version| table.snapshot_at(TimeTravel::Version(version)).unwrap().metadata().id.clone();
        let id_of = |heading| {
            let range = table.changes(range_of(0, Some(1), heading), &Stop::default()).unwrap();
            range.head().metadata().id.clone()
        };
        assert_eq!([id_at(0), id_at(1), id_of(Heading::Start)], ["t"; 3]);
        let kept = table.snapshot_at(TimeTravel::Version(1)).unwrap();
        assert!(Arc::ptr_eq(&kept, &table.snapshot_at(TimeTravel::Version(1)).unwrap()));
        made_again(&log, "the-second-one", 3);
        age_last_look(&table);
        assert_eq!(id_at(1), "the-second-one");
        made_again(&log, "the-third-one-of-all", 3);
        age_last_look(&table);
        assert_eq!(id_of(Heading::Start), "the-third-one-of-all");
        assert_eq!(id_at(2), "the-third-one-of-all");
        std::fs::remove_dir_all(log.path("")).unwrap();
        assert_eq!(id_at(2), "the-third-one-of-all", "the last refresh is recent");
        age_last_look(&table);
        assert!(matches!(table.snapshot_at(TimeTravel::Version(2)), Err(Error::TableNotFound { .. })));
    }

    #[test]
    fn versions_of_a_log_that_was_restored_and_continued_are_read_again() {
        let commit = |log: &Log, version: i64, size: i64| {
            let mut add = add_row(usize::try_from(version).unwrap());
            add["add"]["size"] = size.into();
            log.write_commit(version, &[add]);
        };
        // Restored to version 2, and continued to fewer, as many and more versions than before.
        for versions in [4, 5, 7] {
            let (log, table) = table_of(3);
            (3..5).for_each(|version| commit(&log, version, 1000));
            let stop = Stop::default();
            let at = |version| table.snapshot_at(TimeTravel::Version(version)).unwrap();
            let size_at = |version| table.totals(&at(version), &stop).unwrap().size_bytes;
            let range = |start| table.changes(range_of(start, Some(3), Heading::Start), &stop).unwrap();
            table.refresh(Instant::now()).unwrap();
            let (first, third, size) = (at(1), at(3), size_at(3));
            let (early, late) = (range(1), range(3));

            (3..5).for_each(|version| log.remove(&log_path::commit_name(version)));
            (3..versions).for_each(|version| commit(&log, version, 2000));
            age_last_look(&table);
            assert!(!Arc::ptr_eq(&third, &at(3)) && !Arc::ptr_eq(&first, &at(1)), "{versions}");
            assert_eq!(size_at(3), size + 1000, "{versions}");
            assert!(!Arc::ptr_eq(&early, &range(1)) && !Arc::ptr_eq(&late, &range(3)), "{versions}");

            // A new version leaves the others.
            let (first, early, late) = (at(1), range(1), range(3));
            commit(&log, versions, 1000);
            age_last_look(&table);
            assert!(Arc::ptr_eq(&first, &at(1)), "{versions}");
            assert!(Arc::ptr_eq(&early, &range(1)) && Arc::ptr_eq(&late, &range(3)), "{versions}");
        }
    }

    #[test]
    fn a_failed_refresh_keeps_cached_versions_available() {
        let (log, table) = table_of(2);
        table.refresh(Instant::now()).unwrap();
        let known = table.snapshot_at(TimeTravel::Version(0)).unwrap();
        log.write(&log_path::commit_name(2), b"{");
        age_last_look(&table);
        assert!(table.refresh(Instant::now()).is_err());
        assert!(Arc::ptr_eq(&known, &table.snapshot_at(TimeTravel::Version(0)).unwrap()));
    }

    #[test]
    fn a_snapshot_evicted_while_in_use_is_cached_again() {
        let (log, _) = log_of(3);
        let cache = Arc::new(ColumnCache::new(1 << 20));
        let table = Table::new(Storage::local(), log.root().to_owned(), Arc::clone(&cache));
        let stop = Stop::default();
        let ask = || {
            let range = table.changes(range_of(0, Some(1), Heading::Start), &stop).unwrap();
            (table.snapshot_at(TimeTravel::Version(1)).unwrap(), range)
        };
        let (snapshot, range) = ask();
        for _ in 0..2 {
            cache.shrink(0);
            let found = ask();
            assert!(Arc::ptr_eq(&found.0, &snapshot) && Arc::ptr_eq(&found.1, &range));
        }
        let held = (Arc::downgrade(&snapshot), Arc::downgrade(&range));
        drop((snapshot, range));
        assert!(held.0.upgrade().is_some() && held.1.upgrade().is_some());
    }

    #[test]
    fn a_range_under_a_young_look_is_found_without_another_one_unless_it_ends_later() {
        let (log, table) = table_of(3);
        let ask = |end, max_staleness| {
            let request = ChangesRequest { max_staleness, ..range_of(0, end, Heading::Latest) };
            let range = table.changes(request, &Stop::default()).unwrap();
            (range.ending_version(), range.heading_version())
        };
        let minute = Duration::from_secs(60);
        assert_eq!(ask(None, minute), (2, 2));
        made_again(&log, "t", 5);
        assert_eq!(ask(None, minute), (2, 2));
        assert_eq!(ask(Some(1), minute), (1, 2));
        assert_eq!(ask(Some(3), minute), (3, 4), "the refresh has to show the end");
        made_again(&log, "t", 6);
        assert_eq!(ask(None, Duration::ZERO), (5, 5));
    }

    #[test]
    fn an_unsupported_latest_version_refuses_only_ranges_with_its_metadata() {
        let (log, table) = table_of(2);
        let features = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["tomorrow"],"writerFeatures":["tomorrow"]}}"#;
        log.write_commit(2, &[features]);
        let ask = |heading| table.changes(range_of(0, Some(1), heading), &Stop::default());
        assert_eq!(ask(Heading::Start).unwrap().heading_version(), 0);
        assert!(matches!(ask(Heading::Latest), Err(Error::UnsupportedFeature(name)) if name == "tomorrow"));
        assert_eq!(ask(Heading::Start).unwrap().ending_version(), 1);
    }

    #[test]
    fn a_range_whose_heading_meets_a_damaged_checkpoint_is_read_again_without_it() {
        for heading in [Heading::Start, Heading::Latest] {
            let log = log_with_damage(Form::Sidecar);
            let cache = Arc::new(ColumnCache::new(1 << 30));
            let (table, stop) = (Table::new(Storage::local(), log.root().to_owned(), cache), Stop::default());
            let ask = || table.changes(range_of(LATEST, None, heading), &stop).unwrap();
            let first = ask();
            assert!(table.totals(first.heading(), &stop).is_err() && first.is_lost(), "{heading:?}");
            let again = ask();
            assert_eq!(table.totals(again.heading(), &stop).unwrap().files as i64, LATEST + 1);
            assert!(!again.is_lost() && Arc::ptr_eq(&again, &ask()));
        }
    }

    #[test]
    fn a_survey_ends_at_its_stop() {
        let (_log, table) = table_of(3);
        let stop = Stop::default();
        stop.cancel();
        let found = table.changes(range_of(0, None, Heading::Start), &stop);
        assert!(matches!(found, Err(Error::Cancelled)));
        assert!(table.changes(range_of(0, None, Heading::Start), &Stop::default()).is_ok());
    }
}
