//! Look-ups in a table of memory regions, as the responder makes them for each WRITE.

use std::hint::black_box;

use roce::{
    model::{Decision, Model, PayloadLocation, QpConfig},
    opcode,
    psn::Psn,
    wire::{Bth, Packet, Reth},
};
use verbs::{Access, PdId};

use crate::numbers::Numbers;

const QP: u32 = 7;
const PD: PdId = PdId(1);
const PAYLOAD: [u8; 64] = [0x5a; 64];

/// A responder that decides on one WRITE after the other, each to a region drawn at random. Nothing is checked or placed but the
/// header, so a look-up is the largest part of it.
#[derive(Debug)]
pub struct Regions {
    model: Model,
    /// Address and RKey of each region, in the order in which they are written.
    order: Vec<(u64, u32)>,
    next: usize,
    psn: Psn,
}

impl Regions {
    /// A table of so many regions, at most 65536. `None` if they do not fit.
    pub fn new(count: usize) -> Option<Self> {
        let mut numbers = Numbers(1);
        let mut model = Model::new(17, &mut numbers).ok()?;
        let mut order = Vec::with_capacity(count);
        for at in 0..count as u64 {
            let address = (at + 1) << 20;
            let (keys, _) = model.register(PD, address, 4096, Access::ALL, &mut numbers).ok()?;
            order.push((address, keys.rkey));
        }
        for at in 1..count {
            order.swap(at, numbers.below(at + 1));
        }
        let psn = Psn::new(0);
        model.connect(QP, QpConfig { psn, pd: PD, mtu: 4096, reads: 1, receive: 64 });
        Some(Self { model, order, next: 0, psn })
    }

    /// Decides on a WRITE of 64 bytes to the next region. `None` if it is refused.
    pub fn write(&mut self) -> Option<()> {
        self.next = if self.next + 1 == self.order.len() { 0 } else { self.next + 1 };
        let (addr, rkey) = self.order[self.next];
        let packet = Packet {
            bth: Bth { opcode: opcode::WRITE_ONLY, psn: self.psn, ack_req: true, ..Bth::default() },
            reth: Some(Reth { addr, rkey, length: PAYLOAD.len() as u32 }),
            payload: &PAYLOAD,
            ..Packet::default()
        };
        self.psn = self.psn.plus(1);
        let Decision { placed, .. } = black_box(self.model.packet(QP, black_box(&packet))?);
        matches!(placed, Some(PayloadLocation::Region(_))).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_finds_its_region() {
        for count in [1, 3, 1000] {
            let mut regions = Regions::new(count).unwrap();
            (0..2 * count).for_each(|_| regions.write().unwrap());
        }
    }
}
