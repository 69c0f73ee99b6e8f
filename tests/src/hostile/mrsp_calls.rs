//! Calls that lie: unknown functions, nonsense in arguments, regions that do not fit, calls out of turn.

use mrsp::{FunctionCode, RegionFlags, RegionRequest, builtin};
use roce::wire::{NakCode, Syndrome};

use super::{
    case::{Case, Observation},
    environment::Environment,
    memory::{calling, same},
    mrsp_talk::{Until, entry, fill, immediate, listen, messages, plain, say, steps},
    raw::{Offer, RawPeer, SOON},
    wire::{Answer, Wire},
};
use crate::slow::SLOW;

const FAILED: &[&str] = &["calls_failed"];
const ENDED: &[&str] = &["sessions_failed"];
const INPUT: u8 = RegionFlags::INPUT.bits();
const OUTPUT: u8 = RegionFlags::OUTPUT.bits();

/// A step of a session.
type Step = Box<dyn FnOnce(&mut RawPeer, &mut Wire) -> Result<(), String>>;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "unknown functions",
        "every number that is not offered, 0 and 128 with user bits",
        "code 0x10",
        FAILED,
        |env| {
            let offered = |code: u32| {
                let named = FunctionCode::new(code as u8).and_then(builtin::name).is_some();
                named || code as u8 == SLOW.get()
            };
            let codes = (0..128).filter(|code| !offered(*code)).map(|code| 0x80 | code);
            let imms = codes.chain([0x8000_0000, 0x100, 0xffff_ff00]);
            steps(env, &[plain(64)], imms.map(called))
        },
    ),
    Case::new(
        "nonsense in the user bits",
        "functions 1 to 3 with user bits of every kind, bit 7 set or not",
        "success",
        &[],
        |env| {
            let users = [1, 0xff_ffff, 0x80_0000, 0x55_5555, 0x00_00ff];
            let imms = users.iter().flat_map(|user| [1, 2, 3, 0x81, 0x82, 0x83].map(|code| user << 8 | code));
            steps(env, &[plain(64)], imms.map(called).collect::<Vec<_>>())
        },
    ),
    Case::new(
        "nonsense in the arguments",
        "random blocks and blocks of huge numbers to every built-in function",
        "code 0x11 or 0x13",
        FAILED,
        |env| {
            let rounds = env.times(3, 40);
            let mut blocks = Vec::new();
            for function in built_in() {
                for value in [u64::MAX, 1 << 63, i64::MAX as u64, 1 << 61, 1 << 32 | 1, 1 << 31, 4097] {
                    // No zeros: a matrix without columns is one.
                    for rest in [[1, 1], [1, value], [value, 1], [value, value]] {
                        blocks.push((function, block(function, [value, rest[0], rest[1]])));
                    }
                    blocks.push((function, block(function, [1, value, 1])));
                    blocks.push((function, block(function, [1, 1, value])));
                }
                for _ in 0..rounds {
                    let mut random = block(function, [0; 3]);
                    random[8..32].fill_with(|| env.random.next_u32() as u8);
                    blocks.push((function, random));
                    random.fill_with(|| env.random.next_u32() as u8);
                    blocks.push((function, random));
                }
            }
            let steps_ = blocks.into_iter().map(|(function, block)| -> Step {
                Box::new(move |peer, wire| {
                    fill(peer, wire, 0, &block)?;
                    immediate(peer, wire, 0x80 | u32::from(function.get()))
                })
            });
            let regions = FITTING.map(|(flags, size)| entry(flags, 0, 0x10_0000, size));
            steps(env, &regions, steps_).map(either)
        },
    ),
    Case::new(
        "regions that do not fit",
        "every built-in function without arguments, without outputs, on one small region",
        "code 0x11 or 0x13",
        FAILED,
        |env| {
            let shapes: [&[(u8, u32)]; 5] = [
                &[(INPUT, 10)],
                &[(INPUT, 64)],
                &[(OUTPUT, 64)],
                &[(INPUT | OUTPUT, 1)],
                &[(INPUT, 0), (OUTPUT, 0)],
            ];
            let mut answers = Vec::new();
            for shape in shapes {
                let regions: Vec<_> = shape.iter().map(|(flags, size)| entry(*flags, 0, 0, *size)).collect();
                let imms = built_in().map(|function| called(0x80 | u32::from(function.get())));
                answers.push(steps(env, &regions, imms)?.answer);
            }
            same(answers).map(either)
        },
    ),
    Case::new(
        "results larger than their region",
        "digest into 31 bytes, checksum into 3, the catalogue into 16",
        "code 0x13",
        FAILED,
        too_small,
    ),
    Case::new("the host gives up", "immediate 0 by a session that is ready", "DREQ", ENDED, |env| {
        let mut peer = env.attacker()?;
        let mut wire = peer.session(env.server(), &Offer::default(), &[plain(64)])?;
        immediate(&mut peer, &mut wire, 0)?;
        Ok(listen(&mut peer, &mut wire, Until::Disconnected)?.into())
    }),
    Case::new(
        "two calls at once",
        "a second WRITE with immediate behind the first",
        "RNR NAK, success, success",
        &["send_rnr_err"],
        |env| {
            let mut peer = env.attacker()?;
            let mut wire = peer.session(env.server(), &Offer::default(), &[plain(64)])?;
            immediate(&mut peer, &mut wire, 150 << 8 | 0x80 | u32::from(SLOW.get()))?;
            let psn = wire.psn;
            immediate(&mut peer, &mut wire, 0x81)?;
            let first = listen(&mut peer, &mut wire, Until::Response)?;
            // A requester tries again after the RNR NAK.
            wire.psn = psn;
            immediate(&mut peer, &mut wire, 0x81)?;
            let second = listen(&mut peer, &mut wire, Until::Response)?;
            peer.disconnect(&wire)?;
            Ok(format!("{first}, {second}").into())
        },
    ),
    Case::new(
        "a message during a call",
        "SEND while the function runs",
        "RNR NAK",
        &["send_rnr_err"],
        |env| {
            let (mut peer, mut wire) = calling(env)?;
            say(&mut peer, &mut wire, &[0, 1, 0, 0])?;
            Ok(listen(&mut peer, &mut wire, Until::Quiet)?.into())
        },
    ),
    Case::new("gone during a call", "DREQ while the function runs", "DREP", &[], |env| {
        let (mut peer, wire) = calling(env)?;
        peer.disconnect(&wire)?;
        env.settle();
        Ok("DREP".into())
    }),
    Case::new("results refused", "NAK 1 to 3 for the WRITE that brings the results", "DREQ", ENDED, |env| {
        let mut answers = Vec::new();
        for code in [NakCode::InvalidRequest, NakCode::RemoteAccess, NakCode::RemoteOperation] {
            answers.push(results_refused(env, code)?);
        }
        same(answers)
    }),
    Case::new(
        "messages after the last word",
        "requests behind one that is refused",
        "ERR 2, DREQ",
        ENDED,
        |env| {
            let mut long = vec![9; 64];
            long[0] = 1;
            messages(env, false, Until::Disconnected, [long.clone(), long])
        },
    ),
];

