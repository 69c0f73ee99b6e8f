//! The rings of workers that ended. A ring is kept as long as events in this ring may be delivered again to other
//! workers.

use ejfat::{Time, bridge::WorkerId, ring::Descriptor};
use verbs::Memory;

use super::Bridge;
use crate::ring::{BridgeRing, RingTransport};

/// The ring of a local worker that ended, or the staging ring of a remote worker that ended. The bridge keeps the ring,
/// because events in it may be delivered again. Only the bridge can write the memory of this ring.
#[derive(Debug)]
pub(super) struct Kept {
    worker: WorkerId,
    memory: Memory,
    /// The number of bytes that become available for rings of local workers when this ring is freed; 0 for the staging
    /// ring of a remote worker.
    local: u64,
}

impl Bridge {
    /// Keeps the memory of an ended worker's ring until the dispatcher forgets the worker.
    pub(super) fn keep(&mut self, worker: WorkerId) {
        let Some((_, ring)) = self.rings.get(worker.at()).and_then(Option::as_ref) else { return };
        let BridgeRing { memory, transport, .. } = ring;
        let local = match transport {
            RingTransport::Rdma(_) => 0,
            RingTransport::Shared(shared) => shared.geometry().shared_bytes() as u64,
        };
        self.kept.push(Kept { worker, memory: memory.clone(), local });
    }

    /// Frees the ring of the ended worker `worker`. `given_up` is the number of events in this ring that waited to be
    /// delivered again, and are lost now.
    pub(super) fn forget(&mut self, worker: WorkerId, given_up: u32) {
        if given_up > 0 {
            let worker = worker.number();
            tracing::warn!(worker, given_up, "events of a worker that ended are not delivered again");
        }
        if let Some(at) = self.kept.iter().position(|kept| kept.worker == worker) {
            self.local_memory += self.kept.swap_remove(at).local;
        }
    }

    /// Copies an event from the ring of the ended worker `from` into the ring of `worker`, and announces the event to
    /// `worker`.
    pub(super) fn deliver_again(
        &mut self,
        from: WorkerId,
        offset: u64,
        worker: WorkerId,
        descriptor: Descriptor,
    ) {
        let Some(kept) = self.kept.iter().find(|kept| kept.worker == from) else { return };
        let Some((_, ring)) = self.rings.get_mut(worker.at()).and_then(Option::as_mut) else { return };
        let (to, length) = (descriptor.offset as usize, descriptor.length as usize);
        kept.memory.copy_to(offset as usize, &ring.memory, to, length);
        self.announce(worker, descriptor, true);
    }

    /// Frees rings of ended local workers until `bytes` bytes of memory are available for the ring of a new local
    /// worker. Returns true if `bytes` bytes are available for the new ring when the method returns. Frees no ring if
    /// the new ring would not fit even after all rings of ended local workers were freed.
    pub(super) fn make_local_room(&mut self, bytes: u64, now: Time) -> bool {
        let kept: u64 = self.kept.iter().map(|kept| kept.local).sum();
        if self.local_memory + kept < bytes {
            return false;
        }
        let local: Vec<_> = self.kept.iter().filter(|kept| kept.local > 0).map(|kept| kept.worker).collect();
        for worker in local {
            if self.local_memory >= bytes {
                break;
            }
            self.dispatcher.forget(worker);
            self.act(now);
        }
        self.local_memory >= bytes
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::UdpSocket,
        os::fd::OwnedFd,
        thread,
        time::{Duration, Instant},
    };

    use ejfat::{
        listen::Listen,
        ring::{Geometry, Subscription},
        wire::ReHeader,
    };
    use naa_server::loop_service::LoopService as _;
    use rustix::net::{
        AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
    };

    use super::*;
    use crate::BridgeConfig;

    const PAYLOAD: &[u8] = b"bytes of an event";

    fn geometry() -> Geometry {
        Geometry::new(4, 64).unwrap()
    }

