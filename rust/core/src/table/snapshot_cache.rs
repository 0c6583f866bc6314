//! Snapshots and ranges of one table for later requests: the next page of an answer, a version requested by number.
//!
//! Pages continue in the order of the first one, which only the same log files define; log cleanup may delete these
//! while a client still reads. A started answer therefore stays in memory while it is used and the budget of the process
//! allows. The [`ColumnCache`] holds it; this module finds it.

use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::column_cache::{Allocation, ColumnCache};

/// Maximum entries per table, since a lookup is linear.
const MAX_SNAPSHOTS: usize = 128;
/// Maximum idle time: clients request the next page after reading the previous one.
const MAX_IDLE: Duration = Duration::from_secs(3600);

/// Snapshots or ranges of one table, most recently used last.
#[derive(Debug)]
pub(super) struct SnapshotCache<T> {
    table: u64,
    cache: Arc<ColumnCache>,
    entries: Vec<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    item: Weak<T>,
    /// The number of the item in the cache.
    number: u64,
    used_at: Instant,
}

impl<T: Any + Send + Sync> SnapshotCache<T> {
    pub(super) fn new(table: u64, cache: Arc<ColumnCache>) -> Self {
        Self { table, cache, entries: Vec::new() }
    }

    /// Returns the most recently used matching item, also an evicted one that others still hold, and marks it as
    /// used.
    pub(super) fn find(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.entries.retain(|entry| entry.item.strong_count() > 0);
        let items = self.entries.iter().rev().filter_map(|entry| entry.item.upgrade());
        items.into_iter().find(|item| is_wanted(item))
    }

    /// Marks an item as used; returns false if it is not cached.
    pub(super) fn touch(&mut self, item: &Arc<T>, now: Instant) -> bool {
        let is_item = |entry: &Entry<T>| std::ptr::eq(entry.item.as_ptr(), Arc::as_ptr(item));
        let Some(position) = self.entries.iter().rposition(is_item) else { return false };
        let mut used = self.entries.remove(position);
        if !self.cache.touch(used.number) {
            return false;
        }
        used.used_at = now;
        self.entries.push(used);
        true
    }

    /// Caches an item if it fits into the budget. `parts` is all memory that it holds.
    pub(super) fn insert(&mut self, item: &Arc<T>, parts: Vec<Allocation>, now: Instant) {
        let Some(number) = self.cache.keep(self.table, Arc::clone(item) as _, parts) else { return };
        self.entries.push(Entry { item: Arc::downgrade(item), number, used_at: now });
        let excess = self.entries.len().saturating_sub(MAX_SNAPSHOTS);
        let mut position = 0;
        let cache = &self.cache;
        self.entries.retain(|entry| {
            position += 1;
            let stays = position > excess && now.saturating_duration_since(entry.used_at) < MAX_IDLE;
            if !stays {
                cache.release(entry.number);
            }
            stays && entry.item.strong_count() > 0
        });
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        let cache = &self.cache;
        self.entries.retain(|entry| {
            let stays = entry.item.upgrade().is_some_and(|item| is_kept(&item));
            if !stays {
                cache.release(entry.number);
            }
            stays
        });
    }

    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.entries.iter().filter_map(|entry| entry.item.upgrade()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshots(cache: &Arc<ColumnCache>) -> SnapshotCache<u64> {
        SnapshotCache::new(1, Arc::clone(cache))
    }

    fn insert(snapshots: &mut SnapshotCache<u64>, number: u64, now: Instant) {
        let item = Arc::new(number);
        let parts = vec![Allocation::shared(&item, 10)];
        snapshots.insert(&item, parts, now);
    }

    fn has(snapshots: &mut SnapshotCache<u64>, number: u64, now: Instant) -> bool {
        let Some(item) = snapshots.find(|item| *item == number) else { return false };
        snapshots.touch(&item, now);
        true
    }

    #[test]
    fn the_least_recently_used_leaves_first() {
        let (now, cache) = (Instant::now(), Arc::new(ColumnCache::new(1 << 20)));
        let mut snapshots = snapshots(&cache);
        for number in 0..MAX_SNAPSHOTS as u64 {
            insert(&mut snapshots, number, now);
        }
        assert!(has(&mut snapshots, 0, now));
        insert(&mut snapshots, 1000, now);
        assert!(!has(&mut snapshots, 1, now));
        assert!(has(&mut snapshots, 0, now) && has(&mut snapshots, 2, now) && has(&mut snapshots, 1000, now));
        assert_eq!(cache.used_bytes(), MAX_SNAPSHOTS * 10);
    }

    #[test]
    fn unused_entries_are_evicted_when_another_is_added() {
        let (now, cache) = (Instant::now(), Arc::new(ColumnCache::new(1 << 20)));
        let mut snapshots = snapshots(&cache);
        insert(&mut snapshots, 0, now);
        insert(&mut snapshots, 1, now);
        let later = now + MAX_IDLE / 2;
        assert!(has(&mut snapshots, 0, later));
        insert(&mut snapshots, 2, now + MAX_IDLE);
        assert!(!has(&mut snapshots, 1, later) && has(&mut snapshots, 0, later));
        assert_eq!(cache.used_bytes(), 20);
    }

    #[test]
    fn entries_over_the_budget_are_not_found() {
        let (now, cache) = (Instant::now(), Arc::new(ColumnCache::with_least(25, 0)));
        let mut snapshots = snapshots(&cache);
        for number in 0..3 {
            insert(&mut snapshots, number, now);
        }
        assert!(!has(&mut snapshots, 0, now) && has(&mut snapshots, 1, now) && has(&mut snapshots, 2, now));
        let item = Arc::new(9);
        let parts = vec![Allocation::shared(&item, 26)];
        snapshots.insert(&item, parts, now);
        drop(item);
        assert!(!has(&mut snapshots, 9, now), "it does not fit");
        assert!(has(&mut snapshots, 1, now), "and nothing has left for it");
        snapshots.retain(|item| *item == 1);
        assert_eq!(cache.used_bytes(), 10);
        cache.forget(1);
        assert!(!has(&mut snapshots, 1, now));
        assert_eq!(cache.used_bytes(), 0);
    }

    #[test]
    fn an_evicted_entry_is_found_while_in_use_and_is_not_cached() {
        let (now, cache) = (Instant::now(), Arc::new(ColumnCache::new(1 << 20)));
        let mut snapshots = snapshots(&cache);
        let item = Arc::new(0);
        let parts = || vec![Allocation::shared(&item, 10)];
        assert!(!snapshots.touch(&item, now));
        snapshots.insert(&item, parts(), now);
        assert!(snapshots.touch(&item, now));
        cache.shrink(0);
        assert!(!snapshots.touch(&item, now));
        snapshots.insert(&item, parts(), now);
        cache.shrink(0);
        assert!(has(&mut snapshots, 0, now));
        assert!(!snapshots.touch(&item, now));
    }

    #[test]
    fn shared_entries_count_once() {
        let (now, cache) = (Instant::now(), Arc::new(ColumnCache::new(1 << 20)));
        let mut snapshots = snapshots(&cache);
        let shared = Arc::new([0_u8; 100]);
        for number in 0..2_u64 {
            let item = Arc::new(number);
            let parts = vec![Allocation::shared(&item, 10), Allocation::shared(&shared, 100)];
            snapshots.insert(&item, parts, now);
        }
        assert_eq!(cache.used_bytes(), 120);
        snapshots.retain(|item| *item == 1);
        assert_eq!(cache.used_bytes(), 110);
        snapshots.retain(|_| false);
        assert_eq!(cache.used_bytes(), 0);
    }
}
