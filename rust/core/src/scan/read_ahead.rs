//! Decodes the next batches of a checkpoint while the lines of the current one are written.
//!
//! Takes the readers of the parts, each an iterator of batches; yields the batches in the order of the parts. At most a
//! few batches of each part are decoded ahead, and a bounded number of bytes in total. The next part is read ahead as
//! well, and several parts if they are small, so the latency of the store is not paid per part. If no thread of the pool
//! is free, or the bytes are used up, the consumer decodes without waiting.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::lock::{lock, try_lock};
use crate::pool::{self, Pool, Task};
use crate::{Error, Result};

/// Decoding a batch takes about as long as writing its lines, with variation: a second batch keeps two threads busy.
const BATCHES_AHEAD: usize = 2;
/// Maximum number of batches decoded ahead if they are small.
const MOST_BATCHES_AHEAD: usize = 256;
/// Maximum bytes of decoded batches in the queue and of the pages that their readers hold, in addition to the needs
/// of the current part.
const DECODED_BYTES_AHEAD: usize = 24 << 20;
/// Assumed bytes of a step until a larger one was seen, since several may run at once.
const LEAST_STEP_BYTES: usize = 1 << 20;
/// Parts are opened ahead up to this total size of their files, and one at least.
const BYTES_AHEAD: u64 = 4 << 20;
/// Minimum size that a part counts for: tens of parts suffice to hide the latency of a store.
const LEAST_PART_BYTES: u64 = 64 << 10;

/// Reads parts ahead; `R` reads one part.
#[derive(Debug)]
pub(super) struct ReadAhead<P: Iterator<Item = R>, R, T> {
    parts: P,
    measures: Measures<R, T>,
    bytes: Arc<AheadBytes>,
    /// The parts being read, in order, and the bytes of their files.
    open: VecDeque<(Arc<Part<R, T>>, u64)>,
    /// `None`: nothing is decoded ahead.
    pool: Option<Pool>,
    failed: bool,
}

/// How readers and batches are measured, in bytes.
#[derive(Debug)]
pub(super) struct Measures<R, T> {
    /// The size of the file of a part.
    pub(super) file: fn(&R) -> u64,
    /// The bytes that a reader holds between two batches.
    pub(super) reader_held: fn(&R) -> usize,
    /// The bytes of a batch.
    pub(super) batch: fn(&T) -> usize,
    /// Batches of each part with fewer bytes together are decoded ahead whatever their number.
    pub(super) few_bytes: usize,
}

impl<R, T> Clone for Measures<R, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, T> Copy for Measures<R, T> {}

/// The memory of all parts of a scan.
#[derive(Debug, Default)]
struct AheadBytes {
    held: AtomicUsize,
    /// The largest size of one batch and its reader so far.
    largest_step: AtomicUsize,
}

impl AheadBytes {
    /// Reserves the bytes of one more step; `None` if they exceed the limit.
    fn reserve(self: &Arc<Self>) -> Option<Reserved> {
        let bytes = self.largest_step.load(Ordering::Relaxed).max(LEAST_STEP_BYTES);
        let add = |held: usize| held.checked_add(bytes).filter(|held| *held <= DECODED_BYTES_AHEAD);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Reserved { ahead: Arc::clone(self), bytes })
    }

    /// Replaces `before` of the held bytes by `after`, in one step: no other thread sees both or neither.
    fn replace(&self, before: usize, after: usize) {
        self.held.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// The reserved bytes of a running step, released when it ends.
struct Reserved {
    ahead: Arc<AheadBytes>,
    bytes: usize,
}

impl Reserved {
    /// Ends the reservation. The step replaced `before` held bytes by `after`.
    fn settle(mut self, before: usize, after: usize) {
        self.ahead.replace(before + std::mem::take(&mut self.bytes), after);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.ahead.replace(self.bytes, 0);
    }
}

impl<P, R, T> ReadAhead<P, R, T>
where
    P: Iterator<Item = R>,
    R: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    pub(super) fn new(parts: P, measures: Measures<R, T>, pool: Option<Pool>) -> Self {
        Self { parts, measures, bytes: Arc::default(), open: VecDeque::new(), pool, failed: false }
    }

    /// Returns the next batch; `None` at the end and after an error.
    pub(super) fn next(&mut self) -> Option<Result<T>> {
        while !self.failed {
            if self.open.is_empty() {
                if !self.open_next() {
                    return None;
                }
                // A part may be long without a batch for the consumer.
                self.work_ahead();
            }
            match self.open.front()?.0.next() {
                Some(Ok(batch)) => {
                    self.work_ahead();
                    return Some(Ok(batch));
                }
                Some(Err(error)) => {
                    self.failed = true;
                    self.open.clear();
                    return Some(Err(error));
                }
                None => {
                    self.open.pop_front();
                    if !self.open.is_empty() {
                        self.work_ahead();
                    }
                }
            }
        }
        None
    }

    fn open_next(&mut self) -> bool {
        let Some(reader) = self.parts.next() else { return false };
        let bytes = (self.measures.file)(&reader).max(LEAST_PART_BYTES);
        let part = Part::new(reader, self.measures, Arc::clone(&self.bytes));
        self.open.push_back((Arc::new(part), bytes));
        true
    }

    fn work_ahead(&mut self) {
        let Some(pool) = self.pool.clone() else { return };
        let bytes_ahead = |open: &VecDeque<_>| open.iter().skip(1).map(|(_, bytes)| bytes).sum::<u64>();
        while bytes_ahead(&self.open) < BYTES_AHEAD && self.open_next() {}
        for (part, _) in &self.open {
            part.step(&pool);
        }
    }
}

