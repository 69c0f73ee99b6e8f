//! A site on loopback addresses: a control plane and its data planes.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
};

use anyhow::{Context as _, ensure};
use ejfat::lb::LbId;
use naa_provider::ProviderChoice;
use serde_json::{Value, json};

use super::{
    nodes::{kill, now, start_ready},
    tables::{Recorder, TableHistory},
};
use crate::{demo::nodes::Process, provider::own_address};

/// A reserved load balancer.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub(super) uri: String,
    pub(super) lb: LbId,
    /// The index of the data plane that its packets go through.
    pub(super) plane: usize,
}

/// A process of `naa lb forward`, and a recorder of its tables.
#[derive(Debug)]
struct Forwarder {
    listen: SocketAddr,
    grpc: SocketAddr,
    process: Process,
    recorder: Recorder,
}

impl Forwarder {
    fn start(listen: SocketAddr, grpc: SocketAddr) -> anyhow::Result<Self> {
        let (at, control) = (listen.to_string(), grpc.to_string());
        let words = ["lb", "forward", "--json", "--until-eof", "--buffer", "4M", "--listen", &at, "--grpc"];
        let (process, _) = start_ready("data plane", &[&words[..], &[&control]].concat(), None)?;
        Ok(Self { listen, grpc, process, recorder: Recorder::start(grpc)? })
    }
}

#[derive(Debug)]
pub(super) struct Site {
    folder: PathBuf,
    at: SocketAddr,
    daemon: Process,
    planes: Vec<Forwarder>,
}

/// An address whose UDP port is free at this moment.
fn free_udp(ip: IpAddr) -> anyhow::Result<SocketAddr> {
    Ok(UdpSocket::bind((ip, 0))?.local_addr()?)
}

/// An address whose TCP port is free at this moment.
fn free_tcp(ip: IpAddr) -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((ip, 0))?.local_addr()?)
}

/// A loopback address for one process: an IPv4 address of its own, or ::1.
pub(super) fn own(v6: bool) -> anyhow::Result<IpAddr> {
    if v6 { Ok(Ipv6Addr::LOCALHOST.into()) } else { own_address(ProviderChoice::Embedded) }
}

/// A folder in memory if there is one, else the one for temporary files: on a slow disk the control plane would lose at a kill
/// what it was about to store.
fn fast_folder() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let may_write = rustix::fs::access(&memory, rustix::fs::Access::WRITE_OK).is_ok();
    if may_write { memory } else { std::env::temp_dir() }
}

impl Site {
    /// Starts a control plane with one load balancer and one data plane for each item of `v6`: over IPv6 if it is true.
    pub(super) fn start(v6: &[bool]) -> anyhow::Result<Self> {
        let ip = own(false)?;
        let folder = fast_folder().join(format!("naa-demo-lb-{}", std::process::id()));
        // Others must not put files into it, nor read the admin token.
        let made = fs::DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make {}; remove it if it is left over", folder.display()))?;
        let plane = |&v6: &bool| Forwarder::start(free_udp(own(v6)?)?, free_tcp(ip)?);
        let planes = v6.iter().map(plane).collect::<anyhow::Result<Vec<_>>>()?;
        let lb = |plane: &Forwarder| -> anyhow::Result<Value> {
            let listen = plane.listen;
            let family = if listen.is_ipv6() { "ipv6" } else { "ipv4" };
            let ports = format!("{0}-{0}", listen.port());
            Ok(json!({ family: listen.ip(), "ports": ports, "sync_port": free_udp(ip)?.port() }))
        };
        let at = free_tcp(ip)?;
        // The file is YAML, of which JSON is a part.
        let settings = json!({
            "listen": [at],
            "load_balancers": planes.iter().map(lb).collect::<anyhow::Result<Vec<_>>>()?,
            "planes": planes.iter().map(|of| json!({"kind": "naa", "address": of.grpc.to_string()})).collect::<Vec<_>>(),
        });
        fs::write(folder.join("site.yaml"), settings.to_string())
            .context("cannot write the configuration")?;
        let daemon = serve(&folder)?;
        Ok(Self { folder, at, daemon, planes })
    }

