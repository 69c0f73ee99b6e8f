//! Requests for regions that lie: the server answers by name, closes, and has allocated nothing.

use mrsp::{RegionFlags, region::MAX_REGION_BYTES};

use super::{
    case::{Case, Observation, Run, Text},
    environment::Environment,
    memory::same,
    mrsp_talk::{Until, entry, immediate, listen, messages, plain, request, request_of, say},
    raw::Offer,
};

const INTERNAL: u8 = RegionFlags::INTERNAL.bits();
const IN_OUT: u8 = RegionFlags::INPUT.union(RegionFlags::OUTPUT).bits();
/// Where the accelerator's addresses end.
const NAA_END: u64 = (1 << 56) - 1;
const HALF: u32 = MAX_REGION_BYTES as u32;

const fn failing(name: Text, sent: Text, expected: Text, run: Run) -> Case {
    Case::new(name, sent, expected, &["sessions_failed"], run)
}

pub(super) const CASES: &[Case] = &[
    failing("too many or no regions", "requests for 0, 33, 255 regions", "ERR 3, DREQ", |env| {
        messages(env, false, Until::Disconnected, [0, 33, 255].map(request_of))
    }),
    failing("truncated", "a request for 2 regions cut at every length", "ERR 2, DREQ", |env| {
        let whole = request_of(2);
        let cut = (0..whole.len()).map(|len| whole[..len].to_vec());
        messages(env, false, Until::Disconnected, cut.collect::<Vec<_>>())
    }),
    failing(
        "longer than it says",
        "a request for 2 regions and 1, 8, 24, 1000, 6000 bytes more",
        "ERR 2, DREQ",
        |env| {
            let longer = [1, 8, 24, 1000, 6000].map(|more| {
                let mut message = request_of(2);
                message.resize(message.len() + more, 0xee);
                message
            });
            messages(env, false, Until::Disconnected, longer)
        },
    ),
    failing(
        "longer than any message",
        "SENDs of 12257 and 20000 bytes",
        "NAK 1 invalid request, DREQ",
        |env| messages(env, false, Until::Disconnected, [12257, 20_000].map(|len| vec![1; len])),
    ),
    failing("twice", "the same request again, without a pause", "A, ERR 3, DREQ", |env| {
        let mut peer = env.attacker()?;
        let mut wire = peer.connect(env.server(), &Offer::default())?;
        let message = request_of(1);
        say(&mut peer, &mut wire, &message)?;
        let first = listen(&mut peer, &mut wire, Until::Quiet)?;
        say(&mut peer, &mut wire, &message)?;
        let second = listen(&mut peer, &mut wire, Until::Disconnected)?;
        Ok(format!("{first}, {second}").into())
    }),
    failing(
        "another in a session",
        "requests for 1 and 32 regions by a session that is ready",
        "ERR 3, DREQ",
        |env| messages(env, true, Until::Disconnected, [1, 32].map(request_of)),
    ),
    failing("host addresses that wrap", "regions that end beyond 2^64", "ERR 2, DREQ", |env| {
        let wraps = [u64::MAX, u64::MAX - 4094, 0xffff_ffff_ffff_fff8];
        let regions = wraps.map(|addr| request(&[entry(IN_OUT, 0, addr, 4096)]));
        messages(env, false, Until::Disconnected, regions)
    }),
    failing("accelerator addresses that wrap", "regions that end beyond 2^56", "ERR 1, DREQ", |env| {
        let regions = [NAA_END, NAA_END - 4094].map(|addr| request(&[entry(IN_OUT, addr, 0, 4096)]));
        messages(env, false, Until::Disconnected, regions)
    }),
    Case::new("regions of 0 bytes", "sizes 0; 0 and 64; 32 of 0", "A", &[], |env| {
        let asked = [vec![plain(0)], vec![plain(0), plain(64)], vec![plain(0); 32]];
        messages(env, false, Until::Quiet, asked.map(|regions| request(&regions)))
    }),
    failing(
        "regions too large",
        "sizes 2^31 + 1, 2^32 - 1; sums of 8 GiB + 1, 64 GiB; internal ones too",
        "ERR 1, DREQ",
        |env| {
            let internal = entry(INTERNAL, 0, 0, u32::MAX);
            let asked = [
                vec![plain(HALF + 1)],
                vec![plain(u32::MAX)],
                vec![plain(64), internal],
                [vec![plain(HALF); 4], vec![plain(1)]].concat(),
                vec![plain(HALF); 32],
                [vec![plain(64)], vec![entry(INTERNAL, 0, 0, HALF); 31]].concat(),
            ];
            messages(env, false, Until::Disconnected, asked.map(|regions| request(&regions)))
        },
    ),
    failing(
        "all of the server's memory",
        "sessions of 8 GiB, untouched, until one is refused",
        "ERR 1, DREQ",
        hoard,
    ),
    failing("types of no message", "types 3 to 255", "ERR 2, DREQ", |env| {
        let types = (3..=255).step_by(if env.quick { 9 } else { 1 });
        let spoiled = types.map(|kind| [&[kind], &request_of(1)[1..]].concat());
        messages(env, false, Until::Disconnected, spoiled.collect::<Vec<_>>())
    }),
    failing("an advertisement to the server", "A of 1 region", "ERR 3, DREQ", |env| {
        let message = mrsp::codec::encode_advertisement(&[plain(64).host]).map_err(|e| e.to_string())?;
        messages(env, false, Until::Disconnected, [message])
    }),
    failing("error messages", "codes 0 to 255, before and after a request", "DREQ", |env| {
        let codes =
            || (0..=255).step_by(if env.quick { 17 } else { 1 }).map(|code| vec![0, code, 0xee, 0xee]);
        let (before, after) = (codes().collect::<Vec<_>>(), codes().collect::<Vec<_>>());
        let before = messages(env, false, Until::Disconnected, before)?;
        let after = messages(env, true, Until::Disconnected, after)?;
        same([before.answer, after.answer])
    }),
    failing(
        "internal and yet sent or returned",
        "a region beside an ordinary one with every such combination of flags",
        "ERR 2, DREQ",
        |env| {
            let contradictions = (0..=255).filter(|flags| flags & INTERNAL != 0 && flags & 0x0e != 0);
            let chosen = contradictions.step_by(if env.quick { 8 } else { 1 });
            let asked = chosen.map(|flags| request(&[plain(64), entry(flags, 0, 0, 64)]));
            messages(env, false, Until::Disconnected, asked.collect::<Vec<_>>())
        },
    ),
    failing("only internal regions", "1 and 32 of them", "ERR 3, DREQ", |env| {
        let asked = [1, 32].map(|count| request(&vec![entry(INTERNAL, 0, 0, 64); count]));
        messages(env, false, Until::Disconnected, asked)
    }),
    Case::new(
        "flags that mean nothing",
        "no flags, unknown ones, single-send and output, internal after all, overlapping addresses",
        "A",
        &[],
        |env| {
            let flags = [0x00, 0x02, 0x0a, 0x0e, 0xf0, 0xfe, 0x80];
            let mut asked: Vec<_> = flags.map(|flags| request(&[entry(flags, 0, 0x1000, 64)])).into();
            asked.push(request(&[entry(0xf1, 0, 0, 64), plain(64)]));
            asked.push(request(&[entry(IN_OUT, 0x1000, 0x1000, 4096); 8]));
            messages(env, false, Until::Quiet, asked)
        },
    ),
    failing(
        "a call before the regions",
        "WRITE with immediate 0, 1, 0x81, 0xffffffff instead of a request",
        "DREQ",
        |env| {
            let mut peer = env.attacker()?;
            let mut answers = Vec::new();
            for imm in [0, 1, 0x81, u32::MAX] {
                let mut wire = peer.connect(env.server(), &Offer::default())?;
                immediate(&mut peer, &mut wire, imm)?;
                answers.push(listen(&mut peer, &mut wire, Until::Disconnected)?);
            }
            same(answers)
        },
    ),
    Case::new(
        "private data of nobody",
        "REQs with 56 bytes: zeros, ones, an error message, a request",
        "A",
        &[],
        |env| {
            let mut peer = env.attacker()?;
            let mut answers = Vec::new();
            for user_data in [vec![0; 56], vec![0xff; 56], vec![0, 1, 0, 0], request_of(1)] {
                let mut wire = peer.connect(env.server(), &Offer { user_data, ..Offer::default() })?;
                say(&mut peer, &mut wire, &request_of(1))?;
                answers.push(listen(&mut peer, &mut wire, Until::Quiet)?);
                peer.disconnect(&wire)?;
            }
            same(answers)
        },
    ),
    failing("flood of SENDs", "5000 requests without a pause", "A, ERR 3, DREQ", flood),
];

