//! The driver on top of rdma-core. The driver maps the ids of the driver interface to objects of the C libraries.

use std::{
    hash::Hash,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use rustc_hash::FxHashMap as HashMap;
use verbs::{
    Access, ChannelId, CmEvent, CmId, ConnParam, CqId, DeviceAttr, Driver, Error, Memory, MrKeys, PdId,
    QpInit, QpNum, RecvWr, SendWr, WaitMode, WaitOn, Wake, Wc,
};

use crate::{
    Owner, VerbsConfig,
    connection::{Channel, SharedQp, lock_qp},
    counters, memlock,
    queue::IbvCq,
    registrations::Registrations,
    sys::{self, Caps, DeviceLimits, EventChannel},
    waiting::Waiting,
};

/// This driver reports at least this value as the maximum message size (in bytes) of a software device. The driver
/// rxe reports only 8 MiB, but accepts larger messages.
const SOFT_MESSAGE: u32 = 1 << 30;
/// The maximum number of bytes of inline data in one work request. No caller of the driver interface uses more than 512
/// bytes of inline data, and a larger limit would make send queues shorter.
const MOST_INLINE: u32 = 512;

/// A table of objects of one kind. The keys are the numbers by which the driver interface identifies these objects.
#[derive(Debug)]
struct ObjectTable<K, V>(RwLock<HashMap<K, Arc<V>>>);

impl<K: Copy + Eq + Hash, V> ObjectTable<K, V> {
    fn new() -> Self {
        Self(RwLock::new(HashMap::default()))
    }

    fn get(&self, key: K) -> Option<Arc<V>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    fn insert(&self, key: K, value: V) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::new(value));
    }

    fn remove(&self, key: K) -> Option<Arc<V>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&key)
    }
}

#[derive(Debug)]
struct QueuePair {
    qp: SharedQp,
    queues: [Arc<IbvCq>; 2],
}

#[derive(Debug)]
pub(crate) struct Ibv {
    attr: DeviceAttr,
    limits: DeviceLimits,
    owner: Option<Owner>,
    // Rust drops fields in the order of their declaration, so each object is declared before the objects on which it
    // depends.
    channels: ObjectTable<ChannelId, Channel>,
    of_connection: ObjectTable<CmId, ChannelId>,
    qps: ObjectTable<QpNum, QueuePair>,
    queues: ObjectTable<CqId, IbvCq>,
    registrations: Registrations,
    device: Arc<sys::IbvDevice>,
    next: AtomicU32,
    next_connection: AtomicU64,
}

impl Ibv {
    pub(crate) fn open(local: IpAddr, owner: Option<Owner>, options: &VerbsConfig) -> Result<Self, Error> {
        let device = sys::IbvDevice::open(sys::load()?, local)?;
        let limits = device.limits()?;
        let name =
            owner.as_ref().map_or_else(|| "RDMA device".into(), |o| format!("{} port {}", o.device, o.port));
        let is_soft = owner.as_ref().is_some_and(|owner| owner.is_soft);
        let max_msg = if is_soft { limits.max_msg.max(SOFT_MESSAGE) } else { limits.max_msg.max(1) };
        let attr = DeviceAttr {
            provider: "verbs",
            name: format!("{name} on {local}"),
            address: local,
            max_path_mtu: limits.path_mtu,
            max_inline_data: limits.max_inline.min(MOST_INLINE),
            max_sge: limits.max_sge,
            max_qp: limits.max_qp,
            max_qp_wr: limits.max_qp_wr,
            max_mr: limits.max_mr,
            max_cq: limits.max_cq,
            max_cqe: limits.max_cqe,
            max_msg: max_msg.into(),
            can_listen: true,
            revokes: false,
        };
        Ok(Self {
            attr,
            limits,
            owner,
            channels: ObjectTable::new(),
            of_connection: ObjectTable::new(),
            qps: ObjectTable::new(),
            queues: ObjectTable::new(),
            registrations: Registrations::new(&device, options.keep_registrations),
            device,
            next: AtomicU32::new(1),
            next_connection: AtomicU64::new(1),
        })
    }

    /// Returns an error if another process opened the device and this process inherited it by fork(). The Linux
    /// kernel's objects still belong to the process that opened the device. The methods that create objects, destroy
    /// objects or sleep call `check_process`. The methods that post or poll do not call `check_process`, because the
    /// system call in `check_process` would take too long.
    fn check_process(&self) -> Result<(), Error> {
        if self.device.maker.is_this() { Ok(()) } else { Err(Error::Forked) }
    }