    pub(super) fn name(&self) -> String {
        let planes: Vec<_> = self.planes.iter().map(|of| of.listen.to_string()).collect();
        format!("control plane at {}, data plane at {}", self.at, planes.join(" and at "))
    }

    /// Makes a reservation whose packets go through this data plane.
    pub(super) fn reserve(&self, plane: usize) -> anyhow::Result<Reservation> {
        let token = fs::read_to_string(self.folder.join("admin-token"))
            .context("cannot read the control plane's admin token")?;
        let admin = format!("ejfat://{}@{}/", token.trim(), self.at);
        let (family, sender) =
            if self.planes[plane].listen.is_ipv6() { ("v6", "::1") } else { ("v4", "127.0.0.1") };
        // The address is a sender for the whole time: both senders use it, so neither may remove it when it ends.
        let words = ["lb", "reserve", "demo", "--json", "--family", family, "--sender", sender];
        let (mut process, reserved) = start_ready("reservation", &words, Some(&admin))?;
        process.wait()?;
        let uri = reserved["uri"].as_str().with_context(|| format!("`naa lb reserve` printed {reserved}"))?;
        let lb = reserved["fpga_lb"].as_u64().and_then(|lb| LbId::new(u8::try_from(lb).ok()?).ok());
        let lb = lb.with_context(|| format!("`naa lb reserve` printed {reserved}"))?;
        Ok(Reservation { uri: uri.to_owned(), lb, plane })
    }

    /// The tables that a data plane had since it was started last.
    pub(super) fn tables(&self, plane: usize) -> TableHistory {
        self.planes[plane].recorder.history()
    }

    /// Packets of a reservation's load balancer that its data plane dropped since it was started last, by cause.
    pub(super) fn drops(&self, of: &Reservation) -> anyhow::Result<BTreeMap<String, u64>> {
        self.planes[of.plane].recorder.drops(of.lb)
    }

    /// Kills the control plane. Returns the tick at which it was dead.
    pub(super) fn kill_daemon(&mut self) -> anyhow::Result<u64> {
        kill(&mut self.daemon)
    }

    /// Starts the control plane again after it was killed. Returns the tick at which it was ready.
    pub(super) fn start_daemon(&mut self) -> anyhow::Result<u64> {
        self.daemon = serve(&self.folder)?;
        Ok(now())
    }

    /// Kills a data plane. Returns the tick at which it was dead.
    pub(super) fn kill_plane(&mut self, plane: usize) -> anyhow::Result<u64> {
        kill(&mut self.planes[plane].process)
    }

    /// Starts a data plane again that was killed; it has no tables then. Returns the tick at which it was ready, and the tables
    /// that it had before.
    pub(super) fn start_plane(&mut self, plane: usize) -> anyhow::Result<(u64, TableHistory)> {
        let of = &mut self.planes[plane];
        let before = of.recorder.history();
        *of = Forwarder::start(of.listen, of.grpc)?;
        Ok((now(), before))
    }

    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.daemon.wait()?;
        self.planes.iter_mut().try_for_each(|plane| plane.process.wait())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // What cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn serve(folder: &std::path::Path) -> anyhow::Result<Process> {
    let path = |of: &std::path::Path| {
        of.to_str().map(str::to_owned).context("the folder for temporary files has a name that is no text")
    };
    let (state, config) = (path(folder)?, path(&folder.join("site.yaml"))?);
    let words = ["lb", "serve", "--json", "--until-eof", "--state", &state, "--config", &config];
    let (process, ready) = start_ready("control plane", &words, None)?;
    ensure!(ready["event"] == "ready", "the control plane said {ready}");
    Ok(process)
}
