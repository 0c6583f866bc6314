//! Decodes the next batch of a checkpoint while the lines of this one are written.
//!
//! In go batches in their order; they come out in the same order, one at most decoded before it is asked for.
//! Whoever asks first decodes: where no thread of the pool is free, nothing waits for one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use crate::pool::{self, Pool, Task};
use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct ReadAhead<B, T> {
    state: Arc<Mutex<State<B, T>>>,
    /// None: nothing is decoded before it is asked for.
    pool: Option<Pool>,
}

#[derive(Debug)]
struct State<B, T> {
    batches: Batches<B>,
    ready: Option<Result<T>>,
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
        let state = State { batches: Batches::Left(Box::new(batches)), ready: None };
        Self { state: Arc::new(Mutex::new(state)), pool }
    }

    /// The next batch; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Result<T>> {
        let mut state = lock(&self.state);
        let found = state.ready.take().or_else(|| state.decode());
        drop(state);
        if let (Some(Ok(_)), Some(pool)) = (&found, &self.pool) {
            pool.submit(Arc::new(Step(Arc::downgrade(&self.state))));
        }
        found
    }
}

impl<B: Iterator<Item = Result<T>>, T> State<B, T> {
    fn decode(&mut self) -> Option<Result<T>> {
        match std::mem::replace(&mut self.batches, Batches::Lost) {
            Batches::Left(mut batches) => {
                let found = batches.next();
                self.batches = if found.is_some() { Batches::Left(batches) } else { Batches::Ended };
                found
            }
            Batches::Ended => {
                self.batches = Batches::Ended;
                None
            }
            Batches::Lost => Some(Err(Error::Internal { detail: "a native thread panicked".into() })),
        }
    }
}

fn lock<S>(state: &Mutex<S>) -> MutexGuard<'_, S> {
    match state.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // Who decodes may wait for storage, and its place is another's meanwhile; so is that of who waits for it.
        Err(TryLockError::WouldBlock) => {
            pool::waiting(|| state.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}

/// Decodes one batch; does nothing when the scan has ended or another thread was first.
struct Step<B, T>(Weak<Mutex<State<B, T>>>);

impl<B, T> Task for Step<B, T>
where
    B: Iterator<Item = Result<T>> + Send,
    T: Send,
{
    fn step(self: Arc<Self>, _: &Pool) {
        if let Some(state) = self.0.upgrade() {
            let mut state = lock(&state);
            if state.ready.is_none() {
                state.ready = state.decode();
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn the_next_batch_is_decoded_before_it_is_asked_for() {
        let mut ahead = ReadAhead::new(numbers(3), Some(Pool::new(1).unwrap()));
        assert!(ahead.next().unwrap().is_ok());
        while lock(&ahead.state).ready.is_none() {
            std::thread::yield_now();
        }
        assert_eq!(ahead.next().unwrap().unwrap(), 1);
    }

    #[test]
    fn after_a_panic_there_is_an_error_and_never_another_batch() {
        let panicking = (0..3).map(|number| {
            assert_ne!(number, 1, "as this test wants it");
            Ok(number)
        });
        let mut ahead = ReadAhead::new(panicking, Some(Pool::new(1).unwrap()));
        assert_eq!(ahead.next().unwrap().unwrap(), 0);
        while !matches!(lock(&ahead.state).batches, Batches::Lost) {
            std::thread::yield_now();
        }
        assert!(ahead.next().unwrap().is_err());
        assert!(ahead.next().unwrap().is_err());
    }
}
