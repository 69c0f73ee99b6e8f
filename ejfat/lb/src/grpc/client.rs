//! A client for programs that wait for answers.

use std::{fmt, num::NonZeroU64, time::Duration};

use ejfat::lb::{Balancer, LbId, Rule, RuleKey, Rules};
use proto::lb::v1::{self, tables_client::TablesClient};

use naa_grpc::{Calls, Credentials};

use super::{
    MOST_OF_TABLES,
    connect::{ANSWER, ClientError, ServiceConnection},
};
use crate::{LbStage, TableSet, Ticks, When, message};

/// The most bytes of an answer. Each load balancer of a SmartNIC may have its own sets, and each set may have full tables.
const MOST_ANSWER: usize = MOST_OF_TABLES * LbId::P4_COUNT * (1 + Balancer::MOST_STAGED);

/// A connection to service `naa.lb.v1.Tables` of a data plane.
pub struct Client {
    /// 0 is none.
    term: u64,
    connection: ServiceConnection,
    tables: TablesClient<Calls>,
}

impl Client {
    /// Connects without TLS. `address` is `HOST:PORT`; an IPv6 address as host is in brackets.
    pub fn connect(address: &str, token: Option<&str>) -> Result<Self, ClientError> {
        Self::connect_by(&Credentials::new(token, None)?, address)
    }

    /// The same, with TLS if the credentials have it. The server's certificate must be for the host of `address`.
    pub fn connect_by(credentials: &Credentials, address: &str) -> Result<Self, ClientError> {
        Self::connect_within(credentials, address, ANSWER)
    }

    /// Connects like [`Client::connect_by`], with a time limit. Connecting may take `deadline` at most, and so may each
    /// answer.
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

    /// Replaces all rules. Returns the first tick they apply to.
    pub fn load(&mut self, rules: &Rules, when: When) -> Result<u64, ClientError> {
        let request = v1::LoadRequest {
            rules: message::of_rules(rules),
            when: Some(message::of_when(when)),
            term: self.term,
            tell_routed: false,
        };
        let answer = self.connection.answer(self.tables.load(request))?;
        Ok(answer.from_tick)
    }

    /// Changes the newest rules, all or nothing: removes, then inserts; `replace` permits to put rules in the place of
    /// those with the same keys. Returns the first tick they then apply to.
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
        let answer = self.connection.answer(self.tables.edit(request))?;
        Ok(answer.from_tick)
    }

    /// The tables there are, the newest last: of one load balancer or of all, and only the newest if wanted.
    pub fn get(&mut self, lb: Option<LbId>, newest: bool) -> Result<Vec<TableSet>, ClientError> {
        let request = v1::GetRequest { lb: lb.map(|lb| lb.get().into()), newest, tell_routed: false };
        let answer = self.connection.answer(self.tables.get(request))?;
        self.understood(message::sets(&answer))
    }

    pub fn counters(&mut self) -> Result<v1::GetCountersReply, ClientError> {
        self.connection.answer(self.tables.get_counters(v1::GetCountersRequest::default()))
    }

    /// Stages tables of one load balancer. Returns the highest ticks that were routed.
    pub fn stage(&mut self, stage: &LbStage) -> Result<Vec<v1::LbTick>, ClientError> {
        let request = message::of_stage(stage, self.term);
        let answer = self.connection.answer(self.tables.stage(request))?;
        Ok(answer.routed)
    }

    /// Takes back tables of a load balancer that were staged from a tick on. Returns the highest ticks that were routed.
    pub fn withdraw(&mut self, lb: LbId, from_tick: u64) -> Result<Vec<v1::LbTick>, ClientError> {
        let request = v1::WithdrawRequest { term: self.term, lb: lb.get().into(), from_tick };
        let answer = self.connection.answer(self.tables.withdraw(request))?;
        Ok(answer.routed)
    }

    /// What was routed, and where tables begin.
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