/// A part being read.
#[derive(Debug)]
struct Part<R, T> {
    /// Held while a batch is decoded.
    reader: Mutex<Reader<R>>,
    /// Decoded batches with their sizes. Taking one does not wait for the batch being decoded.
    ready: Mutex<VecDeque<(Result<T>, usize)>>,
    /// The reader's share of the bytes of all parts.
    held: AtomicUsize,
    measures: Measures<R, T>,
    bytes: Arc<AheadBytes>,
    /// Whether a [`Step`] is in the pool or nothing is left to decode.
    stepping: AtomicBool,
}

#[derive(Debug)]
enum Reader<R> {
    Left(Box<R>),
    Ended,
    /// Whether a thread panicked during a batch, which makes later batches unknown.
    Lost,
}

/// A batch with its bytes, and the bytes that the reader held before and after it.
struct Decoded<T> {
    found: Option<Result<T>>,
    bytes: usize,
    reader_before: usize,
    reader_after: usize,
}

impl<R, T> Drop for Part<R, T> {
    fn drop(&mut self) {
        let ready = self.ready.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.bytes.replace(ready.iter().map(|(_, bytes)| bytes).sum::<usize>() + *self.held.get_mut(), 0);
    }
}

impl<R: Iterator<Item = Result<T>>, T> Part<R, T> {
    fn new(reader: R, measures: Measures<R, T>, bytes: Arc<AheadBytes>) -> Self {
        Self {
            reader: Mutex::new(Reader::Left(Box::new(reader))),
            ready: Mutex::default(),
            held: AtomicUsize::new(0),
            measures,
            bytes,
            stepping: AtomicBool::new(false),
        }
    }

    fn next(&self) -> Option<Result<T>> {
        self.take_ready().or_else(|| self.decode_next())
    }

    fn take_ready(&self) -> Option<Result<T>> {
        let (found, bytes) = self.ready().pop_front()?;
        self.bytes.replace(bytes, 0);
        Some(found)
    }

    /// Returns the batch that another thread is decoding, or decodes one.
    fn decode_next(&self) -> Option<Result<T>> {
        let mut reader = pool::lock_in_place(&self.reader);
        self.take_ready().or_else(|| {
            let decoded = self.decode(&mut reader);
            self.bytes.replace(decoded.reader_before, decoded.reader_after);
            decoded.found
        })
    }

    /// Decodes a batch; returns false if none is left. Returns `None` if another thread decodes one.
    fn decode_ahead(&self, reserved: Reserved) -> Option<bool> {
        let mut reader = try_lock(&self.reader)?;
        let Decoded { found, bytes, reader_before, reader_after } = self.decode(&mut reader);
        reserved.settle(reader_before, reader_after + bytes);
        let Some(found) = found else { return Some(false) };
        let goes_on = found.is_ok();
        self.ready().push_back((found, bytes));
        Some(goes_on)
    }

    /// Decodes a batch. The caller replaces the bytes of the reader.
    fn decode(&self, reader: &mut Reader<R>) -> Decoded<T> {
        let found = reader.decode();
        let reader_after = match reader {
            Reader::Left(reader) => (self.measures.reader_held)(reader),
            Reader::Ended | Reader::Lost => 0,
        };
        let reader_before = self.held.swap(reader_after, Ordering::Relaxed);
        let bytes = match &found {
            Some(Ok(batch)) => (self.measures.batch)(batch),
            Some(Err(_)) | None => 0,
        };
        self.bytes.largest_step.fetch_max(reader_after.saturating_add(bytes), Ordering::Relaxed);
        Decoded { found, bytes, reader_before, reader_after }
    }

