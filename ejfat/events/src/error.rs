//! What can go wrong, whose business it is, and what to do about it.

use std::{io, time::Duration};

use ejfat::ring::{GeometryError, Malformed, ReaderError, SubscribeRefusal};

use crate::BridgeAddressError;

/// The reason why a worker gets no events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text of a bridge's address is not valid.
    #[error(transparent)]
    Address(#[from] BridgeAddressError),
    /// The numbers of slots and bytes in [`Config`](crate::Config) are not a valid ring.
    #[error("invalid ring: {0}; choose other numbers of slots or bytes")]
    Geometry(#[from] GeometryError),
    /// A connection to the bridge over RDMA could not be set up, or was lost. The error names the bridge.
    #[error(transparent)]
    Session(#[from] naa_host::Error),
    /// An operation failed that needs a bridge on this machine.
    #[error("{bridge}: {what}: {source}; {remedy}")]
    Local {
        /// The address of the bridge.
        bridge: String,
        /// The operation that failed.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
        /// The advice how to avoid the error.
        remedy: &'static str,
    },
    /// The bridge refused the subscription.
    #[error("the bridge {bridge} refused the subscription: {why}")]
    Refused {
        /// The address of the bridge.
        bridge: String,
        /// The reason that the bridge gave.
        why: SubscribeRefusal,
    },
    /// The bridge's answer to the subscription is not valid.
    #[error("the bridge {bridge} answered with what is no answer: {why}; see what really serves there")]
    NoAnswer {
        /// The address of the bridge.
        bridge: String,
        /// The reason why the answer is not valid.
        why: Malformed,
    },
    /// The bridge broke the protocol of the ring. The subscription has ended, because later events could be wrong, too.
    #[error("the bridge {bridge} breaks the protocol: {why}; see its version and its log")]
    Protocol {
        /// The address of the bridge.
        bridge: String,
        /// The rule of the protocol that the bridge broke.
        why: ReaderError,
    },
    /// A bridge on this machine sent files that are not the two files of a ring.
    #[error("the bridge {bridge} breaks the protocol: {why}; see its version and its log")]
    Files {
        /// The address of the bridge.
        bridge: String,
        /// The description of the problem with the files.
        why: String,
    },
    /// The connection to the bridge was lost, and the worker could not connect again in time.
    #[error("lost the bridge {bridge}: {why}{}; start it, or see whether it can be reached", looked(*.tried, .last))]
    BridgeGone {
        /// The address of the bridge.
        bridge: String,
        /// The reason why the connection to the bridge ended.
        why: String,
        /// The time for which the worker tried to connect again, or `None` if the worker did not try.
        tried: Option<Duration>,
        /// The text of the last attempt's error, which is empty if no attempt has failed.
        last: String,
    },
    /// An earlier error has ended the subscription.
    #[error("the subscription at {bridge} is over: {why}")]
    Over {
        /// The address of the bridge.
        bridge: String,
        /// The text of the error that ended the subscription.
        why: String,
    },
    /// An operation of this machine's operating system failed.
    #[error("this machine: {what}: {source}")]
    Machine {
        /// The operation that failed.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
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
            Self::Refused { why, .. } => {
                matches!(why, SubscribeRefusal::Full | SubscribeRefusal::Failed | SubscribeRefusal::Memory)
            }
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
