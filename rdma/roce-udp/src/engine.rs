//! A turn of a device receives datagrams, handles due timers, and sends datagrams. All code here runs under the
//! device's lock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use naa_udp::{Port, RecvBatch, Rest, SendBatch};
use roce::{
    Endpoint, Time, Transmit,
    icrc::{self, FlowCache},
};
use verbs::{Error, Memory, WaitOn};

use crate::{
    EmbeddedConfig,
    loss_injection::Dropper,
    memory::RegionTable,
    notifiers::Notifiers,
    sys::gather::build,
    trace::{Trace, Tracer},
    waiters::Waiters,
};

/// The maximum number of messages that are taken from the socket per turn. Such a message is one datagram, or several
/// datagrams that the Linux kernel merged (GRO), with less than 64 KiB together.
const RECEIVE_MESSAGES: usize = 16;
/// The maximum number of datagrams that are built before they are handed to the Linux kernel.
const SEND_SEGMENTS: usize = 512;
/// The size in bytes of a send batch's memory for headers, trailers and copied payload.
const SEND_COPIED: usize = 1 << 20;
/// The number of packets after which a turn sends no further run. The limit leaves time for receiving datagrams and for
/// other threads.
const TURN_PACKETS: usize = 1024;
/// The longest delay of a due timer of the endpoint. If datagrams are still in the socket when a timer is due, the
/// datagrams are handled first, but for at most this time.
const MAX_TIMER_DELAY: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) endpoint: Endpoint,
    pub(crate) regions: RegionTable,
    pub(crate) waiters: Waiters,
    pub(crate) notifiers: Notifiers,
    pub(crate) port: Arc<Port>,
    receive: RecvBatch,
    send: SendBatch,
    transmit: Transmit,
    /// True if the packet in `transmit` did not fit into the send batch and still has to be added to it.
    pending: bool,
    /// True if the last turn left acknowledgements unsent, so that they are sent together with the next message.
    held: bool,
    flows: FlowCache,
    loss: Option<Dropper>,
    trace: Option<Trace>,
    origin: Instant,
    pub(crate) counters: ProgressCounters,
}

/// The counters that a device has in addition to the endpoint's counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgressCounters {
    pub(crate) turns: u64,
    /// The number of datagrams that could not be sent, for example because there is no route to their destination, or
    /// because the datagrams were too long.
    pub(crate) send_errors: u64,
}

/// The result of one turn of the engine: what the turn did, and what is left to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Whether packets were received or sent.
    pub(crate) busy: bool,
    /// True if another turn has work at once: more packets to send, or more datagrams to receive.
    pub(crate) more: bool,
    /// True if the send buffer of the socket is full, so that packets can be sent only when the socket is writable
    /// again.
    pub(crate) blocked: bool,
}

