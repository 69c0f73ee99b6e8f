//! A driver of the load balancer's registers: it writes images of tables, swaps them, and reads counters.
//!
//! It reaches the device only through [`Registers`]. Here these belong to a simulated module; on a board they would be a window of a PCIe device.
//!
//! # Source
//! `fpga/rtl/lb_csr_pkg.sv` has the registers and the kinds of counters, `fpga/rtl/lb_tables_pkg.sv` the entries.

use std::collections::BTreeMap;

use ejfat::lb::{
    BeyondHorizon, DropCause, Drops, EngineCounters, EngineError, Image, ImageEntry, ImageTable, LbCounters,
    LbId, Traffic,
};

/// Registers of 32 bits, by their addresses in bytes.
pub trait Registers {
    fn read(&mut self, at: u16) -> u32;

    /// Writes a register. Returns whether the device took it.
    fn write(&mut self, at: u16, value: u32) -> bool;
}

/// The addresses of registers. Values of more than 32 bits are in consecutive ones.
mod at {
    pub(super) const VERSION: u16 = 0x000;
    pub(super) const STATUS: u16 = 0x004;
    pub(super) const SWAP: u16 = 0x008;
    pub(super) const ENTRY: u16 = 0x00c;
    pub(super) const TAKE: u16 = 0x010;
    pub(super) const OWN_MAC: u16 = 0x018;
    pub(super) const HOP_MAC: u16 = 0x020;
    pub(super) const DATA: u16 = 0x040;
    pub(super) const TAKEN: u16 = 0x060;
    pub(super) const GUARDS: u16 = 0x100;
    pub(super) const HORIZONS: u16 = 0x140;
}

/// The version of the registers that this driver knows.
const VERSION: u32 = 1;

/// The kinds of counters.
mod kind {
    pub(super) const PACKETS: u32 = 0;
    pub(super) const MEMBERS: u32 = 1;
    pub(super) const SETS: u32 = 2;
    pub(super) const NEWEST: u32 = 3;
    pub(super) const BEYOND: u32 = 4;
}

/// The outcomes of packets that are forwarded: without their LB header, and with it.
const PASS: u32 = DropCause::ALL.len() as u32;
const KEPT_HEADER: u32 = PASS + 1;
/// The classes of packets: those without an LB header that is counted, and those with one of version 2 and 3.
const CLASSES: u32 = 3;
const LB_HEADER: u64 = ejfat::wire::LbHeader::LEN as u64;

/// What counts as the bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// The IP packet.
    Packets,
    /// What is behind the UDP header. IP headers are taken to have no options.
    Datagrams,
}

impl Lengths {
    fn of(self, traffic: Traffic, is_v6: bool) -> Traffic {
        let headers = match self {
            Self::Packets => 0,
            Self::Datagrams if is_v6 => 48,
            Self::Datagrams => 28,
        };
        Traffic { packets: traffic.packets, bytes: traffic.bytes.saturating_sub(headers * traffic.packets) }
    }
}

/// The MAC addresses of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Macs {
    pub own: [u8; 6],
    /// Where packets go to members without a MAC address.
    pub hop: [u8; 6],
}

/// Why a device cannot be driven.
#[derive(Debug, thiserror::Error)]
#[error(
    "the device has registers of version {found}, and this driver knows version {VERSION}; take the driver that came with it"
)]
pub struct VersionError {
    found: u32,
}

/// A load balancer in hardware.
#[derive(Debug)]
pub struct Driver<R> {
    pub registers: R,
    images: [Image; 2],
    /// The number of the image in use.
    used: usize,
    /// The data of the entry that was written last.
    data: ImageEntry,
}

impl<R: Registers> Driver<R> {
    /// Takes over a device: sets its MAC addresses, and clears its horizons, tables and counters. Packets that come meanwhile are dropped.
    pub fn new(registers: R, macs: Macs) -> Result<Self, VersionError> {
        let mut driver = Self { registers, images: Default::default(), used: 0, data: [0; 4] };
        let found = driver.registers.read(at::VERSION);
        if found != VERSION {
            return Err(VersionError { found });
        }
        driver.used = (driver.registers.read(at::STATUS) & 1) as usize;
        for (register, mac) in [(at::OWN_MAC, macs.own), (at::HOP_MAC, macs.hop)] {
            driver.write_wide(register, &[mac.into_iter().fold(0, |mac, byte| mac << 8 | u64::from(byte))]);
        }
        LbId::all().take(LbId::P4_COUNT).for_each(|lb| driver.set_horizon(lb, u64::MAX));
        driver.write_wide(at::DATA, &[0; 4]);
        for _ in 0..2 {
            let empty = Image::default();
            for table in ImageTable::ALL {
                for (place, entry) in empty.table(table).iter().enumerate() {
                    driver.put(table, place, entry);
                }
            }
            let _ = driver.swap(&BTreeMap::new());
        }
        for (kind, count) in [
            (kind::PACKETS, 1024),
            (kind::MEMBERS, 4096),
            (kind::SETS, 1024),
            (kind::NEWEST, 8),
            (kind::BEYOND, 8),
        ] {
            (0..count).for_each(|index| driver.begin_take(kind, index));
        }
        Ok(driver)
    }

