//! Calls over real sockets, and the error of each cause.

mod site;
#[path = "../../lb/tests/tls_common/mod.rs"]
mod tls_common;

use std::{
    net::{TcpListener, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use ejfat::uri::EjfatUri;
use ejfat_client::{
    ApiCall, Cause, ClientError, ClientTls, Connection, TlsFailure, Token, Trust,
    messages::{
        RegisterRequest, ReserveLoadBalancerRequest, ResetLoadBalancerRequest, SendStateRequest,
        SetSlotDemandsRequest, TokenPermission, TokenSelector, token_selector,
    },
};
use naa_grpc::{GrpcServer, ServerTls};
use site::{Site, TOKEN};
use tls_common::{Ca, Files, expired, named};
use tonic::Code;

fn to(uri: &str) -> Connection {
    Connection::open(&uri.parse().unwrap(), &Trust::default()).unwrap()
}

fn connect(server: &GrpcServer, token: &str) -> Connection {
    to(&Site::uri(server, token))
}

#[test]
fn each_call_has_its_answer() {
    let (site, server) = Site::served();
    let client = connect(&server, TOKEN);
    let reserved = client.reserve(ReserveLoadBalancerRequest::default()).unwrap();
    assert_eq!((reserved.token.as_str(), reserved.lb_id.as_str()), (TOKEN, "1"));
    client.get("1").unwrap();
    client.add_senders("1", &["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()]).unwrap();
    client.remove_senders("1", &["192.0.2.1".parse().unwrap()]).unwrap();
    assert_eq!(client.status("1").unwrap().sender_addresses, ["2001:db8::1"]);
    let reset = ResetLoadBalancerRequest { lb_id: "1".into(), epochs: true, ..Default::default() };
    assert!(client.reset(reset).unwrap().epochs);
    assert_eq!(client.extend("1", None).unwrap().until, None);
    let registered = client.register(RegisterRequest { lb_id: "1".into(), ..Default::default() }).unwrap();
    let worker = client.with_token(&registered.token).unwrap();
    let state = SendStateRequest { session_id: registered.session_id.clone(), ..Default::default() };
    worker.send_state(state).unwrap();
    client.set_slot_demands(SetSlotDemandsRequest::default()).unwrap();
    worker.deregister("1", &registered.session_id).unwrap();
    assert!(client.overview().unwrap().load_balancers.is_empty());
    client.timeseries(vec!["*".into()], None).unwrap();
    assert_eq!(client.version().unwrap().compat_tag, "scripted");
    assert_eq!(client.create_token("x", vec![TokenPermission::default()]).unwrap().token, "for-x");
    let own = || TokenSelector { token_selector: Some(token_selector::TokenSelector::Id(0)) };
    assert_eq!(client.list_token_permissions(own()).unwrap().token.unwrap().id, 3);
    assert_eq!(client.list_child_tokens(own()).unwrap().tokens.len(), 2);
    client.revoke_token(own()).unwrap();
    client.free("1").unwrap();
    assert_eq!(site.state().calls.len(), 19);
}

#[track_caller]
fn refused(result: Result<impl std::fmt::Debug, ClientError>, cause: Cause, says: &[&str]) {
    let error = result.unwrap_err();
    let said = error.to_string();
    assert_eq!(error.cause(), Some(cause), "{said}");
    for part in says {
        assert!(said.contains(part), "{said:?} does not say {part:?}");
    }
}

#[test]
fn a_token_that_is_missing_unknown_or_too_weak_is_told_apart() {
    let (site, server) = Site::served();
    site.know_weak("weak");
    let without = to(&format!("ejfat://{}/lb/1", server.address()));
    refused(without.status("1"), Cause::NoToken, &["no token", "ejfat://TOKEN@host:port"]);
    refused(connect(&server, "stale").get("1"), Cause::UnknownToken, &["unknown", "get a new EJFAT URI"]);
    let weak = connect(&server, "weak");
    refused(weak.add_senders("1", &[]), Cause::NoRight, &["AddSenders", "UPDATE on the reservation"]);
    weak.version().unwrap();
    let uri: EjfatUri = Site::uri(&server, "stale").parse().unwrap();
    let other = Trust { token: Some(Token(TOKEN.into())), ..Trust::default() };
    Connection::open(&uri, &other).unwrap().get("1").unwrap();
    assert!(!format!("{other:?}").contains(TOKEN));
}

#[test]
fn each_refusal_has_its_cause() {
    let (site, server) = Site::served();
    let client = connect(&server, TOKEN);
    for (code, cause, remedy) in [
        (Code::NotFound, Cause::NotFound, "get a new EJFAT URI"),
        (Code::AlreadyExists, Cause::Taken, "other ports"),
        (Code::ResourceExhausted, Cause::Busy, "try again later"),
        (Code::Unavailable, Cause::Busy, "try again later"),
        (Code::InvalidArgument, Cause::Invalid, "because"),
        (Code::FailedPrecondition, Cause::Invalid, "because"),
        (Code::Unimplemented, Cause::NotServed, "is it a control plane of EJFAT"),
        (Code::Internal, Cause::Failed, "because"),
    ] {
        site.refuse("Status", code, "because\r\nof\x1b[31m that");
        let address = server.address().to_string();
        refused(client.status("1"), cause, &[remedy, &address, "LoadBalancerStatus", "becauseof[31m that"]);
    }
    site.refuse("Status", Code::ResourceExhausted, "all are reserved; free one");
    let said = client.status("1").unwrap_err().to_string();
    assert!(
        said.ends_with("all are reserved; free one"),
        "the control plane's remedy is the only one: {said}"
    );
    site.refuse("RevokeToken", Code::NotFound, "there is no such token");
    let none = client.revoke_token(TokenSelector::default()).unwrap_err().to_string();
    assert!(none.ends_with("there is no such token"), "{none}");
    site.refuse("Status", Code::NotFound, "");
    refused(client.status("1"), Cause::NotFound, &["there is no such reservation"]);
}

#[test]
fn nobody_there_and_nobody_who_answers() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = to(&format!("ejfat://t@{free}/lb/1")).version().unwrap_err();
    assert!(matches!(&error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("refused") && error.to_string().contains("is it running"), "{error}");
    let nowhere = to("ejfat://t@no-such-host.invalid:1/lb/1").version().unwrap_err();
    assert!(matches!(&nowhere, ClientError::Unreachable { .. }), "{nowhere}");

    let (site, server) = Site::served();
    site.slow("Version", Duration::from_secs(30));
    let begin = Instant::now();
    let late = connect(&server, TOKEN).version().unwrap_err();
    assert!(matches!(&late, ClientError::TooLate { call: ApiCall::Version, .. }), "{late}");
    assert!((4..8).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    // The Linux kernel accepts connections to this listener, and nothing ever reads from them.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = to(&format!("ejfat://t@{}/lb/1", mute.local_addr().unwrap())).version().unwrap_err();
    assert!(matches!(&mute, ClientError::TooLate { .. } | ClientError::Unreachable { .. }), "{mute}");
}

#[test]
fn a_control_plane_that_comes_back_is_used_again() {
    let (site, server) = Site::served();
    let port = server.address().port();
    let client = connect(&server, TOKEN);
    client.version().unwrap();
    drop(server);
    let gone = client.version().unwrap_err();
    assert!(matches!(gone, ClientError::Unreachable { .. }), "{gone}");
    let _again = site.serve(port, None);
    client.version().unwrap();
}

#[test]
fn all_addresses_of_a_name_are_tried() {
    let site = Site::default();
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let server = site.serve_at(at.parse().unwrap(), None);
        to(&format!("ejfat://{TOKEN}@{}/lb/1", server.address())).version().unwrap();
        // The name `localhost` has addresses of one IP version only on some machines.
        let named = ("localhost", server.address().port());
        if named.to_socket_addrs().unwrap().any(|at| at == server.address()) {
            to(&format!("ejfat://{TOKEN}@localhost:{}/lb/1", named.1)).version().unwrap();
        }
    }
}

fn over_tls(address: std::net::SocketAddr, ca: Option<std::path::PathBuf>) -> Result<(), ClientError> {
    let uri: EjfatUri = format!("ejfats://{TOKEN}@{address}/lb/1").parse().unwrap();
    let trust = Trust { tls: ClientTls { ca, identity: None }, token: None };
    Connection::open(&uri, &trust)?.version().map(drop)
}

#[test]
fn ejfats_is_tls_and_each_failure_says_why() {
    let (files, site) = (Files::new("client"), Site::default());
    let (ca, other) = (Ca::new("one"), Ca::new("other"));
    let trusted = files.put("trusted.pem", &ca.pem());
    let others = files.put("others.pem", &other.pem());
    let serve = |name: &str, pair: &(String, String)| {
        let (cert, key) = files.put_pair(name, pair);
        site.serve(0, Some(ServerTls { cert, key, client_ca: None }))
    };
    let server = serve("good", &ca.server());
    over_tls(server.address(), Some(trusted.clone())).unwrap();
    let failed = |address, ca: &std::path::Path, says: &str| {
        let error = over_tls(address, Some(ca.to_owned())).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(says), "{said}");
        match error {
            ClientError::Tls { failure, .. } => failure,
            other => panic!("{other}"),
        }
    };
    assert_eq!(failed(server.address(), &others, "trust the CA"), TlsFailure::UnknownCa);
    let old = serve("old", &ca.sign(&expired()));
    assert_eq!(failed(old.address(), &trusted, "has expired"), TlsFailure::Expired);
    let named = serve("named", &ca.sign(&named("cp.example.org")));
    let wrong = failed(named.address(), &trusted, "cp.example.org, not for 127.0.0.1");
    assert!(matches!(wrong, TlsFailure::WrongName { .. }));
    let plain = site.serve(0, None);
    assert_eq!(failed(plain.address(), &trusted, "write ejfat://"), TlsFailure::NotSpoken);
    let spoken = to(&format!("ejfat://{TOKEN}@{}/lb/1", server.address())).version().unwrap_err();
    assert!(spoken.to_string().contains("write ejfats://"), "{spoken}");
    let missing = over_tls(server.address(), Some(files.path("nothing.pem"))).unwrap_err();
    assert!(missing.to_string().contains("nothing.pem"), "{missing}");
}

#[test]
fn a_token_that_no_header_carries_is_refused_before_any_call() {
    let uri: EjfatUri = "ejfat://a%0ab@127.0.0.1:1/lb/1".parse().unwrap();
    let error = Connection::open(&uri, &Trust::default()).unwrap_err();
    assert!(matches!(error, ClientError::Token(_)), "{error}");
}
