//! One image with all tables of all load balancers, in the form in which hardware stores them in several memories.
//!
//! ```text
//! addresses ─► load balancer; source ─► the last set that allows it
//! load balancer, tick ─► range: set, epoch ─► calendar ─► slot ─► member, for its IP version
//! ```
//!
//! An image contains all table sets of each load balancer. Each tick of a load balancer belongs to exactly one of these
//! sets, so a look-up finds the right set by the load balancer and the tick. Equal calendars are stored once, and equal
//! members are stored once.
//!
//! # Source
//! `fpga/rtl/lb_tables_pkg.sv` defines the fields of each table's entries, and the hash of addresses. The SystemVerilog
//! file lists the fields of an entry from the highest bits to the lowest bits, and this module adds them from the
//! lowest bits to the highest bits.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use foldhash::quality::FixedState;

use super::{
    DataPlane, Epoch, LbId, Member,
    compile::{Calendar, MemberEntry},
    sets::Sets,
};

named! {
    /// A table of an image.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ImageTable {
        /// The destination addresses, each with its load balancer.
        Destinations = "destination addresses",
        /// The allowed source addresses, each with the highest number among the table sets that allow this address.
        Sources = "source addresses",
        /// The first ticks of all ranges of ticks, as a binary search tree.
        Begins = "ranges of ticks",
        /// The ranges of ticks, each with the number of its table set and with the index of its epoch.
        Ranges = "ranges of ticks",
        /// The epochs, each with the location of its calendar in the table [`ImageTable::Slots`].
        Epochs = "epochs",
        /// The slots of all calendars, each with the position of its member in [`Image::members`].
        Slots = "calendar slots",
        /// The members, each with one entry for IPv4 and one entry for IPv6.
        Members = "members",
    }

    /// All tables, in the order of their discriminants.
    ALL;
    /// Returns the name of the table's entries for error messages. The tables `Begins` and `Ranges` have the same name,
    /// because both have one entry for each range of ticks.
    name;
}

impl ImageTable {
    /// Returns the number of entries that the table has in hardware, including unused entries.
    pub const fn entries(self) -> usize {
        match self {
            Self::Destinations | Self::Sources => ADDRESS_ENTRIES,
            Self::Begins | Self::Ranges => RANGES,
            Self::Epochs => EPOCHS,
            Self::Slots => SLOTS,
            Self::Members => 2 * MEMBERS,
        }
    }
}

/// The number of parts of which an address table consists. The hash of an address selects one row in each
/// part, and the address is stored in one of these rows.
const WAYS: usize = 4;
/// The number of rows of each of the [`WAYS`] parts of an address table. In hardware, each part of the table of
/// destinations has only the first [`DESTINATION_ROWS`] of these rows.
const ROWS: usize = 256;
const ADDRESS_ENTRIES: usize = WAYS * ROWS;
const DESTINATION_ROWS: usize = 32;
const RANGES: usize = 4096;
const EPOCHS: usize = 1024;
const SLOTS: usize = 16_384;
const MEMBERS: usize = 1024;

/// The reason why tables do not fit into an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The load balancers together need more entries in a table than hardware has.
    #[error("all load balancers together have {count} {what}, and hardware takes {limit}; remove some, or wait until old tables are out of use", what = table.name())]
    Full {
        /// The table of the hardware that has no room for all entries.
        table: ImageTable,
        /// The number of addresses, ranges of ticks, epochs, slots or members that the load balancers need together.
        /// The real number may be higher, because counting stops above the limit.
        count: usize,
        /// The maximum number of addresses, ranges of ticks, epochs, slots or members in hardware.
        limit: usize,
    },
    /// The rules name a load balancer that hardware does not have.
    #[error("hardware has {limit} load balancers, and rules name load balancer {lb}; use a lower id")]
    LoadBalancer {
        /// The number of the load balancer.
        lb: u8,
        /// The number of load balancers that hardware supports. Hardware accepts only load balancer ids below `limit`.
        limit: usize,
    },
    /// A table of addresses has no free row for the address, because the hash of the address selects only rows that are
    /// in use.
    #[error(
        "there is no place left for {0} in hardware, whose table of addresses hashes them; use another address, or remove some"
    )]
    Address(IpAddr),
}

