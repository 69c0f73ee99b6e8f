//! `naa lb` over TLS: options, and what is said if it fails.

mod common;
#[path = "../../ejfat/lb/tests/tls_common/mod.rs"]
mod tls_common;

use std::{
    fs::{self, File},
    thread::sleep,
    time::{Duration, Instant},
};

use common::{Process, naa, run, stderr, stdout_of};
use tls_common::{Ca, Files};

/// Starts a data plane, whose log goes to a file.
fn forward(arguments: &[&str], log: File) -> Process {
    let forward =
        ["lb", "forward", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--json", "--until-eof"];
    Process::spawn(naa(&forward).args(arguments).stderr(log))
}

#[track_caller]
fn refused(arguments: &[&str], says: &str) {
    let output = run(arguments);
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains(says), "{arguments:?}: {said}");
}

#[test]
fn tables_and_counters_are_read_over_tls_and_errors_name_the_options() {
    let files = Files::new("commands");
    let (ca, clients) = (Ca::new("servers"), Ca::new("clients"));
    let text = |path: std::path::PathBuf| path.to_str().expect("text").to_owned();
    let (cert, key) = files.put_pair("server", &ca.server());
    let (cert, key) = (text(cert), text(key));
    let client_ca = text(files.put("clients.pem", &clients.pem()));
    let trusted = text(files.put("ca.pem", &ca.pem()));
    let (shown, shown_key) = files.put_pair("client", &clients.client());
    let (shown, shown_key) = (text(shown), text(shown_key));
    let log = File::create(files.path("log")).unwrap();
    let options =
        ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &client_ca, "--token", "secret"];
    let lb = forward(&options, log);
    let (plain, tls) = (format!("grpc://{}", lb.text("/grpc")), format!("grpcs://{}", lb.text("/grpc")));

    let show = ["lb", "table", "show", &tls, "--token", "secret"];
    let trusting = [&show[..], &["--tls-ca", &trusted]].concat();
    let showing = ["--tls-cert", &shown, "--tls-key", &shown_key];
    stdout_of(&[&trusting[..], &showing].concat());
    let count = ["lb", "counters", &tls, "--token", "secret", "--tls-ca", &trusted];
    stdout_of(&[&count[..], &showing].concat());
    let without_token = ["lb", "counters", &tls, "--tls-ca", &trusted];
    refused(&[&without_token[..], &showing].concat(), "wants a token");
    let by_system = |ca: &str| {
        let mut show = naa(&[&show[..], &showing].concat());
        show.env("SSL_CERT_FILE", ca).env_remove("SSL_CERT_DIR").output().expect("it runs")
    };
    assert!(by_system(&trusted).status.success());
    let said = stderr(&by_system(&client_ca));
    assert!(said.contains("trust the CA that signed it, by --tls-ca FILE"), "{said}");
    let said = stderr(&by_system("/dev/null"));
    assert!(said.contains("name a file of CAs, by --tls-ca FILE"), "{said}");
    refused(&trusting, "show one, by --tls-cert FILE --tls-key FILE");
    refused(&["lb", "counters", &plain], &format!("connect over TLS, by {tls}"));
    refused(&["lb", "counters", &plain, "--tls-ca", &trusted], &format!("go with TLS; write {tls}"));
    refused(&[&trusting[..], &["--tls-cert", &shown]].concat(), "--tls-key");

    // One half of another pair: the old one stays, and the log says so once.
    fs::write(&key, ca.server().1).unwrap();
    let told = || -> Vec<String> {
        let log = fs::read_to_string(files.path("log")).unwrap();
        log.lines().filter(|line| line.contains("does not fit")).map(str::to_owned).collect()
    };
    let begin = Instant::now();
    while told().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(10), "the log does not say so");
        sleep(Duration::from_millis(50));
    }
    sleep(Duration::from_millis(1200));
    stdout_of(&[&trusting[..], &showing].concat());
    let told = told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains(&key) && told[0].contains(&cert) && told[0].contains("stays in use"),
        "{told:?}"
    );
}

#[test]
fn a_key_of_another_certificate_is_an_error_that_names_both_files() {
    let (files, ca) = (Files::new("mismatch"), Ca::new("one"));
    let (cert, _) = files.put_pair("server", &ca.server());
    let (_, key) = files.put_pair("other", &ca.server());
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let forward = ["lb", "forward", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--tls-cert", cert];
    let says = format!("the key of {key} does not fit the certificate of {cert}");
    refused(&[&forward[..], &["--tls-key", key]].concat(), &says);
    refused(&forward, "--tls-key");
}

#[test]
fn certificates_of_callers_open_the_tables_over_grpc_and_not_over_mrsp() {
    // Addresses of no machine: what is refused comes before they are bound.
    let tls = ["--tls-cert", "a.pem", "--tls-key", "a.key"];
    let far = ["lb", "forward", "--listen", "127.0.0.1:0", "--grpc", "192.0.2.1:18010"];
    refused(&[&far[..], &tls].concat(), "whoever reaches 192.0.2.1 can replace all tables over gRPC");
    let near =
        ["lb", "forward", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--serve", "127.88.0.4:0"];
    let near = [&near[..], &tls, &["--tls-client-ca", "b.pem"]].concat();
    refused(&near, "--tls-client-ca are asked for over gRPC only");
}
