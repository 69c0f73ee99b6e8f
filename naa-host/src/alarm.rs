//! A file descriptor with which the event loop of a program waits for a connection. The file descriptor becomes
//! readable when the device has a completion or a CM event, or when a timer expires.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};

use crate::clock::timespec;

#[derive(Debug)]
pub(crate) struct Alarm {
    both: Arc<OwnedFd>,
    clock: OwnedFd,
    /// The device's file descriptor, which must stay open as long as the epoll descriptor `both` watches it.
    _device: OwnedFd,
}

impl Alarm {
    pub(crate) fn new(device: OwnedFd) -> io::Result<Self> {
        let both = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let clock = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        for (fd, name) in [(device.as_fd(), 0), (clock.as_fd(), 1)] {
            epoll::add(&both, fd, epoll::EventData::new_u64(name), epoll::EventFlags::IN)?;
        }
        Ok(Self { both, clock, _device: device })
    }

    /// Returns a reference that keeps the file descriptor open.
    #[cfg(feature = "tokio")]
    pub(crate) fn shared(&self) -> Arc<OwnedFd> {
        self.both.clone()
    }

    /// Sets the timer, so that the file descriptor becomes readable at the time `at` at the latest. If `at` is `None`,
    /// only the device makes the file descriptor readable.
    pub(crate) fn set(&self, at: Option<Instant>) -> io::Result<()> {
        // A timer that is set to zero never expires, so the shortest time is one nanosecond.
        let left = at.map_or(Duration::ZERO, |at| {
            at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1))
        });
        let time = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(left) };
        Ok(timerfd_settime(&self.clock, TimerfdTimerFlags::empty(), &time).map(drop)?)
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }
}
