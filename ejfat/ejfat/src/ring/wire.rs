//! The messages between bridge and worker, in blocks of 64 bytes. Integers are little-endian, like in the argument
//! blocks of built-in functions.
//!
//! ```text
//! subscription  version u32 | slots u32 | slot bytes u32 | data ids: first u16, last u16 | member u16 | flags u16
//!               | name 32 bytes, zeros behind it | reserved 12
//! answer        version u32 | refusal u32 | worker u32 | placing u32 | instance u64 | reserved 40
//! descriptor    sequence u32 | generation u32 | offset u64 | length u32 | data id u16 | flags u16 | event u64 | tick u64
//!               | first segment, ns of UNIX time u64 | ns from then to the last one u64 | slots u32 | slot u32
//! credits       count u32, which changes after credit was written | reserved 60 | for each slot: generation u32
//! ```
//!
//! Bit 0 of a subscription's flags is set if the field `member` contains a member number. Bit 0 of a descriptor's flags
//! is set if the field `tick` contains the tick of the event. Bit 1 of a descriptor's flags is set if the event is
//! delivered again.
//!
//! A worker that requests version 2 may also get events of workers that ended. A response (`answer` in the table above)
//! that accepts a subscription has the version that the worker requested. A response that refuses a subscription always
//! has version 1. Bit 1 of a descriptor's flags is never set in version 1. All other fields of subscriptions, responses
//! and descriptors are the same in versions 1 and 2.

use arrayvec::ArrayString;

use super::{Geometry, GeometryError};
use crate::reassembly::EventKey;

/// The number of bytes of each subscription, each response and each descriptor.
pub const BLOCK: usize = 64;
/// The number of bytes of a credit word. A worker's credits contain a count and one credit word for each slot, and the
/// count has as many bytes as a credit word.
pub const CREDIT: usize = 4;
/// The version of the ring protocol in which no event is delivered again.
const VERSION_1: u32 = 1;
/// The version of the ring protocol in which events of ended workers may be delivered again.
const VERSION_2: u32 = 2;

/// The name of a worker, in printable ASCII. The name is only shown to people.
pub type WorkerName = ArrayString<32>;

/// The selection of the events that a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    /// The first and the last data id that the worker takes. The data ids are only used if the bridge assigns events by
    /// data id.
    pub data_ids: (u16, u16),
    /// The member number of this worker in the load balancer's tables. The member number is only used if the bridge
    /// assigns events by load-balancer tables.
    pub member: Option<u16>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { data_ids: (0, u16::MAX), member: None }
    }
}

impl Filter {
    /// Returns true if the worker takes events with the data id `data_id`.
    pub fn takes(&self, data_id: u16) -> bool {
        (self.data_ids.0..=self.data_ids.1).contains(&data_id)
    }
}

/// A worker's request, which is input 0 of the function `subscribe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The number and the size of the slots of the worker's ring.
    pub geometry: Geometry,
    /// The events that the worker takes.
    pub filter: Filter,
    /// The name of the worker, which is only shown to people.
    pub name: WorkerName,
    /// True if the worker requests version 2 of the ring protocol. In version 2, the worker may get events that other
    /// workers had when these workers ended.
    pub redelivery: bool,
}

/// The delivery mode by which a bridge puts events into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum DeliveryMode {
    /// Events are reassembled in the bridge's memory, and written when they are complete.
    Store = 0,
    /// Events are written segment by segment, from the buffers in which segments were received.
    Cut = 1,
    /// Events are reassembled in memory that bridge and worker both map.
    Shared = 2,
}

impl DeliveryMode {
    /// All delivery modes, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Store, Self::Cut, Self::Shared];

    /// Returns the name that reports use for the delivery mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Cut => "cut",
            Self::Shared => "shared",
        }
    }
}

