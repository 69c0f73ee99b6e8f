//! Tests of the thread pool: its bounds, time-outs, quarantine, panics and shutdown.

use std::{
    collections::BTreeSet,
    fmt,
    net::IpAddr,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use mrsp::{FunctionCode, RegionFlags, U24, plan::Part};
use naa_server::{
    call::{Call, CallFailure, CallWork, ServerCall, SessionRegion, Stop},
    function::{Function, FunctionInfo},
    memory_budget::MemoryBudget,
    pool::{Calls, EndedCall, Pool, PoolConfig, PoolRefusal},
};
use verbs::source_network::SourceNetwork;

const LONG: Duration = Duration::from_secs(60);

/// A gate that blocks threads until it is opened.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        let _open = self.1.wait_while(self.0.lock().unwrap(), |open| !*open).unwrap();
    }
}

/// A function that runs a closure.
struct Probe<F>(FunctionInfo, F);

impl<F: Fn(&mut Call<'_>) -> Result<(), CallFailure> + Send + Sync + 'static> Function for Probe<F> {
    fn info(&self) -> &FunctionInfo {
        &self.0
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        (self.1)(call)
    }
}

fn probe(
    run: impl Fn(&mut Call<'_>) -> Result<(), CallFailure> + Send + Sync + 'static,
) -> Arc<dyn Function> {
    let info = FunctionInfo {
        code: FunctionCode::constant(99),
        name: "probe".into(),
        description: "a function of the test".into(),
        pooled: true,
        parameters: Vec::new(),
    };
    Arc::new(Probe(info, run))
}

/// Makes a function that waits at `gate`. Returns a second gate and the function. The function opens the second gate
/// when it begins to run.
fn hanging(gate: &Arc<Gate>) -> (Arc<Gate>, Arc<dyn Function>) {
    let (gate, running) = (gate.clone(), Arc::new(Gate::default()));
    let started = running.clone();
    let function = probe(move |_| {
        running.open();
        gate.pass();
        Ok(())
    });
    (started, function)
}

/// Makes a call of the first source network, `peer(1)`. The call has one output of 4096 bytes.
fn call(budget: &MemoryBudget, function: &Arc<dyn Function>, time: Duration) -> ServerCall {
    let allocation = budget.allocate(4096).unwrap();
    let regions = vec![SessionRegion { flags: RegionFlags::OUTPUT, allocation }];
    ServerCall {
        work: CallWork::Function { function: function.clone(), process: None },
        regions: regions.into(),
        session: 7,
        peer: peer(1),
        user: U24::new(5).unwrap(),
        deadline: Instant::now() + time,
    }
}

fn config(pool_threads: usize, queue: usize, quarantine: usize) -> PoolConfig {
    PoolConfig { pool_threads, queue, per_peer: usize::MAX, extra_threads: 1, quarantine }
}

fn pool(pool_threads: usize, queue: usize, quarantine: usize) -> Pool {
    Pool::new(config(pool_threads, queue, quarantine), || {}).unwrap()
}

fn peer(number: u8) -> SourceNetwork {
    IpAddr::from([10, 9, 0, number]).into()
}

#[track_caller]
fn eventually<T: fmt::Debug>(mut poll: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < end, "nothing happened for {LONG:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_call_runs_and_gives_its_regions_back() {
    let woken = Arc::new(AtomicUsize::new(0));
    let wake = {
        let woken = woken.clone();
        move || {
            woken.fetch_add(1, Ordering::SeqCst);
        }
    };
    let budget = MemoryBudget::new(1 << 20);
    let pool = Pool::new(config(2, 4, 1), wake).unwrap();
    let write = probe(|call| {
        let user = call.user().get() as u8;
        call.parts().take_output(0).unwrap()[..3].fill(user);
        call.set_produced(0, 3);
        Ok(())
    });
    let id = pool.submit(call(&budget, &write, LONG)).unwrap();
    let done = eventually(|| pool.next_done());
    assert_eq!((done.id, done.result), (id, Ok(vec![Some(Part::prefix(3))])));
    assert_eq!(&done.regions.unwrap()[0].allocation.bytes().unwrap()[..4], [5, 5, 5, 0]);
    eventually(|| (woken.load(Ordering::SeqCst) == 1).then_some(()));
    assert_eq!((pool.next_deadline(), pool.quarantined(), budget.used()), (None, 0, 0));
}

#[test]
fn a_full_pool_gives_the_call_back() {
    let (budget, gate) = (MemoryBudget::new(1 << 20), Arc::new(Gate::default()));
    let (_, wait) = hanging(&gate);
    let pool = pool(1, 2, 1);
    for _ in 0..3 {
        pool.submit(call(&budget, &wait, LONG)).unwrap();
    }
    let refused = pool.submit(call(&budget, &wait, LONG)).unwrap_err();
    assert_eq!((refused.why, refused.call.regions.len()), (PoolRefusal::Busy, 1));
    gate.open();
    // A call that is done still counts against the pool's limit on calls until `next_done` returns the call.
    eventually(|| pool.next_deadline().is_none().then_some(()));
    assert_eq!(pool.submit(call(&budget, &wait, LONG)).unwrap_err().why, PoolRefusal::Busy);
    assert!(pool.next_done().is_some());
    pool.submit(call(&budget, &wait, LONG)).unwrap();
}

#[test]
fn a_call_past_its_time_is_reported_once_and_keeps_its_regions() {
    let (budget, gate) = (MemoryBudget::new(1 << 20), Arc::new(Gate::default()));
    let hang = {
        let gate = gate.clone();
        probe(move |call| {
            gate.pass();
            call.parts().take_output(0).unwrap().fill(1);
            Ok(())
        })
    };
    let pool = pool(1, 1, 2);
    let start = Instant::now();
    let stuck = pool.submit(call(&budget, &hang, LONG)).unwrap();
    let queued = pool.submit(call(&budget, &hang, LONG * 2)).unwrap();
    assert!(pool.next_deadline().unwrap() >= start + LONG);
    assert!(pool.expire(start).is_empty());
    let reports = eventually(|| {
        let reports = pool.expire(start + LONG * 3 / 2);
        (!reports.is_empty()).then_some(reports)
    });
    let [EndedCall { id, result: Err(CallFailure::TimedOut), .. }] = &reports[..] else {
        panic!("{reports:?}")
    };
    assert_eq!(*id, stuck);
    assert!(pool.expire(start + LONG * 3 / 2).is_empty());
    // The call `queued` is reported after its deadline, whether it still waits for a thread or already runs. The call
    // `queued` may already run in the new thread that replaced the thread of the call `stuck`.
    assert_eq!(pool.expire(start + LONG * 3)[0].id, queued);
    assert_eq!((pool.next_deadline(), pool.uncollected()), (None, 0));
    drop(reports);
    gate.open();
    eventually(|| (pool.quarantined() == 0 && budget.used() == 0).then_some(()));
    assert!(pool.next_done().is_none());
}

/// Submits a call that hangs at `gate`, waits until the call has started, and lets the call time out.
fn hang_one(pool: &Pool, budget: &MemoryBudget, gate: &Arc<Gate>, of: SourceNetwork) {
    let (running, hang) = hanging(gate);
    pool.submit(ServerCall { peer: of, ..call(budget, &hang, LONG) }).unwrap();
    running.pass();
    let reports = pool.expire(Instant::now() + LONG);
    assert!(
        matches!(&reports[..], [EndedCall { regions: None, result: Err(CallFailure::TimedOut), .. }]),
        "{reports:?}"
    );
}

#[test]
fn stuck_threads_are_replaced_up_to_the_cap() {
    let (budget, gate) = (MemoryBudget::new(1 << 20), Arc::new(Gate::default()));
    let pool = pool(1, 4, 3);
    let quick = probe(|_| Ok(()));
    for stuck in 1..=3 {
        hang_one(&pool, &budget, &gate, peer(stuck as u8));
        assert_eq!(pool.quarantined(), stuck);
        if stuck < 3 {
            pool.submit(call(&budget, &quick, LONG)).unwrap();
            assert!(eventually(|| pool.next_done()).result.is_ok());
        }
    }
    // Only a source network without abandoned calls can still make calls while the quarantine is full.
    assert_eq!(pool.submit(call(&budget, &quick, LONG)).unwrap_err().why, PoolRefusal::Quarantine);
    pool.submit(ServerCall { peer: peer(9), ..call(&budget, &quick, LONG) }).unwrap();
    assert!(eventually(|| pool.next_done()).result.is_ok());
    assert_eq!(budget.used(), 3 * 4096);
    gate.open();
    eventually(|| (pool.quarantined() == 0 && budget.used() == 0).then_some(()));
    pool.submit(call(&budget, &quick, LONG)).unwrap();
    assert!(eventually(|| pool.next_done()).result.is_ok());
    assert_eq!(pool.shutdown(Instant::now() + LONG), 0);
}

#[test]
fn a_call_that_waits_past_its_time_gives_its_regions_back() {
    let (budget, gate) = (MemoryBudget::new(1 << 20), Arc::new(Gate::default()));
    let pool = pool(1, 4, 1);
    let (running, hang) = hanging(&gate);
    pool.submit(call(&budget, &hang, LONG * 9)).unwrap();
    running.pass();
    let late = pool.submit(call(&budget, &hang, LONG)).unwrap();
    let mut reports = pool.expire(Instant::now() + LONG * 2);
    let [EndedCall { id, result: Err(CallFailure::TimedOut), regions: Some(regions), session: 7 }] =
        &mut reports[..]
    else {
        panic!("{reports:?}")
    };
    assert_eq!((*id, regions.len(), regions.take_status_bytes(), pool.quarantined()), (late, 1, 0, 0));
    gate.open();
}

#[test]
fn status_bytes_of_a_call_are_taken_once() {
    let budget = MemoryBudget::new(1 << 20);
    let is_first = AtomicBool::new(true);
    let fails = probe(move |call| {
        if is_first.swap(false, Ordering::Relaxed) {
            call.set_status(8);
        }
        Err(CallFailure::Input("on purpose".into()))
    });
    let mut call = call(&budget, &fails, LONG);
    for expected in [8, 0] {
        assert!(call.run(&Stop::never()).is_err());
        assert_eq!(call.regions.take_status_bytes(), expected);
    }
}

#[test]
fn a_panic_is_a_failure_and_the_worker_goes_on() {
    let budget = MemoryBudget::new(1 << 20);
    let pool = pool(1, 4, 1);
    let panics = probe(|_| panic!("on purpose"));
    for _ in 0..3 {
        pool.submit(call(&budget, &panics, LONG)).unwrap();
        let done = eventually(|| pool.next_done());
        let Err(why) = done.result else { panic!("{:?}", done.result) };
        assert!(matches!(why, CallFailure::Internal(_)) && why.is_for_the_log());
        let name = &panics.info().name;
        assert!(why.to_string().contains(&format!("{name} panicked: on purpose")), "{why}");
        assert!(done.regions.is_some());
    }
    pool.submit(call(&budget, &probe(|_| Ok(())), LONG)).unwrap();
    assert_eq!(eventually(|| pool.next_done()).result, Ok(vec![None]));
}

#[test]
fn an_abandoned_call_is_never_reported() {
    let (budget, started) = (MemoryBudget::new(1 << 20), Arc::new(Gate::default()));
    let pool = pool(1, 4, 1);
    let patient = {
        let started = started.clone();
        probe(move |call| {
            started.open();
            while !call.should_stop() {
                thread::yield_now();
            }
            Err(CallFailure::Abandoned)
        })
    };
    let running = pool.submit(call(&budget, &patient, LONG)).unwrap();
    let waiting = pool.submit(call(&budget, &patient, LONG)).unwrap();
    started.pass();
    assert_eq!(pool.uncollected(), 2);
    assert!(pool.abandon(waiting).is_some());
    assert!(pool.abandon(running).is_none());
    assert!(pool.abandon(running).is_none());
    assert_eq!(pool.uncollected(), 0);
    eventually(|| (pool.quarantined() == 0 && budget.used() == 0).then_some(()));
    assert!(pool.next_done().is_none() && pool.next_deadline().is_none());
}

#[test]
fn a_call_that_is_done_gives_its_regions_back_when_it_is_abandoned() {
    let (budget, done) = (MemoryBudget::new(1 << 20), Arc::new(Gate::default()));
    let wake = {
        let done = done.clone();
        move || done.open()
    };
    let pool = Pool::new(config(1, 1, 1), wake).unwrap();
    let id = pool.submit(call(&budget, &probe(|_| Ok(())), LONG)).unwrap();
    done.pass();
    assert!(pool.abandon(id).is_some());
    assert_eq!((pool.uncollected(), budget.used()), (0, 0));
    assert!(pool.next_done().is_none());
}

#[test]
fn shutdown_lets_running_calls_end_and_gives_up_on_stuck_ones() {
    let (budget, gate) = (MemoryBudget::new(1 << 20), Arc::new(Gate::default()));
    let pool = pool(1, 4, 4);
    hang_one(&pool, &budget, &gate, peer(1));
    let started = Arc::new(Gate::default());
    let slow = {
        let started = started.clone();
        probe(move |_| {
            started.open();
            thread::sleep(Duration::from_millis(20));
            Ok(())
        })
    };
    let running = pool.submit(call(&budget, &slow, LONG)).unwrap();
    started.pass();
    let waiting = pool.submit(call(&budget, &slow, LONG)).unwrap();
    let stuck = pool.shutdown(Instant::now() + Duration::from_millis(500));
    assert_eq!(stuck, 1);
    assert_eq!(pool.submit(call(&budget, &slow, LONG)).unwrap_err().why, PoolRefusal::Closed);
    let mut ends: Vec<_> =
        std::iter::from_fn(|| pool.next_done()).map(|done| (done.id, done.result)).collect();
    ends.sort_by_key(|(id, _)| *id);
    assert_eq!(ends, [(running, Ok(vec![None])), (waiting, Err(CallFailure::Abandoned))]);
    assert_eq!(pool.uncollected(), 0);
    assert_eq!(pool.shutdown(Instant::now()), 1);
    gate.open();
    assert_eq!(pool.shutdown(Instant::now() + LONG), 0);
}

#[test]
fn nothing_is_lost_under_load() {
    let budget = MemoryBudget::new(64 << 20);
    let pool = pool(4, 64, 4);
    let work = probe(|call| {
        let user = call.user().get();
        if user.is_multiple_of(7) { Err(CallFailure::Input("seventh".into())) } else { Ok(()) }
    });
    let (mut open, mut failed) = (BTreeSet::new(), 0);
    let mut collect = |done: EndedCall, open: &mut BTreeSet<_>| {
        assert!(open.remove(&done.id), "{:?} was reported twice", done.id);
        failed += usize::from(done.result.is_err());
    };
    for user in 0..7000 {
        let mut next = ServerCall { user: U24::new(user).unwrap(), ..call(&budget, &work, LONG) };
        let id = loop {
            match pool.submit(next) {
                Ok(id) => break id,
                Err(refused) => next = refused.call,
            }
            collect(eventually(|| pool.next_done()), &mut open);
        };
        open.insert(id);
    }
    while !open.is_empty() {
        collect(eventually(|| pool.next_done()), &mut open);
    }
    assert_eq!((failed, budget.used(), pool.uncollected()), (1000, 0, 0));
}

#[test]
fn a_peer_is_served_at_once_while_another_has_all_workers() {
    let (budget, gate) = (MemoryBudget::new(1 << 20), Arc::new(Gate::default()));
    let pool = pool(2, 16, 4);
    let (_, hang) = hanging(&gate);
    for _ in 0..6 {
        pool.submit(call(&budget, &hang, LONG)).unwrap();
    }
    // The second source network has two calls: its first call runs at once, and its second call runs when its first
    // call has ended.
    let quick = probe(|_| Ok(()));
    for _ in 0..2 {
        pool.submit(ServerCall { peer: peer(2), ..call(&budget, &quick, LONG) }).unwrap();
    }
    for _ in 0..2 {
        assert!(eventually(|| pool.next_done()).result.is_ok());
    }
    assert_eq!(pool.calls(peer(1)), Calls { waiting: 4, running: 2, abandoned: 0 });
    gate.open();
    for _ in 0..6 {
        assert!(eventually(|| pool.next_done()).result.is_ok());
    }
    assert_eq!((budget.used(), pool.calls(peer(1))), (0, Calls::default()));
}

#[test]
fn a_call_whose_place_another_peer_needs_is_refused_with_its_regions() {
    let (budget, gate) = (MemoryBudget::new(1 << 20), Arc::new(Gate::default()));
    let pool = Pool::new(PoolConfig { extra_threads: 0, ..config(1, 3, 2) }, || {}).unwrap();
    let (_, hang) = hanging(&gate);
    let of_first: Vec<_> = (0..4).map(|_| pool.submit(call(&budget, &hang, LONG)).unwrap()).collect();
    let other = pool.submit(ServerCall { peer: peer(2), ..call(&budget, &hang, LONG) }).unwrap();
    let done = pool.next_done().unwrap();
    assert_eq!(
        (done.id, done.result, done.regions.is_some()),
        (of_first[3], Err(CallFailure::Refused(PoolRefusal::Displaced)), true)
    );
    gate.open();
    let mut ends: Vec<_> = (0..4).map(|_| eventually(|| pool.next_done()).id).collect();
    ends.sort();
    assert_eq!(ends, [of_first[0], of_first[1], of_first[2], other]);
    assert_eq!(pool.uncollected(), 0);
}

/// Returns the scheduling policy and the priority of the calling thread as /proc reports them. On the scale of
/// priorities in /proc, nice level 0 has the priority 20.
fn scheduling() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<_> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    // Field 18 of /proc/thread-self/stat is the priority, and field 41 is the policy. `fields` starts after the name of
    // the thread, which is field 2, so the first element of `fields` is field 3.
    (fields[41 - 3].parse().unwrap(), fields[18 - 3].parse().unwrap())
}

#[test]
fn workers_are_below_the_network_and_abandoned_calls_below_all() {
    const SCHED_IDLE: u32 = 5;
    let (budget, seen) = (MemoryBudget::new(1 << 20), Arc::new(Mutex::new(Vec::new())));
    let (started, gate) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let pool = pool(1, 4, 2);
    let observe = {
        let (seen, started, gate) = (seen.clone(), started.clone(), gate.clone());
        probe(move |_| {
            seen.lock().unwrap().push(scheduling());
            started.open();
            gate.pass();
            seen.lock().unwrap().push(scheduling());
            Ok(())
        })
    };
    let network = scheduling();
    let id = pool.submit(call(&budget, &observe, LONG)).unwrap();
    started.pass();
    assert!(pool.abandon(id).is_none());
    gate.open();
    eventually(|| (pool.quarantined() == 0).then_some(()));
    let seen = seen.lock().unwrap().clone();
    assert!(seen[0].1 > network.1, "the network's {network:?}, a worker's {seen:?}");
    assert_eq!(seen[1].0, SCHED_IDLE);
    // The first element of `seen` is the policy and the priority of a pool thread. The next call runs on another thread
    // than the abandoned call. The policy and the priority of this thread are equal to `before`.
    let before = seen[0];
    let again = Arc::new(Mutex::new(None));
    let look = {
        let again = again.clone();
        probe(move |_| {
            *again.lock().unwrap() = Some(scheduling());
            Ok(())
        })
    };
    // The pool refuses calls of this source network until the regions of the abandoned call are dropped. The regions
    // are dropped shortly after the abandoned call left the quarantine.
    eventually(|| pool.submit(call(&budget, &look, LONG)).ok());
    assert!(eventually(|| pool.next_done()).result.is_ok());
    assert_eq!(*again.lock().unwrap(), Some(before));
}
