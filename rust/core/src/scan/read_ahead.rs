//! Decodes the next batches of a checkpoint while the lines of this one are written.
//!
//! In go the readers of its parts, each an iterator of batches; the batches come out in the order of the parts
//! and within them. Of each part a few batches at most are decoded before they are asked for. Beside the part that
//! is asked for the next one is read, and more of them where they are small, so that a store's latency is not
//! waited for part by part. Whoever asks first decodes: where no thread of the pool is free, nothing waits for one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use crate::pool::{self, Pool, Task};
use crate::{Error, Result};

/// To decode a batch takes about as long as to write its lines, now more and now less: a second one keeps two
/// threads from waiting for each other.
const BATCHES_AHEAD: usize = 2;
/// Parts are opened ahead until their files have so many bytes together, and one at least.
const BYTES_AHEAD: u64 = 4 << 20;
/// A part counts as so many, however small its file, or the log says that it is: tens of them are enough to hide
/// a store's latency.
const LEAST_PART_BYTES: u64 = 64 << 10;

/// `R` reads one part.
#[derive(Debug)]
pub(super) struct ReadAhead<P: Iterator<Item = R>, R, T> {
    parts: P,
    bytes_of: fn(&R) -> u64,
    /// Those that are being read, in their order, and the bytes of their files.
    open: VecDeque<(Arc<Part<R, T>>, u64)>,
    /// None: nothing is decoded before it is asked for.
    pool: Option<Pool>,
    failed: bool,
}

