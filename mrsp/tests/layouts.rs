//! Tests of how the layouts place and transfer parameters. Every layout must transfer the same bytes as the symmetric
//! layout.

mod common;

use common::{IN, IN_OUT as BOTH, OUT, Random, code};
use mrsp::{
    AcceleratorSession, AnnouncedParam, CallPlan, HostSession, Layout, RegionFlags, RegionRequest, U24,
    Write,
    accelerator::{RegionAddress, RegionRefusal, Rejection, SessionLimits},
    codec,
    host::{HostConfig, SetupError},
    layout::{LayoutEntry, ParamLocation, Placed, Unplaceable, place},
    plan::Part,
};

const ONCE: RegionFlags = IN.union(RegionFlags::SINGLE_SEND);

/// Memory with an address and an RKey.
struct Memory {
    addr: u64,
    rkey: u32,
    bytes: Vec<u8>,
}

/// Both sides of a session, with the memory of each side.
struct Pair {
    placed: Placed,
    params: Vec<(RegionFlags, u32)>,
    host: HostSession,
    naa: AcceleratorSession,
    /// The memory of each parameter, followed by the staging region.
    host_memory: Vec<Vec<u8>>,
    /// The host's memory to which outputs are written.
    landing: Vec<Memory>,
    /// The location of each parameter in `landing`: the index of a [`Memory`], and the offset of the parameter in this
    /// [`Memory`].
    lands: Vec<(usize, usize)>,
    naa_memory: Vec<Memory>,
    plan: CallPlan,
}

impl Pair {
    /// Sets up a session. The argument `together` is passed to [`land`], which explains it.
    fn new(
        layout: Layout,
        params: &[(RegionFlags, u32)],
        together: bool,
        most_pieces: u32,
        longest: u64,
    ) -> Self {
        let placed = place(layout, params).unwrap();
        let (landing, lands) = land(&placed, params, together);
        let announced: Vec<_> = params
            .iter()
            .zip(&lands)
            .map(|(&(flags, size), &(memory, offset))| {
                let Memory { addr, rkey, .. } = landing[memory];
                AnnouncedParam { flags, addr: addr + offset as u64, rkey, size: size.into() }
            })
            .collect();
        let mut host = HostSession::arranged(&HostConfig::default(), &announced, &[5000], &placed).unwrap();
        let mut naa = AcceleratorSession::new(SessionLimits::default());
        let asked = naa.handle_message(&host.start().unwrap()).unwrap();
        let shared = asked.iter().filter(|region| !region.is_internal());
        let naa_memory: Vec<_> =
            shared.zip(1_u32..).map(|(region, n)| memory(n << 8, region.host.size)).collect();
        let addresses: Vec<_> =
            naa_memory.iter().map(|m| RegionAddress { addr: m.addr, rkey: m.rkey }).collect();
        host.handle_message(&naa.allocated(&addresses).unwrap()).unwrap();
        assert!(naa.places().unwrap().eq(placed.places.iter().copied()));
        let mut host_memory: Vec<_> = params.iter().map(|&(_, size)| vec![0; size as usize]).collect();
        host_memory.push(vec![0; placed.staging_bytes() as usize]);
        let plan = CallPlan::default().with_longest_write(longest).with_most_pieces(most_pieces);
        Self { placed, params: params.to_vec(), host, naa, host_memory, landing, lands, naa_memory, plan }
    }

    /// Returns the bytes of a parameter on the accelerator.
    fn on_naa(&mut self, param: usize) -> &mut [u8] {
        let ParamLocation { region, offset } = self.placed.places[param];
        let size = self.params[param].1 as usize;
        &mut self.naa_memory[usize::from(region)].bytes[offset as usize..][..size]
    }

    fn call(&mut self, parts: &[Option<Part>]) {
        for (param, &(_, size)) in self.params.iter().enumerate() {
            let place = self.placed.places[param];
            if self.placed.is_staged(place, size) {
                let bytes = self.host_memory[param].clone();
                let staging = self.host_memory.last_mut().unwrap();
                staging[place.offset as usize..][..size as usize].copy_from_slice(&bytes);
            }
        }
        self.host.begin_call(code(1), U24::ZERO, parts, &mut self.plan).unwrap();
        for write in self.plan.writes() {
            let mut bytes = Vec::new();
            let gathered = self.plan.gathered(write);
            for piece in gathered {
                bytes
                    .extend(&self.host_memory[piece.param][piece.offset as usize..][..piece.length as usize]);
            }
            if gathered.is_empty() && write.length > 0 {
                bytes
                    .extend(&self.host_memory[write.param][write.offset as usize..][..write.length as usize]);
            }
            carry_out(write, &bytes, &mut self.naa_memory);
        }
        let immediate = self.plan.writes().last().unwrap().immediate.unwrap();
        self.naa.handle_request(immediate).unwrap();
    }

