//! A bounded pool of native threads, fair between streams.
//!
//! A [`Task`] is a stream divided into short steps (one chunk of an answer). Runnable tasks wait in one FIFO queue and
//! return to its end after every step, so a full listing of a million files and a query of twenty alternate chunk by
//! chunk. A task without work leaves the queue and costs nothing. A step waits for storage inside [`block_in_place`],
//! and another thread runs meanwhile: a hanging store delays only its own streams. These threads have a lower priority
//! than the rest of the process: on a busy machine, sending chunks and answering small requests come first.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::lock::{lock, try_lock};
use crate::{Error, Result};

/// Maximum threads that wait for storage, in addition to running ones. Each holds a stack and a stream.
const MAX_BLOCKED: usize = 256;

/// Idle threads kept for the next wait. Further ones end when idle.
const SPARE_THREADS: usize = 8;

/// The nice value relative to the thread that made the pool. A thread with this value gets a third of the CPU time
/// of one without.
#[cfg(target_os = "linux")]
const NICER: i32 = 5;

/// Work divided into steps. A step must not block outside of [`block_in_place`].
pub(crate) trait Task: Send + Sync {
    /// Runs one step. Submits itself again with [`Pool::submit`] if more steps remain.
    fn step(self: Arc<Self>, pool: &Pool);
}

/// A handle of the pool. The threads end when the last handle is dropped.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
    /// Held by handles outside of the workers, so that workers do not keep the pool alive.
    _lifetime: Option<Arc<Lifetime>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").field("threads", &self.shared.threads).finish_non_exhaustive()
    }
}

struct Shared {
    priority: Priority,
    /// Number of steps that run at a time, not counting those that wait.
    threads: usize,
    queue: Mutex<Queue>,
    runnable: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Arc<dyn Task>>,
    /// Number of threads.
    workers: usize,
    /// Threads that run a step and do not wait for storage.
    running: usize,
    /// Threads without a task.
    idle: usize,
    closed: bool,
}

struct Lifetime {
    shared: Arc<Shared>,
}

thread_local! {
    /// The pool whose step this thread runs; `None` outside of pools and while the step waits.
    static RUNNING: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Runs a blocking call. On a thread of a pool, another step runs meanwhile.
pub(crate) fn block_in_place<T>(wait: impl FnOnce() -> T) -> T {
    match RUNNING.take() {
        None => wait(),
        Some(shared) => {
            let _back = Blocked::begin(shared);
            wait()
        }
    }
}

/// Locks a mutex whose holder may wait for storage. On a thread of a pool, another step runs meanwhile.
pub(crate) fn lock_in_place<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    try_lock(mutex).unwrap_or_else(|| block_in_place(|| lock(mutex)))
}

struct Blocked(Arc<Shared>);

impl Blocked {
    fn begin(shared: Arc<Shared>) -> Self {
        let mut queue = shared.lock();
        queue.running -= 1;
        shared.wake_one(&mut queue);
        drop(queue);
        Self(shared)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // One step more than `threads` may run until this one ends: waiting for a free place would cost more.
        self.0.lock().running += 1;
        RUNNING.set(Some(Arc::clone(&self.0)));
    }
}

