//! A recorded host on the wire: its packets are sent as they are in the file, but for the numbers that the server
//! chooses, and what the server says is collected.

use std::{
    io,
    net::{SocketAddrV4, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use super::{
    HOST, SERVER,
    description::MessageIndex,
    ends::{Connection, Ends, PacketEffect, ServerOutput},
    fields::{
        self, ACKNOWLEDGE, BEFORE_MAD, Cm, DEST_QP, DREQ_QPN, LOCAL_COMM_ID, MSN, OPCODE, PSN, PSN_MASK,
        REMOTE_COMM_ID, RETH_ADDRESS, RETH_RKEY, UD_SEND_ONLY, be24, be32, be64, psn_reached, psn_since,
        put24, put32, put64,
    },
    icrc,
    pcap::Datagram,
};

pub(super) const ROCE_PORT: u16 = 4791;
/// How long the server may take for an answer, on a machine that does much else.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Silence after which what is not acknowledged is sent again.
const AGAIN: Duration = Duration::from_secs(1);
/// The time after which the host sends a message again for which the server was not ready (RNR NAK).
const NOT_READY: Duration = Duration::from_millis(1);
/// The time at the end in which no more packets may come.
const SILENCE: Duration = Duration::from_millis(30);

/// One packet of the recording, with its sender, in the order of the recording. Packets are without their ICRCs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Host(Vec<u8>),
    Server(Vec<u8>),
    /// A datagram to another port of the server: a segment of an event.
    Data {
        to: SocketAddrV4,
        payload: Vec<u8>,
    },
}

/// The steps of a recording.
pub(super) fn steps(datagrams: &[Datagram]) -> Result<Vec<Step>, String> {
    let step = |(number, datagram): (usize, &Datagram)| {
        let Datagram { from, to, payload, .. } = datagram;
        if *to.ip() == SERVER && to.port() != ROCE_PORT {
            return Ok(Step::Data { to: *to, payload: payload.clone() });
        }
        let body = icrc::open(*from, *to, payload).filter(|body| fields::is_whole(body));
        let body = body.ok_or(format!("frame {number} is no RoCEv2 packet with a right ICRC"))?.to_vec();
        Ok(if *to.ip() == SERVER { Step::Host(body) } else { Step::Server(body) })
    };
    (1..).zip(datagrams).map(step).collect()
}

/// What came of a replay.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayResult {
    pub(super) recorded: Vec<ServerOutput>,
    pub(super) live: Vec<ServerOutput>,
    /// Why it ended early.
    pub(super) fault: Option<String>,
}

struct Replayer {
    socket: UdpSocket,
    recorded: Ends,
    live: Ends,
    /// An acknowledgement of the recorded host.
    acknowledgement: Option<Vec<u8>>,
    /// What was sent on the connection in use, without ICRC: for sending it again.
    sent: Vec<Vec<u8>>,
}

/// Everything that a server says in a recording.
pub(super) fn recorded(steps: &[Step]) -> Vec<ServerOutput> {
    let mut ends = Ends::default();
    for step in steps {
        match step {
            Step::Host(packet) if packet[OPCODE] == UD_SEND_ONLY => {
                let mad = &packet[BEFORE_MAD..];
                if fields::cm(mad) == Cm::Req {
                    ends.request(mad);
                }
            }
            Step::Server(packet) => {
                ends.receive(packet);
            }
            _ => {}
        }
    }
    output(&ends)
}

fn output(ends: &Ends) -> Vec<ServerOutput> {
    ends.connections.iter().map(|connection| connection.output.clone()).collect()
}

/// Replays the host of `steps` against the server at [`SERVER`], which answers something else from `leave` on.
pub(super) fn replay(steps: &[Step], leave: Option<MessageIndex>) -> Result<ReplayResult, String> {
    let mut replayer = Replayer::open(steps)?;
    let fault = replayer.run(steps, leave).err();
    Ok(ReplayResult { recorded: recorded(steps), live: output(&replayer.live), fault })
}

impl Replayer {
    fn open(steps: &[Step]) -> Result<Self, String> {
        let socket = UdpSocket::bind((HOST, ROCE_PORT))
            .map_err(|e| format!("cannot bind {HOST}:{ROCE_PORT}: {e}; end the program that has it"))?;
        let acknowledgement = steps.iter().find_map(|step| match step {
            Step::Host(packet) if packet[OPCODE] == ACKNOWLEDGE => Some(packet.clone()),
            _ => None,
        });
        let (recorded, live) = (Ends::default(), Ends::default());
        Ok(Self { socket, recorded, live, acknowledgement, sent: Vec::new() })
    }

