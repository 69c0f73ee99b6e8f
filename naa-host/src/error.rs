//! The errors of this crate. The text of each error says what went wrong and what to do about it. [`Error::party`] says
//! who must remove the cause of an error.

use std::{fmt, net::SocketAddr, time::Duration};

use mrsp::{
    ErrorCode, FunctionCode, ReturnCode,
    builtin::{self, BlockError, FunctionGroup},
    catalogue::CatalogueError,
    host::{CallError, PeerError, SetupError},
};
use verbs::{RejectReason, Unreachable, WcStatus};

use crate::spec::SpecError;

/// The party that must remove the cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The author of the calling program, or the person who set the program's environment, must remove the cause of the
    /// error.
    Program,
    /// The person who operates this machine must remove the cause of the error.
    Machine,
    /// The person who operates the network between this machine and the accelerator must remove the cause of the error.
    Network,
    /// The person who operates the accelerator must remove the cause of the error.
    Accelerator,
}

/// The reason why a connection ended before its session was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// The accelerator disconnected.
    Disconnected,
    /// The accelerator no longer acknowledged packets.
    Silent,
    /// The queue pair failed.
    Failed(WcStatus),
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected => {
                f.write_str("it ended the connection; it may have been stopped, its log says why")
            }
            Self::Silent => {
                f.write_str("it does not answer any more; see whether it runs and can be reached")
            }
            // This status means here that work requests were flushed, but no other work request had failed, and the
            // peer did not disconnect. The cause is then that this side's device has refused something that the peer
            // sent.
            Self::Failed(WcStatus::WrFlushError) => f.write_str(
                "it sent what this side refuses, such as a WRITE outside a call's outputs; its log may say why",
            ),
            Self::Failed(status) => write!(f, "the connection failed: {status}; its log may say why"),
        }
    }
}

