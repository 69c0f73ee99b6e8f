//! What can go wrong, whose business it is, and what to do about it.

use std::{io, time::Duration};

use ejfat::ring::{GeometryError, Malformed, ReaderError, Refusal};

use crate::SourceError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("invalid ring: {0}; choose other numbers of slots or bytes")]
    Geometry(#[from] GeometryError),
    /// There is no connection, or it was lost. The error names the bridge.
    #[error(transparent)]
    Session(#[from] naa_host::Error),
    /// An error with a bridge on this machine.
    #[error("{bridge}: {what}: {source}; {remedy}")]
    Local { bridge: String, what: &'static str, source: io::Error, remedy: &'static str },
    #[error("the bridge {bridge} refused the subscription: {why}")]
    Refused { bridge: String, why: Refusal },
    #[error("the bridge {bridge} answered with what is no answer: {why}; see what really serves there")]
    NoAnswer { bridge: String, why: Malformed },
    /// It ended the subscription, which no other event can be trusted of.
    #[error("the bridge {bridge} breaks the protocol: {why}; see its version and its log")]
    Protocol { bridge: String, why: ReaderError },
    /// Files of a bridge on this machine.
    #[error("the bridge {bridge} breaks the protocol: {why}; see its version and its log")]
    Files { bridge: String, why: String },
    /// The bridge was lost and not found again in time.
    #[error("lost the bridge {bridge}: {why}{}; start it, or see whether it can be reached", looked(*.tried, .last))]
    BridgeGone {
        bridge: String,
        why: String,
        /// How long the bridge was looked for.
        tried: Option<Duration>,
        /// The result of the last attempt.
        last: String,
    },
    #[error("the subscription at {bridge} is over: {why}")]
    Over { bridge: String, why: String },
    #[error("this machine: {what}: {source}")]
    Machine { what: &'static str, source: io::Error },
}

impl Error {
    /// Whether another try may find the bridge, if it is being started again.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Session(error) => matches!(
                error,
                naa_host::Error::ConnectionRefused { .. }
                    | naa_host::Error::Unreachable { .. }
                    | naa_host::Error::SetupTimedOut { .. }
                    | naa_host::Error::AnswerTimedOut { .. }
                    | naa_host::Error::PeerGone { .. }
                    | naa_host::Error::Function { .. }
            ),
            Self::Refused { why, .. } => matches!(why, Refusal::Full | Refusal::Failed | Refusal::Memory),
            Self::Local { .. } => true,
            _ => false,
        }
    }
}

fn looked(tried: Option<Duration>, last: &str) -> String {
    match tried {
        Some(time) if last.is_empty() => format!("; it did not come back within {time:?}"),
        Some(time) => format!("; it did not come back within {time:?} (at last: {last})"),
        None => String::new(),
    }
}
