//! A control plane with 8 load balancers, 128 workers and 16 senders each: as many as the tables of ESnet's SmartNIC hold.
//!
//! While all of them work, the daemon's threads and open files stay as many as they are, and its memory grows by the samples of the
//! time series only. The test prints these figures and the daemon's CPU time. It runs for ten minutes if `NAA_LONG` is 1, and else
//! for some seconds.

mod common;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{scope, sleep},
    time::{Duration, Instant, SystemTime},
};

use common::{Process, TempFolder, naa};
use ejfat::{
    uri::EjfatUri,
    wire::{DATA_PORT, LbHeader, Select, SyncHeader},
};
use ejfat_client::{Connection, Token, Trust, messages as pb};

const LOAD_BALANCERS: u8 = 8;
const WORKERS: u16 = 128;
const SENDERS: u8 = 16;

/// The time between two events of a sender, and between two states of a worker.
const ROUND: Duration = Duration::from_millis(100);
/// The number of rounds after which each sender sends a sync datagram again.
const SYNCS: u64 = 10;

/// The most memory that time series take for each worker after ten minutes: 1024 places for samples of 56 bytes.
const SERIES: u64 = 56 << 10;
/// How much the memory may grow beside that, because allocators keep some.
const SLACK: u64 = 16 << 20;

fn load_balancer(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 83, 1 + n)
}

fn start(folder: &TempFolder) -> Process {
    let lbs: Vec<_> = (0..LOAD_BALANCERS).map(|n| format!("  - {{ipv4: {}}}\n", load_balancer(n))).collect();
    let config = format!(
        "listen: ['{}:19523']\nworkers: {{loopback: true}}\nload_balancers:\n{}",
        load_balancer(0),
        lbs.concat()
    );
    let config = folder.with("site.yaml", config.as_bytes());
    let state = folder.file("state");
    let mut serve = naa(&["lb", "serve", "--config", &config, "--state", &state, "--json"]);
    Process::spawn(serve.env("NAA_LOG", "error"))
}

/// What the daemon uses.
#[derive(Clone, Copy, Debug)]
struct Usage {
    threads: u64,
    files: usize,
    memory: u64,
    /// User and system time in seconds.
    cpu: f64,
}

impl Usage {
    fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
        let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let cpu = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Self { threads: field("Threads:"), files, memory: field("VmRSS:") << 10, cpu }
    }
}

/// One load balancer's workers and senders, which a thread runs.
struct WorkersAndSenders {
    to: Ipv4Addr,
    sync_to: SocketAddr,
    lb: String,
    /// For each worker its session, and a connection with the token of that.
    workers: Vec<(String, Connection)>,
    senders: Vec<UdpSocket>,
}

impl WorkersAndSenders {
    fn register(n: u8, admin: &Connection) -> Self {
        let senders: Vec<_> = (1..=SENDERS)
            .map(|sender| Ipv4Addr::new(127, 0, 85, n * SENDERS + sender))
            .map(|address| UdpSocket::bind((address, 0)).unwrap())
            .collect();
        let made = admin.reserve(pb::ReserveLoadBalancerRequest {
            name: format!("run-{n}"),
            sender_addresses: senders.iter().map(|of| of.local_addr().unwrap().ip().to_string()).collect(),
            ..Default::default()
        });
        let made = made.unwrap();
        let owner = admin.with_token(&made.token).unwrap();
        let register = |worker: u16| {
            let registered = owner.register(pb::RegisterRequest {
                lb_id: made.lb_id.clone(),
                name: format!("worker-{worker}"),
                weight: 1.0,
                ip_address: Ipv4Addr::new(127, 0, 84, 1 + n).to_string(),
                udp_port: (20_000 + worker).into(),
                ..Default::default()
            });
            let registered = registered.unwrap();
            (registered.session_id, admin.with_token(&registered.token).unwrap())
        };
        let workers = (0..WORKERS).map(register).collect();
        let to = made.data_ipv4_address.parse().unwrap();
        let sync_to = (made.sync_ipv4_address.parse::<Ipv4Addr>().unwrap(), made.sync_udp_port as u16).into();
        Self { to, sync_to, lb: made.lb_id, workers, senders }
    }

