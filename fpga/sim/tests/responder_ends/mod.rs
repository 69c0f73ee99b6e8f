//! What stands at both ends of `responder_check`: requests go in, and decisions come out in the words of `roce::model`.

use std::collections::VecDeque;

use naa_fpga::{Device, Model, Rates};
use roce::{
    model::{self, Decision, PayloadLocation, Receive, Response},
    psn::Psn,
    wire::{Aeth, Reth},
};

/// The generation that the module gets for a generation of the model, which counts from 0. The module only compares generations, so that it may
/// get any number for each, and all bits are used.
pub(crate) fn tag(generation: u32) -> u32 {
    generation.wrapping_mul(0x9e37_79b9)
}

/// The inverse of [`tag`].
fn untag(tag: u32) -> u32 {
    tag.wrapping_mul(0x144c_bc89)
}

/// A request as the module gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) qp: u32,
    pub(crate) opcode: u8,
    pub(crate) ack_req: bool,
    pub(crate) psn: Psn,
    pub(crate) payload: u16,
    pub(crate) reth: Reth,
}

/// Gives requests to the module, and takes its decisions.
pub(crate) struct Ends {
    rates: [Rates; 2],
    pub(crate) requests: VecDeque<Request>,
    is_offering: bool,
    pub(crate) decisions: Vec<DecisionOutput>,
}

/// What the module said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionOutput {
    pub(crate) qp: u32,
    pub(crate) decision: Decision,
    pub(crate) duplicate: bool,
    pub(crate) gap: bool,
}

impl Ends {
    pub(crate) fn new(rates: [Rates; 2]) -> Self {
        Self { rates, requests: VecDeque::new(), is_offering: false, decisions: Vec::new() }
    }

    fn output(model: &Model) -> DecisionOutput {
        let get = |name: &str| model.get(model.port(name));
        let place = model::MemoryLocation {
            slot: get("decision_slot") as u32,
            generation: untag(get("decision_generation") as u32),
            offset: get("decision_offset"),
        };
        let (psn, msn) = (Psn::new(get("decision_psn") as u32), get("decision_msn") as u32);
        let length = get("decision_length") as u32;
        let response = match get("decision_reply") {
            0 => None,
            1 => Some(Response::Ack { psn, syndrome: syndrome(get("decision_syndrome") as u8), msn }),
            reply => Some(Response::Read {
                psn,
                packets: get("decision_packets") as u32,
                msn,
                source: (length > 0).then_some(place),
                length,
                repeated: reply == 3,
            }),
        };
        let placed = match get("decision_place") {
            0 => None,
            1 => Some(PayloadLocation::Region(place)),
            _ => Some(PayloadLocation::Receive(place.offset)),
        };
        let receive = match get("decision_completion") {
            0 => None,
            1 => Some(Receive::Done(length)),
            2 => Some(Receive::DoneByWrite(length)),
            _ => Some(Receive::Failed),
        };
        let failed = get("decision_failed") == 1;
        DecisionOutput {
            qp: get("decision_qp") as u32,
            decision: Decision { response, placed, receive, failed, reads_dropped: 0 },
            duplicate: get("decision_duplicate") == 1,
            gap: get("decision_gap") == 1,
        }
    }
}

fn syndrome(byte: u8) -> roce::wire::Syndrome {
    Aeth::decode(&[byte, 0, 0, 0]).syndrome
}

impl Device for Ends {
    fn drive(&mut self, model: &mut Model) {
        let ready = !self.rates[1].is_idle();
        model.set(model.port("decision_ready"), ready.into());
        if self.is_offering {
            return;
        }
        let request = self.requests.front().filter(|_| !self.rates[0].is_idle());
        model.set(model.port("packet_valid"), request.is_some().into());
        let Some(request) = request else { return };
        self.is_offering = true;
        for (name, value) in [
            ("packet_qp", request.qp.into()),
            ("packet_opcode", request.opcode.into()),
            ("packet_ack_req", request.ack_req.into()),
            ("packet_psn", request.psn.value().into()),
            ("packet_payload", request.payload.into()),
            ("packet_address", request.reth.addr),
            ("packet_rkey", request.reth.rkey.into()),
            ("packet_length", request.reth.length.into()),
        ] {
            model.set(model.port(name), value);
        }
    }

    fn sample(&mut self, model: &Model) {
        let is_handed = |valid, ready| model.get(model.port(valid)) == 1 && model.get(model.port(ready)) == 1;
        if self.is_offering && is_handed("packet_valid", "packet_ready") {
            self.is_offering = false;
            self.requests.pop_front();
        }
        if is_handed("decision_valid", "decision_ready") {
            self.decisions.push(Self::output(model));
        }
    }
}
