//! The responder packet by packet, as hardware has it: what is decided on each request, without sending and without memory.
//!
//! RTL of a responder is compared with this. It is the responder of every queue pair, with receives of one length for each queue
//! pair, and with RKeys whose low bits are the region's slot. Packets that answer requests are not for it.

use std::collections::{BTreeMap, VecDeque};

use smallvec::smallvec;
use verbs::{Access, Error, MrKeys, PdId, QpNum, WcOpcode, WcStatus};

use super::{
    RecvWqe, SgeRef, Shared,
    reply::Reply,
    responder::{Context, Responder},
};
use crate::{
    config::{Config, RKeys},
    counters::Counters,
    entropy::Entropy,
    id_map::IdMap,
    memory::{Memory, RegionId},
    mr_table::{MrRef, MrTable, Want},
    opcode,
    psn::Psn,
    wire::{Packet, Syndrome},
};

/// Where bytes are in a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub slot: u32,
    /// Another one each time that a slot is used again.
    pub generation: u32,
    pub offset: u64,
}

/// What is sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Ack {
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    },
    /// The bytes of a READ, or of one that was executed before and is asked for `again`.
    Read {
        psn: Psn,
        /// PSNs that the answer takes.
        packets: u32,
        msn: u32,
        /// `None` for a READ of no bytes.
        source: Option<Place>,
        length: u32,
        again: bool,
    },
}

/// Where the payload of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    Region(Place),
    /// Into the receive that the message took, from this byte on.
    Receive(u64),
}

/// What becomes of a posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// A SEND of so many bytes is in it.
    Done(u32),
    /// A WRITE of so many bytes with immediate data took it.
    DoneByWrite(u32),
    /// The SEND that took it failed.
    Failed,
}

/// What a responder decides on one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub answer: Option<Answer>,
    pub placed: Option<Placed>,
    pub receive: Option<Receive>,
    /// The connection is lost.
    pub failed: bool,
    /// READs that nobody waits for any more, because an earlier one was asked for again.
    pub reads_dropped: usize,
}

/// A queue pair's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub psn: Psn,
    pub pd: PdId,
    pub mtu: u32,
    /// READs that may be unanswered at a time.
    pub reads: u8,
    /// Bytes of each receive.
    pub receive: u32,
}

#[derive(Debug)]
struct ModelQp {
    settings: Settings,
    /// `None` since the connection was lost.
    responder: Option<Responder>,
    receives: VecDeque<RecvWqe>,
}

/// Notes where a payload went.
#[derive(Debug, Default)]
struct Places(Option<(RegionId, u64)>);

impl Memory for Places {
    fn place(&mut self, region: RegionId, offset: u64, _: &[u8]) {
        self.0 = Some((region, offset));
    }
}

/// Responders of several queue pairs, and the memory regions that they share.
#[derive(Debug)]
pub struct Model {
    shared: Shared,
    /// All receives are in this region, which no peer may access.
    receives: MrRef,
    qps: BTreeMap<u32, ModelQp>,
}

impl Model {
    /// `slot_bits` of an RKey are the region's slot. Slot 0 is taken.
    pub fn new(slot_bits: u8, entropy: &mut dyn Entropy) -> Result<Self, Error> {
        let config = Config { rkeys: RKeys::WithSlot { bits: slot_bits }, ..Config::default() };
        let mut mrs = MrTable::new(config.rkeys);
        let pd = PdId(u32::MAX);
        let local = Access { local_write: true, ..Access::default() };
        let (keys, _) = mrs.insert(pd, 0, u64::MAX, local, entropy)?;
        let found = mrs.local(keys.lkey, pd, 0, 0, Want::LocalWrite);
        let receives = found.ok_or(Error::Invalid("the region of receives is there"))?.0;
        let shared =
            Shared { config, mrs, cqs: IdMap::default(), counters: Counters::default(), done: Vec::new() };
        Ok(Self { shared, receives, qps: BTreeMap::new() })
    }

