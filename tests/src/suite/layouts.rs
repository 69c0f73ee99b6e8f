//! Layouts of memory regions: what any of them moves, on random parameters.

mod blocks;
mod drawn;
mod model;

use std::net::SocketAddr;

use naa_host::{Buffer, Error, Layout, LayoutChoice, LayoutRule, Session, SessionConfig, U24};
use simnet::Random;

use super::{
    calls::call,
    case::{Case, doing, ensure},
    control::{Request, ServerConfig},
    environment::Environment,
    functions::{COPY, COUNT, FAIL, PRODUCE},
};
use drawn::{Drawn, Kind};
use model::Model;

pub(super) const CASES: &[Case] = &[
    Case::bytes("layouts: asymmetric, random parameters", |env| usual(env, 0x1a_0001, &[ASYMMETRIC; 10])),
    Case::bytes("layouts: gathered, random parameters", |env| usual(env, 0x1a_0002, &[GATHERED; 10])),
    Case::bytes("layouts: packed with several thresholds, random parameters", |env| {
        usual(env, 0x1a_0003, &[THRESHOLDS.map(packed_up_to); 2].concat())
    }),
    Case::bytes("layouts: auto, random parameters", |env| usual(env, 0x1a_0004, &[LayoutChoice::Auto; 10])),
    Case::rest("layouts: 255 parameters", most),
    Case::rest("layouts: an accelerator that knows none gets the symmetric one", |env| {
        with_slots(env, 0, 0x1a_0006)
    }),
    Case::rest("layouts: an accelerator that takes 3 parameters", |env| with_slots(env, 3, 0x1a_0007)),
    Case::rest("layouts: 40 parameters need one", too_many),
    Case::rest("layouts: built-in functions, and how they fail", blocks::built_in),
    Case::rest("layouts: one datagram of a hundred is lost", lossy),
];

const ASYMMETRIC: LayoutChoice = LayoutChoice::Fixed(Layout::Asymmetric);
const GATHERED: LayoutChoice = LayoutChoice::Fixed(Layout::Gathered);
const THRESHOLDS: [u32; 6] = [0, 16, 500, 4096, 65_536, 3_000_000];

const fn packed_up_to(threshold: u32) -> LayoutChoice {
    LayoutChoice::Fixed(Layout::Packed { threshold })
}

/// All layouts but the symmetric one.
const ALL: [LayoutChoice; 5] =
    [ASYMMETRIC, GATHERED, packed_up_to(1000), packed_up_to(65_536), LayoutChoice::Auto];

/// The rule of `auto`, chosen so that both its branches are taken.
const RULE: LayoutRule =
    LayoutRule { small: 5000, at_least: 6, most: LayoutRule::UNBOUNDED, otherwise: Layout::Gathered };

/// A server, and how many parameters it takes in a layout.
#[derive(Clone, Copy, Debug)]
struct LayoutServer {
    address: SocketAddr,
    slots: usize,
}

fn server(env: &mut Environment, settings: &ServerConfig) -> Result<LayoutServer, String> {
    Ok(LayoutServer { address: env.server_with(settings)?, slots: settings.max_slots.into() })
}

fn usual(env: &mut Environment, seed: u64, layouts: &[LayoutChoice]) -> Result<String, String> {
    let server = server(env, &ServerConfig::default())?;
    several(env, server, seed, layouts)
}

/// A random set of parameters for each layout.
fn several(
    env: &mut Environment,
    server: LayoutServer,
    seed: u64,
    layouts: &[LayoutChoice],
) -> Result<String, String> {
    for (number, &layout) in layouts.iter().enumerate() {
        let random = &mut Random::new(seed, number as u64);
        let params = drawn::params(random);
        let what = format!("seed {seed:#x}, set {number}, {layout}, {params:?}");
        doing(&what, one(env, server, layout, &params, random))?;
    }
    Ok(format!("{} sets of seed {seed:#x}", layouts.len()))
}

