//! A model of the responder: for each request packet, the model returns the responder's decision. The model sends no
//! packets and has no memory for payload.
//!
//! Tests compare a responder in hardware with this model. The model's decisions come from the same code that runs in
//! each queue pair. In the model, all receives of a queue pair have the same length, and the low bits of an RKey are
//! the region's index in the table of memory regions. The model handles request packets only, no response packets.

use std::collections::{BTreeMap, VecDeque};

use smallvec::smallvec;
use verbs::{Access, Error, MrKeys, PdId, QpNum, WcOpcode, WcStatus};

use super::{
    DeviceTables, RecvWqe, SgeRef,
    responder::{QpParts, Responder},
    response::PendingResponse,
};
use crate::{
    config::{Config, RKeys},
    counters::Counters,
    entropy::Entropy,
    memory::{RegionId, RegionWriter},
    mr_table::{MrRef, Want},
    opcode,
    psn::Psn,
    refusal::RefusalCause,
    wire::{NakCode, Packet, Syndrome},
};

/// The position of a byte in a memory region: the region and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLocation {
    /// The slot of the memory region: its index in the table of memory regions, and the low bits of its RKey.
    pub slot: u32,
    /// The generation of the memory region: a number by which a region differs from earlier regions with the same slot.
    pub generation: u32,
    /// The offset in the memory region, in bytes.
    pub offset: u64,
}

/// The response of the responder to a request packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// An ACK, NAK or RNR NAK.
    Ack {
        /// The PSN in the BTH of the response.
        psn: Psn,
        /// The kind of the response: ACK, RNR NAK, or NAK with its code.
        syndrome: Syndrome,
        /// The message sequence number: the number of messages that were executed, modulo 2^24.
        msn: u32,
    },
    /// The response to a READ. `repeated` is true if the READ was executed before and the peer has repeated its
    /// request.
    Read {
        /// The PSN of the first response packet.
        psn: Psn,
        /// The number of response packets.
        packets: u32,
        /// The message sequence number: the number of messages that were executed, modulo 2^24.
        msn: u32,
        /// The location of the first byte to be read; `None` for a READ of no bytes.
        source: Option<MemoryLocation>,
        /// The number of bytes to be read.
        length: u32,
        /// True if the READ was executed before and the peer has repeated its request.
        repeated: bool,
    },
}

/// The location to which the payload of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadLocation {
    /// The payload goes to a memory region of the application.
    Region(MemoryLocation),
    /// The payload goes to the posted receive that the message uses. The value is the offset of the payload in the
    /// posted receive.
    Receive(u64),
}

/// The effect of a packet on a posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// A SEND is complete and has used up the receive. The value is the number of bytes of the SEND.
    Done(u32),
    /// A WRITE with an immediate is complete and has used up the receive. The value is the number of bytes of the
    /// WRITE.
    DoneByWrite(u32),
    /// The SEND that took the receive failed.
    Failed,
}

/// The responder's decision on one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The response that the packet causes; `None` if the packet causes no response.
    pub response: Option<Response>,
    /// The location to which the packet's payload goes; `None` if no payload is stored.
    pub placed: Option<PayloadLocation>,
    /// The effect on a posted receive; `None` if the packet completes no receive.
    pub receive: Option<Receive>,
    /// True if the packet ends the connection with an error.
    pub failed: bool,
    /// The number of waiting READ responses that the responder dropped because of the packet. The responder drops READ
    /// responses only if a READ request is repeated: it drops the waiting responses whose PSNs overlap the PSNs of the
    /// repeated READ. A dropped response is not counted if it was itself the response to a repeated READ request.
    pub reads_dropped: usize,
}

/// The settings of a new queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// The PSN that the responder expects first.
    pub psn: Psn,
    /// The protection domain; the queue pair reaches only regions of this domain.
    pub pd: PdId,
    /// The path MTU in bytes.
    pub mtu: u32,
    /// The maximum number of READs that the peer may have outstanding.
    pub reads: u8,
    /// The length in bytes of each receive that is posted.
    pub receive: u32,
}

#[derive(Debug)]
struct ModelQp {
    config: QpConfig,
    /// The responder; `None` after a packet has ended the connection with an error.
    responder: Option<Responder>,
    receives: VecDeque<RecvWqe>,
}

/// A [`RegionWriter`] that stores no payload, but only the region and the offset of the last payload.
#[derive(Debug, Default)]
struct LastWrite(Option<(RegionId, u64)>);

