//! Two connected ends, one here and one on the far side.

use std::net::IpAddr;

use naa_provider::ProviderChoice;
use serde::de::DeserializeOwned;

use super::{
    super::{
        case::{doing, ensure},
        control::{self, Control},
        environment::Environment,
    },
    end::End,
    wire::{AccessRequest, CmEventReport, Connect, Done, Op, Part, Queue, Remote, Request, Wr},
};

/// Longer than a connection takes over a bad network.
const TIME_LIMIT_MS: u64 = 30_000;
const TURN_MS: u64 = 10;
const RECEIVES: u32 = 32;

/// One end, wherever it is.
pub(super) enum Side<'a> {
    Here(Box<End>),
    There(&'a mut Control),
}

impl Side<'_> {
    pub(super) fn ask<T: DeserializeOwned>(&mut self, request: Request) -> Result<T, String> {
        match self {
            Self::Here(end) => {
                let value = end.perform(request).map_err(|why| format!("near side: {why}"))?;
                serde_json::from_value(value).map_err(|e| e.to_string())
            }
            Self::There(control) => control.ask(&control::Request::Driver(request)),
        }
    }

    pub(super) fn fresh(&mut self) -> Result<usize, String> {
        self.ask::<usize>(Request::Fresh { max_recv_wr: RECEIVES })
    }

    pub(super) fn region(&mut self, len: usize, access: AccessRequest) -> Result<Remote, String> {
        self.ask(Request::Region { len, access, foreign: false })
    }

    pub(super) fn fill(&mut self, part: Part, seed: u32) -> Result<(), String> {
        self.ask(Request::Fill { part, seed })
    }

    /// That the part holds the pattern.
    pub(super) fn holds(&mut self, what: &str, part: Part, seed: u32) -> Result<(), String> {
        let differs: Option<usize> = self.ask(Request::Differs { part, seed })?;
        differs.map_or(Ok(()), |at| Err(format!("{what}: byte {at} of {} is wrong", part.len)))
    }

    pub(super) fn receive(&mut self, id: u64, part: Part) -> Result<(), String> {
        self.ask(Request::Receive { id, part })
    }

    pub(super) fn post(&mut self, wrs: Vec<Wr>) -> Result<(), String> {
        self.ask(Request::Post { wrs })
    }

    pub(super) fn next(&mut self, queue: Queue, ms: u64) -> Result<Option<Done>, String> {
        self.ask(Request::Next { queue, ms })
    }

    /// The next completion, which must come.
    pub(super) fn done(&mut self, queue: Queue) -> Result<Done, String> {
        let done = self.next(queue, TIME_LIMIT_MS)?;
        done.ok_or_else(|| format!("no completion of the {queue:?} queue in time"))
    }

    /// That the next completion has this number and status.
    pub(super) fn completes(&mut self, queue: Queue, id: u64, status: &str) -> Result<Done, String> {
        let done = self.done(queue)?;
        ensure(done.id == id && done.status == status, || {
            format!("{queue:?} queue: request {} {} instead of request {id} {status}", done.id, done.status)
        })?;
        Ok(done)
    }

    pub(super) fn event(&mut self) -> Result<CmEventReport, String> {
        let event: Option<CmEventReport> = self.ask(Request::Event { ms: TIME_LIMIT_MS })?;
        event.ok_or_else(|| "no connection event in time".into())
    }

    /// Has the near end ask for a connection, and waits for the request at the far end, whose private data it gives.
    /// Both ends wait in turn: some providers get on with a connection only while its program waits.
    pub(super) fn ask_for(&mut self, far: &mut Side<'_>, connect: Connect) -> Result<Vec<u8>, String> {
        let port: u16 = far.ask(Request::Listen)?;
        self.ask::<()>(Request::Connect(Connect { port, ..connect }))?;
        for _ in 0..TIME_LIMIT_MS / TURN_MS {
            match far.ask(Request::Event { ms: 0 })? {
                Some(CmEventReport::Request { private_data }) => return Ok(private_data),
                Some(event) => return Err(format!("{event:?} instead of Request")),
                None => {}
            }
            if let Some(event) = self.ask::<Option<CmEventReport>>(Request::Event { ms: TURN_MS })? {
                return Err(format!("{event:?} without an answer"));
            }
        }
        Err("no connection request in time".into())
    }
}