    fn respond(&mut self, parts: &[Option<Part>]) {
        self.naa.respond(Ok(parts), 0, &mut self.plan).unwrap();
        for write in self.plan.writes() {
            assert!(self.plan.gathered(write).is_empty());
            let ParamLocation { region, offset } = self.placed.places[write.param];
            let start = u64::from(offset) + write.offset;
            let from = &self.naa_memory[usize::from(region)].bytes;
            let bytes = from[start as usize..][..write.length as usize].to_vec();
            carry_out(write, &bytes, &mut self.landing);
        }
        let last = *self.plan.writes().last().unwrap();
        self.host.handle_response(last.immediate.unwrap(), last.length).unwrap();
    }

    fn landed(&self, param: usize) -> &[u8] {
        let (memory, offset) = self.lands[param];
        &self.landing[memory].bytes[offset..][..self.params[param].1 as usize]
    }
}

fn memory(key: u32, size: u32) -> Memory {
    Memory { addr: u64::from(key) << 32, rkey: key, bytes: vec![0; size as usize] }
}

/// Returns the host's memory to which outputs are written, and the location of each parameter in this memory. The
/// parameters that the packed layout copies lie in the first [`Memory`], which corresponds to the staging region of a
/// real host. All parameters lie in the first [`Memory`] if three conditions are met: `together` is true, the layout is
/// gathered, and the accelerator has only one region. Their offsets are then the same as in the accelerator's region. A
/// parameter that does not lie in the first [`Memory`] has a [`Memory`] that no other parameter uses.
fn land(
    placed: &Placed,
    params: &[(RegionFlags, u32)],
    together: bool,
) -> (Vec<Memory>, Vec<(usize, usize)>) {
    let mut landing = vec![memory(7, *placed.regions.iter().max().unwrap())];
    let lands = params.iter().zip(&placed.places).zip(8_u32..).map(|((&(_, size), &place), key)| {
        let common = together && placed.layout == Layout::Gathered && placed.regions.len() == 1;
        if common || placed.is_staged(place, size) {
            return (0, place.offset as usize);
        }
        landing.push(memory(key, size));
        (landing.len() - 1, 0)
    });
    let lands = lands.collect();
    (landing, lands)
}

/// Carries out a WRITE as a responder does. Panics if no element of `to` has the RKey of the WRITE, or if the bytes do
/// not fit into this element. A WRITE of no bytes is not checked.
fn carry_out(write: &Write, bytes: &[u8], to: &mut [Memory]) {
    assert_eq!(bytes.len(), write.length as usize);
    if bytes.is_empty() {
        return;
    }
    let target = to.iter_mut().find(|memory| memory.rkey == write.rkey).expect("a key that was announced");
    let start = usize::try_from(write.remote_addr - target.addr).unwrap();
    target.bytes[start..start + bytes.len()].copy_from_slice(bytes);
}

fn random_params(random: &mut Random) -> Vec<(RegionFlags, u32)> {
    let flags = [IN, OUT, BOTH, ONCE, ONCE | OUT, RegionFlags::NONE];
    let param = |random: &mut Random| {
        let size = match random.below(4) {
            0 => 64 * random.below(4),
            1 => random.below(200),
            _ => random.below(3000),
        };
        (flags[random.below(6) as usize], size as u32)
    };
    (0..=random.below(40)).map(|_| param(random)).collect()
}

fn random_layout(random: &mut Random) -> Layout {
    match random.below(4) {
        0 => Layout::Asymmetric,
        1 => Layout::Gathered,
        _ => Layout::Packed { threshold: random.below(3000) as u32 },
    }
}

fn random_part(random: &mut Random, size: u32) -> Option<Part> {
    let offset = random.below(u64::from(size) + 1);
    random.chance(4).then(|| Part { offset, bytes: random.below(u64::from(size) - offset + 1) })
}

#[test]
fn calls_are_byte_exact() {
    let mut random = Random::seeded(0x1a);
    for round in 0..3000 {
        let params = random_params(&mut random);
        let layout = random_layout(&mut random);
        println!("round {round}: {layout}, {params:?}");
        let longest = if random.chance(3) { 1 + random.below(2000) } else { 1 << 31 };
        let (together, pieces) = (random.chance(2), 1 + random.below(32) as u32);
        let mut pair = Pair::new(layout, &params, together, pieces, longest);
        for call in 0..3 {
            one_call(&mut random, &mut pair, &params, call);
        }
    }
}

