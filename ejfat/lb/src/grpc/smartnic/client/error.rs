//! Calls that did not do what they were for.

use std::{io, time::Duration};

use proto::sn_p4::v2::ErrorCode;
use tonic::{Code, Status};

use naa_grpc::BadToken;

/// Why a SmartNIC's tables are not known to be as they were meant, or its counters not known.
///
/// After `Refused`, `TooLate` or `Call` of a change the tables may be something in between: see
/// [`done`](Self::done).
#[derive(Debug, thiserror::Error)]
pub enum SmartNicError {
    /// The text is not an address of the form HOST:PORT.
    #[error("{0} is no address of a SmartNIC; give HOST:PORT")]
    Address(String),
    /// The token is not valid.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// The operating system did not provide the descriptors that the gRPC runtime needs.
    #[error("cannot start what gRPC runs on: {0}; raise the limit of open files")]
    Runtime(io::Error),
    /// The client cannot connect to the SmartNIC's agent.
    #[error("cannot reach the SmartNIC at {plane}: {why}; does its agent (sn-p4) run, on this port?")]
    Connect {
        /// The address of the SmartNIC.
        plane: String,
        /// The error of the connection, as text for people.
        why: String,
    },
    /// A rule for a member has no MAC address of the next hop, and a SmartNIC does not look up MAC addresses.
    #[error(
        "the SmartNIC at {plane} would lose all packets to {what}: the rule has no MAC address; give that of the next hop"
    )]
    NoMac {
        /// The address of the SmartNIC.
        plane: String,
        /// The member, as text for people.
        what: String,
    },
    /// The SmartNIC did not reply in time, so the client reset the connection.
    #[error(
        "the SmartNIC at {plane} had not answered after {deadline:?}, and the connection was reset; {}",
        made(*.done)
    )]
    TooLate {
        /// The address of the SmartNIC.
        plane: String,
        /// The time that the client waited.
        deadline: Duration,
        /// The number of changes that were certainly made, or `None` if the call changes no rules.
        done: Option<usize>,
    },
    /// The gRPC call failed.
    #[error("the SmartNIC at {plane} failed: {}; {}", message(.status), remedy(.status, *.done))]
    Call {
        /// The address of the SmartNIC.
        plane: String,
        /// The status of the gRPC call.
        status: Box<Status>,
        /// The number of changes that were certainly made, or `None` if the call changes no rules.
        done: Option<usize>,
    },
    /// The SmartNIC refused a request.
    #[error("the SmartNIC at {plane} refused {what}: {}; {}", code_name(*.code), remedy_of(*.code))]
    Refused {
        /// The address of the SmartNIC.
        plane: String,
        /// The rule; or the first and the last of several, of which a SmartNIC does not tell which it refused.
        what: String,
        /// The error code of the SmartNIC, a value of [`ErrorCode`].
        code: i32,
        /// The number of changes that were certainly made, or `None` if the call changes no rules.
        done: Option<usize>,
    },
    /// The SmartNIC's reply is not valid.
    #[error("the SmartNIC at {plane} answered what is not understood: {why}")]
    Answer {
        /// The address of the SmartNIC.
        plane: String,
        /// The fault of the reply, as text for people.
        why: String,
    },
}

impl SmartNicError {
    /// How many changes of the call are known to be made; they are the first ones. Some of the later changes may be
    /// made, too: a SmartNIC makes the changes of a request one by one, and stops at the first one that it refuses.
    pub fn done(&self) -> usize {
        match self {
            Self::TooLate { done, .. } | Self::Call { done, .. } | Self::Refused { done, .. } => {
                done.unwrap_or_default()
            }
            _ => 0,
        }
    }

    /// The address of the SmartNIC, if it refused because the token was missing or wrong.
    pub fn wants_token(&self) -> Option<&str> {
        match self {
            Self::Call { plane, status, .. }
                if matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied) =>
            {
                Some(plane)
            }
            _ => None,
        }
    }
}

/// `done`: changes that are made, of a call that changes rules.
fn made(done: Option<usize>) -> String {
    match done {
        None => "try again".into(),
        Some(done) => format!(
            "{done} changes are made for certain; to know all, clear the tables and insert all rules anew"
        ),
    }
}

fn message(status: &Status) -> String {
    match status.message() {
        "" => format!("{:?}", status.code()),
        message => message.to_owned(),
    }
}

fn remedy(status: &Status, done: Option<usize>) -> String {
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => {
            "give the token that its agent was started with".into()
        }
        Code::Unimplemented => "does it serve sn_p4.v2 on this port?".into(),
        _ => made(done),
    }
}

fn code_name(code: i32) -> String {
    match ErrorCode::try_from(code) {
        Ok(known) => format!("{} ({code})", known.as_str_name()),
        Err(_) => format!("error code {code}"),
    }
}

fn remedy_of(code: i32) -> &'static str {
    use ErrorCode as Code;
    match ErrorCode::try_from(code).unwrap_or(Code::EcUnknown) {
        Code::EcInvalidDeviceId | Code::EcInvalidPipelineId => {
            "it has no first card or no first pipeline; is a card plugged in and its program loaded?"
        }
        Code::EcInvalidTableName | Code::EcTableRuleInvalidTableName => {
            "its program is not ESnet's load balancer; load that one"
        }
        Code::EcInvalidActionName | Code::EcTableRuleInvalidActionForTable => {
            "its program is another version of ESnet's load balancer; load one that has this action"
        }
        Code::EcFailedInsertTableRule => {
            "its table is full, has a rule for this key already (or none that is to be replaced), or is programmed by another control plane; clear the tables and insert all rules anew"
        }
        Code::EcFailedDeleteTableRule => {
            "its table has no rule for this key; clear the tables and insert all rules anew"
        }
        Code::EcFailedClearTable | Code::EcFailedClearAllTables => {
            "the card does not obey; its agent's log says more"
        }
        _ => "its program may have other tables than this program knows; the log of its agent says more",
    }
}