/// Checks that both ends get the event of the end of their connection. Both are polled in turn, because with rdma-core
/// the end that disconnects gets its event only when the program of the other end has read its events.
pub(super) fn disconnected(mut sides: [&mut Side<'_>; 2]) -> Result<(), String> {
    let mut told = [false; 2];
    for _ in 0..TIME_LIMIT_MS / TURN_MS {
        for (side, told) in sides.iter_mut().zip(&mut told) {
            match side.ask(Request::Event { ms: TURN_MS })? {
                Some(CmEventReport::Disconnected) if !*told => *told = true,
                Some(event) => return Err(format!("{event:?} instead of Disconnected")),
                None => {}
            }
        }
        if told == [true; 2] {
            return Ok(());
        }
    }
    Err(format!("not disconnected in time: told {told:?}"))
}

/// Ends of a connection; `active` posts, `passive` is posted at.
pub(super) struct Pair<'a> {
    pub(super) active: Side<'a>,
    pub(super) passive: Side<'a>,
    pub(super) path_mtu: usize,
    /// Largest inline payload of the active end.
    pub(super) inline: usize,
}

/// Runs `case` with the near end in the active part, then with the far one. The near end always connects.
pub(super) fn both_directions(
    env: &mut Environment,
    case: impl Fn(&mut Pair<'_>) -> Result<(), String>,
) -> Result<String, String> {
    let [local, far] = addresses(env)?;
    let ack_timeout = env.options.ack_timeout;
    let mut near = Some(Box::new(near_end(local, env.options.choice)?));
    for near_is_active in [true, false] {
        let end = near.take().ok_or("the near end is gone")?;
        let (mut here, mut there) = (Side::Here(end), Side::There(&mut env.control));
        let inline = [here.fresh()?, there.fresh()?];
        let path_mtu = connect(&mut here, &mut there, Connect::to(far, ack_timeout))?;
        let (active, passive) = if near_is_active { (here, there) } else { (there, here) };
        let mut pair = Pair { active, passive, path_mtu, inline: inline[usize::from(!near_is_active)] };
        let who = if near_is_active { "near end active" } else { "far end active" };
        doing(who, case(&mut pair))?;
        let ends = [pair.active, pair.passive];
        near = ends.into_iter().find_map(|side| match side {
            Side::Here(end) => Some(end),
            Side::There(_) => None,
        });
    }
    drop(near);
    env.reset()?;
    Ok(String::new())
}

/// Two ends that are not connected, the near and the far one, and how they could be.
pub(super) fn strangers(env: &mut Environment) -> Result<(Side<'_>, Side<'_>, Connect), String> {
    let [local, far] = addresses(env)?;
    let connect = Connect::to(far, env.options.ack_timeout);
    let mut here = Side::Here(Box::new(near_end(local, env.options.choice)?));
    let mut there = Side::There(&mut env.control);
    here.fresh()?;
    there.fresh()?;
    Ok((here, there, connect))
}

fn near_end(local: IpAddr, choice: ProviderChoice) -> Result<End, String> {
    End::open(local, choice, false).map_err(|e| format!("near side: {e}"))
}

/// Ours and the far side's, with no device open on ours.
fn addresses(env: &mut Environment) -> Result<[IpAddr; 2], String> {
    env.reset()?;
    Ok([env.options.local, env.options.control.ip()])
}

/// The path MTU.
pub(super) fn connect(here: &mut Side<'_>, there: &mut Side<'_>, connect: Connect) -> Result<usize, String> {
    here.ask_for(there, connect)?;
    there.ask::<()>(Request::Accept { private_data: Vec::new() })?;
    let path_mtu = established(here)?;
    established(there)?;
    Ok(path_mtu as usize)
}

fn established(side: &mut Side<'_>) -> Result<u32, String> {
    match side.event()? {
        CmEventReport::Established { path_mtu, .. } => Ok(path_mtu),
        event => Err(format!("{event:?} instead of Established")),
    }
}

/// A part of region `region`.
pub(super) const fn part(region: usize, offset: usize, len: usize) -> Part {
    Part { region, offset, len }
}

/// A request that carries one part.
pub(super) fn wr(id: u64, op: Op, carried: Part) -> Wr {
    Wr::new(id, op, &[carried])
}
