//! The producer of an answer: native threads make chunks ahead into a bounded queue.
//!
//! Takes a [`LineSource`], which yields work items in the order of the answer. One thread at a time requests the next
//! item from the source, since decoding and pruning are sequential. The item is signed, written and compressed outside
//! of that lock, so several threads may work on one answer; the chunks are delivered in order. A stream with a full queue
//! leaves the pool until a chunk is taken. The consumer never blocks: it takes ready chunks and waits on a pipe for more.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::buffers::{Buffers, Chunk};
use super::compression::{Checksum, ContentCoding, Trailer, ZstdFrame, encode};
use super::{LineSource, Summary, Turn, Work};
use crate::actions::Totals;
use crate::lock::lock;
use crate::log_faults::LogFault;
use crate::ndjson::LineCounts;
use crate::pool::{Pool, Task};
use crate::scan::Outcome;
use crate::stop::Stop;
use crate::wakeup::{self, Signal, Wakeups};
use crate::{Error, Result};

/// Maximum chunks of one stream that are ready or in production. Three keep two threads busy while a third chunk is
/// sent, and bound the memory of a slow consumer.
const CHUNKS_AHEAD: usize = 3;
/// Maximum bytes of these chunks before their coding, if there is more than one. A chunk is at least a line long.
const BYTES_AHEAD: usize = 2 << 20;
/// Bytes after which an answer that was begun on the calling thread is continued by the pool.
const INLINE_BYTES: usize = 1 << 20;

/// The result of [`NdjsonStream::take`].
#[derive(Debug)]
pub enum Next {
    /// The next chunk of the body.
    Chunk(Chunk),
    /// No chunk yet: wait for the file descriptor.
    Pending,
    /// All chunks were taken.
    Done,
}

/// The options of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamOptions {
    /// The content coding of the body.
    pub coding: ContentCoding,
    /// The deadline of the stream.
    pub deadline: Option<Instant>,
    /// Produces the answer on the calling thread, for small answers from memory whose work costs less than waking
    /// another thread. What follows a mebibyte is left to the pool: a few files can have long lines.
    pub inline: bool,
}

/// The consumer's handle of an answer in production. Dropping it stops the work.
#[derive(Debug)]
pub struct NdjsonStream {
    inner: Arc<Inner>,
    pool: Pool,
    /// `None` if the whole answer was produced inline.
    wakeups: Option<Wakeups>,
}

struct Inner {
    source: Mutex<Box<dyn LineSource>>,
    state: Mutex<State>,
    /// Used by the thread that emits, and at the end.
    frame: Mutex<ZstdFrame>,
    stop: Stop,
    /// Stops requests of running items.
    requests: Option<Stop>,
    options: StreamOptions,
    buffers: Arc<Buffers>,
    /// `None` as long as the answer is produced inline.
    signal: Option<Signal>,
}

#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts of one lock")]
struct State {
    /// Items that the source has returned.
    started: u64,
    /// Items whose chunks are in `ready` or taken.
    emitted: u64,
    /// Bytes of the longest of them, before its coding.
    longest_bytes: usize,
    /// Items that finished before an earlier one.
    out_of_order: BTreeMap<u64, Finished>,
    ready: VecDeque<Ready>,
    /// Whether a thread adds the next chunk to the zstd frame.
    is_emitting: bool,
    /// Of the chunks that were taken: an answer may end before those that are ready.
    trailer: Trailer,
    summary: Summary,
    /// The number of items, once the source has ended.
    end: Option<u64>,
    failure: Option<Error>,
    /// The files that the lines must have at the end.
    totals: Option<Totals>,
    /// Whether a chunk was taken.
    has_begun: bool,
    /// Whether the stream is outside of the pool because its queue is full.
    parked: bool,
    /// Whether the consumer waits on the pipe.
    reader_waits: bool,
    /// Whether a byte is in the pipe or about to be written.
    signalled: bool,
}

enum Started {
    Lines(u64, Work),
    Pending,
    End,
}

/// A chunk to be taken.
struct Ready {
    bytes: Vec<u8>,
    plain_bytes: usize,
    checksum: Checksum,
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
    /// Starts the production of an answer.
    pub fn start(
        pool: &Pool,
        buffers: &Arc<Buffers>,
        source: Box<dyn LineSource>,
        options: StreamOptions,
    ) -> Result<Self> {
        let state = State { totals: source.totals(), ..State::default() };
        let mut inner = Inner {
            requests: source.stop(),
            source: Mutex::new(source),
            state: Mutex::new(state),
            frame: Mutex::default(),
            stop: Stop::at(options.deadline),
            options,
            buffers: Arc::clone(buffers),
            signal: None,
        };
        if options.inline {
            let is_ended = inner.produce_inline().unwrap_or_else(|error| {
                inner.fail(error);
                true
            });
            if is_ended {
                return Ok(Self { inner: Arc::new(inner), pool: pool.clone(), wakeups: None });
            }
        }
        let (wakeups, signal) = wakeup::pipe()?;
        inner.signal = Some(signal);
        let inner = Arc::new(inner);
        pool.submit(Arc::clone(&inner) as Arc<dyn Task>);
        Ok(Self { inner, pool: pool.clone(), wakeups: Some(wakeups) })
    }

