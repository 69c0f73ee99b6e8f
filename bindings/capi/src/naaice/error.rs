//! Why a function of NAAICE's interface returned -1.

use std::time::Duration;

use super::registry::Misuse;

/// All of them are told to the program as text; the number is always -1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Misuse(#[from] Misuse),
    #[error("{what} is NULL or not aligned")]
    Pointer { what: &'static str },
    #[error("{what} is not UTF-8")]
    Text { what: &'static str },
    #[error("the function code is {0}; it is a number from 1 to 127")]
    FunctionCode(u32),
    #[error(
        "{parameters} parameters and {internals} internal regions; 1 to {limit} together are possible, at least one of them a parameter"
    )]
    Regions { parameters: usize, internals: usize, limit: usize },
    #[error("{what} {index} has {bytes} bytes, more than the {limit} of a message; split it")]
    TooLarge { what: &'static str, index: usize, bytes: usize, limit: u64 },
    #[error("parameter {0} is NULL or ends beyond the address space")]
    Memory(usize),
    #[error("parameter {index}: {problem}")]
    Unmapped { index: usize, problem: String },
    #[error("accelerator address {0:#x} is beyond 56 bits; start at a lower one")]
    Address(u64),
    #[error(
        "there is no parameter {index}; this context has {parameters}, counted from 0 without internal regions"
    )]
    NoSuchParameter { index: i64, parameters: usize },
    #[error(
        "{bytes} bytes of parameter {index}, which has {size}; ask for less, or for all by a negative number"
    )]
    TooMuchToSend { index: usize, bytes: usize, size: usize },
    #[error("cannot resolve {name:?}: {source}; give an IP address or a name that resolves")]
    Resolve { name: String, source: std::io::Error },
    #[error("{name:?} resolves to no address of the same family as the other side's")]
    Family { name: String },
    #[error("{call} is possible {when}; this context is {is}")]
    State { call: &'static str, when: &'static str, is: &'static str },
    #[error("{0}")]
    Refused(&'static str),
    #[error("no answer within {0:?} (timeout of the context); poll on, or disconnect")]
    TimedOut(Duration),
    #[error("no connection event within {0:?}; the accelerator has not answered yet")]
    NoEvent(Duration),
    /// What ended the context before.
    #[error("the context is in state ERROR: {0}")]
    Over(String),
    #[error(transparent)]
    Host(#[from] naa_host::Error),
    #[error(transparent)]
    Spec(#[from] naa_host::SpecError),
}
