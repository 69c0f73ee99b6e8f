//! Why a request has no reply, and why a control plane cannot start.

use ejfat_control::{control::BeginError, request::Refusal};
use naa_store::Term;

use super::MOST_STORING;
use crate::audit::AuditError;

/// Why a request has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The registry refused the request, for example because of an unknown token or a wrong argument. The request has
    /// changed nothing.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// The store failed. Requests that change something are refused until the store works again. The text is the
    /// reason. If the request waited for the store when the store failed, the changes of the request may have been
    /// stored all the same.
    #[error("the control plane cannot store changes now: {0}; try again")]
    Store(String),
    /// Too many decisions of the control plane wait for the store: more than 1024. A decision comes from a request or
    /// from the control plane itself, and the decisions that the store is just storing count as one. As long as this is
    /// so, the control plane accepts no requests except workers' states (`SendState`).
    #[error("more than {MOST_STORING} decisions of the control plane wait for the store; try again")]
    Busy,
    /// The control plane is being stopped, or has ended.
    #[error("the control plane is ending; try again when it is back")]
    Ending,
    /// Another control plane has claimed the store or a data plane, so this control plane changes nothing any more.
    #[error("another control plane has taken over; ask that one")]
    Replaced,
}

/// Why a control plane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be read, or a new term cannot be claimed.
    #[error(transparent)]
    Store(#[from] naa_store::Error),
    /// The control plane cannot use the configuration, the options or the stored records.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The operating system refused to start a thread.
    #[error("cannot start a thread: {0}; raise the limit of processes")]
    Thread(#[from] std::io::Error),
    /// The file of the audit log cannot be opened.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The operating system gave no random bytes for new tokens. The text is the reason.
    #[error("cannot read random bytes: {0}")]
    Random(String),
    /// Another control plane has claimed the store with this term, which is higher than the term of this control plane.
    /// [`Core::start`](super::Core::start) does not return this error, which occurs only when a store that failed is tried again.
    #[error("another control plane has taken over the store: its term is {0}; stop this one")]
    Replaced(Term),
}

#[cfg(test)]
mod tests {
    use ejfat_control::record::{Change, Counter, Record};

    use super::*;
    use crate::storing::Storing;

    #[test]
    fn the_text_of_busy_names_what_is_counted() {
        let mut storing = Storing::<()>::default();
        let change = |counter| Change::Put(Record::Next(counter, 1));
        storing.push(&[change(Counter::Session), change(Counter::Reservation)], []);
        storing.push(&[], []);
        assert_eq!(storing.len(), 2, "a decision counts once, whatever the number of its changes");
        let text = Refused::Busy.to_string();
        assert!(text.starts_with("more than 1024 decisions of the control plane wait"), "{text}");
    }
}