    fn write(&mut self, at: u16, value: u32) {
        let taken = self.registers.write(at, value);
        assert!(taken, "the device refused a write of register {at:#x}");
    }

    fn write_wide(&mut self, at: u16, words: &[u64]) {
        for (place, word) in words.iter().enumerate() {
            let at = at + 8 * place as u16;
            self.write(at, *word as u32);
            self.write(at + 4, (word >> 32) as u32);
        }
    }

    /// Writes an entry of the image that is not in use.
    fn put(&mut self, table: ImageTable, place: usize, entry: &ImageEntry) {
        for (word, (new, old)) in entry.iter().zip(self.data).enumerate() {
            for half in 0..2 {
                let [new, old] = [*new, old].map(|word| (word >> (32 * half)) as u32);
                if new != old {
                    self.write(at::DATA + (8 * word + 4 * half) as u16, new);
                }
            }
        }
        self.data = *entry;
        let image = 1 - self.used as u32;
        self.write(at::ENTRY, place as u32 | image << 14 | (table as u32) << 15);
    }

    /// Waits until the device has finished a swap or the reading of a counter. Returns its status.
    pub fn finish(&mut self) -> u32 {
        loop {
            let status = self.registers.read(at::STATUS);
            if status & 2 == 0 {
                return status;
            }
        }
    }

    fn swap(&mut self, guards: &BTreeMap<LbId, u64>) -> Result<(), EngineError> {
        let mut guarded = 0;
        for (lb, tick) in guards.iter().filter(|(lb, _)| usize::from(lb.get()) < LbId::P4_COUNT) {
            self.write_wide(at::GUARDS + 8 * u16::from(lb.get()), &[*tick]);
            guarded |= 1 << lb.get();
        }
        self.write(at::SWAP, guarded);
        let status = self.finish();
        if status & 4 != 0 {
            let late = (status >> 8).trailing_zeros() as u8;
            return Err(EngineError::Late {
                lb: LbId::all().nth(late.into()).expect("a load balancer has this bit"),
            });
        }
        self.used = 1 - self.used;
        Ok(())
    }

    /// Puts an image in the place of the one in use, between two packets. Call [`Driver::take`] before: the counters of the older image are lost.
    ///
    /// # Errors
    /// [`EngineError::Late`] if a load balancer forwarded the tick of its guard or a higher one since its newest tick was taken.
    pub fn load(&mut self, image: Image, guards: &BTreeMap<LbId, u64>) -> Result<(), EngineError> {
        let spare = 1 - self.used;
        let before = std::mem::replace(&mut self.images[spare], image);
        let changes: Vec<_> = {
            let changes = self.images[spare].changes(&before);
            changes.map(|(table, place, entry)| (table, place, *entry)).collect()
        };
        for (table, place, entry) in changes {
            self.put(table, place, &entry);
        }
        self.swap(guards)
    }

    /// Counts forwarded packets of a load balancer apart if their ticks are above this one. Load balancers that the hardware does not have
    /// are left out.
    pub fn set_horizon(&mut self, lb: LbId, horizon: u64) {
        if usize::from(lb.get()) < LbId::P4_COUNT {
            self.write_wide(at::HORIZONS + 8 * u16::from(lb.get()), &[horizon]);
        }
    }

    fn begin_take(&mut self, kind: u32, index: u32) {
        self.write(at::TAKE, index | kind << 16);
        self.finish();
    }

    /// Reads words of the counter that was taken last.
    fn taken<const WORDS: usize>(&mut self) -> [u64; WORDS] {
        std::array::from_fn(|word| {
            let at = at::TAKEN + 8 * word as u16;
            u64::from(self.registers.read(at)) | u64::from(self.registers.read(at + 4)) << 32
        })
    }

    fn take_traffic(&mut self, kind: u32, index: u32) -> Traffic {
        self.begin_take(kind, index);
        let [low, high] = self.taken();
        Traffic { packets: low & 0xff_ffff_ffff, bytes: low >> 40 | high << 24 }
    }

