//! Durable records: what is stored, under which keys, in which form.
//!
//! A store is a map of bytes to bytes. Keys are text as in the table; `lb` is the number of a load balancer. Values are JSON
//! objects with their version in the field `v`. What has another version, a field that is unknown or missing, or a key that
//! is written in another way, is refused with a reason.
//!
//! | key | value |
//! |---|---|
//! | `token/<id>` | a token: parent, hash, permissions, limits |
//! | `reservation/<lb>` | the reservation of a load balancer |
//! | `sender/<lb>/<address>` | nothing but the version |
//! | `session/<id>` | a worker session |
//! | `epoch/<lb>` | the newest calendar of a load balancer, and the tick from which on it applies |
//! | `next/token`, `next/reservation`, `next/session`, `next/member/<lb>` | the number to be given next |
//! | `audit/<20 digits>` | an entry of the audit log |

mod value;

use std::fmt;

use ejfat::lb::LbId;

use crate::{
    calendar::MemberId,
    reservation::{Reservation, SenderAddress, shown},
    session::{SessionId, WorkerSession},
    token::{Token, TokenId},
    wall::WallTime,
};

/// A counter whose numbers are given one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// The counter of the numbers of tokens. The first token gets the number 1.
    Token,
    /// The counter of the numbers of reservations. The first reservation gets the number 1.
    Reservation,
    /// The counter of the numbers of worker sessions. The first worker session gets the number 1.
    Session,
    /// The member id at which the search for a free id of a load balancer begins. After the highest id, the search goes
    /// on with the lowest id.
    Member(LbId),
}

/// The key of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The key of a token: `token/<id>`.
    Token(TokenId),
    /// The key of the reservation of a load balancer: `reservation/<lb>`.
    Reservation(LbId),
    /// The key of a sender of a load balancer: `sender/<lb>/<address>`.
    Sender(SenderAddress),
    /// The key of a worker session: `session/<id>`.
    Session(SessionId),
    /// The key of the newest calendar of a load balancer: `epoch/<lb>`.
    Epoch(LbId),
    /// The key of a counter, such as `next/token`.
    Next(Counter),
    /// The key of an entry of the audit log: `audit/<number>`, where the number of the entry has 20 digits.
    Audit(u64),
}

/// The newest calendar of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochRecord {
    /// The load balancer that the calendar belongs to.
    pub lb: LbId,
    /// The number of epochs since the reservation began.
    pub number: u64,
    /// The first tick of the first epoch with this calendar.
    pub from: u64,
    /// The member of each slot.
    pub slots: Vec<Option<MemberId>>,
    /// The first tick of a range whose events may be split over two workers if a control plane begins from this record.
    /// The range ends at the first epoch of this control plane, which has to report the range.
    pub untold: Option<u64>,
}

/// A record of one change: the token of its author, and when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The time of day at which the change was made.
    pub at: WallTime,
    /// The caller's token, or `None` if the control plane itself made the change because a time had passed.
    pub by: Option<TokenId>,
    /// The call of the API, or what the control plane did.
    pub call: String,
    /// The description of the change, as text for people.
    pub what: String,
}

/// A record with its key.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A token, without its text.
    Token(Token),
    /// A reservation of a load balancer.
    Reservation(Reservation),
    /// An address from which a load balancer takes segments.
    Sender(SenderAddress),
    /// A worker session.
    Session(WorkerSession),
    /// The newest calendar of a load balancer.
    Epoch(EpochRecord),
    /// A counter, with the number that it gives next.
    Next(Counter, u64),
    /// An entry of the audit log, with the number of the entry. The first entry has the number 0.
    Audit(u64, AuditEntry),
}

/// A change of what is stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Adds this record, or replaces the record with the same key.
    Put(Record),
    /// Deletes the record with this key, if there is one.
    Delete(Key),
}

