//! Cancellation and deadlines of blocking work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::{Error, Result};

/// A deadline, and whether nobody waits any more. Clones share the latter.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    deadline: Option<Instant>,
    cancelled: Arc<AtomicBool>,
}

impl Stop {
    /// Stops at a deadline, if there is one, and when it is cancelled.
    #[must_use]
    pub fn at(deadline: Option<Instant>) -> Self {
        Self { deadline, cancelled: Arc::default() }
    }

    /// Nobody waits any more.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// To be asked between two pieces of the work: [`Error::Cancelled`] or [`Error::DeadlineExceeded`] end it.
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
