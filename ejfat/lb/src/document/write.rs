//! Rules to a document.

use std::collections::BTreeMap;

use ejfat::{
    lb::{Epoch, LbId, Member, Rule, Rules, TickPrefix},
    segment::IpVersion,
};

use super::{Document, Drop, EpochDocument, Ip, Lb, MemberDocument, calendar};

pub(super) fn document(rules: &Rules) -> Document {
    let mut all: BTreeMap<LbId, Gathered> = BTreeMap::new();
    for rule in rules.iter() {
        match rule {
            Rule::Destination { address, lb } => all.entry(lb).or_default().lb.addresses.push(address),
            Rule::Source { lb, address } => all.entry(lb).or_default().lb.senders.push(address),
            Rule::Epoch { lb, ticks, epoch } => all.entry(lb).or_default().ticks(ticks, epoch),
            Rule::Slot { lb, epoch, slot, member } => all.entry(lb).or_default().slot(epoch, slot, member),
            Rule::Member { lb, ip, id, member } => {
                all.entry(lb).or_default().lb.members.push(member_document(ip, id, member));
            }
        }
    }
    Document { load_balancers: all.into_iter().map(|(lb, gathered)| gathered.finish(lb)).collect() }
}

#[derive(Default)]
struct Gathered {
    lb: Lb,
    epochs: BTreeMap<(u32, u8, u16), Vec<String>>,
    calendars: BTreeMap<u32, Vec<Option<u16>>>,
}

impl Gathered {
    fn ticks(&mut self, ticks: TickPrefix, epoch: Epoch) {
        let text = match ticks.length() {
            0 => "all".into(),
            length => format!("{:#x}/{length}", ticks.first()),
        };
        self.epochs.entry((epoch.id, epoch.slot_bits, epoch.xor)).or_default().push(text);
    }

    /// Adds a calendar slot. The slots of an epoch must be added in ascending order.
    fn slot(&mut self, epoch: u32, slot: u16, member: u16) {
        let slots = self.calendars.entry(epoch).or_default();
        slots.resize(slot.into(), None);
        slots.push(Some(member));
    }

    fn finish(mut self, lb: LbId) -> Lb {
        self.lb.lb = lb.get();
        // Slots without a member are written as `-`. Otherwise a reader would take them for forgotten.
        for &(id, slot_bits, _) in self.epochs.keys() {
            fill(self.calendars.entry(id).or_default(), slot_bits);
        }
        for ((id, slot_bits, xor), ticks) in self.epochs {
            let calendar = self.calendars.remove(&id).map(|slots| calendar::print(&slots));
            let calendar = calendar.unwrap_or_default();
            self.lb.epochs.push(EpochDocument { id, ticks, slot_bits, xor, calendar });
        }
        // The remaining calendars are of epochs that no tick leads to.
        for (id, mut slots) in self.calendars {
            let Epoch { slot_bits, xor, .. } = Epoch::new(id);
            fill(&mut slots, slot_bits);
            let calendar = calendar::print(&slots);
            self.lb.epochs.push(EpochDocument { id, ticks: Vec::new(), slot_bits, xor, calendar });
        }
        self.lb
    }
}

fn fill(slots: &mut Vec<Option<u16>>, slot_bits: u8) {
    slots.resize(slots.len().max(1 << slot_bits), None);
}

fn member_document(ip: IpVersion, id: u16, member: Member) -> MemberDocument {
    let none = MemberDocument { id, ..MemberDocument::default() };
    let dropped = |drop| {
        let ip = match ip {
            IpVersion::V4 => Ip::V4,
            IpVersion::V6 => Ip::V6,
        };
        MemberDocument { drop: Some(drop), ip: Some(ip), ..none.clone() }
    };
    match member {
        Member::SoftEvicted => dropped(Drop::SoftEvicted),
        Member::Deregistered => dropped(Drop::Deregistered),
        Member::Forward(forward) => MemberDocument {
            address: Some(forward.address),
            port: Some(forward.port),
            port_bits: forward.port_bits,
            keep_lb_header: forward.keep_lb_header,
            mac: forward.mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":")),
            ..none
        },
    }
}