/// The reason why bytes are not a record of this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record {key} {reason}")]
pub struct RecordError {
    /// The key of the record as text, shortened if it is long.
    pub key: String,
    /// The reason why the bytes are refused, as the end of a sentence that begins with the key.
    pub reason: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(id) => write!(f, "token/{id}"),
            Self::Reservation(lb) => write!(f, "reservation/{}", lb.get()),
            Self::Sender(SenderAddress { lb, address }) => write!(f, "sender/{}/{address}", lb.get()),
            Self::Session(id) => write!(f, "session/{id}"),
            Self::Epoch(lb) => write!(f, "epoch/{}", lb.get()),
            Self::Next(Counter::Token) => f.write_str("next/token"),
            Self::Next(Counter::Reservation) => f.write_str("next/reservation"),
            Self::Next(Counter::Session) => f.write_str("next/session"),
            Self::Next(Counter::Member(lb)) => write!(f, "next/member/{}", lb.get()),
            Self::Audit(number) => write!(f, "audit/{number:020}"),
        }
    }
}

impl Key {
    /// Returns the key as the store has it: the bytes of its text.
    pub fn encode(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }

    /// Reads a key as the store has it.
    ///
    /// # Errors
    /// [`RecordError`] if the bytes are not what [`Self::encode`] writes for any key.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let text = str::from_utf8(bytes).ok();
        // A number with a sign or zeros before it would be a second key of the same record.
        let key = text.and_then(|text| parse(text).filter(|key| key.to_string() == text));
        key.ok_or_else(|| refused(bytes, "is of no kind that this program knows".to_owned()))
    }
}

fn parse(text: &str) -> Option<Key> {
    let lb = |text: &str| LbId::new(text.parse().ok()?).ok();
    let (kind, rest) = text.split_once('/')?;
    match kind {
        "token" => Some(Key::Token(TokenId(rest.parse().ok()?))),
        "reservation" => Some(Key::Reservation(lb(rest)?)),
        "sender" => {
            let (id, address) = rest.split_once('/')?;
            Some(Key::Sender(SenderAddress { lb: lb(id)?, address: address.parse().ok()? }))
        }
        "session" => Some(Key::Session(rest.parse().ok()?)),
        "epoch" => Some(Key::Epoch(lb(rest)?)),
        "audit" => Some(Key::Audit(rest.parse().ok()?)),
        "next" => match rest {
            "token" => Some(Key::Next(Counter::Token)),
            "reservation" => Some(Key::Next(Counter::Reservation)),
            "session" => Some(Key::Next(Counter::Session)),
            _ => Some(Key::Next(Counter::Member(lb(rest.strip_prefix("member/")?)?))),
        },
        _ => None,
    }
}

impl Record {
    /// Returns the key under which the record is stored.
    pub fn key(&self) -> Key {
        match self {
            Self::Token(token) => Key::Token(token.id),
            Self::Reservation(reservation) => Key::Reservation(reservation.lb),
            Self::Sender(sender) => Key::Sender(*sender),
            Self::Session(session) => Key::Session(session.id),
            Self::Epoch(epoch) => Key::Epoch(epoch.lb),
            Self::Next(counter, _) => Key::Next(*counter),
            Self::Audit(number, _) => Key::Audit(*number),
        }
    }

    /// Returns the key and the value as the store has them.
    pub fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        (self.key().encode(), value::encode(self))
    }

    /// Reads a record from its key and its value.
    ///
    /// # Errors
    /// [`RecordError`] if the key or the value is not one that this program writes, or has a version that it does not
    /// know.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, RecordError> {
        value::decode(Key::decode(key)?, value).map_err(|reason| refused(key, reason))
    }
}

impl Change {
    /// Returns the key of the record that is put or deleted.
    pub fn key(&self) -> Key {
        match self {
            Self::Put(record) => record.key(),
            Self::Delete(key) => *key,
        }
    }

    /// Returns the key, and the value that is put under the key, or `None` if the record is deleted.
    pub fn encode(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        match self {
            Self::Put(record) => {
                let (key, value) = record.encode();
                (key, Some(value))
            }
            Self::Delete(key) => (key.encode(), None),
        }
    }
}

fn refused(key: &[u8], reason: String) -> RecordError {
    RecordError { key: shown(&String::from_utf8_lossy(key)), reason }
}
