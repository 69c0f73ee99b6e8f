//! The capture of NAAICE's library, connection by connection and message by message.

use std::{fs, net::IpAddr, path::Path};

use roce::{
    opcode::{self, Operation},
    psn::Psn,
    wire::{
        Packet,
        mad::{CmMessage as Cm, MAD_LEN, Mad, Req},
    },
};

use crate::compat::pcap::{self, Datagram};

/// A message of one side, which is what one work request sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) from_host: bool,
    /// The opcodes of its packets.
    pub(super) opcodes: Vec<u8>,
    /// Whether its last packet has the bit for a solicited event.
    pub(super) solicited: bool,
    pub(super) immediate: Option<u32>,
    /// Address, RKey and length of a WRITE.
    pub(super) target: Option<(u64, u32, u32)>,
    pub(super) bytes: Vec<u8>,
}

impl Message {
    fn begin(from_host: bool, packet: &Packet<'_>) -> Self {
        let target = packet.reth.map(|reth| (reth.addr, reth.rkey, reth.length));
        Self { from_host, opcodes: Vec::new(), solicited: false, immediate: None, target, bytes: Vec::new() }
    }

    fn add(&mut self, packet: &Packet<'_>) {
        self.opcodes.push(packet.bth.opcode);
        self.solicited = packet.bth.solicited;
        self.immediate = packet.imm;
        self.bytes.extend_from_slice(packet.payload);
    }

    pub(super) fn is_send(&self) -> bool {
        self.target.is_none()
    }

    /// A description of the message, with names of opcodes as the InfiniBand specification has them.
    pub(super) fn name(&self) -> String {
        let names = self.opcodes.iter().map(|code| opcode::info(*code).map_or("?", |info| info.name));
        let immediate = self.immediate.map_or_else(String::new, |immediate| format!(" imm {immediate:08x}"));
        let solicited = if self.solicited { " SE" } else { "" };
        format!("{}{immediate}{solicited}, {} bytes", names.collect::<Vec<_>>().join("+"), self.bytes.len())
    }
}

/// Puts packets of one direction together.
#[derive(Debug)]
pub(super) struct Assembler {
    from_host: bool,
    next: Psn,
    open: Option<Message>,
}

impl Assembler {
    pub(super) fn new(from_host: bool, first: Psn) -> Self {
        Self { from_host, next: first, open: None }
    }

    /// The last PSN that came.
    pub(super) fn last(&self) -> Psn {
        self.next.minus(1)
    }

    /// The message that this packet ends. Repeated packets and acknowledgements are none.
    pub(super) fn take(&mut self, packet: &Packet<'_>) -> Option<Message> {
        let info = opcode::info(packet.bth.opcode)?;
        let is_message = matches!(info.operation, Operation::Send | Operation::Write);
        if !is_message || packet.bth.psn != self.next {
            return None;
        }
        self.next = self.next.plus(1);
        let from_host = self.from_host;
        let message = self.open.get_or_insert_with(|| Message::begin(from_host, packet));
        message.add(packet);
        info.position.ends().then(|| self.open.take()).flatten()
    }
}

/// A connection of the capture.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) req: Req,
    pub(super) server_guid: u64,
    pub(super) messages: Vec<Message>,
}

/// A connection while it is read.
struct Reading {
    host: IpAddr,
    host_qpn: u32,
    server_qpn: u32,
    to_server: Assembler,
    to_host: Assembler,
    connection: Connection,
}

/// All connections of a capture, in the order of their REQs.
pub(super) fn connections(path: &Path) -> Result<Vec<Connection>, String> {
    let mut asked: Vec<(IpAddr, Req)> = Vec::new();
    let mut readings: Vec<Reading> = Vec::new();
    let file = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    for Datagram { from, payload, .. } in pcap::read(&file)? {
        let from = IpAddr::from(*from.ip());
        let Ok(packet) = Packet::decode(&payload) else { continue };
        if packet.deth.is_some() {
            let Ok(bytes) = <&[u8; MAD_LEN]>::try_from(packet.payload) else { continue };
            match Mad::decode(bytes).map(|mad| mad.message) {
                Ok(Cm::Req(req)) if !asked.iter().any(|(_, a)| a.local_comm_id == req.local_comm_id) => {
                    asked.push((from, req));
                }
                Ok(Cm::Rep(rep)) => {
                    let req = asked.iter().find(|(_, req)| req.local_comm_id == rep.ids.remote);
                    let (host, req) = req.ok_or("a REP without its REQ")?.clone();
                    if readings.iter().any(|r| r.connection.req.local_comm_id == req.local_comm_id) {
                        continue;
                    }
                    readings.push(Reading {
                        host,
                        host_qpn: req.qpn,
                        server_qpn: rep.qpn,
                        to_server: Assembler::new(true, rep.starting_psn),
                        to_host: Assembler::new(false, req.starting_psn),
                        connection: Connection { req, server_guid: rep.ca_guid, messages: Vec::new() },
                    });
                }
                _ => {}
            }
            continue;
        }
        // Numbers of queue pairs are the newest connection's.
        let reading = readings.iter_mut().rev().find(|r| {
            let to = if from == r.host { r.server_qpn } else { r.host_qpn };
            packet.bth.dest_qp == to
        });
        let Some(reading) = reading else { continue };
        let assembler = if from == reading.host { &mut reading.to_server } else { &mut reading.to_host };
        reading.connection.messages.extend(assembler.take(&packet));
    }
    Ok(readings.into_iter().map(|reading| reading.connection).collect())
}
