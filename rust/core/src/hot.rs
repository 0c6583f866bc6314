//! Columns of hot tables, and snapshots that requests come back to, kept in memory within one budget of bytes.
//!
//! What is kept is the file batches of one checkpoint, whole and immutable: commits after it are small and live
//! with their snapshot, so a new version asks this room for nothing but which of its rows are dead. Columns are
//! built by the first scan that reads a checkpoint to its end, as it streams; of several such scans at once only
//! one builds. The least recently used columns leave first; scans that still walk them hold them until they end.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use sha2::{Digest, Sha256};

use crate::actions::{FileBatch, Metadata, PartitionTuple, Rows};
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
    /// Counted once: it is the deletion vectors' number that it takes to count.
    file_bytes: usize,
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
        Self {
            file_bytes: files.memory_bytes(),
            files,
            stats: StatsCache::kept(),
            ids: Some(Ids::default()),
            tombstones: Mutex::default(),
        }
    }

    /// A batch that passes by.
    #[must_use]
    pub fn passing(files: Arc<FileBatch>) -> Self {
        Self { files, stats: StatsCache::passing(), file_bytes: 0, ids: None, tombstones: Mutex::default() }
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

    /// What a batch that stays holds, without the partition values that it shares with others.
    fn bytes(&self) -> usize {
        self.file_bytes + self.stats.memory_bytes() + self.ids.as_ref().map_or(0, Ids::memory_bytes)
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
    /// The partition values that the batches share.
    dictionary_bytes: usize,
}

impl HotColumns {
    /// Reads a few numbers of each batch. Not for a thread that holds the cache's state.
    fn bytes(&self) -> usize {
        self.dictionary_bytes + self.batches.iter().map(|batch| batch.bytes()).sum::<usize>()
    }
}

/// The columns of all tables of a process, and the snapshots and ranges that later requests come back to, within one
/// budget of bytes. What was not used for longest leaves first, whichever of them it is.
#[derive(Debug)]
pub struct HotCache {
    state: Mutex<State>,
}

/// Something that is held in memory by address, which counts once however many hold it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    address: usize,
    bytes: usize,
}

impl Part {
    /// What is behind an `Arc`, which the caller knows to take so many bytes.
    pub(crate) fn shared<T: ?Sized>(shared: &Arc<T>, bytes: usize) -> Self {
        Self { address: Arc::as_ptr(shared).cast::<u8>() as usize, bytes }
    }
}

#[derive(Debug, Default)]
struct State {
    budget_bytes: usize,
    used_bytes: usize,
    slots: HashMap<HotKey, Slot>,
    kept: HashMap<u64, Kept>,
    /// What is kept, by its address: its bytes, and how many keep it.
    parts: HashMap<usize, (usize, usize)>,
    /// Tables whose columns do not fit.
    too_large: HashMap<u64, TooLarge>,
    /// How often a scan that cannot build columns would have used them.
    missed: HashMap<HotKey, u32>,
    /// What may leave, the least recently used first.
    uses: BTreeMap<u64, Entry>,
    /// Counts uses: the larger, the later.
    clock: u64,
}

#[derive(Debug)]
enum Slot {
    /// A scan is at it and holds so many bytes.
    Building {
        bytes: usize,
    },
    Ready {
        columns: Arc<HotColumns>,
        bytes: usize,
        last_used: u64,
    },
}

/// What a later request may come back to.
#[derive(Debug)]
struct Kept {
    table: u64,
    item: Kin,
    parts: Vec<Part>,
    last_used: u64,
}

type Kin = Arc<dyn Any + Send + Sync>;

#[derive(Debug, Clone)]
enum Entry {
    Columns(HotKey),
    Kept(u64),
}

/// Columns that were too large for the budget.
#[derive(Debug, Clone, Copy)]
struct TooLarge {
    files: u64,
    /// What they would take, as far as they were decoded.
    bytes: usize,
}

