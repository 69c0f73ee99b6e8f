//! What is asked of a data plane, over gRPC or MRSP.

use ejfat::lb::{Rules, StageError};
use proto::lb::v1;

use crate::{
    Plane,
    message::{self, Cause, MessageError},
};

/// Why a request changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Stage(#[from] StageError),
}

/// Replaces all rules.
pub fn load(plane: &Plane, request: &v1::LoadRequest) -> Result<v1::LoadReply, RequestError> {
    let rules = message::rules(&request.rules)?;
    let from_tick = plane.load(rules, message::when(request.when.as_ref()))?;
    Ok(v1::LoadReply { from_tick })
}

/// Removes, then inserts; all or nothing.
pub fn edit(plane: &Plane, request: &v1::EditRequest) -> Result<v1::EditReply, RequestError> {
    let when = message::when(request.when.as_ref());
    let from_tick = plane.edit(when, |rules| change(rules, request).map_err(RequestError::from))?;
    Ok(v1::EditReply { from_tick })
}

fn change(rules: &mut Rules, request: &v1::EditRequest) -> Result<(), MessageError> {
    for (at, key) in request.remove.iter().enumerate() {
        let key = message::key(key).map_err(|error| error.within("remove", at))?;
        rules.remove(&key).ok_or_else(|| MessageError::new(format!("remove[{at}]"), Cause::Absent))?;
    }
    for (at, rule) in request.insert.iter().enumerate() {
        let rule = message::rule(rule).map_err(|error| error.within("insert", at))?;
        let inserted = rules.insert(rule, request.replace);
        inserted.map_err(|error| MessageError::new(format!("insert[{at}]"), error))?;
    }
    Ok(())
}
