//! A client for control planes that program SmartNICs, and wait for answers.
//!
//! Changes go in one call of `Batch`, request by request: the next one is sent when the one before was answered, so after one
//! that is refused or not answered nothing else is changed. The deadline of a call is for all of it, from connecting to the
//! last answer; the SmartNIC is told, and when it is over the connection is reset, so that what is still to be sent or
//! to be sent again never is. What the SmartNIC has then received but not looked at, one request at most, it may make later: a lease
//! that is to outlast a write must also outlast the time for which a SmartNIC's agent can stand still.
//!
//! # Source
//! The firmware's agent (sn-p4): it makes the rules of a request one by one, and stops at the first that it refuses. Its answer is for
//! the request as a whole.

mod connection;
mod counters;
mod error;
mod requests;

use std::{
    fmt,
    net::IpAddr,
    ops::Range,
    time::{Duration, Instant},
};

use ejfat::lb::{LbId, Rule, RuleKey, Table};
use proto::sn_p4::v2::{BatchResponse, ErrorCode, Stats, batch_response};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};

use self::{
    connection::{SmartNicAddress, SmartNicConnection, Smartnic},
    requests::Entry,
};
pub use self::{
    counters::{SmartNicCounters, SmartNicLb, SmartNicMember},
    error::SmartNicError,
    requests::RuleChange,
};
use naa_grpc::Credentials;

const DEADLINE: Duration = Duration::from_secs(5);
const MOST_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// A connection to service `sn_p4.v2.SmartnicP4` of a host with one SmartNIC, with one pipeline.
///
/// Prefixes of ticks must not overlap, except for the one of all ticks: a SmartNIC need not prefer the longer one.
pub struct SmartNicClient {
    address: SmartNicAddress,
    deadline: Duration,
    /// None after a call that failed. The next call makes one.
    connection: Option<SmartNicConnection>,
}

/// How a call went wrong.
enum Failure {
    Status(Status),
    Code(i32),
    Answer(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl SmartNicClient {
    /// Connects without TLS. `address` is `HOST:PORT`; an IPv6 address as host is in brackets.
    ///
    /// # Errors
    /// Fails if `address` is not an address, if the token is not valid, or if no connection is made within 5 seconds.
    pub fn connect(address: &str, token: Option<&str>) -> Result<Self, SmartNicError> {
        Self::connect_by(&Credentials::without_tls(token)?, address)
    }

    /// Connects like [`connect`](Self::connect), with TLS if the credentials have it. The SmartNIC's certificate must
    /// be for the host of `address`.
    ///
    /// # Errors
    /// Fails for the reasons for which [`connect`](Self::connect) fails.
    pub fn connect_by(credentials: &Credentials, address: &str) -> Result<Self, SmartNicError> {
        let address = SmartNicAddress::new(address, credentials)?;
        let connection = Some(SmartNicConnection::new(&address, DEADLINE)?);
        Ok(Self { address, deadline: DEADLINE, connection })
    }

    /// How long a call may take, from now on, an hour at most. Otherwise it is 5 seconds.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline.min(MOST_DEADLINE);
    }

    /// Adds rules. The table must have no rules with their keys.
    ///
    /// # Errors
    /// Fails for the reasons for which [`change`](Self::change) fails.
    pub fn insert(&mut self, rules: &[Rule]) -> Result<(), SmartNicError> {
        self.change(&rules.iter().copied().map(RuleChange::Insert).collect::<Vec<_>>())
    }

    /// Deletes rules.
    ///
    /// # Errors
    /// Fails for the reasons for which [`change`](Self::change) fails.
    pub fn delete(&mut self, keys: &[RuleKey]) -> Result<(), SmartNicError> {
        self.change(&keys.iter().copied().map(RuleChange::Delete).collect::<Vec<_>>())
    }

    /// Makes changes in their order, until one fails.
    ///
    /// # Errors
    /// Fails if the SmartNIC cannot be reached, refuses a change, or has not made all changes at the deadline. After an
    /// error, [`SmartNicError::done`] returns the number of changes that were certainly made. If a member has no MAC
    /// address, nothing is changed.
    pub fn change(&mut self, changes: &[RuleChange]) -> Result<(), SmartNicError> {
        requests::check(&self.address.name, changes)?;
        let entries = requests::entries(changes);
        let mut done = Some(0);
        // What was refused, if it was.
        let mut asked = 0..0;
        self.call(&mut done, async |smartnic, left, done| {
            batch(smartnic, left, entries, &mut asked, done).await
        })
        .map_err(|failed| failed.of(|| requests::named_all(&changes[asked.clone()])))
    }

    /// Makes a card take frames that are sent to its MAC address, and answer requests for the MAC address of each load
    /// balancer's address. This adds rules that no [`Rule`] stands for, so their tables must have been cleared before.
    /// A card without these rules takes no packet. If several IPv6 addresses end in the same 24 bits, a card takes only
    /// one of them.
    ///
    /// # Errors
    /// Fails for the reasons for which [`change`](Self::change) fails.
    pub fn attach(&mut self, mac: [u8; 6], addresses: &[(LbId, IpAddr)]) -> Result<(), SmartNicError> {
        let entries = vec![requests::attach(mac, addresses)];
        let attached = self.call(&mut Some(0), async |smartnic, left, done| {
            batch(smartnic, left, entries, &mut (0..0), done).await
        });
        attached.map_err(|failed| failed.of(|| "to take frames and to answer for its addresses".into()))
    }

    /// Takes all rules out of a table, or of all tables: also those that no [`Rule`] stands for, of MAC addresses, ARP and
    /// neighbours.
    ///
    /// # Errors
    /// Fails if the SmartNIC cannot be reached, refuses the request, or does not reply in time.
    pub fn clear(&mut self, table: Option<Table>) -> Result<(), SmartNicError> {
        let request = requests::clear(table.map_or("", Table::name));
        let what = || table.map_or_else(|| "to clear all tables".into(), |table| format!("to clear {table}"));
        self.call(&mut None, async |smartnic, left, _| {
            let answer = first(smartnic.clear_table(until(left, request)).await?.into_inner()).await?;
            ok(answer.error_code)
        })
        .map_err(|failed| failed.of(what))
    }

    /// What it counted.
    ///
    /// # Errors
    /// Fails if the SmartNIC cannot be reached, refuses the request, does not reply in time, or has no counters of load
    /// balancers.
    pub fn counters(&mut self) -> Result<SmartNicCounters, SmartNicError> {
        let stats = self.call(&mut None, async |smartnic, left, _| {
            let answer = smartnic.get_pipeline_stats(until(left, requests::stats())).await?;
            let answer = first(answer.into_inner()).await?;
            ok(answer.error_code)?;
            let stats: Stats = answer.stats.unwrap_or_default();
            let none = "no counters of a load balancer; load ESnet's program onto the card".to_owned();
            counters::counters(&stats).ok_or(Failure::Answer(none))
        });
        stats.map_err(|failed| failed.of(|| "to tell its counters".into()))
    }

    /// Makes a call, connected anew if that is better, and ends the connection if it fails.
    fn call<T>(
        &mut self,
        done: &mut Option<usize>,
        call: impl AsyncFnOnce(&mut Smartnic, Duration, &mut Option<usize>) -> Result<T, Failure>,
    ) -> Result<T, Failed> {
        let plane = self.address.name.clone();
        let late = |done| {
            Failed::Whole(SmartNicError::TooLate { plane: plane.clone(), deadline: self.deadline, done })
        };
        let end = Instant::now() + self.deadline;
        let left = || end.saturating_duration_since(Instant::now());
        // A timer of no time would let a call go on until it waits.
        let some = |done| if left().is_zero() { Err(late(done)) } else { Ok(left()) };
        let connection = self.connection.take().filter(SmartNicConnection::is_fresh);
        let mut connection = match connection {
            Some(connection) => connection,
            None => SmartNicConnection::new(&self.address, some(*done)?).map_err(Failed::Whole)?,
        };
        let within = some(*done)?;
        let outcome = connection.run(within, async |smartnic| call(smartnic, within, done).await);
        match outcome {
            Some(Ok(value)) => {
                self.connection = Some(connection);
                Ok(value)
            }
            None => Err(late(*done)),
            // The same clock runs in the layers below, and at the other end.
            Some(Err(Failure::Status(status)))
                if status.code() == Code::DeadlineExceeded
                    || (status.code() == Code::Cancelled && left().is_zero()) =>
            {
                Err(late(*done))
            }
            Some(Err(Failure::Status(status))) => {
                Err(Failed::Whole(SmartNicError::Call { plane, status: Box::new(status), done: *done }))
            }
            Some(Err(Failure::Answer(why))) => Err(Failed::Whole(SmartNicError::Answer { plane, why })),
            Some(Err(Failure::Code(code))) => Err(Failed::Refused { plane, code, done: *done }),
        }
    }
}

impl fmt::Debug for SmartNicClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmartNicClient").field("address", &self.address.name).finish_non_exhaustive()
    }
}

