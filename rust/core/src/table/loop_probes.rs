//! The probes of an event loop, without a thread that waits for them, on Linux.
//!
//! Where the storage has idle connections, the loop's own thread sends and receives the requests of a probe. Otherwise
//! the storage's threads do. The loop watches one descriptor for both.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Table;
use super::probe::{Probe, Probed};
use crate::lock::lock;
use crate::poller::{Poller, Timer};
use crate::storage::{Exchange, Progress};
use crate::wakeup::Completions;
use crate::{Error, Result};

const COMPLETIONS: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// The request of an exchange that is sent last. Its answer is awaited first: when it arrives the other one mostly has,
/// so that the loop wakes once.
const LAST: usize = 1;

/// The time between checks of timeouts, while requests are in flight.
const TIMER_PERIOD: Duration = Duration::from_secs(1);

/// The probes of one event loop, which bounds their number by the number of calls that it starts.
#[derive(Debug)]
pub struct LoopProbes {
    poller: Poller,
    timer: Timer,
    completions: Arc<Completions<Probed>>,
    sent: Mutex<Sent>,
}

#[derive(Debug, Default)]
struct Sent {
    /// The number of probes that the loop's thread has sent.
    count: u64,
    probes: HashMap<u64, SentProbe>,
    timer_runs: bool,
}

#[derive(Debug)]
struct SentProbe {
    table: Arc<Table>,
    probe: Probe,
    exchange: Exchange,
}

impl LoopProbes {
    /// Opens the descriptor.
    pub fn new() -> Result<Self> {
        let (poller, timer, completions) = (Poller::new()?, Timer::new()?, Completions::new()?);
        poller.add(&completions, COMPLETIONS)?;
        poller.add(&timer, TIMER)?;
        Ok(Self { poller, timer, completions: Arc::new(completions), sent: Mutex::default() })
    }

    /// The descriptor, readable while [`Self::take`] has work or results.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.poller.fd()
    }

    /// Starts a probe of a table under a number that no other probe has. Returns false if nothing was started, because
    /// no version is known or a listing is due. Never blocks.
    pub fn start(&self, number: u64, table: &Arc<Table>) -> Result<bool> {
        let Some(probe) = table.due_probe() else { return Ok(false) };
        if let Some(exchange) = table.storage.send_properties(probe.paths()) {
            self.receive_later(number, SentProbe { table: Arc::clone(table), probe, exchange })?;
        } else {
            self.start_on_thread(number, table, probe)?;
        }
        Ok(true)
    }

    /// Returns the number of probes whose requests the loop's thread has sent itself.
    #[must_use]
    pub fn sent_by_loop(&self) -> u64 {
        lock(&self.sent).count
    }

    /// Receives what has arrived and takes all results. Never blocks.
    #[must_use]
    pub fn take(&self) -> Vec<Probed> {
        let mut ended = Vec::new();
        for token in self.poller.ready() {
            match token {
                COMPLETIONS => ended.extend(self.completions.take()),
                TIMER => self.end_late(&mut ended),
                token => ended.extend(self.receive(token / 2, (token % 2) as usize)),
            }
        }
        ended
    }

    fn receive_later(&self, number: u64, sent: SentProbe) -> Result<()> {
        self.watch(number, &sent.exchange, LAST)?;
        let mut state = lock(&self.sent);
        state.count += 1;
        state.probes.insert(number, sent);
        if !state.timer_runs {
            state.timer_runs = true;
            self.timer.set(Some(TIMER_PERIOD))?;
        }
        Ok(())
    }

    fn watch(&self, number: u64, exchange: &Exchange, index: usize) -> Result<()> {
        self.poller.add(exchange.fds()[index], 2 * number + index as u64)
    }

    /// Receives the answer on the connection that has become readable, then the other one. Returns the result of the
    /// probe if that has ended.
    fn receive(&self, number: u64, readable: usize) -> Option<Probed> {
        let mut state = lock(&self.sent);
        let sent = state.probes.get_mut(&number)?;
        let mut progress = sent.exchange.receive(readable);
        if matches!(progress, Progress::Pending) {
            return None;
        }
        self.poller.remove(sent.exchange.fds()[readable]);
        if matches!(progress, Progress::Half) {
            let other = 1 - readable;
            progress = sent.exchange.receive(other);
            if matches!(progress, Progress::Pending) {
                let error = self.watch(number, &sent.exchange, other).err()?;
                let table = state.probes.remove(&number)?.table;
                return Some(Probed { number, table, found: Err(error) });
            }
        }
        let SentProbe { table, probe, exchange } = state.probes.remove(&number)?;
        drop(state);
        exchange.end();
        if let Progress::Ended(found) = progress {
            let found = table.end_probe(&probe, Ok(found));
            return Some(Probed { number, table, found });
        }
        self.repeat_on_thread(number, table, probe)
    }

    fn end_late(&self, ended: &mut Vec<Probed>) {
        self.timer.take();
        let now = Instant::now();
        let mut state = lock(&self.sent);
        if state.probes.is_empty() {
            // If it cannot be stopped it only wakes the loop.
            state.timer_runs = self.timer.set(None).is_err();
        }
        let late: Vec<_> = state.probes.extract_if(|_, sent| sent.exchange.is_late(now)).collect();
        drop(state);
        for (number, SentProbe { table, probe, exchange }) in late {
            let is_repeated = exchange.may_repeat_when_late();
            exchange.end();
            if is_repeated {
                ended.extend(self.repeat_on_thread(number, table, probe));
            } else {
                let found = Err(Error::StorageUnavailable { detail: "a request timed out".to_owned() });
                ended.push(Probed { number, table, found });
            }
        }
    }

    fn start_on_thread(&self, number: u64, table: &Arc<Table>, probe: Probe) -> Result<()> {
        let (of, completions) = (Arc::clone(table), Arc::clone(&self.completions));
        table.start_probe(probe, move |found| completions.push(Probed { number, table: of, found }))
    }

    /// Returns the result if nothing was started.
    fn repeat_on_thread(&self, number: u64, table: Arc<Table>, probe: Probe) -> Option<Probed> {
        let error = self.start_on_thread(number, &table, probe).err()?;
        Some(Probed { number, table, found: Err(error) })
    }
}