/// What left the cache. To free gigabytes takes long, so it is dropped when the state is not held any more.
type Left = Vec<Kin>;

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
        let now = state.tick();
        let Some(Slot::Ready { columns, last_used, .. }) = state.slots.get_mut(key) else { return None };
        let (columns, before) = (Arc::clone(columns), std::mem::replace(last_used, now));
        state.used(before, now);
        Some(columns)
    }

    /// The right to build the columns of about `files` files, unless they are there, being built, or known not to
    /// fit. Without their number the columns only get what nobody else has.
    #[must_use]
    pub fn build(self: &Arc<Self>, key: &HotKey, files: Option<u64>) -> Option<HotBuilder> {
        let mut state = self.lock();
        if !state.may_build(key, files) {
            return None;
        }
        state.slots.insert(key.clone(), Slot::Building { bytes: 0 });
        Some(HotBuilder {
            cache: Arc::clone(self),
            key: key.clone(),
            columns: HotColumns::default(),
            files,
            files_pushed: 0,
            bytes: 0,
            dictionary: Vec::new(),
        })
    }

    /// Counts a scan that had to read the log though it needs a part of it only. True when the columns have been
    /// missed often enough for a scan of their own to build them.
    #[must_use]
    pub fn is_missed(&self, key: &HotKey, files: Option<u64>) -> bool {
        let mut state = self.lock();
        if !state.may_build(key, files) {
            return false;
        }
        if state.missed.len() >= REMEMBERED_MISSES {
            state.missed.clear();
        }
        let missed = state.missed.entry(key.clone()).or_default();
        *missed += 1;
        *missed >= MISSES_TO_BUILD && state.missed.remove(key).is_some()
    }

    /// Takes account of statistics and ids that were made since; may drop columns to stay within the budget. Columns
    /// that are larger than the whole budget by now leave alone, and are too large from then on.
    pub fn recount(&self, key: &HotKey) {
        let columns = match self.lock().slots.get(key) {
            Some(Slot::Ready { columns, .. }) => Arc::clone(columns),
            _ => return,
        };
        let counted = columns.bytes();
        let mut state = self.lock();
        if let Some(Slot::Ready { columns: found, bytes, .. }) = state.slots.get_mut(key)
            && Arc::ptr_eq(found, &columns)
        {
            let before = std::mem::replace(bytes, counted);
            state.used_bytes = state.used_bytes - before + counted;
            let too_large = state.remove_too_large(key);
            keep_within_budget(state);
            drop(too_large);
        }
    }

    /// Keeps something of a table for later requests, and returns the number to find it by. `None` where it does not
    /// fit: then nothing else leaves for it.
    pub(crate) fn keep(&self, table: u64, item: Kin, parts: Vec<Part>) -> Option<u64> {
        let mut state = self.lock();
        let bytes = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.bytes));
        if bytes > state.budget_bytes {
            return None;
        }
        let number = state.tick();
        for part in &parts {
            let (_, keepers) = state.parts.entry(part.address).or_insert((part.bytes, 0));
            *keepers += 1;
            if *keepers == 1 {
                state.used_bytes += part.bytes;
            }
        }
        state.kept.insert(number, Kept { table, item, parts, last_used: number });
        state.uses.insert(number, Entry::Kept(number));
        keep_within_budget(state);
        Some(number)
    }

    /// Marks what is kept as used; false if it left.
    pub(crate) fn touch(&self, number: u64) -> bool {
        let mut state = self.lock();
        let now = state.tick();
        let Some(kept) = state.kept.get_mut(&number) else { return false };
        let before = std::mem::replace(&mut kept.last_used, now);
        state.used(before, now);
        true
    }

    /// Keeps it no more.
    pub(crate) fn release(&self, number: u64) {
        let left = self.lock().remove(&Entry::Kept(number));
        drop(left);
    }

    /// Drops the columns of a table, and what is known of their size.
    pub fn forget_columns(&self, table: u64) {
        let left = self.lock().forget_columns(table);
        drop(left);
    }

    /// Drops all that is there of a table.
    pub fn forget(&self, table: u64) {
        let mut state = self.lock();
        let mut left = state.forget_columns(table);
        let kept: Vec<u64> =
            state.kept.iter().filter(|(_, kept)| kept.table == table).map(|(number, _)| *number).collect();
        left.extend(kept.into_iter().filter_map(|number| state.remove(&Entry::Kept(number))));
        drop(state);
        drop(left);
    }

    /// Drops what was not used for longest until at most `bytes` are held. Scans that walk columns go on.
    pub fn shrink(&self, bytes: usize) {
        let left = self.lock().shrink(bytes);
        drop(left);
    }

    /// Changes the budget.
    pub fn set_budget(&self, budget_bytes: usize) {
        let mut state = self.lock();
        state.budget_bytes = budget_bytes;
        state.too_large.clear();
        keep_within_budget(state);
    }

    /// The bytes held.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.lock().used_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs between two changes of the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn used(&mut self, before: u64, now: u64) {
        if let Some(entry) = self.uses.remove(&before) {
            self.uses.insert(now, entry);
        }
    }

    fn may_build(&self, key: &HotKey, files: Option<u64>) -> bool {
        // A table that did not fit may do so when it has fewer files.
        let fits = |known: &TooLarge| files.is_some_and(|files| known.expected(files) <= self.budget_bytes);
        self.budget_bytes > 0
            && !self.slots.contains_key(key)
            && self.too_large.get(&key.table).is_none_or(fits)
    }

    /// Takes out columns that are larger than the whole budget: to drop others for them would not make them fit.
    #[must_use]
    fn remove_too_large(&mut self, key: &HotKey) -> Option<Kin> {
        let Some(Slot::Ready { columns, bytes, .. }) = self.slots.get(key) else { return None };
        if *bytes <= self.budget_bytes {
            return None;
        }
        let files = columns.batches.iter().map(|batch| batch.files.len() as u64).sum();
        let too_large = TooLarge { files, bytes: *bytes };
        self.too_large.insert(key.table, too_large);
        self.remove(&Entry::Columns(key.clone()))
    }

    /// Takes out what was not used for longest. It is the caller's to drop when it does not hold the state.
    #[must_use]
    fn shrink(&mut self, budget_bytes: usize) -> Left {
        let mut left = Vec::new();
        while self.used_bytes > budget_bytes
            && let Some((_, entry)) = self.uses.pop_first()
        {
            left.extend(self.remove(&entry));
        }
        left
    }

    #[must_use]
    fn remove(&mut self, entry: &Entry) -> Option<Kin> {
        match entry {
            Entry::Columns(key) => match self.slots.remove(key)? {
                Slot::Building { bytes } => {
                    self.used_bytes -= bytes;
                    None
                }
                Slot::Ready { columns, bytes, last_used } => {
                    self.used_bytes -= bytes;
                    self.uses.remove(&last_used);
                    Some(columns)
                }
            },
            Entry::Kept(number) => {
                let kept = self.kept.remove(number)?;
                self.uses.remove(&kept.last_used);
                for part in &kept.parts {
                    if let Some((bytes, keepers)) = self.parts.get_mut(&part.address) {
                        *keepers -= 1;
                        if *keepers == 0 {
                            self.used_bytes -= *bytes;
                            self.parts.remove(&part.address);
                        }
                    }
                }
                Some(kept.item)
            }
        }
    }

    #[must_use]
    fn forget_columns(&mut self, table: u64) -> Left {
        self.missed.retain(|key, _| key.table != table);
        self.too_large.remove(&table);
        let keys: Vec<_> = self.slots.keys().filter(|key| key.table == table).cloned().collect();
        keys.into_iter().filter_map(|key| self.remove(&Entry::Columns(key))).collect()
    }
}

