//! Waits for completions and CM events, by polling or by sleeping on file descriptors.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use verbs::{CmId, Error, WaitMode, Wake};

use crate::{
    connection::Channel,
    queue::{IbvCq, Interrupt},
    sys,
};

/// The time for which an adaptive wait polls before it sleeps.
const ADAPTIVE: Duration = Duration::from_micros(50);
/// The number of polls of the completion queue after which the clock and the channel are checked once.
const STRIDE: u32 = 64;

/// The objects that a thread waits for.
pub(crate) struct Waiting<'a> {
    pub(crate) queue: Option<&'a IbvCq>,
    pub(crate) channel: Option<&'a Channel>,
    /// A file descriptor that ends a sleep when it is readable.
    pub(crate) beside: Option<BorrowedFd<'a>>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) new_id: &'a dyn Fn() -> CmId,
    /// A function that fails if another process opened the device. A forked child process must not sleep on the objects
    /// of its parent process.
    pub(crate) check: &'a dyn Fn() -> Result<(), Error>,
}

impl Waiting<'_> {
    pub(crate) fn run(&self, mode: WaitMode) -> Result<Wake, Error> {
        let polling = match mode {
            WaitMode::Spin => None,
            WaitMode::Block => Some(Duration::ZERO),
            WaitMode::Adaptive => Some(ADAPTIVE),
        };
        match self.poll(polling)? {
            Some(wake) => Ok(wake),
            None => self.sleep(),
        }
    }

    fn interrupt(&self) -> Option<&Interrupt> {
        self.queue.map(|q| &q.interrupt).or(self.channel.map(|c| &c.interrupt))
    }

    fn queue_is_ready(&self) -> Result<bool, Error> {
        self.queue.map_or(Ok(false), IbvCq::is_ready).map_err(|e| Error::io("cannot poll for completions", e))
    }

    /// Returns true if the channel has a CM event for the program. If `now` is given, the function requests CM events
    /// from the Linux kernel only if the minimum time (`ASKING`) has passed since the last request.
    fn channel_is_ready(&self, now: Option<Instant>) -> Result<bool, Error> {
        self.channel.map_or(Ok(false), |channel| channel.is_ready(now, self.new_id))
    }

    /// Polls for at most the time `limit`, or without a time limit if `limit` is `None`. Returns the reason why the
    /// wait ended, or `None` if the wait did not end within the time `limit`.
    fn poll(&self, limit: Option<Duration>) -> Result<Option<Wake>, Error> {
        let mut start = None;
        for turn in 0_u32.. {
            if self.interrupt().is_some_and(Interrupt::take) {
                return Ok(Some(Wake::Interrupted));
            }
            if self.queue_is_ready()? {
                return Ok(Some(Wake::Ready));
            }
            if limit == Some(Duration::ZERO) {
                break;
            }
            // The clock is read only once in `STRIDE` turns, so that a wait for a completion that has already arrived
            // does not read the clock at all.
            if turn % STRIDE == STRIDE - 1 {
                let now = Instant::now();
                if self.channel_is_ready(Some(now))? {
                    return Ok(Some(Wake::Ready));
                }
                if self.deadline.is_some_and(|deadline| now >= deadline) {
                    return Ok(Some(Wake::TimedOut));
                }
                let start = *start.get_or_insert(now);
                if limit.is_some_and(|limit| now.duration_since(start) >= limit) {
                    break;
                }
            }
            std::hint::spin_loop();
        }
        Ok(None)
    }

    /// Prepares the file descriptors to announce the next completion or CM event to a thread that will sleep on them in
    /// its own event loop. Returns false if a completion or a CM event can already be polled.
    pub(crate) fn arm(&self) -> Result<bool, Error> {
        (self.check)()?;
        let failed = |e: io::Error| Error::io("the completion queue cannot be armed", e);
        if let Some(queue) = self.queue {
            queue.cq.take_announcements().and_then(|()| queue.cq.arm()).map_err(failed)?;
        }
        if let Some(channel) = self.channel {
            channel.queued.drain();
        }
        Ok(!self.queue_is_ready()? && !self.channel_is_ready(None)?)
    }

    fn sleep(&self) -> Result<Wake, Error> {
        (self.check)()?;
        let failed = |e: io::Error| Error::io("cannot sleep until something completes", e);
        loop {
            if let Some(queue) = self.queue {
                queue.cq.arm().map_err(|e| Error::io("the completion queue cannot be armed", e))?;
            }
            // A completion that arrived before the queue was armed is not announced, so the queue is polled again after
            // it was armed. The loop also comes here after each sleep. The channel and the interrupt, which is a
            // request to end the wait, are therefore checked here, too.
            if self.interrupt().is_some_and(Interrupt::take) {
                return Ok(Wake::Interrupted);
            }
            if self.queue_is_ready()? || self.channel_is_ready(None)? {
                return Ok(Wake::Ready);
            }
            let now = Instant::now();
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Wake::TimedOut);
            }
            let giving_up = self.channel.and_then(Channel::next_deadline);
            let until = [self.deadline, giving_up].into_iter().flatten().min();
            let fds = [
                self.queue.map(|q| q.cq.fd()),
                self.channel.map(|c| c.raw.fd()),
                self.interrupt().map(|i| i.waker.as_fd()),
                self.channel.map(|c| c.queued.as_fd()),
                self.beside,
            ];
            let [announced, _, woken, queued, beside] =
                sys::sleep(fds, until.map(|at| at.saturating_duration_since(now))).map_err(failed)?;
            if let Some(queue) = self.queue.filter(|_| announced) {
                queue.cq.take_announcements().map_err(failed)?;
            }
            if let Some(interrupt) = self.interrupt().filter(|_| woken) {
                interrupt.waker.drain();
            }
            if let Some(channel) = self.channel.filter(|_| queued) {
                channel.queued.drain();
            }
            if beside {
                return Ok(Wake::Ready);
            }
        }
    }
}