/// The bits of a table's entry, the lowest bit first.
pub type ImageEntry = [u64; 4];

/// An image: the tables of all load balancers, with used and unused entries, as hardware holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    tables: [Vec<ImageEntry>; ImageTable::ALL.len()],
    /// The load balancer and the member id of each member. The member at the index i of this list has the entries 2 * i
    /// (for IPv4) and 2 * i + 1 (for IPv6) in [`ImageTable::Members`].
    members: Vec<(LbId, u16)>,
    /// The epoch id of each entry in [`ImageTable::Epochs`].
    epochs: Vec<u32>,
    /// The first tick of each table set, for each load balancer that has a destination address.
    sets: BTreeMap<LbId, Vec<u64>>,
}

impl Default for Image {
    /// Creates an image without load balancers.
    fn default() -> Self {
        let mut tables = ImageTable::ALL.map(|table| vec![ImageEntry::default(); table.entries()]);
        tables[ImageTable::Begins as usize].fill(NO_BEGIN);
        Self { tables, members: Vec::new(), epochs: Vec::new(), sets: BTreeMap::new() }
    }
}

impl Image {
    /// Returns all entries of one table, including unused entries. The number of entries is [`ImageTable::entries`].
    pub fn table(&self, table: ImageTable) -> &[ImageEntry] {
        &self.tables[table as usize]
    }

    /// Returns the entries of this image that differ from the entries of another image, each with its table and its
    /// index.
    pub fn changes<'a>(
        &'a self,
        from: &'a Self,
    ) -> impl Iterator<Item = (ImageTable, usize, &'a ImageEntry)> + 'a {
        ImageTable::ALL.into_iter().flat_map(move |table| {
            let both = self.table(table).iter().zip(from.table(table));
            let differ = both.enumerate().filter(|(_, (new, old))| new != old);
            differ.map(move |(at, (new, _))| (table, at, new))
        })
    }

    /// Returns the load balancer and the id of a member. `place` is the position of the member in [`Self::members`].
    pub fn member(&self, place: usize) -> Option<(LbId, u16)> {
        self.members.get(place).copied()
    }

    /// Returns the load balancer and the member id of each member, in the order in which [`ImageTable::Members`] stores
    /// the members.
    pub fn members(&self) -> impl Iterator<Item = (LbId, u16)> + '_ {
        self.members.iter().copied()
    }

    /// Returns the load balancers that have a destination address, each with the first ticks of its table sets. Element
    /// i of the slice is the first tick of table set number i.
    pub fn sets(&self) -> impl Iterator<Item = (LbId, &[u64])> {
        self.sets.iter().map(|(&lb, froms)| (lb, &froms[..]))
    }

    /// Returns the id of the epoch that has the index `place` in [`ImageTable::Epochs`].
    pub fn epoch(&self, place: usize) -> Option<u32> {
        self.epochs.get(place).copied()
    }

    fn put(&mut self, table: ImageTable, at: usize, entry: ImageEntry) {
        self.tables[table as usize][at] = entry;
    }
}

/// A table entry that is composed field by field, starting with its lowest bit.
#[derive(Default)]
struct Bits {
    entry: ImageEntry,
    at: u32,
}

impl Bits {
    fn add(mut self, value: u128, bits: u32) -> Self {
        for bit in 0..bits {
            let at = self.at + bit;
            self.entry[at as usize / 64] |= ((value >> bit) as u64 & 1) << (at % 64);
        }
        self.at += bits;
        self
    }
}

const NO_BEGIN: ImageEntry = [u64::MAX, 7, 0, 0];

fn address_bits(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(v4) => (v4.to_bits().into(), false),
        IpAddr::V6(v6) => (v6.to_bits(), true),
    }
}