impl<P, R, T> ReadAhead<P, R, T>
where
    P: Iterator<Item = R>,
    R: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    pub(super) fn new(parts: P, bytes_of: fn(&R) -> u64, pool: Option<Pool>) -> Self {
        Self { parts, bytes_of, open: VecDeque::new(), pool, failed: false }
    }

    /// The next batch; `None` at the end, and after an error.
    pub(super) fn next(&mut self) -> Option<Result<T>> {
        while !self.failed && (!self.open.is_empty() || self.open_next()) {
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
                None => _ = self.open.pop_front(),
            }
        }
        None
    }

    fn open_next(&mut self) -> bool {
        let Some(reader) = self.parts.next() else { return false };
        let bytes = (self.bytes_of)(&reader).max(LEAST_PART_BYTES);
        self.open.push_back((Arc::new(Part::new(reader)), bytes));
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

/// A part that is being read.
#[derive(Debug)]
struct Part<R, T> {
    /// Held by whoever decodes, until the batch is ready.
    reader: Mutex<Reader<R>>,
    /// Decoded and not asked for. Whoever has what is ready need not wait for what is being decoded.
    ready: Mutex<VecDeque<Result<T>>>,
    /// A [`Step`] is in the pool, and a second one would only wait for it; or there is nothing left to decode.
    stepping: AtomicBool,
}

#[derive(Debug)]
enum Reader<R> {
    Left(Box<R>),
    Ended,
    /// A thread panicked amid a batch, so what comes next is unknown.
    Lost,
}

impl<R: Iterator<Item = Result<T>>, T> Part<R, T> {
    fn new(reader: R) -> Self {
        let reader = Mutex::new(Reader::Left(Box::new(reader)));
        Self { reader, ready: Mutex::default(), stepping: AtomicBool::new(false) }
    }

    fn next(&self) -> Option<Result<T>> {
        self.take_ready().or_else(|| self.decode_next())
    }

    fn take_ready(&self) -> Option<Result<T>> {
        self.ready().pop_front()
    }

    /// The batch that another thread decodes at this moment, or else one decoded here.
    fn decode_next(&self) -> Option<Result<T>> {
        let mut reader = self.lock_reader();
        self.take_ready().or_else(|| reader.decode())
    }

    /// Decodes a batch; false where there is nothing more to decode.
    fn decode_ahead(&self) -> bool {
        let mut reader = self.lock_reader();
        let found = reader.decode();
        let goes_on = matches!(found, Some(Ok(_)));
        self.ready().extend(found);
        goes_on
    }

    fn has_room(&self) -> bool {
        self.ready().len() < BATCHES_AHEAD
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<Result<T>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_reader(&self) -> MutexGuard<'_, Reader<R>> {
        match self.reader.try_lock() {
            Ok(reader) => reader,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Who decodes may wait for storage, and its place is another's meanwhile; so is that of who waits for it.
            Err(TryLockError::WouldBlock) => {
                pool::waiting(|| self.reader.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
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
    /// Sees to it that batches are decoded as long as there is room for them.
    fn step(self: &Arc<Self>, pool: &Pool) {
        if self.has_room() && !self.stepping.swap(true, Ordering::AcqRel) {
            pool.submit(Arc::new(Step(Arc::downgrade(self))));
        }
    }
}

/// Decodes a batch at a time until there are enough; does nothing when the scan has ended.
struct Step<R, T>(Weak<Part<R, T>>);

impl<R, T> Task for Step<R, T>
where
    R: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    fn step(self: Arc<Self>, pool: &Pool) {
        let Some(part) = self.0.upgrade() else { return };
        if part.decode_ahead() {
            part.stepping.store(false, Ordering::Release);
            // From here on whoever takes a batch sees to the next step; until here nobody did.
            part.step(pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use super::*;

    type Numbers = Box<dyn Iterator<Item = Result<u32>> + Send>;

    /// Counts up, which takes some time.
    fn numbers(numbers: std::ops::Range<u32>) -> Numbers {
        Box::new(numbers.map(|number| {
            std::thread::sleep(Duration::from_micros(50));
            Ok(number)
        }))
    }

    fn pools() -> [Option<Pool>; 3] {
        [None, Some(Pool::new(1).unwrap()), Some(Pool::new(3).unwrap())]
    }

    /// All batches up to the first error.
    fn taken<P: Iterator<Item = Numbers>>(ahead: &mut ReadAhead<P, Numbers, u32>) -> Vec<u32> {
        std::iter::from_fn(|| ahead.next()?.ok()).collect()
    }

    #[test]
    fn batches_come_in_the_order_of_the_parts_however_many_threads_there_are() {
        for pool in pools() {
            let parts = [0..100, 100..100, 100..101, 101..300].map(numbers);
            let mut ahead = ReadAhead::new(parts.into_iter(), |_| BYTES_AHEAD / 2, pool);
            assert_eq!(taken(&mut ahead), (0..300).collect::<Vec<_>>());
            assert!(ahead.next().is_none());
        }
    }

    #[test]
    fn so_many_batches_of_so_many_parts_are_decoded_before_they_are_asked_for_and_no_more() {
        ahead_of_what_is_taken(|_| BYTES_AHEAD, 1);
        ahead_of_what_is_taken(|_| BYTES_AHEAD / 3 + 1, 3);
    }

    fn ahead_of_what_is_taken(bytes_of: fn(&Numbers) -> u64, parts_ahead: u32) {
        let decoded = Arc::new(AtomicU32::new(0));
        let counting = Arc::clone(&decoded);
        let parts = (0..5).map(move |part| -> Numbers {
            let counting = Arc::clone(&counting);
            Box::new(numbers(20 * part..20 * (part + 1)).inspect(move |_| {
                counting.fetch_add(1, Ordering::Relaxed);
            }))
        });
        let mut ahead = ReadAhead::new(parts, bytes_of, Some(Pool::new(2).unwrap()));
        for number in 0..5 {
            assert_eq!(ahead.next().unwrap().unwrap(), number);
            let enough = number + 1 + (1 + parts_ahead) * BATCHES_AHEAD as u32;
            while decoded.load(Ordering::Relaxed) < enough {
                std::thread::yield_now();
            }
            // Long enough for one more.
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(decoded.load(Ordering::Relaxed), enough);
        }
    }

    #[test]
    fn tens_of_parts_are_opened_ahead_and_no_more_where_their_files_are_said_to_be_empty() {
        let opened = Arc::new(AtomicU32::new(0));
        let counting = Arc::clone(&opened);
        let parts = (0..1000).map(move |part| {
            counting.fetch_add(1, Ordering::Relaxed);
            numbers(part..part + 1)
        });
        let mut ahead = ReadAhead::new(parts, |_| 0, Some(Pool::new(2).unwrap()));
        assert_eq!(ahead.next().unwrap().unwrap(), 0);
        assert_eq!(u64::from(opened.load(Ordering::Relaxed)), 1 + BYTES_AHEAD / LEAST_PART_BYTES);
        assert_eq!(taken(&mut ahead), (1..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_fault_comes_after_all_that_is_before_it_and_ends_the_batches() {
        for pool in pools() {
            let torn = Err(Error::corrupt("part", "torn"));
            let parts: [Numbers; 3] =
                [numbers(0..3), Box::new([Ok(3), torn, Ok(4)].into_iter()), numbers(5..9)];
            let mut ahead = ReadAhead::new(parts.into_iter(), |_| 1, pool);
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
        let mut ahead = ReadAhead::new([panicking].into_iter(), |_| 1, Some(Pool::new(1).unwrap()));
        assert_eq!(ahead.next().unwrap().unwrap(), 0);
        while !matches!(*ahead.open[0].0.lock_reader(), Reader::Lost) {
            std::thread::yield_now();
        }
        assert!(ahead.next().unwrap().is_err());
        assert!(ahead.next().is_none());
    }
}
