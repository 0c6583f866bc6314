//! Cancellation and deadlines of blocking work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::{Error, Result};

/// A deadline and a cancellation flag. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    deadline: Option<Instant>,
    cancelled: Arc<AtomicBool>,
}

impl Stop {
    /// Creates a stop with an optional deadline.
    #[must_use]
    pub fn at(deadline: Option<Instant>) -> Self {
        Self { deadline, cancelled: Arc::default() }
    }

    /// Cancels the work.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns [`Error::Cancelled`] or [`Error::DeadlineExceeded`] if the work must end. To be called between steps
    /// of the work.
    pub fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Error::DeadlineExceeded),
            _ => Ok(()),
        }
    }
}