/// The reason why a bridge refuses a worker's subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum SubscribeRefusal {
    /// The bridge does not support the version that the subscription requests.
    #[error(
        "the bridge does not speak this version of the protocol; an older bridge delivers no event again, so subscribe without that"
    )]
    Version = 1,
    /// A reserved byte of the subscription is not 0, or the data ids, the member number, the flags or the name are not
    /// valid.
    #[error("reserved bytes of the subscription are not zero, or its data ids or name are none")]
    Malformed = 2,
    /// No ring can have the number and the size of slots that the subscription requests.
    #[error("no ring has this geometry: 1 to 65536 slots of a multiple of 64 bytes, less than 4 GiB in all")]
    Geometry = 3,
    /// The size of a region differs from the size that the geometry needs.
    #[error("the regions are not as long as the geometry says")]
    Regions = 4,
    /// Two of the worker's regions overlap.
    #[error("regions overlap")]
    Overlap = 5,
    /// The bridge has the maximum number of workers.
    #[error("the bridge has as many workers as it takes; try again later, or raise its --max-workers")]
    Full = 6,
    /// The bridge could not set up the ring. The log of the bridge has the reason.
    #[error("the bridge cannot: its log has more")]
    Failed = 7,
    /// With the requested ring, the rings on the bridge's machine would together have more memory than the bridge
    /// allows.
    #[error("rings of the bridge's machine have as much memory as they may; ask for a smaller one")]
    Memory = 8,
}

impl SubscribeRefusal {
    const ALL: [Self; 8] = [
        Self::Version,
        Self::Malformed,
        Self::Geometry,
        Self::Regions,
        Self::Overlap,
        Self::Full,
        Self::Failed,
        Self::Memory,
    ];
}

/// The bridge's response to a subscription, which is output 0 of the function `subscribe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeResponse {
    /// The number of the worker. Each new worker of a bridge gets a higher number.
    pub worker: u32,
    /// The delivery mode by which the bridge puts events into the worker's ring.
    pub placing: DeliveryMode,
    /// A number that is different after each start of the bridge.
    pub instance: u64,
    /// True if the response has version 2 of the ring protocol, because the worker requested version 2. In version 2,
    /// events may be delivered again.
    pub redelivery: bool,
}

/// The reason why a block is not a valid message of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The block has a version other than 1 and 2. The variant contains the version of the block.
    #[error("this is version {0} of the event ring's protocol, and only 1 and 2 are known here")]
    Version(u32),
    /// The geometry in a subscription is not valid.
    #[error("{0}")]
    Geometry(#[from] GeometryError),
    /// A field has a value that is not valid, or a reserved byte is not 0.
    #[error("a field has a value that it never has")]
    Field,
}

impl From<Malformed> for SubscribeRefusal {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Version(_) => Self::Version,
            Malformed::Geometry(_) => Self::Geometry,
            Malformed::Field => Self::Malformed,
        }
    }
}

/// The location and the properties of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// The sequence number of the event. The first event of a ring has the number 1, and each later event has the next
    /// higher number, modulo 2^32.
    pub sequence: u32,
    /// The generation of the event's first slot.
    pub generation: u32,
    /// The number of the event's first slot.
    pub slot: u32,
    /// The number of adjacent slots that the event has.
    pub slots: u32,
    /// The offset of the event in the ring, in bytes.
    pub offset: u64,
    /// The length of the event in bytes.
    pub length: u32,
    /// The event number and the data id of the event.
    pub name: EventKey,
    /// The tick of the event's segments, if the segments had an LB header.
    pub tick: Option<u64>,
    /// The time at which the first segment arrived, in nanoseconds of UNIX time by the bridge's clock.
    pub first: u64,
    /// The time from the arrival of the first segment to the arrival of the last segment, in nanoseconds.
    pub assembly: u64,
    /// True if the event is delivered again, because another worker that had the event ended before releasing it. The
    /// worker that ended may already have processed the event before it ended. In version 1 of the ring protocol,
    /// `delivered_again` is never true.
    pub delivered_again: bool,
}

const HAS_MEMBER: u16 = 1;
const HAS_TICK: u16 = 1;
const IS_DELIVERED_AGAIN: u16 = 2;

