//! Decodes the next batches of a checkpoint while the lines of this one are written.
//!
//! In go batches in their order; they come out in the same order, a few at most decoded before they are asked
//! for. Whoever asks first decodes: where no thread of the pool is free, nothing waits for one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use crate::pool::{self, Pool, Task};
use crate::{Error, Result};

/// To decode a batch takes about as long as to write its lines, now more and now less: a second one keeps two
/// threads from waiting for each other.
const BATCHES_AHEAD: usize = 2;

#[derive(Debug)]
pub(super) struct ReadAhead<B, T> {
    shared: Arc<Shared<B, T>>,
    /// None: nothing is decoded before it is asked for.
    pool: Option<Pool>,
}

#[derive(Debug)]
struct Shared<B, T> {
    /// Held by whoever decodes, until the batch is ready.
    batches: Mutex<Batches<B>>,
    /// Decoded and not asked for. Whoever has what is ready need not wait for what is being decoded.
    ready: Mutex<VecDeque<Result<T>>>,
    /// A [`Step`] is in the pool: a second one would only wait for it.
    stepping: AtomicBool,
}

#[derive(Debug)]
enum Batches<B> {
    Left(Box<B>),
    Ended,
    /// A thread panicked amid a batch, so what comes next is unknown.
    Lost,
}

impl<B, T> ReadAhead<B, T>
where
    B: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    pub(super) fn new(batches: B, pool: Option<Pool>) -> Self {
        let batches = Mutex::new(Batches::Left(Box::new(batches)));
        Self {
            shared: Arc::new(Shared { batches, ready: Mutex::default(), stepping: AtomicBool::new(false) }),
            pool,
        }
    }

    /// The next batch; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Result<T>> {
        let found = self.shared.take_ready().or_else(|| self.shared.decode_next());
        if let (Some(Ok(_)), Some(pool)) = (&found, &self.pool) {
            self.shared.step(pool);
        }
        found
    }
}

impl<B, T> Shared<B, T>
where
    B: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    fn step(self: &Arc<Self>, pool: &Pool) {
        if !self.stepping.swap(true, Ordering::AcqRel) {
            pool.submit(Arc::new(Step(Arc::downgrade(self))));
        }
    }
}

impl<B: Iterator<Item = Result<T>>, T> Shared<B, T> {
    fn ready(&self) -> MutexGuard<'_, VecDeque<Result<T>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_ready(&self) -> Option<Result<T>> {
        self.ready().pop_front()
    }

    /// The batch that another thread decodes at this moment, or else one decoded here.
    fn decode_next(&self) -> Option<Result<T>> {
        let mut batches = self.lock_batches();
        self.take_ready().or_else(|| batches.decode())
    }

    /// Decodes a batch; false where there is nothing more to decode.
    fn decode_ahead(&self) -> bool {
        let mut batches = self.lock_batches();
        let found = batches.decode();
        let goes_on = matches!(found, Some(Ok(_)));
        self.ready().extend(found);
        goes_on
    }

    fn has_room(&self) -> bool {
        self.ready().len() < BATCHES_AHEAD
    }

    fn lock_batches(&self) -> MutexGuard<'_, Batches<B>> {
        match self.batches.try_lock() {
            Ok(batches) => batches,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Who decodes may wait for storage, and its place is another's meanwhile; so is that of who waits for it.
            Err(TryLockError::WouldBlock) => {
                pool::waiting(|| self.batches.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}

impl<B> Batches<B> {
    fn decode<T>(&mut self) -> Option<Result<T>>
    where
        B: Iterator<Item = Result<T>>,
    {
        match std::mem::replace(self, Self::Lost) {
            Self::Left(mut batches) => {
                let found = batches.next();
                *self = if found.is_some() { Self::Left(batches) } else { Self::Ended };
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

/// Decodes a batch at a time until there are enough; does nothing when the scan has ended.
struct Step<B, T>(Weak<Shared<B, T>>);

impl<B, T> Task for Step<B, T>
where
    B: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    fn step(self: Arc<Self>, pool: &Pool) {
        let Some(shared) = self.0.upgrade() else { return };
        let goes_on = !shared.has_room() || shared.decode_ahead();
        shared.stepping.store(false, Ordering::Release);
        // From here on whoever takes a batch sees to the next step; until here nobody did.
        if goes_on && shared.has_room() {
            shared.step(pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use super::*;

    fn numbers(end: u32) -> impl Iterator<Item = Result<u32>> + Send {
        (0..end).map(|number| {
            std::thread::sleep(Duration::from_micros(50));
            Ok(number)
        })
    }

    #[test]
    fn batches_come_in_their_order_however_many_threads_there_are() {
        for pool in [None, Some(Pool::new(1).unwrap()), Some(Pool::new(3).unwrap())] {
            let mut ahead = ReadAhead::new(numbers(300), pool);
            let mut found = Vec::new();
            while let Some(number) = ahead.next() {
                found.push(number.unwrap());
            }
            assert_eq!(found, (0..300).collect::<Vec<_>>());
            assert!(ahead.next().is_none());
        }
    }

    #[test]
    fn so_many_batches_and_no_more_are_decoded_before_they_are_asked_for() {
        let decoded = Arc::new(AtomicU32::new(0));
        let counting = Arc::clone(&decoded);
        let counted = numbers(20).inspect(move |_| _ = counting.fetch_add(1, Ordering::Relaxed));
        let mut ahead = ReadAhead::new(counted, Some(Pool::new(2).unwrap()));
        for number in 0..5 {
            assert_eq!(ahead.next().unwrap().unwrap(), number);
            let enough = number + 1 + BATCHES_AHEAD as u32;
            while decoded.load(Ordering::Relaxed) < enough {
                std::thread::yield_now();
            }
            // Long enough for one more.
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(decoded.load(Ordering::Relaxed), enough);
        }
    }

    #[test]
    fn after_a_panic_there_is_an_error_and_never_another_batch() {
        let panicking = (0..3).map(|number| {
            assert_ne!(number, 1, "as this test wants it");
            Ok(number)
        });
        let mut ahead = ReadAhead::new(panicking, Some(Pool::new(1).unwrap()));
        assert_eq!(ahead.next().unwrap().unwrap(), 0);
        while !matches!(*ahead.shared.lock_batches(), Batches::Lost) {
            std::thread::yield_now();
        }
        assert!(ahead.next().unwrap().is_err());
        assert!(ahead.next().unwrap().is_err());
    }
}