/// A session with such parameters, and another on its memory.
fn one(
    env: &mut Environment,
    server: LayoutServer,
    layout: LayoutChoice,
    params: &[Drawn],
    random: &mut Random,
) -> Result<(), String> {
    let shared = params.iter().filter(|param| param.kind != Kind::Internal);
    let contents: Vec<_> = shared.map(|param| drawn::bytes(random, param.len)).collect();
    let buffers = if random.chance(500_000) { Some(given(&contents)?) } else { None };
    let mut session = connect(env, server, layout, params, &contents, buffers)?;
    let mut model = Model::new(params, contents);
    model.check(&session, "in the beginning")?;
    use_it(&mut session, &mut model, random)?;
    let buffers = doing("into_buffers", session.into_buffers())?;
    model.check_buffers(&buffers)?;

    let other = random.pick(&ALL);
    let contents = model.into_contents();
    let empty = vec![Vec::new(); contents.len()];
    let mut session = connect(env, server, other, params, &empty, Some(buffers))?;
    let mut model = Model::new(params, contents);
    let called = copy(&mut session, &mut model, random).and_then(|()| model.check(&session, "again"));
    doing(&format!("then {other}"), called)
}

/// Buffers that hold other things than the parameters will.
fn given(contents: &[Vec<u8>]) -> Result<Vec<Buffer>, String> {
    let buffer = |content: &Vec<u8>| {
        let mut buffer = Buffer::new(content.len())?;
        buffer.as_mut_slice()?.fill(0xa5);
        Ok(buffer)
    };
    doing("memory", contents.iter().map(buffer).collect::<Result<_, Error>>())
}

fn connect(
    env: &mut Environment,
    server: LayoutServer,
    layout: LayoutChoice,
    drawn: &[Drawn],
    contents: &[Vec<u8>],
    buffers: Option<Vec<Buffer>>,
) -> Result<Session, String> {
    let mut contents = contents.iter();
    let params: Vec<_> = drawn
        .iter()
        .map(|param| match param.kind {
            Kind::Internal => param.param(&[]),
            _ => param.param(contents.next().map_or(&[], Vec::as_slice)),
        })
        .collect();
    let config = SessionConfig { layout, layout_rule: Some(RULE), ..env.config() };
    let device = env.device()?;
    let session = match buffers {
        Some(buffers) => Session::connect_with(&device, server.address, &params, buffers, &config),
        None => Session::connect(&device, server.address, &params, &config),
    };
    let session = doing("connect", session)?;
    let (found, expected) = (session.layout(), expected(layout, server.slots, drawn));
    ensure(found == expected, || format!("the layout is {found} instead of {expected}"))?;
    Ok(session)
}

fn expected(layout: LayoutChoice, slots: usize, drawn: &[Drawn]) -> Layout {
    let shared = || drawn.iter().filter(|param| param.kind != Kind::Internal);
    match layout {
        _ if shared().count() > slots => Layout::Symmetric,
        LayoutChoice::Fixed(layout) => layout,
        LayoutChoice::Auto => RULE.choose(shared().map(|param| param.len as u64)),
    }
}

/// Calls of several kinds, compared with the model after each.
fn use_it(session: &mut Session, model: &mut Model, random: &mut Random) -> Result<(), String> {
    for round in 0..3 {
        doing(&format!("call {round}"), copy(session, model, random))?;
    }
    doing("a call that produces", produce(session, model, random))?;
    doing("a call that fails", fail(session, model, random))?;
    doing("a call that counts", count(session, model, random))?;
    // Nothing but calls changes what the program writes.
    change(session, model, random)?;
    model.check(session, "in the end")
}

fn copy(session: &mut Session, model: &mut Model, random: &mut Random) -> Result<(), String> {
    let more = random.next_u32() as u8;
    change(session, model, random)?;
    call(session, COPY, more.into())?;
    model.send();
    model.copied(more);
    model.check(session, "after a copy")
}

fn produce(session: &mut Session, model: &mut Model, random: &mut Random) -> Result<(), String> {
    let Some(len) = model.first_output() else { return Ok(()) };
    let bytes = random.range(0..=len as u64) as u32;
    change(session, model, random)?;
    call(session, PRODUCE, bytes)?;
    model.send();
    model.produced(bytes as usize);
    model.check(session, &format!("with {bytes} bytes produced"))
}

fn fail(session: &mut Session, model: &mut Model, random: &mut Random) -> Result<(), String> {
    change(session, model, random)?;
    doing("invoke", session.invoke(FAIL, U24::ZERO))?;
    let outcome = doing("wait", session.wait())?;
    ensure(outcome.into_result().is_err(), || "it succeeded".into())?;
    model.send();
    model.check(session, "after a failure")
}

