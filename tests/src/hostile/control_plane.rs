//! One attacker against `naa lb serve`, while a worker sends its state.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Duration,
};

use proto::loadbalancer::{self as pb, load_balancer_client::LoadBalancerClient};
use tonic::transport::Channel;

use super::{
    attacker::Kind,
    bystander::{Bystander, Peer},
    case::{Alone, Case, Observation, Text},
    control_attackers::{Known, connect, runtime, state, with_token},
    ejfat::EjfatEnvironment,
    fairness::compare,
    fairness_program::Program,
    resources_process::TempFolder,
};

const SYNC_PORT: u16 = 19_531;
const SERVED: &str = "the worker is served";

const fn case(name: Text, sent: Text, run: Alone) -> Case {
    Case::fairness(name, sent, SERVED, run)
}

pub(super) const CASES: &[Case] = &[
    case("guessed tokens", "calls of one address with unknown tokens, as fast as they are refused", |env| {
        attack(env, Kind::Guesses, "")
    }),
    case("idle seats", "200 connections of one address that send nothing, at 64 seats", |env| {
        attack(env, Kind::IdleConnections, "limits: {connections: 64}\n")
    })
    .long(),
    case("replies not read", "Timeseries of all series over and over, with a window of 1 byte", |env| {
        attack(env, Kind::SlowReaders, "")
    }),
    case("states of one worker", "SendState of one session, as fast as it is answered", |env| {
        attack(env, Kind::States, "")
    }),
    case(
        "flood of syncs",
        "malformed datagrams, syncs of a stranger, 100 000 a second of a registered sender",
        |env| attack(env, Kind::Syncs, ""),
    ),
    case("streams of strangers", "2048 Watch calls of the health service without a token", |env| {
        attack(env, Kind::Watches, "")
    }),
    case("long requests", "SetSlotDemands of 1 MB, by a stranger and by the holder of a token", |env| {
        attack(env, Kind::LargeRequests, "")
    }),
    case(
        "workers of one token",
        "Register over and over with one token, at a control plane with room for 1024 workers",
        |env| attack(env, Kind::Registrations, ""),
    )
    .growth(96),
    case("long selectors", "Timeseries with 10 000 selectors, and with selectors of 100 kB", |env| {
        attack(env, Kind::LongSeries, "")
    })
    .long(),
];

/// The bystander: a worker that sends its state.
struct Worker {
    runtime: tokio::runtime::Runtime,
    client: LoadBalancerClient<Channel>,
    session: pb::RegisterReply,
}

impl Worker {
    fn connect(local: IpAddr, grpc: SocketAddr, session: pb::RegisterReply) -> Result<Self, String> {
        let runtime = runtime()?;
        let client = LoadBalancerClient::new(runtime.block_on(connect(local, grpc))?);
        Ok(Self { runtime, client, session })
    }
}

impl Peer for Worker {
    fn round(&mut self, n: u64) -> Result<(), String> {
        let request = with_token(state(&self.session.session_id, 0.25), &self.session.token);
        let told = self.runtime.block_on(self.client.send_state(request));
        told.map(drop).map_err(|why| format!("state {n}: {why}"))
    }
}

/// An operator, who has the admin token.
struct Operator {
    runtime: tokio::runtime::Runtime,
    client: LoadBalancerClient<Channel>,
    token: String,
}

impl Operator {
    fn connect(local: IpAddr, grpc: SocketAddr, token_file: &Path) -> Result<Self, String> {
        let token =
            std::fs::read_to_string(token_file).map_err(|e| format!("{}: {e}", token_file.display()))?;
        let runtime = runtime()?;
        let client = LoadBalancerClient::new(runtime.block_on(connect(local, grpc))?);
        Ok(Self { runtime, client, token: token.trim().to_owned() })
    }

    fn reserve(&mut self) -> Result<pb::ReserveLoadBalancerReply, String> {
        let request = with_token(pb::ReserveLoadBalancerRequest::default(), &self.token);
        let reserved = self.runtime.block_on(self.client.reserve_load_balancer(request));
        reserved.map(tonic::Response::into_inner).map_err(|e| e.to_string())
    }

    fn register(&mut self, lb_id: &str, at: IpAddr) -> Result<pb::RegisterReply, String> {
        let request = with_token(
            pb::RegisterRequest {
                lb_id: lb_id.to_owned(),
                name: "worker".into(),
                weight: 1.0,
                ip_address: at.to_string(),
                udp_port: 5000,
                ..Default::default()
            },
            &self.token,
        );
        let registered = self.runtime.block_on(self.client.register(request));
        registered.map(tonic::Response::into_inner).map_err(|e| e.to_string())
    }

    /// Checks that the bystander's reservation is served: its worker has the fill level that it sent, and all slots.
    fn look(&mut self, lb_id: &str) -> Result<(), String> {
        let request = with_token(pb::LoadBalancerStatusRequest { lb_id: lb_id.to_owned() }, &self.token);
        let status = self.runtime.block_on(self.client.load_balancer_status(request));
        let status = status.map_err(|e| format!("the status after the attack: {e}"))?.into_inner();
        let is_ready = status.workers.iter().any(|of| of.fill_percent == 0.25 && of.slots_assigned == 512);
        if is_ready { Ok(()) } else { Err(format!("the worker has not all slots: {:?}", status.workers)) }
    }
}

fn attack(env: &mut EjfatEnvironment, kind: Kind, more: &str) -> Result<Observation, String> {
    let folder = TempFolder::new("control")?;
    let [first, second, worker, operator] = [(); 4].map(|()| env.address(false));
    let version = if first.is_ipv4() { "ipv4" } else { "ipv6" };
    let config = format!(
        "listen: ['{}']\nload_balancers:\n- {{{version}: '{first}', sync_port: {SYNC_PORT}}}\n\
         - {{{version}: '{second}', sync_port: {}}}\nworkers: {{loopback: true}}\n{more}",
        SocketAddr::new(first, 0),
        SYNC_PORT + 1
    );
    let file = folder.0.join("site.yaml");
    std::fs::write(&file, config).map_err(|e| format!("{}: {e}", file.display()))?;
    let (file, folder_text) = (file.display().to_string(), folder.0.display().to_string());
    let args = ["lb", "serve", "--json", "--config", &file, "--state", &folder_text];
    let mut victim = Program::start("true", &args)?;
    let grpc = victim.at("addresses")?;
    let mut admin = Operator::connect(operator, grpc, &folder.0.join("admin-token"))?;
    let own = admin.reserve()?;
    let session = admin.register(&own.lb_id, worker)?;
    let theirs = admin.reserve()?;
    let attackers = admin.register(&theirs.lb_id, operator)?;
    let known = Known {
        grpc,
        sync: SocketAddr::new(first, SYNC_PORT + 1),
        lb: theirs.lb_id,
        token: theirs.token,
        session: attackers.session_id,
    };
    let bystander =
        Bystander::start("sends its state", move || Worker::connect(worker, grpc, session.clone()));
    let check = |_: &mut Program, _: &str| {
        // A new connection, because the control plane may have closed the idle one.
        let mut admin = Operator::connect(operator, grpc, &folder.0.join("admin-token"))?;
        std::thread::sleep(Duration::from_millis(300));
        admin.look(&own.lb_id)?;
        Ok(SERVED.to_owned())
    };
    // An attacker of kind `IdleConnections` connects to each of its targets.
    let targets = if kind == Kind::IdleConnections { vec![grpc.to_string()] } else { known.targets() };
    compare(env, &mut victim, &bystander, (kind, &targets), |_, _| Ok(()), check)
}
