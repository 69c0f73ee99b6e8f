//! Well-behaved peers of the victim: one calls the server, one writes and reads back at the target. Both check
//! every byte and the time.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use mrsp::{Message, RemoteRegion, codec};
use naa_host::{Device, FunctionCode, Param, Session, SessionConfig, U24};
use roce_udp::{EmbeddedConfig, open};
use verbs::{
    Access, Channel, CmEvent, ConnParam, Context, Cq, Mr, Payload, Qp, QpCap, RemoteAddr, SendFlags, SendOp,
    SendWr, WaitMode, Wake,
};

use super::{
    bare_qp_server::{FOREIGN, LEN},
    case::Latency,
};

const INCREMENT: FunctionCode = FunctionCode::constant(1);
const BYTES: usize = 64;
/// A round of more than this counts as not answered.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Between rounds, so that the machine is the attacker's and the victim's.
const PAUSE: Duration = Duration::from_micros(500);

#[derive(Debug)]
pub struct Bystanders {
    both: [Bystander; 2],
}

/// A thread that works until this is dropped.
#[derive(Debug)]
pub(super) struct Bystander {
    log: Arc<Mutex<Log>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) rounds: Vec<Duration>,
    /// Events of an honest sender that came out, and those of them that it sent again.
    pub(super) delivered: u64,
    pub(super) repeats: u64,
    pub(super) failures: Vec<String>,
}

impl Log {
    /// The p99 is [`NOTHING`] if there are no rounds.
    pub(super) fn latency(&mut self) -> Latency {
        self.rounds.sort_unstable();
        let at = |percent: usize| self.rounds.get(self.rounds.len() * percent / 100).copied();
        let calls = self.rounds.len();
        Latency { calls, p50: at(50).unwrap_or_default(), p99: at(99).unwrap_or(NOTHING) }
    }
}

/// The latency of a bystander that completed nothing.
pub(super) const NOTHING: Duration = Duration::MAX;

impl Bystanders {
    pub(super) fn start(locals: [IpAddr; 2], server: SocketAddr, target: SocketAddr) -> Self {
        let calls = Bystander::start("calls", move || Calling::connect(locals[0], server));
        let writes = Bystander::start("writes", move || Writing::connect(locals[1], target));
        Self { both: [calls, writes] }
    }

    /// Forgets what was before.
    pub fn begin(&self) {
        self.both.iter().for_each(|one| drop(one.take()));
    }

    /// What they saw since [`Self::begin`]: the worse of the two, [`NOTHING`] if one completed nothing, and what went
    /// wrong.
    pub fn end(&self) -> (Latency, Vec<String>) {
        let mut worst = Latency::default();
        let mut failures = Vec::new();
        for mut log in self.both.iter().map(Bystander::take) {
            let latency = log.latency();
            worst.calls += latency.calls;
            worst.p50 = worst.p50.max(latency.p50);
            worst.p99 = worst.p99.max(latency.p99);
            failures.append(&mut log.failures);
        }
        (worst, failures)
    }
}

