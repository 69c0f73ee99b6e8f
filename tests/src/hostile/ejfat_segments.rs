//! Datagrams that are no segments, and segments whose headers lie.

use ejfat::wire::{LbHeader, ReHeader, Select};

use super::{
    case::{Case, Observation},
    ejfat::{EjfatEnvironment, Setup, segment, with_tick},
};

/// What E2SAR 0.3.2 and udplbd 2.3.1 sent, up to the payload.
const GOLDEN: [&str; 3] = [
    "4c420201 0000ccb3 000660c450dccce5  100010e1 00000000 00000bb8 0000000000000000",
    "4c420301 c0e5c7cd 000660c45105c0e5  100010e1 00000000 00000bb8 0000000000000000",
    "4c420301 4d290000 000660c4511d4d29  00000000 00000000 00001758 000660c4511d4d29",
];
const SYNC: &str = "4c430200 000004d2 000660c4d763a905 000f4240 18ea00e95d4c3e2b";
/// The longest payload of UDP over IPv4.
const JUMBO: usize = 65_507;
/// The longest event that a worker takes unless told.
const MOST: u32 = 64 << 20;

pub(super) const CASES: &[Case] = &[
    Case::worker("nobody attacks", "nothing but honest events", "nothing", &[], |env| {
        env.beside(Setup::default())?.end()
    }),
    Case::worker(
        "offset beyond the length",
        "100 times offsets 0x30000000, 2^32 - 8, the length, and the last byte but with two",
        "beyond_end 400",
        &["beyond_end"],
        |env| alike(env, beyond_end()),
    ),
    Case::worker(
        "datagrams of 8 bytes",
        "1000, half begin like the LB header",
        "short 1000",
        &["short"],
        |env| alike(env, times(500, [&b"LB\x02\x01\0\0\0\0"[..], &[0x10; 8]].map(<[u8]>::to_vec))),
    ),
    Case::worker("datagrams of 1 byte", "1000", "short 1000", &["short"], |env| {
        alike(env, times(500, [b"L", b"\x10"].map(|byte| byte.to_vec())))
    }),
    Case::worker("empty datagrams", "1000", "short 1000", &["short"], |env| {
        alike(env, vec![Vec::new(); 1000])
    }),
    Case::worker(
        "packets cut short",
        "what E2SAR and udplbd send, of every length up to the payload, with and without the LB header",
        "empty 6, short 168",
        &["short", "empty"],
        |env| alike(env, cut_short()),
    ),
    Case::worker("the LB header alone", "500 of both versions", "short 1000", &["short"], |env| {
        alike(env, times(500, [2, 3].map(|version| lb(version, 1))))
    }),
    Case::worker(
        "other versions of the LB header",
        "all but 2 and 3, a whole event behind",
        "version 254",
        &["version"],
        |env| {
            let versions = (0..=255).filter(|version| ![2, 3].contains(version));
            alike(env, versions.map(|version| [lb(version, 1), whole(1)].concat()))
        },
    ),
    Case::worker("wrong magic", "LC, BL, lb, L0, a whole event behind", "version 400", &["version"], |env| {
        let wrong = |magic: &[u8; 2]| [&magic[..], &lb(2, 1)[2..], &whole(1)].concat();
        alike(env, times(100, [b"LC", b"BL", b"lb", b"L0"].map(wrong)))
    }),
    Case::worker(
        "other protocols in the LB header",
        "all 256, a whole event behind; nobody looks at it",
        "delivered 256",
        &["delivered"],
        |env| alike(env, (0..=255).map(|protocol| [lb(2, protocol), whole(protocol.into())].concat())),
    ),
    Case::worker(
        "every version of the RE header",
        "all 16, a whole event each",
        "delivered 3, version 13",
        &["delivered", "version"],
        |env| {
            let versions = (0..16u8).map(|version| {
                let mut datagram = whole(version.into());
                datagram[0] = version << 4;
                datagram
            });
            alike(env, versions)
        },
    ),
    Case::worker("sync messages", "100 at the data port", "version 100", &["version"], |env| {
        alike(env, vec![hex(SYNC); 100])
    }),
    Case::worker(
        "datagrams of 65 507 bytes",
        "8 whole events, 64 that are longer than their event, 64 of zeros",
        "delivered 8, beyond_end 64, empty 64",
        &["delivered", "beyond_end", "empty"],
        |env| alike(env, jumbo(JUMBO)),
    ),
    Case::worker(
        "no payload",
        "segments without payload, events without bytes, both",
        "empty 300",
        &["empty"],
        |env| {
            alike(env, times(100, [segment(1, 0, 8, &[]), segment(2, 0, 0, &[1; 8]), segment(3, 0, 0, &[])]))
        },
    ),
    Case::worker(
        "claims of 4 GiB",
        "1000 events of 2^32 - 1 bytes, their first byte or their last",
        "too_long 1000",
        &["too_long"],
        |env| {
            let claim = |event| segment(event, [0, u32::MAX - 1][event as usize % 2], u32::MAX, &[1]);
            alike(env, (0..1000).map(claim))
        },
    ),
    Case::worker(
        "random bytes",
        "20 000 datagrams of up to 2000 bytes",
        "counted",
        &["short", "version"],
        random,
    ),
    Case::worker(
        "random headers",
        "20 000 segments of 50 events, of random offset, length, payload and tick",
        "counted",
        &["conflict"],
        random_headers,
    ),
    Case::worker(
        "over IPv6",
        "most of the above at once, to ::1, where attackers have the honest sender's address",
        "beyond_end 464, empty 370, short 3168, version 767",
        &["beyond_end", "empty", "short", "version"],
        over_v6,
    )
    .only_v4("it is over IPv6 in every run"),
];

