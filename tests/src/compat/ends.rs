//! What the server says on each connection, put together from its packets. A recording and a replay each have one of
//! these; the connections of both have the same places, because the host's requests are the same bytes.

use super::fields::{
    self, ACK_REQUEST, ACKNOWLEDGE, BEFORE_MAD, Cm, DEST_QP, LOCAL_COMM_ID, MAD, OPCODE, PSN, REMOTE_COMM_ID,
    REP_PSN, REP_QPN, REQ_PSN, REQ_QPN, SYNDROME, UD_SEND_ONLY, WRITE_ONLY, be24, be32, be64, psn_reached,
    psn_since,
};

/// Highest value of a syndrome that acknowledges.
const LAST_ACK: u8 = 0x1f;
/// The next three bits of the syndrome of a receiver that is not ready.
const RNR: u8 = 1;
/// A NAK that asks for the packets from its PSN on.
const NAK_SEQUENCE: u8 = 0x60;

/// The type byte of MRSP's advertisement, and the bytes of its header and of each entry.
pub(super) const ADVERTISEMENT: u8 = 2;
pub(super) const MRSP_HEADER: usize = 4;
pub(super) const ADVERTISED: usize = 16;

/// One SEND or WRITE of the server: its packets without their ICRCs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) packets: Vec<Vec<u8>>,
}

impl Message {
    pub(super) fn payload(&self) -> Vec<u8> {
        self.packets.iter().map(|packet| fields::split(packet).1).collect::<Vec<_>>().concat()
    }

    fn is_send(&self) -> bool {
        self.packets.first().is_some_and(|packet| !fields::has_reth(packet[OPCODE]))
    }

    /// A host and a server find out with it whether the other one is alive.
    fn is_probe(&self) -> bool {
        self.packets.len() == 1 && self.packets[0][OPCODE] == WRITE_ONLY && self.payload().is_empty()
    }

    /// Whether it is an advertisement of MRSP, whose addresses and keys a server chooses.
    pub(super) fn is_advertisement(&self) -> bool {
        let first = self.packets.first().filter(|_| self.is_send()).map(|packet| fields::split(packet).1);
        first.is_some_and(|payload| payload.len() >= MRSP_HEADER && payload[0] == ADVERTISEMENT)
    }

    pub(super) fn name(&self) -> String {
        let opcodes = self.packets.iter().map(|packet| fields::opcode_name(packet[OPCODE]));
        format!("{}, {} bytes", opcodes.collect::<Vec<_>>().join(" + "), self.payload().len())
    }
}

/// What a server said on one connection, as far as it is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerOutput {
    /// Datagrams of connection management, 256 bytes each.
    pub(super) mads: Vec<Vec<u8>>,
    pub(super) messages: Vec<Message>,
}

/// A region that the server advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) address: u64,
    pub(super) rkey: u32,
    pub(super) size: u32,
}

/// A connection with the numbers that both sides chose.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    pub(super) host_comm_id: u32,
    host_qpn: u32,
    pub(super) server_comm_id: u32,
    pub(super) server_qpn: u32,
    /// The first PSN of the host.
    pub(super) server_psn: u32,
    /// The PSN of the server that comes next.
    pub(super) next: u32,
    /// Messages that came whole.
    pub(super) count: u32,
    /// Packets of the host that are acknowledged.
    pub(super) acknowledged: u32,
    open: Message,
    pub(super) regions: Vec<Region>,
    pub(super) output: ServerOutput,
}

/// What a packet of the server changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketEffect {
    /// Repeated, or of no connection here.
    Nothing,
    Mad,
    /// A packet of a message. `asks`: it wants an acknowledgement.
    Packet {
        asks: bool,
    },
    Acknowledged,
    /// The host is to send again from this PSN on.
    Resend {
        psn: u32,
        /// The server was not ready, so there is to be a pause.
        pause: bool,
    },
    Refused {
        syndrome: u8,
    },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    pub(super) connections: Vec<Connection>,
}

impl Ends {
    /// A REQ of the host begins a connection. False when it repeats one.
    pub(super) fn request(&mut self, mad: &[u8]) -> bool {
        let host_comm_id = be32(mad, LOCAL_COMM_ID);
        if self.of_comm_id(host_comm_id).is_some() {
            return false;
        }
        self.connections.push(Connection {
            host_comm_id,
            host_qpn: be24(mad, REQ_QPN),
            next: be24(mad, REQ_PSN),
            ..Connection::default()
        });
        true
    }

