//! The timer that wakes the progress thread when no caller has driven the device for a while.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer of the Linux kernel (timerfd). A thread that sleeps on its file descriptor is not woken when another thread
/// sets the timer to a later time.
#[derive(Debug)]
pub(crate) struct TakeoverTimer(OwnedFd);

impl TakeoverTimer {
    /// Makes a timer that is not set.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Makes the timer expire after `time`, which must not be zero, instead of at the time to which it was set before.
    pub(crate) fn set(&self, time: Duration) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        // The call fails only for an invalid time or a file descriptor that is no timer.
        let set =
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value });
        debug_assert!(set.is_ok(), "{set:?}");
    }

    /// Makes the file descriptor unreadable until the timer expires again.
    pub(crate) fn drain(&self) {
        // The read fails if the timer has not expired; then there is nothing to do.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for TakeoverTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
