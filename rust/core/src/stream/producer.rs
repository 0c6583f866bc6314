//! The producer of an answer: native threads make chunks ahead into a bounded queue.
//!
//! In comes a [`LineSource`], which yields pieces of work in the answer's order. One thread at a time asks the
//! source for its next piece (decoding and pruning are sequential); the piece is then signed, written and coded
//! outside of that lock, so several threads may be at work on one answer, and the chunks leave in order. When
//! the queue is full the stream leaves the pool and its threads serve others; taking a chunk brings it back.
//! The reader never blocks: it takes what is ready and waits on a pipe for more.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::buffers::{Buffers, Chunk};
use super::compression::{Checksum, ContentCoding, Trailer, encode};
use super::wakeup::{self, Signal, Wakeups};
use super::{LineSource, Summary, Turn, Work, lock};
use crate::ndjson::LineCounts;
use crate::pool::{Pool, Task};
use crate::{Error, Result};

/// Chunks that may be ready or in the making for one reader. Three keep two threads busy while a third chunk
/// is being sent, and bound what a slow reader holds.
const CHUNKS_AHEAD: usize = 3;

/// What the reader finds when it looks.
#[derive(Debug)]
pub enum Next {
    /// A piece of the body.
    Chunk(Chunk),
    /// Nothing yet: wait for the file descriptor.
    Pending,
    /// Everything was taken.
    Done,
}

/// How a stream is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamOptions {
    /// How the body is coded.
    pub coding: ContentCoding,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Makes the whole answer on the calling thread: for small ones from memory, whose work is less than that of
    /// waking another thread.
    pub inline: bool,
}

/// The reader's end of an answer in the making. Dropping it stops the work.
#[derive(Debug)]
pub struct NdjsonStream {
    inner: Arc<Inner>,
    pool: Pool,
    /// None where the answer was made before anyone could wait for it.
    wakeups: Option<Wakeups>,
}

struct Inner {
    source: Mutex<Box<dyn LineSource>>,
    state: Mutex<State>,
    cancelled: AtomicBool,
    options: StreamOptions,
    buffers: Arc<Buffers>,
    /// None where the answer is made at its start.
    signal: Option<Signal>,
}

#[derive(Default)]
struct State {
    /// Pieces handed out by the source.
    started: u64,
    /// Pieces whose chunks have been put into `ready`.
    emitted: u64,
    /// Pieces finished before an earlier one.
    out_of_order: BTreeMap<u64, Finished>,
    ready: VecDeque<Vec<u8>>,
    trailer: Trailer,
    summary: Summary,
    /// How many pieces there are, once the source has ended.
    end: Option<u64>,
    failure: Option<Error>,
    /// The stream is neither in the pool's queue nor asking its source.
    parked: bool,
    /// The reader waits on the pipe.
    reader_waits: bool,
    /// A byte is in the pipe, or on its way there.
    signalled: bool,
}

enum Started {
    Lines(u64, Work),
    Pending,
    End,
}

