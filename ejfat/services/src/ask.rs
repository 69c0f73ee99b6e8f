//! A host's call of a service: a message each way.

use std::net::SocketAddr;

use ejfat_lb::message;
use mrsp::{FunctionCode, ReturnCode};
use naa_host::{Device, Error, Param, Session, SessionConfig};
use prost::Message;

/// Holds the reply of most services; others tell how much they need.
const USUAL_REPLY: usize = 64 << 10;
/// As many sets of all rules as there may be stay below it.
const MOST_REPLY: usize = 64 << 20;

/// Why a service did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The session with the accelerator failed.
    #[error(transparent)]
    Session(#[from] Error),
    /// The accelerator refused the request.
    #[error("{peer} did not take the request; its log says why, with NAA_LOG=info")]
    Refused {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The error of the call.
        #[source]
        source: Error,
    },
    /// The bytes that the accelerator returned are not a reply of the service.
    #[error("what {peer} answered is no reply of this service: {problem}")]
    Reply {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The fault of the reply, as text for people.
        problem: String,
    },
}

/// An accelerator's services.
#[derive(Debug)]
pub(crate) struct ServiceClient {
    pub(crate) device: Device,
    pub(crate) peer: SocketAddr,
}

impl ServiceClient {
    pub(crate) fn ask<T: Message + Default>(
        &self,
        service: FunctionCode,
        request: Option<&[u8]>,
    ) -> Result<T, HostError> {
        let reply = match self.call(service, request, USUAL_REPLY)? {
            Ok(reply) => reply,
            Err(needed) => {
                // It may have grown when it is asked for again.
                let needed =
                    usize::try_from(needed).ok().map(|needed| needed.saturating_add(needed / 8 + 1024));
                let needed = needed.filter(|&needed| needed <= MOST_REPLY);
                let needed = needed.ok_or_else(|| self.unusable("it is too long"))?;
                self.call(service, request, needed)?.map_err(|_| self.unusable("its length changes"))?
            }
        };
        message::decode(&reply).map_err(|error| self.unusable(error))
    }

    /// The reply, or how long it would be.
    fn call(
        &self,
        service: FunctionCode,
        request: Option<&[u8]>,
        room: usize,
    ) -> Result<Result<Vec<u8>, u64>, HostError> {
        let params: Vec<_> = request.map(Param::data).into_iter().chain([Param::output(room)]).collect();
        let config = SessionConfig::default();
        let mut session = Session::connect(&self.device, self.peer, &params, &config)?;
        let called = session.call(service);
        let reply = session.to_vec(params.len() - 1)?;
        let result = match called {
            Ok(()) => Ok(reply),
            Err(error) => match error.return_code() {
                Some(ReturnCode::OUTPUT_TOO_SMALL) => {
                    Err(length(&reply).ok_or_else(|| self.unusable("it has no length"))?)
                }
                Some(ReturnCode::BAD_ARGUMENTS) => {
                    return Err(HostError::Refused { peer: self.peer, source: error });
                }
                _ => return Err(error.into()),
            },
        };
        session.finalize()?;
        Ok(result)
    }

    pub(crate) fn unusable(&self, problem: impl ToString) -> HostError {
        HostError::Reply { peer: self.peer, problem: problem.to_string() }
    }
}

/// Returns the length in bytes of the whole reply, which begins with the length of its message.
fn length(mut reply: &[u8]) -> Option<u64> {
    let all = reply.len();
    let message = prost::decode_length_delimiter(&mut reply).ok()?;
    Some((message + all - reply.len()) as u64)
}
