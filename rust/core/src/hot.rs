//! Columns of hot tables, kept in memory within a budget of bytes.
//!
//! What is kept is the file batches of one checkpoint, whole and immutable: commits after it are small and live
//! with their snapshot, so a new version asks this room for nothing but which of its rows are dead. Columns are
//! built by the first scan that reads a checkpoint to its end, as it streams; of several such scans at once only
//! one builds. The least recently used columns leave first; scans that still walk them hold them until they end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use sha2::{Digest, Sha256};

use crate::actions::{FileBatch, Metadata, Rows};
use crate::file_id::{FileIds, IdScheme};
use crate::predicate::StatsCache;
use crate::replay::ReplaySet;
use crate::schema::COLUMN_MAPPING_MODE;

/// The first partial scan of a table may be its last; with the second one its columns pay.
const MISSES_TO_BUILD: u32 = 2;
/// Tables whose misses are counted.
const REMEMBERED_MISSES: usize = 4096;

/// Names the columns of one checkpoint of one table, as one metadata decodes them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HotKey {
    /// A number that tells tables apart.
    pub table: u64,
    /// The checkpoint, by its files.
    pub checkpoint: Arc<str>,
    /// What decoding depends on.
    pub decoding: Decoding,
}

/// All of a version's metadata that decoded columns depend on: partition values are coded in the order and by the
/// names of its partition columns, statistics typed by its schema and column mapping. The table's id tells a table
/// from another one in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decoding([u8; 32]);

impl Decoding {
    /// That of versions with this metadata.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let mut digest = Sha256::new();
        let mut add = |text: Option<&str>| {
            // The length keeps ("ab","c") from ("a","bc").
            digest.update(text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
            digest.update(text.unwrap_or_default().as_bytes());
        };
        add(Some(&metadata.id));
        add(metadata.schema_string.as_deref());
        add(metadata.property(COLUMN_MAPPING_MODE));
        metadata.partition_columns.iter().for_each(|column| add(Some(column)));
        Self(digest.finalize().into())
    }
}

/// A batch, and what scans have asked of it.
#[derive(Debug)]
pub struct HotBatch {
    /// The files.
    pub files: Arc<FileBatch>,
    /// Built as predicates need them.
    pub stats: StatsCache,
    ids: Option<Ids>,
    tombstones: Mutex<Tombstones>,
}

/// The files' ids by either scheme, made when they are first asked for.
#[derive(Debug, Default)]
struct Ids {
    parquet: OnceLock<FileIds>,
    delta: OnceLock<FileIds>,
}

/// Which files of a batch are dead in the version that asked last.
#[derive(Debug, Default)]
struct Tombstones {
    /// By this set, while there is one: versions are told apart by what their commits have decided about.
    decided: Weak<ReplaySet>,
    /// Ascending.
    dead: Rows,
}

impl HotBatch {
    /// A batch that stays: typed statistics and ids are made once.
    #[must_use]
    pub fn kept(files: Arc<FileBatch>) -> Self {
        Self { files, stats: StatsCache::kept(), ids: Some(Ids::default()), tombstones: Mutex::default() }
    }

    /// A batch that passes by.
    #[must_use]
    pub fn passing(files: Arc<FileBatch>) -> Self {
        Self { files, stats: StatsCache::passing(), ids: None, tombstones: Mutex::default() }
    }

    /// The files that nothing in `decided` speaks of. For the same set as before they are not looked up again.
    #[must_use]
    pub fn live_rows(&self, decided: &Arc<ReplaySet>) -> Rows {
        let mut tombstones = self.tombstones.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::ptr::eq(tombstones.decided.as_ptr(), Arc::as_ptr(decided)) {
            let dead = decided.dead(&self.files);
            *tombstones = Tombstones { decided: Arc::downgrade(decided), dead };
        }
        all_but(&tombstones.dead, self.files.len() as u32)
    }

    /// The ids of all files, for an answer that holds `wanted` of them. `None` where to make them all costs more
    /// than these few, and in a batch that passes by.
    #[must_use]
    pub fn ids(&self, scheme: IdScheme, wanted: usize) -> Option<&FileIds> {
        let ids = self.ids.as_ref()?.of(scheme);
        if wanted * 8 < self.files.len() {
            return ids.get();
        }
        Some(ids.get_or_init(|| FileIds::of(scheme, &self.files.path)))
    }

