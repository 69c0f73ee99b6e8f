//! Which provider serves, and where that is told.

mod common;

use std::process::Output;

use common::{ServerProcess, naa, run, stderr};
use serde_json::Value;

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[track_caller]
fn check(report: &Value, why: &str) {
    assert_eq!((&report["provider"], &report["why"]), (&"embedded".into(), &why.into()), "{report}");
}

#[test]
fn json_and_the_log_say_which_provider_and_why() {
    let server = ServerProcess::start("127.0.5.60");
    let server = server.name();
    let from_env = |arguments: &[&str]| {
        let output = naa(arguments).env("NAA_PROVIDER", "embedded").output().expect("the binary runs");
        check(&json(&output), "embedded: as asked");
        output
    };
    for arguments in [
        &["ping", "--server", &server, "--count", "3", "--json"][..],
        &["functions", "--server", &server, "--json"],
        &["call", "sha256", "--server", &server, "--in", "/dev/null", "--json"],
    ] {
        let by_itself = run(arguments);
        let why = json(&by_itself)["why"].as_str().expect("a reason").to_owned();
        assert!(why.starts_with("embedded: ") && why.contains("no RDMA device"), "{why}");
        check(&json(&by_itself), &why);
        // On a loopback address, the embedded provider is expected, so there is no message.
        assert!(!stderr(&by_itself).contains("RDMA"), "{}", stderr(&by_itself));
        let logged = naa(arguments).env("NAA_LOG", "info").output().expect("the binary runs");
        assert!(stderr(&logged).contains(&why), "{}", stderr(&logged));
        let asked = run(&[arguments, &["--provider", "embedded"]].concat());
        check(&json(&asked), "embedded: as asked");
        assert!(!stderr(&from_env(arguments)).contains("as asked"));
    }
}

#[test]
fn verbs_without_a_device_fail_with_the_remedy() {
    for arguments in [
        &["ping", "--server", "127.0.5.61"][..],
        &["serve", "--bind", "127.0.5.61"],
        &["rping", "-s", "-a", "127.0.5.61"],
    ] {
        let asked = run(&[arguments, &["--provider", "verbs"]].concat());
        let from_env = naa(arguments).env("NAA_PROVIDER", "verbs").output().expect("the binary runs");
        for output in [asked, from_env] {
            let said = stderr(&output);
            assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{said}");
            for part in ["no device: ", "`rdma link add rxe", "--provider embedded"] {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
    }
}

#[test]
fn a_choice_that_is_none_is_named() {
    for arguments in
        [&["ping", "--server", "127.0.5.62"][..], &["serve", "--bind", "127.0.5.62"], &["demo", "--quick"]]
    {
        let asked = run(&[arguments, &["--provider", "rxe"]].concat());
        assert!(
            asked.status.code() == Some(2) && stderr(&asked).contains("auto, verbs, embedded"),
            "{asked:?}"
        );
        let from_env = naa(arguments).env("NAA_PROVIDER", "rxe").output().expect("the binary runs");
        let said = stderr(&from_env);
        assert!(
            from_env.status.code() == Some(2) && said.contains("NAA_PROVIDER=rxe: no provider"),
            "{said}"
        );
    }
}