    /// Takes what was counted since the last call.
    pub fn take(&mut self, lengths: Lengths) -> EngineCounters {
        let mut counted = EngineCounters::default();
        // The ticks come last. So if a packet is counted, its tick is known.
        let mut lbs: Vec<_> = self.images.iter().flat_map(|image| image.sets().map(|(lb, _)| lb)).collect();
        lbs.sort_unstable();
        lbs.dedup();
        counted.unaddressed = [DropCause::NotIp, DropCause::BadIp]
            .map(|cause| (cause, self.take_traffic(kind::PACKETS, cause as u32).packets))
            .into_iter()
            .collect::<Drops>();
        for image in 0..2 {
            self.take_image(image, lengths, &mut counted);
        }
        for lb in lbs {
            self.take_packets(lb, lengths, &mut counted);
            self.take_ticks(lb, &mut counted);
        }
        counted
    }

    /// Takes which ticks of a load balancer were forwarded.
    fn take_ticks(&mut self, lb: LbId, counted: &mut EngineCounters) {
        let index = u32::from(lb.get());
        self.begin_take(kind::NEWEST, index);
        let [newest, has_newest] = self.taken();
        if has_newest & 1 == 1 {
            counted.newest.insert(lb, newest);
        }
        self.begin_take(kind::BEYOND, index);
        let words: [u64; 3] = self.taken();
        let packets = words[0] & 0xff_ffff_ffff;
        if packets > 0 {
            let tick = |low: u64, high: u64| low >> 40 | high << 24;
            let (lowest, highest) = (tick(words[0], words[1]), tick(words[1], words[2]));
            counted.beyond.insert(lb, BeyondHorizon { packets, lowest, highest });
        }
    }

    /// Takes what was counted for a load balancer.
    fn take_packets(&mut self, lb: LbId, lengths: Lengths, counted: &mut EngineCounters) {
        let mut counters = LbCounters::default();
        let mut dropped = BTreeMap::new();
        for is_v6 in [false, true] {
            for class in 0..CLASSES {
                // NotIp and BadIp are no load balancer's.
                for outcome in DropCause::BlockedSrc as u32..=KEPT_HEADER {
                    let index = outcome | class << 4 | u32::from(lb.get()) << 6 | u32::from(is_v6) << 9;
                    let traffic = lengths.of(self.take_traffic(kind::PACKETS, index), is_v6);
                    let Traffic { packets, bytes } = traffic;
                    counters.received.packets += packets;
                    counters.received.bytes += bytes;
                    counters.v2 += if class == 1 { packets } else { 0 };
                    counters.v3 += if class == 2 { packets } else { 0 };
                    match DropCause::ALL.get(outcome as usize) {
                        Some(cause) => *dropped.entry(*cause as usize).or_insert(0) += packets,
                        None => {
                            let cut = if outcome == PASS { LB_HEADER * packets } else { 0 };
                            counters.sent.packets += packets;
                            counters.sent.bytes += bytes - cut;
                        }
                    }
                }
            }
        }
        counters.dropped =
            dropped.into_iter().map(|(cause, packets)| (DropCause::ALL[cause], packets)).collect();
        counted.lbs.insert(lb, counters);
    }

    /// Takes what was counted for an image: members, and sets of tables.
    fn take_image(&mut self, image: usize, lengths: Lengths, counted: &mut EngineCounters) {
        let members: Vec<_> = self.images[image].members().collect();
        for (place, key) in members.into_iter().enumerate() {
            for is_v6 in [false, true] {
                let index = u32::from(is_v6) | (place as u32) << 1 | (image as u32) << 11;
                let traffic = lengths.of(self.take_traffic(kind::MEMBERS, index), is_v6);
                let member = counted.members.entry(key).or_default();
                member.packets += traffic.packets;
                member.bytes += traffic.bytes;
            }
        }
        let sets: Vec<_> = self.images[image]
            .sets()
            .flat_map(|(lb, froms)| (0..).zip(froms.to_vec()).map(move |set| (lb, set)))
            .collect();
        for (lb, (set, from)) in sets {
            let [routed, dropped] = [0, 1].map(|is_dropped| {
                let index = is_dropped | set << 1 | u32::from(lb.get()) << 6 | (image as u32) << 9;
                self.take_traffic(kind::SETS, index).packets
            });
            let met = counted.sets.entry((lb, from)).or_default();
            met.routed += routed;
            met.dropped += dropped;
        }
    }
}
