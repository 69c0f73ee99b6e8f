//! Tests that devices make progress with many threads, with a stalled thread, without a waiting thread, and after a
//! fork.
#![allow(unsafe_code)]

mod side;

use std::{
    os::unix::thread::JoinHandleExt,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use roce_udp::EmbeddedConfig;
use side::{Side, address, connect, device, remote};
use verbs::{
    Access, Error, Mr, Payload, QpCap, RecvWr, SendFlags, SendOp, SendWr, WaitMode, WaitOn, Wake, WcOpcode,
    WcStatus,
};

fn within(time: Duration) -> Option<Instant> {
    Some(Instant::now() + time)
}

/// Sends `rounds` WRITEs with immediate to the peer, and receives one WRITE of the peer in each round. If `first` is
/// true, this side sends before it receives; otherwise it receives before it sends.
fn ping_pong(side: &Side, peer: &Mr, number: u32, rounds: u32, mode: WaitMode, first: bool) {
    let send = |round: u32| {
        let op = SendOp::WriteWithImm(remote(peer), number << 16 | round);
        let flags = SendFlags::default();
        side.qp.post_send(&[SendWr { wr_id: 1, op, payload: Payload::Inline(&[7; 64]), flags }]).unwrap();
    };
    for round in 0..rounds {
        if first {
            send(round);
        }
        let wc = side.completion(mode);
        assert_eq!((wc.status, wc.opcode), (WcStatus::Success, WcOpcode::RecvWriteWithImm));
        assert_eq!((wc.imm, wc.qp), (Some(number << 16 | round), side.qp.num()));
        side.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
        if !first {
            send(round);
        }
    }
    assert_eq!(side.cq.poll_one().unwrap(), None, "a completion too many");
}

/// Runs ping-pong on many connections, with a thread at each end of each connection. Returns the number of rounds that
/// all connections together made per second.
fn round_rate(connections: u32, rounds: u32, mode: impl Fn(u32) -> WaitMode + Sync) -> f64 {
    let devices = [(); 2].map(|_| device(address(), &EmbeddedConfig::default()));
    let ends: Vec<_> = (0..connections)
        .map(|_| {
            let (a, b) = (Side::on(devices[0].clone()), Side::on(devices[1].clone()));
            connect(&a, &b);
            for side in [&a, &b] {
                (0..4).for_each(|_| side.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap());
            }
            let regions = (a.region(64), b.region(64));
            (a, b, regions)
        })
        .collect();
    let start = Instant::now();
    thread::scope(|scope| {
        for (number, (a, b, (at_a, at_b))) in (0..).zip(&ends) {
            let mode = mode(number);
            scope.spawn(move || ping_pong(a, at_b, number, rounds, mode, true));
            scope.spawn(move || ping_pong(b, at_a, number, rounds, mode, false));
        }
    });
    f64::from(connections * rounds) / start.elapsed().as_secs_f64()
}

#[test]
fn two_hundred_threads_get_their_own_completions() {
    let rate = round_rate(100, 40, |number| match number % 10 {
        0 => WaitMode::Adaptive,
        _ => WaitMode::Block,
    });
    println!("{rate:.0} round trips per second");
}

#[test]
fn more_spinning_threads_than_cores() {
    let cores = thread::available_parallelism().unwrap().get() as u32;
    let rate = round_rate(2 * cores.min(8), 200, |_| WaitMode::Spin);
    println!("{rate:.0} round trips per second");
    assert!(rate > 50.0, "{rate:.0} round trips per second");
}

#[test]
fn several_threads_wait_for_one_queue() {
    const MESSAGES: usize = 500;
    let (a, b) = (Side::new(), Side::new());
    connect(&a, &b);
    let (region, got) = (b.region(64), AtomicUsize::new(0));
    (0..60).for_each(|_| b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap());
    thread::scope(|scope| {
        for mode in [WaitMode::Block, WaitMode::Adaptive, WaitMode::Block, WaitMode::Spin] {
            let (b, got) = (&b, &got);
            scope.spawn(move || {
                while got.load(Ordering::Relaxed) < MESSAGES {
                    // Another thread may have taken the completion for which this thread was woken.
                    while b.cq.poll_one().unwrap().is_some() {
                        b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
                        got.fetch_add(1, Ordering::Relaxed);
                    }
                    b.cq.wait(mode, within(Duration::from_millis(100))).unwrap();
                }
            });
        }
        for _ in 0..MESSAGES {
            a.post(SendOp::WriteWithImm(remote(&region), 1), Payload::Inline(&[1; 64]));
            assert_eq!(a.completion(WaitMode::Block).status, WcStatus::Success);
        }
    });
    assert_eq!(got.into_inner(), MESSAGES);
}

#[test]
fn one_sided_operations_go_on_while_nobody_waits() {
    let (a, b) = (Side::new(), Side::new());
    connect(&a, &b);
    let (source, target) = (a.region(1 << 20), b.region(1 << 20));
    for round in 0..20 {
        // No thread waits on the device of `b` in any round, so the progress thread of this device must receive the
        // WRITEs. From round 10 on, the pause of 10 ms is long enough for this progress thread to fall asleep.
        thread::sleep(Duration::from_millis(round / 10 * 10));
        let start = Instant::now();
        a.post(SendOp::Write(remote(&target)), Payload::Sges(&[source.sge(0, 1 << 20)]));
        assert_eq!(a.completion(WaitMode::Block).status, WcStatus::Success);
        assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    }
}

static STALLED: AtomicBool = AtomicBool::new(false);

extern "C" fn stall(_: libc::c_int) {
    STALLED.store(true, Ordering::SeqCst);
    let time = libc::timespec { tv_sec: 3, tv_nsec: 0 };
    // SAFETY: `time` lives through the call; nanosleep may be called in a signal handler.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
    STALLED.store(false, Ordering::SeqCst);
}

#[test]
fn a_stalled_driver_is_stood_in_for() {
    let (a, b) = (Side::new(), Arc::new(Side::new()));
    connect(&a, &b);
    let (source, target) = (a.region(1 << 20), b.region(1 << 20));
    let waiting = b.clone();
    let driver =
        thread::spawn(move || waiting.cq.wait(WaitMode::Block, within(Duration::from_secs(5))).unwrap());
    thread::sleep(Duration::from_millis(50));
    // SAFETY: `stall` calls only functions that are allowed in a signal handler, and the thread `driver` has not been
    // joined yet.
    unsafe {
        libc::signal(libc::SIGUSR1, stall as extern "C" fn(libc::c_int) as libc::sighandler_t);
        libc::pthread_kill(driver.as_pthread_t(), libc::SIGUSR1);
    }
    while !STALLED.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let start = Instant::now();
    let write = || {
        a.post(SendOp::Write(remote(&target)), Payload::Sges(&[source.sge(0, 1 << 20)]));
        assert_eq!(a.completion(WaitMode::Block).status, WcStatus::Success);
        assert!(STALLED.load(Ordering::SeqCst), "not before the driver went on");
        start.elapsed()
    };
    let first = write();
    assert!(first < Duration::from_millis(1500), "{first:?}");
    let ten_more = (0..10).fold(first, |_, _| write()) - first;
    assert!(ten_more < Duration::from_millis(1000), "{ten_more:?}");
    println!("the first WRITE took {first:?}, ten more {ten_more:?}");
    // The next completion in the completion queue of `b` must end the wait of the thread `driver`, although this thread
    // was stalled.
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    a.post(SendOp::WriteWithImm(remote(&target), 1), Payload::Inline(&[1]));
    assert_eq!(driver.join().unwrap(), Wake::Ready);
}

#[test]
fn a_forked_child_is_told_and_the_parent_goes_on() {
    let (a, b) = (Side::new(), Side::new());
    connect(&a, &b);
    let target = b.region(64);
    // During the forks, another thread waits on the device in a loop, so that it often holds the device's lock.
    let (stop, busy) = (AtomicBool::new(false), a.context.create_cq(1).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                busy.wait(WaitMode::Spin, within(Duration::from_millis(1))).unwrap();
            }
        });
        for _ in 0..20 {
            // SAFETY: the child process calls only methods of the device, and ends with `_exit`, so it never unwinds.
            match unsafe { libc::fork() } {
                0 => {
                    let code = in_child(&a, &target);
                    // SAFETY: `_exit` takes no pointers, and ends the child process at once.
                    unsafe { libc::_exit(code) }
                }
                child => assert_eq!(exit_code(child), 0, "step of the child that went wrong"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    a.post(SendOp::Write(remote(&target)), Payload::Inline(&[1]));
    assert_eq!(a.completion(WaitMode::Block).status, WcStatus::Success);
}

/// Calls methods of the device in a forked child process. Each call whose result is in the array `results` must fail
/// with `Error::Forked`. Returns the position in this array, counted from 1, of the first call that does not fail with
/// this error. Returns 0 if all calls fail with this error.
fn in_child(a: &Side, target: &Mr) -> i32 {
    let driver = a.context.driver();
    let wr = SendWr {
        wr_id: 1,
        op: SendOp::Write(remote(target)),
        payload: Payload::Inline(&[1]),
        flags: SendFlags::SIGNALED,
    };
    driver.interrupt(WaitOn { cq: Some(a.cq.id()), channel: None });
    let results = [
        a.context.alloc_pd().err(),
        a.pd.reg_mr(target.memory(), Access::ALL).err(),
        target.set_access(Access::LOCAL).err(),
        a.context.create_cq(1).err(),
        a.cq.poll_one().err(),
        a.pd.create_qp(&a.cq, &a.cq, QpCap::default()).err(),
        a.qp.post_send(&[wr]).err().map(|(_, error)| error),
        a.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).err(),
        a.context.create_channel().err(),
        a.channel.next_event().err(),
        a.channel.listen(0, 1).err(),
        a.channel.wait(WaitMode::Block, None).err(),
        a.cq.wait(WaitMode::Spin, None).err(),
        driver.destroy_qp(a.qp.num()).err(),
    ];
    let wrong = results.iter().position(|result| !matches!(result, Some(Error::Forked)));
    wrong.map_or(0, |place| place as i32 + 1)
}

fn exit_code(child: libc::pid_t) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut status = 0;
        // SAFETY: `status` is an integer to write to.
        let ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if ended == child {
            return if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 };
        }
        if Instant::now() > deadline {
            // SAFETY: the call takes no pointers; `child` is a child of this process that has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_interrupt_ends_one_wait() {
    let side = Side::new();
    let on = WaitOn { cq: Some(side.cq.id()), channel: None };
    let driver = side.context.driver();
    let soon = || within(Duration::from_millis(50));
    for mode in [WaitMode::Block, WaitMode::Adaptive, WaitMode::Spin] {
        driver.interrupt(on);
        assert_eq!(side.cq.wait(mode, soon()).unwrap(), Wake::Interrupted, "before the wait");
        assert_eq!(side.cq.wait(mode, soon()).unwrap(), Wake::TimedOut, "one only");
        assert_eq!(side.channel.wait(mode, soon()).unwrap(), Wake::TimedOut, "of another object");
        // One of the three threads is the progress owner, and the other two threads are waiters.
        let (start, ended) = (Barrier::new(4), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    start.wait();
                    assert_eq!(
                        side.cq.wait(mode, within(Duration::from_secs(5))).unwrap(),
                        Wake::Interrupted
                    );
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            start.wait();
            thread::sleep(Duration::from_millis(30));
            for count in 0..3 {
                assert_eq!(ended.load(Ordering::SeqCst), count);
                driver.interrupt(on);
                thread::sleep(Duration::from_millis(30));
            }
        });
        assert_eq!(ended.into_inner(), 3);
    }
}

