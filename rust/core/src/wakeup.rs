//! Pipes that wake an event loop, usable with any event loop.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Mutex;

use crate::lock::lock;
use crate::{Error, Result};

/// The consumer's end, which never blocks.
#[derive(Debug)]
pub(crate) struct Wakeups(PipeReader);

/// The producer's end.
#[derive(Debug)]
pub(crate) struct Signal(PipeWriter);

/// Both ends of a new pipe.
pub(crate) fn pipe() -> Result<(Wakeups, Signal)> {
    let (reader, writer) = std::io::pipe().map_err(Error::no_descriptors)?;
    rustix::io::ioctl_fionbio(&reader, true).map_err(Error::no_descriptors)?;
    Ok((Wakeups(reader), Signal(writer)))
}

impl Wakeups {
    /// The descriptor, readable while a byte is in the pipe.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Reads a byte; returns false if none is there yet.
    pub(crate) fn take(&self) -> bool {
        (&self.0).read(&mut [0]).is_ok()
    }
}

impl Signal {
    /// Wakes the consumer. At most one byte is ever in the pipe, so the write cannot block; the error of a closed
    /// pipe is ignored.
    pub(crate) fn wake(&self) {
        let _ = (&self.0).write(&[1]);
    }
}

/// Results of native threads for one event loop, which takes all of them at one wakeup. Its descriptor is readable while
/// there are results. The loop bounds their number by the number of calls that it starts.
#[derive(Debug)]
pub(crate) struct Completions<T> {
    state: Mutex<State<T>>,
    wakeups: Wakeups,
    signal: Signal,
}

#[derive(Debug)]
struct State<T> {
    results: Vec<T>,
    /// Whether a byte is in the pipe or about to be written.
    signalled: bool,
}

impl<T> Completions<T> {
    /// Opens the pipe.
    pub(crate) fn new() -> Result<Self> {
        let (wakeups, signal) = pipe()?;
        Ok(Self { state: Mutex::new(State { results: Vec::new(), signalled: false }), wakeups, signal })
    }

    /// Adds a result and wakes the event loop. Never blocks.
    pub(crate) fn push(&self, result: T) {
        let mut state = lock(&self.state);
        state.results.push(result);
        let wakes = !std::mem::replace(&mut state.signalled, true);
        drop(state);
        if wakes {
            self.signal.wake();
        }
    }

    #[must_use]
    pub(crate) fn take(&self) -> Vec<T> {
        let mut state = lock(&self.state);
        // A byte that is not yet written wakes the loop once more, which is harmless.
        if state.signalled && self.wakeups.take() {
            state.signalled = false;
        }
        std::mem::take(&mut state.results)
    }
}

impl<T> AsFd for Completions<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeups.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    /// Waits until a byte is in the pipe, as an event loop does, and puts it back.
    fn wait(completions: &Completions<u32>) {
        while !completions.wakeups.take() {
            std::thread::yield_now();
        }
        completions.signal.wake();
    }

    #[test]
    fn no_result_of_any_thread_is_lost_between_wakeups() {
        const THREADS: u32 = 4;
        const RESULTS: u32 = 2000;
        let completions = Arc::new(Completions::new().unwrap());
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let completions = Arc::clone(&completions);
                std::thread::spawn(move || {
                    for number in 0..RESULTS {
                        completions.push(thread * RESULTS + number);
                    }
                })
            })
            .collect();
        let mut taken = BTreeSet::new();
        while taken.len() < (THREADS * RESULTS) as usize {
            wait(&completions);
            taken.extend(completions.take());
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(completions.take().is_empty());
    }
}
