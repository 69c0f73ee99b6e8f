//! Random requests, good and bad: what is stored always gives the same registry. A failure prints the seed.

mod registry_common;

use std::collections::BTreeMap;

use ejfat_control::{
    config::Config,
    request::{
        AskedPermission, Caller, CreateToken, Deregister, Extend, LbName, Refusal, RefusalKind, Register,
        Reply, Request, Reserve, Reset, ResourceType, SendState, Senders, SetSlotDemands, SlotDemand,
        TokenSelector,
    },
    reservation::IpFamily,
    token::{Right, TokenLimits},
    wall::WallTime,
};
use registry_common::{ROOT, Site, config};
use simnet::Random;

const SEEDS: u64 = 150;
const REQUESTS: usize = 200;

fn small() -> Config {
    Config {
        slots: 16,
        most_senders: 3,
        most_members: 5,
        most_tokens: 8,
        most_tokens_below: 4,
        most_depth: 3,
        most_audit: 12,
        ..config()
    }
}

/// Makes requests of numbers and texts that often fit.
struct Maker<'a> {
    random: &'a mut Random,
    /// The texts of all tokens that there ever were.
    tokens: &'a [String],
    /// The ids of the tokens, reservations and sessions that there are.
    present: [Vec<u64>; 3],
    wall: WallTime,
}

