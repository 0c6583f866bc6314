//! A table of keys with a time each, of a fixed size: the smallest time of a set is forgotten for a new key.
//!
//! A key that is there is read and updated without a lock. A new key is written under the lock of its set, which is
//! tried for a bounded number of times: a process that is killed with it costs the set its new keys, not others their
//! time, until the supervisor clears it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use crate::key::Key;

const SETS: usize = 1 << 11;
const WAYS: usize = 8;
const WAY_WORDS: usize = 3;
const SET_WORDS: usize = 1 + WAYS * WAY_WORDS;
const ATTEMPTS: usize = 10_000;
/// A way whose key is being written.
const CLAIMED: u64 = u64::MAX;

pub(crate) const WORDS: usize = SETS * SET_WORDS;

pub(crate) struct Recent<'a>(&'a [AtomicU64]);

struct Way<'a> {
    time: &'a AtomicU64,
    key: &'a [AtomicU64],
}

impl Way<'_> {
    /// Returns the time of a way that has this key.
    fn time_of(&self, key: Key) -> Option<u64> {
        let time = self.time.load(Acquire);
        if time == 0
            || time == CLAIMED
            || self.key.iter().zip(key).any(|(word, part)| word.load(Relaxed) != part)
        {
            return None;
        }
        // The key belongs to the time if the way was not claimed in between.
        fence(Acquire);
        (self.time.load(Relaxed) != CLAIMED).then_some(time)
    }

    /// Updates the time of a way that has this key; a claim makes the exchange fail.
    fn update(&self, key: Key, time_of: impl Fn(u64) -> u64) -> bool {
        while let Some(time) = self.time_of(key) {
            if self.time.compare_exchange(time, time_of(time).clamp(1, CLAIMED - 1), AcqRel, Acquire).is_ok()
            {
                return true;
            }
        }
        false
    }
}

impl<'a> Recent<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Self(words)
    }

    fn set(&self, key: Key) -> (&'a AtomicU64, &'a [AtomicU64]) {
        let set = key[0] as usize % SETS;
        let words = &self.0[set * SET_WORDS..][..SET_WORDS];
        (&words[0], &words[1..])
    }

    fn ways(set: &'a [AtomicU64]) -> impl Iterator<Item = Way<'a>> {
        set.chunks_exact(WAY_WORDS).map(|words| Way { time: &words[0], key: &words[1..] })
    }

    pub(crate) fn get(&self, key: Key) -> Option<u64> {
        Self::ways(self.set(key).1).find_map(|way| way.time_of(key))
    }

    /// Sets the time of a key by its time before, 0 for a new key.
    pub(crate) fn update(&self, key: Key, worker: usize, time_of: impl Fn(u64) -> u64) {
        let (lock, ways) = self.set(key);
        if Self::ways(ways).any(|way| way.update(key, &time_of)) {
            return;
        }
        let owner = worker as u64 + 1;
        let mut attempts = 0..ATTEMPTS;
        while lock.compare_exchange_weak(0, owner, Acquire, Relaxed).is_err() {
            if attempts.next().is_none() {
                return;
            }
            std::hint::spin_loop();
        }
        // Keys change under the lock only: one that is not found here is nowhere.
        if !Self::ways(ways).any(|way| way.update(key, &time_of))
            && let Some(way) = Self::ways(ways).min_by_key(|way| way.time.load(Acquire))
        {
            way.time.swap(CLAIMED, AcqRel);
            for (word, part) in way.key.iter().zip(key) {
                word.store(part, Relaxed);
            }
            way.time.store(time_of(0).clamp(1, CLAIMED - 1), Release);
        }
        lock.store(0, Release);
    }

    pub(crate) fn clear_worker(&self, worker: usize) {
        for words in self.0.chunks_exact(SET_WORDS) {
            if words[0].load(Acquire) == worker as u64 + 1 {
                for way in Self::ways(&words[1..]) {
                    let _ = way.time.compare_exchange(CLAIMED, 0, AcqRel, Relaxed);
                }
                words[0].store(0, Release);
            }
        }
    }
}
