//! Descriptors that an event loop watches as one.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::{Error, Result};

/// Events that are returned at once; the loop comes back for more.
const MAX_EVENTS: usize = 64;

/// A set of descriptors, each with a token.
#[derive(Debug)]
pub(crate) struct Poller(OwnedFd);

impl Poller {
    pub(crate) fn new() -> Result<Self> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(Self).map_err(Error::no_descriptors)
    }

    /// The descriptor, readable while one of the set is.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Adds a descriptor. One that is closed is removed by the system.
    pub(crate) fn add(&self, fd: impl AsFd, token: u64) -> Result<()> {
        let data = epoll::EventData::new_u64(token);
        epoll::add(&self.0, fd, data, epoll::EventFlags::IN).map_err(Error::no_descriptors)
    }

    pub(crate) fn remove(&self, fd: impl AsFd) {
        // It fails for a descriptor that is not in the set.
        let _ = epoll::delete(&self.0, fd);
    }

    /// Returns tokens of readable descriptors. Never blocks.
    pub(crate) fn ready(&self) -> Vec<u64> {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted call is repeated by the loop, for which the set is still readable.
        let _ = epoll::wait(&self.0, rustix::buffer::spare_capacity(&mut events), Some(&now));
        events.iter().map(|event| event.data.u64()).collect()
    }
}

/// A timer that makes its descriptor readable at each period while it runs.
#[derive(Debug)]
pub(crate) struct Timer(OwnedFd);

impl Timer {
    pub(crate) fn new() -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        timerfd_create(TimerfdClockId::Monotonic, flags).map(Self).map_err(Error::no_descriptors)
    }

    /// Starts or, without a period, stops the timer.
    pub(crate) fn set(&self, period: Option<Duration>) -> Result<()> {
        let period = period.unwrap_or_default();
        let span =
            Timespec { tv_sec: period.as_secs() as i64, tv_nsec: i64::from(period.subsec_nanos()) as _ };
        let times = Itimerspec { it_interval: span, it_value: span };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &times).map(drop).map_err(Error::no_descriptors)
    }

    /// Makes the descriptor unreadable until the next period.
    pub(crate) fn take(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_set_is_readable_while_one_of_its_descriptors_is() {
        let poller = Poller::new().unwrap();
        let watched = Poller::new().unwrap();
        watched.add(&poller.0, 1).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        poller.add(&reader, 7).unwrap();
        assert!(poller.ready().is_empty() && watched.ready().is_empty());
        writer.write_all(&[1]).unwrap();
        assert_eq!((poller.ready(), watched.ready()), (vec![7], vec![1]));
        poller.remove(&reader);
        assert!(poller.ready().is_empty() && watched.ready().is_empty());
        poller.add(&reader, 8).unwrap();
        drop(reader);
        assert!(poller.ready().is_empty());
    }

    #[test]
    fn a_timer_is_readable_at_each_period_until_it_is_stopped() {
        let (poller, timer) = (Poller::new().unwrap(), Timer::new().unwrap());
        poller.add(&timer, 1).unwrap();
        assert!(poller.ready().is_empty());
        timer.set(Some(Duration::from_millis(1))).unwrap();
        for _ in 0..2 {
            while poller.ready().is_empty() {
                std::thread::yield_now();
            }
            timer.take();
        }
        timer.set(None).unwrap();
        assert!(poller.ready().is_empty());
    }
}
