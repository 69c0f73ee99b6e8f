//! The largest site that a configuration allows: whatever is asked of it, a store takes what changes as one batch.

mod registry_common;

use ejfat_control::{
    config::{Config, LoadBalancerConfig, MOST_CHANGES},
    record::Change,
    request::{
        Caller, CreatedToken, Extend, LbName, Register, Request, Reserve, ReservedLoadBalancer, Reset,
        SendState, Senders, SetSlotDemands, SlotDemand, TokenSelector,
    },
    session::SessionId,
    token::TokenLimits,
    wall::WallTime,
};
use registry_common::{DAY, ROOT, Site, config};

const SLOTS: u32 = 4096;

/// How large a site is: one with SmartNICs, or one with our own data planes only.
#[derive(Clone, Copy)]
struct Size {
    load_balancers: u8,
    workers: u32,
}

const ON_SMARTNICS: Size = Size { load_balancers: 8, workers: 1024 };
const OURS: Size = Size { load_balancers: 64, workers: 2048 };

fn largest(size: Size) -> Config {
    let lb = |n: u8| LoadBalancerConfig {
        data_v4: Some([192, 0, 2, n].into()),
        data_v6: Some([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)].into()),
        sync_port: 19_531 + u16::from(n),
        ..config().load_balancers[0].clone()
    };
    Config {
        load_balancers: (0..size.load_balancers).map(lb).collect(),
        most_members: size.workers as u16,
        slots: SLOTS,
        most_tokens_below: 1024,
        most_audit: 64,
        ..config()
    }
}

/// Changes that a store takes as one batch.
fn fit(what: &str, changes: &[Change]) {
    let changes = changes.iter().map(Change::encode);
    let changes: Vec<_> = changes.map(|(key, value)| naa_store::Change { key, value }).collect();
    let count = changes.len();
    assert!(count <= MOST_CHANGES, "{what}: {count} changes");
    let checked = naa_store::Batch { term: naa_store::Term(1), changes }.check();
    let bytes = checked.unwrap_or_else(|why| panic!("{what}: {why}"));
    println!("{what}: {count} changes, {bytes} bytes");
}

/// A site with as much of everything as it allows, all of it below one token.
struct Largest {
    site: Site,
    user: CreatedToken,
    reserved: Vec<ReservedLoadBalancer>,
    sessions: Vec<SessionId>,
}

impl Largest {
    /// Workers and senders are divided evenly among so many reservations.
    fn new(size: Size, reservations: u32) -> Self {
        let mut site = Site::new(largest(size), 1);
        let none = TokenLimits::default();
        let user = site.create(ROOT, "ALL:UPDATE", none);
        let by = user.token.as_str();
        for _ in 1..site.registry.config().most_tokens {
            site.create(by, "ALL:READ_ONLY", none);
        }
        let until = Some(WallTime(site.at.wall.0 + DAY));
        let per = 256 / reservations;
        let senders = (0..per).map(|n| format!("198.18.0.{n}"));
        let senders =
            senders.chain((0..per).map(|n| format!("2001:db8:1111:2222:3333:4444:5555:{:x}", 0x6000 + n)));
        let reserve = Reserve { until, senders: senders.collect(), ..Reserve::default() };
        let reserved: Vec<_> = (0..reservations).map(|_| site.reserve(by, reserve.clone())).collect();
        let workers = size.workers / reservations;
        let mut sessions = Vec::new();
        for of in &reserved {
            for n in 0..workers {
                sessions.push(site.register(by, worker(of, n, workers)).session);
            }
        }
        Self { site, user, reserved, sessions }
    }

    fn fits(&self, what: &str, request: &Request) {
        let Site { mut registry, at, mut random, .. } = self.site.clone();
        let caller = Caller { token: Some(self.user.token.as_str()), peer: None };
        let accepted = registry.request(at, caller, request, &mut |bytes| random.fill(bytes));
        fit(what, &accepted.unwrap_or_else(|why| panic!("{what}: {why}")).changes);
    }
}

/// A worker whose record is as long as one can be.
fn worker(reserved: &ReservedLoadBalancer, n: u32, workers: u32) -> Register {
    Register {
        lb_id: reserved.id.to_string(),
        name: "\"".repeat(253),
        weight: 1.234_567_8e-6,
        address: "2001:db8:1111:2222:3333:4444:5555:6666".to_owned(),
        port: 10_000 + n,
        min_factor: 0.123_456_79,
        max_factor: 123_456.79,
        slot_demands: demands(n, workers),
        ..Register::default()
    }
}

/// Each slot by itself.
fn demands(n: u32, workers: u32) -> Vec<SlotDemand> {
    let per = SLOTS / workers;
    (n * per..(n + 1) * per).map(|slot| SlotDemand { index: slot as i32, length: 1 }).collect()
}

