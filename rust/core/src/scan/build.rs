//! Builds of columns in the background, by scans of their own.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::{Scan, ScanOptions};
use crate::Result;
use crate::lock::lock;
use crate::pool::{Pool, Task};

impl Scan {
    /// Counts a scan that does not build the columns that it misses. Starts their build once they were missed often
    /// enough. Needs the pool of [`Scan::prepare`].
    pub fn record_miss(&self) -> Result<()> {
        let (Some((cache, key)), Some(pool)) = (&self.cache, &self.pool) else { return Ok(()) };
        let files = self.snapshot.known_totals().map(|totals| totals.files);
        if cache.record_miss(key, files) {
            let cache = Some((Arc::clone(cache), *key));
            let mut scan = Self::new(Arc::clone(&self.snapshot), cache, ScanOptions::everything())?;
            scan.waits = true;
            scan.continue_in_background(pool);
        }
        Ok(())
    }

    /// Counts the end of a scan that had to read most of the checkpoint as another miss, so the next such scan finds
    /// columns. One that skipped most row groups is as fast the next time.
    pub(super) fn record_whole_miss(&self) -> Result<()> {
        let read = self.rows_read.load(Ordering::Relaxed);
        let is_most = self.snapshot.known_totals().is_some_and(|totals| read > totals.files / 2);
        if is_most { self.record_miss() } else { Ok(()) }
    }

    /// Runs a scan to its end for the columns that it builds.
    pub(super) fn continue_in_background(self, pool: &Pool) {
        pool.submit(Arc::new(Build(Mutex::new(self))));
    }
}

/// A scan that only builds columns. It runs one batch per step, so it takes turns with streams.
struct Build(Mutex<Scan>);

impl Task for Build {
    fn step(self: Arc<Self>, pool: &Pool) {
        // A failure is repeated and reported by the next request.
        if matches!(lock(&self.0).next_files(), Ok(Some(_))) {
            pool.submit(self);
        }
    }
}