    fn bytes(&self) -> usize {
        self.files.memory_bytes() + self.stats.memory_bytes() + self.ids.as_ref().map_or(0, Ids::memory_bytes)
    }
}

impl Ids {
    fn of(&self, scheme: IdScheme) -> &OnceLock<FileIds> {
        match scheme {
            IdScheme::Parquet => &self.parquet,
            IdScheme::Delta => &self.delta,
        }
    }

    fn memory_bytes(&self) -> usize {
        [&self.parquet, &self.delta].into_iter().filter_map(OnceLock::get).map(FileIds::memory_bytes).sum()
    }
}

/// The rows before `end` that are not in `dead`, which ascends.
fn all_but(dead: &[u32], end: u32) -> Rows {
    let mut rows = Vec::with_capacity(end as usize);
    let mut next = 0;
    for row in dead {
        rows.extend(next..*row);
        next = row + 1;
    }
    rows.extend(next..end);
    rows
}

/// All batches of a checkpoint, in order.
#[derive(Debug, Default)]
pub struct HotColumns {
    /// The batches.
    pub batches: Vec<Arc<HotBatch>>,
}

impl HotColumns {
    fn bytes(&self) -> usize {
        self.batches.iter().map(|batch| batch.bytes()).sum()
    }
}

/// The columns of all tables of a process.
#[derive(Debug)]
pub struct HotCache {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    budget_bytes: usize,
    slots: HashMap<HotKey, Slot>,
    /// How often a scan that cannot build columns would have used them.
    missed: HashMap<HotKey, u32>,
    /// Counts uses: the larger, the later.
    clock: u64,
}

#[derive(Debug)]
enum Slot {
    /// A scan is at it and holds so many bytes.
    Building {
        bytes: usize,
    },
    /// Does not fit: do not try again.
    TooLarge,
    Ready {
        columns: Arc<HotColumns>,
        bytes: usize,
        last_used: u64,
    },
}

impl HotCache {
    /// A cache that holds at most `budget_bytes`; zero keeps nothing.
    #[must_use]
    pub fn new(budget_bytes: usize) -> Self {
        Self { state: Mutex::new(State { budget_bytes, ..State::default() }) }
    }

    /// The columns, if they are there. Marks them as used.
    #[must_use]
    pub fn get(&self, key: &HotKey) -> Option<Arc<HotColumns>> {
        let mut state = self.lock();
        state.clock += 1;
        let now = state.clock;
        match state.slots.get_mut(key)? {
            Slot::Ready { columns, last_used, .. } => {
                *last_used = now;
                Some(Arc::clone(columns))
            }
            Slot::Building { .. } | Slot::TooLarge => None,
        }
    }

    /// The right to build the columns, unless they are there, being built, or known not to fit.
    #[must_use]
    pub fn build(self: &Arc<Self>, key: &HotKey) -> Option<HotBuilder> {
        let mut state = self.lock();
        if state.budget_bytes == 0 || state.slots.contains_key(key) {
            return None;
        }
        // What was known of the table's earlier checkpoints would pile up.
        state.slots.retain(|known, slot| known.table != key.table || !matches!(slot, Slot::TooLarge));
        state.slots.insert(key.clone(), Slot::Building { bytes: 0 });
        Some(HotBuilder {
            cache: Arc::clone(self),
            key: key.clone(),
            columns: HotColumns::default(),
            bytes: 0,
        })
    }

    /// Counts a scan that had to read the log though it needs a part of it only. True when the columns have been
    /// missed often enough for somebody to build them apart.
    #[must_use]
    pub fn is_missed(&self, key: &HotKey) -> bool {
        let mut state = self.lock();
        if state.budget_bytes == 0 || state.slots.contains_key(key) {
            return false;
        }
        if state.missed.len() >= REMEMBERED_MISSES {
            state.missed.clear();
        }
        let missed = state.missed.entry(key.clone()).or_default();
        *missed += 1;
        *missed >= MISSES_TO_BUILD && state.missed.remove(key).is_some()
    }

