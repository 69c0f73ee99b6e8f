//! A site of real processes: `naa lb serve`, `naa lb forward`, workers and senders.

mod common;
mod ejfat_common;

use std::{
    collections::BTreeSet,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

use common::{Process, TempFolder, json_of, naa};
use ejfat::uri::EjfatUri;
use ejfat_client::{
    Connection, Token, Trust,
    messages::{ReserveLoadBalancerReply, ReserveLoadBalancerRequest, TokenSelector, token_selector},
};
use ejfat_common::start_worker;
use rustix::process::Signal;
use serde_json::Value;

/// A control plane and its data plane, each in a process of its own.
struct Site {
    plane: Process,
    daemon: Process,
    folder: TempFolder,
    ip: &'static str,
}

impl Site {
    fn start(ip: &'static str) -> Self {
        let folder = TempFolder::new(&format!("lb-site-{ip}"));
        let grpc = format!("{ip}:18010");
        let forward = ["lb", "forward", "--listen", ip, "--grpc", &grpc, "--json"];
        let plane = Process::start(&forward);
        let config = format!(
            "listen: ['{ip}:19523']\nload_balancers: [{{ipv4: {ip}}}]\nworkers: {{loopback: true}}\n\
             planes: [{{kind: naa, address: '{grpc}'}}]\n"
        );
        folder.with("site.yaml", config.as_bytes());
        let daemon = Self::run(&folder);
        Self { plane, daemon, folder, ip }
    }

    fn run(folder: &TempFolder) -> Process {
        let (config, state) = (folder.file("site.yaml"), folder.file("state"));
        Process::start(&["lb", "serve", "--config", &config, "--state", &state, "--json"])
    }

    /// Kills the control plane, and starts it again.
    fn restart(&mut self) {
        self.daemon.kill();
        self.daemon = Self::run(&self.folder);
    }

    fn admin(&self) -> Connection {
        let token = std::fs::read_to_string(self.folder.file("state/admin-token")).unwrap();
        let uri = EjfatUri::new(self.ip, 19_523);
        Connection::open(&uri, &Trust { token: Some(Token(token.trim().into())), ..Trust::default() })
            .unwrap()
    }

    fn reserve(&self) -> ReserveLoadBalancerReply {
        let request = ReserveLoadBalancerRequest { name: "a-run".into(), ..Default::default() };
        self.admin().reserve(request).unwrap()
    }
}

fn worker(uri: &str, out: &str) -> Process {
    start_worker(&["--uri", uri, "--out", out, "--buffer", "8M"])
}

fn end(worker: Process) -> Value {
    worker.signal(Signal::INT);
    worker.end()
}

/// Returns the event numbers of the files in a folder.
fn events(folder: &TempFolder, name: &str) -> BTreeSet<u64> {
    let entries = std::fs::read_dir(folder.file(name)).unwrap();
    let number = |name: String| name.split_once('-').unwrap().1.parse().unwrap();
    entries.map(|entry| number(entry.unwrap().file_name().into_string().unwrap())).collect()
}

/// Waits until this number of workers have slots.
fn wait_for_slots(site: &Site, lb: &str, workers: usize) {
    let (admin, begin) = (site.admin(), Instant::now());
    loop {
        let status = admin.status(lb).unwrap();
        if status.workers.iter().filter(|worker| worker.slots_assigned > 0).count() == workers {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{status:?}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn events_are_shared_a_worker_drains_in_the_middle_and_the_control_plane_is_killed() {
    const EVENTS: u64 = 1500;
    let mut site = Site::start("127.0.71.1");
    let out = TempFolder::new("lb-site-out");
    let reserved = site.reserve();
    let uri = reserved.ejfat_uri.clone();
    assert!(uri.contains(&reserved.token) && uri.contains("/lb/"), "the reply has a whole URI");
    let names = ["one", "two", "three"].map(|name| out.file(name));
    let [one, two, three] = [0, 1, 2].map(|n| worker(&uri, &names[n]));
    wait_for_slots(&site, &reserved.lb_id, 3);

    // Events of 20 KiB at 50 Mbit/s take about five seconds.
    let count = EVENTS.to_string();
    let mut send = naa(&["ejfat", "send", "--size", "20K", "--events", &count, "--rate", "0.05", "--json"]);
    let sending = send.env("EJFAT_URI", &uri).stdout(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_millis(2000));
    let two = end(two);
    assert_eq!(two["registered"]["drained"], true, "{two}");
    site.restart();
    let sent = sending.wait_with_output().unwrap();
    assert!(sent.status.success());
    let sent: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(sent["events"], EVENTS);
    sleep(Duration::from_millis(500));
    one.signal(Signal::INT);
    let (three, one) = (end(three), one.end());
    for report in [&one, &three] {
        assert_eq!(report["registered"]["again"], 0, "the session outlived the restart: {report}");
        assert!(report["events"].as_u64().unwrap() > EVENTS / 5, "{report}");
    }
    assert!(two["events"].as_u64().unwrap() > 50, "{two}");
    for report in [&one, &two, &three] {
        assert_eq!(
            (&report["timed_out"], &report["evicted"]),
            (&0.into(), &0.into()),
            "none is split: {report}"
        );
    }
    let parts = ["one", "two", "three"].map(|name| events(&out, name));
    let all: BTreeSet<u64> = parts.iter().flatten().copied().collect();
    assert_eq!(parts.iter().map(BTreeSet::len).sum::<usize>(), all.len(), "none came twice");
    let missing: Vec<_> = (0..EVENTS).filter(|event| !all.contains(event)).collect();
    assert!(missing.is_empty(), "{} are missing: {missing:?}", missing.len());
    let status = site.admin().status(&reserved.lb_id).unwrap();
    assert!(status.workers.is_empty() && status.sender_addresses.is_empty(), "all have left: {status:?}");
}

#[test]
fn a_reservation_that_is_freed_is_told_and_its_token_is_of_no_use() {
    let site = Site::start("127.0.71.2");
    let reserved = site.reserve();
    site.admin().free(&reserved.lb_id).unwrap();
    let send = ["ejfat", "send", "--size", "1", "--events", "1", "--uri", &reserved.ejfat_uri];
    let said = common::stderr(&common::run(&send));
    assert!(said.contains("the token is unknown") && said.contains("get a new EJFAT URI"), "{said}");
    let again = site.reserve();
    let sent =
        json_of(&["ejfat", "send", "--size", "1", "--events", "1", "--uri", &again.ejfat_uri, "--json"]);
    assert_eq!(sent["events"], 1);
}

#[test]
fn a_backup_is_written_while_the_control_plane_runs_and_another_one_goes_on_with_it() {
    let ip = "127.0.82.5";
    let folder = TempFolder::new("lb-backup");
    let backup = folder.file("lb.backup");
    let config = format!(
        "listen: ['{ip}:19523']\nload_balancers: [{{ipv4: {ip}}}]\nbackup: {backup}\nbackup_every: 1s\n\
         admin_token_file: {}\n",
        folder.file("admin-token")
    );
    folder.with("site.yaml", config.as_bytes());
    let client = || {
        let token = std::fs::read_to_string(folder.file("admin-token")).unwrap();
        let trust = Trust { token: Some(Token(token.trim().into())), ..Trust::default() };
        Connection::open(&EjfatUri::new(ip, 19_523), &trust).unwrap()
    };
    let state = folder.file("state");
    let run = |store: &str| {
        Process::start(&["lb", "serve", "--config", &folder.file("site.yaml"), "--state", store, "--json"])
    };

    let first = run(&state);
    let request = ReserveLoadBalancerRequest { name: "a-run".into(), ..Default::default() };
    let reserved = client().reserve(request).unwrap();
    let written = || std::fs::metadata(&backup).and_then(|of| of.modified()).ok();
    let before = written();
    let began = Instant::now();
    while written() == before {
        assert!(began.elapsed() < Duration::from_secs(10), "no backup is written");
        sleep(Duration::from_millis(50));
    }
    drop(first);

    let other = folder.file("other");
    std::fs::create_dir(&other).unwrap();
    let restored =
        naa(&["lb", "restore", &backup, "--store", &format!("{other}/control.db")]).output().unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let _second = run(&other);
    assert_eq!(client().get(&reserved.lb_id).unwrap().lb_id, reserved.lb_id);
}

#[test]
fn a_hang_up_ends_neither_the_control_plane_nor_the_data_plane() {
    let mut site = Site::start("127.0.71.3");
    for process in [&site.daemon, &site.plane] {
        process.signal(Signal::HUP);
    }
    sleep(Duration::from_millis(500));
    site.reserve();
    for process in [&mut site.daemon, &mut site.plane] {
        assert_eq!(process.child.try_wait().unwrap(), None);
    }
}

#[test]
fn tables_name_reservations_and_sessions_and_a_revoked_tokens_reservation_is_told() {
    let site = Site::start("127.0.71.4");
    let reserved = site.reserve();
    let admin = std::fs::read_to_string(site.folder.file("state/admin-token")).unwrap();
    let uri = format!("ejfat://{}@127.0.71.4:19523/", admin.trim());
    let run = |args: &[&str]| common::run(&[&["lb"], args, &["--uri", &uri]].concat());
    let said = |args: &[&str]| {
        let output = run(args);
        assert!(output.status.success(), "{}", common::stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned() + &common::stderr(&output)
    };
    let lb = &reserved.lb_id;
    assert!(said(&["overview"]).lines().next().unwrap().contains("reservation"));
    assert!(said(&["reset", "--workers", "--senders", "--lb", lb]).contains("are reset: senders, workers"));
    let made = said(&["tokens", "create", "hall-b", "load_balancer::reserve"]);
    assert!(made.contains("naa lb tokens revoke "), "{made}");
    let of_reservation = Connection::open(&reserved.ejfat_uri.parse().unwrap(), &Trust::default()).unwrap();
    let id = of_reservation
        .list_token_permissions(TokenSelector { token_selector: Some(token_selector::TokenSelector::Id(0)) })
        .map(|own| own.token.unwrap().id)
        .unwrap();
    let revoked = said(&["tokens", "revoke", &id.to_string()]);
    assert!(revoked.contains(&format!("reservation {lb} goes on; `naa lb free --lb {lb}`")), "{revoked}");
    let output = run(&["tokens", "revoke", "hall-b"]);
    assert!(common::stderr(&output).contains("naa lb tokens list"), "{}", common::stderr(&output));
}