    fn is_decoding(&self) -> bool {
        try_lock(&self.reader).is_none()
    }

    fn has_room(&self) -> bool {
        let ready = self.ready();
        let bytes = || ready.iter().map(|(_, bytes)| bytes).sum::<usize>();
        ready.len() < BATCHES_AHEAD || (ready.len() < MOST_BATCHES_AHEAD && bytes() < self.measures.few_bytes)
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<(Result<T>, usize)>> {
        lock(&self.ready)
    }
}

impl<R> Reader<R> {
    fn decode<T>(&mut self) -> Option<Result<T>>
    where
        R: Iterator<Item = Result<T>>,
    {
        match std::mem::replace(self, Self::Lost) {
            Self::Left(mut reader) => {
                let found = reader.next();
                *self = if found.is_some() { Self::Left(reader) } else { Self::Ended };
                found
            }
            Self::Ended => {
                *self = Self::Ended;
                None
            }
            Self::Lost => Some(Err(Error::Internal { detail: "a native thread panicked".into() })),
        }
    }
}

impl<R, T> Part<R, T>
where
    R: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    /// Schedules decoding while memory is available.
    fn step(self: &Arc<Self>, pool: &Pool) {
        if self.has_room() && !self.stepping.swap(true, Ordering::AcqRel) {
            pool.submit(Arc::new(Step(Arc::downgrade(self))));
        }
    }
}

/// Decodes one batch per step until there are enough; does nothing once the scan has ended.
struct Step<R, T>(Weak<Part<R, T>>);

