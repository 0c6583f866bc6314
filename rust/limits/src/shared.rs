//! The limits in one file: its layout, and what a worker does with them.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use crate::bucket::{self, Bucket, Terms};
use crate::key::Key;
use crate::memory::Memory;
use crate::recent::{self, Recent};
use crate::recipients::{self, Kind, Recipients};

/// The largest number of workers.
const MAX_WORKERS: usize = 1024;

const HEADER_WORDS: usize = 8;
const COUNT: usize = 2;

/// The limits of a server, as one of its processes sees them.
///
/// The file starts with 16 random bytes, which its maker writes; the rest of it is zeros.
#[derive(Debug)]
pub struct SharedLimits {
    memory: Memory,
    workers: usize,
    worker: usize,
}

impl SharedLimits {
    /// The length of the file for a number of workers.
    #[must_use]
    pub fn size_bytes(workers: usize) -> usize {
        8 * (HEADER_WORDS + recent::WORDS + recipients::words(workers))
    }

    /// Maps the file. `worker` is the index of this process; fails for a file of another length.
    pub fn map(file: &File, workers: usize, worker: usize) -> io::Result<Self> {
        let bytes = Self::size_bytes(workers);
        if workers > MAX_WORKERS || worker >= workers || file.metadata()?.len() != bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the limits of these workers"));
        }
        Ok(Self { memory: Memory::map(file, bytes / 8)?, workers, worker })
    }

    /// Random bytes that are equal in all processes: whoever chooses keys does not know their hashes.
    #[must_use]
    pub fn seed(&self) -> [u8; 16] {
        let mut seed = [0; 16];
        for (bytes, word) in seed.chunks_exact_mut(8).zip(self.memory.words()) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        seed
    }

    /// The place of a recipient, made at its first use.
    ///
    /// Recipients beyond the first 262,144 have one place together: they get less, never more.
    #[must_use]
    pub fn recipient(&self, key: Key) -> usize {
        self.recipients().place(key)
    }

    /// A bucket of the recipient at a place.
    #[must_use]
    pub fn bucket(&self, place: usize, kind: Kind) -> Bucket<'_> {
        self.recipients().bucket(place, kind)
    }

    /// Counts a stream of this worker, unless `limit` streams run in all workers.
    #[must_use]
    pub fn enter_stream(&self, place: usize, limit: u64) -> bool {
        self.recipients().enter_stream(place, self.worker, limit)
    }

    /// Sets the number of streams that run in this worker.
    pub fn set_streams(&self, place: usize, streams: u64) {
        self.recipients().set_streams(place, self.worker, streams);
    }

    /// Counts the end of a stream of this worker.
    pub fn leave_stream(&self, place: usize) {
        self.recipients().leave_stream(place, self.worker);
    }

    /// Returns the time until one more failure is forgiven; 0 while there are fewer than the terms allow.
    #[must_use]
    pub fn failures_wait_ns(&self, key: Key, terms: Terms, now_ns: u64) -> u64 {
        let until = self.failures().get(key).unwrap_or(0);
        bucket::wait_ns(until, 1, terms, now_ns)
    }

    /// Charges one failure. The failures that are forgiven soonest are forgotten where too many keys fail.
    pub fn charge_failure(&self, key: Key, terms: Terms, now_ns: u64) {
        self.failures().update(key, self.worker, |until| bucket::charged(until, 1, terms, now_ns));
    }

    /// Gives back what a worker that has ended had admitted.
    ///
    /// Only the supervisor may call it, when the process is gone and before the next one starts.
    pub fn clear_worker(&self, worker: usize) {
        self.recipients().clear_worker(worker);
        self.failures().clear_worker(worker);
    }

    fn failures(&self) -> Recent<'_> {
        Recent::new(&self.memory.words()[HEADER_WORDS..][..recent::WORDS])
    }

    fn recipients(&self) -> Recipients<'_> {
        let words = self.memory.words();
        let places = &words[HEADER_WORDS + recent::WORDS..];
        Recipients::new(&words[COUNT], places, self.workers)
    }
}

#[cfg(test)]
mod tests;