/// A caller becomes the progress owner in place of the sleeping progress thread, and then sleeps itself. When the
/// progress thread wakes up, it must not clear the field `asleep` of the device, because this field now describes the
/// caller, which still sleeps.
#[test]
fn an_interrupt_reaches_who_took_over_from_the_thread() {
    let side = Side::new();
    let on = WaitOn { cq: Some(side.cq.id()), channel: None };
    for _ in 0..10 {
        // During this pause, the progress thread becomes the progress owner and falls asleep.
        thread::sleep(Duration::from_millis(5));
        thread::scope(|scope| {
            let waiting =
                scope.spawn(|| side.cq.wait(WaitMode::Block, within(Duration::from_secs(5))).unwrap());
            thread::sleep(Duration::from_millis(5));
            let start = Instant::now();
            side.context.driver().interrupt(on);
            assert_eq!(waiting.join().unwrap(), Wake::Interrupted);
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        });
    }
}

/// One thread calls `interrupt` at different moments while another thread waits again and again. Each call must end one
/// wait of the other thread.
#[test]
fn interrupts_race_with_waits() {
    let side = Side::new();
    let on = WaitOn { cq: Some(side.cq.id()), channel: None };
    let (asked, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=3000 {
                asked.store(round, Ordering::SeqCst);
                side.context.driver().interrupt(on);
                while answered.load(Ordering::SeqCst) < round {
                    thread::yield_now();
                }
                // A pause lets the progress thread fall asleep in some of the rounds.
                if round % 500 == 0 {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        // A second thread waits again and again, for about 70 us each time, so that the progress owner changes.
        scope.spawn(|| {
            while answered.load(Ordering::SeqCst) < 3000 {
                side.channel.wait(WaitMode::Block, within(Duration::from_micros(70))).unwrap();
            }
        });
        for round in 1..=3000 {
            let wake = side.cq.wait(WaitMode::Block, within(Duration::from_secs(5))).unwrap();
            assert_eq!(wake, Wake::Interrupted, "round {round}");
            assert_eq!(asked.load(Ordering::SeqCst), round);
            answered.store(round, Ordering::SeqCst);
        }
    });
}

#[test]
fn deadlines_are_kept() {
    let side = Side::new();
    for (mode, millis) in
        [(WaitMode::Block, 0), (WaitMode::Block, 5), (WaitMode::Adaptive, 50), (WaitMode::Spin, 5)]
    {
        let time = Duration::from_millis(millis);
        // Two threads wait at the same time, so that one of them is the progress owner and the other is a waiter. The
        // machine may be busy, so it is enough if each thread keeps the deadline in one of five tries.
        let late = || {
            let start = Instant::now();
            assert_eq!(side.cq.wait(mode, Some(start + time)).unwrap(), Wake::TimedOut);
            assert!(start.elapsed() >= time);
            start.elapsed() - time
        };
        let best = thread::scope(|scope| {
            let tries = [(); 2].map(|_| scope.spawn(|| (0..5).map(|_| late()).min().unwrap()));
            tries.map(|thread| thread.join().unwrap()).into_iter().max().unwrap()
        });
        assert!(best < Duration::from_millis(20), "{mode:?} {time:?}: {best:?} late");
    }
}

#[test]
fn waits_for_what_does_not_exist_are_refused() {
    let side = Side::new();
    let cq = WaitOn { cq: Some(verbs::CqId(999_999)), channel: None };
    let channel = WaitOn { cq: Some(side.cq.id()), channel: Some(verbs::ChannelId(999_999)) };
    for on in [cq, channel] {
        let waited = side.context.wait(on, WaitMode::Block, within(Duration::from_secs(5)));
        assert!(matches!(waited, Err(Error::NotFound { .. })), "{on:?}: {waited:?}");
    }
}

/// A thread that spins on a device must let other threads use the device.
#[test]
fn a_spinning_driver_lets_others_in() {
    let (a, b) = (Side::new(), Side::new());
    connect(&a, &b);
    let (target, idle) = (b.region(64), a.context.create_cq(1).unwrap());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                idle.wait(WaitMode::Spin, within(Duration::from_millis(10))).unwrap();
            }
        });
        let start = Instant::now();
        for _ in 0..1000 {
            a.post(SendOp::Write(remote(&target)), Payload::Inline(&[1; 64]));
            assert_eq!(a.completion(WaitMode::Spin).status, WcStatus::Success);
        }
        stop.store(true, Ordering::Relaxed);
        println!("{:?} per WRITE", start.elapsed() / 1000);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    });
}
