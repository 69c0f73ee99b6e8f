//! A client for programs that wait for answers.

use std::{fmt, num::NonZeroU64, time::Duration};

use ejfat::lb::{DataPlane, LbId, Rule, RuleKey, Rules};
use proto::lb::v1::{self, tables_client::TablesClient};

use naa_grpc::{Calls, Credentials};

use super::{
    MOST_OF_TABLES,
    connect::{ANSWER, ClientError, ServiceConnection},
};
use crate::{LbStage, TableSet, Ticks, When, message};

/// The most bytes of an answer. Each load balancer of a SmartNIC may have its own sets, and each set may have full tables.
const MOST_ANSWER: usize = MOST_OF_TABLES * LbId::P4_COUNT * (1 + DataPlane::MOST_STAGED);

/// A connection to service `naa.lb.v1.Tables` of a data plane.
pub struct Client {
    /// 0 is none.
    term: u64,
    connection: ServiceConnection,
    tables: TablesClient<Calls>,
}

impl Client {
    /// Connects without TLS. `address` is `HOST:PORT`, with brackets around an IPv6 address.
    ///
    /// # Errors
    /// Fails with [`ClientError`] if `address` or `token` is not valid, or if the data plane cannot be reached.
    pub fn connect(address: &str, token: Option<&str>) -> Result<Self, ClientError> {
        Self::connect_by(&Credentials::new(token, None)?, address)
    }

    /// Connects as [`Client::connect`] does, with TLS if the credentials have TLS. The server's certificate must be for
    /// the host of `address`.
    ///
    /// # Errors
    /// Fails with [`ClientError`] if `address` is not valid, or if the data plane cannot be reached.
    pub fn connect_by(credentials: &Credentials, address: &str) -> Result<Self, ClientError> {
        Self::connect_within(credentials, address, ANSWER)
    }

    /// Connects as [`Client::connect_by`] does, with a time limit. Connecting may take at most `deadline`, and each
    /// reply may take at most `deadline`.
    ///
    /// # Errors
    /// Fails with [`ClientError`] if `address` is not valid, or if the data plane cannot be reached.
    pub fn connect_within(
        credentials: &Credentials,
        address: &str,
        deadline: Duration,
    ) -> Result<Self, ClientError> {
        let connection = ServiceConnection::new(address, credentials, deadline)?;
        let tables = TablesClient::new(connection.calls()).max_decoding_message_size(MOST_ANSWER);
        Ok(Self { term: 0, connection, tables })
    }

    /// Gives a term with each change from now on, as control planes do.
    pub fn set_term(&mut self, term: NonZeroU64) {
        self.term = term.get();
    }

    /// Replaces all rules. Returns the first tick to which the new rules apply.
    ///
    /// # Errors
    /// Fails with [`ClientError`] if the data plane cannot be reached or refuses the request.
    pub fn load(&mut self, rules: &Rules, when: When) -> Result<u64, ClientError> {
        let request = v1::LoadRequest {
            rules: message::of_rules(rules),
            when: Some(message::of_when(when)),
            term: self.term,
            tell_routed: false,
        };
        self.connection.answer(self.tables.load(request)).map(|answer| answer.from_tick)
    }

    /// Changes the newest rules: removes the rules with the keys in `remove`, and inserts the rules in `insert`. After
    /// a refusal, no rule is changed. If a rule has the key of an existing rule, `replace` must be true, and the new
    /// rule replaces the existing one. Returns the first tick to which the changed rules apply.
    ///
    /// # Errors
    /// Fails with [`ClientError`] if the data plane cannot be reached or refuses the request.
    pub fn edit(
        &mut self,
        remove: &[RuleKey],
        insert: &[Rule],
        replace: bool,
        when: When,
    ) -> Result<u64, ClientError> {
        let request = v1::EditRequest {
            insert: insert.iter().map(message::of_rule).collect(),
            replace,
            remove: remove.iter().map(message::of_key).collect(),
            when: Some(message::of_when(when)),
            term: self.term,
            tell_routed: false,
        };
        self.connection.answer(self.tables.edit(request)).map(|answer| answer.from_tick)
    }

    /// Returns the table sets of the load balancer `lb`, or of all load balancers if `lb` is `None`, the newest set
    /// last. If `newest` is true, the result has only the newest set.
    ///
    /// # Errors
    /// Fails with [`ClientError`] if the data plane cannot be reached, refuses the request, or sends a reply that is
    /// not valid.
    pub fn get(&mut self, lb: Option<LbId>, newest: bool) -> Result<Vec<TableSet>, ClientError> {
        let request = v1::GetRequest { lb: lb.map(|lb| lb.get().into()), newest, tell_routed: false };
        let answer = self.connection.answer(self.tables.get(request))?;
        self.understood(message::sets(&answer))
    }

    /// Returns the counters of the data plane.
    ///
    /// # Errors
    /// Fails with [`ClientError::Tls`] or [`ClientError::Refused`] if the call fails.
    pub fn counters(&mut self) -> Result<v1::GetCountersReply, ClientError> {
        self.connection.answer(self.tables.get_counters(v1::GetCountersRequest::default()))
    }

    /// Stages tables of one load balancer. Returns the highest routed tick of each load balancer.
    ///
    /// # Errors
    /// Fails with [`ClientError`] if the data plane cannot be reached or refuses the request.
    pub fn stage(&mut self, stage: &LbStage) -> Result<Vec<v1::LbTick>, ClientError> {
        let request = message::of_stage(stage, self.term);
        self.connection.answer(self.tables.stage(request)).map(|answer| answer.routed)
    }

    /// Withdraws tables of a load balancer that were staged from a tick on. Returns the highest routed tick of each
    /// load balancer.
    ///
    /// # Errors
    /// Fails with [`ClientError`] if the data plane cannot be reached or refuses the request.
    pub fn withdraw(&mut self, lb: LbId, from_tick: u64) -> Result<Vec<v1::LbTick>, ClientError> {
        let request = v1::WithdrawRequest { term: self.term, lb: lb.get().into(), from_tick };
        self.connection.answer(self.tables.withdraw(request)).map(|answer| answer.routed)
    }

    /// Returns the routed ticks, and the first ticks of the table sets.
    ///
    /// # Errors
    /// Fails with [`ClientError`] if the data plane cannot be reached, refuses the request, or sends a reply that is
    /// not valid.
    pub fn ticks(&mut self) -> Result<Ticks, ClientError> {
        let answer = self.connection.answer(self.tables.get_ticks(v1::GetTicksRequest {}))?;
        self.understood(message::ticks(&answer))
    }

    fn understood<T>(&self, answer: Result<T, message::MessageError>) -> Result<T, ClientError> {
        let address = || self.connection.address().to_owned();
        answer.map_err(|source| ClientError::Answer { address: address(), source })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.connection.address()).finish_non_exhaustive()
    }
}
