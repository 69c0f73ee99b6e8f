//! Each call with each kind of token on each resource.
//!
//! `cargo test -p ejfat-control --test permissions -- --nocapture` prints the table.

mod registry_common;

use ejfat_control::{
    access::{ApiCall, NEEDS},
    request::{
        Caller, Deregister, Extend, LbName, RefusalKind, Reply, Request, Reserve, Reset, SendState, Senders,
        SetSlotDemands, TokenSelector,
    },
    reservation::ReservationId,
    token::{TokenId, TokenLimits},
};
use registry_common::{ROOT, Site, config, create, worker};

/// The tokens, in the order of the columns. A is a reservation of load balancer 0 with the sessions a1 and a2, B one of load
/// balancer 1 with b1; load balancer 2 is free. All that have a permission are children of one token.
const TOKENS: [&str; 19] = [
    "no token",
    "unknown token",
    "revoked token",
    "root token",
    "ALL:UPDATE",
    "ALL:READ_ONLY",
    "ALL:RESERVE",
    "ALL:REGISTER",
    "LOAD_BALANCER:UPDATE",
    "LOAD_BALANCER:RESERVE",
    "LOAD_BALANCER/0:UPDATE",
    "LOAD_BALANCER/0:RESERVE",
    "LOAD_BALANCER/0:READ_ONLY",
    "RESERVATION/A:UPDATE, from Reserve",
    "RESERVATION/A:REGISTER",
    "RESERVATION/A:READ_ONLY",
    "RESERVATION/A:RESERVE",
    "SESSION/a1:UPDATE, from Register",
    "SESSION/a1:READ_ONLY",
];

/// What is expected. `+` is accepted, `-` has no right, `0` is not authenticated, `?` not found, `f` says that all load
/// balancers of the token are reserved, `p` that the root token cannot be revoked.
const EXPECTED: [(&str, &[&str], &str); 30] = [
    // The calls; the resource.                                             no|ALL..|LB..|LB/0|RES..|SES
    ("read A", &["GetLoadBalancer", "LoadBalancerStatus", "GetChainGraph"], "0-- +++++ ++ +++ ++++ --"),
    ("read B", &["GetLoadBalancer", "LoadBalancerStatus", "GetChainGraph"], "0-- +++++ ++ --- ---- --"),
    ("read none", &["GetLoadBalancer", "LoadBalancerStatus", "GetChainGraph"], "0-- ????? ?? --- ---- --"),
    ("register A", &["Register"], "0-- ++--+ +- +-- ++-- --"),
    ("register B", &["Register"], "0-- ++--+ +- --- ---- --"),
    ("register none", &["Register"], "0-- ??--? ?- --- ---- --"),
    ("update A", UPDATES, "0-- ++--- +- +-- +--- --"),
    ("update B", UPDATES, "0-- ++--- +- --- ---- --"),
    ("update none", UPDATES, "0-- ??--- ?- --- ---- --"),
    ("session a1", &["Deregister", "SendState"], "0-- ++--- +- +-- +--- +-"),
    ("session a2", &["Deregister", "SendState"], "0-- ++--- +- +-- +--- --"),
    ("session b1", &["Deregister", "SendState"], "0-- ++--- +- --- ---- --"),
    ("session none of A", &["Deregister", "SendState"], "0-- ??--- ?- ?-- ?--- --"),
    ("any", &["Overview", "Timeseries", "Version"], "0-- +++++ ++ +++ ++++ ++"),
    ("reserve", &["ReserveLoadBalancer"], "0-- ++-+- ++ ff- ---- --"),
    ("for ALL:READ_ONLY", &["CreateToken"], "0-- +++++ -- --- ---- --"),
    ("for LOAD_BALANCER:RESERVE", &["CreateToken"], "0-- ++-+- ++ --- ---- --"),
    ("for LOAD_BALANCER/0:RESERVE", &["CreateToken"], "0-- ++-+- ++ ++- ---- --"),
    ("for RESERVATION/A:REGISTER", &["CreateToken"], "0-- ++--+ +- +-- ++-- --"),
    ("for RESERVATION/A:UPDATE", &["CreateToken"], "0-- ++--- +- +-- +--- --"),
    ("for RESERVATION/B:READ_ONLY", &["CreateToken"], "0-- +++++ ++ --- ---- --"),
    ("for RESERVATION/none:READ_ONLY", &["CreateToken"], "0-- ????? ?? --- ---- --"),
    ("for SESSION/a1:UPDATE", &["CreateToken"], "0-- ++--- +- +-- +--- +-"),
    ("for SESSION/a1:READ_ONLY", &["CreateToken"], "0-- +++++ ++ +++ ++++ ++"),
    ("own token", &["ListTokenPermissions", "ListChildTokens"], "0-- +++++ ++ +++ ++++ ++"),
    ("own token", &["RevokeToken"], "0-- p++++ ++ +++ ++++ ++"),
    ("its child's token", TOKEN_CALLS, "0-- +++++ ++ +++ ++++ ++"),
    ("its parent's token", TOKEN_CALLS, "0-- +---- -- --- ---- --"),
    ("another's token", TOKEN_CALLS, "0-- +---- -- --- ---- --"),
    ("no such token", TOKEN_CALLS, "0-- ????? ?? ??? ???? ??"),
];