    fn run(&mut self, steps: &[Step], leave: Option<MessageIndex>) -> Result<(), String> {
        let mut rest = steps.iter();
        while let Some(step) = rest.next() {
            match step {
                Step::Data { to, payload } => {
                    let sender = UdpSocket::bind((HOST, 0)).map_err(|e| e.to_string())?;
                    sender.send_to(payload, to).map_err(|e| format!("cannot send to {to}: {e}"))?;
                }
                Step::Host(packet) => self.say(packet)?,
                Step::Server(packet) => {
                    let (at, _) = self.recorded.receive(packet);
                    if let Some(leave) = leave.filter(|leave| self.is_at(*leave)) {
                        self.until("the documented answer", |live| {
                            live.connections[leave.connection].output.messages.len() > leave.message
                        })?;
                        return self.disconnect(rest.as_slice(), leave.connection);
                    }
                    self.follow(at)?;
                }
            }
        }
        self.listen(SILENCE)
    }

    fn is_at(&self, leave: MessageIndex) -> bool {
        let connection = self.recorded.connections.get(leave.connection);
        connection.is_some_and(|connection| connection.output.messages.len() > leave.message)
    }

    /// Waits until the server has said as much as it has in the recording up to here.
    fn follow(&mut self, at: usize) -> Result<(), String> {
        let Some(recorded) = self.recorded.connections.get(at) else { return Ok(()) };
        let (mads, messages) = (recorded.output.mads.len(), recorded.output.messages.len());
        let (acknowledged, kind) =
            (recorded.acknowledged, recorded.output.mads.last().map(|mad| fields::cm(mad)));
        let waits_for = format!(
            "connection {at}: {mads} management datagrams, {messages} messages, {acknowledged} acknowledged packets"
        );
        self.until(&waits_for, |live| {
            let Connection { output, acknowledged: live, .. } = &live.connections[at];
            output.mads.len() >= mads && output.messages.len() >= messages && *live >= acknowledged
        })?;
        let live = self.live.connections[at].output.mads.last().map(|mad| fields::cm(mad));
        if live != kind {
            return Err(format!("connection {at}: the server says {live:?} where it said {kind:?}"));
        }
        Ok(())
    }

    /// A packet of the recorded host, with the live server's numbers.
    fn say(&mut self, packet: &[u8]) -> Result<(), String> {
        let mut packet = packet.to_vec();
        match packet[OPCODE] {
            UD_SEND_ONLY => {
                let mad = &mut packet[BEFORE_MAD..];
                match fields::cm(mad) {
                    Cm::Req if !self.recorded.request(mad) => return Ok(()),
                    Cm::Req => {
                        self.live.request(mad);
                        self.sent.clear();
                    }
                    kind => self.rename(mad, kind)?,
                }
            }
            // This side acknowledges what comes when it comes.
            ACKNOWLEDGE => return Ok(()),
            _ => {
                self.renumber(&mut packet)?;
                self.sent.push(packet.clone());
            }
        }
        self.send(&packet)
    }

    /// Puts the live server's communication ID and queue pair into a management datagram.
    fn rename(&self, mad: &mut [u8], kind: Cm) -> Result<(), String> {
        let at =
            self.live.of_comm_id(be32(mad, LOCAL_COMM_ID)).ok_or("a management datagram before its REQ")?;
        let live = &self.live.connections[at];
        put32(mad, REMOTE_COMM_ID, live.server_comm_id);
        if kind == Cm::Dreq {
            put24(mad, DREQ_QPN, live.server_qpn);
        }
        Ok(())
    }

    /// Puts the live server's queue pair, PSN, address and RKey into a packet.
    fn renumber(&self, packet: &mut [u8]) -> Result<(), String> {
        let at = self.recorded.of_server_qpn(be24(packet, DEST_QP)).ok_or("a packet of no connection")?;
        let (recorded, live) = (&self.recorded.connections[at], &self.live.connections[at]);
        put24(packet, DEST_QP, live.server_qpn);
        let ahead = psn_since(be24(packet, PSN), recorded.server_psn);
        put24(packet, PSN, live.server_psn.wrapping_add(ahead) & PSN_MASK);
        if !fields::has_reth(packet[OPCODE]) {
            return Ok(());
        }
        let (address, rkey) = (be64(packet, RETH_ADDRESS), be32(packet, RETH_RKEY));
        let inside = |region: &super::ends::Region| {
            let end = region.address + u64::from(region.size);
            region.rkey == rkey && (region.address..=end).contains(&address)
        };
        if let Some(number) = recorded.regions.iter().position(inside) {
            let region = live.regions.get(number).ok_or("the server advertises fewer regions than it did")?;
            put64(packet, RETH_ADDRESS, region.address + (address - recorded.regions[number].address));
            put32(packet, RETH_RKEY, region.rkey);
        }
        Ok(())
    }

