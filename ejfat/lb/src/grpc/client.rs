//! A client for programs that wait for answers.

use std::{fmt, io, num::NonZeroU64, time::Duration};

use ejfat::lb::{Balancer, LbId, Rule, RuleKey, Rules};
use proto::lb::v1::{self, tables_client::TablesClient};
use tokio::runtime::{Builder, Runtime};
use tonic::{
    Code, Request, Status,
    metadata::AsciiMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use super::{
    MOST_OF_TABLES,
    auth::{BadToken, check_token},
};
use crate::{
    LbStage, TableSet, Ticks, When,
    message::{self, MessageError},
};

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);

/// All sets that may be staged, as long as they may be: each load balancer may have full tables in some of its own.
const MOST_ANSWER: usize = MOST_OF_TABLES * LbId::COUNT * (1 + Balancer::MOST_STAGED);

/// Why there is no answer, or none that helps.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0} is no address of a data plane; give HOST:PORT")]
    Address(String),
    #[error(transparent)]
    Token(#[from] BadToken),
    #[error("cannot start what gRPC runs on: {0}; raise the limit of open files")]
    Runtime(io::Error),
    #[error("cannot reach the data plane at {address}: {why}; is it running, with gRPC on this port?")]
    Connect { address: String, why: String },
    #[error("the data plane at {address} refused: {}{}", .status.message(), remedy(.status))]
    Refused { address: String, status: Box<Status> },
    #[error(
        "the data plane at {address} answered what is not understood: {source}; are both of one version?"
    )]
    Answer { address: String, source: MessageError },
}

impl ClientError {
    /// The address of the data plane, if it refused because the token was missing or wrong.
    pub fn wants_token(&self) -> Option<&str> {
        match self {
            Self::Refused { address, status } if status.code() == Code::Unauthenticated => Some(address),
            _ => None,
        }
    }
}

fn remedy(status: &Status) -> &'static str {
    match status.code() {
        Code::Unimplemented => "; does it serve its tables on this port?",
        Code::DeadlineExceeded | Code::Cancelled => "; it took too long, try again",
        Code::Unavailable => "; it went away, try again",
        _ => "",
    }
}

#[derive(Clone)]
struct Bearer(Option<AsciiMetadataValue>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// A connection to service `naa.lb.v1.Tables` of a data plane.
pub struct Client {
    address: String,
    /// 0 is none.
    term: u64,
    runtime: Runtime,
    tables: TablesClient<InterceptedService<Channel, Bearer>>,
}

impl Client {
    /// `address` is `HOST:PORT`; an IPv6 address as host is in brackets.
    pub fn connect(address: &str, token: Option<&str>) -> Result<Self, ClientError> {
        let wrong = || ClientError::Address(address.to_owned());
        let authority: http::uri::Authority = address.parse().map_err(|_| wrong())?;
        authority.port_u16().ok_or_else(wrong)?;
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| wrong())?;
        let endpoint = endpoint.tcp_nodelay(true).connect_timeout(CONNECT).timeout(ANSWER);
        token.map(check_token).transpose()?;
        let bearer = token.map(|token| format!("Bearer {token}").parse()).transpose();
        let bearer = Bearer(bearer.map_err(|_| BadToken::Characters)?);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ClientError::Runtime)?;
        let channel = runtime
            .block_on(endpoint.connect())
            .map_err(|error| ClientError::Connect { address: address.to_owned(), why: innermost(&error) })?;
        let tables = TablesClient::with_interceptor(channel, bearer).max_decoding_message_size(MOST_ANSWER);
        Ok(Self { address: address.to_owned(), term: 0, runtime, tables })
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
        let answer = self.runtime.block_on(self.tables.load(request));
        Ok(self.answer(answer)?.from_tick)
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
        let answer = self.runtime.block_on(self.tables.edit(request));
        Ok(self.answer(answer)?.from_tick)
    }

    /// The tables there are, the newest last: of one load balancer or of all, and only the newest if wanted.
    pub fn get(&mut self, lb: Option<LbId>, newest: bool) -> Result<Vec<TableSet>, ClientError> {
        let request = v1::GetRequest { lb: lb.map(|lb| lb.get().into()), newest, tell_routed: false };
        let answer = self.runtime.block_on(self.tables.get(request));
        let sets = message::sets(&self.answer(answer)?);
        sets.map_err(|source| ClientError::Answer { address: self.address.clone(), source })
    }

    pub fn counters(&mut self) -> Result<v1::GetCountersReply, ClientError> {
        let answer = self.runtime.block_on(self.tables.get_counters(v1::GetCountersRequest::default()));
        self.answer(answer)
    }

    /// Stages tables of one load balancer. Returns the highest ticks that were routed.
    pub fn stage(&mut self, stage: &LbStage) -> Result<Vec<v1::LbTick>, ClientError> {
        let request = message::of_stage(stage, self.term);
        let answer = self.runtime.block_on(self.tables.stage(request));
        Ok(self.answer(answer)?.routed)
    }

    /// Takes back tables of a load balancer that were staged from a tick on. Returns the highest ticks that were routed.
    pub fn withdraw(&mut self, lb: LbId, from_tick: u64) -> Result<Vec<v1::LbTick>, ClientError> {
        let request = v1::WithdrawRequest { term: self.term, lb: lb.get().into(), from_tick };
        let answer = self.runtime.block_on(self.tables.withdraw(request));
        Ok(self.answer(answer)?.routed)
    }

    /// What was routed, and where tables begin.
    pub fn ticks(&mut self) -> Result<Ticks, ClientError> {
        let answer = self.runtime.block_on(self.tables.get_ticks(v1::GetTicksRequest {}));
        let ticks = message::ticks(&self.answer(answer)?);
        ticks.map_err(|source| ClientError::Answer { address: self.address.clone(), source })
    }

    fn answer<T>(&self, answer: Result<tonic::Response<T>, Status>) -> Result<T, ClientError> {
        let refused =
            |status| ClientError::Refused { address: self.address.clone(), status: Box::new(status) };
        answer.map(tonic::Response::into_inner).map_err(refused)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

/// tonic's errors say only "transport error"; what they stem from says which.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
