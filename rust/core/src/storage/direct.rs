//! Requests for the properties of two objects that the calling thread sends and receives itself.
//!
//! An event loop that waits for a thread of the runtime pays for two changes of threads, which cost more than the
//! requests. Here the loop's own thread writes two requests to kept connections and is woken by their descriptors.
//! Nothing blocks: connections are opened in the background, and a request without an idle one is the runtime's.
//!
//! Only expected answers are taken: a connection that ends, or any other answer than the properties of an object or its
//! absence, is [`Progress::Failed`]. The caller then repeats the requests by the runtime, which has the retries and
//! errors of all other requests.

mod connection;
mod head;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{FileProperties, runtime};
use crate::error::Result;
use crate::lock::lock;
use crate::sign::{HeadSigner, S3Options};
use connection::{Connection, Endpoint};
use head::Head;

/// Maximum number of idle connections of a bucket.
const MAX_IDLE: usize = 16;

/// Connections that are opened at the same time.
const MAX_OPENING: usize = 4;

/// Exchanges in a row that fail or whose connections are closed, until there is a pause.
const MAX_FAILURES: u32 = 3;

/// The time without exchanges after failures. The store closes each connection, or denies the requests.
const PAUSE: Duration = Duration::from_secs(60);

/// The requests of one bucket.
pub(super) struct Direct {
    signer: RwLock<Option<Arc<HeadSigner>>>,
    /// The last signed requests, which later exchanges of the same second send again.
    signed: Mutex<Option<Signed>>,
    connections: Arc<Connections>,
    /// Timeout of an exchange.
    timeout: Duration,
    connect_timeout: Duration,
    /// Whether requests are repeated after a timeout.
    repeats_late: bool,
}

impl Direct {
    pub(super) fn new(timeout: Duration, connect_timeout: Duration, retry_budget: Duration) -> Self {
        let repeats_late = timeout < retry_budget;
        Self {
            signer: RwLock::default(),
            signed: Mutex::default(),
            connections: Arc::default(),
            timeout,
            connect_timeout,
            repeats_late,
        }
    }

    /// Signs later requests by `options`. Nothing is sent before, or with options that cannot be sent.
    pub(super) fn sign_by(&self, options: S3Options) {
        let signer = HeadSigner::new(options).ok().map(Arc::new);
        *self.signer.write().unwrap_or_else(PoisonError::into_inner) = signer;
    }

    /// Sends the requests for two objects. `None` if no connections are idle, which are then opened for later requests.
    /// Never blocks.
    pub(super) fn send(&self, keys: [&str; 2]) -> Option<Exchange> {
        let signer = self.signer.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        let [first, second] = self.idle_pair(&signer)?;
        let requests = self.signed(signer, keys)?;
        let send = |mut connection: Connection, request: &[u8]| {
            connection.send(request).ok()?;
            Some(Half { connection, received: Vec::new(), head: None })
        };
        if let (Some(first), Some(second)) = (send(first, &requests[0]), send(second, &requests[1])) {
            return Some(Exchange {
                halves: [first, second],
                connections: Arc::clone(&self.connections),
                deadline: Instant::now() + self.timeout,
                repeats_late: self.repeats_late,
            });
        }
        self.connections.record_end(false);
        None
    }

    fn signed(&self, signer: Arc<HeadSigner>, keys: [&str; 2]) -> Option<Arc<[Vec<u8>; 2]>> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs() as i64;
        let mut last = lock(&self.signed);
        if let Some(known) = &*last
            && known.seconds == seconds
            && known.keys == keys
            && Arc::ptr_eq(&known.signer, &signer)
        {
            return Some(Arc::clone(&known.requests));
        }
        let [first, second] = keys.map(|key| signer.request(key, seconds).ok());
        let requests = Arc::new([first?, second?]);
        let keys = keys.map(str::to_owned);
        *last = Some(Signed { signer, seconds, keys, requests: Arc::clone(&requests) });
        Some(requests)
    }

    fn idle_pair(&self, signer: &HeadSigner) -> Option<[Connection; 2]> {
        let mut state = lock(&self.connections.0);
        if state.paused_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let first = state.take_idle();
        let second = if first.is_some() { state.take_idle() } else { None };
        match (first, second) {
            (Some(first), Some(second)) => Some([first, second]),
            (first, _) => {
                state.idle.extend(first);
                while state.opening < MAX_OPENING && state.idle.len() + state.opening < 2 {
                    let Some(endpoint) = Endpoint::parse(signer.origin()) else { break };
                    state.opening += 1;
                    if !self.open(endpoint) {
                        state.opening -= 1;
                        break;
                    }
                }
                None
            }
        }
    }

    /// Opens a connection in the background. Returns false if nothing was started.
    fn open(&self, endpoint: Endpoint) -> bool {
        let (connections, timeout) = (Arc::clone(&self.connections), self.connect_timeout);
        runtime::spawn_blocking(move || {
            let opened = Connection::open(&endpoint, timeout);
            let mut state = lock(&connections.0);
            state.opening -= 1;
            match opened {
                Ok(connection) => state.keep(connection),
                Err(_) => state.fail(),
            }
        })
        .is_ok()
    }
}