const UPDATES: &[&str] = &[
    "FreeLoadBalancer",
    "ResetLoadBalancer",
    "ExtendReservation",
    "AddSenders",
    "RemoveSenders",
    "SetSlotDemands",
    "ChainLoadBalancer",
    "UnchainLoadBalancer",
];

const TOKEN_CALLS: &[&str] = &["ListTokenPermissions", "ListChildTokens", "RevokeToken"];

struct Environment {
    site: Site,
    /// In the order of [`TOKENS`]: the text, and the id of a child.
    tokens: Vec<(Option<String>, TokenId)>,
    parent: TokenId,
    other: TokenId,
    a: String,
    b: String,
    sessions: [String; 3],
}

fn environment() -> Environment {
    let mut site = Site::new(config(), 1);
    let none = TokenLimits::default();
    let parent = site.create(ROOT, "ALL:UPDATE", none);
    let other = site.create(ROOT, "ALL:UPDATE", none);
    let by = parent.token.as_str();
    let a = site.reserve(by, Reserve::default());
    let b = site.reserve(by, Reserve::default());
    let a1 = site.register(by, worker(a.id, "198.51.100.1", 5000));
    let a2 = site.register(by, worker(a.id, "198.51.100.2", 5000));
    let b1 = site.register(by, worker(b.id, "198.51.100.3", 5000));
    let mut texts: Vec<_> = TOKENS
        .iter()
        .enumerate()
        .map(|(at, name)| match at {
            0 => None,
            1 => Some("a guess".to_owned()),
            2 => {
                let token = site.create(by, "ALL:UPDATE", none);
                let revoke = Request::RevokeToken(TokenSelector::Id(token.id.0));
                site.ask(ROOT, &revoke).expect("the root may revoke");
                Some(token.token.as_str().to_owned())
            }
            3 => Some(ROOT.to_owned()),
            13 => a.token.as_ref().map(|token| token.as_str().to_owned()),
            17 => Some(a1.token.as_str().to_owned()),
            _ => {
                let name =
                    name.replace("/A", &format!("/{}", a.id)).replace("/a1", &format!("/{}", a1.session));
                Some(site.create(by, &name, none).token.as_str().to_owned())
            }
        })
        .collect();
    // Each gets a child with the least that each may give.
    let least = format!("SESSION/{}:READ_ONLY", a1.session);
    let tokens = texts.drain(..).enumerate().map(|(at, text)| {
        let child =
            if at < 3 { TokenId(9999) } else { site.create(text.as_deref().expect("text"), &least, none).id };
        (text, child)
    });
    let tokens = tokens.collect();
    Environment {
        tokens,
        parent: parent.id,
        other: other.id,
        a: a.id.to_string(),
        b: b.id.to_string(),
        sessions: [a1, a2, b1].map(|worker| worker.session.to_string()),
        site,
    }
}

/// The request of a call on a resource.
fn request(environment: &Environment, call: &str, resource: &str, child: TokenId) -> Request {
    let lb_id = match resource.rsplit(' ').next() {
        Some("B") => environment.b.clone(),
        Some("none") => "999".to_owned(),
        _ => environment.a.clone(),
    };
    let [a1, a2, b1] = environment.sessions.clone();
    let session_id = match resource {
        "session a1" => a1.clone(),
        "session a2" => a2,
        "session b1" => b1,
        _ => "999".to_owned(),
    };
    let selector = TokenSelector::Id(match resource {
        "its child's token" => child.0,
        "its parent's token" => environment.parent.0,
        "another's token" => environment.other.0,
        "no such token" => 9999,
        _ => 0,
    });
    let name = LbName { lb_id: lb_id.clone() };
    let senders = Senders { lb_id: lb_id.clone(), addresses: vec!["203.0.113.9".to_owned()] };
    // The reservation that `Deregister` names is the one that the session is of.
    let of = if resource == "session b1" { environment.b.clone() } else { lb_id.clone() };
    match call {
        "ReserveLoadBalancer" => Request::Reserve(Reserve::default()),
        "GetLoadBalancer" => Request::Get(name),
        "LoadBalancerStatus" => Request::Status(name),
        "FreeLoadBalancer" => Request::Free(name),
        "ResetLoadBalancer" => Request::Reset(Reset { lb_id, workers: true, ..Reset::default() }),
        "ExtendReservation" => Request::Extend(Extend { lb_id, until: None }),
        "AddSenders" => Request::AddSenders(senders),
        "RemoveSenders" => Request::RemoveSenders(senders),
        "Register" => Request::Register(worker(lb_id, "198.51.100.77", 5000)),
        "SetSlotDemands" => Request::SetSlotDemands(SetSlotDemands { lb_id, sessions: Vec::new() }),
        "Deregister" => Request::Deregister(Deregister { lb_id: of, session_id }),
        "SendState" => Request::SendState(SendState { lb_id: of, session_id, ..SendState::default() }),
        "Overview" => Request::Overview,
        "Timeseries" => Request::Timeseries,
        "Version" => Request::Version,
        "CreateToken" => {
            let permission =
                resource.trim_start_matches("for ").replace("/A:", &format!("/{}:", environment.a));
            let permission =
                permission.replace("/B:", &format!("/{}:", environment.b)).replace("/none:", "/999:");
            create(&permission.replace("/a1:", &format!("/{a1}:")), TokenLimits::default())
        }
        "ListTokenPermissions" => Request::ListTokenPermissions(selector),
        "ListChildTokens" => Request::ListChildTokens(selector),
        "RevokeToken" => Request::RevokeToken(selector),
        "ChainLoadBalancer" => Request::Chain(name),
        "UnchainLoadBalancer" => Request::Unchain(name),
        "GetChainGraph" => Request::GetChainGraph(name),
        other => panic!("no request for {other}"),
    }
}