struct Finished {
    bytes: Vec<u8>,
    plain_bytes: usize,
    checksum: Checksum,
    written: LineCounts,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl NdjsonStream {
    /// Starts making the answer.
    pub fn start(
        pool: &Pool,
        buffers: &Arc<Buffers>,
        source: Box<dyn LineSource>,
        options: StreamOptions,
    ) -> Result<Self> {
        let (wakeups, signal) = if options.inline {
            (None, None)
        } else {
            let (wakeups, signal) =
                wakeup::pipe().map_err(|error| Error::Internal { detail: format!("no pipe: {error}") })?;
            (Some(wakeups), Some(signal))
        };
        let inner = Arc::new(Inner {
            source: Mutex::new(source),
            state: Mutex::default(),
            cancelled: AtomicBool::new(false),
            options,
            buffers: Arc::clone(buffers),
            signal,
        });
        if options.inline {
            inner.produce_all().unwrap_or_else(|error| inner.fail(error));
        } else {
            pool.submit(Arc::clone(&inner) as Arc<dyn Task>);
        }
        Ok(Self { inner, pool: pool.clone(), wakeups })
    }

    /// Readable when [`Self::take`] has something new to say after it said [`Next::Pending`], which it never says of
    /// an answer that was made at its start: that one has no descriptor.
    #[must_use]
    pub fn wakeup_fd(&self) -> Option<RawFd> {
        self.wakeups.as_ref().map(Wakeups::fd)
    }

    /// The next piece of the body, without waiting. An error ends the stream; it comes after the pieces that
    /// were whole before it.
    pub fn take(&mut self) -> Result<Next> {
        let mut state = lock(&self.inner.state);
        if state.signalled {
            // A byte that is still on its way wakes the reader once more, for nothing.
            let taken = self.wakeups.as_ref().is_some_and(Wakeups::take);
            state.signalled = !taken;
        }
        if let Some(bytes) = state.ready.pop_front() {
            let resume = state.parked && state.has_room();
            state.parked &= !resume;
            drop(state);
            if resume {
                self.pool.submit(Arc::clone(&self.inner) as Arc<dyn Task>);
            }
            return Ok(Next::Chunk(Chunk::new(bytes, &self.inner.buffers)));
        }
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.is_done() {
            return Ok(Next::Done);
        }
        // Whose work waits for a mount that hangs cannot say so itself.
        if let Err(late) = self.inner.stopped() {
            drop(state);
            self.inner.fail(late.clone());
            return Err(late);
        }
        state.reader_waits = true;
        Ok(Next::Pending)
    }

    /// How long the work may still take; after that [`Self::take`] has something new to say in any case.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let deadline = self.inner.options.deadline?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether every chunk was made and taken, with no failure.
    #[must_use]
    pub fn is_done(&self) -> bool {
        lock(&self.inner.state).is_done()
    }

    /// What the stream did. Complete when it is done.
    #[must_use]
    pub fn summary(&self) -> Summary {
        lock(&self.inner.state).summary.clone()
    }

    /// Codes the last line and ends the body.
    pub fn finish(&self, last_line: &[u8]) -> Result<Vec<u8>> {
        let coding = self.inner.options.coding;
        let (mut trailer, nothing_before) = {
            let state = lock(&self.inner.state);
            (state.trailer.clone(), state.emitted == 0)
        };
        let mut out = Vec::new();
        if nothing_before {
            Trailer::begin(coding, &mut out);
        }
        if !last_line.is_empty() {
            let checksum = encode(coding, last_line, &mut out)?;
            trailer.add(&checksum, last_line.len());
        }
        trailer.finish(coding, &mut out);
        Ok(out)
    }

    /// Stops the work: steps under way end soon, none begins.
    pub fn cancel(&self) {
        self.inner.cancelled.store(true, Ordering::Relaxed);
        self.inner.fail(Error::Cancelled);
    }
}

impl Drop for NdjsonStream {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl State {
    fn has_room(&self) -> bool {
        (self.started - self.emitted) as usize + self.ready.len() < CHUNKS_AHEAD
    }

    fn is_done(&self) -> bool {
        self.failure.is_none() && self.ready.is_empty() && self.end == Some(self.emitted)
    }

    /// Puts a finished piece, and those that waited for it, in order.
    fn emit(&mut self, number: u64, finished: Finished, coding: ContentCoding) {
        self.out_of_order.insert(number, finished);
        while let Some(mut finished) = self.out_of_order.remove(&self.emitted) {
            if self.emitted == 0 && coding != ContentCoding::Identity {
                let mut first = Vec::with_capacity(finished.bytes.len() + 16);
                Trailer::begin(coding, &mut first);
                first.extend_from_slice(&finished.bytes);
                finished.bytes = first;
            }
            self.emitted += 1;
            self.trailer.add(&finished.checksum, finished.plain_bytes);
            self.summary.written = self.summary.written.plus(finished.written);
            if !finished.bytes.is_empty() {
                self.ready.push_back(finished.bytes);
            }
        }
    }