impl Maker<'_> {
    fn id(&mut self, kind: usize) -> String {
        let present = &self.present[kind];
        let last = present.last().copied().unwrap_or(0);
        match self.random.below(20) {
            0 => "x".to_owned(),
            1 => u64::MAX.to_string(),
            2 => (last + 1).to_string(),
            3 => last.saturating_sub(2).to_string(),
            _ => self.random.pick(if present.is_empty() { &[1] } else { present }).to_string(),
        }
    }

    fn odd_or<T: Copy>(&mut self, odd: &[T], good: T) -> T {
        if self.random.chance(60_000) { self.random.pick(odd) } else { good }
    }

    fn until(&mut self) -> Option<WallTime> {
        let later = WallTime(self.wall.0 + self.random.below(100_000));
        self.random.pick(&[
            None,
            Some(WallTime(0)),
            Some(later),
            Some(later),
            Some(WallTime(1)),
            Some(WallTime(u64::MAX)),
        ])
    }

    fn addresses(&mut self) -> Vec<String> {
        let pool =
            ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "2001:db8::1", "2001:db8::2", "192.0.2.1"];
        let odd = ["", "::", "1.2.3", "::ffff:1.2.3.4"];
        (0..self.random.below(3))
            .map(|_| {
                let good = self.random.pick(&pool);
                self.odd_or(&odd, good).to_owned()
            })
            .collect()
    }

    fn demands(&mut self) -> Vec<SlotDemand> {
        let demand = |random: &mut Random| SlotDemand {
            index: random.pick(&[-1, -1, -1, 0, 3, 8, 15, -2, i32::MAX]),
            length: random.pick(&[1, 1, 2, 4, 0, 17]),
        };
        (0..self.random.below(3)).map(|_| demand(self.random)).collect()
    }

    fn limits(&mut self) -> TokenLimits {
        TokenLimits {
            reservations: self.random.pick(&[None, None, Some(0), Some(1), Some(2)]),
            longest: self.random.pick(&[None, None, Some(std::time::Duration::from_micros(50_000_500))]),
        }
    }

    fn selector(&mut self) -> TokenSelector {
        match self.random.below(3) {
            0 => TokenSelector::Id(0),
            1 => TokenSelector::Id(self.id(0).parse().unwrap_or(u32::MAX)),
            _ => TokenSelector::Token(
                self.random.pick(&(0..self.tokens.len()).collect::<Vec<_>>()).to_string(),
            ),
        }
    }

    fn permission(&mut self) -> AskedPermission {
        let resource = self.random.pick(&[
            ResourceType::All,
            ResourceType::LoadBalancer,
            ResourceType::LoadBalancer,
            ResourceType::Reservation,
            ResourceType::Session,
        ]);
        let id = match resource {
            ResourceType::All => String::new(),
            ResourceType::LoadBalancer => self.random.pick(&["", "", "0", "1", "9", "x"]).to_owned(),
            ResourceType::Reservation => self.id(1),
            ResourceType::Session => self.id(2),
        };
        AskedPermission { resource, id, right: self.random.pick(&Right::ALL) }
    }

    fn request(&mut self) -> Request {
        let name = LbName { lb_id: self.id(1) };
        match self.random.below(26) {
            0..=2 => Request::Reserve(Reserve {
                name: self.odd_or(&["-", "a..b"], "run").to_owned(),
                until: self.until(),
                senders: self.addresses(),
                ip_family: self.random.pick(&[IpFamily::DualStack, IpFamily::V4, IpFamily::V6]),
                strategy: self.random.pick(&["", "static", "explicit", "dynamic", "none"]).to_owned(),
            }),
            3 => Request::Get(name),
            4 => Request::Status(name),
            5 => Request::Free(name),
            6 => Request::Reset(Reset {
                lb_id: name.lb_id,
                sync: self.random.chance(500_000),
                epochs: false,
                senders: self.random.chance(500_000),
                workers: self.random.chance(300_000),
            }),
            7 => Request::Extend(Extend { lb_id: name.lb_id, until: self.until() }),
            8 | 9 => Request::AddSenders(Senders { lb_id: name.lb_id, addresses: self.addresses() }),
            10 => Request::RemoveSenders(Senders { lb_id: name.lb_id, addresses: self.addresses() }),
            11..=14 => Request::Register(Register {
                lb_id: name.lb_id,
                name: "worker".to_owned(),
                weight: self.odd_or(&[0.0, -1.0, f32::NAN, f32::MAX, 1e-7], 0.1),
                address: self.random.pick(&["192.0.2.9", "2001:db8::9"]).to_owned(),
                port: self.random.pick(&[5000, 5001, 5002, 65_535, 0, 70_000]),
                port_range: self.odd_or(&[15, u32::MAX, 14], 0),
                min_factor: self.odd_or(&[-1.0, f32::NAN, -0.0], 0.3),
                max_factor: self.odd_or(&[0.1, f32::INFINITY, 0.0], 1.7),
                keep_lb_header: self.random.chance(500_000),
                slot_demands: self.demands(),
            }),
            15 | 16 => {
                let sessions = (0..self.random.below(3)).map(|_| (self.id(2), self.demands())).collect();
                Request::SetSlotDemands(SetSlotDemands { lb_id: name.lb_id, sessions })
            }
            17 => {
                let lb_id = if self.random.chance(500_000) { String::new() } else { name.lb_id };
                Request::Deregister(Deregister { lb_id, session_id: self.id(2) })
            }
            18..=20 => Request::SendState(SendState {
                lb_id: name.lb_id,
                session_id: self.id(2),
                fill_level: self.odd_or(&[-0.1, 1.1, f32::NAN], 0.5),
                control_signal: self.odd_or(&[f32::NAN, f32::NEG_INFINITY], -3.0),
                is_ready: true,
                events_received: self.odd_or(&[-1, i64::MAX], 5),
                ..SendState::default()
            }),
            21 => Request::Overview,
            22 | 23 => {
                let permissions = (0..self.random.below(4)).map(|_| self.permission()).collect();
                Request::CreateToken(CreateToken {
                    name: "token".to_owned(),
                    permissions,
                    limits: self.limits(),
                })
            }
            24 => Request::ListChildTokens(self.selector()),
            _ => Request::RevokeToken(self.selector()),
        }
    }
}

/// The token that a reply brings.
fn token(reply: &Reply) -> Option<String> {
    let secret = match reply {
        Reply::Reserved(reserved) => reserved.token.as_ref(),
        Reply::Registered(registered) => Some(&registered.token),
        Reply::Token(created) => Some(&created.token),
        _ => None,
    };
    secret.map(|secret| secret.as_str().to_owned())
}