fn cell(environment: &Environment, call: &str, resource: &str, token: &(Option<String>, TokenId)) -> char {
    let mut site = environment.site.clone();
    let before = site.registry.durable().clone();
    let request = request(environment, call, resource, token.1);
    assert_eq!(request.call().name(), call);
    let result = site.ask_as(Caller { token: token.0.as_deref(), peer: None }, &request);
    let Err(refusal) = result else {
        return '+';
    };
    assert_eq!(site.registry.durable(), &before, "{call} on {resource} was refused and changed something");
    match refusal.kind {
        RefusalKind::PermissionDenied => '-',
        RefusalKind::Unauthenticated => '0',
        RefusalKind::NotFound => '?',
        RefusalKind::ResourceExhausted => 'f',
        RefusalKind::FailedPrecondition => 'p',
        kind => panic!("{call} on {resource}: {kind:?}: {refusal}"),
    }
}

#[test]
fn each_call_is_open_to_the_tokens_that_the_table_says() {
    let environment = environment();
    println!(
        "+ accepted, - no right, 0 not authenticated, ? not found, f all are reserved, p not possible\n"
    );
    for (at, name) in TOKENS.iter().enumerate() {
        println!("{:>54}{}{name}", "", "| ".repeat(at));
    }
    let mut wrong = Vec::new();
    for (call, name, _) in NEEDS {
        for (resource, _, expected) in EXPECTED.iter().filter(|(_, calls, _)| calls.contains(&name)) {
            let cells: Vec<_> =
                environment.tokens.iter().map(|token| cell(&environment, name, resource, token)).collect();
            let shown: String = cells.iter().flat_map(|cell| [*cell, ' ']).collect();
            println!("{name:<22}{resource:<32}{shown}");
            let expected: Vec<_> = expected.chars().filter(|cell| *cell != ' ').collect();
            assert_eq!(expected.len(), TOKENS.len(), "{call:?} on {resource}");
            if cells != expected {
                wrong.push(format!("{call:?} on {resource}: {cells:?}, expected {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_call_is_in_the_expectation() {
    let missing: Vec<ApiCall> = NEEDS
        .iter()
        .filter(|(_, name, _)| !EXPECTED.iter().any(|(_, calls, _)| calls.contains(name)))
        .map(|(call, ..)| *call)
        .collect();
    assert_eq!(missing, []);
}

#[test]
fn an_overview_shows_what_the_token_may_read() {
    let environment = environment();
    let shown = |token: &(Option<String>, TokenId)| {
        let mut site = environment.site.clone();
        let text = token.0.as_deref().expect("a text");
        let Ok(Reply::Overview(shown)) = site.ask(text, &Request::Overview) else { panic!("an overview") };
        let Ok(Reply::Readable { all, reservations }) = site.ask(text, &Request::Timeseries) else {
            panic!("a list")
        };
        assert_eq!(shown.iter().map(|of| of.reservation.id).collect::<Vec<_>>(), reservations);
        assert!(shown.iter().all(|of| of.reservation.token.is_none()));
        (all, shown.iter().map(|of| of.status.workers.len()).collect::<Vec<_>>())
    };
    let tokens = &environment.tokens;
    let of: Vec<_> = tokens[3..].iter().map(shown).collect();
    let (everything, both, a, none) =
        ((true, vec![2, 1]), (false, vec![2, 1]), (false, vec![2]), (false, vec![]));
    let expected = [vec![everything; 5], vec![both; 2], vec![a; 7], vec![none; 2]].concat();
    assert_eq!(of, expected);
}

#[test]
fn a_token_of_another_reservation_is_told_which_one_it_is_of() {
    let mut site = Site::new(config(), 1);
    let (own, other) = (site.reserve(ROOT, Reserve::default()), site.reserve(ROOT, Reserve::default()));
    let token = own.token.expect("a token").as_str().to_owned();
    let free = |id: ReservationId| Request::Free(LbName { lb_id: id.to_string() });
    let refused = site.ask(&token, &free(other.id)).expect_err("it is not its own").to_string();
    let here =
        format!("on reservation {}, since it is a token of reservation {}; use a token", other.id, own.id);
    assert!(refused.contains(&here), "{refused}");
}
