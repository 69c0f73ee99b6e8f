//! What functions return.

use naa_host::Error;

use crate::{boundary, handles::Misuse};

/// What a function returns: NAA_OK, or a negative number that says who has to act. naa_last_error() has the text.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum naa_result {
    /// Done.
    NAA_OK = 0,
    /// An argument cannot be used: NULL, a handle that is none or was freed, regions that make no session, memory
    /// that is not mapped. Nothing happened.
    NAA_ERROR_ARGUMENT = -1,
    /// The session is in another state: a call is under way, or none is, or another thread is using the session. Nothing
    /// happened.
    NAA_ERROR_STATE = -2,
    /// NAA_SPEC, NAA_LOCAL_IP, NAA_PROVIDER or NAA_TIMEOUT is not set, cannot be read, or has nothing free.
    NAA_ERROR_ENVIRONMENT = -3,
    /// This machine's network device or its driver failed, or there is none at the local address.
    NAA_ERROR_DEVICE = -4,
    /// Nobody answers at the accelerator's address, or no route leads there.
    NAA_ERROR_UNREACHABLE = -5,
    /// The accelerator refused the connection or the regions. The text has its reason.
    NAA_ERROR_REFUSED = -6,
    /// Time ran out. A call goes on and can be waited for again; connecting was given up.
    NAA_ERROR_TIMEOUT = -7,
    /// The accelerator broke the protocol. The session is over.
    NAA_ERROR_PEER = -8,
    /// The accelerator was lost: it ended the connection, answers no more, or did not finish a call within
    /// naa_options.call_timeout_ms or NAA_TIMEOUT. The session is over.
    NAA_ERROR_GONE = -9,
    /// This machine has no memory for it.
    NAA_ERROR_MEMORY = -10,
    /// The function failed, says the accelerator; naa_outcome has its code. The session goes on.
    NAA_ERROR_FUNCTION = -11,
    /// The session was over before. Close it and connect again.
    NAA_ERROR_OVER = -12,
    /// A defect of this library. Please report it.
    NAA_ERROR_INTERNAL = -13,
}

pub(crate) use naa_result::*;

impl naa_result {
    const ALL: [(Self, &std::ffi::CStr); 14] = [
        (NAA_OK, c"NAA_OK"),
        (NAA_ERROR_ARGUMENT, c"NAA_ERROR_ARGUMENT"),
        (NAA_ERROR_STATE, c"NAA_ERROR_STATE"),
        (NAA_ERROR_ENVIRONMENT, c"NAA_ERROR_ENVIRONMENT"),
        (NAA_ERROR_DEVICE, c"NAA_ERROR_DEVICE"),
        (NAA_ERROR_UNREACHABLE, c"NAA_ERROR_UNREACHABLE"),
        (NAA_ERROR_REFUSED, c"NAA_ERROR_REFUSED"),
        (NAA_ERROR_TIMEOUT, c"NAA_ERROR_TIMEOUT"),
        (NAA_ERROR_PEER, c"NAA_ERROR_PEER"),
        (NAA_ERROR_GONE, c"NAA_ERROR_GONE"),
        (NAA_ERROR_MEMORY, c"NAA_ERROR_MEMORY"),
        (NAA_ERROR_FUNCTION, c"NAA_ERROR_FUNCTION"),
        (NAA_ERROR_OVER, c"NAA_ERROR_OVER"),
        (NAA_ERROR_INTERNAL, c"NAA_ERROR_INTERNAL"),
    ];

    pub(super) fn name_of(number: i32) -> Option<&'static std::ffi::CStr> {
        Self::ALL.iter().find(|(result, _)| *result as i32 == number).map(|(_, name)| *name)
    }
}