    /// The descriptor that becomes readable once [`Self::take`] can make progress after [`Next::Pending`]. A whole
    /// inline answer never returns `Pending` and has no descriptor.
    #[must_use]
    pub fn wakeup_fd(&self) -> Option<RawFd> {
        self.wakeups.as_ref().map(Wakeups::fd)
    }

    /// Returns the next chunk of the body without blocking. An error ends the stream, after the chunks that precede it and
    /// were ready.
    pub fn take(&mut self) -> Result<Next> {
        let mut state = lock(&self.inner.state);
        if state.signalled {
            // A byte that is not yet written wakes the consumer once more, which is harmless.
            let taken = self.wakeups.as_ref().is_some_and(Wakeups::take);
            state.signalled = !taken;
        }
        if let Some(Ready { bytes, plain_bytes, checksum }) = state.ready.pop_front() {
            state.has_begun = true;
            state.trailer.add(&checksum, plain_bytes);
            let resume = state.parked && state.has_room();
            state.parked &= !resume;
            drop(state);
            if resume {
                self.pool.submit(Arc::clone(&self.inner) as Arc<dyn Task>);
            }
            return Ok(Next::Chunk(Chunk::new(bytes, &self.inner.buffers)));
        }
        if let Some(failure) = state.failure.as_ref().filter(|_| !state.is_emitting) {
            return Err(failure.clone());
        }
        if state.is_done() {
            return Ok(Next::Done);
        }
        // Work on a hanging mount cannot report the deadline itself.
        if let Err(late) = self.inner.stop.check()
            && !state.is_emitting
        {
            drop(state);
            self.inner.fail(late.clone());
            return Err(late);
        }
        state.reader_waits = true;
        Ok(Next::Pending)
    }

    /// Returns the time until the deadline, after which [`Self::take`] returns an error.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let deadline = self.inner.options.deadline?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns whether every chunk was produced and taken without failure.
    #[must_use]
    pub fn is_done(&self) -> bool {
        lock(&self.inner.state).is_done()
    }

    /// Returns the result of the stream; complete when it is done.
    #[must_use]
    pub fn summary(&self) -> Summary {
        lock(&self.inner.state).summary.clone()
    }

    /// Encodes the last line, which follows the chunks that were taken, and ends the body.
    pub fn finish(&self, last_line: &[u8]) -> Result<Vec<u8>> {
        let coding = self.inner.options.coding;
        let (mut trailer, nothing_before) = {
            let state = lock(&self.inner.state);
            (state.trailer.clone(), !state.has_begun)
        };
        if coding == ContentCoding::Zstd {
            return if nothing_before { ZstdFrame::whole(last_line) } else { Ok(ZstdFrame::end(last_line)) };
        }
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

    /// Stops the work: running steps end soon, no new step starts.
    pub fn cancel(&self) {
        self.inner.stop.cancel();
        if let Some(requests) = &self.inner.requests {
            requests.cancel();
        }
        self.inner.fail(Error::Cancelled);
    }
}

impl Drop for NdjsonStream {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl State {
    /// Takes the item whose turn it is, if it is finished.
    fn next_item(&mut self) -> Option<Finished> {
        self.out_of_order.remove(&self.emitted)
    }

    /// Returns whether another item may be started.
    fn has_room(&self) -> bool {
        let ahead = (self.started - self.emitted) as usize + self.ready.len();
        let fits = (ahead + 1).saturating_mul(self.longest_bytes) <= BYTES_AHEAD;
        ahead == 0 || (ahead < CHUNKS_AHEAD && fits)
    }

    fn is_done(&self) -> bool {
        self.failure.is_none() && self.ready.is_empty() && self.end == Some(self.emitted)
    }

    /// Appends the next item to the ready chunks.
    fn push(&mut self, mut finished: Finished, coding: ContentCoding) {
        if self.emitted == 0 && coding == ContentCoding::Gzip {
            let mut first = Vec::with_capacity(finished.bytes.len() + 16);
            Trailer::begin(coding, &mut first);
            first.extend_from_slice(&finished.bytes);
            finished.bytes = first;
        }
        self.emitted += 1;
        self.longest_bytes = self.longest_bytes.max(finished.plain_bytes);
        self.summary.written = self.summary.written.plus(finished.written);
        let Finished { bytes, plain_bytes, checksum, .. } = finished;
        if !bytes.is_empty() {
            self.ready.push_back(Ready { bytes, plain_bytes, checksum });
        }
        self.check_totals();
    }

    /// Counts the files that were evaluated for an item: the stream may be cut off before its end.
    fn evaluated(&mut self, outcome: Outcome) {
        // Threads come here in another order than they request items.
        if self.end.is_none() && outcome.considered >= self.summary.outcome.considered {
            self.summary.outcome = outcome;
        }
    }