fn present(site: &Site) -> [Vec<u64>; 3] {
    let durable = site.registry.durable();
    [
        durable.tokens().iter().map(|token| u64::from(token.id.0)).collect(),
        durable.reservations().map(|reservation| reservation.id.0).collect(),
        durable.sessions().map(|session| session.id.0).collect(),
    ]
}

/// Bounds and limits that hold whatever is asked for.
fn check(site: &Site, seed: u64) {
    let (durable, config) = (site.registry.durable(), site.registry.config());
    assert!(durable.sessions().count() <= usize::from(config.most_members), "seed {seed}");
    assert!(durable.audit().count() <= config.most_audit, "seed {seed}");
    for is_v4 in [true, false] {
        let senders = config.load_balancers().flat_map(|(lb, _)| durable.senders_of(lb));
        let count = senders.filter(|sender| sender.address.is_ipv4() == is_v4).count();
        assert!(count <= config.most_senders, "seed {seed}");
    }
    let tokens = durable.tokens();
    for token in tokens.iter() {
        let within = durable.reservations().filter(|of| tokens.is_within(of.owner, token.id)).count();
        assert!(token.limits.reservations.is_none_or(|most| within <= most as usize), "seed {seed}");
    }
}

#[test]
fn what_is_stored_after_each_request_gives_the_same_registry_and_a_refused_one_changes_nothing() {
    let mut accepted: BTreeMap<&str, u32> = BTreeMap::new();
    let mut refused: BTreeMap<i32, u32> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut site = Site::new(small(), seed);
        let mut random = Random::new(seed, 1);
        let mut tokens = vec![ROOT.to_owned()];
        for _ in 0..REQUESTS {
            let caller = match random.below(4) {
                0 | 1 => ROOT.to_owned(),
                2 => tokens[random.below(tokens.len() as u64) as usize].clone(),
                _ => tokens[tokens.len().saturating_sub(1 + random.below(4) as usize)].clone(),
            };
            let mut maker =
                Maker { random: &mut random, tokens: &tokens, present: present(&site), wall: site.at.wall };
            let mut request = maker.request();
            if let Request::RevokeToken(TokenSelector::Token(at))
            | Request::ListChildTokens(TokenSelector::Token(at)) = &mut request
            {
                *at = tokens[at.parse::<usize>().expect("an index")].clone();
            }
            let before = (site.registry.durable().clone(), site.registry.soft().clone());
            match site.ask_as(Caller { token: Some(&caller), peer: None }, &request) {
                Ok(reply) => {
                    *accepted.entry(request.call().name()).or_default() += 1;
                    tokens.extend(token(&reply));
                }
                Err(Refusal { kind, why }) => {
                    *refused.entry(kind.code()).or_default() += 1;
                    assert!(why.len() < 600, "seed {seed}: {why}");
                    let after = (site.registry.durable().clone(), site.registry.soft().clone());
                    assert_eq!(after, before, "seed {seed}: {request:?} was refused");
                }
            }
            assert_eq!(site.restored().durable(), site.registry.durable(), "seed {seed}: {request:?}");
            check(&site, seed);
            site.after_ms(random.below(600));
            if random.chance(300_000) {
                site.poll();
                assert_eq!(
                    site.restored().durable(),
                    site.registry.durable(),
                    "seed {seed}, after time passed"
                );
            }
        }
    }
    println!("accepted {accepted:?}, refused by code {refused:?}");
    assert!(accepted.values().all(|count| *count > 20) && accepted.len() == 17 - 1, "{accepted:?}");
    let kinds = [
        RefusalKind::InvalidArgument,
        RefusalKind::NotFound,
        RefusalKind::AlreadyExists,
        RefusalKind::PermissionDenied,
        RefusalKind::ResourceExhausted,
        RefusalKind::FailedPrecondition,
    ];
    assert!(kinds.iter().all(|kind| refused.contains_key(&kind.code())), "{refused:?}");
}