    pub(super) fn of_comm_id(&self, host_comm_id: u32) -> Option<usize> {
        self.connections.iter().position(|connection| connection.host_comm_id == host_comm_id)
    }

    /// The connection that a packet of the host is for.
    pub(super) fn of_server_qpn(&self, qpn: u32) -> Option<usize> {
        self.connections.iter().rposition(|connection| connection.server_qpn == qpn)
    }

    /// A packet of the server without its ICRC; which connection it is of, and what it changed.
    pub(super) fn receive(&mut self, packet: &[u8]) -> (usize, PacketEffect) {
        if !fields::is_whole(packet) {
            return (0, PacketEffect::Nothing);
        }
        if packet[OPCODE] == UD_SEND_ONLY {
            return self.receive_mad(&packet[BEFORE_MAD..]);
        }
        let qpn = be24(packet, DEST_QP);
        let found = self.connections.iter_mut().enumerate().rev().find(|(_, c)| c.host_qpn == qpn);
        let Some((at, connection)) = found else { return (0, PacketEffect::Nothing) };
        (at, connection.receive(packet))
    }

    fn receive_mad(&mut self, mad: &[u8]) -> (usize, PacketEffect) {
        let kind = fields::cm(mad);
        if matches!(kind, Cm::Other(_)) {
            return (0, PacketEffect::Nothing);
        }
        let Some(at) = self.of_comm_id(be32(mad, REMOTE_COMM_ID)) else { return (0, PacketEffect::Nothing) };
        let connection = &mut self.connections[at];
        if connection.output.mads.iter().any(|known| fields::cm(known) == kind) {
            return (at, PacketEffect::Nothing);
        }
        if kind == Cm::Rep {
            connection.server_comm_id = be32(mad, LOCAL_COMM_ID);
            connection.server_qpn = be24(mad, REP_QPN);
            connection.server_psn = be24(mad, REP_PSN);
        }
        connection.output.mads.push(mad[..MAD].to_vec());
        (at, PacketEffect::Mad)
    }
}

impl Connection {
    fn receive(&mut self, packet: &[u8]) -> PacketEffect {
        let (opcode, psn) = (packet[OPCODE], be24(packet, PSN));
        if opcode == ACKNOWLEDGE {
            return self.receive_acknowledgement(psn, packet[SYNDROME]);
        }
        let asks = packet[ACK_REQUEST] & 0x80 != 0;
        if psn != self.next || !fields::is_message(opcode) {
            // A repeated packet is acknowledged again.
            return if asks && !psn_reached(psn, self.next) {
                PacketEffect::Packet { asks }
            } else {
                PacketEffect::Nothing
            };
        }
        self.next = (self.next + 1) & fields::PSN_MASK;
        if fields::begins(opcode) {
            self.open = Message::default();
        }
        self.open.packets.push(packet.to_vec());
        if fields::ends(opcode) {
            self.end_message();
        }
        PacketEffect::Packet { asks }
    }

    fn end_message(&mut self) {
        let message = std::mem::take(&mut self.open);
        self.count += 1;
        if message.is_probe() {
            return;
        }
        if message.is_advertisement() {
            let entries = message.payload();
            let region = |entry: &[u8]| Region {
                address: be64(entry, 0),
                rkey: be32(entry, 8),
                size: be32(entry, 12),
            };
            self.regions = entries[MRSP_HEADER..].chunks_exact(ADVERTISED).map(region).collect();
        }
        self.output.messages.push(message);
    }

    fn receive_acknowledgement(&mut self, psn: u32, syndrome: u8) -> PacketEffect {
        let known = psn_since(psn, self.server_psn);
        match syndrome {
            ..=LAST_ACK => {
                // A PSN before the first one belongs to another connection.
                if known < 1 << 23 {
                    self.acknowledged = self.acknowledged.max(known + 1);
                }
                PacketEffect::Acknowledged
            }
            NAK_SEQUENCE => PacketEffect::Resend { psn, pause: false },
            _ if syndrome >> 5 == RNR => PacketEffect::Resend { psn, pause: true },
            _ => PacketEffect::Refused { syndrome },
        }
    }
}