impl RegionWriter for LastWrite {
    fn write(&mut self, region: RegionId, offset: u64, _: &[u8]) {
        self.0 = Some((region, offset));
    }
}

/// The responders of several queue pairs, and the memory regions that they share.
#[derive(Debug)]
pub struct Model {
    shared: DeviceTables,
    /// The memory region in which the buffers of all posted receives lie. Only the payload of SENDs can go to this
    /// region, because its access rights permit no WRITE or READ of a peer.
    receives: MrRef,
    qps: BTreeMap<u32, ModelQp>,
}

impl Model {
    /// Makes a model without queue pairs. The low `slot_bits` bits of an RKey are the region's slot, which is its index
    /// in the table of memory regions. The buffers of all posted receives lie in one memory region, which has slot 0.
    pub fn new(slot_bits: u8, entropy: &mut dyn Entropy) -> Result<Self, Error> {
        let config = Config { rkeys: RKeys::WithSlot { bits: slot_bits }, ..Config::default() };
        let mut shared = DeviceTables::new(config);
        let pd = PdId(u32::MAX);
        let local = Access { local_write: true, ..Access::default() };
        let (keys, _) = shared.mrs.insert(pd, 0, u64::MAX, local, entropy)?;
        let found = shared.mrs.local(keys.lkey, pd, 0, 0, Want::LocalWrite);
        let receives = found.ok_or(Error::Invalid("the region of receives is there"))?.0;
        Ok(Self { shared, receives, qps: BTreeMap::new() })
    }

    /// Returns the timer code that the responders send in RNR NAKs.
    pub fn rnr_timer(&self) -> u8 {
        self.shared.config.rnr_timer
    }

    /// Returns the counters of all queue pairs of the model together.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Registers a memory region. Returns the keys of the region and the location of its first byte.
    ///
    /// # Errors
    /// Fails with [`Error::Exhausted`] if all slots of the table of memory regions are in use.
    pub fn register(
        &mut self,
        pd: PdId,
        address: u64,
        length: u64,
        access: Access,
        entropy: &mut dyn Entropy,
    ) -> Result<(MrKeys, MemoryLocation), Error> {
        let (keys, _) = self.shared.mrs.insert(pd, address, length, access, entropy)?;
        let found = self.shared.mrs.local(keys.lkey, pd, address, 0, Want::LocalRead);
        let (region, offset) = found.ok_or(Error::Invalid("a region begins inside of itself"))?;
        Ok((keys, location(region, offset)))
    }

    /// Deregisters the region with the keys `keys`. If no region has the keys, nothing changes.
    pub fn release(&mut self, keys: MrKeys) {
        self.shared.mrs.remove(keys.lkey);
    }

    /// Changes the access rights of a region.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if no region has the keys, and with [`Error::Invalid`] if `access` has a right
    /// with which the region was not registered.
    pub fn set_access(&mut self, keys: MrKeys, access: Access) -> Result<(), Error> {
        self.shared.mrs.set_access(keys.lkey, access)
    }

    /// Makes the queue pair `qp`. If the model already has a queue pair with the number `qp`, the new queue pair
    /// replaces the old one.
    pub fn connect(&mut self, qp: u32, config: QpConfig) {
        let responder = Some(Responder::new(config.psn, config.reads));
        self.qps.insert(qp, ModelQp { config, responder, receives: VecDeque::new() });
    }

    /// Posts a receive to the queue pair `qp`.
    pub fn post(&mut self, qp: u32) {
        let Some(qp) = self.qps.get_mut(&qp) else { return };
        let len = qp.config.receive;
        let sges = smallvec![SgeRef { mr: self.receives, offset: 0, len }];
        qp.receives.push_back(RecvWqe { wr_id: 0, sges, len: len.into() });
    }

    /// Notes that the last response packet of the oldest READ was sent. Returns true if the READ counted towards the
    /// maximum number of outstanding READs ([`QpConfig::reads`]). Returns false if the READ repeated an earlier READ,
    /// because repeated READs do not count.
    pub fn read_done(&mut self, qp: u32) -> bool {
        let responder = self.qps.get_mut(&qp).and_then(|qp| qp.responder.as_mut());
        responder.is_some_and(|responder| responder.responses.finish_oldest())
    }