fn one_call(random: &mut Random, pair: &mut Pair, params: &[(RegionFlags, u32)], call: u32) {
    let parts: Vec<_> = params.iter().map(|&(_, size)| random_part(random, size)).collect();
    let before: Vec<_> = (0..params.len()).map(|param| pair.on_naa(param).to_vec()).collect();
    for (bytes, &(_, size)) in pair.host_memory.iter_mut().zip(params) {
        *bytes = random.bytes(size as usize);
    }
    pair.call(&parts);
    for (param, &(flags, size)) in params.iter().enumerate() {
        let sent = flags.contains(IN) && (call == 0 || !flags.contains(RegionFlags::SINGLE_SEND));
        let mut expected = before[param].clone();
        if sent {
            let Part { offset, bytes } = parts[param].unwrap_or(Part::prefix(size.into()));
            let range = offset as usize..(offset + bytes) as usize;
            expected[range.clone()].copy_from_slice(&pair.host_memory[param][range]);
        }
        assert_eq!(pair.on_naa(param), expected, "parameter {param} of call {call}");
    }
    let parts: Vec<_> = params.iter().map(|&(_, size)| random_part(random, size)).collect();
    let had: Vec<_> = (0..params.len()).map(|param| pair.landed(param).to_vec()).collect();
    for (param, &(_, size)) in params.iter().enumerate() {
        let bytes = random.bytes(size as usize);
        pair.on_naa(param).copy_from_slice(&bytes);
    }
    pair.respond(&parts);
    for (param, &(flags, size)) in params.iter().enumerate() {
        let mut expected = had[param].clone();
        if flags.contains(OUT) {
            let Part { offset, bytes } = parts[param].unwrap_or(Part::prefix(size.into()));
            let range = offset as usize..(offset + bytes) as usize;
            expected[range.clone()].copy_from_slice(&pair.on_naa(param)[range]);
        }
        assert_eq!(pair.landed(param), expected, "result {param} of call {call}");
    }
}

/// Returns two numbers: the number of WRITEs of a call, and the number of WRITEs of the call's response.
fn writes(layout: Layout, params: &[(RegionFlags, u32)]) -> (usize, usize) {
    let mut pair = Pair::new(layout, params, true, 64, 1 << 31);
    pair.call(&[]);
    let there = pair.plan.writes().len();
    pair.respond(&[]);
    (there, pair.plan.writes().len())
}

#[test]
fn layouts_differ_in_their_writes() {
    let params = [(BOTH, 64), (BOTH, 10), (BOTH, 5000), (BOTH, 64)];
    assert_eq!(writes(Layout::Asymmetric, &params), (4, 4));
    assert_eq!(writes(Layout::Gathered, &params), (1, 1));
    assert_eq!(writes(Layout::Packed { threshold: 64 }, &params), (1, 2));
    assert_eq!(writes(Layout::Packed { threshold: 10 }, &params), (1, 4));
    assert_eq!(writes(Layout::Packed { threshold: 5000 }, &params), (1, 1));
    let params = [(IN, 64), (OUT, 64), (IN, 65), (OUT, 65)];
    assert_eq!(writes(Layout::Packed { threshold: 64 * 16 }, &params), (1, 1));
    assert_eq!(writes(Layout::Packed { threshold: 64 }, &params), (1, 2));
    assert_eq!(writes(Layout::Gathered, &[(OUT, 8)]), (1, 1));
}

#[test]
fn planning_allocates_nothing_in_the_long_run() {
    let mut pair = Pair::new(Layout::Gathered, &[(BOTH, 65); 20], true, 64, 1 << 31);
    pair.call(&[]);
    let memory = pair.plan.writes().as_ptr();
    let pieces = pair.plan.gathered(&pair.plan.writes()[0]).as_ptr();
    for _ in 0..3 {
        pair.respond(&[]);
        pair.call(&[]);
    }
    assert_eq!(pair.plan.writes().as_ptr(), memory);
    assert_eq!(pair.plan.gathered(&pair.plan.writes()[0]).as_ptr(), pieces);
}

fn message(entries: &[LayoutEntry], sizes: &[u32]) -> Vec<u8> {
    let region = |&size: &u32| RegionRequest {
        host: mrsp::RemoteRegion { addr: 0, rkey: 0, size },
        ..RegionRequest::default()
    };
    let mut regions: Vec<_> = sizes.iter().map(region).collect();
    regions.push(RegionRequest { flags: RegionFlags::INTERNAL, ..region(&4096) });
    codec::encode_arranged(&regions, entries).unwrap()
}