/// Each is judged for itself. Whole events come out as they were sent.
fn alike(
    env: &mut EjfatEnvironment,
    datagrams: impl IntoIterator<Item = Vec<u8>>,
) -> Result<Observation, String> {
    let beside = env.beside(Setup::default())?;
    env.send(&beside, datagrams)?;
    beside.wait(2);
    for (name, bytes) in beside.written()? {
        let jumbo = bytes.len() == JUMBO - ReHeader::LEN && bytes.iter().all(|&byte| byte == 1);
        if bytes != [7; 8] && !jumbo {
            return Err(format!("{name} came out with {} bytes that nobody sent", bytes.len()));
        }
    }
    beside.end()
}

fn times<const N: usize>(n: usize, datagrams: [Vec<u8>; N]) -> impl Iterator<Item = Vec<u8>> {
    std::iter::repeat_n(datagrams, n).flatten()
}

fn beyond_end() -> Vec<Vec<u8>> {
    let lies = [
        segment(1, 0x3000_0000, 3000, &[1; 8]),
        segment(2, u32::MAX - 7, MOST, &[1; 100]),
        segment(3, 3000, 3000, &[1]),
        segment(4, 2999, 3000, &[1; 2]),
    ];
    times(100, lies).collect()
}

fn whole(event: u64) -> Vec<u8> {
    segment(event, 0, 8, &[7; 8])
}

fn lb(version: u8, protocol: u8) -> Vec<u8> {
    let mut header = LbHeader { select: Select::V2 { entropy: 1 }, protocol, tick: 5 }.encode();
    header[2] = version;
    header.to_vec()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn cut_short() -> Vec<Vec<u8>> {
    let mut cut = Vec::new();
    for golden in GOLDEN.map(hex) {
        for packet in [&golden[..], &golden[LbHeader::LEN..]] {
            cut.extend((0..=packet.len()).map(|len| packet[..len].to_vec()));
        }
    }
    cut
}

fn jumbo(longest: usize) -> Vec<Vec<u8>> {
    let payload = vec![1; longest - ReHeader::LEN];
    let wholes = (0..8).map(|event| segment(event, 0, payload.len() as u32, &payload));
    let lies = (0..64).map(|event| segment(100 + event, 0, 3000, &payload));
    wholes.chain(lies).chain((0..64).map(|_| vec![0; longest])).collect()
}

/// The seed tells which. Each is counted.
fn random(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let mut datagram = [0; 2000];
    drawn(env, |random| {
        let length = random.below(2001) as usize;
        random.fill(&mut datagram[..length]);
        datagram[..length].to_vec()
    })
}

fn random_headers(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    drawn(env, |random| {
        let length = random.pick(&[1, 100, 1000, 1000, 1000, 100_000, MOST, u32::MAX]);
        let offset = random.pick(&[0, 0, 1, 99, 100, 500, length - 1, length, u32::MAX]);
        let payload = vec![9; random.pick(&[0, 1, 2, 99, 100, 400, 1000, 1400])];
        let segment = segment(random.below(50), offset, length, &payload);
        match random.below(4) {
            tick @ 0..2 => with_tick(tick, &segment),
            _ => segment,
        }
    })
}

fn drawn(
    env: &mut EjfatEnvironment,
    mut draw: impl FnMut(&mut simnet::Random) -> Vec<u8>,
) -> Result<Observation, String> {
    let beside = env.beside(Setup::default())?;
    let mut random = env.random.clone();
    let sent = env.send(&beside, std::iter::repeat_with(|| draw(&mut random)).take(20_000))?;
    env.random = random;
    beside.outlast();
    for (name, bytes) in beside.written()? {
        if bytes.len() > 1000 {
            return Err(format!("{name} of {} bytes came out, of which not all was sent", bytes.len()));
        }
    }
    let mut observation = beside.end_by_names(format!("{sent} datagrams, seed {}", env.seed), &[])?;
    observation.answer = "counted".into();
    Ok(observation)
}

fn over_v6(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let beside = env.beside(Setup { v6: true, ..Setup::default() })?;
    let shorts = times(750, [&b"LB\x02\x01\0\0\0\0"[..], &[0x10; 8], b"L", b""].map(<[u8]>::to_vec));
    let versions = (0..=255).filter(|version| ![2, 3].contains(version));
    let other_versions = versions.map(|version| [lb(version, 1), whole(1)].concat());
    let magics = [b"LC", b"BL", b"lb", b"L0"].map(|magic| [&magic[..], &lb(2, 1)[2..], &whole(1)].concat());
    let re_versions = (3..16u8).map(|version| [&[version << 4], &whole(1)[1..]].concat());
    let empties = times(100, [segment(1, 0, 8, &[]), segment(2, 0, 0, &[1; 8]), segment(3, 0, 0, &[])]);
    // IPv6's own header does not count: 20 bytes more than IPv4's.
    let long = jumbo(JUMBO + 20).split_off(8);
    let all = beyond_end().into_iter().chain(shorts).chain(cut_short()).chain(other_versions).chain(empties);
    let all = all.chain(times(100, magics)).chain(re_versions).chain(vec![hex(SYNC); 100]).chain(long);
    env.send(&beside, all)?;
    beside.end()
}