impl<R, T> Task for Step<R, T>
where
    R: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    fn step(self: Arc<Self>, pool: &Pool) {
        let Some(part) = self.0.upgrade() else { return };
        let Some(reserved) = part.bytes.reserve() else {
            // Taking a batch schedules again.
            part.stepping.store(false, Ordering::Release);
            return;
        };
        match part.decode_ahead(reserved) {
            Some(false) => {}
            Some(true) => {
                part.stepping.store(false, Ordering::Release);
                // From here on taking a batch schedules the next step.
                part.step(pool);
            }
            None => {
                part.stepping.store(false, Ordering::Release);
                // The consumer schedules the next step once it has its batch, unless it did so just before.
                if !part.is_decoding() {
                    part.step(pool);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use super::*;

    type Numbers = Box<dyn Iterator<Item = Result<u32>> + Send>;

    /// Returns the numbers, each after a short pause.
    fn numbers(numbers: std::ops::Range<u32>) -> Numbers {
        Box::new(numbers.map(|number| {
            std::thread::sleep(Duration::from_micros(50));
            Ok(number)
        }))
    }

    /// Returns measures for batches of one byte and files of a given size.
    fn in_files_of(file: fn(&Numbers) -> u64) -> Measures<Numbers, u32> {
        Measures { file, reader_held: |_| 0, batch: |_| 1, few_bytes: 0 }
    }

    fn pools() -> [Option<Pool>; 3] {
        [None, Some(Pool::new(1).unwrap()), Some(Pool::new(3).unwrap())]
    }

    /// Five parts of twenty batches, and the number of batches that were decoded.
    fn counted_parts() -> (impl Iterator<Item = Numbers> + Send + 'static, Arc<AtomicU32>) {
        let decoded = Arc::new(AtomicU32::new(0));
        let counting = Arc::clone(&decoded);
        let parts = (0..5).map(move |part| -> Numbers {
            let counting = Arc::clone(&counting);
            Box::new(numbers(20 * part..20 * (part + 1)).inspect(move |_| {
                counting.fetch_add(1, Ordering::Relaxed);
            }))
        });
        (parts, decoded)
    }

    /// Returns all batches up to the first error.
    fn taken<P: Iterator<Item = Numbers>>(ahead: &mut ReadAhead<P, Numbers, u32>) -> Vec<u32> {
        std::iter::from_fn(|| ahead.next()?.ok()).collect()
    }

    #[test]
    fn batches_come_in_the_order_of_the_parts_however_many_threads_there_are() {
        for pool in pools() {
            let parts = [0..100, 100..100, 100..101, 101..300].map(numbers);
            let mut ahead = ReadAhead::new(parts.into_iter(), in_files_of(|_| BYTES_AHEAD / 2), pool);
            assert_eq!(taken(&mut ahead), (0..300).collect::<Vec<_>>());
            assert!(ahead.next().is_none());
        }
    }

    #[test]
    fn a_bounded_number_of_batches_of_several_parts_is_decoded_ahead() {
        bytes_decoded_ahead(|_| BYTES_AHEAD, 1);
        bytes_decoded_ahead(|_| BYTES_AHEAD / 3 + 1, 3);
    }

    fn bytes_decoded_ahead(bytes_of: fn(&Numbers) -> u64, parts_ahead: u32) {
        let (parts, decoded) = counted_parts();
        let mut ahead = ReadAhead::new(parts, in_files_of(bytes_of), Some(Pool::new(2).unwrap()));
        for number in 0..5 {
            assert_eq!(ahead.next().unwrap().unwrap(), number);
            let enough = number + 1 + (1 + parts_ahead) * BATCHES_AHEAD as u32;
            while decoded.load(Ordering::Relaxed) < enough {
                std::thread::yield_now();
            }
            // Long enough to decode one more batch.
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(decoded.load(Ordering::Relaxed), enough);
        }
    }

    #[test]
    fn tens_of_parts_at_most_are_opened_ahead_if_their_files_are_listed_as_empty() {
        let opened = Arc::new(AtomicU32::new(0));
        let counting = Arc::clone(&opened);
        let parts = (0..1000).map(move |part| {
            counting.fetch_add(1, Ordering::Relaxed);
            numbers(part..part + 1)
        });
        let mut ahead = ReadAhead::new(parts, in_files_of(|_| 0), Some(Pool::new(2).unwrap()));
        assert_eq!(ahead.next().unwrap().unwrap(), 0);
        assert_eq!(u64::from(opened.load(Ordering::Relaxed)), 1 + BYTES_AHEAD / LEAST_PART_BYTES);
        assert_eq!(taken(&mut ahead), (1..1000).collect::<Vec<_>>());
    }

    #[test]
    fn batches_decoded_ahead_of_all_parts_are_bounded_in_bytes() {
        // Three batches and their readers fit.
        let measures = Measures {
            file: |_: &Numbers| 1,
            reader_held: |_| DECODED_BYTES_AHEAD / 12,
            batch: |_| DECODED_BYTES_AHEAD / 4,
            few_bytes: 0,
        };
        let (parts, decoded) = counted_parts();
        let mut ahead = ReadAhead::new(parts, measures, Some(Pool::new(3).unwrap()));
        // The first steps of all threads may start before one ends and shows its size.
        ahead.bytes.largest_step.store(DECODED_BYTES_AHEAD / 3, Ordering::Relaxed);
        let mut taken = 0;
        while let Some(number) = ahead.next() {
            assert_eq!(number.unwrap(), taken);
            taken += 1;
            std::thread::sleep(Duration::from_millis(1));
            assert!(decoded.load(Ordering::Relaxed) <= taken + 3, "after {taken}");
            // The memory of the requested part itself is not included.
            let held = ahead.bytes.held.load(Ordering::Relaxed);
            assert!(held <= DECODED_BYTES_AHEAD * 4 / 3, "{held} after {taken}");
        }
        assert_eq!(taken, 100);
        let bytes = Arc::clone(&ahead.bytes);
        drop(ahead);
        assert_eq!(bytes.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_fault_follows_all_batches_before_it_and_ends_them() {
        for pool in pools() {
            let torn = Err(Error::corrupt("part", "torn"));
            let parts: [Numbers; 3] =
                [numbers(0..3), Box::new([Ok(3), torn, Ok(4)].into_iter()), numbers(5..9)];
            let mut ahead = ReadAhead::new(parts.into_iter(), in_files_of(|_| 1), pool);
            assert_eq!(taken(&mut ahead), [0, 1, 2, 3]);
            assert!(ahead.next().is_none());
        }
    }

    #[test]
    fn after_a_panic_there_is_an_error_and_never_another_batch() {
        let panicking: Numbers = Box::new((0..3).map(|number| {
            assert_ne!(number, 1, "as this test wants it");
            Ok(number)
        }));
        let pool = Some(Pool::new(1).unwrap());
        let mut ahead = ReadAhead::new([panicking].into_iter(), in_files_of(|_| 1), pool);
        assert_eq!(ahead.next().unwrap().unwrap(), 0);
        while !matches!(*pool::lock_in_place(&ahead.open[0].0.reader), Reader::Lost) {
            std::thread::yield_now();
        }
        assert!(ahead.next().unwrap().is_err());
        assert!(ahead.next().is_none());
    }
}