fn entry(region: u8, offset: u32, size: u32) -> LayoutEntry {
    LayoutEntry { flags: BOTH, region, offset, host: mrsp::RemoteRegion { addr: 0, rkey: 0, size } }
}

#[test]
fn contradictory_layouts_are_refused() {
    let answer = |limits: SessionLimits, entries: &[LayoutEntry]| {
        AcceleratorSession::new(limits).handle_message(&message(entries, &[1000, 64])).map(<[_]>::len)
    };
    let default = || SessionLimits::default();
    let fitting = [entry(0, 0, 64), entry(0, 64, 936), entry(1, 0, 64), entry(1, 64, 0)];
    assert_eq!(answer(default(), &fitting), Ok(3));
    let host = mrsp::RemoteRegion { addr: u64::MAX, rkey: 0, size: 2 };
    let wraps = LayoutEntry { host, ..entry(0, 0, 0) };
    let internal = LayoutEntry { flags: RegionFlags::INTERNAL, ..entry(0, 0, 64) };
    let wrong = [
        entry(0, 32, 64),
        entry(0, 64, 937),
        entry(0, u32::MAX - 63, u32::MAX),
        entry(1, 64, 1),
        entry(2, 0, 64),
        entry(3, 0, 0),
        wraps,
        internal,
    ];
    for wrong in wrong {
        let refused = answer(default(), &[entry(0, 0, 10), wrong]);
        assert!(
            matches!(refused, Err(Rejection::Refused(RegionRefusal::LayoutEntry { entry: 1, .. }))),
            "{wrong:?}: {refused:?}"
        );
    }
    for overlap in [entry(0, 0, 1), entry(0, 0, 64), entry(0, 64, 64)] {
        let refused = answer(default(), &[entry(0, 0, 128), overlap]);
        assert!(
            matches!(refused, Err(Rejection::Refused(RegionRefusal::LayoutEntry { .. }))),
            "{overlap:?}: {refused:?}"
        );
    }
    assert_eq!(answer(default(), &[]), Err(RegionRefusal::NoParameters.into()));
    let one = SessionLimits { max_slots: 1, ..SessionLimits::default() };
    let refused = answer(one, &[entry(0, 0, 10), entry(0, 64, 10)]);
    assert_eq!(refused, Err(RegionRefusal::TooManyLayoutEntries { asked: 2, limit: 1 }.into()));
    let none = SessionLimits { max_slots: 0, ..SessionLimits::default() };
    assert_eq!(answer(none, &[entry(0, 0, 10)]), Err(RegionRefusal::NoLayouts.into()));
    let mut naa = AcceleratorSession::new(none);
    let rejection = naa.handle_message(&message(&[entry(0, 0, 10)], &[64])).unwrap_err();
    assert_eq!(rejection.reply(), Some([0, 2, 0, 0]));
}

#[test]
fn more_parameters_than_a_layout_counts_are_refused() {
    assert!(codec::encode_arranged(&[], &[entry(0, 0, 0); 255]).is_ok());
    assert!(codec::encode_arranged(&[], &[entry(0, 0, 0); 256]).is_err());
    let places = vec![ParamLocation::default(); 256];
    let placed = Placed { layout: Layout::Gathered, regions: vec![0], places, staged: 0 };
    let params = [common::param(0, IN, 0); 256];
    let refused = HostSession::arranged(&HostConfig::default(), &params, &[], &placed).unwrap_err();
    assert_eq!(refused, SetupError::Unplaceable(Unplaceable::TooMany(256)));
}

#[test]
fn bytes_of_a_layout_that_are_not_one_are_refused() {
    let mut random = Random::seeded(0x1b);
    let whole = message(&[entry(0, 0, 64), entry(0, 64, 10)], &[1000]);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        random.mutate(&mut bytes);
        let mut naa = AcceleratorSession::new(SessionLimits::default());
        let Ok(regions) = naa.handle_message(&bytes) else { continue };
        let shared = regions.iter().filter(|region| !region.is_internal()).count();
        naa.allocated(&vec![RegionAddress::default(); shared]).unwrap();
        let sizes: Vec<_> = naa.regions().iter().map(|param| param.host.size).collect();
        naa.handle_request(0x81).unwrap();
        let mut plan = CallPlan::default();
        naa.respond(Ok(&[]), 0, &mut plan).unwrap();
        assert!(plan.writes().iter().all(|write| write.param < sizes.len()));
    }
}