    fn next(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn new_connection(&self) -> CmId {
        CmId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    fn queue(&self, id: CqId) -> Result<Arc<IbvCq>, Error> {
        self.queues.get(id).ok_or(Error::NotFound { what: "completion queue", id: id.0.into() })
    }

    fn channel(&self, id: ChannelId) -> Result<Arc<Channel>, Error> {
        self.channels.get(id).ok_or(Error::NotFound { what: "event channel", id: id.0.into() })
    }

    fn qp(&self, num: QpNum) -> Result<Arc<QueuePair>, Error> {
        self.qps.get(num).ok_or_else(|| unknown_qp(num))
    }

    fn channel_of(&self, id: CmId) -> Result<Arc<Channel>, Error> {
        let unknown = || Error::NotFound { what: "connection", id: id.0 };
        self.of_connection.get(id).and_then(|channel| self.channels.get(*channel)).ok_or_else(unknown)
    }

    /// Creates an id for a connection that arrived on `channel`.
    fn name_on(&self, channel: ChannelId) -> CmId {
        let id = self.new_connection();
        self.of_connection.insert(id, channel);
        id
    }
}

impl Ibv {
    fn waiting<T>(
        &self,
        on: WaitOn,
        deadline: Option<Instant>,
        f: impl FnOnce(&Waiting<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let queue = on.cq.map(|id| self.queue(id)).transpose()?;
        let channel = on.channel.map(|id| self.channel(id).map(|channel| (id, channel))).transpose()?;
        let new_id = || match &channel {
            Some((id, _)) => self.name_on(*id),
            None => self.new_connection(),
        };
        f(&Waiting {
            queue: queue.as_deref(),
            channel: channel.as_ref().map(|(_, channel)| &**channel),
            beside: None,
            deadline,
            new_id: &new_id,
            check: &|| self.check_process(),
        })
    }
}

impl Driver for Ibv {
    fn attr(&self) -> &DeviceAttr {
        &self.attr
    }

    fn alloc_pd(&self) -> Result<PdId, Error> {
        self.check_process()?;
        self.registrations.alloc_pd()
    }

    fn dealloc_pd(&self, pd: PdId) -> Result<(), Error> {
        self.check_process()?;
        self.registrations.dealloc_pd(pd)
    }

    fn reg_mr(&self, pd: PdId, memory: &Memory, access: Access) -> Result<MrKeys, Error> {
        self.check_process()?;
        self.registrations.reg_mr(pd, memory, access)
    }

    fn set_mr_access(&self, lkey: u32, access: Access) -> Result<(), Error> {
        self.registrations.set_access(lkey, access)
    }

    fn dereg_mr(&self, lkey: u32) -> Result<(), Error> {
        self.check_process()?;
        self.registrations.dereg_mr(lkey)
    }

    fn create_cq(&self, depth: u32) -> Result<CqId, Error> {
        self.check_process()?;
        check_depth(depth, self.limits.max_cqe)?;
        let id = CqId(self.next());
        self.queues.insert(id, IbvCq::new(sys::RawCq::new(&self.device, depth)?)?);
        Ok(id)
    }

    fn destroy_cq(&self, cq: CqId) -> Result<(), Error> {
        self.check_process()?;
        let queue = self.queue(cq)?;
        // References to a completion queue are held only by queue pairs, and by the `IbvCq` in the driver's table. The
        // `IbvCq` holds one reference, so more than one reference means that a queue pair uses the completion queue.
        if Arc::strong_count(&queue.cq) > 1 {
            return Err(Error::Busy("the completion queue has queue pairs"));
        }
        self.queues.remove(cq);
        Ok(())
    }

    fn poll_cq(&self, cq: CqId, out: &mut [Wc]) -> Result<usize, Error> {
        self.queue(cq)?.poll(out).map_err(|e| Error::io("cannot poll for completions", e))
    }

    fn create_qp(&self, init: &QpInit) -> Result<QpNum, Error> {
        self.check_process()?;
        let pd = self.registrations.pd(init.pd)?;
        let queues = [self.queue(init.send_cq)?, self.queue(init.recv_cq)?];
        let caps = Caps {
            max_send_wr: init.cap.max_send_wr,
            max_recv_wr: init.cap.max_recv_wr,
            max_sge: init.cap.max_sge.max(1),
            max_inline: self.limits.max_inline.min(MOST_INLINE),
        };
        check_caps(&caps, self.limits.max_qp_wr, self.limits.max_sge)?;
        let qp = sys::RawQp::new(&pd, &queues[0].cq, &queues[1].cq, caps)
            .and_then(|qp| qp.to_init().map(|()| qp))
            .map_err(|e| memlock::refused("makes no queue pair", e))?;
        let num = qp.num();
        self.qps.insert(num, QueuePair { qp: Arc::new(Mutex::new(Some(qp))), queues });
        Ok(num)
    }

    fn destroy_qp(&self, num: QpNum) -> Result<(), Error> {
        self.check_process()?;
        // The device may immediately give this queue pair's number to a new queue pair. `forget` removes all
        // completions with this number, and must not remove a completion of the new queue pair. The table of queue
        // pairs therefore stays locked until `forget` returns. Until then, no program can post to the new queue pair.
        let mut pairs = self.qps.0.write().unwrap_or_else(PoisonError::into_inner);
        let pair = pairs.remove(&num).ok_or_else(|| unknown_qp(num))?;
        // A thread that still has a reference to this `QueuePair` finds `None` instead of the queue pair.
        drop(lock_qp(&pair.qp).take());
        pair.queues.iter().for_each(|queue| queue.forget(num));
        Ok(())
    }

    fn post_send(&self, num: QpNum, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        let pair = self.qp(num).map_err(|error| (0, error))?;
        let guard = lock_qp(&pair.qp);
        let qp = guard.as_ref().ok_or_else(|| (0, unknown_qp(num)))?;
        qp.post_send(wrs).map_err(|(index, error)| (index, not_posted(qp.caps().max_send_wr, error)))
    }

    fn post_recv(&self, num: QpNum, wr: &RecvWr<'_>) -> Result<(), Error> {
        let pair = self.qp(num)?;
        let guard = lock_qp(&pair.qp);
        let qp = guard.as_ref().ok_or_else(|| unknown_qp(num))?;
        qp.post_recv(wr).map_err(|error| not_posted(qp.caps().max_recv_wr, error))
    }

    fn create_channel(&self) -> Result<ChannelId, Error> {
        self.check_process()?;
        let id = ChannelId(self.next());
        let channel = Channel::new(EventChannel::new(sys::load()?)?, self.limits.max_reads)?;
        self.channels.insert(id, channel);
        Ok(id)
    }

    fn destroy_channel(&self, id: ChannelId) -> Result<(), Error> {
        self.check_process()?;
        for connection in self.channel(id)?.connections_left() {
            let _ = self.destroy_id(connection);
        }
        self.channels.remove(id);
        Ok(())
    }

    fn next_event(&self, id: ChannelId) -> Result<Option<CmEvent>, Error> {
        self.channel(id)?.next_event(&|| self.name_on(id))
    }

    fn listen(&self, channel: ChannelId, port: u16, backlog: u32) -> Result<(CmId, u16), Error> {
        self.check_process()?;
        let local = SocketAddr::new(self.attr.address, port);
        let id = self.new_connection();
        let on = self.channel(channel)?;
        self.of_connection.insert(id, channel);
        let port = on.listen(id, local, backlog).inspect_err(|_| drop(self.of_connection.remove(id)))?;
        Ok((id, port))
    }

    fn connect(
        &self,
        channel: ChannelId,
        qp: QpNum,
        remote: SocketAddr,
        param: &ConnParam,
    ) -> Result<CmId, Error> {
        self.check_process()?;
        let pair = self.qp(qp)?;
        let local = SocketAddr::new(self.attr.address, 0);
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(Error::Invalid("the peer's address is not of the device's family"));
        }
        let id = self.new_connection();
        let on = self.channel(channel)?;
        self.of_connection.insert(id, channel);
        let asked = on.connect(id, &pair.qp, (local, remote), param);
        asked.inspect_err(|_| drop(self.of_connection.remove(id)))?;
        Ok(id)
    }

    fn accept(&self, id: CmId, qp: QpNum, param: &ConnParam) -> Result<(), Error> {
        self.check_process()?;
        self.channel_of(id)?.accept(id, &self.qp(qp)?.qp, param)
    }

    fn reject(&self, id: CmId, private_data: &[u8]) -> Result<(), Error> {
        self.check_process()?;
        self.channel_of(id)?.reject(id, private_data)
    }

    fn disconnect(&self, id: CmId) -> Result<(), Error> {
        self.check_process()?;
        self.channel_of(id)?.disconnect(id)
    }

    fn destroy_id(&self, id: CmId) -> Result<(), Error> {
        self.check_process()?;
        let channel = self.channel_of(id)?;
        self.of_connection.remove(id);
        channel.destroy(id)
    }

    fn wait(&self, on: WaitOn, mode: WaitMode, deadline: Option<Instant>) -> Result<Wake, Error> {
        self.waiting(on, deadline, |waiting| waiting.run(mode))
    }

    fn wait_beside(
        &self,
        on: WaitOn,
        beside: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> Result<Wake, Error> {
        self.waiting(on, deadline, |waiting| {
            Waiting { beside: Some(beside), ..*waiting }.run(WaitMode::Block)
        })
    }

    fn descriptor(&self, on: WaitOn) -> Result<OwnedFd, Error> {
        let queue = on.cq.map(|id| self.queue(id)).transpose()?;
        let channel = on.channel.map(|id| self.channel(id)).transpose()?;
        let fds = [
            queue.as_ref().map(|q| q.cq.fd()),
            channel.as_ref().map(|c| c.raw.fd()),
            channel.as_ref().map(|c| c.queued.as_fd()),
        ];
        sys::any_of(fds.into_iter().flatten()).map_err(|e| Error::io("cannot make an epoll descriptor", e))
    }

    fn arm(&self, on: WaitOn) -> Result<bool, Error> {
        self.waiting(on, None, |waiting| waiting.arm())
    }

    fn interrupt(&self, on: WaitOn) {
        // If `on` contains only destroyed objects, this function does nothing. No new wait can begin on a destroyed
        // object. This function does not end a wait that began before the destruction.
        if let Some(queue) = on.cq.and_then(|id| self.queues.get(id)) {
            queue.interrupt.set();
        } else if let Some(channel) = on.channel.and_then(|id| self.channels.get(id)) {
            channel.interrupt.set();
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.owner.as_ref().map(counters::read).unwrap_or_default()
    }
}

/// Returns an error if a completion queue cannot have room for `depth` completions. The device allows at most `max_cqe`
/// completions in a completion queue.
fn check_depth(depth: u32, max_cqe: u32) -> Result<(), Error> {
    if depth == 0 {
        return Err(Error::Invalid("the completion queue's depth is zero"));
    }
    if depth > max_cqe {
        return Err(Error::Exhausted {
            what: "entries of a completion queue",
            limit: max_cqe.into(),
            remedy: "use several, or fewer sessions",
        });
    }
    Ok(())
}

/// Fails with [`Error::Exhausted`] if a queue pair with the capacities `caps` would exceed a limit of the device; the
/// error contains this limit. The device allows at most `max_qp_wr` work requests in each queue of a queue pair, and at
/// most `max_sge` scatter-gather elements in one work request.
fn check_caps(caps: &Caps, max_qp_wr: u32, max_sge: u32) -> Result<(), Error> {
    let wanted = [(caps.max_send_wr.max(caps.max_recv_wr), max_qp_wr), (caps.max_sge, max_sge)];
    let exceeded = wanted.into_iter().find(|(number, most)| number > most);
    exceeded.map_or(Ok(()), |(_, limit)| {
        Err(Error::Exhausted {
            what: "work requests or elements of a queue pair",
            limit: limit.into(),
            remedy: "use fewer regions",
        })
    })
}

fn unknown_qp(num: QpNum) -> Error {
    Error::NotFound { what: "queue pair", id: num.0.into() }
}

fn not_posted(limit: u32, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => Error::Exhausted {
            what: "work requests of the queue pair",
            limit: limit.into(),
            remedy: "take completions before posting more",
        },
        Some(libc::EINVAL) => {
            Error::Invalid("the device refuses the work request, or the queue pair's state")
        }
        _ => Error::io("the work request was not posted", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_queue_without_room_for_a_completion_is_refused() {
        assert!(matches!(check_depth(0, 100), Err(Error::Invalid(_))));
        assert!(check_depth(1, 100).is_ok() && check_depth(100, 100).is_ok());
        assert!(matches!(check_depth(101, 100), Err(Error::Exhausted { limit: 100, .. })));
    }

    #[test]
    fn a_queue_pair_that_is_too_large_is_refused_with_the_limit_that_it_exceeds() {
        let limit = |max_send_wr, max_recv_wr, max_sge| {
            let caps = Caps { max_send_wr, max_recv_wr, max_sge, max_inline: 0 };
            match check_caps(&caps, 100, 7) {
                Ok(()) => None,
                Err(Error::Exhausted { limit, .. }) => Some(limit),
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(limit(100, 100, 7), None);
        assert_eq!((limit(101, 1, 1), limit(1, 101, 1), limit(1, 1, 8)), (Some(100), Some(100), Some(7)));
    }
}