    /// Reports the states of all workers.
    fn states(&self) {
        for (session_id, connection) in &self.workers {
            let state = pb::SendStateRequest {
                lb_id: self.lb.clone(),
                session_id: session_id.clone(),
                is_ready: true,
                fill_percent: 0.1,
                ..Default::default()
            };
            connection.send_state(state).unwrap();
        }
    }

    fn sync(&self, tick: u64) {
        for (source, sender) in self.senders.iter().enumerate() {
            let header = SyncHeader {
                source: source as u32,
                tick,
                ticks_per_second: 1_000_000,
                unix_nanos: tick * 1000,
            };
            sender.send_to(&header.encode(), self.sync_to).unwrap();
        }
    }

    fn send(&self, tick: u64) {
        for (n, sender) in self.senders.iter().enumerate() {
            let select = Select::V2 { entropy: n as u16 };
            let header = LbHeader { select, protocol: LbHeader::REASSEMBLY, tick: tick + n as u64 };
            sender.send_to(&header.encode(), (self.to, DATA_PORT)).unwrap();
        }
    }

    fn run(&self, ends: &AtomicBool, states: &AtomicU64) {
        let begin = Instant::now();
        for round in 0_u64.. {
            if ends.load(Relaxed) {
                return;
            }
            let tick = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
            if round % SYNCS == 0 {
                self.sync(tick);
            }
            self.send(tick);
            self.states();
            states.fetch_add(WORKERS.into(), Relaxed);
            sleep((ROUND * (round as u32 + 1)).saturating_sub(begin.elapsed()));
        }
    }
}

#[test]
fn a_full_site_uses_no_more_threads_files_and_memory_as_time_goes_by() {
    let is_long = std::env::var_os("NAA_LONG").is_some();
    let (settles, runs, pause) = if is_long { (60, 600, 10) } else { (3, 4, 1) };
    let (settles, runs, pause) =
        (Duration::from_secs(settles), Duration::from_secs(runs), Duration::from_secs(pause));
    let folder = TempFolder::new("lb-full-site");
    let daemon = start(&folder);
    let token = fs::read_to_string(folder.file("state/admin-token")).unwrap();
    let connect = || {
        let trust = Trust { token: Some(Token(token.trim().into())), ..Trust::default() };
        Connection::open(&EjfatUri::new(load_balancer(0).to_string(), 19_523), &trust).unwrap()
    };
    let (ends, states) = (AtomicBool::new(false), AtomicU64::new(0));
    let registered = Barrier::new(usize::from(LOAD_BALANCERS) + 1);
    scope(|scope| {
        for n in 0..LOAD_BALANCERS {
            let (connect, registered, ends, states) = (&connect, &registered, &ends, &states);
            scope.spawn(move || {
                let users = WorkersAndSenders::register(n, &connect());
                registered.wait();
                users.run(ends, states);
            });
        }
        registered.wait();
        sleep(settles);
        let (first, begin, sent) = (Usage::of(daemon.child.id()), Instant::now(), states.load(Relaxed));
        let mut last = first;
        while begin.elapsed() < runs {
            sleep(pause);
            last = Usage::of(daemon.child.id());
            println!("{:4} s: {last:?}", begin.elapsed().as_secs());
            assert_eq!(last.threads, first.threads, "{first:?}");
            assert_eq!(last.files, first.files, "{first:?}");
            let most = u64::from(WORKERS) * u64::from(LOAD_BALANCERS) * SERIES + SLACK;
            assert!(last.memory < first.memory + most, "{first:?}, {last:?}");
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{:.0} states a second, {:.1} % of a core, {} KiB in the beginning, {} KiB at the end",
            (states.load(Relaxed) - sent) as f64 / seconds,
            (last.cpu - first.cpu) / seconds * 100.0,
            first.memory >> 10,
            last.memory >> 10
        );
        let overview = connect().overview().unwrap().load_balancers;
        assert_eq!(overview.len(), usize::from(LOAD_BALANCERS));
        for of in overview {
            let workers = of.status.unwrap().workers;
            assert_eq!(workers.len(), usize::from(WORKERS));
            assert!(workers.iter().all(|worker| worker.slots_assigned > 0), "{workers:?}");
        }
        ends.store(true, Relaxed);
    });
}