    /// The timer code of RNR NAKs.
    pub fn rnr_timer(&self) -> u8 {
        self.shared.config.rnr_timer
    }

    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Registers a memory region. Returns its keys and where it begins.
    pub fn register(
        &mut self,
        pd: PdId,
        address: u64,
        length: u64,
        access: Access,
        entropy: &mut dyn Entropy,
    ) -> Result<(MrKeys, Place), Error> {
        let (keys, _) = self.shared.mrs.insert(pd, address, length, access, entropy)?;
        let found = self.shared.mrs.local(keys.lkey, pd, address, 0, Want::LocalRead);
        let (region, offset) = found.ok_or(Error::Invalid("a region begins inside of itself"))?;
        Ok((keys, place(region, offset)))
    }

    pub fn release(&mut self, keys: MrKeys) {
        self.shared.mrs.remove(keys.lkey);
    }

    /// Changes what a region permits.
    pub fn set_access(&mut self, keys: MrKeys, access: Access) -> Result<(), Error> {
        self.shared.mrs.set_access(keys.lkey, access)
    }

    /// Makes a queue pair, in the place of one with the same number.
    pub fn connect(&mut self, qp: u32, settings: Settings) {
        let responder = Some(Responder::new(settings.psn, settings.reads));
        self.qps.insert(qp, ModelQp { settings, responder, receives: VecDeque::new() });
    }

    /// Posts a receive.
    pub fn post(&mut self, qp: u32) {
        let Some(qp) = self.qps.get_mut(&qp) else { return };
        let len = qp.settings.receive;
        let sges = smallvec![SgeRef { mr: self.receives, offset: 0, len }];
        qp.receives.push_back(RecvWqe { wr_id: 0, sges, len: len.into() });
    }

    /// The oldest READ is answered. True if it counts among those that a queue pair may have unanswered.
    pub fn read_done(&mut self, qp: u32) -> bool {
        let responder = self.qps.get_mut(&qp).and_then(|qp| qp.responder.as_mut());
        responder.is_some_and(|responder| responder.replies.finish_oldest())
    }

    /// Decides on a request. `None` if the queue pair is not connected, or the opcode is none that this stack knows.
    pub fn packet(&mut self, qp: u32, packet: &Packet<'_>) -> Option<Decision> {
        let info = opcode::info(packet.bth.opcode)?;
        let ModelQp { settings, responder, receives } = self.qps.get_mut(&qp)?;
        let Settings { pd, mtu, .. } = *settings;
        let judge = responder.as_mut()?;
        let reads = judge.replies.reads();
        let mut places = Places::default();
        let mut context =
            Context { qp: QpNum(qp), pd, mtu, rq: receives, shared: &mut self.shared, memory: &mut places };
        let outcome = judge.handle(&info, packet, &mut context);
        let answer = judge.replies.take_newest().map(answer);
        let begun = usize::from(matches!(answer, Some(Answer::Read { again: false, .. })));
        let reads_dropped = reads + begun - judge.replies.reads();
        let placed = places.0.map(|(region, offset)| {
            let receives = self.receives;
            if region == RegionId(receives.slot) {
                return Placed::Receive(offset);
            }
            let generation = self.shared.mrs.generation(region);
            Placed::Region(Place { slot: region.0, generation, offset })
        });
        let receive = outcome.completion.map(|wc| match (wc.status, wc.opcode) {
            (WcStatus::Success, WcOpcode::RecvWriteWithImm) => Receive::DoneByWrite(wc.byte_len),
            (WcStatus::Success, _) => Receive::Done(wc.byte_len),
            _ => Receive::Failed,
        });
        if outcome.failed {
            *responder = None;
        }
        Some(Decision { answer, placed, receive, failed: outcome.failed, reads_dropped })
    }
}

fn place(region: MrRef, offset: u64) -> Place {
    Place { slot: region.slot, generation: region.generation, offset }
}

fn answer(reply: Reply) -> Answer {
    match reply {
        Reply::Ack { psn, syndrome, msn } => Answer::Ack { psn, syndrome, msn },
        Reply::Read { psn, packets, source, len, msn, repeated, .. } => {
            let source = source.map(|(region, offset)| place(region, offset));
            Answer::Read { psn, packets, msn, source, length: len, again: repeated }
        }
    }
}