    fn send(&self, packet: &[u8]) -> Result<(), String> {
        let (from, to) = (SocketAddrV4::new(HOST, ROCE_PORT), SocketAddrV4::new(SERVER, ROCE_PORT));
        let sealed = icrc::seal(from, to, packet);
        self.socket.send_to(&sealed, to).map(|_| ()).map_err(|e| format!("cannot send to {to}: {e}"))
    }

    /// Listens until `done`.
    fn until(&mut self, what: &str, done: impl Fn(&Ends) -> bool) -> Result<(), String> {
        let (end, mut again) = (Instant::now() + TIME_LIMIT, Instant::now() + AGAIN);
        while !done(&self.live) {
            if Instant::now() >= end {
                return Err(format!("the server does not say it: {what}"));
            }
            if !self.receive(Duration::from_millis(100))? && Instant::now() >= again {
                self.repeat(None)?;
                again = Instant::now() + AGAIN;
            }
        }
        Ok(())
    }

    /// Takes what comes for so long.
    fn listen(&mut self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.receive(left)?;
        }
        Ok(())
    }

    /// One packet of the server, acknowledged if it asks for that. False when none came.
    fn receive(&mut self, within: Duration) -> Result<bool, String> {
        let mut bytes = [0; 1 << 16];
        self.socket.set_read_timeout(Some(within)).map_err(|e| e.to_string())?;
        let (len, from) = match self.socket.recv_from(&mut bytes) {
            Ok(received) => received,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(e) => return Err(format!("cannot receive: {e}")),
        };
        let std::net::SocketAddr::V4(from) = from else { return Ok(true) };
        if *from.ip() != SERVER {
            return Ok(true);
        }
        let to = SocketAddrV4::new(HOST, ROCE_PORT);
        let packet =
            icrc::open(from, to, &bytes[..len]).ok_or("the server sent a packet with a wrong ICRC")?;
        let (at, effect) = self.live.receive(packet);
        match effect {
            PacketEffect::Packet { asks: true } => self.acknowledge(at)?,
            PacketEffect::Resend { psn, pause } => {
                if pause {
                    thread::sleep(NOT_READY);
                }
                self.repeat(Some(psn))?;
            }
            PacketEffect::Refused { syndrome } => {
                return Err(format!(
                    "connection {at}: the server refuses a request, syndrome {syndrome:#04x}"
                ));
            }
            _ => {}
        }
        Ok(true)
    }

    /// As a device does, with the bytes of a recorded acknowledgement.
    fn acknowledge(&self, at: usize) -> Result<(), String> {
        let connection = &self.live.connections[at];
        let mut packet = self.acknowledgement.clone().ok_or("the recorded host acknowledges nothing")?;
        put24(&mut packet, DEST_QP, connection.server_qpn);
        put24(&mut packet, PSN, connection.next.wrapping_sub(1) & PSN_MASK);
        put24(&mut packet, MSN, connection.count & PSN_MASK);
        self.send(&packet)
    }

    /// Sends again what was sent from a PSN on, or all that is not acknowledged.
    fn repeat(&self, from: Option<u32>) -> Result<(), String> {
        let Some(connection) = self.live.connections.last() else { return Ok(()) };
        let unacknowledged = connection.server_psn.wrapping_add(connection.acknowledged) & PSN_MASK;
        let from = from.unwrap_or(unacknowledged);
        let later = self.sent.iter().filter(|packet| psn_reached(be24(packet, PSN), from));
        later.into_iter().try_for_each(|packet| self.send(packet))
    }

    /// Ends a connection as the recorded host does.
    fn disconnect(&mut self, rest: &[Step], at: usize) -> Result<(), String> {
        let is_disconnect =
            |packet: &[u8]| packet[OPCODE] == UD_SEND_ONLY && fields::cm(&packet[BEFORE_MAD..]) == Cm::Dreq;
        let disconnect = rest.iter().find_map(|step| match step {
            Step::Host(packet) if is_disconnect(packet) => Some(packet),
            _ => None,
        });
        let Some(disconnect) = disconnect else { return Ok(()) };
        let is_over = |live: &Ends| {
            live.connections[at].output.mads.iter().any(|mad| matches!(fields::cm(mad), Cm::Dreq | Cm::Drep))
        };
        if !is_over(&self.live) {
            self.say(disconnect)?;
            self.until("the end of the connection", is_over)?;
        }
        Ok(())
    }
}
