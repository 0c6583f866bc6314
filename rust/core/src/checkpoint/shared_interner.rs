//! The dictionary of partition values that all parts of a checkpoint share.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::lock::lock;
use crate::partition::PartitionInterner;

/// Shared by the readers of all parts.
#[derive(Debug, Clone)]
pub(super) struct SharedInterner(Arc<Mutex<PartitionInterner>>);

impl SharedInterner {
    pub(super) fn new(interner: PartitionInterner) -> Self {
        Self(Arc::new(Mutex::new(interner)))
    }

    /// To be held for the work of one batch in memory, never while something is read.
    pub(super) fn lock(&self) -> MutexGuard<'_, PartitionInterner> {
        // The dictionary is consistent at every point where a holder could panic.
        lock(&self.0)
    }
}