    /// Fails a stream at its end if its lines are not those that its head counts.
    fn check_totals(&mut self) {
        let Some(stated) = self.totals.filter(|_| self.end == Some(self.emitted)) else { return };
        let written = self.summary.written;
        let written = Totals { files: written.files, size_bytes: written.file_bytes };
        if written != stated {
            LogFault::Contradiction.count();
            let detail = format!("an answer has {written}, its header counts {stated}");
            self.fail(Error::Contradiction { detail });
        }
    }

    fn fail(&mut self, error: Error) {
        // Nothing was sent yet: the error has a status.
        if matches!(error, Error::Contradiction { .. }) && !self.has_begun {
            self.ready.clear();
        }
        self.failure.get_or_insert(error);
        self.out_of_order.clear();
    }

    /// Returns whether to wake the consumer, once per wait.
    #[must_use]
    fn wakes_reader(&mut self) -> bool {
        let has_failed = self.failure.is_some() && !self.is_emitting;
        let something_to_say = !self.ready.is_empty() || has_failed || self.is_done();
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
            state.fail(error);
            if matches!(self.stop.check(), Err(Error::Cancelled)) {
                state.ready.clear();
            }
        }
        self.release(state);
    }

    /// Releases the lock, then wakes the consumer, which would otherwise block on the lock.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        let wakes = state.wakes_reader();
        drop(state);
        if let Some(signal) = self.signal.as_ref().filter(|_| wakes) {
            signal.wake();
        }
    }

    /// Starts the next item and returns it with its number.
    fn begin(&self) -> Result<Started> {
        self.stop.check()?;
        let mut source = lock(&self.source);
        let turn = catch(|| source.next_turn())?;
        let outcome = source.outcome();
        let precount = source.precount();
        drop(source);
        let mut state = lock(&self.state);
        state.summary.precount = state.summary.precount.take().or(precount);
        let number = state.started;
        Ok(match turn {
            Turn::Lines(work) => {
                state.started += 1;
                state.evaluated(outcome);
                Started::Lines(number, work)
            }
            Turn::Pending => Started::Pending,
            Turn::End => {
                state.end = Some(number);
                state.summary.outcome = outcome;
                state.check_totals();
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
            ContentCoding::Identity | ContentCoding::Zstd => (plain, Checksum::default()),
            coding @ ContentCoding::Gzip => {
                let mut coded = self.buffers.take();
                let checksum = catch(|| encode(coding, &plain, &mut coded))?;
                self.buffers.put(plain);
                (coded, checksum)
            }
        };
        Ok(Finished { bytes, plain_bytes, checksum, written })
    }

    /// Emits an item, and those that were finished before it, in order. One thread at a time adds to a zstd frame, also
    /// the items that others finish meanwhile.
    fn emit(&self, number: u64, finished: Finished) -> Result<()> {
        let coding = self.options.coding;
        let mut state = lock(&self.state);
        if state.failure.is_some() {
            return Ok(());
        }
        state.out_of_order.insert(number, finished);
        while !state.is_emitting
            && let Some(mut finished) = state.next_item()
        {
            if coding == ContentCoding::Zstd {
                state.is_emitting = true;
                drop(state);
                let coded = catch(|| lock(&self.frame).write(&finished.bytes, self.buffers.take()));
                state = lock(&self.state);
                state.is_emitting = false;
                self.buffers.put(std::mem::replace(&mut finished.bytes, coded?));
            }
            state.push(finished, coding);
            self.release(state);
            state = lock(&self.state);
        }
        Ok(())
    }

    /// Produces on the calling thread. Returns false if the rest is left to the pool.
    fn produce_inline(&self) -> Result<bool> {
        let mut plain_bytes = 0;
        while plain_bytes < INLINE_BYTES {
            match self.begin()? {
                Started::Lines(number, work) => {
                    let finished = self.produce(work)?;
                    plain_bytes += finished.plain_bytes;
                    self.emit(number, finished)?;
                }
                Started::Pending => {}
                Started::End => return Ok(true),
            }
        }
        Ok(false)
    }

    fn try_step(self: &Arc<Self>, pool: &Pool) -> Result<()> {
        {
            // What was produced since this step was submitted may be longer than expected.
            let mut state = lock(&self.state);
            if !state.has_room() {
                state.parked = true;
                return Ok(());
            }
        }
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
                // Another thread may request the next item while this one writes.
                pool.submit(Arc::clone(self) as Arc<dyn Task>);
            } else {
                state.parked = true;
            }
        }
        let finished = self.produce(work)?;
        self.emit(number, finished)?;
        let mut state = lock(&self.state);
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
        // Covers defects outside of the work as well: without an error the consumer would wait forever.
        if let Err(error) = catch(|| self.try_step(pool)) {
            self.fail(error);
        }
    }
}

/// Converts a panic to an error, so that it ends one stream and no thread of the pool.
fn catch<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::Internal { detail: "a native thread panicked".into() }))
}

#[cfg(test)]
mod tests;
