//! Builds typed statistics ahead of a scan over cached columns.
//!
//! The first predicate on a column has to read the statistics of every file. The scan does so from the first batch on;
//! the other threads of the pool work backwards from the last one. The work ends with the scan.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::column_cache::CachedColumns;
use crate::pool::{Pool, Task};
use crate::predicate::Predicate;

#[derive(Debug)]
pub(super) struct StatsPrefetch {
    columns: Arc<CachedColumns>,
    predicate: Arc<Predicate>,
    /// Batches before this one are left to the scan.
    left: AtomicUsize,
}

impl StatsPrefetch {
    /// Starts on all threads of `pool` except the one that the scan needs.
    pub(super) fn start(columns: Arc<CachedColumns>, predicate: Arc<Predicate>, pool: &Pool) -> Arc<Self> {
        let left = AtomicUsize::new(columns.len());
        let stats_prefetch = Arc::new(Self { columns, predicate, left });
        for _ in 1..pool.threads() {
            pool.submit(Arc::new(Walk(Arc::downgrade(&stats_prefetch))));
        }
        stats_prefetch
    }

    /// Prepares the last unprepared batch; returns false if there is none.
    fn prepare_one(&self) -> bool {
        loop {
            let taken =
                self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            // The scan reports a damaged batch.
            let Ok(Some(batch)) = taken.map_or(Ok(None), |left| self.columns.batch(left.wrapping_sub(1)))
            else {
                return false;
            };
            if self.predicate.prepare(&batch.files, &batch.stats) {
                return true;
            }
        }
    }
}

/// The work of one thread, one batch per step.
struct Walk(Weak<StatsPrefetch>);

impl Task for Walk {
    fn step(self: Arc<Self>, pool: &Pool) {
        if self.0.upgrade().is_some_and(|stats_prefetch| stats_prefetch.prepare_one()) {
            pool.submit(self);
        }
    }
}
