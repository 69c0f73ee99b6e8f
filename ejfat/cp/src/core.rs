//! The control plane with its store, its data planes and its clock.
//!
//! ```text
//! requests ─► Control, under a lock ─► changes ─► Storing ─► store ─► reply
//! syncs ────►    ▲   │ poll: calls
//! planes ◄───────┼───┘
//!      answers ──┘         one thread, `naa-control`, polls; other threads only take the lock
//! ```
//!
//! When the store fails, the requests that wait for it are refused, and so are all requests that change something, until the
//! store works again. Then the control plane claims a new term and begins anew with the records of the store. Meanwhile it
//! still takes workers' states and makes epochs: another thread tries the store again, because the store may hang.
//!
//! A control plane changes nothing any more once a data plane or the store reports that another control plane has replaced it.

mod errors;
mod store;

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

use ejfat::{Time, lb::LbId, wire::SyncHeader};
use ejfat_control::{
    access::ApiCall,
    config::Config,
    control::{Action, Control, ControlConfig, PublishedStatus, Report},
    plane::{PlaneId, PlaneKind},
    request::{Caller, Moment, Reply, Request},
    reservation::ReservationId,
    wall::WallTime,
};
use naa_store::{Store, Term};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore as _, SeedableRng as _};
use tokio::sync::oneshot;

use crate::{
    audit::Audit,
    planes::{Away, PlaneAddress, PlaneHandle, PlaneReport, What},
    reports::Reports,
    series::{OneSeries, Series, TooMuch},
    storing::Storing,
};
pub use errors::{Refused, StartError};
use store::{Begun, Failed, Waits, audited, begin, refuse};

/// If [`Storing::len`] is above this number, requests are refused, except workers' states (`SendState`).
const MOST_STORING: usize = 1024;
/// How often the time series get a sample.
const SAMPLES: Duration = Duration::from_secs(1);

/// The configuration of a control plane, with its store and its data planes.
#[derive(Debug)]
pub struct Parts {
    /// The configuration of the site: load balancers, limits and the times of workers' states.
    pub config: Config,
    /// The options by which shares and epochs are decided. [`Core::start`] replaces [`ControlConfig::planes`] by the
    /// data planes in [`Parts::planes`].
    pub options: ControlConfig,
    /// The text of the root token.
    pub root: String,
    /// The store of the durable records. [`Core::start`] claims a new term of the store.
    pub store: Arc<dyn Store>,
    /// The data planes that the control plane programs, each with its address and protocol.
    pub planes: BTreeMap<PlaneId, PlaneAddress>,
    /// The file to which the audit log is appended. `None`: there is no such file.
    pub audit: Option<PathBuf>,
}

/// Counters since the control plane started.
#[derive(Debug, Default)]
pub struct Counters {
    /// The number of requests that were carried out, including workers' states (`SendState`).
    pub requests: AtomicU64,
    /// The number of requests that were refused, including those with an unknown token or without a token. Calls whose
    /// messages cannot be turned into requests do not count.
    pub refused: AtomicU64,
    /// The number of workers' states (`SendState`) that were accepted.
    pub states: AtomicU64,
    /// The number of sync datagrams that were passed to [`Core::sync`]. [`Syncs`](crate::Syncs) passes only
    /// sync datagrams of known senders.
    pub syncs: AtomicU64,
    /// The number of epochs that began, of all load balancers together.
    pub epochs: AtomicU64,
    /// The number of ticks whose events may have been split over two workers. A range of ticks whose end is not known
    /// counts as one tick.
    pub may_split: AtomicU64,
    /// The number of batches of changes that were given to the store.
    pub batches: AtomicU64,
    /// The number of batches that the store failed to store. A batch that is refused because another control plane has
    /// claimed the store does not count.
    pub store_failures: AtomicU64,
}

/// Receives `Ok` when changes are durable, or why they could not be stored.
type Durable = oneshot::Receiver<Result<(), Refused>>;