/// Returns the one's complement sum of the 16-bit words of an address.
fn sum(address: u128) -> u16 {
    let mut sum: u64 = (0..8).map(|word| (address >> (16 * word)) as u64 & 0xffff).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Builds an image.
#[derive(Debug, Default)]
struct Builder {
    image: Image,
    begins: Vec<(LbId, u64)>,
    slots: Vec<u16>,
    calendars: HashMap<Vec<u16>, usize, FixedState>,
    members: HashMap<(LbId, MemberEntry), u16, FixedState>,
    epochs: HashMap<(Epoch, usize, usize), usize, FixedState>,
}

/// The member index of a calendar slot that has no member.
const NONE: u16 = u16::MAX;

impl DataPlane {
    /// Compiles all table sets of all load balancers into one image.
    ///
    /// # Errors
    /// Fails if the tables do not fit into an image.
    pub fn image(&self) -> Result<Image, ImageError> {
        let mut builder = Builder::default();
        let destinations: Vec<_> =
            self.destinations().map(|(address, lb)| (None, address, lb.get())).collect();
        builder.addresses(ImageTable::Destinations, DESTINATION_ROWS, &destinations)?;
        let mut sources = Vec::new();
        for (lb, sets) in self.load_balancers() {
            let is_addressed = destinations.iter().any(|(_, _, of)| *of == lb.get());
            if usize::from(lb.get()) < LbId::P4_COUNT {
                if is_addressed {
                    let froms = sets.sets.iter().map(|set| set.from).collect();
                    builder.image.sets.insert(lb, froms);
                }
                builder.load_balancer(lb, sets)?;
                sources.extend(last_sets(lb, sets));
            } else if is_addressed || sets.sets.iter().any(|set| set.tables.has_rules()) {
                return Err(ImageError::LoadBalancer { lb: lb.get(), limit: LbId::P4_COUNT });
            }
        }
        builder.addresses(ImageTable::Sources, ROWS, &sources)?;
        builder.finish()
    }
}

/// Returns the sender addresses that a load balancer allows. Each address comes with a number: the highest number among
/// the table sets that allow this address. Hardware accepts a packet from the address if the number of the table set
/// that applies to the packet is at most this number. [`Sets::allows`] accepts the same packets.
fn last_sets(lb: LbId, sets: &Sets) -> Vec<(Option<LbId>, IpAddr, u8)> {
    let mut last = BTreeMap::new();
    for (at, set) in sets.sets.iter().enumerate() {
        last.extend(set.tables.sources().map(|address| (address, at as u8)));
    }
    last.into_iter().map(|(address, at)| (Some(lb), address, at)).collect()
}

fn full(table: ImageTable, count: usize, limit: usize) -> Result<(), ImageError> {
    if count > limit { Err(ImageError::Full { table, count, limit }) } else { Ok(()) }
}

impl Builder {
    /// Puts each address into one of the four rows that the hash of the address selects. If all four rows are in use,
    /// the new address takes one of these rows. The address that was in this row is put into another of its own four
    /// rows. If these are in use, too, this address is treated like a new address.
    fn addresses(
        &mut self,
        table: ImageTable,
        rows: usize,
        all: &[(Option<LbId>, IpAddr, u8)],
    ) -> Result<(), ImageError> {
        full(table, all.len(), rows * WAYS)?;
        let mut places: Vec<Option<usize>> = vec![None; WAYS * rows];
        for first in 0..all.len() {
            let mut unplaced = first;
            let mut turn = 0;
            loop {
                let (lb, address, _) = all[unplaced];
                let hash = hash(lb, address);
                let place = |way: usize| way * rows + usize::from(hash[way]) % rows;
                if let Some(free) = (0..WAYS).map(place).find(|&at| places[at].is_none()) {
                    places[free] = Some(unplaced);
                    break;
                }
                // No row for address A is free. Address A therefore takes a row in one part of the table from address
                // B, which is in this row now. The loop then looks for a free row for address B. If there is none,
                // address B takes a row in the next part of the table from address C, and so on. If address B took its
                // row from address A again, the two addresses would remove each other without end.
                turn += 1;
                if turn > 64 * WAYS {
                    return Err(ImageError::Address(all[first].1));
                }
                unplaced = places[place(turn % WAYS)].replace(unplaced).unwrap_or(unplaced);
            }
        }
        for (at, place) in places.into_iter().enumerate() {
            let Some((lb, address, value)) = place.map(|place| all[place]) else { continue };
            let (bits, is_v6) = address_bits(address);
            let lb = lb.map_or(0, LbId::get);
            let entry = Bits::default().add(bits, 128).add(is_v6.into(), 1).add(lb.into(), 3);
            let entry = entry.add(value.into(), 5).add(1, 1).entry;
            self.image.put(table, at / rows * ROWS + at % rows, entry);
        }
        Ok(())
    }

    fn load_balancer(&mut self, lb: LbId, sets: &Sets) -> Result<(), ImageError> {
        for (at, set) in sets.sets.iter().enumerate() {
            // The first table set also applies to all ticks below its own first tick.
            let from = if at == 0 { 0 } else { set.from };
            let end = sets.sets.get(at + 1).map(|next| next.from);
            if end.is_some_and(|end| end <= from) {
                continue;
            }
            let ranges: Vec<_> = set.tables.ranges().collect();
            let begun = ranges.iter().rposition(|(begin, _)| *begin <= from);
            let first = begun.and_then(|begun| ranges[begun].1);
            self.range(lb, at, from, first.map(|calendar| (calendar, &*set.tables)))?;
            let within = |begin: u64| begin > from && end.is_none_or(|end| begin < end);
            for &(begin, calendar) in ranges.iter().filter(|(begin, _)| within(*begin)) {
                self.range(lb, at, begin, calendar.map(|calendar| (calendar, &*set.tables)))?;
            }
        }
        Ok(())
    }

    /// Adds to the image the range of ticks that begins at `begin`. `calendar` is the pair of the range's calendar and
    /// the tables that contain this calendar, or `None` if the range has no calendar.
    fn range(
        &mut self,
        lb: LbId,
        set: usize,
        begin: u64,
        calendar: Option<(&Calendar, &super::LbTables)>,
    ) -> Result<(), ImageError> {
        let epoch = calendar.map(|(calendar, tables)| self.epoch(calendar, tables)).transpose()?;
        self.begins.push((lb, begin));
        // Hardware counts the ranges up to and including the range that it looks for. The count is the index of this
        // range in `ImageTable::Ranges`. The first range therefore has the index 1, and entry 0 is not used.
        full(ImageTable::Ranges, self.begins.len(), RANGES - 1)?;
        let entry = Bits::default().add(epoch.unwrap_or(0) as u128, 10);
        let entry = entry.add(epoch.is_some().into(), 1).add(set as u128, 5).entry;
        self.image.put(ImageTable::Ranges, self.begins.len(), entry);
        Ok(())
    }

    fn epoch(&mut self, calendar: &Calendar, tables: &super::LbTables) -> Result<usize, ImageError> {
        let mut slots = Vec::new();
        for (slot, entry) in tables.slots_of(calendar) {
            slots.resize(usize::from(slot), NONE);
            slots.push(self.member(tables.lb(), entry)?);
        }
        let len = slots.len();
        let first = match self.calendars.get(&slots) {
            Some(first) => *first,
            None => {
                let first = self.slots.len();
                full(ImageTable::Slots, first + len, SLOTS)?;
                self.slots.extend(&slots);
                self.calendars.insert(slots, first);
                first
            }
        };
        let epoch = calendar.epoch;
        if let Some(place) = self.epochs.get(&(epoch, first, len)) {
            return Ok(*place);
        }
        let place = self.image.epochs.len();
        full(ImageTable::Epochs, place + 1, EPOCHS)?;
        self.epochs.insert((epoch, first, len), place);
        self.image.epochs.push(epoch.id);
        let entry = Bits::default().add(epoch.xor.into(), 16).add(epoch.slot_bits.into(), 4);
        // The number `first` is the index of the calendar's first slot. If the table of slots is full and the calendar
        // has no slots, `first` can be equal to `SLOTS`. A field of 14 bits cannot hold `SLOTS`, so the remainder 0 is
        // stored. The remainder has no effect, because a look-up in a calendar without slots finds no member.
        let entry = entry.add(len as u128, 15).add((first % SLOTS) as u128, 14).entry;
        self.image.put(ImageTable::Epochs, place, entry);
        Ok(place)
    }

    fn member(&mut self, lb: LbId, entry: &MemberEntry) -> Result<u16, ImageError> {
        if let Some(place) = self.members.get(&(lb, *entry)) {
            return Ok(*place);
        }
        let place = self.image.members.len();
        full(ImageTable::Members, place + 1, MEMBERS)?;
        self.members.insert((lb, *entry), place as u16);
        self.image.members.push((lb, entry.id));
        for (is_v6, member) in [(0, entry.v4), (1, entry.v6)] {
            self.image.put(ImageTable::Members, 2 * place + is_v6, member_entry(member));
        }
        Ok(place as u16)
    }

    fn finish(mut self) -> Result<Image, ImageError> {
        for (at, member) in self.slots.iter().enumerate().filter(|(_, member)| **member != NONE) {
            let entry = Bits::default().add((*member).into(), 10).add(1, 1).entry;
            self.image.put(ImageTable::Slots, at, entry);
        }
        // The first ticks of all ranges are stored as a binary search tree. `self.begins` is sorted by load balancer
        // and tick, and `in_order` visits the entries of the tree in the same order.
        let mut sorted = self.begins.iter();
        in_order(1, &mut |place| {
            if let Some((lb, tick)) = sorted.next() {
                let entry = Bits::default().add((*tick).into(), 64).add(lb.get().into(), 3).entry;
                self.image.tables[ImageTable::Begins as usize][place] = entry;
            }
        });
        // The table `ImageTable::Begins` is a search tree. Each node of the tree contains the load balancer and the
        // first tick of one range. The nodes are ordered by load balancer, and by tick within a load balancer. Hardware
        // counts the nodes that do not come after the packet's load balancer and tick. The count is the index of the
        // packet's range in `ImageTable::Ranges`. Unused nodes contain the highest tick of the last load balancer, so
        // hardware counts them only for a packet with exactly this load balancer and tick. For such a packet, the count
        // is the last index of `ImageTable::Ranges`. The entry with the last index becomes a copy of the last used
        // entry, so that hardware finds the right range for this packet, too.
        let last = self.image.table(ImageTable::Ranges)[self.begins.len()];
        self.image.put(ImageTable::Ranges, RANGES - 1, last);
        Ok(self.image)
    }
}

/// Calls `each` with the index of every node of a binary search tree, in the ascending order of the nodes' values.
/// `place` is the index of the root. The children of the node i are the nodes 2 * i and 2 * i + 1.
fn in_order(place: usize, each: &mut impl FnMut(usize)) {
    if place < RANGES {
        in_order(2 * place, each);
        each(place);
        in_order(2 * place + 1, each);
    }
}

fn member_entry(member: Option<Member>) -> ImageEntry {
    let kind = match member {
        None => 0,
        Some(Member::Forward(_)) => 1,
        Some(Member::SoftEvicted) => 2,
        Some(Member::Deregistered) => 3,
    };
    let Some(Member::Forward(forward)) = member else {
        return Bits { at: 213, ..Bits::default() }.add(kind, 2).entry;
    };
    let (address, _) = address_bits(forward.address);
    let mac = forward.mac.unwrap_or_default().into_iter().fold(0, |mac, byte| mac << 8 | u128::from(byte));
    let entry = Bits::default().add(address, 128).add(mac, 48).add(sum(address).into(), 16);
    let entry = entry.add(forward.port_bits.into(), 4).add(forward.port.into(), 16);
    entry.add(forward.keep_lb_header.into(), 1).add(kind, 2).entry
}

/// Returns the hash of an address and its load balancer. Byte i of the hash selects one row in part i of an address
/// table, which has [`WAYS`] parts.
fn hash(lb: Option<LbId>, address: IpAddr) -> [u8; WAYS] {
    let (bits, is_v6) = address_bits(address);
    let upper = u32::from(is_v6) | u32::from(lb.map_or(0, LbId::get)) << 1;
    let (mut word, mut hash) = (1_u32, 0);
    for bit in 0..132 {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        let is_set = if bit < 128 { bits >> bit & 1 == 1 } else { upper >> (bit - 128) & 1 == 1 };
        hash ^= if is_set { word } else { 0 };
    }
    hash.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The RTL computes the same hashes. A third program computed the expected values of this test.
    #[test]
    fn golden_hashes() {
        for (lb, address, golden) in [
            (None, "192.0.2.7", [0xd2, 0x42, 0x15, 0xfc]),
            (Some(3), "192.0.2.7", [0x92, 0xd7, 0xe4, 0x88]),
            (Some(5), "2001:db8::1", [0xe9, 0x02, 0xd1, 0x9a]),
        ] {
            let lb = lb.map(|lb| LbId::new(lb).unwrap());
            assert_eq!(hash(lb, address.parse().unwrap()), golden, "{address}");
        }
    }
}
