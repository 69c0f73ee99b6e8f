//! Services as functions of a server.

use std::{borrow::Cow, fmt, sync::Arc};

use ejfat_lb::{SharedDataPlane, message, requests};
use mrsp::{
    FunctionCode, builtin,
    catalogue::{Direction, ParamInfo, ParamKind},
};
use naa_server::{
    call::{Call, CallFailure},
    function::{Function, FunctionInfo, Handler},
};
use proto::lb::v1;

use crate::Reassembly;

/// A request's bytes to a reply's.
type ServiceHandler = Box<dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync>;

struct Service {
    info: FunctionInfo,
    has_request: bool,
    answer: ServiceHandler,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("info", &self.info).finish_non_exhaustive()
    }
}

/// The most bytes of a request, the same as over gRPC.
const MOST_REQUEST: usize = 1 << 21;
/// The longest varint of a length.
const MOST_LENGTH: usize = 10;

impl Function for Service {
    fn info(&self) -> &FunctionInfo {
        &self.info
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        let missing = |what: &str| CallFailure::Arguments(Cow::Owned(format!("there is no {what}; map one")));
        let mut parts = call.parts();
        let request = if self.has_request {
            let request = parts.take_input(0).ok_or_else(|| missing("input for the request"))?;
            &*request
        } else {
            &[]
        };
        let output = parts.take_output(0).ok_or_else(|| missing("output for the reply"))?;
        // Rules of all tables take a third of it; a region may have gigabytes.
        let request = &request[..request.len().min(MOST_REQUEST)];
        let reply = (self.answer)(request).map_err(|why| CallFailure::Arguments(why.into()))?;
        if let Some(place) = output.get_mut(..reply.len()) {
            place.copy_from_slice(&reply);
            call.set_produced(0, reply.len());
            return Ok(());
        }
        // The length at the beginning says how much is needed.
        let length = reply.len().min(MOST_LENGTH).min(output.len());
        output[..length].copy_from_slice(&reply[..length]);
        call.set_status(length as u32);
        Err(CallFailure::OutputTooSmall { output: 0, needed: Some(reply.len() as u64) })
    }
}

pub(crate) fn service(
    code: FunctionCode,
    description: &str,
    request: Option<&str>,
    reply: &str,
    answer: impl Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
) -> Handler {
    let parameter = |direction, name: &str, description: &str| ParamInfo {
        direction,
        kind: ParamKind::Bytes,
        name: name.into(),
        description: description.into(),
    };
    let mut parameters = Vec::new();
    parameters.extend(request.map(|message| parameter(Direction::Input, "request", message)));
    parameters.push(parameter(Direction::Output, "reply", reply));
    let name = builtin::name(code).unwrap_or("unnamed").into();
    // Calls run on the pool, because compiling tables takes longer than a small call.
    let info = FunctionInfo { code, name, description: description.into(), pooled: true, parameters };
    Service { info, has_request: request.is_some(), answer: Box::new(answer) }.into()
}

/// What programs and queries the tables of a data plane: codes 64 to 67.
pub fn lb(plane: &Arc<SharedDataPlane>) -> [Handler; 4] {
    let [load, edit, get, count] = [0; 4].map(|_| plane.clone());
    [
        service(
            builtin::LB_LOAD,
            "replaces the load balancer's rules from a tick on",
            Some("LoadRequest"),
            "LoadReply",
            move |request| {
                let request = message::decode(request).map_err(text)?;
                requests::load(&load, &request).map(|reply| message::encode(&reply)).map_err(text)
            },
        ),
        service(
            builtin::LB_EDIT,
            "changes some of its rules, all or nothing",
            Some("EditRequest"),
            "EditReply",
            move |request| {
                let request = message::decode(request).map_err(text)?;
                requests::edit(&edit, &request).map(|reply| message::encode(&reply)).map_err(text)
            },
        ),
        service(builtin::LB_TABLES, "its rules", None, "GetReply", move |_| {
            requests::get(&get, &v1::GetRequest::default()).map(|reply| message::encode(&reply)).map_err(text)
        }),
        service(builtin::LB_COUNTERS, "its counters", None, "GetCountersReply", move |_| {
            Ok(message::encode(&requests::counters(&count, &v1::GetCountersRequest::default())))
        }),
    ]
}

/// What reassembly has counted: code 72.
pub fn reassembly_counters(of: Arc<Reassembly>) -> Handler {
    let reply = "ReassemblyCounters";
    service(builtin::REASSEMBLY_COUNTERS, "what reassembly has counted", None, reply, move |_| {
        Ok(message::encode(&of.snapshot().message()))
    })
}

pub(crate) fn text(error: impl fmt::Display) -> String {
    error.to_string()
}
