//! A registry with three load balancers, and requests to it.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::collections::BTreeMap;

use ejfat::{Time, lb::LbId};
use ejfat_control::{
    config::{AddressPolicy, Config, LoadBalancerConfig},
    record::Change,
    registry::Registry,
    request::{
        Accepted, AskedPermission, Caller, CreateToken, CreatedToken, LbName, LoadBalancerStatus, Moment,
        Refusal, RefusalKind, Register, RegisteredWorker, Reply, Request, Reserve, ReservedLoadBalancer,
        SendState,
    },
    session::SessionId,
    token::{Scope, TokenLimits},
    wall::WallTime,
};
use simnet::Random;

pub(crate) const ROOT: &str = "the root token of these tests";
/// An address of a worker or sender.
pub(crate) const V4: &str = "198.51.100.1";
pub(crate) const DAY: u64 = 86_400_000;

/// Load balancer 0 has both IP versions, 1 only IPv4, 2 only IPv6.
pub(crate) fn config() -> Config {
    let lb = |n: u8, v4: bool, v6: bool| LoadBalancerConfig {
        data_v4: v4.then(|| [192, 0, 2, n].into()),
        data_v6: v6.then(|| [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)].into()),
        data_ports: 16_384..=32_767,
        sync_v4: Some([192, 0, 2, 100].into()),
        sync_v6: Some([0x2001, 0xdb8, 0, 0, 0, 0, 0, 100].into()),
        sync_port: 19_531 + u16::from(n),
    };
    let load_balancers = vec![lb(0, true, true), lb(1, true, false), lb(2, false, true)];
    Config { load_balancers, addresses: AddressPolicy::default(), ..Config::default() }
}

/// A registry at a moment, with what a store has of it.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) registry: Registry,
    pub(crate) at: Moment,
    pub(crate) random: Random,
    pub(crate) stored: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Site {
    pub(crate) fn new(config: Config, seed: u64) -> Self {
        let at = Moment { now: Time(0), wall: WallTime(1_800_000_000_000) };
        let registry = Registry::new(config, ROOT).expect("a configuration that can be served");
        Self { registry, at, random: Random::new(seed, 7), stored: BTreeMap::new() }
    }

    pub(crate) fn after_ms(&mut self, ms: u64) {
        self.at.now.0 += ms * 1_000_000;
        self.at.wall.0 += ms;
    }

    /// Lets time pass in steps of at most 10 ms, and whatever is over end.
    pub(crate) fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.after_ms(10);
            self.poll();
        }
    }

    pub(crate) fn poll(&mut self) -> Vec<Change> {
        let changes = self.registry.poll(self.at);
        self.store(&changes);
        changes
    }

    pub(crate) fn ask(&mut self, token: &str, request: &Request) -> Result<Reply, Refusal> {
        self.ask_as(Caller { token: Some(token), peer: None }, request)
    }

    pub(crate) fn ask_as(&mut self, caller: Caller<'_>, request: &Request) -> Result<Reply, Refusal> {
        let Self { registry, at, random, .. } = self;
        let Accepted { reply, changes } =
            registry.request(*at, caller, request, &mut |bytes| random.fill(bytes))?;
        self.store(&changes);
        Ok(reply)
    }

    fn store(&mut self, changes: &[Change]) {
        for (key, value) in changes.iter().map(Change::encode) {
            match value {
                Some(value) => self.stored.insert(key, value),
                None => self.stored.remove(&key),
            };
        }
    }

    /// The registry that comes of what is stored.
    pub(crate) fn restored(&self) -> Registry {
        let config = self.registry.config().clone();
        Registry::restore(config, ROOT, &self.stored, self.at.now).expect("what was stored can be restored")
    }

    pub(crate) fn reserve(&mut self, token: &str, reserve: Reserve) -> ReservedLoadBalancer {
        match self.ask(token, &Request::Reserve(reserve)) {
            Ok(Reply::Reserved(reserved)) => *reserved,
            other => panic!("a reservation, not {other:?}"),
        }
    }

    pub(crate) fn register(&mut self, token: &str, register: Register) -> RegisteredWorker {
        match self.ask(token, &Request::Register(register)) {
            Ok(Reply::Registered(registered)) => registered,
            other => panic!("a session, not {other:?}"),
        }
    }

    pub(crate) fn create(&mut self, token: &str, permission: &str, limits: TokenLimits) -> CreatedToken {
        match self.ask(token, &create(permission, limits)) {
            Ok(Reply::Token(token)) => token,
            other => panic!("a token for {permission}, not {other:?}"),
        }
    }
}

/// A request for a token with one permission, written as in records.
pub(crate) fn create(permission: &str, limits: TokenLimits) -> Request {
    let permissions = vec![asked(permission)];
    Request::CreateToken(CreateToken { name: format!("for {permission}"), permissions, limits })
}

pub(crate) fn asked(permission: &str) -> AskedPermission {
    use ejfat_control::request::ResourceType;
    let permission: ejfat_control::token::Permission = permission.parse().expect("a permission");
    let (resource, id) = match permission.scope {
        Scope::All => (ResourceType::All, String::new()),
        Scope::LoadBalancers => (ResourceType::LoadBalancer, String::new()),
        Scope::LoadBalancer(lb) => (ResourceType::LoadBalancer, lb.get().to_string()),
        Scope::Reservation(id) => (ResourceType::Reservation, id.to_string()),
        Scope::Session(id) => (ResourceType::Session, id.to_string()),
    };
    AskedPermission { resource, id, right: permission.right }
}

/// A worker of weight 1 without factors.
pub(crate) fn worker(lb_id: impl ToString, address: &str, port: u32) -> Register {
    Register {
        lb_id: lb_id.to_string(),
        name: format!("worker at {address}"),
        weight: 1.0,
        address: address.to_owned(),
        port,
        ..Register::default()
    }
}

pub(crate) fn lb(id: u8) -> LbId {
    LbId::new(id).expect("an id")
}

pub(crate) fn kind(result: Result<Reply, Refusal>) -> Option<RefusalKind> {
    result.err().map(|refusal| refusal.kind)
}

pub(crate) fn status(site: &mut Site, lb_id: impl ToString) -> LoadBalancerStatus {
    match site.ask(ROOT, &Request::Status(LbName { lb_id: lb_id.to_string() })) {
        Ok(Reply::Status(status)) => *status,
        other => panic!("a status, not {other:?}"),
    }
}

pub(crate) fn ready(session: SessionId) -> SendState {
    SendState { session_id: session.to_string(), is_ready: true, ..SendState::default() }
}
