//! A control plane with its own state folder, and a client of it.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

use ejfat_cp::{Daemon, settings::Settings};
use proto::loadbalancer::{self as pb, load_balancer_client::LoadBalancerClient};
use tonic::{Request, Status, transport::Channel};

/// A temporary folder that is deleted when this is dropped.
pub(crate) struct TempFolder(pub(crate) PathBuf);

impl TempFolder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("naa-cp-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Settings with one load balancer. All sockets are at `ip`.
pub(crate) fn settings(ip: &str) -> Settings {
    Settings::parse(&format!(
        "listen: ['{ip}:19523']\nload_balancers: [{{ipv4: {ip}}}]\nworkers: {{loopback: true}}"
    ))
    .unwrap()
}

pub(crate) fn start(settings: &Settings, state: &Path) -> Daemon {
    Daemon::start(settings, state, 7).unwrap_or_else(|why| panic!("{why}"))
}

/// A client that shows a token with its calls.
pub(crate) struct Client {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) stub: LoadBalancerClient<Channel>,
    pub(crate) token: String,
}

impl Client {
    pub(crate) fn connect(at: SocketAddr, token: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Channel::from_shared(format!("http://{at}")).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Self { runtime, stub: LoadBalancerClient::new(channel), token: token.to_owned() }
    }

    pub(crate) fn admin(daemon: &Daemon) -> Self {
        let token = std::fs::read_to_string(daemon.token_file()).unwrap();
        Self::connect(daemon.addresses()[0], token.trim())
    }

    pub(crate) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.token).parse().unwrap());
        request
    }

    pub(crate) fn reserve(&mut self, senders: &[&str]) -> pb::ReserveLoadBalancerReply {
        let request = self.request(pb::ReserveLoadBalancerRequest {
            name: "run".into(),
            sender_addresses: senders.iter().map(ToString::to_string).collect(),
            ..Default::default()
        });
        self.runtime.block_on(self.stub.reserve_load_balancer(request)).unwrap().into_inner()
    }

    pub(crate) fn register(&mut self, lb_id: &str, at: SocketAddr) -> Result<pb::RegisterReply, Status> {
        let request = self.request(pb::RegisterRequest {
            lb_id: lb_id.into(),
            name: format!("worker-{}", at.port()),
            weight: 1.0,
            ip_address: at.ip().to_string(),
            udp_port: at.port().into(),
            ..Default::default()
        });
        self.runtime.block_on(self.stub.register(request)).map(tonic::Response::into_inner)
    }

    pub(crate) fn state(&mut self, session: &str, token: &str, fill: f32) -> Result<(), Status> {
        let mut request = Request::new(pb::SendStateRequest {
            session_id: session.into(),
            fill_percent: fill,
            is_ready: true,
            ..Default::default()
        });
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        self.runtime.block_on(self.stub.send_state(request)).map(drop)
    }

    pub(crate) fn status(&mut self, lb_id: &str) -> Result<pb::LoadBalancerStatusReply, Status> {
        let request = self.request(pb::LoadBalancerStatusRequest { lb_id: lb_id.into() });
        self.runtime.block_on(self.stub.load_balancer_status(request)).map(tonic::Response::into_inner)
    }
}

/// Waits until `holds` returns true. Panics after ten seconds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}: not within ten seconds");
        std::thread::sleep(Duration::from_millis(20));
    }
}
