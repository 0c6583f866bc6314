//! A bounded pool of native threads, fair between streams.
//!
//! A [`Task`] is a stream cut into short steps (one chunk of an answer). Runnable tasks wait in one first-in
//! first-out queue and go to its end after every step, so a full listing of a million files and a query of
//! twenty take turns chunk by chunk. A task that has nothing to do leaves the queue and costs nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::{Error, Result};

/// Work cut into steps. A step must not block for long on anything but storage.
pub(crate) trait Task: Send + Sync {
    /// Does one step. Puts itself back with [`Pool::submit`] when there is more to do.
    fn step(self: Arc<Self>, pool: &Pool);
}

/// A handle on the threads; they end when the last handle is dropped.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
    threads: usize,
    /// Held by outside handles only, so that the workers' own handles do not keep the pool alive.
    _lifetime: Option<Arc<Lifetime>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").field("threads", &self.threads).finish_non_exhaustive()
    }
}

struct Shared {
    queue: Mutex<Queue>,
    runnable: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Arc<dyn Task>>,
    closed: bool,
}

struct Lifetime {
    shared: Arc<Shared>,
}

impl Pool {
    /// Starts `threads` workers (at least one).
    pub fn new(threads: usize) -> Result<Self> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared { queue: Mutex::default(), runnable: Condvar::new() });
        let lifetime = Arc::new(Lifetime { shared: Arc::clone(&shared) });
        for number in 0..threads {
            let worker = Self { shared: Arc::clone(&shared), threads, _lifetime: None };
            thread::Builder::new()
                .name(format!("deltalog-{number}"))
                .spawn(move || worker.work())
                .map_err(|error| Error::Internal { detail: format!("cannot start a thread: {error}") })?;
        }
        Ok(Self { shared, threads, _lifetime: Some(lifetime) })
    }

    /// How many threads it has.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Puts a task at the end of the queue.
    pub(crate) fn submit(&self, task: Arc<dyn Task>) {
        self.shared.lock().tasks.push_back(task);
        self.shared.runnable.notify_one();
    }

    fn work(&self) {
        while let Some(task) = self.shared.next_task() {
            task.step(self);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A queue of tasks is whole at every point where a holder could panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_task(&self) -> Option<Arc<dyn Task>> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(task) = queue.tasks.pop_front() {
                return Some(task);
            }
            queue = self.runnable.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Lifetime {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.runnable.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    struct Counting {
        name: usize,
        left: AtomicUsize,
        said: Mutex<mpsc::Sender<usize>>,
    }

    impl Task for Counting {
        fn step(self: Arc<Self>, pool: &Pool) {
            self.said.lock().unwrap().send(self.name).unwrap();
            if self.left.fetch_sub(1, Ordering::SeqCst) > 1 {
                pool.submit(self);
            }
        }
    }

    struct Both(Vec<Arc<Counting>>);

    impl Task for Both {
        fn step(self: Arc<Self>, pool: &Pool) {
            for task in &self.0 {
                pool.submit(Arc::clone(task) as Arc<dyn Task>);
            }
        }
    }

    #[test]
    fn two_long_tasks_on_one_thread_take_turns() {
        let pool = Pool::new(1).unwrap();
        let (said, heard) = mpsc::channel();
        let task =
            |name| Arc::new(Counting { name, left: AtomicUsize::new(50), said: Mutex::new(said.clone()) });
        pool.submit(Arc::new(Both(vec![task(1), task(2)])));
        let order: Vec<usize> = heard.iter().take(100).collect();
        assert!(order.chunks(2).all(|pair| pair == [1, 2]), "{order:?}");
    }

    #[test]
    fn dropping_the_last_handle_ends_the_threads() {
        let pool = Pool::new(2).unwrap();
        let shared = Arc::downgrade(&pool.shared);
        drop(pool);
        for _ in 0..1000 {
            if shared.upgrade().is_none() {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the workers still hold the queue");
    }
}
