//! The tokio runtime behind the blocking calls, built with the first request to a remote store.
//!
//! The threads of a runtime do not survive `fork()`: a child process with an inherited runtime would wait forever. Calls
//! in such a child return an error that explains what to do instead.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};
pub(super) use tokio::sync::Semaphore;
pub(super) use tokio::task::spawn_blocking as blocking;
pub(super) use tokio::time::{sleep, timeout};

use crate::error::{Error, Result};
use crate::pool;

/// Network I/O and TLS only; decoding happens on the callers' threads.
const WORKER_THREADS: usize = 2;

static RUNTIME: OnceLock<(u32, Runtime)> = OnceLock::new();

/// Runs a future to its end on the calling thread.
pub(super) fn block_on<F: Future>(future: F) -> Result<F::Output> {
    if Handle::try_current().is_ok() {
        return Err(Error::Internal { detail: "a blocking storage call was made on an async thread".into() });
    }
    let handle = handle()?;
    Ok(pool::block_in_place(|| handle.block_on(future)))
}

/// Starts a future in the background.
pub(super) fn spawn<F>(future: F) -> Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    handle()?.spawn(future);
    Ok(())
}

/// Starts a blocking call on a thread of its own.
pub(super) fn spawn_blocking(call: impl FnOnce() + Send + 'static) -> Result<()> {
    handle()?.spawn_blocking(call);
    Ok(())
}

fn handle() -> Result<&'static Handle> {
    let process_id = std::process::id();
    let (owner, runtime) = if let Some(built) = RUNTIME.get() {
        built
    } else {
        let runtime = build()?;
        RUNTIME.get_or_init(|| (process_id, runtime))
    };
    if *owner != process_id {
        return Err(Error::Internal {
            detail: "the process was forked after storage was used; start workers by spawn, not by fork"
                .into(),
        });
    }
    Ok(runtime.handle())
}

fn build() -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .thread_name("deltalog-storage")
        .enable_all()
        .build()
        .map_err(|error| Error::Internal { detail: format!("no runtime for storage: {error}") })
}