impl Pool {
    /// Starts `threads` workers (at least one).
    pub fn new(threads: usize) -> Result<Self> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            priority: Priority::nicer_than_this_thread(),
            threads,
            queue: Mutex::default(),
            runnable: Condvar::new(),
        });
        let lifetime = Arc::new(Lifetime { shared: Arc::clone(&shared) });
        for _ in 0..threads {
            shared
                .start_worker(&mut shared.lock())
                .map_err(|error| Error::Internal { detail: format!("cannot start a thread: {error}") })?;
        }
        Ok(Self { shared, _lifetime: Some(lifetime) })
    }

    /// Returns the number of threads for this machine: one per processor.
    #[must_use]
    pub fn default_threads() -> usize {
        thread::available_parallelism().map_or(2, usize::from)
    }

    /// Returns the number of steps that run at a time.
    pub(crate) fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Returns whether a task would start at once.
    pub(crate) fn is_idle(&self) -> bool {
        let queue = self.shared.lock();
        queue.tasks.is_empty() && queue.running < self.shared.threads
    }

    /// Puts a task at the end of the queue.
    pub(crate) fn submit(&self, task: Arc<dyn Task>) {
        let mut queue = self.shared.lock();
        queue.tasks.push_back(task);
        self.shared.wake_one(&mut queue);
    }

    fn work(&self) {
        self.shared.priority.take();
        while let Some(task) = self.shared.next_task() {
            RUNNING.set(Some(Arc::clone(&self.shared)));
            // A panic ends one stream and not the thread.
            drop(catch_unwind(AssertUnwindSafe(|| task.step(self))));
            RUNNING.take();
            self.shared.lock().running -= 1;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is consistent at every point where a holder could panic.
        lock(&self.queue)
    }

    fn start_worker(self: &Arc<Self>, queue: &mut Queue) -> std::io::Result<()> {
        let worker = Pool { shared: Arc::clone(self), _lifetime: None };
        thread::Builder::new().name(format!("deltalog-{}", queue.workers)).spawn(move || worker.work())?;
        queue.workers += 1;
        Ok(())
    }

    /// Wakes or starts a thread for the next task, if one may run.
    fn wake_one(self: &Arc<Self>, queue: &mut Queue) {
        if queue.tasks.is_empty() || queue.running >= self.threads {
            return;
        }
        if queue.idle > 0 {
            self.runnable.notify_one();
        } else if queue.workers < self.threads + MAX_BLOCKED {
            // If no thread can be started, the task waits for one that returns.
            drop(self.start_worker(queue));
        }
    }

    /// Waits for the next task; `None` ends the thread.
    fn next_task(self: &Arc<Self>) -> Option<Arc<dyn Task>> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if queue.running < self.threads
                && let Some(task) = queue.tasks.pop_front()
            {
                queue.running += 1;
                // The notification for a second task may have reached this thread as well.
                self.wake_one(&mut queue);
                return Some(task);
            }
            if queue.idle >= self.threads + SPARE_THREADS {
                queue.workers -= 1;
                return None;
            }
            queue.idle += 1;
            queue = self.runnable.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

/// Gives the current thread the priority of a pool's threads.
pub(crate) fn lower_priority() {
    Priority::nicer_than_this_thread().take();
}

/// The scheduling priority of a pool's threads.
struct Priority(Option<i32>);

#[cfg(target_os = "linux")]
impl Priority {
    fn nicer_than_this_thread() -> Self {
        Self(rustix::process::getpriority_process(None).ok().map(|priority| priority + NICER))
    }

    /// Applies the priority to the current thread. On Linux `None` selects the thread.
    fn take(&self) {
        // If the system denies it, all threads have the same priority.
        let _ = self.0.map(|priority| rustix::process::setpriority_process(None, priority));
    }
}

#[cfg(not(target_os = "linux"))]
impl Priority {
    fn nicer_than_this_thread() -> Self {
        Self(None)
    }

    fn take(&self) {}
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
        sent: Mutex<mpsc::Sender<usize>>,
    }

    impl Task for Counting {
        fn step(self: Arc<Self>, pool: &Pool) {
            self.sent.lock().unwrap().send(self.name).unwrap();
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
        let (sent, received) = mpsc::channel();
        let task =
            |name| Arc::new(Counting { name, left: AtomicUsize::new(50), sent: Mutex::new(sent.clone()) });
        pool.submit(Arc::new(Both(vec![task(1), task(2)])));
        let order: Vec<usize> = received.iter().take(100).collect();
        assert!(order.chunks(2).all(|pair| pair == [1, 2]), "{order:?}");
    }

    /// Reports the start of its step, and ends it on a signal.
    struct Stuck {
        begun: Mutex<mpsc::Sender<()>>,
        go_on: Mutex<mpsc::Receiver<()>>,
    }

    impl Task for Stuck {
        fn step(self: Arc<Self>, _: &Pool) {
            self.begun.lock().unwrap().send(()).unwrap();
            block_in_place(|| block_in_place(|| self.go_on.lock().unwrap().recv().unwrap()));
        }
    }

    /// Reports whether the pool is idle during its step.
    struct Asking(Mutex<mpsc::Sender<bool>>);

    impl Task for Asking {
        fn step(self: Arc<Self>, pool: &Pool) {
            self.0.lock().unwrap().send(pool.is_idle()).unwrap();
        }
    }

    #[test]
    fn a_pool_is_idle_while_a_thread_has_no_step() {
        for (threads, expected) in [(1, false), (2, true)] {
            let pool = Pool::new(threads).unwrap();
            assert!(pool.is_idle());
            let (sent, received) = mpsc::channel();
            pool.submit(Arc::new(Asking(Mutex::new(sent))));
            assert_eq!(received.recv().unwrap(), expected, "of {threads}");
        }
    }

    #[test]
    fn steps_that_wait_for_storage_hold_nobody_else_up() {
        let pool = Pool::new(1).unwrap();
        let (begun, begins) = mpsc::channel();
        let mut ends = Vec::new();
        for _ in 0..40 {
            let (end, go_on) = mpsc::channel();
            ends.push(end);
            pool.submit(Arc::new(Stuck { begun: Mutex::new(begun.clone()), go_on: Mutex::new(go_on) }));
        }
        assert_eq!(begins.iter().take(40).count(), 40);
        let (sent, received) = mpsc::channel();
        let task = Counting { name: 1, left: AtomicUsize::new(50), sent: Mutex::new(sent) };
        pool.submit(Arc::new(task));
        assert_eq!(received.iter().take(50).count(), 50);
        for end in ends {
            end.send(()).unwrap();
        }
        until(|| {
            let queue = pool.shared.lock();
            queue.running == 0 && queue.idle == queue.workers && queue.workers <= 1 + SPARE_THREADS
        });
    }

    struct Measured {
        at_once: AtomicUsize,
        most: AtomicUsize,
        left: AtomicUsize,
    }

    impl Task for Measured {
        fn step(self: Arc<Self>, _: &Pool) {
            block_in_place(|| thread::sleep(std::time::Duration::from_micros(50)));
            drop(block_in_place(thread::current));
            self.left.fetch_sub(1, Ordering::SeqCst);
        }
    }

    struct Busy(Arc<Measured>);

    impl Task for Busy {
        fn step(self: Arc<Self>, _: &Pool) {
            let at_once = self.0.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.0.most.fetch_max(at_once, Ordering::SeqCst);
            thread::sleep(std::time::Duration::from_micros(50));
            self.0.at_once.fetch_sub(1, Ordering::SeqCst);
            self.0.left.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn those_that_do_not_wait_are_never_more_than_the_threads() {
        let pool = Pool::new(2).unwrap();
        let measured = Arc::new(Measured {
            at_once: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            left: AtomicUsize::new(600),
        });
        for _ in 0..300 {
            pool.submit(Arc::new(Busy(Arc::clone(&measured))));
            pool.submit(Arc::clone(&measured) as Arc<dyn Task>);
        }
        until(|| measured.left.load(Ordering::SeqCst) == 0);
        assert!(measured.most.load(Ordering::SeqCst) <= 2);
    }

    struct Defect;

    impl Task for Defect {
        fn step(self: Arc<Self>, _: &Pool) {
            block_in_place(|| panic!("a defect"));
        }
    }

    #[test]
    fn a_step_that_panics_takes_no_thread_along() {
        let pool = Pool::new(1).unwrap();
        pool.submit(Arc::new(Defect));
        let (sent, received) = mpsc::channel();
        let task = Counting { name: 1, left: AtomicUsize::new(1), sent: Mutex::new(sent) };
        pool.submit(Arc::new(task));
        assert_eq!(received.recv().unwrap(), 1);
        until(|| pool.shared.lock().running == 0);
    }

    fn until(condition: impl Fn() -> bool) {
        for _ in 0..10_000 {
            if condition() {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("it did not come");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_are_nicer_than_their_maker_and_all_alike() {
        struct Reported(Mutex<mpsc::Sender<i32>>);
        impl Task for Reported {
            fn step(self: Arc<Self>, _: &Pool) {
                let own = rustix::process::getpriority_process(None).unwrap();
                // While this step waits, it starts another thread.
                block_in_place(|| self.0.lock().unwrap().send(own).unwrap());
            }
        }
        let own = rustix::process::getpriority_process(None).unwrap();
        let pool = Pool::new(1).unwrap();
        let (reported, received) = mpsc::channel();
        for _ in 0..20 {
            pool.submit(Arc::new(Reported(Mutex::new(reported.clone()))));
        }
        assert!(received.iter().take(20).all(|priority| priority == (own + NICER).min(19)));
    }

    #[test]
    fn dropping_the_last_handle_ends_the_threads() {
        let pool = Pool::new(2).unwrap();
        let shared = Arc::downgrade(&pool.shared);
        drop(pool);
        until(|| shared.upgrade().is_none());
    }
}