struct Signed {
    signer: Arc<HeadSigner>,
    seconds: i64,
    keys: [String; 2],
    requests: Arc<[Vec<u8>; 2]>,
}

#[derive(Debug, Default)]
struct Connections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    idle: Vec<Connection>,
    opening: usize,
    /// Exchanges in a row that failed.
    failures: u32,
    paused_until: Option<Instant>,
}

impl State {
    /// Returns the connection that was used last, as the one that the store closes last.
    fn take_idle(&mut self) -> Option<Connection> {
        while let Some(mut connection) = self.idle.pop() {
            if connection.is_usable() {
                return Some(connection);
            }
        }
        None
    }

    fn keep(&mut self, connection: Connection) {
        if self.idle.len() < MAX_IDLE {
            self.idle.push(connection);
        }
    }

    fn fail(&mut self) {
        self.failures += 1;
        if self.failures >= MAX_FAILURES {
            self.failures = 0;
            self.paused_until = Some(Instant::now() + PAUSE);
        }
    }
}

impl Connections {
    fn record_end(&self, is_kept: bool) {
        let mut state = lock(&self.0);
        if is_kept {
            state.failures = 0;
        } else {
            state.fail();
        }
    }
}

/// Two requests that were sent.
#[derive(Debug)]
pub(crate) struct Exchange {
    halves: [Half; 2],
    connections: Arc<Connections>,
    deadline: Instant,
    repeats_late: bool,
}

#[derive(Debug)]
struct Half {
    connection: Connection,
    received: Vec<u8>,
    head: Option<Head>,
}

/// The state of an exchange.
pub(crate) enum Progress {
    /// Bytes are missing.
    Pending,
    /// One answer is complete, the other one is not. Its descriptor is of no interest anymore.
    Half,
    /// The properties of both objects; `None` for an absent one.
    Ended([Option<FileProperties>; 2]),
    /// Another answer than an expected one. The requests have to be repeated by [`super::Storage::properties`].
    Failed,
}

impl Exchange {
    /// The descriptors that are readable when bytes of the first and of the second answer arrive.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        self.halves.each_ref().map(|half| half.connection.as_fd())
    }

    /// Returns whether the timeout of the requests is over.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// Returns whether requests are repeated after a timeout.
    pub(crate) fn may_repeat_when_late(&self) -> bool {
        self.repeats_late
    }

    /// Receives bytes of the first or the second answer. Never blocks.
    pub(crate) fn receive(&mut self, index: usize) -> Progress {
        let Some(half) = self.halves.get_mut(index).filter(|half| half.head.is_none()) else {
            return Progress::Pending;
        };
        match half.receive() {
            Err(Unexpected) => Progress::Failed,
            Ok(()) if half.head.is_none() => Progress::Pending,
            Ok(()) => match self.halves.each_ref().map(|half| half.head.as_ref()) {
                [Some(first), Some(second)] => {
                    Progress::Ended([first.properties.clone(), second.properties.clone()])
                }
                _ => Progress::Half,
            },
        }
    }

    /// Keeps the connections for later exchanges if the store does.
    pub(crate) fn end(self) {
        let is_kept = self.halves.iter().all(|half| half.head.as_ref().is_some_and(|head| head.is_kept));
        self.connections.record_end(is_kept);
        let mut state = lock(&self.connections.0);
        for half in self.halves {
            if half.head.is_some_and(|head| head.is_kept) {
                state.keep(half.connection);
            }
        }
    }
}

/// The connection has ended, or the answer is another one than those that are expected.
#[derive(Debug)]
struct Unexpected;

impl Half {
    fn receive(&mut self) -> Result<(), Unexpected> {
        self.connection.receive(&mut self.received).map_err(|_| Unexpected)?;
        self.head = Head::parse(&self.received)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
