//! What is asked of a data plane, over gRPC or MRSP.

use std::num::NonZeroU64;

use ejfat::lb::Rules;
use proto::lb::v1;

use crate::{
    SharedDataPlane, WriteError,
    message::{self, FieldError, MessageError},
};

/// Why a request changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A field of the request is not valid.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The data plane refused the change.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The tables of the load balancers begin at more than [`SharedDataPlane::MOST_SETS`] different ticks, so they do
    /// not fit into one reply.
    #[error(
        "the tables of the load balancers begin at more than {most} different ticks; ask over gRPC for those of one load balancer, or for the newest",
        most = SharedDataPlane::MOST_SETS
    )]
    ManySets,
}

/// Replaces all rules of the data plane.
///
/// # Errors
/// Fails with [`RequestError`] if a field of the request is not valid, or if the data plane refuses the change.
pub fn load(plane: &SharedDataPlane, request: &v1::LoadRequest) -> Result<v1::LoadReply, RequestError> {
    let rules = message::rules(&request.rules)?;
    let mut write = plane.write(NonZeroU64::new(request.term))?;
    let from_tick = write.load(&rules, message::when(request.when.as_ref()))?;
    drop(write);
    Ok(v1::LoadReply { from_tick, routed: routed(plane, request.tell_routed) })
}

/// Removes rules of the data plane, and inserts rules.
///
/// # Errors
/// Fails with [`RequestError`] if a field of the request is not valid, or if the data plane refuses the change. After
/// an error, no rule is changed.
pub fn edit(plane: &SharedDataPlane, request: &v1::EditRequest) -> Result<v1::EditReply, RequestError> {
    let when = message::when(request.when.as_ref());
    let mut write = plane.write(NonZeroU64::new(request.term))?;
    let from_tick = write.edit(when, |rules| change(rules, request).map_err(RequestError::from))?;
    drop(write);
    Ok(v1::EditReply { from_tick, routed: routed(plane, request.tell_routed) })
}

/// Returns the table sets of the data plane.
///
/// # Errors
/// Fails with [`RequestError::Message`] if there is no load balancer with the requested number, and with
/// [`RequestError::ManySets`] if there are too many table sets for one reply.
pub fn get(plane: &SharedDataPlane, request: &v1::GetRequest) -> Result<v1::GetReply, RequestError> {
    let sets = match request.lb {
        Some(lb) => plane.sets_of(message::lb("lb", lb)?),
        None if request.newest => vec![plane.newest_set()],
        None => plane.sets().ok_or(RequestError::ManySets)?,
    };
    let newest = if request.newest { sets.len().saturating_sub(1) } else { 0 };
    Ok(v1::GetReply { routed: routed(plane, request.tell_routed), ..message::of_sets(&sets[newest..]) })
}

/// What was counted.
pub fn counters(plane: &SharedDataPlane, request: &v1::GetCountersRequest) -> v1::GetCountersReply {
    let counters = plane.counters();
    let routed = if request.tell_routed { message::of_routed(&counters.routed) } else { Vec::new() };
    v1::GetCountersReply { routed, ..message::of_counters(&counters) }
}

/// Stages tables of one load balancer.
///
/// # Errors
/// Fails with [`RequestError`] if a field of the request is not valid, or if the data plane refuses the change.
pub fn stage(plane: &SharedDataPlane, request: &v1::StageRequest) -> Result<v1::StageReply, RequestError> {
    let stage = message::stage(request)?;
    plane.write(NonZeroU64::new(request.term))?.stage(&stage)?;
    Ok(v1::StageReply { routed: routed(plane, true) })
}

/// Withdraws staged tables of one load balancer.
///
/// # Errors
/// Fails with [`RequestError`] if a field of the request is not valid, or if the data plane refuses the change.
pub fn withdraw(
    plane: &SharedDataPlane,
    request: &v1::WithdrawRequest,
) -> Result<v1::WithdrawReply, RequestError> {
    let lb = message::lb("lb", request.lb)?;
    plane.write(NonZeroU64::new(request.term))?.withdraw(lb, request.from_tick)?;
    Ok(v1::WithdrawReply { routed: routed(plane, true) })
}

/// What was routed, and where tables begin.
pub fn ticks(plane: &SharedDataPlane) -> v1::GetTicksReply {
    message::of_ticks(&plane.ticks())
}

fn routed(plane: &SharedDataPlane, is_told: bool) -> Vec<v1::LbTick> {
    if is_told { message::of_routed(&plane.ticks().routed) } else { Vec::new() }
}

fn change(rules: &mut Rules, request: &v1::EditRequest) -> Result<(), MessageError> {
    for (at, key) in request.remove.iter().enumerate() {
        let key = message::key(key).map_err(|error| error.within("remove", at))?;
        rules.remove(&key).ok_or_else(|| MessageError::new(format!("remove[{at}]"), FieldError::Absent))?;
    }
    for (at, rule) in request.insert.iter().enumerate() {
        let rule = message::rule(rule).map_err(|error| error.within("insert", at))?;
        let inserted = rules.insert(rule, request.replace);
        inserted.map_err(|error| MessageError::new(format!("insert[{at}]"), error))?;
    }
    Ok(())
}