impl TooLarge {
    /// What columns of so many files would take.
    fn expected(self, files: u64) -> usize {
        let bytes = self.bytes as u128 * u128::from(files) / u128::from(self.files.max(1));
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// Lets the state go, and then what has no room in it.
fn keep_within_budget(mut state: MutexGuard<'_, State>) {
    let budget_bytes = state.budget_bytes;
    let left = state.shrink(budget_bytes);
    drop(state);
    drop(left);
}

/// Columns in the making. Dropped before [`HotBuilder::finish`], it leaves no trace.
#[derive(Debug)]
pub struct HotBuilder {
    cache: Arc<HotCache>,
    key: HotKey,
    columns: HotColumns,
    /// How many there will be, if that is known.
    files: Option<u64>,
    files_pushed: u64,
    bytes: usize,
    /// The partition values that were counted. A dictionary grows from batch to batch, or is begun again.
    dictionary: Vec<Arc<PartitionTuple>>,
}

impl HotBuilder {
    /// Adds the next batch; false when there is no room for it, and the builder is of no more use.
    ///
    /// Other tables' columns leave only for columns that will fit when all files are there, as far as the files so far
    /// tell.
    #[must_use]
    pub fn push(&mut self, batch: &Arc<HotBatch>) -> bool {
        self.columns.dictionary_bytes += self.count_dictionary(&batch.files);
        self.columns.batches.push(Arc::clone(batch));
        self.files_pushed += batch.files.len() as u64;
        self.bytes += batch.bytes();
        let bytes = self.bytes + self.columns.dictionary_bytes;
        let mut state = self.cache.lock();
        let entry = Entry::Columns(self.key.clone());
        let Some(Slot::Building { bytes: counted }) = state.slots.get_mut(&self.key) else {
            // The table was forgotten meanwhile.
            drop(state);
            self.columns.batches = Vec::new();
            return false;
        };
        let counted = std::mem::replace(counted, bytes);
        state.used_bytes = state.used_bytes - counted + bytes;
        let budget_bytes = state.budget_bytes;
        let mut left = Vec::new();
        if state.used_bytes > budget_bytes {
            let so_far = TooLarge { files: self.files_pushed, bytes };
            let expected = self.files.map(|files| so_far.expected(files.max(self.files_pushed)));
            if expected.is_some_and(|expected| expected <= budget_bytes) {
                left = state.shrink(budget_bytes);
            } else if expected.is_some() || bytes > budget_bytes {
                state.too_large.insert(self.key.table, so_far);
            }
        }
        let has_room = state.used_bytes <= budget_bytes;
        if !has_room {
            left.extend(state.remove(&entry));
        }
        drop(state);
        drop(left);
        if !has_room {
            self.columns.batches = Vec::new();
        }
        has_room
    }

    /// The bytes of partition values that no earlier batch had.
    fn count_dictionary(&mut self, files: &FileBatch) -> usize {
        let dictionary = &files.partitions.dictionary;
        let grows = self.dictionary.first().zip(dictionary.first()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        if !grows {
            self.dictionary.clear();
        }
        let more = dictionary.get(self.dictionary.len()..).unwrap_or_default();
        self.dictionary.extend(more.iter().map(Arc::clone));
        more.iter().map(|tuple| tuple.memory_bytes()).sum()
    }

    /// The checkpoint was read to its end: the columns are ready for all.
    pub fn finish(mut self) {
        let columns = Arc::new(std::mem::take(&mut self.columns));
        let bytes = columns.bytes();
        let mut state = self.cache.lock();
        if !matches!(state.slots.get(&self.key), Some(Slot::Building { .. })) {
            return;
        }
        let _ = state.remove(&Entry::Columns(self.key.clone()));
        let last_used = state.tick();
        state.used_bytes += bytes;
        state.uses.insert(last_used, Entry::Columns(self.key.clone()));
        state.slots.insert(self.key.clone(), Slot::Ready { columns, bytes, last_used });
        let too_large = state.remove_too_large(&self.key);
        keep_within_budget(state);
        drop(too_large);
    }
}

impl Drop for HotBuilder {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        if matches!(state.slots.get(&self.key), Some(Slot::Building { .. })) {
            let _ = state.remove(&Entry::Columns(self.key.clone()));
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

    /// What columns of a thousand files take.
    fn thousand_bytes() -> usize {
        let cache = Arc::new(HotCache::new(1 << 30));
        fill(&cache, 1, 1000);
        cache.used_bytes()
    }

    fn fill(cache: &Arc<HotCache>, table: u64, files: usize) {
        let mut builder = cache.build(&key(table), Some(files as u64)).unwrap();
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
        let first = cache.build(&key(1), Some(1000)).unwrap();
        assert!(cache.build(&key(1), Some(1000)).is_none());
        assert!(cache.get(&key(1)).is_none());
        first.finish();
        assert!(cache.get(&key(1)).is_some());
    }

    #[test]
    fn a_scan_that_breaks_off_leaves_the_next_one_to_build() {
        let cache = Arc::new(HotCache::new(1 << 20));
        let mut first = cache.build(&key(1), Some(1000)).unwrap();
        assert!(first.push(&batch(10)));
        drop(first);
        assert!(cache.build(&key(1), Some(1000)).is_some());
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
        let mut builder = cache.build(&key(1), Some(1000)).unwrap();
        assert!(builder.push(&batch(900)));
        assert!(!builder.push(&batch(900)));
        drop(builder);
        assert!(cache.build(&key(1), Some(1000)).is_none());
        assert_eq!(cache.used_bytes(), 0);
    }

    #[test]
    fn a_table_that_did_not_fit_is_tried_again_when_it_may_fit_and_not_at_its_next_checkpoint() {
        let cache = Arc::new(HotCache::new(batch(1000).bytes() * 3 / 2));
        let at = |version: u32| HotKey { checkpoint: format!("{version}.parquet").into(), ..key(1) };
        let mut builder = cache.build(&at(0), Some(4000)).unwrap();
        assert!(builder.push(&batch(1000)));
        assert!(!builder.push(&batch(1000)));
        drop(builder);
        for version in 1..20 {
            assert!(cache.build(&at(version), Some(4000 + u64::from(version))).is_none());
            assert!(!cache.is_missed(&at(version), Some(4000)) && !cache.is_missed(&at(version), None));
        }
        assert!(cache.build(&at(20), Some(1000)).is_some(), "files were removed");
        cache.set_budget(batch(1000).bytes() * 5);
        assert!(cache.build(&at(21), Some(4000)).is_some(), "the budget has grown");
    }

    #[test]
    fn a_table_that_does_not_fit_takes_nothing_from_the_others() {
        let one = thousand_bytes();
        let cache = Arc::new(HotCache::new(4 * one + one / 2));
        fill(&cache, 1, 1000);
        fill(&cache, 2, 1000);
        for files in [Some(6000), None] {
            let mut builder = cache.build(&key(3), files).unwrap();
            assert!(builder.push(&batch(1000)) && builder.push(&batch(1000)));
            assert!(!builder.push(&batch(1000)), "{files:?}");
            drop(builder);
            assert!(cache.get(&key(1)).is_some() && cache.get(&key(2)).is_some(), "{files:?}");
            assert_eq!(cache.used_bytes(), 2 * one);
            cache.forget_columns(3);
        }
        let mut builder = cache.build(&key(3), Some(4000)).unwrap();
        assert!((0..4).all(|_| builder.push(&batch(1000))), "one that fits does");
        builder.finish();
        assert!(cache.get(&key(3)).is_some() && cache.get(&key(1)).is_none());
    }

    #[test]
    fn columns_that_grow_beyond_the_budget_leave_alone_and_are_not_built_again() {
        for grows_while_it_is_built in [true, false] {
            let cache = Arc::new(HotCache::new(1 << 30));
            fill(&cache, 1, 10);
            let others = cache.used_bytes();
            let columns = batch(1500);
            let mut builder = cache.build(&key(2), Some(1500)).unwrap();
            assert!(builder.push(&columns));
            // More than that by less than the ids take.
            cache.set_budget(cache.used_bytes() + 1000);
            if grows_while_it_is_built {
                assert!(columns.ids(IdScheme::Delta, 1500).is_some());
                builder.finish();
            } else {
                builder.finish();
                cache.recount(&key(2));
                assert!(cache.get(&key(1)).is_some() && cache.get(&key(2)).is_some());
                assert!(columns.ids(IdScheme::Delta, 1500).is_some());
                cache.recount(&key(2));
            }
            assert!(cache.get(&key(2)).is_none());
            assert!(cache.get(&key(1)).is_some(), "it is not to blame");
            assert_eq!(cache.used_bytes(), others);
            assert!(cache.build(&key(2), Some(1500)).is_none());
            assert!(cache.build(&key(2), Some(100)).is_some(), "files were removed");
        }
    }

    #[test]
    fn columns_and_what_is_kept_leave_in_the_order_of_their_uses() {
        let one = thousand_bytes();
        let cache = Arc::new(HotCache::new(3 * one));
        let keep = |bytes: usize| {
            let item = Arc::new(bytes);
            let parts = vec![Part::shared(&item, bytes)];
            cache.keep(7, item, parts)
        };
        let first = keep(one).unwrap();
        fill(&cache, 1, 1000);
        let second = keep(one).unwrap();
        assert!(cache.touch(first));
        fill(&cache, 2, 1000);
        assert!(cache.get(&key(1)).is_none(), "it was used before the others");
        assert!(cache.touch(first) && cache.touch(second));
        let third = keep(one).unwrap();
        assert!(cache.get(&key(2)).is_none());
        assert_eq!(keep(3 * one + 1), None);
        assert!(
            [first, second, third].iter().all(|kept| cache.touch(*kept)),
            "what does not fit drops nothing"
        );
        assert_eq!(cache.used_bytes(), 3 * one);
        cache.forget(7);
        assert_eq!(cache.used_bytes(), 0);
        assert!(cache.lock().parts.is_empty() && cache.lock().uses.is_empty());
    }

    #[test]
    fn partition_values_that_batches_share_count_once() {
        let cache = Arc::new(HotCache::new(1 << 20));
        let mut interner = crate::partition::PartitionInterner::new(&["p"]);
        let mut with_values = |values: &[String]| {
            let mut column = interner.column(values.len());
            for value in values {
                column.push(&[Some(value)]);
            }
            let partitions = column.finish();
            Arc::new(HotBatch::kept(Arc::new(FileBatch { partitions, ..files_named(values) })))
        };
        let values: Vec<String> = (0..50).map(|value| format!("{value:0100}")).collect();
        let batches = [with_values(&values[..20]), with_values(&values), with_values(&values[..10])];
        let mut builder = cache.build(&key(1), Some(80)).unwrap();
        assert!(batches.iter().all(|batch| builder.push(batch)));
        let tuples = &batches[1].files.partitions.dictionary;
        let dictionary: usize = tuples.iter().map(|tuple| tuple.memory_bytes()).sum();
        assert!(dictionary > 50 * 200);
        builder.finish();
        let of_batches: usize = batches.iter().map(|batch| batch.bytes()).sum();
        assert_eq!(cache.used_bytes(), of_batches + dictionary);
    }

    #[test]
    fn counting_again_reads_no_deletion_vector_and_no_text() {
        let vector = crate::actions::DeletionVectorDescriptor {
            storage_type: b'i',
            path_or_inline: "x".repeat(100),
            offset: None,
            size_in_bytes: 1,
            cardinality: 1,
        };
        let paths: Vec<String> = (0..1000).map(|file| format!("part-{file}")).collect();
        let vectors = Some(vec![Some(Box::new(vector)); paths.len()]);
        let files = FileBatch { deletion_vector: vectors, ..files_named(&paths) };
        let bytes = files.memory_bytes();
        assert!(bytes > 1000 * 100);
        let batch = HotBatch::kept(Arc::new(files));
        assert_eq!((batch.file_bytes, batch.bytes()), (bytes, bytes));
    }

    #[test]
    fn two_builds_at_once_stay_within_the_budget_together() {
        let cache = Arc::new(HotCache::new(batch(1000).bytes() * 3 / 2));
        let mut first = cache.build(&key(1), Some(1000)).unwrap();
        let mut second = cache.build(&key(2), Some(1000)).unwrap();
        assert!(first.push(&batch(1000)));
        assert!(!second.push(&batch(1000)));
        drop(second);
        first.finish();
        assert!(cache.get(&key(1)).is_some());
        assert!(cache.build(&key(2), Some(1000)).is_some(), "there may be room for it later");
    }

    #[test]
    fn the_second_partial_scan_asks_for_columns() {
        let cache = Arc::new(HotCache::new(1 << 20));
        assert!(!cache.is_missed(&key(1), Some(10)));
        assert!(!cache.is_missed(&key(2), Some(10)));
        assert!(cache.is_missed(&key(1), Some(10)));
        fill(&cache, 1, 10);
        assert!(!cache.is_missed(&key(1), Some(10)));
        assert!(!Arc::new(HotCache::new(0)).is_missed(&key(1), Some(10)));
    }

    #[test]
    fn a_table_that_is_forgotten_leaves_nothing_and_what_was_being_built_of_it_is_dropped() {
        let cache = Arc::new(HotCache::new(1 << 20));
        fill(&cache, 1, 10);
        fill(&cache, 2, 10);
        let other = HotKey { checkpoint: "01.checkpoint.parquet".into(), ..key(1) };
        let mut building = cache.build(&other, Some(10)).unwrap();
        assert!(building.push(&batch(10)));
        cache.forget_columns(1);
        assert!(cache.get(&key(1)).is_none() && cache.get(&key(2)).is_some());
        assert!(!building.push(&batch(10)));
        building.finish();
        assert!(cache.get(&other).is_none());
        assert!(cache.build(&other, Some(10)).is_some());
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
        assert!(Arc::new(HotCache::new(0)).build(&key(1), Some(1000)).is_none());
    }
}
