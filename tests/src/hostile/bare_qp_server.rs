//! Bare queue pairs under attack: every connection is accepted and gets regions with every kind of access, which lie
//! in the middle of memory that nobody may touch.
//!
//! The reply's private data is an MRSP advertisement of the regions, [`RW`], [`WRITE_ONLY`], [`READ_ONLY`] and
//! [`FOREIGN`]; the last is of the protection domain that a request with the private data "B" gets.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use mrsp::{RemoteRegion, codec::encode_advertisement};
use roce_udp::{EmbeddedConfig, open};
use serde::{Deserialize, Serialize};
use verbs::{
    Access, Channel, CmEvent, CmId, ConnParam, Context, Cq, Error, Memory, Mr, Pd, Qp, QpCap, QpNum, RecvWr,
    WaitMode, WaitOn,
};

/// Indexes of the regions advertised.
pub(super) const RW: usize = 0;
pub(super) const WRITE_ONLY: usize = 1;
pub(super) const READ_ONLY: usize = 2;
pub(super) const FOREIGN: usize = 3;
const REGIONS: usize = 4;

/// Bytes of a region.
pub(super) const LEN: usize = 4000;
/// Where a region begins in its memory; at least as much follows it.
const BEFORE: usize = 4096;
const MEMORY: usize = BEFORE + 2 * 4096;
/// A receive of the target.
pub(super) const RECEIVE: usize = 1024;
const RECEIVES: u64 = 4;

/// How many bytes differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    pub inside: usize,
    pub outside: usize,
}

#[derive(Debug)]
pub(super) struct BareQpServer {
    context: Context,
    address: SocketAddr,
    shared: Arc<Mutex<Regions>>,
    stop: Arc<AtomicBool>,
    on: WaitOn,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Regions {
    pds: [Pd; 2],
    memory: [Memory; REGIONS],
    mrs: [Mr; REGIONS],
}

const ACCESS: [Access; REGIONS] = [Access::ALL, Access::REMOTE_WRITE, READ, Access::ALL];
const READ: Access = Access { remote_write: false, ..Access::ALL };

/// The byte at `at` of a region's memory.
pub(super) const fn pattern(at: usize) -> u8 {
    (at as u8).wrapping_mul(31) ^ (at >> 8) as u8
}

impl Regions {
    fn new(context: &Context) -> Result<Self, Error> {
        let pds = [context.alloc_pd()?, context.alloc_pd()?];
        let memory = [(); REGIONS].map(|()| region::alloc(MEMORY));
        let mut all = Vec::new();
        for memory in memory {
            let memory = memory.map_err(|e| Error::io("cannot allocate a region", e))?;
            fill(&memory);
            all.push(memory);
        }
        let memory: [Memory; REGIONS] = all.try_into().expect("as many as were allocated");
        let mut mrs = Vec::new();
        for (at, memory) in memory.iter().enumerate() {
            mrs.push(register(&pds, memory, at)?);
        }
        Ok(Self { pds, memory, mrs: mrs.try_into().expect("one for each memory") })
    }

