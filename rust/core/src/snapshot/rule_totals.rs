//! The number and total size of the files within rules: a cache for all snapshots, and a sum by several threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use crate::Result;
use crate::actions::Totals;
use crate::checkpoint::{sizes_overflow, sum_on_threads};
use crate::lock::lock;
use crate::predicate::{RuleKey, RuleVerdicts};

/// The memory of the cache, which all snapshots of the process share.
const MAX_BYTES: usize = 32 << 20;
/// About what an entry takes: the key twice, the totals, and free slots of the map.
const ENTRY_BYTES: usize = 160;

/// Identifies a snapshot in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SnapshotId(u64);

impl SnapshotId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

type Key = (SnapshotId, RuleKey);

/// Totals by snapshot and rule. A full cache gives up any entry: with the oldest, requests of more recipients than fit
/// that take turns would find none.
#[derive(Debug)]
pub(super) struct RuleTotals {
    capacity: usize,
    /// The totals and the place in `keys`.
    known: HashMap<Key, (Totals, usize)>,
    keys: Vec<Key>,
    draws: u64,
}

impl RuleTotals {
    fn new(capacity: usize) -> Self {
        Self { capacity, known: HashMap::new(), keys: Vec::new(), draws: 0 }
    }

    fn get(&self, key: &Key) -> Option<Totals> {
        self.known.get(key).map(|(totals, _)| *totals)
    }

    fn insert(&mut self, key: Key, totals: Totals) {
        if let Some((known, _)) = self.known.get_mut(&key) {
            *known = totals;
            return;
        }
        if self.keys.len() >= self.capacity {
            self.remove_any();
        }
        self.known.insert(key, (totals, self.keys.len()));
        self.keys.push(key);
    }

    fn remove_any(&mut self) {
        self.draws += 1;
        let drawn = (self.draws.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % self.keys.len().max(1);
        let removed = self.keys.swap_remove(drawn);
        self.known.remove(&removed);
        if let Some(moved) = self.keys.get(drawn)
            && let Some((_, place)) = self.known.get_mut(moved)
        {
            *place = drawn;
        }
    }
}

static CACHE: LazyLock<Mutex<RuleTotals>> =
    LazyLock::new(|| Mutex::new(RuleTotals::new(MAX_BYTES / ENTRY_BYTES)));

pub(super) fn known(snapshot: SnapshotId, rule: RuleKey) -> Option<Totals> {
    lock(&CACHE).get(&(snapshot, rule))
}

pub(super) fn set(snapshot: SnapshotId, rule: RuleKey, totals: Totals) {
    lock(&CACHE).insert((snapshot, rule), totals);
}

/// Returns the bytes of the cache.
#[must_use]
pub fn rule_totals_bytes() -> usize {
    lock(&CACHE).keys.len() * ENTRY_BYTES
}

/// Empties the cache and frees its memory.
pub fn forget_rule_totals() {
    let mut cache = lock(&CACHE);
    *cache = RuleTotals::new(cache.capacity);
}

/// Sums up pieces on at most `threads` threads, each with verdicts of its own. Ends early with an error.
pub(crate) fn sum<P: Send>(
    pieces: impl ExactSizeIterator<Item = P> + Send,
    threads: usize,
    totals_of: impl Fn(P, &mut RuleVerdicts) -> Result<Totals> + Sync,
) -> Result<Totals> {
    let threads = threads.min(pieces.len());
    let (pieces, has_failed) = (Mutex::new(pieces), AtomicBool::new(false));
    let next = || lock(&pieces).next();
    let work = || {
        let (mut verdicts, mut totals) = (RuleVerdicts::default(), Totals::default());
        while !has_failed.load(Ordering::Relaxed)
            && let Some(piece) = next()
        {
            let sum = totals_of(piece, &mut verdicts);
            let sum = sum.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
            totals = totals.plus(sum).ok_or_else(|| sizes_overflow("checkpoint"))?;
        }
        Ok(totals)
    };
    if threads <= 1 { work() } else { sum_on_threads(threads, work) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn totals(files: u64) -> Totals {
        Totals { files, size_bytes: 10 * files }
    }

    #[test]
    fn a_full_cache_keeps_most_of_its_entries_whatever_their_order_is() {
        let mut cache = RuleTotals::new(1000);
        let key = |snapshot: u64, rule: u64| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&rule.to_le_bytes());
            (SnapshotId(snapshot), digest)
        };
        let mut found = 0;
        for round in 0..10 {
            for rule in 0..1200 {
                let known = cache.get(&key(rule % 7, rule));
                assert!(known.is_none_or(|known| known == totals(rule)));
                found += u64::from(known.is_some() && round > 0);
                cache.insert(key(rule % 7, rule), totals(rule));
                assert_eq!(cache.get(&key(rule % 7, rule)), Some(totals(rule)));
                assert!(cache.keys.len() <= 1000 && cache.known.len() == cache.keys.len());
            }
        }
        assert!(found > 9 * 600, "{found}");
        assert!(cache.keys.iter().enumerate().all(|(place, key)| cache.known[key].1 == place));
        cache.insert(key(1, 1), totals(9));
        assert_eq!(cache.get(&key(1, 1)), Some(totals(9)));
        assert!(cache.get(&key(2, 1)).is_none_or(|known| known != totals(9)), "another snapshot");
    }

    #[test]
    fn a_sum_by_several_threads_has_every_piece_once_and_ends_with_the_first_error() {
        for threads in [0, 1, 3] {
            let sum_to = |failing: u64| {
                sum((0..100u64).collect::<Vec<_>>().into_iter(), threads, |piece, _| {
                    if piece == failing { Err(Error::InvalidCursor) } else { Ok(totals(piece)) }
                })
            };
            assert_eq!(sum_to(100).unwrap(), totals(4950));
            assert!(matches!(sum_to(50), Err(Error::InvalidCursor)));
        }
        let large = sum([u64::MAX / 10, u64::MAX / 10].into_iter(), 2, |files, _| {
            Ok(Totals { files, size_bytes: u64::MAX })
        });
        assert!(large.is_err());
    }
}