    /// Makes a bridge whose local workers may have rings of `local_memory` bytes in total.
    fn bridge(name: &str, local_memory: u64) -> Bridge {
        let path = std::env::temp_dir().join(format!("ejfat-bridge-kept-{name}-{}", std::process::id()));
        let listen = vec![Listen::Port("127.0.0.1:0".parse().unwrap())];
        let config = BridgeConfig { local: Some(path), local_memory, ..BridgeConfig::new(listen) };
        Bridge::new(config, 1).unwrap()
    }

    /// Runs turns of the bridge until `is_so` returns true. If `is_so` stays false for ten seconds, panics with the
    /// message `what`.
    fn until(bridge: &mut Bridge, what: &str, is_so: impl Fn(&Bridge) -> bool) {
        let begin = Instant::now();
        while !is_so(bridge) {
            assert!(begin.elapsed() < Duration::from_secs(10), "{what}");
            bridge.turn(Instant::now());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn worker(bridge: &mut Bridge, redelivery: bool) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(bridge.local().unwrap()).unwrap()).unwrap();
        let subscription = Subscription { redelivery, ..Subscription::new(geometry()) };
        send(&socket, &subscription.encode(), SendFlags::NOSIGNAL).unwrap();
        let before = bridge.dispatcher.counters().workers;
        until(bridge, "nobody subscribed", |bridge| bridge.dispatcher.counters().workers > before);
        socket
    }

    /// Subscribes a worker that uses version 2 of the ring protocol, in which events may be delivered again. The worker
    /// gets one event, and ends without releasing the event. The bridge then keeps the worker's ring, because the event
    /// may be delivered again.
    fn ended(bridge: &mut Bridge) {
        let worker = worker(bridge, true);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let header = ReHeader { data_id: 1, offset: 0, length: PAYLOAD.len() as u32, event: 5 };
        sender.send_to(&[&header.encode(), PAYLOAD].concat(), bridge.addresses()[0]).unwrap();
        until(bridge, "nothing came", |bridge| bridge.dispatcher.counters().sent == 1);
        drop(worker);
        until(bridge, "it did not end", |bridge| bridge.dispatcher.workers().next().is_none());
        assert_eq!((bridge.kept.len(), bridge.dispatcher.waiting_for_redelivery()), (1, 1));
    }

    #[test]
    fn what_a_worker_had_is_in_the_ring_of_the_next_one_and_its_memory_goes() {
        let of_one = geometry().shared_bytes() as u64;
        let mut bridge = bridge("next", 2 * of_one);
        ended(&mut bridge);
        assert_eq!(bridge.local_memory, of_one, "the ring of one that ended counts");
        let _next = worker(&mut bridge, true);
        assert_eq!(bridge.dispatcher.counters().delivered_again, 1);
        let (_, ring) = bridge.rings.iter().flatten().next().unwrap();
        assert_eq!(ring.memory.to_vec(0, PAYLOAD.len()), PAYLOAD);
        assert_eq!((bridge.kept.len(), bridge.local_memory), (0, of_one));
    }

    #[test]
    fn a_worker_that_lives_has_precedence_over_what_is_kept() {
        let of_one = geometry().shared_bytes() as u64;
        let mut bridge = bridge("room", of_one);
        ended(&mut bridge);
        assert_eq!(bridge.local_memory, 0);
        let _next = worker(&mut bridge, true);
        let waiting = bridge.dispatcher.waiting_for_redelivery();
        assert_eq!((bridge.kept.len(), waiting, bridge.local_memory), (0, 0, 0));
        let counters = bridge.dispatcher.counters();
        assert_eq!((counters.held_by_ended, counters.delivered_again, bridge.refused), (1, 0, 0));
    }

    #[test]
    fn a_bridge_that_ends_keeps_nothing() {
        let mut bridge = bridge("end", 2 * geometry().shared_bytes() as u64);
        ended(&mut bridge);
        assert!(bridge.finish());
        assert_eq!((bridge.kept.len(), bridge.dispatcher.waiting_for_redelivery()), (0, 0));
        let load = bridge.handle().load();
        assert_eq!((load.events, load.reassembled, load.dequeued, load.workers), (1, 1, 0, 0));
        assert_eq!(load.fill, 1.0, "there is no worker");
    }
}