    /// Takes account of statistics and ids that were made since; may drop columns to stay within the budget.
    pub fn recount(&self, key: &HotKey) {
        let mut state = self.lock();
        if let Some(Slot::Ready { columns, bytes, .. }) = state.slots.get_mut(key) {
            *bytes = columns.bytes();
        }
        keep_within_budget(state);
    }

    /// Drops all that is known of a table.
    pub fn forget(&self, table: u64) {
        let mut state = self.lock();
        state.missed.retain(|key, _| key.table != table);
        let forgotten: Vec<_> = state.slots.extract_if(|key, _| key.table == table).collect();
        drop(state);
        drop(forgotten);
    }

    /// Drops the least recently used columns until at most `bytes` are held. Scans that walk them go on.
    pub fn shrink(&self, bytes: usize) {
        let left = self.lock().shrink(bytes);
        drop(left);
    }

    /// Changes the budget.
    pub fn set_budget(&self, budget_bytes: usize) {
        let mut state = self.lock();
        state.budget_bytes = budget_bytes;
        state.slots.retain(|_, slot| !matches!(slot, Slot::TooLarge));
        keep_within_budget(state);
    }

    /// The bytes held.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.lock().used_bytes()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs between two changes of the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn used_bytes(&self) -> usize {
        self.slots.values().map(Slot::bytes).sum()
    }

    /// Takes the least recently used columns out. They are the caller's to drop when it has let the state go: to
    /// free gigabytes takes long, and the event loop looks columns up.
    #[must_use]
    fn shrink(&mut self, budget_bytes: usize) -> Vec<Slot> {
        let mut left = Vec::new();
        while self.used_bytes() > budget_bytes {
            let oldest = self
                .slots
                .iter()
                .filter_map(|(key, slot)| Some((slot.last_used()?, key)))
                .min_by_key(|(last_used, _)| *last_used);
            let Some((_, key)) = oldest else { break };
            let key = key.clone();
            left.extend(self.slots.remove(&key));
        }
        left
    }
}

/// Lets the state go, and then what has no room in it.
fn keep_within_budget(mut state: MutexGuard<'_, State>) {
    let budget_bytes = state.budget_bytes;
    let left = state.shrink(budget_bytes);
    drop(state);
    drop(left);
}

impl Slot {
    fn bytes(&self) -> usize {
        match self {
            Self::Ready { bytes, .. } | Self::Building { bytes } => *bytes,
            Self::TooLarge => 0,
        }
    }

    fn last_used(&self) -> Option<u64> {
        match self {
            Self::Ready { last_used, .. } => Some(*last_used),
            Self::Building { .. } | Self::TooLarge => None,
        }
    }
}

/// Columns in the making. Dropped before [`HotBuilder::finish`], it leaves no trace.
#[derive(Debug)]
pub struct HotBuilder {
    cache: Arc<HotCache>,
    key: HotKey,
    columns: HotColumns,
    bytes: usize,
}

impl HotBuilder {
    /// Adds the next batch; false when there is no room for it, and the builder is of no more use.
    #[must_use]
    pub fn push(&mut self, batch: &Arc<HotBatch>) -> bool {
        self.bytes += batch.bytes();
        let mut state = self.cache.lock();
        if !state.slots.contains_key(&self.key) {
            // The table was forgotten meanwhile.
            self.columns.batches = Vec::new();
            return false;
        }
        let budget_bytes = state.budget_bytes;
        state.slots.insert(self.key.clone(), Slot::Building { bytes: self.bytes });
        let left = state.shrink(budget_bytes);
        let has_room = state.used_bytes() <= budget_bytes;
        if !has_room {
            if self.bytes > budget_bytes {
                state.slots.insert(self.key.clone(), Slot::TooLarge);
            } else {
                state.slots.remove(&self.key);
            }
        }
        drop(state);
        drop(left);
        if has_room {
            self.columns.batches.push(Arc::clone(batch));
        } else {
            self.columns.batches = Vec::new();
        }
        has_room
    }

