//! The probes of an event loop by the threads of storages, on systems other than Linux.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use super::Table;
use super::probe::Probed;
use crate::Result;
use crate::wakeup::Completions;

/// The probes of one event loop, which bounds their number by the number of calls that it starts.
#[derive(Debug)]
pub struct LoopProbes(Arc<Completions<Probed>>);

impl LoopProbes {
    /// Opens the descriptor.
    pub fn new() -> Result<Self> {
        Ok(Self(Arc::new(Completions::new()?)))
    }

    /// The descriptor, readable while [`Self::take`] has results.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    /// Starts a probe of a table under a number that no other probe has. Returns false if nothing was started, because
    /// no version is known or a listing is due. Never blocks.
    pub fn start(&self, number: u64, table: &Arc<Table>) -> Result<bool> {
        let Some(probe) = table.due_probe() else { return Ok(false) };
        let (of, completions) = (Arc::clone(table), Arc::clone(&self.0));
        table.start_probe(probe, move |found| completions.push(Probed { number, table: of, found }))?;
        Ok(true)
    }

    /// Returns the number of probes whose requests the loop's thread has sent itself.
    #[must_use]
    #[allow(clippy::unused_self)] // as on Linux
    pub fn sent_by_loop(&self) -> u64 {
        0
    }

    /// Takes all results. Never blocks.
    #[must_use]
    pub fn take(&self) -> Vec<Probed> {
        self.0.take()
    }
}
