//! Runs the model checker on two callers and the progress thread of one device. The model checker tries many orders in
//! which the callers start and end their waits.
//!
//! The model uses the crate's own code for the word that stores the progress owner ([`ProgressOwnerWord`]) and for the
//! waiters. Simple types replace the device's lock, the socket on which the progress thread sleeps, the takeover timer,
//! the packets, and the parking of threads. A timer that is set can expire at any time. Nothing else ends the sleep of the
//! progress thread, and parking has no time-out, so the model checker finds a lost wake-up as a deadlock.

use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};
use verbs::{CqId, WaitMode, WaitOn};

use crate::{
    progress_owner::{ProgressOwner, ProgressOwnerWord},
    waiters::{Notice, Waiters},
};

/// The modelled state of a device, with a completion queue for each of two callers.
#[derive(Debug, Default)]
struct State {
    waiters: Waiters,
    ready: [bool; 2],
    /// True while the progress thread sleeps on `waker`. The progress thread of a real device sleeps on the socket.
    asleep: bool,
    /// The caller that is the progress owner.
    caller: Option<usize>,
    /// The number of callers whose wait has ended.
    ended: usize,
}

struct DeviceModel {
    role: ProgressOwnerWord,
    state: Mutex<State>,
    /// Wakes the progress thread, which sleeps here instead of on a socket.
    waker: Condvar,
    /// True if the takeover timer is set.
    timer: Mutex<bool>,
    expiry: Condvar,
}

fn on(caller: usize) -> WaitOn {
    WaitOn { cq: Some(CqId(caller as u32)), channel: None }
}

impl DeviceModel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn call(&self, me: usize, gives_up: bool) {
        self.wait(me, gives_up);
        self.lock().ended += 1;
        self.waker.notify_all();
    }

    fn wait(&self, me: usize, gives_up: bool) {
        let mut state = self.lock();
        if state.ready[me] {
            return;
        }
        let taken = self.role.take();
        if taken == Some(ProgressOwner::Thread) {
            state.asleep = false;
            self.waker.notify_all();
        }
        if taken.is_some() {
            drop(state);
            return self.drive(me);
        }
        let waiter = state.waiters.join(on(me));
        drop(state);
        let notice = if gives_up {
            self.lock().waiters.leave(&waiter)
        } else {
            Some(waiter.wait(WaitMode::Block, None))
        };
        match notice {
            Some(Notice::Ready) => assert!(self.lock().ready[me]),
            Some(Notice::Drive) => self.drive(me),
            Some(notice) => panic!("{notice:?}"),
            None => assert!(gives_up),
        }
    }

    /// Makes one turn of the device as the caller `me`. In the model, a turn puts a completion into the
    /// completion queue of the caller that makes the turn, and into no other completion queue.
    fn drive(&self, me: usize) {
        let mut state = self.lock();
        assert_eq!(state.caller.replace(me), None, "two callers drive");
        drop(state);
        let mut state = self.lock();
        assert_eq!(self.role.get().0, ProgressOwner::Caller, "a driver without the role");
        state.ready[me] = true;
        assert_eq!(state.caller.take(), Some(me));
        // The waits of all callers end at the same time, so the second caller sets the timer only if it has expired.
        if self.role.pass_on(&mut state.waiters, 1) {
            *self.timer.lock().unwrap() = true;
            self.expiry.notify_all();
        }
    }

    fn wait_for_expiry(&self) {
        let mut set = self.timer.lock().unwrap();
        while !std::mem::take(&mut *set) {
            set = self.expiry.wait(set).unwrap();
        }
    }

    /// Models the progress thread, which sleeps until the takeover timer expires. If no thread is the progress owner
    /// then, the progress thread becomes the progress owner. The function returns when the progress thread is the
    /// progress owner and the waits of all callers have ended. If a caller stops being the progress owner and neither
    /// sets the timer nor finds it set, the progress thread hangs, and the model checker reports a failure.
    fn progress(&self) {
        loop {
            self.wait_for_expiry();
            self.role.timer_expired();
            let none = self.role.get().0 == ProgressOwner::None;
            if none && self.role.change(ProgressOwner::None, ProgressOwner::Thread) && self.drive_as_thread()
            {
                return;
            }
        }
    }

    /// Makes the progress thread sleep until a caller becomes the progress owner, or until the waits of all callers
    /// have ended. Returns false in the first case, and true in the second case.
    fn drive_as_thread(&self) -> bool {
        let mut state = self.lock();
        loop {
            if self.role.get().0 != ProgressOwner::Thread {
                return false;
            }
            assert_eq!(state.caller, None, "a caller and the thread drive");
            if state.ended == 2 {
                return true;
            }
            state.asleep = true;
            state = self.waker.wait(state).unwrap();
            if self.role.get().0 == ProgressOwner::Thread {
                state.asleep = false;
            }
        }
    }
}

/// Runs two callers and the progress thread in many interleavings, and checks that every wait ends and that the
/// progress thread is the last progress owner. If `gives_up` is true, the second caller may give up as soon as it has
/// begun to wait.
fn model(gives_up: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let device = Arc::new(DeviceModel {
            role: ProgressOwnerWord::new(),
            state: Mutex::new(State::default()),
            waker: Condvar::new(),
            timer: Mutex::new(true),
            expiry: Condvar::new(),
        });
        // The thread that runs this closure is the progress thread; the two callers are other threads.
        let callers = [(0, false), (1, gives_up)].map(|(me, gives_up)| {
            let device = device.clone();
            thread::spawn(move || device.call(me, gives_up))
        });
        device.progress();
        for caller in callers {
            caller.join().unwrap();
        }
        let mut state = device.lock();
        assert_eq!((device.role.get().0, state.caller), (ProgressOwner::Thread, None));
        assert!(!state.waiters.hand_over(), "a waiter that nobody knows");
    });
}

#[test]
fn loom_the_role_is_never_doubled_or_lost() {
    model(false);
}

#[test]
fn loom_a_waiter_that_gives_up_passes_the_role_on() {
    model(true);
}