struct Inner {
    control: Control,
    random: ChaCha20Rng,
    term: Term,
    planes: BTreeMap<PlaneId, PlaneHandle>,
    storing: Storing<Waits>,
    failed: Option<Failed>,
    replaced: bool,
    reports: Reports,
}

/// The messages of other threads to the thread that polls.
#[derive(Default)]
struct Inbox {
    plane_reports: VecDeque<PlaneReport>,
    stored: Option<Result<(), naa_store::Error>>,
    /// The result of trying the store again.
    begun: Option<Begun>,
    is_wanted: bool,
}

impl Inbox {
    /// Takes the whole inbox, or `None` if it is empty.
    fn take(&mut self) -> Option<Self> {
        let is_something =
            self.is_wanted || !self.plane_reports.is_empty() || self.stored.is_some() || self.begun.is_some();
        is_something.then(|| std::mem::take(self))
    }
}

/// A control plane with its store, its data planes and its clock. A thread polls it until [`Core::stop`] is called.
pub struct Core {
    inner: Mutex<Inner>,
    inbox: Mutex<Inbox>,
    wake: Condvar,
    stop: AtomicBool,
    started: Instant,
    parts: (Config, ControlConfig, String, Arc<dyn Store>),
    /// The highest term that this control plane has claimed or tried to claim.
    claimed: Arc<AtomicU64>,
    /// The counters of this control plane since [`Core::start`].
    pub counters: Counters,
    series: Mutex<Series>,
    audit: Option<Audit>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("counters", &self.counters).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The panic of a thread that held the lock has been reported. The value is then usable, as each step leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Claims a new term and begins with the records of the store.
    ///
    /// # Errors
    /// If the store cannot be read or written, its records do not fit the configuration, or a thread cannot be started.
    pub fn start(parts: Parts) -> Result<Arc<Self>, StartError> {
        let Parts { config, mut options, root, store, planes, audit } = parts;
        let audit = audit.as_deref().map(Audit::open).transpose()?;
        options.planes = planes.iter().map(|(id, address)| (*id, address.kind())).collect();
        let random = ChaCha20Rng::try_from_os_rng().map_err(|why| StartError::Random(why.to_string()))?;
        let claimed = Arc::default();
        let (control, term) = begin(&config, &options, &root, &*store, Time(0), &claimed)?;
        let inner = Inner {
            control,
            random,
            term,
            planes: BTreeMap::new(),
            storing: Storing::default(),
            failed: None,
            replaced: false,
            reports: Reports::default(),
        };
        let core = Arc::new(Self {
            inner: Mutex::new(inner),
            inbox: Mutex::default(),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            started: Instant::now(),
            parts: (config, options, root, store),
            claimed,
            counters: Counters::default(),
            series: Mutex::default(),
            audit,
            thread: Mutex::new(None),
        });
        for (id, address) in planes {
            let to = Arc::downgrade(&core);
            let report = move |report| {
                if let Some(core) = to.upgrade() {
                    core.put(|inbox| inbox.plane_reports.push_back(report));
                }
            };
            let handle = PlaneHandle::start(id, address, report)?;
            lock(&core.inner).planes.insert(id, handle);
        }
        let of = core.clone();
        let thread = std::thread::Builder::new().name("naa-control".into()).spawn(move || of.run())?;
        *lock(&core.thread) = Some(thread);
        Ok(core)
    }

    /// The time since the start.
    fn now(&self) -> Time {
        Time::default() + self.started.elapsed()
    }

    fn moment(&self) -> Moment {
        Moment { now: self.now(), wall: wall() }
    }

