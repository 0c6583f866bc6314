//! An answer as a stream of chunks.
//!
//! Native threads produce and compress chunks of lines ahead into a bounded queue; an event loop takes them without
//! blocking. A [`LineSource`] supplies the lines, an [`NdjsonStream`] is the consumer's handle.

mod buffers;
mod compression;
mod producer;

use crate::Result;
use crate::actions::Totals;
use crate::ndjson::LineCounts;
use crate::scan::{Outcome, Precount};
use crate::stop::Stop;

pub use buffers::{Buffers, Chunk};
pub use compression::ContentCoding;
pub use producer::{NdjsonStream, Next, StreamOptions};

/// A work item: runs on any thread and appends whole lines.
pub type Work = Box<dyn FnOnce(&mut Vec<u8>) -> Result<LineCounts> + Send>;

/// The result of one turn of a source.
pub enum Turn {
    /// Lines for a chunk of 64 to 256 KiB.
    Lines(Work),
    /// No lines after as much work as a chunk may cost. Other streams run first.
    Pending,
    /// The end.
    End,
}

/// The work items of an answer, in order.
pub trait LineSource: Send {
    /// Returns the next item, if it is ready within this turn.
    fn next_turn(&mut self) -> Result<Turn>;

    /// Returns the final counts if they are known with the first item.
    fn precount(&mut self) -> Option<Precount> {
        None
    }

    /// Returns the files that the lines must have at the end.
    fn totals(&self) -> Option<Totals> {
        None
    }

    /// Returns what stops requests of running items when the stream ends early.
    fn stop(&self) -> Option<Stop> {
        None
    }

    /// Returns the counts so far; the final ones at the end.
    fn outcome(&self) -> Outcome;
}

/// The result of a stream; complete when the stream is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Counts of written lines.
    pub written: LineCounts,
    /// Counts of evaluated files.
    pub outcome: Outcome,
    /// The final counts, if they are known with the first chunk.
    pub precount: Option<Precount>,
}
