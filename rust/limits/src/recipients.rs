//! The places of recipients: their buckets, and the streams that run for them in each worker.
//!
//! Places are handed out in order and never taken back; a hash index leads to them. A place is written before the index
//! names it, so a process that is killed meanwhile leaves at most an unused place.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::bucket::{self, Bucket};
use crate::key::Key;

/// The largest number of recipients with a place of their own.
pub(crate) const MAX_RECIPIENTS: usize = 1 << 18;

const INDEX_WORDS: usize = 2 * MAX_RECIPIENTS;
const KEY_WORDS: usize = 2;
const KINDS: usize = 3;
const STREAMS: usize = KEY_WORDS + KINDS * bucket::WORDS;
const ATTEMPTS: usize = 8;

/// What a bucket counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests.
    Requests,
    /// Signed files.
    Files,
    /// Requests for temporary credentials.
    Credentials,
}

const fn place_words(workers: usize) -> usize {
    STREAMS + workers
}

pub(crate) const fn words(workers: usize) -> usize {
    // One more: the place of all recipients that find none.
    INDEX_WORDS + (MAX_RECIPIENTS + 1) * place_words(workers)
}

pub(crate) struct Recipients<'a> {
    count: &'a AtomicU64,
    index: &'a [AtomicU64],
    places: &'a [AtomicU64],
    workers: usize,
}

impl<'a> Recipients<'a> {
    pub(crate) fn new(count: &'a AtomicU64, words: &'a [AtomicU64], workers: usize) -> Self {
        let (index, places) = words.split_at(INDEX_WORDS);
        Self { count, index, places, workers }
    }

    fn at(&self, place: usize) -> &'a [AtomicU64] {
        let words = place_words(self.workers);
        &self.places[place * words..][..words]
    }

    pub(crate) fn place(&self, key: Key) -> usize {
        let mut made = None;
        let mut slot = key[0] as usize % INDEX_WORDS;
        // The index has twice as many slots as there are places, so the search ends.
        loop {
            let named = match self.index[slot].load(Acquire) {
                0 => {
                    let Some(place) = made.or_else(|| self.make(key)) else { return MAX_RECIPIENTS };
                    made = Some(place);
                    match self.index[slot].compare_exchange(0, place as u64 + 1, AcqRel, Acquire) {
                        Ok(_) => return place,
                        Err(named) => named,
                    }
                }
                named => named,
            };
            let place = named as usize - 1;
            if self.at(place).iter().zip(key).all(|(word, part)| word.load(Acquire) == part) {
                return place;
            }
            slot = (slot + 1) % INDEX_WORDS;
        }
    }

    fn make(&self, key: Key) -> Option<usize> {
        let next = |count| (count < MAX_RECIPIENTS as u64).then_some(count + 1);
        let place = self.count.fetch_update(AcqRel, Acquire, next).ok()? as usize;
        for (word, part) in self.at(place).iter().zip(key) {
            word.store(part, Release);
        }
        Some(place)
    }

    pub(crate) fn bucket(&self, place: usize, kind: Kind) -> Bucket<'a> {
        Bucket(&self.at(place)[KEY_WORDS + kind as usize * bucket::WORDS..][..bucket::WORDS])
    }

    fn streams(&self, place: usize) -> &'a [AtomicU64] {
        &self.at(place)[STREAMS..]
    }

    /// Counts first and looks then: two workers that see each other both step back, and never enter together.
    pub(crate) fn enter_stream(&self, place: usize, worker: usize, limit: u64) -> bool {
        let streams = self.streams(place);
        let running = || streams.iter().fold(0u64, |sum, word| sum.saturating_add(word.load(SeqCst)));
        for attempt in 0..ATTEMPTS {
            if running() >= limit {
                return false;
            }
            streams[worker].fetch_add(1, SeqCst);
            if running() <= limit {
                return true;
            }
            streams[worker].fetch_sub(1, SeqCst);
            // Workers pause for different times, so that one of them finds the other gone.
            for _ in 0..(worker + 1) << attempt {
                std::hint::spin_loop();
            }
        }
        false
    }

    pub(crate) fn set_streams(&self, place: usize, worker: usize, streams: u64) {
        self.streams(place)[worker].store(streams, SeqCst);
    }

    pub(crate) fn leave_stream(&self, place: usize, worker: usize) {
        let _ = self.streams(place)[worker]
            .fetch_update(SeqCst, SeqCst, |streams| Some(streams.saturating_sub(1)));
    }

    pub(crate) fn clear_worker(&self, worker: usize) {
        for place in (0..self.count.load(Relaxed) as usize).chain([MAX_RECIPIENTS]) {
            self.set_streams(place, worker, 0);
        }
    }
}
