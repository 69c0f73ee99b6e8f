//! Both services over TLS, on real sockets.

mod grpc_common;
mod tls_common;

use std::{
    fs,
    io::Read as _,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use ejfat::lb::Rules;
use ejfat_lb::{
    When,
    grpc::{
        Callers, Client, ClientError, ClientTls, Credentials, CredentialsError, GrpcServer, ServeError,
        ServerTls, SmartNicClient, TlsError, TlsFailure, serve_to,
    },
};
use grpc_common::{new_plane, rules_to, runtime, start};
use hyper_util::rt::TokioIo;
use proto::sn_p4::v2::{self, smartnic_p4_client::SmartnicP4Client};
use rcgen::SanType;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tls_common::{Ca, Files, at_loopback, expired, named};
use tonic::transport::{Channel, Endpoint};

fn serve(tls: ServerTls, token: Option<&str>) -> Result<GrpcServer, ServeError> {
    let plane = Arc::new(new_plane(Rules::default(), 1));
    let callers = Callers { token: token.map(str::to_owned), tls: Some(tls), ..Callers::default() };
    serve_to(callers, (Ipv4Addr::LOCALHOST, 0).into(), plane)
}

/// The files of a server's certificate.
fn of(files: &Files, pair: &(String, String)) -> ServerTls {
    let (cert, key) = files.put_pair("server", pair);
    ServerTls { cert, key, client_ca: None }
}

fn trusting(files: &Files, ca: &Ca) -> ClientTls {
    ClientTls { ca: Some(files.put("trusted.pem", &ca.pem())), identity: None }
}

fn connect(address: SocketAddr, tls: &ClientTls) -> Result<Client, ClientError> {
    Client::connect_by(&Credentials::new(None, Some(tls))?, &address.to_string())
}

/// Connects and makes a call.
fn call(address: SocketAddr, tls: &ClientTls) -> Result<(), ClientError> {
    connect(address, tls)?.load(&rules_to(1), When::Now).map(|_| ())
}

#[track_caller]
fn failure(result: Result<(), ClientError>) -> TlsFailure {
    match result {
        Err(ClientError::Tls { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

/// A client of others: it knows nothing of ours.
async fn channel(address: SocketAddr, ca: &Ca) -> Channel {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config));
    let connect = tower::service_fn(move |_| {
        let tls = tls.clone();
        async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            let stream = tls.connect(ServerName::from(address.ip()), stream).await?;
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            std::io::Result::Ok(TokioIo::new(stream))
        }
    });
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_with_connector(connect).await.unwrap()
}

#[test]
fn both_services_answer_over_tls() {
    let (files, ca) = (Files::new("both"), Ca::new("one"));
    let server = serve(of(&files, &ca.server()), Some("secret")).unwrap();
    let address = server.address().to_string();
    let tls = trusting(&files, &ca);
    let mut client =
        Client::connect_by(&Credentials::new(Some("secret"), Some(&tls)).unwrap(), &address).unwrap();
    client.load(&rules_to(7), When::Now).unwrap();
    assert_eq!(*client.get(None, true).unwrap()[0].rules, rules_to(7));
    let mut without = Client::connect_by(&Credentials::new(None, Some(&tls)).unwrap(), &address).unwrap();
    let refused = without.get(None, true).unwrap_err();
    assert_eq!(refused.wants_token(), Some(address.as_str()), "{refused}");

    let info = runtime().block_on(async {
        let mut client = SmartnicP4Client::new(channel(server.address(), &ca).await);
        let mut request = tonic::Request::new(v2::DeviceInfoRequest { dev_id: -1 });
        request.metadata_mut().insert("authorization", "Bearer secret".parse().unwrap());
        client.get_device_info(request).await.unwrap().into_inner().message().await.unwrap().unwrap()
    });
    assert_eq!(info.info.unwrap().pci.unwrap().bus_id, "software");
    let credentials = Credentials::new(Some("secret"), Some(&tls)).unwrap();
    let mut smartnic = SmartNicClient::connect_by(&credentials, &address).unwrap();
    smartnic.clear(None).unwrap();
    assert_eq!(*client.get(None, true).unwrap()[0].rules, Rules::default());
}

#[test]
fn a_server_is_refused_for_its_certificate_with_the_reason() {
    let (files, ca) = (Files::new("reasons"), Ca::new("one"));
    let refused = |pair: &(String, String), trusted: &Ca, says: &str| {
        let server = serve(of(&files, pair), None).unwrap();
        let error = call(server.address(), &trusting(&files, trusted)).unwrap_err();
        assert!(error.to_string().contains(&server.address().to_string()), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        failure(Err(error))
    };
    let another = Ca::new("another");
    assert_eq!(refused(&ca.server(), &another, "trust the CA that signed it"), TlsFailure::UnknownCa);
    assert_eq!(refused(&ca.sign(&expired()), &ca, "has expired; renew it"), TlsFailure::Expired);
    let mut names = named("lb.example.org");
    names.subject_alt_names.push(SanType::IpAddress([192, 0, 2, 1].into()));
    let wrong = refused(&ca.sign(&names), &ca, "for lb.example.org, 192.0.2.1, not for 127.0.0.1");
    assert!(matches!(wrong, TlsFailure::WrongName { .. }), "{wrong:?}");
    assert_eq!(refused(&ca.own(), &ca, "without the basic constraint CA"), TlsFailure::OfCa);
}

#[test]
fn clients_show_a_certificate_where_their_ca_is_named() {
    let (files, ca, clients) = (Files::new("clients"), Ca::new("servers"), Ca::new("clients"));
    let client_ca = Some(files.put("clients.pem", &clients.pem()));
    let server = serve(ServerTls { client_ca, ..of(&files, &ca.server()) }, None).unwrap();
    let trusting = trusting(&files, &ca);
    let with = |pair: &(String, String)| {
        let identity = Some(files.put_pair("client", pair));
        call(server.address(), &ClientTls { identity, ..trusting.clone() })
    };
    // Often, since what ends the connection comes at another time than what explains it.
    for _ in 0..20 {
        assert_eq!(failure(call(server.address(), &trusting)), TlsFailure::WantsCertificate);
    }
    let stranger = failure(with(&ca.client()));
    assert!(matches!(stranger, TlsFailure::CertificateRefused(_)), "{stranger:?}");
    with(&clients.client()).unwrap();
}

#[test]
fn who_does_not_speak_tls_is_told_to_and_the_other_way_round() {
    let (files, ca) = (Files::new("plain"), Ca::new("one"));
    let server = serve(of(&files, &ca.server()), None).unwrap();
    for _ in 0..20 {
        let connected = Client::connect(&server.address().to_string(), None);
        let error = connected.and_then(|mut client| client.get(None, true)).unwrap_err();
        assert!(error.to_string().contains("it speaks TLS on this port"), "{error}");
        assert_eq!(failure(Err(error)), TlsFailure::Wanted);
    }
    let (_, plain) = start(None);
    let error = call(plain.address(), &trusting(&files, &ca)).unwrap_err();
    assert!(error.to_string().contains("connect without"), "{error}");
    assert_eq!(failure(Err(error)), TlsFailure::NotSpoken);
}

#[test]
fn files_that_cannot_be_used_are_named_at_the_start() {
    let (files, ca) = (Files::new("files"), Ca::new("one"));
    let good = of(&files, &ca.server());
    let refused = |tls: ServerTls| match serve(tls, None) {
        Err(ServeError::Tls(error)) => error,
        other => panic!("{other:?}"),
    };
    let key = files.put("other.key", &ca.server().1);
    let error = refused(ServerTls { key: key.clone(), ..good.clone() });
    assert_eq!(error, TlsError::Mismatch { cert: good.cert.clone(), key: key.clone() });
    let text = error.to_string();
    assert!(text.contains(key.to_str().unwrap()) && text.contains(good.cert.to_str().unwrap()), "{text}");

    let absent = refused(ServerTls { cert: files.path("absent.pem"), ..good.clone() }).to_string();
    assert!(absent.contains("absent.pem: No such file"), "{absent}");
    let swapped = ServerTls { cert: good.key.clone(), key: good.cert.clone(), client_ca: None };
    assert_eq!(refused(swapped), TlsError::NoCertificate { path: good.key.clone() });
    let no_key = refused(ServerTls { key: good.cert.clone(), ..good.clone() });
    assert!(no_key.to_string().contains("there is none; give one as PEM, not encrypted"), "{no_key}");
    let empty = Some(files.put("empty.pem", ""));
    let error = refused(ServerTls { client_ca: empty.clone(), ..good.clone() });
    assert_eq!(error, TlsError::NoCertificate { path: empty.clone().unwrap() });
    let begun = files.put("begun.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let error = refused(ServerTls { cert: begun, ..good.clone() }).to_string();
    assert!(error.contains("begun.pem"), "{error}");
    let endless = ServerTls { cert: "/dev/zero".into(), ..good };
    assert_eq!(refused(endless), TlsError::Long { path: "/dev/zero".into() });
    let trusted = ClientTls { ca: empty, identity: None };
    assert!(matches!(
        Credentials::new(None, Some(&trusted)),
        Err(CredentialsError::Files(TlsError::NoCertificate { .. }))
    ));
}

/// Waits for what a reload brings.
#[track_caller]
fn soon(mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(10), "it does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn new_certificates_are_for_new_connections_and_open_ones_go_on() {
    let (files, old, new) = (Files::new("reload"), Ca::new("old"), Ca::new("new"));
    let server = serve(of(&files, &old.server()), None).unwrap();
    let address = server.address();
    let of_old = trusting(&files, &old);
    let of_new = ClientTls { ca: Some(files.put("new.pem", &new.pem())), identity: None };
    let mut client = connect(address, &of_old).unwrap();
    client.load(&rules_to(1), When::Now).unwrap();
    // A call that is under way all the while.
    let runtime = runtime();
    let (ask, asked) = tokio::sync::mpsc::channel(1);
    let mut answers = runtime.block_on(async {
        let mut smartnic = SmartnicP4Client::new(channel(address, &old).await);
        smartnic.batch(tokio_stream::wrappers::ReceiverStream::new(asked)).await.unwrap().into_inner()
    });

    files.put_pair("server", &new.server());
    soon(|| call(address, &of_new).is_ok());
    assert_eq!(failure(call(address, &of_old)), TlsFailure::UnknownCa);
    assert_eq!(client.get(None, true).unwrap().len(), 1, "its connection went on");
    let answer = runtime.block_on(async {
        ask.send(v2::BatchRequest::default()).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), answers.message()).await.unwrap().unwrap()
    });
    assert_eq!(answer.unwrap().error_code, i32::from(v2::ErrorCode::EcUnknownBatchRequest));

    // Files that are replaced by others under their names, as tools for certificates do.
    files.put_pair("next", &old.server());
    for kind in ["key", "pem"] {
        fs::rename(files.path(&format!("next.{kind}")), files.path(&format!("server.{kind}"))).unwrap();
    }
    soon(|| call(address, &of_old).is_ok());
}

#[test]
fn files_that_break_leave_the_certificate_that_was_read_before() {
    let (files, ca) = (Files::new("broken"), Ca::new("one"));
    let tls = of(&files, &ca.server());
    let server = serve(tls.clone(), None).unwrap();
    let trusting = trusting(&files, &ca);
    let stays = || {
        std::thread::sleep(Duration::from_millis(1100));
        call(server.address(), &trusting).unwrap();
    };
    files.put("server.pem", "no certificate");
    stays();
    fs::remove_file(&tls.key).unwrap();
    stays();
    files.put_pair("server", &Ca::new("another").server());
    soon(|| call(server.address(), &trusting).is_err());
}

#[test]
fn a_file_that_is_never_read_to_its_end_holds_up_neither_calls_nor_the_end() {
    let (files, ca) = (Files::new("endless"), Ca::new("one"));
    let tls = of(&files, &ca.server());
    let server = serve(tls.clone(), None).unwrap();
    let trusting = trusting(&files, &ca);
    fs::remove_file(&tls.cert).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&tls.cert).status().unwrap();
    assert!(made.success());
    std::thread::sleep(Duration::from_millis(700));
    let begin = Instant::now();
    call(server.address(), &trusting).unwrap();
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}

#[test]
fn clients_of_a_ca_that_was_taken_away_do_not_get_in_again() {
    let (files, ca) = (Files::new("revoked"), Ca::new("servers"));
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let client_ca = Some(files.put("clients.pem", &old.pem()));
    let server = serve(ServerTls { client_ca, ..of(&files, &ca.server()) }, None).unwrap();
    let identity = Some(files.put_pair("client", &old.client()));
    let tls = ClientTls { identity, ..trusting(&files, &ca) };
    call(server.address(), &tls).unwrap();
    files.put("clients.pem", &new.pem());
    soon(|| call(server.address(), &tls).is_err());
    let refused = failure(call(server.address(), &tls));
    assert!(matches!(refused, TlsFailure::CertificateRefused(_)), "{refused:?}");
}

#[test]
fn a_peer_that_says_nothing_holds_up_nobody_and_is_ended() {
    let (files, ca) = (Files::new("silent"), Ca::new("one"));
    let server = serve(of(&files, &ca.server()), None).unwrap();
    let trusting = trusting(&files, &ca);
    let begin = Instant::now();
    // More than there are seats.
    let mut silent: Vec<_> = (0..40).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for _ in 0..3 {
        call(server.address(), &trusting).unwrap();
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    let last = silent.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // It may end with a reset.
    let _ = last.read_to_end(&mut Vec::new());
    assert!((4..20).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
}

#[test]
fn names_are_those_of_the_address() {
    let (files, ca) = (Files::new("names"), Ca::new("one"));
    let server = serve(of(&files, &ca.sign(&named("localhost"))), None).unwrap();
    let access = Credentials::new(None, Some(&trusting(&files, &ca))).unwrap();
    let port = server.address().port();
    Client::connect_by(&access, &format!("localhost:{port}")).unwrap().get(None, true).unwrap();
    let mut both = at_loopback();
    both.subject_alt_names.push(SanType::IpAddress(std::net::Ipv6Addr::LOCALHOST.into()));
    let server = {
        let callers = Callers { tls: Some(of(&files, &ca.sign(&both))), ..Callers::default() };
        let plane = Arc::new(new_plane(Rules::default(), 1));
        serve_to(callers, (std::net::Ipv6Addr::LOCALHOST, 0).into(), plane).unwrap()
    };
    Client::connect_by(&access, &server.address().to_string()).unwrap().get(None, true).unwrap();
}
