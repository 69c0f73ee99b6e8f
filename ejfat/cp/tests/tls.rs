//! Tests of a control plane over TLS, with a real client.

mod common;
#[path = "../../lb/tests/tls_common/mod.rs"]
mod tls_common;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use common::TempFolder;
use ejfat::uri::EjfatUri;
use ejfat_client::{ClientError, Connection, Trust};
use ejfat_cp::{Daemon, settings::Settings};
use naa_grpc::{ClientTls, TlsFailure};
use rcgen::{CertificateParams, SanType};
use tls_common::{Ca, Files, at_loopback, expired, named};

fn at(ip: &str, mut params: CertificateParams) -> CertificateParams {
    for name in &mut params.subject_alt_names {
        if let SanType::IpAddress(address) = name {
            *address = ip.parse::<IpAddr>().unwrap();
        }
    }
    params
}

/// Starts a control plane. `pair` are the files of its certificate and key; without them it does not speak TLS.
fn start(ip: &str, folder: &TempFolder, pair: Option<(PathBuf, PathBuf)>) -> Daemon {
    let tls =
        pair.map(|(cert, key)| format!("tls: {{cert: '{}', key: '{}'}}\n", cert.display(), key.display()));
    let settings = format!(
        "listen: ['{ip}:0']\n{}load_balancers: [{{ipv4: {ip}}}]\nworkers: {{loopback: true}}",
        tls.unwrap_or_default()
    );
    common::start(&Settings::parse(&settings).unwrap(), &folder.0)
}

fn open(daemon: &Daemon, tls: bool, ca: PathBuf) -> Connection {
    let at: SocketAddr = daemon.addresses()[0];
    let token = std::fs::read_to_string(daemon.token_file()).unwrap().trim().to_owned();
    let uri = EjfatUri { tls, token: Some(token), ..EjfatUri::new(at.ip().to_string(), at.port()) };
    let tls = ClientTls { ca: Some(ca), ..ClientTls::default() };
    Connection::open(&uri, &Trust { tls, ..Trust::default() }).unwrap()
}

#[track_caller]
fn failure(connection: &Connection, says: &str) -> TlsFailure {
    let error = connection.version().unwrap_err();
    assert!(error.to_string().contains(says), "{error}");
    match error {
        ClientError::Tls { failure, .. } => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_certificate_that_is_wrong_is_refused_with_the_reason() {
    let (ip, folder) = ("127.0.80.21", TempFolder::new());
    let (files, ca) = (Files::new("cp-reasons"), Ca::new("one"));
    let trusted = files.put("trusted.pem", &ca.pem());
    let right = at(ip, at_loopback());
    let served = |params: &CertificateParams, signed_by: &Ca| {
        start(ip, &folder, Some(files.put_pair("server", &signed_by.sign(params))))
    };
    let daemon = served(&right, &ca);
    open(&daemon, true, trusted.clone()).version().unwrap();
    let reply = open(&daemon, true, trusted.clone()).reserve(Default::default()).unwrap();
    assert!(reply.ejfat_uri.starts_with("ejfats://"), "the URI says that TLS is spoken");
    let named_port = format!("@{}/", daemon.addresses()[0]);
    assert!(reply.ejfat_uri.contains(&named_port), "and names the port that was bound");
    // A client without TLS.
    assert_eq!(failure(&open(&daemon, false, trusted.clone()), "ejfats://"), TlsFailure::Wanted);
    drop(daemon);
    let refused = |params: &CertificateParams, signed_by: &Ca, says: &str| {
        failure(&open(&served(params, signed_by), true, trusted.clone()), says)
    };
    let unknown = refused(&right, &Ca::new("another"), "trust the CA that signed it");
    assert_eq!(unknown, TlsFailure::UnknownCa);
    assert_eq!(refused(&at(ip, expired()), &ca, "has expired; renew it"), TlsFailure::Expired);
    let wrong = refused(&named("lb.example.org"), &ca, "for lb.example.org, not for 127.0.80.21");
    assert!(matches!(wrong, TlsFailure::WrongName { .. }), "{wrong:?}");
    let plain = start(ip, &folder, None);
    assert_eq!(failure(&open(&plain, true, trusted), "ejfat://"), TlsFailure::NotSpoken);
}

#[test]
fn a_certificate_is_reloaded_under_load_and_no_call_is_dropped() {
    let (ip, folder, files) = ("127.0.80.22", TempFolder::new(), Files::new("cp-reload"));
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let pair = |ca: &Ca| files.put_pair("server", &ca.sign(&at(ip, at_loopback())));
    let both = files.put("both.pem", &(old.pem() + &new.pem()));
    let of_new = files.put("new.pem", &new.pem());
    let daemon = start(ip, &folder, Some(pair(&old)));
    let (done, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let call = |connects: bool| {
            let mut connection = open(&daemon, true, both.clone());
            while !done.load(Relaxed) {
                if connects {
                    connection = open(&daemon, true, both.clone());
                }
                // While the certificate and the key do not belong together, the server still uses the old ones.
                connection.version().unwrap_or_else(|why| panic!("a call was dropped: {why}"));
                calls.fetch_add(1, Relaxed);
            }
        };
        let workers: Vec<_> =
            [false, false, true, true].map(|connects| scope.spawn(move || call(connects))).into();
        std::thread::sleep(Duration::from_millis(200));
        let begin = Instant::now();
        pair(&new);
        let only_new = || open(&daemon, true, of_new.clone());
        while only_new().version().is_err() {
            assert!(begin.elapsed() < Duration::from_secs(10), "the new certificate is not served");
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(200));
        done.store(true, Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    assert!(calls.into_inner() > 100);
}

#[test]
fn a_certificate_that_keeps_clients_away_is_told_before_they_are() {
    let (ip, files, ca) = ("127.0.80.23", Files::new("cp-check"), Ca::new("one"));
    let settings = |params: &CertificateParams| {
        let (cert, key) = files.put_pair("server", &ca.sign(params));
        let text =
            format!("listen: ['{ip}:0']\ntls: {{cert: '{}', key: '{}'}}", cert.display(), key.display());
        Settings::parse(&text).unwrap()
    };
    let warning = |params: &CertificateParams| settings(params).certificate_warning().unwrap_or_default();
    let right = at(ip, at_loopback());
    settings(&right).check().unwrap();
    assert_eq!(warning(&right), "");
    let in_days = |days: u64| {
        let mut params = right.clone();
        params.not_after = (std::time::SystemTime::now() + Duration::from_secs(days * 86_400)).into();
        warning(&params)
    };
    assert_eq!(in_days(15), "");
    assert!(in_days(3).contains("server.pem expires within 3 days; renew it"), "{}", in_days(3));
    assert!(warning(&at(ip, expired())).contains("has expired"));
    assert!(warning(&named("lb.example.org")).contains("is not for 127.0.80.23"));
    // The key is another certificate's.
    let of_other = settings(&right);
    files.put("server.key", &ca.server().1);
    let refused = of_other.check().unwrap_err().to_string();
    assert!(refused.contains("does not fit"), "{refused}");
}
