//! Counts faults of logs that readers found, for the whole process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A fault of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFault {
    /// Two sources count different files: see [`Error::Contradiction`](crate::Error::Contradiction).
    Contradiction,
    /// A damaged checkpoint that is left out.
    Checkpoint,
    /// A checksum file that is left out.
    Checksum,
    /// A `_last_checkpoint` that is left out.
    Hint,
}

static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

impl LogFault {
    /// All faults with their names in metrics.
    pub const NAMES: [(Self, &'static str); 4] = [
        (Self::Contradiction, "contradiction"),
        (Self::Checkpoint, "checkpoint"),
        (Self::Checksum, "checksum"),
        (Self::Hint, "hint"),
    ];

    pub(crate) fn count(self) {
        COUNTS[self as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often the fault was found since the start of the process.
    #[must_use]
    pub fn total(self) -> u64 {
        COUNTS[self as usize].load(Ordering::Relaxed)
    }
}