/// The reason why an operation of this crate failed, with a text that says what to do about the failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The accelerator rejected the connection request.
    #[error("{peer} refused the connection: {}", refusal(*reason, said.as_deref()))]
    ConnectionRefused {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The reason in the rejection of the connection request.
        reason: RejectReason,
        /// The text in the rejection's private data, or `None` if the accelerator sent no text.
        said: Option<String>,
    },
    /// No connection to the accelerator could be set up from the local device.
    #[error("{peer} cannot be reached from {device}: {why}")]
    Unreachable {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The reason why the connection attempt failed.
        why: Unreachable,
        /// The description of the local device.
        device: String,
    },
    /// The system cannot resolve the name of an accelerator.
    #[error("the name {name} is not known here: {source}; correct it, or give an address")]
    Name {
        /// The name of the accelerator, as the program gave it.
        name: String,
        /// The error of the name resolution.
        source: std::io::Error,
    },
    /// The attempts to connect failed for all addresses of a host name.
    #[error("{name} cannot be used at any of its {} addresses: {}", tried.len(), each(tried))]
    NoneReached {
        /// The name of the accelerator, as the program gave it.
        name: String,
        /// The tried addresses in order, each with the error of its attempt.
        tried: Vec<(SocketAddr, Self)>,
    },
    /// No accelerator of a pool could be reached for a while.
    #[error("no accelerator of the pool can be reached: {}", each(tried))]
    NoAcceleratorReached {
        /// The accelerators in the order of the pool, each with its last error.
        tried: Vec<(SocketAddr, std::sync::Arc<Self>)>,
    },
    /// A pool was to be made without accelerators.
    #[error("a pool needs at least one accelerator; give the address of one")]
    NoAccelerators,
    /// The accelerator did not answer the region request before the session's setup time-out.
    #[error("{peer} did not answer the request for regions within {limit:?}; see its load and its log")]
    SetupTimedOut {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The session's setup time-out.
        limit: Duration,
    },
    /// The response to a streaming call did not arrive in time.
    #[error("{peer} did not answer the call of {} within {limit:?}; see its load and its log", function_name(*function))]
    AnswerTimedOut {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The function that was called.
        function: FunctionCode,
        /// The setup time-out of the session, which is also the time limit for the response to a streaming call.
        limit: Duration,
    },
    /// The call took longer than [`SessionConfig::call_timeout`](crate::SessionConfig::call_timeout), so the session is
    /// over.
    #[error(
        "{peer} did not finish the call of {} within {limit:?}; see its load, or allow more (--timeout, NAA_TIMEOUT, or \
         the call timeout that the program sets)",
        function_name(*function)
    )]
    CallTimedOut {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The function that was called.
        function: FunctionCode,
        /// The time limit of the call.
        limit: Duration,
    },
    /// The connection ended before the session was closed.
    #[error("lost the accelerator {peer}{}: {why}{}", during(*function), retry(*function))]
    PeerGone {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The function whose call was running when the connection ended, or `None` if no call was running.
        function: Option<FunctionCode>,
        /// The reason why the connection ended.
        why: Gone,
    },
    /// The accelerator refuses the regions or breaks the protocol.
    #[error("{peer}: {source}{}", peer_remedy(source))]
    Peer {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The reason for which the accelerator refused the regions, or a description of how it broke the protocol.
        source: PeerError,
    },
    /// The accelerator reports that the function failed or could not be executed.
    #[error("{peer}, {}: {code}{}", function_name(*function), more(*function, *code, *detail))]
    Function {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The function that failed.
        function: FunctionCode,
        /// The return code in the response immediate.
        code: ReturnCode,
        /// The detail in a built-in function's status block. If the return code is OUTPUT_TOO_SMALL, the detail is the
        /// number of bytes that the output needs, or 0 if this number is unknown.
        detail: u64,
    },
    /// The accelerator's output does not contain a valid catalogue.
    #[error("{peer} wrote no usable catalogue: {source}")]
    Catalogue {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The reason why the bytes are not a catalogue.
        source: CatalogueError,
    },
    /// A built-in function's first output does not contain a valid status block.
    #[error("{peer} wrote no usable status block: {source}")]
    Status {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The reason why the bytes are not a status block.
        source: BlockError,
    },
    /// A status block claims more bytes for an output than the output's region has.
    #[error("{peer} claims {produced} bytes of output {output}, which has {size}")]
    Produced {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The number of the output, counted from 0 without the status block.
        output: usize,
        /// The number of produced bytes that the status block claims.
        produced: u64,
        /// The size of the output's region in bytes.
        size: usize,
    },
    /// The RDMA device failed or refused an operation.
    #[error("this machine: {0}")]
    Device(#[from] verbs::Error),
    /// The memory for a region cannot be allocated.
    #[error("this machine: {0}")]
    Memory(#[source] std::io::Error),
    /// The parameters are not valid for a session.
    #[error("invalid regions: {0}")]
    Setup(#[from] SetupError),
    /// The session was in the wrong state for a call, or a part of a parameter is not valid.
    #[error("invalid call: {0}")]
    Call(#[from] CallError),
    /// An earlier error has ended the session.
    #[error("the session with {peer} is over: {why}")]
    Over {
        /// The address of the accelerator.
        peer: SocketAddr,
        /// The text of the error that ended the session.
        why: String,
        /// The party that must remove the cause of the error that ended the session.
        party: Party,
    },
    /// The program used a region or began another call while a call was running.
    #[error("the regions are in use by a call; wait for its outcome first")]
    InCall,
    /// The memory cannot be borrowed as a slice, because an accelerator may still write to the memory.
    #[error(
        "an accelerator can still write this memory, since its device does not take access back; copy it with \
         `bytes`, `read` or `to_vec`, change it with `write`, or promise what `lease_trusting_the_accelerator` asks for"
    )]
    InReach,
    /// The program asked for values of a type whose size does not divide the length of the memory.
    #[error(
        "{len} bytes are no whole number of values of {size} bytes; choose another type or another length"
    )]
    NotWhole {
        /// The length of the memory in bytes.
        len: usize,
        /// The size of a value in bytes.
        size: usize,
    },
    /// The program asked for a slice of values in memory that does not begin at a multiple of the type's alignment.
    #[error(
        "the memory does not begin at a multiple of {alignment} bytes, as a slice of these values must; copy it with \
         `values`, `bytes` or `to_vec`"
    )]
    Unaligned {
        /// The alignment of the type in bytes.
        alignment: usize,
    },
    /// The program waited for a response, but no call was running.
    #[error("no call is under way; invoke one first")]
    NoCall,
    /// The session has no parameter with the number that the program gave.
    #[error("there is no parameter {index}, the session has {params}, counted from 0 without internal ones")]
    NoSuchParam {
        /// The number of the parameter, as the program gave it.
        index: usize,
        /// The number of the session's parameters, without internal regions.
        params: usize,
    },
    /// The parameter is not an input, but the program tried to choose which part of it is sent, or to write to it by a
    /// [`Writer`](crate::Writer).
    #[error("parameter {index} is not sent; only inputs have a number of bytes to send")]
    NotInput {
        /// The number of the parameter, counted from 0 without internal regions.
        index: usize,
    },
    /// The number of buffers differs from the number of parameters that are not internal.
    #[error("{buffers} buffers for {params} parameters; give one for each that is not internal")]
    Buffers {
        /// The number of buffers that the program gave.
        buffers: usize,
        /// The number of parameters that are not internal.
        params: usize,
    },
    /// A buffer has another length than its parameter.
    #[error("the buffer for parameter {index} has {len} bytes, the parameter {size}; make them equal")]
    Buffer {
        /// The number of the parameter, counted from 0 without internal regions.
        index: usize,
        /// The length of the buffer in bytes.
        len: usize,
        /// The length of the parameter in bytes.
        size: usize,
    },
    /// The program gave a range of bytes that does not lie inside the parameter.
    #[error("{len} bytes at {offset} do not lie inside parameter {index}, which has {size}")]
    OutOfBounds {
        /// The number of the parameter, counted from 0 without internal regions.
        index: usize,
        /// The offset in bytes from the start of the parameter to the start of the range that the program gave.
        offset: usize,
        /// The length in bytes of the range that the program gave.
        len: usize,
        /// The size of the parameter in bytes.
        size: usize,
    },
    /// The program gave a [`Writer`](crate::Writer) a part with more bytes than one WRITE may have.
    #[error(
        "{len} bytes for parameter {index} exceed the {max_bytes} of one WRITE; split them into smaller parts"
    )]
    PartTooLong {
        /// The number of the parameter, counted from 0 without internal regions.
        index: usize,
        /// The length of the part in bytes.
        len: usize,
        /// The maximum number of bytes of one WRITE, which [`max_bytes`](crate::Writer::max_bytes) returns.
        max_bytes: usize,
    },
    /// An environment variable has a value that is not valid.
    #[error("{name}={value}: {problem}")]
    Environment {
        /// The name of the environment variable.
        name: &'static str,
        /// The value of the environment variable.
        value: String,
        /// The reason why the value is not valid.
        problem: String,
    },
    /// The environment variable `NAA_SPEC` is not set or not valid, or lists no accelerator for the function. The error
    /// is also returned if this process already uses all accelerators that `NAA_SPEC` lists for the function.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl Error {
    /// Returns the party that must remove the cause of the error.
    pub fn party(&self) -> Party {
        match self {
            Self::Unreachable { .. } | Self::PeerGone { why: Gone::Silent, .. } => Party::Network,
            Self::NoneReached { tried, .. } => tried.last().map_or(Party::Network, |(_, last)| last.party()),
            Self::NoAcceleratorReached { tried } => {
                tried.last().map_or(Party::Network, |(_, last)| last.party())
            }
            Self::ConnectionRefused { .. }
            | Self::SetupTimedOut { .. }
            | Self::AnswerTimedOut { .. }
            | Self::CallTimedOut { .. }
            | Self::PeerGone { .. }
            | Self::Peer { .. }
            | Self::Catalogue { .. }
            | Self::Status { .. }
            | Self::Produced { .. } => Party::Accelerator,
            Self::Function { code, .. } => match *code {
                ReturnCode::UNKNOWN_FUNCTION
                | ReturnCode::BAD_ARGUMENTS
                | ReturnCode::MALFORMED_INPUT
                | ReturnCode::OUTPUT_TOO_SMALL
                | ReturnCode::OVER_LIMIT => Party::Program,
                _ => Party::Accelerator,
            },
            Self::Over { party, .. } => *party,
            Self::Device(_) | Self::Memory(_) | Self::Name { .. } => Party::Machine,
            Self::Setup(_)
            | Self::Call(_)
            | Self::InCall
            | Self::InReach
            | Self::NoAccelerators
            | Self::NotWhole { .. }
            | Self::Unaligned { .. }
            | Self::NoCall
            | Self::NoSuchParam { .. }
            | Self::NotInput { .. }
            | Self::Buffers { .. }
            | Self::Buffer { .. }
            | Self::OutOfBounds { .. }
            | Self::PartTooLong { .. }
            | Self::Environment { .. }
            | Self::Spec(_) => Party::Program,
        }
    }

    /// Returns the return code if the error is that a function failed, else `None`.
    pub fn return_code(&self) -> Option<ReturnCode> {
        match self {
            Self::Function { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// Returns the errors of all addresses as one text. The errors are numbered, and the text of each error begins with the
/// address that was tried.
fn each(tried: &[(SocketAddr, impl std::borrow::Borrow<Error>)]) -> String {
    let texts = tried.iter().zip(1..).map(|((address, error), number)| {
        let (address, error) = (address.to_string(), error.borrow().to_string());
        if error.starts_with(&address) {
            format!("({number}) {error}")
        } else {
            format!("({number}) {address}: {error}")
        }
    });
    texts.collect::<Vec<_>>().join("; ")
}

fn refusal(reason: RejectReason, said: Option<&str>) -> String {
    if let Some(said) = said {
        return format!("{reason}: \"{said}\"");
    }
    let remedy = match reason {
        RejectReason::INVALID_SERVICE_ID => "start one with `naa serve`, or correct the port",
        RejectReason::CONSUMER_DEFINED => "it is full or does not serve this address; its log says which",
        RejectReason::NO_QP | RejectReason::NO_RESOURCES => "it is full; try again later",
        _ => "its log may say why",
    };
    format!("{reason}; {remedy}")
}

fn peer_remedy(error: &PeerError) -> &'static str {
    match error {
        PeerError::Refused(ErrorCode::Memory) => {
            "; ask for less, or have it raise --memory or --session-memory; its log says which"
        }
        PeerError::Refused(ErrorCode::TooManyRegions) => "; put small regions together",
        PeerError::Refused(_) => "; its log says why",
        _ => "; see what its port really serves, and its log",
    }
}

pub(crate) fn function_name(function: FunctionCode) -> String {
    match builtin::name(function) {
        Some(name) => format!("function {function} ({name})"),
        None => format!("function {function}"),
    }
}

fn during(function: Option<FunctionCode>) -> String {
    function.map_or(String::new(), |function| format!(" during the call of {}", function_name(function)))
}

fn retry(function: Option<FunctionCode>) -> &'static str {
    if function.is_some() { "; its results are lost, so connect and call again" } else { "" }
}

/// Returns advice that is appended to the text of a return code.
fn more(function: FunctionCode, code: ReturnCode, detail: u64) -> String {
    if code == ReturnCode::OUTPUT_TOO_SMALL && detail > 0 {
        format!("; {detail} bytes are needed")
    } else if let (ReturnCode::MALFORMED_INPUT, Some(format)) = (code, format_of(function)) {
        format!("; it is no {format}, or one that is cut off or damaged")
    } else if FunctionGroup::of(function) == FunctionGroup::Kernel && RETURNED_BY_KERNELS.contains(&code)
        || is_own(code)
    {
        // A response contains no text, so only the log of the accelerator may say more about the failure.
        "; the accelerator's log may say more".into()
    } else if code == ReturnCode::OVER_LIMIT && detail > 0 {
        format!("; the function needs {detail} bytes beside its regions, which its session may not have")
    } else {
        String::new()
    }
}

/// Returns the format that the decompression function `function` reads, or `None` for any other function.
fn format_of(function: FunctionCode) -> Option<&'static str> {
    match function {
        builtin::ZSTD_DECOMPRESS => Some("zstd frame"),
        builtin::LZ4_DECOMPRESS => Some("LZ4 frame"),
        _ => None,
    }
}

/// The return codes of kernels to which `more` can append a reference to the accelerator's log. Kernels may also
/// return INTERNAL, which is not in this list because the text of INTERNAL already refers to the accelerator's log.
const RETURNED_BY_KERNELS: [ReturnCode; 4] = [
    ReturnCode::BAD_ARGUMENTS,
    ReturnCode::MALFORMED_INPUT,
    ReturnCode::OUTPUT_TOO_SMALL,
    ReturnCode::OVER_LIMIT,
];

fn is_own(code: ReturnCode) -> bool {
    ReturnCode::KERNELS.contains(&code.get())
}