#[test]
fn each_request_to_the_largest_site_changes_no_more_than_one_batch_takes() {
    for (size, reservations) in [(ON_SMARTNICS, 1), (ON_SMARTNICS, 8), (OURS, 1), (OURS, 16), (OURS, 64)] {
        let largest = Largest::new(size, reservations);
        let lb_id = largest.reserved[0].id.to_string();
        let workers = size.workers / reservations;
        let revoke = Request::RevokeToken(TokenSelector::Id(largest.user.id.0));
        largest.fits("revoke", &revoke);
        largest.fits("free", &Request::Free(LbName { lb_id: lb_id.clone() }));
        let reset = Reset { lb_id: lb_id.clone(), sync: true, epochs: true, senders: true, workers: true };
        largest.fits("reset", &Request::Reset(reset));
        let others = (0..workers).map(|n| demands((n + 1) % workers, workers));
        let sessions = largest.sessions.iter().map(SessionId::to_string).zip(others).collect();
        let demands = SetSlotDemands { lb_id: lb_id.clone(), sessions };
        largest.fits("slot demands", &Request::SetSlotDemands(demands));
        largest.fits("extend", &Request::Extend(Extend { lb_id: lb_id.clone(), until: None }));
        let addresses: Vec<_> = largest
            .site
            .registry
            .durable()
            .senders_of(largest.reserved[0].lb)
            .map(|of| of.address.to_string())
            .collect();
        let senders = Senders { lb_id: lb_id.clone(), addresses };
        let mut without = largest;
        without.fits("remove senders", &Request::RemoveSenders(senders.clone()));
        without.site.ask(ROOT, &Request::RemoveSenders(senders.clone())).expect("senders");
        without.fits("add senders", &Request::AddSenders(senders.clone()));
        let free = Request::Free(LbName { lb_id });
        without.site.ask(ROOT, &free).expect("a reservation");
        let reserve = Reserve { senders: senders.addresses, ..Reserve::default() };
        without.fits("reserve", &Request::Reserve(reserve));
    }
}

#[test]
fn a_worker_may_take_the_place_of_all_silent_sessions_of_the_largest_site() {
    let mut largest = Largest::new(OURS, 1);
    for session in largest.sessions.clone() {
        let state = SendState { session_id: session.to_string(), ..SendState::default() };
        largest.site.ask(ROOT, &Request::SendState(state)).expect("a state");
    }
    largest.site.after_ms(3_000);
    let all = Register {
        port: 10_000,
        port_range: 10,
        slot_demands: Vec::new(),
        ..worker(&largest.reserved[0], 0, 1)
    };
    largest.fits("register", &Request::Register(all));
}

#[test]
fn what_many_silent_workers_cause_is_stored_in_small_batches() {
    let mut site = Largest::new(OURS, 16).site;
    site.after_ms(10_000);
    let mut polls = 0;
    while site.registry.durable().sessions().count() > 0 {
        assert!(site.registry.next_wakeup(site.at).is_some_and(|at| at <= site.at.now), "more is over");
        let changes = site.poll();
        fit("poll", &changes);
        assert!(!changes.is_empty() && changes.len() <= 100, "{} changes", changes.len());
        polls += 1;
    }
    assert!(site.registry.next_wakeup(site.at).is_some_and(|at| at > site.at.now));
    let entries: Vec<_> = site.registry.durable().audit().map(|(_, entry)| entry).collect();
    let silent: Vec<_> = entries.iter().filter(|entry| entry.call == "SessionSilent").collect();
    assert_eq!(silent.len(), polls, "one entry for each batch");
    let named: usize = silent.iter().map(|entry| entry.what.matches("of reservation").count()).sum();
    assert_eq!(named, OURS.workers as usize, "each session is in the log");
    assert_eq!(site.restored().durable(), site.registry.durable());
}

#[test]
fn reservations_of_the_largest_site_end_in_batches_that_a_store_takes() {
    for (size, reservations) in [(ON_SMARTNICS, 8), (OURS, 1), (OURS, 16)] {
        let mut site = Largest::new(size, reservations).site;
        site.after_ms(DAY);
        for left in (0..reservations as usize).rev() {
            fit("expiry", &site.poll());
            assert_eq!(site.registry.durable().reservations().count(), left);
        }
        assert!(site.poll().is_empty());
        assert_eq!(site.registry.durable().senders_of(registry_common::lb(0)).count(), 0);
    }
}

#[test]
fn an_audit_log_that_became_too_long_is_shortened_a_little_with_each_batch() {
    let mut site = Site::new(Config { most_audit: 1_000, ..config() }, 1);
    for _ in 0..1_000 {
        site.create(ROOT, "ALL:READ_ONLY", TokenLimits::default());
    }
    let fewer = Config { most_audit: 10, ..config() };
    site.registry = ejfat_control::registry::Registry::restore(fewer, ROOT, &site.stored, site.at.now)
        .expect("a configuration with a shorter log");
    for _ in 0..70 {
        let count = site.registry.durable().audit().count();
        let name = LbName { lb_id: site.reserve(ROOT, Reserve::default()).id.to_string() };
        site.ask(ROOT, &Request::Free(name)).expect("a reservation");
        let now = site.registry.durable().audit().count();
        assert!(now <= 10 || (now < count && count - now <= 32), "{count}, then {now}");
    }
    assert_eq!(site.registry.durable().audit().count(), 10);
}