    fn advertisement(&self) -> Vec<u8> {
        let remote = |mr: &Mr| RemoteRegion { addr: mr.addr(), rkey: mr.rkey(), size: LEN as u32 };
        encode_advertisement(&self.mrs.each_ref().map(remote)).expect("few regions")
    }
}

fn register(pds: &[Pd; 2], memory: &Memory, at: usize) -> Result<Mr, Error> {
    pds[usize::from(at == FOREIGN)].reg_mr(&memory.slice(BEFORE, LEN), ACCESS[at])
}

fn fill(memory: &Memory) {
    let bytes: Vec<u8> = (0..MEMORY).map(pattern).collect();
    memory.write(0, &bytes);
}

impl BareQpServer {
    pub(super) fn start(ip: IpAddr) -> Result<Self, Error> {
        let context = open(ip, &EmbeddedConfig { must_listen: true, ..EmbeddedConfig::default() })?;
        let channel = context.create_channel()?;
        let cq = context.create_cq(16_384)?;
        let (_, port) = channel.listen(0, 128)?;
        let shared = Arc::new(Mutex::new(Regions::new(&context)?));
        let stop = Arc::new(AtomicBool::new(false));
        let on = WaitOn { cq: Some(cq.id()), channel: Some(channel.id()) };
        let mut loop_ =
            Loop { channel, cq, context: context.clone(), shared: shared.clone(), conns: HashMap::new() };
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                loop_.turn(on);
            }
        });
        let address = SocketAddr::new(ip, port);
        Ok(Self { context, address, shared, stop, on, thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.context.driver().counters()
    }

    fn regions(&self) -> MutexGuard<'_, Regions> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bystander writes FOREIGN all the time.
    pub(super) fn changed(&self) -> Changed {
        let mut changed = Changed::default();
        for (at, memory) in self.regions().memory.iter().enumerate() {
            for (place, byte) in memory.to_vec(0, MEMORY).into_iter().enumerate() {
                let inside = (BEFORE..BEFORE + LEN).contains(&place);
                let differs = usize::from(byte != pattern(place));
                if !inside {
                    changed.outside += differs;
                } else if at != FOREIGN {
                    changed.inside += differs;
                }
            }
            if at != FOREIGN {
                fill(memory);
            }
        }
        changed
    }

    pub(super) fn set_access(&self, open: bool) -> Result<(), Error> {
        self.regions().mrs[RW].set_access(if open { ACCESS[RW] } else { Access::LOCAL })
    }

    pub(super) fn reregister(&self) -> Result<(), Error> {
        let mut regions = self.regions();
        regions.mrs[RW] = register(&regions.pds, &regions.memory[RW], RW)?;
        Ok(())
    }
}

impl Drop for BareQpServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.context.driver().interrupt(self.on);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}

struct Loop {
    channel: Channel,
    cq: Cq,
    context: Context,
    shared: Arc<Mutex<Regions>>,
    conns: HashMap<CmId, Conn>,
}

struct Conn {
    qp: Qp,
    receives: Mr,
}

impl Loop {
    fn turn(&mut self, on: WaitOn) {
        let deadline = Instant::now() + Duration::from_millis(200);
        let _ = self.context.wait(on, WaitMode::Block, Some(deadline));
        while let Ok(Some(event)) = self.channel.next_event() {
            match event {
                CmEvent::ConnectRequest { id, param, .. } => {
                    let pd = usize::from(param.private_data.first() == Some(&b'B'));
                    if self.accept(id, pd).is_err() {
                        let _ = self.channel.destroy_id(id);
                    }
                }
                CmEvent::Established { .. } => {}
                event => {
                    let _ = self.channel.destroy_id(event.id());
                    self.conns.remove(&event.id());
                }
            }
        }
        while let Ok(Some(wc)) = self.cq.poll_one() {
            if wc.status.is_success() {
                self.repost(wc.qp, wc.wr_id);
            } else {
                self.failed(wc.qp);
            }
        }
    }

    fn accept(&mut self, id: CmId, pd: usize) -> Result<(), Error> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let pd = &shared.pds[pd];
        let cap = QpCap { max_send_wr: 4, max_recv_wr: 8, max_sge: 1, ..QpCap::default() };
        let qp = pd.create_qp(&self.cq, &self.cq, cap)?;
        let memory = region::alloc(RECEIVE * RECEIVES as usize).map_err(|e| Error::io("receives", e))?;
        let conn = Conn { qp, receives: pd.reg_mr(&memory, Access::LOCAL)? };
        for slot in 0..RECEIVES {
            conn.post(slot)?;
        }
        let param = ConnParam { private_data: shared.advertisement(), ..ConnParam::default() };
        self.channel.accept(id, &conn.qp, &param)?;
        drop(shared);
        self.conns.insert(id, conn);
        Ok(())
    }

    fn repost(&self, qp: QpNum, slot: u64) {
        if let Some(conn) = self.conns.values().find(|conn| conn.qp.num() == qp) {
            // Fails when the queue pair has failed meanwhile.
            let _ = conn.post(slot);
        }
    }

    /// A queue pair was refused something: its connection ends.
    fn failed(&mut self, qp: QpNum) {
        let found = self.conns.iter().find(|(_, conn)| conn.qp.num() == qp).map(|(id, _)| *id);
        if let Some(id) = found {
            let _ = self.channel.destroy_id(id);
            self.conns.remove(&id);
        }
    }
}

impl Conn {
    fn post(&self, slot: u64) -> Result<(), Error> {
        let sge = self.receives.sge(slot * RECEIVE as u64, RECEIVE as u32);
        self.qp.post_recv(&RecvWr { wr_id: slot, sges: &[sge] })
    }
}