impl Bystander {
    pub(super) fn start<P: Peer>(
        what: &'static str,
        connect: impl Fn() -> Result<P, String> + Send + 'static,
    ) -> Self {
        Self::spawn(move |log, stop| {
            while !stop.load(Ordering::Relaxed) {
                if let Err(why) = work(&connect, log, stop) {
                    lock(log).failures.push(format!("the bystander that {what}: {why}"));
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        })
    }

    /// `work` notes in the log what it sees, and ends soon after it is told to stop.
    pub(super) fn spawn(work: impl FnOnce(&Mutex<Log>, &AtomicBool) + Send + 'static) -> Self {
        let (log, stop) = (Arc::<Mutex<Log>>::default(), Arc::<AtomicBool>::default());
        let (its_log, its_stop) = (log.clone(), stop.clone());
        let thread = std::thread::spawn(move || work(&its_log, &its_stop));
        Self { log, stop, thread: Some(thread) }
    }

    /// What it saw since the last time.
    pub(super) fn take(&self) -> Log {
        std::mem::take(&mut *lock(&self.log))
    }

    /// Events of an honest sender that came out: the first number of the round it is at.
    pub(super) fn delivered(&self) -> u64 {
        lock(&self.log).delivered
    }

    pub(super) fn is_working(&self) -> bool {
        lock(&self.log).failures.is_empty()
    }

    /// Waits for so many more rounds of events, which must `arrive`, in such words. [`Self::end`] tells why they did not.
    pub(super) fn rounds(&self, more: usize, arrive: &str) -> Result<(), String> {
        let wanted = lock(&self.log).rounds.len() + more;
        let begin = Instant::now();
        while lock(&self.log).rounds.len() < wanted {
            if begin.elapsed() > TIME_LIMIT || !self.is_working() {
                return Err(format!("honest events did not {arrive}"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends it; what it saw.
    pub(super) fn end(mut self) -> Log {
        self.join();
        self.take()
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.join();
    }
}

pub(super) fn lock(log: &Mutex<Log>) -> std::sync::MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) trait Peer {
    /// One round trip, checked.
    fn round(&mut self, n: u64) -> Result<(), String>;
}

fn work<P: Peer>(
    connect: &impl Fn() -> Result<P, String>,
    log: &Mutex<Log>,
    stop: &AtomicBool,
) -> Result<(), String> {
    let mut peer = connect()?;
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        peer.round(n)?;
        n += 1;
        let took = start.elapsed();
        lock(log).rounds.push(took);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

struct Calling {
    session: Session,
    _device: Device,
}

impl Calling {
    fn connect(local: IpAddr, server: SocketAddr) -> Result<Self, String> {
        let device = Device::open(local).map_err(|e| e.to_string())?;
        let params = [Param::in_out(BYTES)];
        let session = Session::connect(&device, server, &params, &SessionConfig::default());
        Ok(Self { session: session.map_err(|e| e.to_string())?, _device: device })
    }
}

impl Peer for Calling {
    fn round(&mut self, n: u64) -> Result<(), String> {
        let sent: [u8; BYTES] = std::array::from_fn(|i| (n as u8).wrapping_add(i as u8));
        let failed = |e: naa_host::Error| e.to_string();
        self.session.write(0, 0, &sent).map_err(failed)?;
        self.session.invoke(INCREMENT, U24::default()).map_err(failed)?;
        let outcome = self.session.wait_timeout(TIME_LIMIT).map_err(failed)?;
        let outcome = outcome.ok_or("no answer within 10 s")?;
        outcome.into_result().map(drop).map_err(failed)?;
        let expected = sent.map(|byte| byte.wrapping_add(1));
        if self.session.slice(0).map_err(failed)? != expected {
            return Err(format!("call {n} gave a wrong result"));
        }
        Ok(())
    }
}

struct Writing {
    // The fields are in the order in which they must be dropped.
    qp: Qp,
    _channel: Channel,
    cq: Cq,
    mr: Mr,
    remote: RemoteRegion,
    _context: Context,
}

impl Writing {
    fn connect(local: IpAddr, target: SocketAddr) -> Result<Self, String> {
        let failed = |e: verbs::Error| e.to_string();
        let context = open(local, &EmbeddedConfig::default()).map_err(failed)?;
        let pd = context.alloc_pd().map_err(failed)?;
        let cq = context.create_cq(16).map_err(failed)?;
        let channel = context.create_channel().map_err(failed)?;
        let qp = pd.create_qp(&cq, &cq, QpCap::default()).map_err(failed)?;
        let memory = region::alloc(LEN).map_err(|e| e.to_string())?;
        let mr = pd.reg_mr(&memory, Access::LOCAL).map_err(failed)?;
        let param = ConnParam { private_data: vec![b'B'], ..ConnParam::default() };
        channel.connect(&qp, target, &param).map_err(failed)?;
        let deadline = Some(Instant::now() + TIME_LIMIT);
        let event = loop {
            if let Some(event) = channel.next_event().map_err(failed)? {
                break event;
            }
            if channel.wait(WaitMode::Block, deadline).map_err(failed)? == Wake::TimedOut {
                return Err("no connection within 10 s".into());
            }
        };
        let CmEvent::Established { param, .. } = event else {
            return Err(format!("no connection: {event:?}"));
        };
        let remote = advertised(&param.private_data)?[FOREIGN];
        Ok(Self { qp, _channel: channel, cq, mr, remote, _context: context })
    }

    fn perform(&self, op: SendOp, place: u64) -> Result<(), String> {
        let sges = [self.mr.sge(place, BYTES as u32)];
        let wr = SendWr { wr_id: 1, op, payload: Payload::Sges(&sges), flags: SendFlags::SIGNALED };
        self.qp.post_send(&[wr]).map_err(|(_, e)| e.to_string())?;
        let deadline = Some(Instant::now() + TIME_LIMIT);
        loop {
            if let Some(wc) = self.cq.poll_one().map_err(|e| e.to_string())? {
                return if wc.status.is_success() { Ok(()) } else { Err(wc.status.to_string()) };
            }
            let woken = self.cq.wait(WaitMode::Block, deadline).map_err(|e| e.to_string())?;
            if woken == Wake::TimedOut {
                return Err("no completion within 10 s".into());
            }
        }
    }
}

impl Peer for Writing {
    fn round(&mut self, n: u64) -> Result<(), String> {
        let sent: [u8; BYTES] = std::array::from_fn(|i| (n as u8).wrapping_mul(3).wrapping_add(i as u8));
        let remote = RemoteAddr { addr: self.remote.addr, rkey: self.remote.rkey };
        self.mr.memory().write(0, &sent);
        self.perform(SendOp::Write(remote), 0)?;
        self.perform(SendOp::Read(remote), 1024)?;
        if self.mr.memory().to_vec(1024, BYTES) != sent {
            return Err(format!("what was read back in round {n} is not what was written"));
        }
        Ok(())
    }
}

/// The regions in a reply's private data.
pub(super) fn advertised(private_data: &[u8]) -> Result<Vec<RemoteRegion>, String> {
    let count = usize::from(*private_data.get(1).ok_or("no private data")?);
    let message = private_data.get(..4 + 16 * count).ok_or("private data cut short")?;
    match codec::decode(message) {
        Ok(Message::Advertisement(regions)) => Ok(regions.iter().collect()),
        other => Err(format!("the private data is {other:?}")),
    }
}