fn encode_version(redelivery: bool) -> [u8; 4] {
    if redelivery { VERSION_2 } else { VERSION_1 }.to_le_bytes()
}

/// Returns true for version 2 of the ring protocol, in which events may be delivered again, and false for version 1.
fn decode_version(version: u32) -> Result<bool, Malformed> {
    match version {
        VERSION_1 => Ok(false),
        VERSION_2 => Ok(true),
        _ => Err(Malformed::Version(version)),
    }
}

/// The part of a block whose fields were not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("fields of a block are as long as the block");
        self.0 = rest;
        *field
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|&byte| byte == 0)
    }
}

/// Returns a block that consists of the fields in `fields`, filled up with zeros.
fn block(fields: &[&[u8]]) -> [u8; BLOCK] {
    let (mut block, mut at) = ([0; BLOCK], 0);
    for field in fields {
        block[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    block
}

impl Subscription {
    /// Creates a subscription by which a worker takes all events. The worker has no name, and uses version 1 of the
    /// ring protocol.
    pub fn new(geometry: Geometry) -> Self {
        Self { geometry, filter: Filter::default(), name: WorkerName::default(), redelivery: false }
    }

    /// Returns the 64 bytes of the subscription.
    pub fn encode(&self) -> [u8; BLOCK] {
        let Filter { data_ids: (first, last), member } = self.filter;
        let mut name = [0; 32];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        block(&[
            &encode_version(self.redelivery),
            &self.geometry.slots().to_le_bytes(),
            &self.geometry.slot_bytes().to_le_bytes(),
            &first.to_le_bytes(),
            &last.to_le_bytes(),
            &member.unwrap_or(0).to_le_bytes(),
            &member.map_or(0, |_| HAS_MEMBER).to_le_bytes(),
            &name,
        ])
    }

    /// Decodes a subscription of version 1 or version 2.
    ///
    /// # Errors
    /// Fails if the version, the geometry or another field is not valid.
    pub fn decode(bytes: &[u8; BLOCK]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        let redelivery = decode_version(fields.u32())?;
        let geometry = Geometry::new(fields.u32(), fields.u32())?;
        let data_ids = (fields.u16(), fields.u16());
        let (member, flags) = (fields.u16(), fields.u16());
        let name = name(&fields.take::<32>()).ok_or(Malformed::Field)?;
        let member = match flags {
            0 if member == 0 => None,
            HAS_MEMBER => Some(member),
            _ => return Err(Malformed::Field),
        };
        if data_ids.0 > data_ids.1 || !fields.is_zero() {
            return Err(Malformed::Field);
        }
        Ok(Self { geometry, filter: Filter { data_ids, member }, name, redelivery })
    }
}

fn name(bytes: &[u8; 32]) -> Option<WorkerName> {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at(len);
    let printable = text.iter().all(|byte| (b' '..=b'~').contains(byte));
    let zeros = rest.iter().all(|&byte| byte == 0);
    let text = str::from_utf8(text).ok().filter(|_| printable && zeros)?;
    WorkerName::from(text).ok()
}

impl SubscribeResponse {
    /// Returns the 64 bytes of a response that accepts or refuses a subscription.
    pub fn encode(response: &Result<Self, SubscribeRefusal>) -> [u8; BLOCK] {
        match response {
            Ok(Self { worker, placing, instance, redelivery }) => block(&[
                &encode_version(*redelivery),
                &0u32.to_le_bytes(),
                &worker.to_le_bytes(),
                &(*placing as u32).to_le_bytes(),
                &instance.to_le_bytes(),
            ]),
            Err(refusal) => block(&[&encode_version(false), &(*refusal as u32).to_le_bytes()]),
        }
    }

    /// Decodes a response that accepts or refuses a subscription.
    ///
    /// # Errors
    /// Fails if the version or another field is not valid. If the block is a valid refusal, the result is
    /// `Ok(Err(refusal))`.
    pub fn decode(bytes: &[u8; BLOCK]) -> Result<Result<Self, SubscribeRefusal>, Malformed> {
        let mut fields = Fields(bytes);
        let redelivery = decode_version(fields.u32())?;
        let refusal = fields.u32();
        let (worker, placing, instance) = (fields.u32(), fields.u32(), fields.u64());
        if !fields.is_zero() {
            return Err(Malformed::Field);
        }
        if refusal != 0 {
            let known = SubscribeRefusal::ALL.into_iter().find(|known| *known as u32 == refusal);
            return known.map(Err).ok_or(Malformed::Field);
        }
        let placing = DeliveryMode::ALL.into_iter().find(|known| *known as u32 == placing);
        Ok(Ok(Self { worker, placing: placing.ok_or(Malformed::Field)?, instance, redelivery }))
    }
}

impl Descriptor {
    /// Returns the 64 bytes of the descriptor.
    pub fn encode(&self) -> [u8; BLOCK] {
        let again = if self.delivered_again { IS_DELIVERED_AGAIN } else { 0 };
        let flags = self.tick.map_or(0, |_| HAS_TICK) | again;
        block(&[
            &self.sequence.to_le_bytes(),
            &self.generation.to_le_bytes(),
            &self.offset.to_le_bytes(),
            &self.length.to_le_bytes(),
            &self.name.data_id.to_le_bytes(),
            &flags.to_le_bytes(),
            &self.name.event.to_le_bytes(),
            &self.tick.unwrap_or(0).to_le_bytes(),
            &self.first.to_le_bytes(),
            &self.assembly.to_le_bytes(),
            &self.slots.to_le_bytes(),
            &self.slot.to_le_bytes(),
        ])
    }

    /// Decodes a descriptor of version 1 or version 2. [`Reader`](super::Reader) checks whether the descriptor's fields
    /// fit a ring.
    ///
    /// # Errors
    /// Fails with [`Malformed::Field`] if the flags or the tick are not valid.
    pub fn decode(bytes: &[u8; BLOCK]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        let (sequence, generation, offset) = (fields.u32(), fields.u32(), fields.u64());
        let (length, data_id, flags) = (fields.u32(), fields.u16(), fields.u16());
        let (event, tick, first, assembly) = (fields.u64(), fields.u64(), fields.u64(), fields.u64());
        let (slots, slot) = (fields.u32(), fields.u32());
        let delivered_again = flags & IS_DELIVERED_AGAIN != 0;
        let tick = match flags & !IS_DELIVERED_AGAIN {
            0 if tick == 0 => None,
            HAS_TICK => Some(tick),
            _ => return Err(Malformed::Field),
        };
        let name = EventKey { event, data_id };
        Ok(Self {
            sequence,
            generation,
            slot,
            slots,
            offset,
            length,
            name,
            tick,
            first,
            assembly,
            delivered_again,
        })
    }
}

/// An event descriptor for tests, in which all numbers are different.
#[cfg(test)]
pub(super) const EXAMPLE: Descriptor = Descriptor {
    sequence: 1,
    generation: 2,
    slot: 3,
    slots: 4,
    offset: 5,
    length: 6,
    name: EventKey { event: 8, data_id: 7 },
    tick: Some(9),
    first: 10,
    assembly: 11,
    delivered_again: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(slots: u32, slot_bytes: u32) -> Subscription {
        Subscription::new(Geometry::new(slots, slot_bytes).unwrap())
    }

    #[test]
    fn delivery_modes_have_names_of_their_own() {
        assert_eq!(DeliveryMode::ALL.map(DeliveryMode::name), ["store", "cut", "shared"]);
    }

    #[test]
    fn golden_blocks() {
        let filter = Filter { data_ids: (1, 0x0203), member: Some(7) };
        let name = WorkerName::from("w1").unwrap();
        let subscription = Subscription { filter, name, ..subscription(64, 0x2_0000) };
        let bytes = subscription.encode();
        let head = [1, 0, 0, 0, 64, 0, 0, 0, 0, 0, 2, 0, 1, 0, 3, 2, 7, 0, 1, 0, b'w', b'1', 0];
        assert_eq!(bytes[..23], head);
        assert!(bytes[23..].iter().all(|&byte| byte == 0));
        assert_eq!(Subscription::decode(&bytes), Ok(subscription));

        let response = Ok(SubscribeResponse {
            worker: 3,
            placing: DeliveryMode::Cut,
            instance: 0x0807_0605_0403_0201,
            redelivery: false,
        });
        let bytes = SubscribeResponse::encode(&response);
        assert_eq!(bytes[..24], [1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(SubscribeResponse::decode(&bytes), Ok(response));
        for refusal in SubscribeRefusal::ALL {
            let bytes = SubscribeResponse::encode(&Err(refusal));
            assert_eq!(SubscribeResponse::decode(&bytes), Ok(Err(refusal)));
        }

        let bytes = EXAMPLE.encode();
        let words = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        let words: Vec<_> = words.collect();
        assert_eq!(words, [1, 2, 5, 0, 6, 0x1_0007, 8, 0, 9, 0, 10, 0, 11, 0, 4, 3]);
        assert_eq!(Descriptor::decode(&bytes), Ok(EXAMPLE));
    }

    /// Subscriptions and responses of version 2 differ from those of version 1 only in the version number. In
    /// descriptors, version 2 only adds the flag that marks an event that is delivered again.
    #[test]
    fn golden_blocks_of_version_2() {
        let subscription = Subscription { redelivery: true, ..subscription(2, 64) };
        let bytes = subscription.encode();
        assert_eq!(bytes[..20], [2, 0, 0, 0, 2, 0, 0, 0, 64, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0]);
        assert_eq!(Subscription::decode(&bytes), Ok(subscription.clone()));
        let once = Subscription { redelivery: false, ..subscription }.encode();
        assert_eq!((once[0], &once[1..]), (1, &bytes[1..]));

        let response =
            SubscribeResponse { worker: 3, placing: DeliveryMode::Shared, instance: 4, redelivery: true };
        let bytes = SubscribeResponse::encode(&Ok(response));
        assert_eq!(bytes[..20], [2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(SubscribeResponse::decode(&bytes), Ok(Ok(response)));
        assert_eq!(SubscribeResponse::encode(&Err(SubscribeRefusal::Full))[..8], [1, 0, 0, 0, 6, 0, 0, 0]);

        for (tick, flags) in [(None, 2), (Some(9), 3)] {
            let descriptor = Descriptor { tick, delivered_again: true, ..EXAMPLE };
            let bytes = descriptor.encode();
            assert_eq!(bytes[20..24], [7, 0, flags, 0]);
            assert_eq!(Descriptor::decode(&bytes), Ok(descriptor));
            let once = Descriptor { delivered_again: false, ..descriptor }.encode();
            assert_eq!(once[22], flags & 1);
            assert_eq!((&once[..22], &once[23..]), (&bytes[..22], &bytes[23..]));
        }
        let mut bad = [0; BLOCK];
        bad[22] = 4;
        assert_eq!(Descriptor::decode(&bad), Err(Malformed::Field));
    }

    #[test]
    fn what_is_never_said_is_refused() {
        let good = subscription(1, 64).encode();
        assert!(Subscription::decode(&good).is_ok());
        for (at, value) in
            [(0, 3), (0, 0), (4, 0), (8, 65), (12, 0xff), (16, 1), (18, 2), (20, 7), (52, 1), (63, 1)]
        {
            let mut bad = good;
            bad[at] = value;
            if at == 12 {
                bad[14..16].copy_from_slice(&[0, 0]);
            }
            assert!(Subscription::decode(&bad).is_err(), "byte {at} is {value}");
        }
        let mut bad = SubscribeResponse::encode(&Err(SubscribeRefusal::Full));
        bad[4] = 99;
        assert_eq!(SubscribeResponse::decode(&bad), Err(Malformed::Field));
    }
}