/// Why a function did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error(transparent)]
    Host(#[from] Error),
    #[error(transparent)]
    Handle(#[from] Misuse),
    #[error("sessions[{0}]: {1}")]
    Which(usize, Misuse),
    #[error("{0}")]
    Argument(String),
    #[error(
        "the accelerator did not tell which functions it has: {0}; give the function's number, or of one that NAAICE or \
         `naa serve` has what naa_function_code() returns"
    )]
    NoCatalogue(Error),
    #[error("{0} is NULL; give a place for the result")]
    NoPlace(&'static str),
    #[error("the call did not end within {0} ms; it goes on, wait for it again")]
    Late(i32),
    #[error(transparent)]
    Events(#[from] naa_events::Error),
    #[error("no event came within {0} ms; wait again")]
    NoEvent(i32),
    #[error("cannot look up {name}: {error}")]
    Name { name: String, error: std::io::Error },
}

impl Problem {
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::Argument(text.into())
    }

    pub(crate) fn result(&self) -> naa_result {
        match self {
            Self::Host(error) | Self::NoCatalogue(error) => of_host(error),
            Self::Handle(Misuse::Busy(_)) | Self::Which(_, Misuse::Busy(_)) => NAA_ERROR_STATE,
            Self::Handle(_) | Self::Which(..) | Self::Argument(_) | Self::NoPlace(_) => NAA_ERROR_ARGUMENT,
            Self::Late(_) | Self::NoEvent(_) => NAA_ERROR_TIMEOUT,
            Self::Events(error) => of_events(error),
            Self::Name { .. } => NAA_ERROR_UNREACHABLE,
        }
    }
}

fn of_host(error: &Error) -> naa_result {
    match error {
        Error::ConnectionRefused { .. } => NAA_ERROR_REFUSED,
        Error::Unreachable { .. } | Error::Name { .. } => NAA_ERROR_UNREACHABLE,
        Error::NoneReached { tried, .. } => {
            tried.last().map_or(NAA_ERROR_UNREACHABLE, |(_, last)| of_host(last))
        }
        Error::SetupTimedOut { .. } | Error::AnswerTimedOut { .. } => NAA_ERROR_TIMEOUT,
        // These are not NAA_ERROR_TIMEOUT, because after that a call goes on.
        Error::PeerGone { .. } | Error::CallTimedOut { .. } => NAA_ERROR_GONE,
        Error::Peer { source: mrsp::host::PeerError::Refused(_), .. } => NAA_ERROR_REFUSED,
        Error::Peer { .. } | Error::Catalogue { .. } | Error::Status { .. } | Error::Produced { .. } => {
            NAA_ERROR_PEER
        }
        Error::Function { .. } => NAA_ERROR_FUNCTION,
        Error::Device(_) => NAA_ERROR_DEVICE,
        Error::Memory(_) => NAA_ERROR_MEMORY,
        Error::Over { .. } => NAA_ERROR_OVER,
        Error::InCall | Error::NoCall => NAA_ERROR_STATE,
        Error::Environment { .. } | Error::Spec(_) => NAA_ERROR_ENVIRONMENT,
        Error::Setup(_)
        | Error::Call(_)
        | Error::NoSuchParam { .. }
        | Error::NotInput { .. }
        | Error::Buffers { .. }
        | Error::Buffer { .. }
        | Error::OutOfBounds { .. }
        | Error::PartTooLong { .. } => NAA_ERROR_ARGUMENT,
        _ => NAA_ERROR_INTERNAL,
    }
}

fn of_events(error: &naa_events::Error) -> naa_result {
    use naa_events::Error;
    match error {
        Error::Address(_) | Error::Geometry(_) => NAA_ERROR_ARGUMENT,
        Error::Session(error) => of_host(error),
        Error::Local { source, .. } if source.kind() == std::io::ErrorKind::TimedOut => NAA_ERROR_TIMEOUT,
        Error::Local { .. } => NAA_ERROR_UNREACHABLE,
        Error::Refused { .. } => NAA_ERROR_REFUSED,
        Error::NoAnswer { .. } | Error::Protocol { .. } | Error::Files { .. } => NAA_ERROR_PEER,
        Error::BridgeGone { .. } => NAA_ERROR_GONE,
        Error::Over { .. } => NAA_ERROR_OVER,
        Error::Machine { .. } => NAA_ERROR_DEVICE,
        _ => NAA_ERROR_INTERNAL,
    }
}

/// What `f` returns, as C sees it.
pub(crate) fn guarded(f: impl FnOnce() -> Result<(), Problem>) -> naa_result {
    boundary::guarded(Problem::result, NAA_ERROR_INTERNAL, || f().map(|()| NAA_OK))
}