    /// The checkpoint was read to its end: the columns are ready for all.
    pub fn finish(mut self) {
        let columns = Arc::new(std::mem::take(&mut self.columns));
        let bytes = columns.bytes();
        let mut state = self.cache.lock();
        if !state.slots.contains_key(&self.key) {
            return;
        }
        state.clock += 1;
        let last_used = state.clock;
        state.slots.insert(self.key.clone(), Slot::Ready { columns, bytes, last_used });
        keep_within_budget(state);
    }
}

impl Drop for HotBuilder {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        if matches!(state.slots.get(&self.key), Some(Slot::Building { .. })) {
            state.slots.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::testing::files_named;

    fn key(table: u64) -> HotKey {
        HotKey {
            table,
            checkpoint: "00.checkpoint.parquet".into(),
            decoding: Decoding::of(&Metadata::default()),
        }
    }

    fn batch(files: usize) -> Arc<HotBatch> {
        let paths: Vec<String> = (0..files).map(|number| format!("part-{number:032}.parquet")).collect();
        Arc::new(HotBatch::kept(Arc::new(files_named(&paths))))
    }

    fn fill(cache: &Arc<HotCache>, table: u64, files: usize) {
        let mut builder = cache.build(&key(table)).unwrap();
        assert!(builder.push(&batch(files)));
        builder.finish();
    }

    #[test]
    fn each_version_sees_its_own_dead_files_whatever_version_asked_before() {
        let batch = batch(100);
        let decided = |dead: &[usize]| {
            let mut set = ReplaySet::default();
            for file in dead {
                assert!(set.insert(batch.files.path.value(*file), None));
            }
            Arc::new(set)
        };
        let sets = [decided(&[]), decided(&[0, 1, 50, 99]), decided(&[7])];
        for set in sets.iter().chain(&sets).chain([&sets[2], &sets[1], &sets[1]]) {
            assert_eq!(batch.live_rows(set), set.live(&batch.files));
        }
        for dead in 0..50 {
            // Each set is gone when the next one comes, perhaps to its place in memory.
            let set = decided(&[dead]);
            assert_eq!(batch.live_rows(&set), set.live(&batch.files));
        }
    }

    #[test]
    fn ids_are_made_for_many_files_and_then_serve_few() {
        let batch = batch(80);
        let bytes = batch.bytes();
        assert!(batch.ids(IdScheme::Delta, 9).is_none());
        let ids = batch.ids(IdScheme::Delta, 10).unwrap();
        assert_eq!(ids.get(79), FileIds::of(IdScheme::Delta, &batch.files.path).get(79));
        assert!(batch.ids(IdScheme::Delta, 1).is_some() && batch.ids(IdScheme::Parquet, 1).is_none());
        assert_eq!(batch.bytes(), bytes + 80 * 32);
        assert!(HotBatch::passing(Arc::clone(&batch.files)).ids(IdScheme::Delta, 80).is_none());
    }

    #[test]
    fn of_two_scans_at_once_only_one_builds() {
        let cache = Arc::new(HotCache::new(1 << 20));
        let first = cache.build(&key(1)).unwrap();
        assert!(cache.build(&key(1)).is_none());
        assert!(cache.get(&key(1)).is_none());
        first.finish();
        assert!(cache.get(&key(1)).is_some());
    }

    #[test]
    fn a_scan_that_breaks_off_leaves_the_next_one_to_build() {
        let cache = Arc::new(HotCache::new(1 << 20));
        let mut first = cache.build(&key(1)).unwrap();
        assert!(first.push(&batch(10)));
        drop(first);
        assert!(cache.build(&key(1)).is_some());
    }

    #[test]
    fn the_least_recently_used_columns_leave_first() {
        let one = batch(1000).bytes();
        let cache = Arc::new(HotCache::new(2 * one + one / 2));
        fill(&cache, 1, 1000);
        fill(&cache, 2, 1000);
        let walked = cache.get(&key(1)).unwrap();
        fill(&cache, 3, 1000);
        assert!(cache.get(&key(2)).is_none());
        assert!(cache.used_bytes() <= 2 * one + one / 2);
        cache.shrink(0);
        assert_eq!(cache.used_bytes(), 0);
        assert_eq!(walked.batches[0].files.len(), 1000);
    }