    /// Puts a message into the inbox and wakes the thread that polls.
    fn put(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut lock(&self.inbox));
        self.wake.notify_one();
    }

    /// Carries out a request. Returns when its changes are durable.
    ///
    /// # Errors
    /// If the request is refused, or its changes cannot be stored.
    pub async fn request(&self, caller: Caller<'_>, request: &Request) -> Result<Reply, Refused> {
        let result = match self.begin_request(caller, request) {
            Ok((reply, None)) => Ok(reply),
            Ok((reply, Some(stored))) => stored.await.unwrap_or(Err(Refused::Ending)).map(|()| reply),
            Err(refused) => Err(refused),
        };
        let counter = if result.is_ok() { &self.counters.requests } else { &self.counters.refused };
        counter.fetch_add(1, Relaxed);
        result
    }

    fn begin_request(
        &self,
        caller: Caller<'_>,
        request: &Request,
    ) -> Result<(Reply, Option<Durable>), Refused> {
        let call = request.call();
        let moment = self.moment();
        let inner = &mut *lock(&self.inner);
        self.check_running(inner)?;
        if let Some(failed) = &inner.failed
            && changes(call)
        {
            return Err(Refused::Store(failed.why.clone()));
        }
        if inner.storing.len() > MOST_STORING && call != ApiCall::SendState {
            return Err(Refused::Busy);
        }
        let random = &mut inner.random;
        let accepted =
            inner.control.request(moment, caller, request, &mut |bytes| random.fill_bytes(bytes))?;
        if call == ApiCall::SendState {
            self.counters.states.fetch_add(1, Relaxed);
            return Ok((accepted.reply, None));
        }
        // The reply may depend on a change that is not durable yet, so it waits for that change.
        if accepted.changes.is_empty() && inner.storing.len() == 0 {
            return Ok((accepted.reply, None));
        }
        let (stored, wait) = oneshot::channel();
        let audit = audited(&accepted.changes).map(Waits::Audit);
        inner.storing.push(&accepted.changes, audit.chain([Waits::Caller(stored)]));
        self.put(|inbox| inbox.is_wanted = true);
        Ok((accepted.reply, Some(wait)))
    }

    /// Takes a sync datagram that was received at the sync address of a load balancer.
    pub fn sync(&self, lb: LbId, from: IpAddr, sync: &SyncHeader) {
        self.counters.syncs.fetch_add(1, Relaxed);
        lock(&self.inner).control.sync(self.now(), lb, from, sync);
    }

    /// Returns the published status of a load balancer, or `None` if it is not reserved.
    pub fn published(&self, lb: LbId) -> Option<PublishedStatus> {
        lock(&self.inner).control.published(self.now(), lb)
    }

    /// Calls `look` with the control plane and the time, under the lock.
    pub fn look<T>(&self, look: impl FnOnce(&Control, Time) -> T) -> T {
        look(&lock(&self.inner).control, self.now())
    }

    /// Returns what is wrong with a load balancer and its workers, since it was reserved.
    pub(crate) fn issues(&self, lb: LbId) -> Vec<crate::reports::Issue> {
        let inner = lock(&self.inner);
        let mut reservations = inner.control.registry().durable().reservations();
        let reserved = reservations.find(|of| of.lb == lb).map(|of| of.created);
        let mut issues = inner.reports.issues(lb, self.now());
        issues.retain(|issue| reserved.is_none_or(|reserved| issue.since >= reserved));
        issues
    }

    /// Returns time series of the reservations that the caller may see.
    pub(crate) fn select(
        &self,
        selectors: &[String],
        since: WallTime,
        may_see: impl Fn(ReservationId) -> bool,
    ) -> Result<Vec<OneSeries>, TooMuch> {
        lock(&self.series).select(selectors, since, may_see)
    }

    /// Returns each data plane's name and kind, and why it cannot be programmed (`None` if it can).
    pub fn planes(&self) -> Vec<(String, PlaneKind, Option<Away>)> {
        let inner = lock(&self.inner);
        inner.planes.values().map(|of| (of.name.clone(), of.kind, of.away().cloned())).collect()
    }

    /// Checks whether the control plane can carry out requests and store changes, and has a data plane that it can program.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn ready(&self) -> Result<(), String> {
        let inner = lock(&self.inner);
        self.check_running(&inner).map_err(|refused| refused.to_string())?;
        if let Some(failed) = &inner.failed {
            return Err(failed.why.clone());
        }
        let mut away = Vec::new();
        for plane in inner.planes.values() {
            let Some(why) = plane.away() else { return Ok(()) };
            away.push(format!("data plane {} is not in use: {}", plane.name, why.why));
        }
        if away.is_empty() { Ok(()) } else { Err(away.join("; ")) }
    }

    /// Checks that the control plane is not ending, and that no other one has taken over.
    fn check_running(&self, inner: &Inner) -> Result<(), Refused> {
        if self.stop.load(Relaxed) {
            return Err(Refused::Ending);
        }
        if inner.replaced { Err(Refused::Replaced) } else { Ok(()) }
    }

    /// Checks the token of a caller.
    ///
    /// # Errors
    /// If the caller shows no token, or an unknown one.
    pub(crate) fn check_caller(&self, caller: Caller<'_>) -> Result<(), Refused> {
        let known = lock(&self.inner).control.registry().check_caller(caller);
        known.map_err(|refusal| {
            self.counters.refused.fetch_add(1, Relaxed);
            refusal.into()
        })
    }

    /// Opens the audit log's file again by its name, if there is one. This is for log rotation, which renames the file.
    pub fn reopen_audit(&self) {
        self.audit.iter().for_each(Audit::reopen);
    }

    /// Returns a message if the thread that polls has ended by itself.
    pub(crate) fn ended(&self) -> Option<String> {
        let over = lock(&self.thread).as_ref().is_some_and(JoinHandle::is_finished);
        over.then(|| "the thread naa-control ended; the log says why".to_owned())
    }

    /// Refuses requests from now on, stores the changes that wait for the store, and ends. Data planes keep their tables.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.put(|inbox| inbox.is_wanted = true);
        if let Some(thread) = lock(&self.thread).take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }

    fn run(self: Arc<Self>) {
        let (mut sampled, mut until) = (self.now(), self.now());
        loop {
            let Inbox { plane_reports, stored, begun, .. } = self.wait(until);
            let now = self.now();
            let samples = {
                let inner = &mut *lock(&self.inner);
                plane_reports.into_iter().for_each(|report| self.plane_report(inner, report));
                if let Some(stored) = stored {
                    self.stored(inner, stored);
                }
                if let Some(begun) = begun {
                    self.begun(inner, begun);
                }
                if inner.replaced {
                    refuse(inner.storing.failed(), &Refused::Replaced);
                    until = now + SAMPLES;
                } else {
                    self.turn(inner);
                    until = inner.control.next_wakeup();
                }
                let is_stored = inner.storing.len() == 0 || inner.failed.is_some();
                if self.stop.load(Relaxed) && is_stored {
                    return refuse(inner.storing.failed(), &Refused::Ending);
                }
                (now >= sampled + SAMPLES).then(|| crate::series::sample(&inner.control, now))
            };
            // The main lock is free here, so a caller who reads long series does not delay requests.
            if let Some(samples) = samples {
                sampled = now;
                lock(&self.series).add(wall(), samples);
            }
        }
    }

    /// Waits until the inbox has a message, or until the time `until`.
    fn wait(&self, until: Time) -> Inbox {
        let mut inbox = lock(&self.inbox);
        loop {
            let left = until.0.saturating_sub(self.now().0);
            if let Some(contents) = inbox.take() {
                return contents;
            }
            if left == 0 {
                return Inbox::default();
            }
            let waited = self.wake.wait_timeout(inbox, Duration::from_nanos(left));
            inbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Handles a report of a data plane's thread.
    fn plane_report(&self, inner: &mut Inner, report: PlaneReport) {
        let PlaneReport { plane, connection, what } = report;
        let Some(handle) = inner.planes.get_mut(&plane) else { return };
        let now = self.now();
        match what {
            What::Connected => {
                handle.connected(connection);
                inner.control.connected(now, plane);
            }
            What::Answered(answer) if handle.is_connected_by(connection) => {
                inner.control.answer(now, answer);
            }
            What::Answered(_) => {}
            What::Ended(why) => {
                if handle.ended(connection, why, wall()) {
                    inner.control.disconnected(now, plane);
                }
            }
        }
    }

    /// Carries out the actions of the control plane, and gives the next batch to the store.
    fn turn(self: &Arc<Self>, inner: &mut Inner) {
        self.retry_store(inner);
        for action in inner.control.poll(self.moment()) {
            match action {
                Action::Store(changes) if inner.failed.is_none() => {
                    inner.storing.push(&changes, audited(&changes).map(Waits::Audit));
                }
                // These changes are dropped: when the store works again, the control plane begins anew with its records.
                Action::Store(_) => {}
                Action::Call(call) => {
                    if let Some(handle) = inner.planes.get(&call.plane) {
                        handle.call(call);
                    }
                }
                Action::Disconnect(plane) => {
                    if let Some(handle) = inner.planes.get_mut(&plane) {
                        handle.disconnect();
                    }
                }
                Action::Report(report) => self.report(inner, report),
            }
        }
        if inner.failed.is_some() {
            return;
        }
        while let Some(next) = inner.storing.next(inner.term) {
            let Some(batch) = next else {
                self.durable(inner.storing.stored());
                continue;
            };
            self.counters.batches.fetch_add(1, Relaxed);
            let core = Arc::downgrade(self);
            let done = move |result: Result<_, _>| {
                if let Some(core) = core.upgrade() {
                    core.put(|inbox| inbox.stored = Some(result.map(drop)));
                }
            };
            self.parts.3.append_with(batch, Box::new(done));
        }
    }

    fn report(&self, inner: &mut Inner, report: Report) {
        match &report {
            Report::PlaneInUse(plane) => {
                inner.planes.get_mut(plane).into_iter().for_each(PlaneHandle::in_use);
            }
            Report::PlaneLost { plane, why } => {
                let plane = inner.planes.get_mut(plane).into_iter();
                plane.for_each(|plane| plane.lost(why.clone(), wall()));
            }
            Report::Epoch { .. } => drop(self.counters.epochs.fetch_add(1, Relaxed)),
            Report::MaySplit { from, to, .. } => {
                // If the end is not known, the number of ticks is not known either, and one is counted.
                let ticks = if *to == u64::MAX { 1 } else { to.saturating_sub(*from) };
                self.counters.may_split.fetch_add(ticks, Relaxed);
            }
            Report::Replaced { .. } => inner.replaced = true,
            _ => {}
        }
        let is_news = inner.reports.add(wall(), self.now(), &report);
        if is_news {
            let name = |plane: PlaneId| inner.planes.get(&plane).map_or("?", |of| &of.name);
            crate::reports::log(&report, name);
        }
    }
}

/// Returns whether a call changes records of the store.
fn changes(call: ApiCall) -> bool {
    match call {
        ApiCall::Get
        | ApiCall::Status
        | ApiCall::SendState
        | ApiCall::Overview
        | ApiCall::Timeseries
        | ApiCall::Version
        | ApiCall::ListTokenPermissions
        | ApiCall::ListChildTokens
        | ApiCall::Chain
        | ApiCall::Unchain
        | ApiCall::GetChainGraph => false,
        ApiCall::Reserve
        | ApiCall::Free
        | ApiCall::Reset
        | ApiCall::Extend
        | ApiCall::AddSenders
        | ApiCall::RemoveSenders
        | ApiCall::Register
        | ApiCall::SetSlotDemands
        | ApiCall::Deregister
        | ApiCall::CreateToken
        | ApiCall::RevokeToken => true,
    }
}

/// The time of day, by the machine's clock.
pub(crate) fn wall() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
