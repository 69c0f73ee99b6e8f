//! `naa lb`: the load balancer between a sender and workers, and the tools around it.

mod common;

use std::{fs, process::Stdio};

use common::{Process, TempFolder, json_of, naa, run, scrape, stderr, stdout_of};
use serde_json::Value;

fn worker(folder: &str) -> Process {
    Process::start(&["ejfat", "recv", "--listen", "127.0.0.1:0", "--json", "--events", "1", "--out", folder])
}

/// All slots lead to one worker.
fn tables(worker: &str) -> String {
    let port = worker.rsplit_once(':').expect("a port").1;
    format!(
        "load_balancers:\n- lb: 2\n  addresses: [127.0.0.1]\n  senders: [127.0.0.1]\n  epochs:\n  - {{id: 0, ticks: [all], \
         calendar: 5x512}}\n  members:\n  - {{id: 5, address: 127.0.0.1, port: {port}}}\n"
    )
}

#[test]
fn events_go_where_the_tables_say_as_they_change() {
    let folder = TempFolder::new("lb-forward");
    let path = |name: &str| folder.0.join(name).to_str().expect("text").to_owned();
    let (one, other) = (worker(&path("one")), worker(&path("other")));
    fs::write(path("one.yaml"), tables(one.address())).unwrap();
    fs::write(path("other.yaml"), tables(other.address())).unwrap();
    let listen = ["lb", "forward", "--listen", "127.0.0.1:0", "--json", "--until-eof", "--tables"];
    let ways = ["--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--serve", "127.88.0.1:0", "--token"];
    let ways = [&ways[..], &["secret", "--allow", "127.0.0.0/8"]].concat();
    let lb = Process::start(&[&listen[..], &[&path("one.yaml")], &ways].concat());
    let (grpc, mrsp) = (format!("grpc://{}", lb.text("/grpc")), format!("mrsp://{}", lb.text("/mrsp")));

    let (first, second) = ("../README.md", "Cargo.toml");
    let send = |file: &str| stdout_of(&["ejfat", "send", "--to", lb.address(), "--first", "3", file]);
    send(first);
    one.end();
    assert_eq!(fs::read(path("one/4321-3")).unwrap(), fs::read(first).unwrap());

    // A program without the token cannot change the tables.
    let refused = run(&["lb", "table", "load", &path("other.yaml"), &grpc]);
    assert!(!refused.status.success() && stderr(&refused).contains("token"), "{}", stderr(&refused));
    let loaded = stdout_of(&["lb", "table", "--token", "secret", "load", &path("other.yaml"), &grpc]);
    assert!(loaded.starts_with("they apply from tick "), "{loaded}");
    send(second);
    other.end();
    assert_eq!(fs::read(path("other/4321-3")).unwrap(), fs::read(second).unwrap());

    // The same tables whoever is asked.
    let over_mrsp = stdout_of(&["lb", "table", "show", &mrsp]);
    assert_eq!(over_mrsp, stdout_of(&["lb", "table", "--token", "secret", "show", &grpc]));
    fs::write(path("shown.yaml"), &over_mrsp).unwrap();
    assert_eq!(stdout_of(&["lb", "table", "diff", &path("shown.yaml"), &path("other.yaml")]), "");
    assert_eq!(json_of(&["lb", "table", "show", "--json", &mrsp])["sets"].as_array().unwrap().len(), 2);

    let counted = json_of(&["lb", "counters", "--json", &mrsp]);
    assert_eq!(counted, json_of(&["lb", "counters", "--json", "--token", "secret", &grpc]));
    let of = &counted["load_balancers"][0];
    assert_eq!((&of["lb"], &of["received_packets"]), (&2.into(), &of["sent_packets"]));
    assert!(scrape(lb.text("/metrics")).contains("naa_lb_received_packets_total{lb=\"2\"}"));
    let report = lb.end();
    assert_eq!((&report["event"], &report["overflows"]), (&"end".into(), &0.into()));
    assert_eq!(report["load_balancers"], counted["load_balancers"]);
}