    #[test]
    fn a_table_larger_than_the_budget_is_tried_once() {
        let cache = Arc::new(HotCache::new(batch(1000).bytes()));
        let mut builder = cache.build(&key(1)).unwrap();
        assert!(builder.push(&batch(900)));
        assert!(!builder.push(&batch(900)));
        drop(builder);
        assert!(cache.build(&key(1)).is_none());
        assert_eq!(cache.used_bytes(), 0);
    }

    #[test]
    fn of_a_table_that_is_too_large_only_the_last_checkpoint_is_remembered() {
        let cache = Arc::new(HotCache::new(batch(1000).bytes()));
        for version in 0..20 {
            let key = HotKey { checkpoint: format!("{version}.checkpoint.parquet").into(), ..key(1) };
            assert!(!cache.build(&key).unwrap().push(&batch(2000)));
            assert!(cache.build(&key).is_none());
        }
        assert_eq!(cache.lock().slots.len(), 1);
    }

    #[test]
    fn two_builds_at_once_stay_within_the_budget_together() {
        let cache = Arc::new(HotCache::new(batch(1000).bytes() * 3 / 2));
        let mut first = cache.build(&key(1)).unwrap();
        let mut second = cache.build(&key(2)).unwrap();
        assert!(first.push(&batch(1000)));
        assert!(!second.push(&batch(1000)));
        drop(second);
        first.finish();
        assert!(cache.get(&key(1)).is_some());
        assert!(cache.build(&key(2)).is_some(), "there may be room for it later");
    }

    #[test]
    fn the_second_partial_scan_asks_for_columns() {
        let cache = Arc::new(HotCache::new(1 << 20));
        assert!(!cache.is_missed(&key(1)));
        assert!(!cache.is_missed(&key(2)));
        assert!(cache.is_missed(&key(1)));
        fill(&cache, 1, 10);
        assert!(!cache.is_missed(&key(1)));
        assert!(!Arc::new(HotCache::new(0)).is_missed(&key(1)));
    }

    #[test]
    fn a_table_that_is_forgotten_leaves_nothing_and_what_was_being_built_of_it_is_dropped() {
        let cache = Arc::new(HotCache::new(1 << 20));
        fill(&cache, 1, 10);
        fill(&cache, 2, 10);
        let other = HotKey { checkpoint: "01.checkpoint.parquet".into(), ..key(1) };
        let mut building = cache.build(&other).unwrap();
        assert!(building.push(&batch(10)));
        cache.forget(1);
        assert!(cache.get(&key(1)).is_none() && cache.get(&key(2)).is_some());
        assert!(!building.push(&batch(10)));
        building.finish();
        assert!(cache.get(&other).is_none());
        assert!(cache.build(&other).is_some());
    }

    #[test]
    fn all_of_the_metadata_that_decoding_depends_on_is_part_of_the_key() {
        let metadata = Metadata {
            id: "t".into(),
            schema_string: Some("{}".into()),
            partition_columns: vec!["p".into(), "q".into()],
            ..Metadata::default()
        };
        let others = [
            Metadata { id: "u".into(), ..metadata.clone() },
            Metadata { schema_string: Some("{ }".into()), ..metadata.clone() },
            Metadata { schema_string: None, ..metadata.clone() },
            Metadata { partition_columns: vec!["q".into(), "p".into()], ..metadata.clone() },
            Metadata { partition_columns: vec!["pq".into()], ..metadata.clone() },
            Metadata { configuration: vec![(COLUMN_MAPPING_MODE.into(), "name".into())], ..metadata.clone() },
        ];
        for other in &others {
            assert_ne!(Decoding::of(other), Decoding::of(&metadata), "{other:?}");
        }
        let renamed = Metadata { name: Some("n".into()), ..metadata.clone() };
        assert_eq!(Decoding::of(&renamed), Decoding::of(&metadata));
    }

    #[test]
    fn without_a_budget_nothing_is_built() {
        assert!(Arc::new(HotCache::new(0)).build(&key(1)).is_none());
    }
}
