//! Every order in which callers and the progress thread can come and go, by the model checker.
//!
//! The device's lock, sleeping on the socket and packets are modelled; the role word, the waiters and parking are
//! the real ones. Parking has no timeout here, so a wake-up that is lost shows up as a deadlock.

use std::sync::atomic::Ordering;

use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic::AtomicBool},
    thread,
};
use verbs::{CqId, WaitMode, WaitOn};

use crate::{
    role::{Role, RoleWord},
    sync::park,
    waiters::{Notice, Waiters},
};

/// A driver's turns bring this many completions to each completion queue.
#[derive(Debug, Default)]
struct State {
    waiters: Waiters,
    ready: [bool; 2],
    /// The thread sleeps on the socket.
    asleep: bool,
    /// The caller that drives.
    caller: Option<usize>,
}

struct Device {
    role: RoleWord,
    state: Mutex<State>,
    /// The thread's sleep on the socket.
    waker: Condvar,
    closing: AtomicBool,
}

fn on(caller: usize) -> WaitOn {
    WaitOn { cq: Some(CqId(caller as u32)), channel: None }
}

impl Device {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn wait(&self, me: usize, progress: &thread::Thread, gives_up: bool) {
        let mut state = self.lock();
        if state.ready[me] {
            return;
        }
        let taken = self.role.take();
        if taken == Some(Role::Thread) {
            state.asleep = false;
            self.waker.notify_all();
        }
        if taken.is_some() {
            drop(state);
            return self.drive(me, progress);
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
            Some(Notice::Drive) => self.drive(me, progress),
            Some(notice) => panic!("{notice:?}"),
            None => assert!(gives_up),
        }
    }

    /// One turn for oneself; what the other waits for comes with a turn of the other or of the thread.
    fn drive(&self, me: usize, progress: &thread::Thread) {
        let mut state = self.lock();
        assert_eq!(state.caller.replace(me), None, "two callers drive");
        drop(state);
        let mut state = self.lock();
        assert_eq!(self.role.get().0, Role::Caller, "a driver without the role");
        state.ready[me] = true;
        assert_eq!(state.caller.take(), Some(me));
        if self.role.pass_on(&mut state.waiters) {
            progress.unpark();
        }
    }

    /// The progress thread, without the patience: it takes over and sleeps deeply whenever it may.
    fn progress(&self) {
        while !self.closing.load(Ordering::Acquire) {
            let seen = self.role.get();
            match seen.0 {
                Role::None if self.role.change(Role::None, Role::Thread) => self.drive_as_thread(),
                Role::Caller if self.role.fall_asleep(seen) => {
                    park();
                    self.role.awake();
                }
                _ => thread::yield_now(),
            }
        }
    }

    fn drive_as_thread(&self) {
        let mut state = self.lock();
        loop {
            if self.role.get().0 != Role::Thread {
                return;
            }
            assert_eq!(state.caller, None, "a caller and the thread drive");
            if self.closing.load(Ordering::Acquire) {
                assert!(self.role.change(Role::Thread, Role::None));
                return;
            }
            state.asleep = true;
            state = self.waker.wait(state).unwrap();
            if self.role.get().0 == Role::Thread {
                state.asleep = false;
            }
        }
    }
}

/// Two callers and the progress thread. The second caller may give up as soon as it has begun to wait.
fn model(gives_up: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let device = Arc::new(Device {
            role: RoleWord::new(),
            state: Mutex::new(State::default()),
            waker: Condvar::new(),
            closing: AtomicBool::new(false),
        });
        let shared = device.clone();
        let progress = thread::spawn(move || shared.progress());
        let (shared, handle) = (device.clone(), progress.thread().clone());
        let other = thread::spawn(move || shared.wait(1, &handle, gives_up));
        device.wait(0, progress.thread(), false);
        other.join().unwrap();
        let mut state = device.lock();
        assert_ne!(device.role.get().0, Role::Caller, "nobody drives, and the thread may not");
        assert_eq!(state.caller, None);
        assert!(!state.waiters.hand_over(), "a waiter that nobody knows");
        device.closing.store(true, Ordering::Release);
        drop(state);
        device.waker.notify_all();
        progress.thread().unpark();
        progress.join().unwrap();
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