fn count(session: &mut Session, model: &mut Model, random: &mut Random) -> Result<(), String> {
    if !model.room_to_count() {
        return Ok(());
    }
    for _ in 0..2 {
        change(session, model, random)?;
        call(session, COUNT, 0)?;
        model.send();
        model.counted();
        model.check(session, "after counting")?;
    }
    Ok(())
}

/// The program writes, to most parameters, and says what of them is to be sent.
fn change(session: &mut Session, model: &mut Model, random: &mut Random) -> Result<(), String> {
    let params: Vec<_> = model.params().collect();
    for (index, (kind, len)) in params.into_iter().enumerate() {
        if random.chance(750_000) {
            let offset = random.range(0..=len as u64) as usize;
            let bytes = drawn::bytes(random, len - offset);
            doing("write", session.write(index, offset, &bytes))?;
            model.write(index, offset, &bytes);
        }
        if kind.is_ever_sent() {
            let part = drawn::part(random, len);
            doing("what to send", session.set_part_to_send(index, part))?;
            model.set_part(index, part);
        }
    }
    Ok(())
}

/// `count` parameters of up to some hundred bytes.
fn many(random: &mut Random, count: usize) -> Vec<Drawn> {
    let kinds = [Kind::Input, Kind::Output, Kind::InOut, Kind::Once, Kind::Idle];
    (0..count).map(|_| Drawn { kind: random.pick(&kinds), len: random.below(300) as usize }).collect()
}

fn most(env: &mut Environment) -> Result<String, String> {
    const SEED: u64 = 0x1a_0005;
    let server = server(env, &ServerConfig::default())?;
    for (number, layout) in ALL.into_iter().enumerate() {
        let random = &mut Random::new(SEED, number as u64);
        let params = many(random, 255);
        doing(&format!("seed {SEED:#x}, {layout}"), one(env, server, layout, &params, random))?;
    }
    let params = many(&mut Random::new(SEED, 9), 256);
    let config = SessionConfig { layout: GATHERED, ..env.config() };
    let refused = refusal(env, server, &params, &config)?;
    ensure(refused.contains("256 parameters"), || format!("256 parameters: {refused}"))?;
    Ok(format!("seed {SEED:#x}"))
}

/// Why there is no session.
fn refusal(
    env: &mut Environment,
    server: LayoutServer,
    drawn: &[Drawn],
    config: &SessionConfig,
) -> Result<String, String> {
    let params: Vec<_> = drawn.iter().map(|param| param.param(&[])).collect();
    match env.connect(server.address, &params, config)? {
        Err(error @ Error::Setup(_)) => Ok(error.to_string()),
        other => Err(format!("not refused here, but: {other:?}")),
    }
}

fn with_slots(env: &mut Environment, max_slots: u8, seed: u64) -> Result<String, String> {
    let server = server(env, &ServerConfig { max_slots, ..ServerConfig::default() })?;
    several(env, server, seed, &[ALL; 4].concat())
}

fn too_many(env: &mut Environment) -> Result<String, String> {
    const SEED: u64 = 0x1a_0008;
    let params = many(&mut Random::new(SEED, 0), 40);
    let without = server(env, &ServerConfig { max_slots: 0, ..ServerConfig::default() })?;
    for layout in ALL {
        let config = SessionConfig { layout, layout_rule: Some(RULE), ..env.config() };
        let refused = refusal(env, without, &params, &config)?;
        let named = refused.contains("40 regions are more than the 31");
        ensure(named, || format!("{layout}: told {refused}"))?;
    }
    several(env, without, SEED, &[GATHERED])?;
    let usual = server(env, &ServerConfig::default())?;
    for (number, layout) in ALL.into_iter().enumerate() {
        let random = &mut Random::new(SEED, 1 + number as u64);
        doing(&format!("seed {SEED:#x}, {layout}"), one(env, usual, layout, &params, random))?;
    }
    Ok(format!("seed {SEED:#x}"))
}

fn lossy(env: &mut Environment) -> Result<String, String> {
    env.server()?;
    let provider: String = env.control.ask(&Request::Provider)?;
    if provider != "embedded" {
        return Ok(format!("skipped: the far side's provider, {provider}, loses nothing on request"));
    }
    let server = server(env, &ServerConfig { loss_per_million: 10_000, ..ServerConfig::default() })?;
    several(env, server, 0x1a_0009, &[ALL; 6].concat())
}
