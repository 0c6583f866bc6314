//! An answer as a stream of chunks: made ahead by native threads, coded, taken by an event loop.

mod buffers;
mod compression;
mod producer;
mod wakeup;

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Result;
use crate::ndjson::LineCounts;
use crate::scan::{Outcome, Precount};

pub use buffers::{Buffers, Chunk};
pub use compression::ContentCoding;
pub use producer::{NdjsonStream, Next, StreamOptions};

/// Lines to be written: does its work on some thread, appends whole lines.
pub type Work = Box<dyn FnOnce(&mut Vec<u8>) -> Result<LineCounts> + Send>;

/// What a turn of a source brings.
pub enum Turn {
    /// Lines, which should make a chunk of 64 to 256 KiB.
    Lines(Work),
    /// Nothing yet, after as much work as a chunk may cost: other streams have their turn first.
    Pending,
    /// Nothing more.
    End,
}

/// The pieces of an answer, in order.
pub trait LineSource: Send {
    /// The next piece, if this turn is enough for it.
    fn next_turn(&mut self) -> Result<Turn>;

    /// What is known, once the first piece is out, of how all of them will end.
    fn precount(&mut self) -> Option<Precount> {
        None
    }

    /// What is known at the end.
    fn outcome(&self) -> Outcome;
}

/// What a stream did; complete when the stream is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// What was written.
    pub written: LineCounts,
    /// What was looked at.
    pub outcome: Outcome,
    /// What the stream will have done, where that is known with its first chunk.
    pub precount: Option<Precount>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Panics of a step are caught while no lock is held, so what a lock guards is always whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