/// Why a call failed. What was refused is known to its caller.
enum Failed {
    Whole(SmartNicError),
    Refused { plane: String, code: i32, done: Option<usize> },
}

impl Failed {
    fn of(self, what: impl FnOnce() -> String) -> SmartNicError {
        match self {
            Self::Whole(error) => error,
            Self::Refused { plane, code, done } => SmartNicError::Refused { plane, what: what(), code, done },
        }
    }
}

fn until<T>(left: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(left);
    request
}

/// There is one, since there is one pipeline.
async fn first<T>(mut answers: Streaming<T>) -> Result<T, Failure> {
    let none = || Failure::Answer("the call ended without an answer".to_owned());
    answers.message().await?.ok_or_else(none)
}

fn ok(code: i32) -> Result<(), Failure> {
    if code == i32::from(ErrorCode::EcOk) { Ok(()) } else { Err(Failure::Code(code)) }
}

/// `asked`: the changes of the request that is under way. `done`: how many were made.
async fn batch(
    smartnic: &mut Smartnic,
    left: Duration,
    entries: Vec<Entry>,
    asked: &mut Range<usize>,
    done: &mut Option<usize>,
) -> Result<(), Failure> {
    let (ask, asks) = mpsc::channel(1);
    let mut asks = Some(ReceiverStream::new(asks));
    let mut answers: Option<Streaming<BatchResponse>> = None;
    for Entry { changes, request } in entries {
        *asked = changes.clone();
        // If nobody takes it any more, the answers say why.
        let _ = ask.send(request).await;
        // The call begins with its first request: an agent need not answer before.
        if let Some(asks) = asks.take() {
            answers = Some(smartnic.batch(until(left, asks)).await?.into_inner());
        }
        let none = || Failure::Answer("the call ended without an answer to each request".to_owned());
        let answer = match &mut answers {
            Some(answers) => answers.message().await?.ok_or_else(none)?,
            None => return Err(none()),
        };
        ok(answer.error_code)?;
        match answer.item {
            Some(batch_response::Item::TableRule(answer)) => ok(answer.error_code)?,
            _ => return Err(Failure::Answer("an answer to another request than that of rules".into())),
        }
        *done = Some(changes.end);
    }
    drop(ask);
    if let Some(mut answers) = answers {
        // All requests were answered; there is nothing to be told but the end.
        answers.message().await?;
    }
    Ok(())
}