    /// Returns the responder's decision on the request packet `packet`. Returns `None` if the model has no queue pair
    /// `qp`, if an earlier packet ended the connection with an error, or if this stack does not know the opcode.
    pub fn packet(&mut self, qp: u32, packet: &Packet<'_>) -> Option<Decision> {
        let info = opcode::info(packet.bth.opcode)?;
        let ModelQp { config, responder, receives } = self.qps.get_mut(&qp)?;
        let QpConfig { pd, mtu, .. } = *config;
        let active = responder.as_mut()?;
        let reads = active.responses.reads();
        let mut last_write = LastWrite::default();
        let (shared, memory) = (&mut self.shared, &mut last_write);
        let mut parts = QpParts { qp: QpNum(qp), pd, mtu, rq: receives, shared, memory };
        let outcome = active.handle(&info, packet, &mut parts);
        let failed = outcome.refused.is_some_and(RefusalCause::is_fatal);
        if let Some(cause) = outcome.refused {
            cause.count(&mut self.shared.counters);
        }
        let response = active.responses.take_newest().map(response);
        let begun = usize::from(matches!(response, Some(Response::Read { repeated: false, .. })));
        let reads_dropped = reads + begun - active.responses.reads();
        let placed = last_write.0.map(|(region, offset)| {
            let receives = self.receives;
            if region == RegionId(receives.slot) {
                return PayloadLocation::Receive(offset);
            }
            let generation = self.shared.mrs.generation(region);
            PayloadLocation::Region(MemoryLocation { slot: region.0, generation, offset })
        });
        let receive = outcome.completion.map(|wc| match (wc.status, wc.opcode) {
            (WcStatus::Success, WcOpcode::RecvWriteWithImm) => Receive::DoneByWrite(wc.byte_len),
            (WcStatus::Success, _) => Receive::Done(wc.byte_len),
            _ => Receive::Failed,
        });
        if failed {
            *responder = None;
        }
        Some(Decision { response, placed, receive, failed, reads_dropped })
    }
}

fn location(region: MrRef, offset: u64) -> MemoryLocation {
    MemoryLocation { slot: region.slot, generation: region.generation, offset }
}

fn response(pending: PendingResponse) -> Response {
    match pending {
        PendingResponse::Ack { psn, syndrome, msn } => Response::Ack { psn, syndrome, msn },
        PendingResponse::SequenceNak { psn, msn, .. } => {
            Response::Ack { psn, syndrome: Syndrome::Nak(NakCode::PsnSequence), msn }
        }
        PendingResponse::Read { psn, packets, source, len, msn, repeated, .. } => {
            let source = source.map(|(region, offset)| location(region, offset));
            Response::Read { psn, packets, msn, source, length: len, repeated }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::tests::Counting;
    use crate::wire::{Bth, Reth};

    #[test]
    fn responders_of_a_model_send_the_default_rnr_timer() {
        assert_eq!(Model::new(4, &mut Counting(0)).unwrap().rnr_timer(), Config::default().rnr_timer);
    }

    #[test]
    fn a_read_that_is_requested_again_drops_its_unanswered_reply() {
        let (mut entropy, pd) = (Counting(0), PdId(1));
        let mut model = Model::new(8, &mut entropy).unwrap();
        let (keys, first) = model.register(pd, 0x1000, 4096, Access::ALL, &mut entropy).unwrap();
        model.connect(7, QpConfig { psn: Psn::new(10), pd, mtu: 1024, reads: 4, receive: 64 });
        let mut read = |psn, addr, length| {
            let bth = Bth { opcode: opcode::READ_REQUEST, psn: Psn::new(psn), ..Bth::default() };
            let reth = Some(Reth { addr, rkey: keys.rkey, length });
            model.packet(7, &Packet { bth, reth, ..Packet::default() }).unwrap()
        };
        let of = |decision: Decision| match decision.response {
            Some(Response::Read { psn, packets, source, repeated, .. }) => {
                (psn.value(), packets, source.unwrap().offset, repeated, decision.reads_dropped)
            }
            other => panic!("no READ response: {other:?}"),
        };
        assert_eq!(of(read(10, 0x1000, 2048)), (10, 2, first.offset, false, 0));
        assert_eq!(of(read(12, 0x1800, 100)), (12, 1, first.offset + 0x800, false, 0));
        assert_eq!(of(read(10, 0x1000, 2048)), (10, 2, first.offset, true, 1));
    }
}