impl Engine {
    pub(crate) fn new(endpoint: Endpoint, port: Port, options: &EmbeddedConfig) -> Self {
        let send = SendBatch::new(SEND_SEGMENTS, SEND_COPIED, port.gso());
        Self {
            endpoint,
            regions: RegionTable::default(),
            waiters: Waiters::default(),
            notifiers: Notifiers::default(),
            port: Arc::new(port),
            receive: RecvBatch::new(RECEIVE_MESSAGES),
            send,
            transmit: Transmit::default(),
            pending: false,
            held: false,
            flows: FlowCache::default(),
            loss: options.loss.map(Dropper::new),
            trace: options.trace.clone(),
            origin: Instant::now(),
            counters: ProgressCounters::default(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    fn time_of(&self, at: Instant) -> Time {
        Time(at.saturating_duration_since(self.origin).as_nanos() as u64)
    }

    /// Returns the time at which the next timer of the endpoint is due, or `None` if no timer runs.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.endpoint.poll_timeout().map(|t| self.origin + Duration::from_nanos(t.nanos()))
    }

    /// Makes one turn, for a thread that waits for the objects in `on`: a completion queue, an event channel, or both.
    ///
    /// The device is allowed to send some acknowledgements late. If an object of `on` is ready and the device has
    /// nothing else to send, the turn leaves these acknowledgements unsent. The thread whose wait ends usually sends a
    /// message next, and the acknowledgements are sent together with this message. A server, for example, sends its
    /// response and the acknowledgement of the request with one system call. If the thread sends no message, the next
    /// turn of the engine sends the acknowledgements. The next turn is made by the next thread that waits on the
    /// device, or by the progress thread if no thread waits.
    ///
    /// Returns also the time at which the turn last read the clock. A turn that neither receives nor sends reads the clock
    /// only at its beginning, so that a thread that polls loses little time between two looks at the socket.
    pub(crate) fn turn(&mut self, on: &WaitOn) -> (Turn, Instant) {
        self.counters.turns += 1;
        // The clock is read before datagrams are received. A turn handles only timers that were due when the clock was
        // read. A datagram that arrived before a timer was due is therefore handled before this timer, even if this
        // thread was not scheduled for a long time. If more datagrams wait than one turn receives, the timer is delayed
        // for at most `MAX_TIMER_DELAY`.
        let mut at = Instant::now();
        let now = self.time_of(at);
        let received = self.receive(now);
        let delay = if self.receive.is_full() { MAX_TIMER_DELAY } else { Duration::ZERO };
        if self.endpoint.poll_timeout().is_some_and(|t| t + delay <= now) {
            self.endpoint.handle_timeout(now);
        }
        if received {
            at = Instant::now();
        }
        self.held = !self.held && self.ready(on) && self.endpoint.owes_only_late_acks();
        let mut turn = if self.held { Turn::default() } else { self.transmit_at(self.time_of(at)) };
        if turn.busy {
            at = Instant::now();
        }
        turn.busy |= received;
        turn.more |= self.receive.is_full();
        self.notify();
        (turn, at)
    }

    /// Receives datagrams. Returns true if at least one datagram was a packet with a right ICRC for a queue pair of
    /// this device or for the CM. If only other datagrams arrived, the function returns false, so that a flood of such
    /// datagrams does not keep waiting threads awake.
    fn receive(&mut self, now: Time) -> bool {
        // An error of the socket is ignored here. If the socket cannot receive, the timers of unacknowledged requests
        // expire, and the sessions learn from the timers that their peers are silent.
        if !self.port.recv(&mut self.receive).is_ok_and(|messages| messages > 0) {
            return false;
        }
        let before = self.endpoint.counters().rcvd_pkts;
        let to = self.port.local_addr();
        let mut tracer = Tracer { trace: self.trace.as_ref(), now };
        for message in self.receive.messages() {
            let loss = &mut self.loss;
            let datagrams = message.segments().filter(|_| !loss.as_mut().is_some_and(Dropper::drops));
            let addresses = [message.from, to];
            self.endpoint.handle_super_packet(now, addresses, datagrams, &mut self.regions, &mut tracer);
        }
        self.endpoint.counters().rcvd_pkts != before
    }

    /// Sends the acknowledgements that the last turn left unsent. A call that may end a connection must call `settle`
    /// first, because the next turn cannot send acknowledgements of a connection that has ended.
    pub(crate) fn settle(&mut self) {
        if self.held {
            self.transmit();
        }
    }

    /// Sends the endpoint's packets until no packet is left or the socket's send buffer is full.
    pub(crate) fn transmit(&mut self) -> Turn {
        self.transmit_at(self.now())
    }

    fn transmit_at(&mut self, now: Time) -> Turn {
        let mut turn = Turn::default();
        self.held = false;
        if self.pending {
            // The packet has waited for room in the socket's send buffer.
            self.endpoint.check_run(&mut self.transmit);
        }
        let mut packets = 0;
        loop {
            if !self.pending && !self.endpoint.poll_transmit(now, &mut self.transmit) {
                break;
            }
            packets += self.build();
            if self.pending && !self.flush(&mut turn) {
                return turn;
            }
            if packets >= TURN_PACKETS {
                turn.more = true;
                break;
            }
        }
        self.flush(&mut turn);
        turn.busy |= packets > 0;
        turn
    }

    /// Adds the packet that the field `transmit` describes, and the packets that follow it in its run, to the send batch.
    /// Returns the number of packets that were added or dropped. If the send batch has no room for one of the packets,
    /// `transmit` describes this packet afterwards, and `pending` is true.
    fn build(&mut self) -> usize {
        let Some(flow) = self.flows.get(self.port.local_addr(), self.transmit.to) else {
            // The packet's destination has another address family than the socket, so the socket cannot send the
            // packet.
            self.pending = false;
            self.counters.send_errors += 1;
            return 1;
        };
        let mut packets = 0;
        loop {
            self.pending = !build(&mut self.send, &self.transmit, flow, &self.regions);
            if self.pending {
                return packets;
            }
            packets += 1;
            if !self.transmit.next_of_run() {
                return packets;
            }
        }
    }

    /// Sends the packets of the send batch; returns false if the socket's send buffer is full.
    fn flush(&mut self, turn: &mut Turn) -> bool {
        while !self.send.is_empty() {
            // If the socket cannot be used, the packets of the send batch are dropped without an error, as if
            // the network had lost them.
            let Ok(outcome) = self.send.flush(&self.port) else {
                self.send.clear();
                return true;
            };
            self.counters.send_errors += outcome.dropped as u64;
            if let Some(to) = outcome.unreachable {
                self.endpoint.send_failed(to);
            }
            match outcome.rest {
                Rest::Empty => {}
                Rest::Blocked => {
                    turn.blocked = true;
                    return false;
                }
                Rest::GsoRefused => self.ungroup(),
            }
        }
        true
    }

    /// Splits each super-packet into single datagrams, because the interface cannot segment super-packets. The ICRC of
    /// a datagram covers its IPv4 identification, which the split changes: in a super-packet, the identification is the
    /// index of the datagram, but a single datagram has the identification 0. The function therefore corrects the ICRC
    /// of each datagram whose identification changes.
    fn ungroup(&mut self) {
        let local = self.port.local_addr();
        if !local.is_ipv4() {
            return self.send.ungroup(|_, _, _| {});
        }
        self.send.ungroup(|len, ip_id, trailer| {
            if let Some(icrc) = trailer.last_chunk_mut() {
                icrc::renumber(icrc, len, ip_id, 0);
            }
        });
    }

    /// Removes a region, and returns its memory. Afterwards, no unsent packet refers to the memory.
    pub(crate) fn release(&mut self, lkey: u32) -> Result<Memory, Error> {
        let region = self.endpoint.dereg_mr(lkey)?;
        // The unsent packets in the batch may refer to the region, so all unsent packets are dropped. Each request
        // whose packet was dropped is repeated later, and fails if it needs the region that is removed here.
        self.send.clear();
        if self.transmit.pieces.iter().any(|p| p.region == region) {
            self.transmit.end_run();
            self.pending = false;
        }
        Ok(self.regions.remove(region))
    }

    pub(crate) fn ready(&self, on: &WaitOn) -> bool {
        on.cq.is_some_and(|cq| self.endpoint.cq_ready(cq))
            || on.channel.is_some_and(|channel| self.endpoint.channel_ready(channel))
    }

    /// Wakes the waiting threads whose objects have become ready. Signals the file descriptors whose objects have
    /// become ready.
    pub(crate) fn notify(&mut self) {
        let endpoint = &self.endpoint;
        let ready = |on: &WaitOn| {
            on.cq.is_some_and(|cq| endpoint.cq_ready(cq))
                || on.channel.is_some_and(|channel| endpoint.channel_ready(channel))
        };
        self.waiters.notify(ready);
        self.notifiers.notify(ready);
    }

    /// Removes the eventfds of destroyed objects. Also forgets those calls of `EmbeddedDevice::interrupt` for destroyed
    /// objects that would have ended a later wait. The closure `gone` returns true for a destroyed object.
    pub(crate) fn forget(&mut self, gone: impl Fn(&WaitOn) -> bool) {
        self.waiters.forget(&gone);
        self.notifiers.forget(gone);
    }
}