/// The server has at most 16 GiB for all, and a session at most 8.
fn hoard(env: &mut Environment) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let mut wires = Vec::new();
    let answer = loop {
        let mut wire = peer.connect(env.server(), &Offer::default())?;
        say(&mut peer, &mut wire, &request(&[plain(HALF); 4]))?;
        let answer = listen(&mut peer, &mut wire, Until::Quiet)?;
        if answer != "A" || wires.len() == 3 {
            break answer;
        }
        wires.push(wire);
    };
    wires.iter().try_for_each(|wire| peer.disconnect(wire))?;
    Ok(Observation::noted(answer, format!("after {} sessions", wires.len())))
}

fn flood(env: &mut Environment) -> Result<Observation, String> {
    let mut peer = env.attacker()?;
    let mut wire = peer.connect(env.server(), &Offer::default())?;
    let message = request_of(1);
    say(&mut peer, &mut wire, &message)?;
    let first = listen(&mut peer, &mut wire, Until::Quiet)?;
    for _ in 0..5000 {
        let mut packet = wire.next(roce::opcode::SEND_ONLY);
        packet.payload = &message;
        let bytes = peer.sealed(wire.peer, &packet);
        peer.queue(wire.peer, &bytes)?;
    }
    peer.flush()?;
    let said = listen(&mut peer, &mut wire, Until::Disconnected)?;
    // Those beyond the one receive are told to wait, or lost in the crowd.
    let said = said.split(", ").filter(|word| !word.contains("NAK")).collect::<Vec<_>>().join(", ");
    Ok(format!("{first}, {said}").into())
}
