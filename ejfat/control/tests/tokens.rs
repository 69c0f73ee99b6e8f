//! How tokens are revoked, and what bounds them: limits, their number and their depth.

mod registry_common;

use std::time::Duration;

use ejfat_control::{
    request::{Caller, CreateToken, Extend, RefusalKind, Reply, Request, Reserve, TokenSelector},
    token::{TokenId, TokenLimits},
    wall::WallTime,
};
use registry_common::{ROOT, Site, V4, asked, config, create, kind, ready, status, worker};

#[test]
fn revoking_a_token_revokes_all_below_it_and_data_flow_on() {
    let mut site = Site::new(config(), 1);
    let none = TokenLimits::default();
    let user = site.create(ROOT, "LOAD_BALANCER:UPDATE", none);
    let friend = site.create(user.token.as_str(), "LOAD_BALANCER:UPDATE", none);
    let reserved = site.reserve(friend.token.as_str(), Reserve::default());
    let instance = reserved.token.expect("a token");
    let worker = site.register(instance.as_str(), worker(reserved.id, V4, 5000));
    let owner = |site: &Site| {
        site.registry.durable().reservation(reserved.id).map(|of| (of.owner, of.token.is_some()))
    };
    assert_eq!(owner(&site), Some((friend.id, true)));
    let own = Request::RevokeToken(TokenSelector::Id(0));
    site.ask(friend.token.as_str(), &own).expect("its own token");
    assert_eq!(owner(&site), Some((user.id, false)), "the reservation stays, and counts against the parent");
    for gone in [friend.token.as_str(), instance.as_str(), worker.token.as_str()] {
        assert_eq!(kind(site.ask(gone, &Request::Version)), Some(RefusalKind::PermissionDenied));
    }
    let session = site.registry.durable().session(worker.session).expect("the session stays");
    assert_eq!(session.token, None);
    let state = Request::SendState(ready(worker.session));
    site.ask(user.token.as_str(), &state).expect("who may update the reservation sends states");
    let by_text = Request::RevokeToken(TokenSelector::Token(user.token.as_str().to_owned()));
    assert!(!format!("{by_text:?}").contains(user.token.as_str()));
    site.ask(ROOT, &by_text).expect("a token below the root");
    assert_eq!(owner(&site), Some((TokenId::ROOT, false)));
    assert_eq!(site.restored().durable(), site.registry.durable());
}

#[test]
fn limits_hold_for_a_token_and_all_below_it() {
    let mut site = Site::new(config(), 1);
    let day = Duration::from_secs(86_400);
    let limits = |reservations, longest| TokenLimits { reservations, longest };
    let user = site.create(ROOT, "LOAD_BALANCER:UPDATE", limits(Some(2), Some(day)));
    let by = user.token.as_str();
    for more in [limits(Some(3), None), limits(None, Some(2 * day))] {
        let refused = site.ask(by, &create("LOAD_BALANCER:UPDATE", more));
        assert_eq!(kind(refused), Some(RefusalKind::PermissionDenied));
    }
    let child = site.create(by, "LOAD_BALANCER:UPDATE", limits(Some(1), None));
    let of_child = child.token.as_str();
    let first = site.reserve(of_child, Reserve::default());
    let expected = Some(site.at.wall + day);
    assert_eq!(status(&mut site, first.id).expires, expected, "the site's default is longer");
    let reserve = Request::Reserve(Reserve::default());
    assert_eq!(kind(site.ask(of_child, &reserve)), Some(RefusalKind::ResourceExhausted));
    site.reserve(by, Reserve::default());
    assert_eq!(kind(site.ask(by, &reserve)), Some(RefusalKind::ResourceExhausted), "the child's counts");
    let far = [Some(WallTime(0)), Some(site.at.wall + 2 * day)];
    let extend = |until| Request::Extend(Extend { lb_id: first.id.to_string(), until });
    let instance = first.token.expect("a token");
    for until in far {
        assert_eq!(kind(site.ask(instance.as_str(), &extend(until))), Some(RefusalKind::PermissionDenied));
    }
    site.ask(ROOT, &extend(Some(WallTime(0)))).expect("the root has no limits");
    let Ok(Reply::TokenDetails(details)) =
        site.ask(of_child, &Request::ListTokenPermissions(TokenSelector::Id(0)))
    else {
        panic!("details")
    };
    assert_eq!((details.id, details.limits), (child.id, limits(Some(1), Some(day))));
}

#[test]
fn tokens_are_bounded_in_number_and_depth() {
    let mut small = config();
    (small.most_tokens, small.most_tokens_below, small.most_depth) = (6, 3, 3);
    let mut site = Site::new(small, 1);
    let none = TokenLimits::default();
    let full = |result| assert_eq!(kind(result), Some(RefusalKind::ResourceExhausted));
    let mut by = ROOT.to_owned();
    for _ in 0..3 {
        by = site.create(&by, "ALL:UPDATE", none).token.as_str().to_owned();
    }
    full(site.ask(&by, &create("ALL:UPDATE", none)));
    let wide = site.create(ROOT, "ALL:UPDATE", none);
    let id = site.reserve(wide.token.as_str(), Reserve::default()).id;
    site.register(wide.token.as_str(), worker(id, V4, 5000));
    site.create(wide.token.as_str(), "ALL:UPDATE", none);
    site.create(wide.token.as_str(), "ALL:UPDATE", none);
    full(site.ask(ROOT, &create("ALL:UPDATE", none)));
    let permissions = vec![asked("ALL:READ_ONLY"); 33];
    let many = Request::CreateToken(CreateToken { permissions, ..CreateToken::default() });
    assert_eq!(kind(site.ask(ROOT, &many)), Some(RefusalKind::InvalidArgument));
    let without = Request::CreateToken(CreateToken::default());
    assert_eq!(kind(site.ask(ROOT, &without)), Some(RefusalKind::InvalidArgument));
    let mut narrow = config();
    narrow.most_tokens_below = 1;
    let mut site = Site::new(narrow, 1);
    let user = site.create(ROOT, "ALL:UPDATE", none);
    let child = site.create(user.token.as_str(), "ALL:UPDATE", none);
    for by in [&user, &child] {
        full(site.ask(by.token.as_str(), &create("ALL:UPDATE", none)));
    }
}

#[test]
fn random_numbers_that_repeat_make_no_token() {
    let mut site = Site::new(config(), 1);
    let caller = Caller { token: Some(ROOT), peer: None };
    let request = create("ALL:UPDATE", TokenLimits::default());
    let at = site.at;
    let mut ask = || site.registry.request(at, caller, &request, &mut |bytes| bytes.fill(7));
    assert!(ask().is_ok());
    assert_eq!(ask().map_err(|refusal| refusal.kind), Err(RefusalKind::FailedPrecondition));
}