/// Which of the two comes depends on what a function looks at first.
fn either(observation: Observation) -> Observation {
    let refused = observation.answer.split(", ").all(|code| matches!(code, "code 0x11" | "code 0x13"));
    if refused { Observation::noted("code 0x11 or 0x13", observation.note) } else { observation }
}

fn called(imm: u32) -> Step {
    Box::new(move |peer, wire| immediate(peer, wire, imm))
}

/// Regions that a built-in function can work on: arguments, two inputs, status, an output.
const FITTING: [(u8, u32); 5] = [(INPUT, 64), (INPUT, 4096), (INPUT, 4096), (OUTPUT, 64), (OUTPUT, 4096)];

fn built_in() -> impl Iterator<Item = FunctionCode> {
    builtin::NAMES.iter().map(|(code, _)| *code).filter(|code| (16..64).contains(&code.get()))
}

/// An argument block with a right header and any first words.
fn block(function: FunctionCode, words: [u64; 3]) -> [u8; 64] {
    let mut block = [0; 64];
    block[..4].copy_from_slice(&[b'N', b'A', 1, function.get()]);
    block[8..32].copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
    block
}

fn too_small(env: &mut Environment) -> Result<Observation, String> {
    let mut answers = Vec::new();
    let digest = (builtin::Arguments::Sha256 { bytes: 4096 }, 31);
    for (arguments, room) in [digest, (builtin::Arguments::Crc32c { bytes: 4096 }, 3)] {
        let shape = [(INPUT, 64), (INPUT, 4096), (OUTPUT, 64), (OUTPUT, room)];
        let regions = shape.map(|(flags, size)| entry(flags, 0, 0x10_0000, size));
        answers.push(one(env, &regions, Some(&arguments.encode()), arguments.function())?);
    }
    answers.push(one(env, &[entry(OUTPUT, 0, 0x10_0000, 16)], None, builtin::CATALOGUE)?);
    same(answers)
}

fn one(
    env: &mut Environment,
    regions: &[RegionRequest],
    arguments: Option<&[u8]>,
    function: FunctionCode,
) -> Result<String, String> {
    let arguments = arguments.map(<[u8]>::to_vec);
    let step = |peer: &mut RawPeer, wire: &mut Wire| {
        if let Some(bytes) = &arguments {
            fill(peer, wire, 0, bytes)?;
        }
        immediate(peer, wire, 0x80 | u32::from(function.get()))
    };
    Ok(steps(env, regions, [step])?.answer)
}

fn results_refused(env: &mut Environment, code: NakCode) -> Result<String, String> {
    let mut peer = env.attacker()?;
    let mut wire = peer.session(env.server(), &Offer::default(), &[plain(64)])?;
    immediate(&mut peer, &mut wire, 0x81)?;
    peer.acknowledges = false;
    while let Some(answer) = peer.receive(&mut wire, SOON)? {
        if matches!(answer, Answer::Write { .. }) {
            wire.epsn = wire.epsn.minus(1);
            let mut refusal = wire.clone();
            refusal.epsn = wire.epsn.plus(1);
            peer.acknowledge(&refusal, Syndrome::Nak(code))?;
            let received = listen(&mut peer, &mut wire, Until::Disconnected)?;
            // A busy machine may have sent the results again before the refusal came.
            return Ok(received.strip_prefix("success, ").unwrap_or(&received).to_owned());
        }
    }
    Err("the call was not answered".into())
}