    /// Whether the reader has to be told that there is something for it, which is said once.
    #[must_use]
    fn wakes_reader(&mut self) -> bool {
        let something_to_say = !self.ready.is_empty() || self.failure.is_some() || self.is_done();
        let wakes = self.reader_waits && something_to_say && !self.signalled;
        if wakes {
            self.reader_waits = false;
            self.signalled = true;
        }
        wakes
    }
}

impl Inner {
    fn fail(&self, error: Error) {
        let mut state = lock(&self.state);
        if state.failure.is_none() && state.end != Some(state.emitted) {
            state.failure = Some(error);
            state.out_of_order.clear();
            if self.cancelled.load(Ordering::Relaxed) {
                state.ready.clear();
            }
        }
        self.release(state);
    }

    /// Lets the state go, then wakes the reader: awake before that, it would only wait for the state.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        let wakes = state.wakes_reader();
        drop(state);
        if let Some(signal) = self.signal.as_ref().filter(|_| wakes) {
            signal.wake();
        }
    }

    fn stopped(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        match self.options.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Error::DeadlineExceeded),
            _ => Ok(()),
        }
    }

    /// The next piece, by its number.
    fn begin(&self) -> Result<Started> {
        self.stopped()?;
        let mut source = lock(&self.source);
        let turn = catch(|| source.next_turn())?;
        let outcome = matches!(turn, Turn::End).then(|| source.outcome());
        let precount = source.precount();
        drop(source);
        let mut state = lock(&self.state);
        state.summary.precount = state.summary.precount.take().or(precount);
        let number = state.started;
        Ok(match turn {
            Turn::Lines(work) => {
                state.started += 1;
                Started::Lines(number, work)
            }
            Turn::Pending => Started::Pending,
            Turn::End => {
                state.end = Some(number);
                state.summary.outcome = outcome.unwrap_or_default();
                self.release(state);
                Started::End
            }
        })
    }

    fn produce(&self, work: Work) -> Result<Finished> {
        let mut plain = self.buffers.take();
        let written = catch(|| work(&mut plain))?;
        let plain_bytes = plain.len();
        let (bytes, checksum) = match self.options.coding {
            ContentCoding::Identity => (plain, Checksum::default()),
            coding => {
                let mut coded = self.buffers.take();
                let checksum = catch(|| encode(coding, &plain, &mut coded))?;
                self.buffers.put(plain);
                (coded, checksum)
            }
        };
        Ok(Finished { bytes, plain_bytes, checksum, written })
    }

    fn produce_all(&self) -> Result<()> {
        loop {
            match self.begin()? {
                Started::Lines(number, work) => {
                    let finished = self.produce(work)?;
                    lock(&self.state).emit(number, finished, self.options.coding);
                }
                Started::Pending => {}
                Started::End => return Ok(()),
            }
        }
    }

    fn try_step(self: &Arc<Self>, pool: &Pool) -> Result<()> {
        let (number, work) = match self.begin()? {
            Started::Lines(number, work) => (number, work),
            Started::Pending => {
                pool.submit(Arc::clone(self) as Arc<dyn Task>);
                return Ok(());
            }
            Started::End => return Ok(()),
        };
        {
            let mut state = lock(&self.state);
            if state.has_room() {
                // Another thread may ask the source for the next piece while this one writes.
                pool.submit(Arc::clone(self) as Arc<dyn Task>);
            } else {
                state.parked = true;
            }
        }
        let finished = self.produce(work)?;
        let mut state = lock(&self.state);
        if state.failure.is_none() {
            state.emit(number, finished, self.options.coding);
        }
        let resume = state.parked && state.has_room();
        state.parked &= !resume;
        self.release(state);
        if resume {
            pool.submit(Arc::clone(self) as Arc<dyn Task>);
        }
        Ok(())
    }
}

impl Task for Inner {
    fn step(self: Arc<Self>, pool: &Pool) {
        // Also a defect beside the work itself: a reader that nobody tells would wait for ever.
        if let Err(error) = catch(|| self.try_step(pool)) {
            self.fail(error);
        }
    }
}

/// A defect in one stream must not take a thread of the pool, and with it all other streams, along.
fn catch<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::Internal { detail: "a native thread panicked".into() }))
}

#[cfg(test)]
mod tests;