/// What a command that must not start says before it ends, with a status for wrong usage.
fn refusal(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = naa(arguments);
    command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let ended = common::wait_at_most(&mut child, std::time::Duration::from_secs(20));
    // One that serves instead goes, too.
    let _ = child.kill();
    let said = stderr(&child.wait_with_output().expect("it ends"));
    assert_eq!(ended.and_then(|status| status.code()), Some(2), "{arguments:?} {variables:?}: {said}");
    said
}

#[test]
fn tables_behind_a_token_are_not_open_over_mrsp() {
    let forward = ["lb", "forward", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
    let over_mrsp = [&forward[..], &["--serve", "127.88.0.3:0"]].concat();
    for said in [
        refusal(&[&over_mrsp[..], &["--token", "secret"]].concat(), &[]),
        refusal(&over_mrsp, &[("NAA_LB_TOKEN", "secret")]),
    ] {
        assert!(said.contains("over gRPC only") && said.contains("--allow"), "{said}");
    }
    // Networks that are not allowed do not get in.
    let others = ["--token", "secret", "--allow", "192.0.2.0/24", "--json", "--until-eof"];
    let lb = Process::start(&[&over_mrsp[..], &others].concat());
    let mrsp = format!("mrsp://{}", lb.text("/mrsp"));
    let tried = run(&["lb", "table", "show", &mrsp]);
    assert!(!tried.status.success(), "{tried:?}");
    let grpc = format!("grpc://{}", lb.text("/grpc"));
    let tried = run(&["lb", "table", "--token", "secret", "show", &grpc]);
    assert!(!tried.status.success(), "{tried:?}");
}

#[test]
fn tables_are_open_to_other_machines_only_if_these_are_named() {
    // Addresses of no machine: the refusal comes before they are bound.
    for arguments in [
        &["lb", "forward", "--listen", "127.0.0.1:0", "--serve", "192.0.2.1"][..],
        &["lb", "forward", "--listen", "127.0.0.1:0", "--grpc", "192.0.2.1:18010"],
        &["serve", "--bind", "192.0.2.1", "--forward", "127.0.0.1:0"],
        &["bridge", "--bind", "192.0.2.1", "--listen", "127.0.0.1:0", "--route", "tables"],
    ] {
        let said = refusal(arguments, &[]);
        assert!(said.contains("whoever reaches 192.0.2.1 can replace all tables"), "{said}");
    }
}

#[test]
fn an_empty_token_is_refused() {
    let forward = ["lb", "forward", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
    let show = ["lb", "table", "show", "grpc://127.0.0.1:9"];
    let count = ["lb", "counters", "grpc://127.0.0.1:9"];
    for arguments in [&forward[..], &show, &count] {
        for said in [
            refusal(&[arguments, &["--token", ""]].concat(), &[]),
            refusal(arguments, &[("NAA_LB_TOKEN", "")]),
        ] {
            assert!(said.contains("the token is empty"), "{said}");
        }
    }
}

#[test]
fn a_data_plane_offers_what_computes_only_if_asked() {
    let functions = |lb: &Process, name: &str| {
        let listed = json_of(&["functions", "--server", lb.text(name), "--json"]);
        let listed = listed["functions"].as_array().expect("functions").clone();
        listed.iter().map(|of| of["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let forward = ["lb", "forward", "--listen", "127.0.0.1:0", "--json", "--until-eof"];
    let forward = [&forward[..], &["--serve", "127.88.0.4:0"]].concat();
    let lb = Process::start(&forward);
    assert_eq!(functions(&lb, "/mrsp"), ["lb-load", "lb-edit", "lb-tables", "lb-counters", "catalogue"]);
    lb.end();
    let lb = Process::start(&[&forward[..], &["--builtins"]].concat());
    assert!(functions(&lb, "/mrsp").contains(&"sha256".to_owned()));
    lb.end();
    let bridge = ["bridge", "--listen", "127.88.0.5:0", "--bind", "127.88.0.5", "--port", "0", "--provider"];
    let bridge = [&bridge[..], &["embedded", "--json", "--until-eof"]].concat();
    let bridge = Process::start(&bridge);
    let offered = functions(&bridge, "/workers");
    assert!(
        offered.contains(&"bridge-status".to_owned()) && !offered.contains(&"sha256".to_owned()),
        "{offered:?}"
    );
}

#[test]
fn tables_are_checked_shown_and_compared() {
    let folder = TempFolder::new("lb-tables");
    let path = |name: &str| folder.0.join(name).to_str().expect("text").to_owned();
    let text = tables("127.0.0.1:7000");
    fs::write(path("a.yaml"), &text).unwrap();
    fs::write(path("b.yaml"), text.replace("5x512", "5x511 6").replace("7000", "7001")).unwrap();
    let shown = stdout_of(&["lb", "table", "show", &path("a.yaml")]);
    assert!(shown.contains("calendar: 5x512"), "{shown}");
    let diff = run(&["lb", "table", "diff", &path("a.yaml"), &path("b.yaml")]);
    assert_eq!(diff.status.code(), Some(1));
    let lines = String::from_utf8(diff.stdout).unwrap();
    for line in [
        "- load_balance_calendar_table  load balancer 2, epoch 0, slot 511: member 5",
        "+ load_balance_calendar_table  load balancer 2, epoch 0, slot 511: member 6",
        "+ member_info_lookup_table  load balancer 2, member 5: 127.0.0.1:7001, 0 port bits",
    ] {
        assert!(lines.lines().any(|found| found == line), "{lines}");
    }
    fs::write(path("wrong.yaml"), text.replace("lb: 2", "lb: 64")).unwrap();
    let wrong = run(&["lb", "table", "show", &path("wrong.yaml")]);
    assert!(stderr(&wrong).contains("there is no load balancer 64; they are 0 to 63"), "{}", stderr(&wrong));
    let nowhere = run(&["lb", "table", "show", "grpc://127.0.0.1:9"]);
    assert!(stderr(&nowhere).contains("is it running, with gRPC on this port?"), "{}", stderr(&nowhere));
}

#[test]
fn a_missing_and_a_wrong_token_are_told_in_words_of_the_command_line() {
    let forward = ["lb", "forward", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--token", "secret"];
    let lb = Process::start(&[&forward[..], &["--json", "--until-eof"]].concat());
    let grpc = format!("grpc://{}", lb.text("/grpc"));
    let folder = TempFolder::new("lb-token");
    let file = folder.with("lb.yaml", tables("127.0.0.1:7000").as_bytes());
    let said = |arguments: &[&str], variable: Option<&str>| {
        let output = naa(arguments).envs(variable.map(|token| ("NAA_LB_TOKEN", token))).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = stderr(&output);
        assert!(!said.contains("Bearer") && !said.contains("secret"), "{said}");
        said
    };
    for arguments in [
        &["lb", "counters", &grpc][..],
        &["lb", "table", "show", &grpc],
        &["lb", "table", "load", &file, &grpc],
    ] {
        let missing = said(arguments, None);
        assert!(
            missing.contains("wants a token") && missing.contains("--token or NAA_LB_TOKEN"),
            "{missing}"
        );
        let wrong = said(arguments, Some("other"));
        assert!(wrong.contains("the token of the variable NAA_LB_TOKEN is wrong"), "{wrong}");
        let option = [arguments, &["--token", "another"]].concat();
        let wrong = said(&option, Some("other"));
        assert!(wrong.contains("the token of --token is wrong"), "{wrong}");
    }
    stdout_of(&["lb", "counters", &grpc, "--token=secret"]);
}

#[test]
fn a_data_plane_that_starts_again_takes_no_terms_below_its_least() {
    let forward = ["lb", "forward", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
    let said = refusal(&[&forward[..], &["--least-term", "0"]].concat(), &[]);
    assert!(said.contains("--least-term"), "{said}");
    let lb = Process::start(&[&forward[..], &["--least-term", "7", "--json", "--until-eof"]].concat());
    let grpc = format!("grpc://{}", lb.text("/grpc"));
    let folder = TempFolder::new("lb-least-term");
    let file = folder.with("lb.yaml", tables("127.0.0.1:7000").as_bytes());
    for term in [&[][..], &["--term", "6"]] {
        let output = run(&[&["lb", "table", "load", &file, &grpc], term].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains("with term 7 or a higher one"), "{}", stderr(&output));
    }
    stdout_of(&["lb", "table", "load", &file, &grpc, "--term", "7"]);
    assert!(stdout_of(&["lb", "table", "show", &grpc]).contains("127.0.0.1"));
}

#[test]
fn a_file_that_leaves_slots_or_members_open_is_refused() {
    let folder = TempFolder::new("lb-gaps");
    let short = folder.with("short.yaml", tables("127.0.0.1:7000").replace("5x512", "5x510").as_bytes());
    let stranger =
        folder.with("stranger.yaml", tables("127.0.0.1:7000").replace("5x512", "5x511 6").as_bytes());
    for (file, named) in [(&short, "slots 510 to 511 have no member"), (&stranger, "not defined: 6;")] {
        for arguments in [
            &["lb", "table", "show", file][..],
            &["lb", "table", "load", file, "grpc://127.0.0.1:9"],
            &["lb", "forward", "--listen", "127.0.0.1:0", "--tables", file, "--until-eof"],
        ] {
            let refused = run(arguments);
            assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {}", stderr(&refused));
            assert!(stderr(&refused).contains(named), "{}", stderr(&refused));
        }
    }
    // Slots that are meant to have no member.
    let meant = folder.with("meant.yaml", tables("127.0.0.1:7000").replace("5x512", "5x510 -x2").as_bytes());
    assert!(stdout_of(&["lb", "table", "show", &meant]).contains("calendar: 5x510 -x2"));
}

#[test]
fn a_shifted_calendar_differs_in_two_lines() {
    let folder = TempFolder::new("lb-shifted");
    let of = |name: &str, calendar: &str| {
        folder.with(name, tables("127.0.0.1:7000").replace("5x512", calendar).as_bytes())
    };
    let calendars = [("a", "(5 6)x256"), ("b", "(6 5)x256"), ("c", "7x512"), ("d", "(5 7)x256")];
    let [a, b, c, d] = calendars.map(|(name, is)| of(name, is));
    let diff = |a: &str, b: &str| String::from_utf8(run(&["lb", "table", "diff", a, b]).stdout).unwrap();
    let slots = "load_balance_calendar_table  load balancer 2, epoch 0, slots 0 to 511:";
    assert_eq!(diff(&a, &b), format!("- {slots} members (5 6)x256\n+ {slots} members (6 5)x256\n"));
    assert_eq!(diff(&b, &c), format!("- {slots} members (6 5)x256\n+ {slots} member 7\n"));
    // Only every other slot changed.
    let slots = slots.replace("0 to 511", "0 to 510");
    assert_eq!(diff(&c, &d), format!("- {slots} member 7\n+ {slots} members (5 7)x255 5\n"));
    assert_eq!(diff(&a, &a), "");
}

#[test]
fn where_no_bridge_runs_it_is_told_how_to_start_one() {
    let server = common::ServerProcess::start("127.88.0.7");
    let with = server.name();
    let port = with.rsplit_once(':').unwrap().1;
    let commands = |at: &str| {
        let status = ["bridge", "status", "--server", at].map(str::to_owned).to_vec();
        let trace = ["bridge", "trace", "1", "--server", at].map(str::to_owned).to_vec();
        [status, trace, ["events", at].map(str::to_owned).to_vec()]
    };
    let said = |arguments: &[String]| {
        let output = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        stderr(&output)
    };
    for arguments in commands(&with) {
        let said = said(&arguments);
        assert!(said.contains(&format!("the server at {with} has no bridge")), "{arguments:?}: {said}");
        assert!(
            said.contains(&format!("naa bridge --listen 127.88.0.7 --bind 127.88.0.7 --port {port}")),
            "{said}"
        );
    }
    for arguments in commands("127.88.0.7:9") {
        let said = said(&arguments);
        assert!(said.contains("naa bridge --listen 127.88.0.7 --bind 127.88.0.7 --port 9`"), "{said}");
        assert!(!said.contains("naa serve"), "{said}");
    }
    let local = said(&["events".to_owned(), "unix:/no/such.sock".to_owned()]);
    assert!(local.contains("naa bridge --listen ADDR --local PATH"), "{local}");
}

/// The exit status is a failure, so that a supervisor starts the server again.
#[test]
fn a_server_whose_reassembly_ends_ends_with_a_failure() {
    let folder = TempFolder::new("serve-ends");
    let out = folder.0.join("events");
    let mut command =
        naa(&["serve", "--bind", "127.88.0.6", "--port", "0", "--json", "--reassemble", "127.0.0.1:0"]);
    command.args(["--events", out.to_str().unwrap()]).stderr(Stdio::piped());
    let mut server = Process::spawn(&mut command);
    fs::remove_dir_all(&out).unwrap();
    stdout_of(&["ejfat", "send", "--to", server.text("/services/reassembling/0"), "Cargo.toml"]);
    let ended = common::wait_at_most(&mut server.child, std::time::Duration::from_secs(10));
    let said = server.errors();
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "{said}");
    assert!(said.contains("naa: reassembly ended: "), "{said}");
}

#[test]
fn an_accelerator_reassembles_and_forwards_beside_its_functions() {
    let folder = TempFolder::new("serve-services");
    let out = folder.0.join("events");
    let services =
        ["--reassemble", "127.0.0.1:0", "--events", out.to_str().unwrap(), "--forward", "127.0.0.1:0"];
    let server = Process::start(
        &[&["serve", "--bind", "127.88.0.2", "--port", "0", "--json", "--until-eof"], &services[..]].concat(),
    );
    stdout_of(&["ejfat", "send", "--to", server.text("/services/reassembling/0"), "../README.md"]);
    let event = out.join("4321-0");
    for _ in 0..200 {
        if event.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(fs::read(event).unwrap(), fs::read("../README.md").unwrap());
    let mrsp = format!("mrsp://{}", server.text("/address"));
    let tables_file = folder.0.join("lb.yaml");
    fs::write(&tables_file, tables("127.0.0.1:7000")).unwrap();
    stdout_of(&["lb", "table", "load", tables_file.to_str().unwrap(), &mrsp]);
    assert!(stdout_of(&["lb", "table", "show", &mrsp]).contains("port: 7000"));
    let functions = stdout_of(&["functions", "--server", server.text("/address")]);
    for service in ["lb-load", "lb-counters", "reassembly-counters"] {
        assert!(functions.contains(service), "{functions}");
    }
}

#[test]
fn the_demonstration_verifies_each_event() {
    for place in [&["--loopback"][..], &[]] {
        let arguments = ["demo", "ejfat", "--events", "600", "--rate", "0.1", "--json", "-"];
        // A token in the environment is for another load balancer.
        let mut demo = naa(&[&arguments[..], place].concat());
        let output = demo.env("NAA_LB_TOKEN", "another").output().expect("it runs");
        assert!(output.status.success(), "{}", stderr(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let rows = report["rows"].as_array().expect("rows");
        let streams: Vec<_> = rows.iter().map(|row| row["streams"].as_u64()).collect();
        assert_eq!(streams, [1, 1, 1, 1000].map(Some));
        assert!(rows.iter().all(|row| row["verified"] == true), "{report}");
        assert!(
            report["sums"].as_array().expect("sums").iter().all(|sum| sum["verified"] == true),
            "{report}"
        );
    }
}
