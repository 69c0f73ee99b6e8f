//! Connections: private data, rejections, both orders of disconnecting.

use verbs::RejectReason;

use super::{
    super::{
        case::{Case, doing, ensure},
        environment::Environment,
    },
    pair::{Pair, both_directions, connect, disconnected, part, strangers, wr},
    wire::{AccessRequest, CmEventReport, Connect, Op, Queue, Request},
};

pub(super) const CASES: &[Case] = &[
    Case::rest("seam: private data both ways", private_data),
    Case::rest("seam: a rejection carries its words", rejected),
    Case::rest("seam: nobody listens", nobody),
    Case::rest("seam: either end disconnects first; receives are flushed", |s| {
        both_directions(s, disconnect)
    }),
    Case::rest("seam: 30 connections one after the other, each end leaving first in turn", many),
];

/// Providers pad private data with zeroes.
fn begins_with(what: &str, found: &[u8], expected: &[u8]) -> Result<(), String> {
    let rest = found.strip_prefix(expected).ok_or_else(|| format!("{what}: {found:?}"))?;
    ensure(rest.iter().all(|byte| *byte == 0), || format!("{what}: {rest:?} follow"))
}

fn private_data(env: &mut Environment) -> Result<String, String> {
    let (mut here, mut there, way) = strangers(env)?;
    let (asked, replied) = ((1..=56).collect::<Vec<u8>>(), (1..=196).collect::<Vec<u8>>());
    let came = here.ask_for(&mut there, Connect { private_data: asked.clone(), ..way })?;
    begins_with("of the request", &came, &asked)?;
    there.ask::<()>(Request::Accept { private_data: replied.clone() })?;
    match here.event()? {
        CmEventReport::Established { private_data, .. } => {
            begins_with("of the reply", &private_data, &replied)?
        }
        event => return Err(format!("{event:?} instead of Established")),
    }
    Ok(String::new())
}

fn rejected(env: &mut Environment) -> Result<String, String> {
    let (mut here, mut there, way) = strangers(env)?;
    here.ask_for(&mut there, way)?;
    there.ask::<()>(Request::Reject { private_data: b"not today".to_vec() })?;
    match here.event()? {
        CmEventReport::Rejected { reason, private_data } => {
            ensure(reason == RejectReason::CONSUMER_DEFINED.0, || format!("reason {reason}"))?;
            begins_with("the words", &private_data, b"not today")?;
        }
        event => return Err(format!("{event:?} instead of Rejected")),
    }
    Ok(String::new())
}

fn nobody(env: &mut Environment) -> Result<String, String> {
    let (mut here, mut there, way) = strangers(env)?;
    let port: u16 = there.ask(Request::Listen)?;
    here.ask::<()>(Request::Connect(Connect { port: port ^ 1, ..way }))?;
    match here.event()? {
        CmEventReport::Rejected { reason, .. } if reason == RejectReason::INVALID_SERVICE_ID.0 => {
            Ok(String::new())
        }
        event => Err(format!("{event:?} instead of Rejected for want of a listener")),
    }
}

fn disconnect(pair: &mut Pair<'_>) -> Result<(), String> {
    for side in [&mut pair.active, &mut pair.passive] {
        side.region(1000, AccessRequest::Local)?;
        side.receive(1, part(0, 0, 500))?;
        side.receive(2, part(0, 500, 500))?;
    }
    pair.active.post(vec![wr(3, Op::Send, part(0, 0, 10))])?;
    pair.active.completes(Queue::Send, 3, "Success")?;
    pair.passive.completes(Queue::Receive, 1, "Success")?;
    pair.active.ask::<()>(Request::Disconnect)?;
    disconnected([&mut pair.active, &mut pair.passive])?;
    pair.active.completes(Queue::Receive, 1, "WrFlushError")?;
    pair.active.completes(Queue::Receive, 2, "WrFlushError")?;
    pair.passive.completes(Queue::Receive, 2, "WrFlushError").map(drop)
}

fn many(env: &mut Environment) -> Result<String, String> {
    let (mut here, mut there, way) = strangers(env)?;
    for round in 0..30 {
        let what = format!("round {round}");
        here.fresh()?;
        there.fresh()?;
        doing(&what, connect(&mut here, &mut there, way.clone()))?;
        let first = if round % 2 == 0 { &mut here } else { &mut there };
        first.ask::<()>(Request::Disconnect)?;
        doing(&what, disconnected([&mut here, &mut there]))?;
    }
    Ok(String::new())
}
