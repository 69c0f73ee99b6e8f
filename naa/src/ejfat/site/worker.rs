//! Workers of a reservation.

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    sync::{Arc, Once},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use ejfat::{
    listen::PortChoice,
    uri::{EjfatUri, VARIABLE},
};
use ejfat_bridge::Load;
use ejfat_client::{
    ClientError, Departure, PortRange, Registration, Standing, Targets, Totals, WorkerState, source_towards,
};
use ejfat_udp::Gauge;
use serde_json::json;

use super::{ControlPlane, explained, ports, reservation};
use crate::{Usage, ejfat::values::wanted_seconds, kernel_process::raise_file_limit, show, signals};

/// The options of a program that is a worker of a reservation.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "worker_options")]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    control_plane: ControlPlane,
    /// The address to which the load balancer sends segments for this worker [default: the address that it listens to; if it listens
    /// to all addresses, the one from which this machine sends to the load balancer]
    #[arg(long, value_name = "ADDR")]
    address: Option<IpAddr>,
    /// The name of this worker at the control plane [default: the name of this machine]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The share of events of this worker until its capacity is known, in proportion to the weights of the other workers whose
    /// capacity is not known, up to 1000000 [default: 1]
    #[arg(long, value_name = "WEIGHT", value_parser = weight, allow_negative_numbers = true)]
    weight: Option<f32>,
    /// The least share of this worker, as a factor of an even share; 0 is no bound [default: 0]
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    min_factor: Option<f32>,
    /// The greatest share of this worker, as a factor of an even share; 0 is no bound [default: 0]
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    max_factor: Option<f32>,
    /// Milliseconds from one state that this worker reports to the next [default: 100]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=1000))]
    state_period: Option<u64>,
    /// The most seconds that this worker waits at its end until the load balancer sends nothing to it any more. Another Ctrl-C or
    /// SIGTERM, if it comes a second or more after the first one, ends it at once: it deregisters if the control plane answers within
    /// half a second, and may lose events
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    drain: f64,
    /// Seconds for which this worker tries again at its start while the control plane cannot be reached; 0: it tries once
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    wait_control_plane: f64,
}

/// The greatest weight that a control plane takes.
const MOST_WEIGHT: f32 = 1e6;
/// The time between two tries to reach a control plane that is not there at the start.
const RETRY: Duration = Duration::from_millis(500);
/// The time for which a worker goes on receiving after its reservation ended, for what is on its way.
const LATE: Duration = Duration::from_secs(1);
/// The time that a worker has to deregister when a second signal ends it.
const SUDDEN: Duration = Duration::from_millis(500);
/// How often other ports are tried if some of those that were chosen are not free.
const TRIES: u32 = 64;

/// Returns the first of consecutive ports that are free now. A worker registers such ports, and those that the system chooses one by one
/// are not consecutive.
///
/// # Errors
/// If no such ports are found in all tries, or if the system refuses a port although it is free.
fn first_free(ip: IpAddr, ports: PortRange) -> anyhow::Result<u16> {
    // Each port is an open file.
    raise_file_limit();
    let more = ports.ports() - 1;
    for _ in 0..TRIES {
        let port = UdpSocket::bind((ip, 0)).and_then(|socket| socket.local_addr());
        let port =
            port.with_context(|| format!("cannot listen to {ip}; name another address by --listen"))?.port();
        let first = port.min(u16::MAX - more);
        let all: std::io::Result<Vec<_>> =
            (first..=first + more).map(|port| UdpSocket::bind((ip, port))).collect();
        match all {
            Ok(_) => return Ok(first),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => {
                let ports = ports.ports();
                return Err(error).with_context(|| {
                    format!(
                        "cannot listen to {ports} consecutive ports of {ip}, each of which takes an open file"
                    )
                });
            }
        }
    }
    anyhow::bail!(
        "no {} consecutive ports of {ip} were found free in {TRIES} tries; name them by --listen {ip} --ports A-B",
        ports.ports()
    )
}

fn weight(text: &str) -> Result<f32, String> {
    let weight = text.parse().ok().filter(|&weight: &f32| weight > 0.0 && weight <= MOST_WEIGHT);
    weight.ok_or_else(|| format!("write a number above 0 and up to {MOST_WEIGHT}, such as 1 or 2.5"))
}

fn factor(text: &str) -> Result<f32, String> {
    let factor = text.parse().ok().filter(|&factor: &f32| factor >= 0.0 && factor.is_finite());
    factor.ok_or_else(|| "write a number from 0 on, such as 0.5".into())
}

/// What an INI file says. The command line has precedence.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfIni {
    pub(crate) use_cp: Option<bool>,
    pub(crate) weight: Option<f32>,
    pub(crate) min_factor: Option<f32>,
    pub(crate) max_factor: Option<f32>,
    pub(crate) state_period: Option<u64>,
}

/// A reservation of which a program is to be a worker.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    uri: EjfatUri,
    lb: String,
    drain: Duration,
    wait: Duration,
}

impl WorkerArgs {
    /// Returns the reservation of which to be a worker, or `None` if there is no URI or no control plane is wanted.
    ///
    /// # Errors
    /// If an option or the URI is wrong, or the URI has no reservation or no token.
    pub(crate) fn wanted(&self, ini: &OfIni) -> anyhow::Result<Option<Wanted>> {
        let drain = wanted_seconds(self.drain, "--drain")?;
        let wait = wanted_seconds(self.wait_control_plane, "--wait-control-plane")?;
        if !self.control_plane.is_wanted(ini.use_cp) {
            return Ok(None);
        }
        let Some(uri) = self.control_plane.uri()? else { return Ok(None) };
        let lb = reservation(&uri)?;
        if uri.token.is_none() {
            return Err(Usage::error(format!(
                "the EJFAT URI (--uri or {VARIABLE}) has no token, as ejfat://TOKEN@host:port/lb/ID does, and workers need one; \
                 give --no-control-plane to receive without a control plane"
            )));
        }
        Ok(Some(Wanted { uri, lb, drain, wait }))
    }

    /// Returns where to listen without `--listen`, as this option would name it: at any port, at ports of a range, or from the first of
    /// consecutive free ports on, of the address from which this machine sends to the load balancer.
    ///
    /// # Errors
    /// If there is no URI or it is wrong, its host is unknown, there is no route, or no consecutive ports are free.
    pub(crate) fn own_listen(&self, ports: Option<PortChoice>) -> anyhow::Result<String> {
        let ip = self.own_address()?.ok_or_else(|| {
            Usage::error(format!(
                "name the address where segments come by --listen, or the load balancer by --uri or {VARIABLE}"
            ))
        })?;
        Ok(match ports {
            Some(PortChoice::Range { .. }) => ip.to_string(),
            Some(PortChoice::Count(count)) => {
                let ports =
                    PortRange::of(count).map_err(|error| Usage::error(format!("--ports: {error}")))?;
                SocketAddr::new(ip, first_free(ip, ports)?).to_string()
            }
            _ => SocketAddr::new(ip, 0).to_string(),
        })
    }

    /// Returns the address from which this machine sends to the load balancer of the URI, or to its control plane if the URI has no
    /// data address. Returns `None` if there is no URI.
    ///
    /// # Errors
    /// If the URI is wrong, its host is unknown, or there is no route.
    fn own_address(&self) -> anyhow::Result<Option<IpAddr>> {
        let Some(uri) = self.control_plane.uri()? else { return Ok(None) };
        let to = match uri.data(false) {
            Some(to) => to,
            None => *hosts(&uri, "--listen")?.first().context("the control plane has no address")?,
        };
        Ok(Some(source_towards(to)?))
    }

    /// Registers this program. `bound` are the addresses at which it receives segments; `state` is called for each report.
    ///
    /// # Errors
    /// If none of the addresses can be registered, the control plane cannot be reached or refuses, or a signal comes before it is
    /// reached.
    pub(crate) fn join(
        &self,
        wanted: Wanted,
        ini: &OfIni,
        bound: &[SocketAddr],
        state: impl Fn() -> WorkerState + Send + Sync + 'static,
    ) -> anyhow::Result<Joined> {
        let Wanted { uri, lb, drain, wait } = wanted;
        let connection = self.control_plane.connect(&uri)?;
        let ip = self.ip(&uri, bound)?;
        let no_port = || {
            format!(
                "this worker does not listen to {ip}, so no segment to it would arrive; name another --address, or listen to this one"
            )
        };
        let chosen = match ports::ports(bound, ip) {
            Some(chosen) => chosen,
            // A router may translate the address, but not the ports: then the bound ports are registered with the address of the option.
            None if self.address.is_some() => {
                let first = bound.first().with_context(no_port)?.ip();
                let chosen = ports::ports(bound, first).with_context(no_port)?;
                ports::Chosen { at: SocketAddr::new(ip, chosen.at.port()), ..chosen }
            }
            None => anyhow::bail!(no_port()),
        };
        let ports::Chosen { at, ports, left_out } = chosen;
        if left_out > 0 {
            let last = at.port() + (ports.ports() - 1);
            tracing::warn!(
                "the load balancer sends to ports {} to {last} of {ip}, and not to {left_out} others, because a worker registers \
                 consecutive ports whose number is a power of two; choose such ports by --ports",
                at.port()
            );
        }
        let registration = Registration {
            weight: self.weight.or(ini.weight).unwrap_or(1.0),
            min_factor: self.min_factor.or(ini.min_factor).unwrap_or(0.0),
            max_factor: self.max_factor.or(ini.max_factor).unwrap_or(0.0),
            ports,
            ..Registration::new(self.name.clone().unwrap_or_else(host), at)
        };
        let period = self.state_period.or(ini.state_period).unwrap_or(100);
        let period = Duration::from_millis(period);
        let state = Arc::new(state);
        let begin = Instant::now();
        let worker = loop {
            let state = state.clone();
            let state = move || state();
            match ejfat_client::Worker::register(&connection, &lb, registration.clone(), period, state) {
                Err(ClientError::Unreachable { .. } | ClientError::TooLate { .. })
                    if signals::is_ending() =>
                {
                    anyhow::bail!(
                        "this worker was interrupted before it reached the control plane at {}",
                        connection.address()
                    );
                }
                Err(ClientError::Unreachable { .. } | ClientError::TooLate { .. })
                    if begin.elapsed() < wait =>
                {
                    std::thread::sleep(RETRY);
                }
                worker => break worker.map_err(|error| explained(error, "receives"))?,
            }
        };
        let leaver = worker.leaver();
        signals::before_sudden_end(move || {
            leaver.leave(SUDDEN);
        });
        let session = worker.standing().session.unwrap_or_default();
        let control_plane = connection.address().to_owned();
        Ok(Joined {
            worker,
            lb,
            at,
            ports: ports.ports(),
            session,
            control_plane,
            drain,
            left: None,
            begun: false,
            gone: None,
        })
    }

    /// Returns the address to register.
    fn ip(&self, uri: &EjfatUri, bound: &[SocketAddr]) -> anyhow::Result<IpAddr> {
        if let Some(ip) = self.address {
            return Ok(ip);
        }
        let data = Targets::of(uri).data;
        let v6 = data.first().filter(|_| data.len() == 1).map(SocketAddr::is_ipv6);
        let only = || {
            let version = if v6 == Some(true) { "IPv6" } else { "IPv4" };
            format!(
                "the load balancer sends {version} only, and this worker does not listen to any such address; add one by --listen, or \
                 name one by --address"
            )
        };
        let ip = ports::address(bound, v6).with_context(only)?;
        if !ip.is_unspecified() {
            return Ok(ip);
        }
        let near = |to: &&SocketAddr| to.is_ipv4() == ip.is_ipv4();
        if let Some(&to) = data.iter().find(near) {
            return Ok(source_towards(to)?);
        }
        // Without a data address, the route to the control plane decides.
        let to = hosts(uri, "--address")?.into_iter().find(|at| near(&at));
        let to = to.context(
            "the control plane has no address of this IP version; name one of this worker by --address",
        )?;
        Ok(source_towards(to)?)
    }
}

/// Returns the addresses of a URI's host. `option` is what the command line may name instead.
fn hosts(uri: &EjfatUri, option: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let found = (uri.host.as_str(), uri.port).to_socket_addrs();
    let found = found.with_context(|| {
        format!(
            "cannot look up {}; correct the EJFAT URI, or name an address of this machine by {option}",
            uri.host
        )
    })?;
    Ok(found.collect())
}

/// Returns the name of this machine.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "worker".into() } else { name.trim().to_owned() }
}

/// A program that is registered as a worker. It deregisters when this is dropped.
#[derive(Debug)]
pub(crate) struct Joined {
    worker: ejfat_client::Worker,
    lb: String,
    at: SocketAddr,
    ports: u16,
    session: String,
    control_plane: String,
    drain: Duration,
    /// How it left, if it has left.
    left: Option<Departure>,
    /// Whether it has begun to drain.
    begun: bool,
    /// When it was seen that the reservation ended.
    gone: Option<Instant>,
}

impl Joined {
    /// Returns what it registered, as text.
    pub(crate) fn line(&self) -> String {
        let Self { lb, at, ports, session, control_plane, .. } = self;
        let ports =
            if *ports == 1 { String::new() } else { format!(", {}", show::count((*ports).into(), "port")) };
        format!("worker session {session} of reservation {lb} at {control_plane}, by {at}{ports}")
    }

    /// Returns what it registered, as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        let Self { lb, at, ports, session, control_plane, .. } = self;
        json!({"control_plane": control_plane, "reservation": lb, "session": session, "address": at, "ports": ports})
    }

    /// Returns how many states were accepted and how the worker left, as JSON.
    pub(crate) fn end_json(&self) -> serde_json::Value {
        let Standing { accepted, registered_again: again, .. } = self.worker.standing();
        let (drained, deregistered) = (self.left.map(|of| of.drained), self.left.map(|of| of.deregistered));
        json!({"states": accepted, "again": again, "drained": drained, "deregistered": deregistered})
    }

    /// Begins to drain at the first call, and returns whether the worker has left. Segments arrive until it has left, so the caller
    /// goes on receiving.
    pub(crate) fn has_left(&mut self) -> bool {
        if !std::mem::replace(&mut self.begun, true) {
            // Several workers of one process drain at the same time.
            static NOTED: Once = Once::new();
            if !self.drain.is_zero() && self.worker.gone().is_none() {
                NOTED.call_once(|| {
                    show::note(&format!(
                        "draining: the load balancer sends no new events in a moment; this takes {:?} at most; Ctrl-C again, a second \
                         or more after the first one, ends it at once and may lose events",
                        self.drain
                    ));
                });
            }
            self.worker.begin_drain(self.drain);
        }
        if self.left.is_none() {
            self.left = self.worker.departed();
            self.left.iter().for_each(|departure| self.report_departure(departure));
        }
        self.left.is_some()
    }

    /// Returns why this worker gets no events any more for good, as soon as what was on its way has had time to arrive.
    pub(crate) fn is_over(&mut self) -> Option<String> {
        let why = self.worker.gone()?;
        let since = *self.gone.get_or_insert_with(Instant::now);
        (since.elapsed() >= LATE).then(|| why.to_owned())
    }

    /// Returns why this worker gets no events any more for good, although some may still be on their way.
    pub(crate) fn ended(&self) -> Option<String> {
        self.worker.gone().map(str::to_owned)
    }

    /// Warns of a departure that was not complete.
    fn report_departure(&self, departure: &Departure) {
        let Self { control_plane, drain, .. } = self;
        if !departure.drained {
            tracing::warn!(
                "the load balancer may still send events to this worker after {drain:?}, and they are lost; give it more time by \
                 --drain SECONDS"
            );
        }
        if !departure.deregistered {
            tracing::warn!("the control plane at {control_plane} may not know yet that this worker left");
        }
    }

    /// Drains, and waits until the worker has left. Another thread has to go on receiving.
    pub(crate) fn leave(&mut self) {
        while !self.has_left() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the state of a worker from the counters of its receiver.
pub(crate) fn state(gauge: &Gauge) -> WorkerState {
    let reading = gauge.read();
    let totals = Totals {
        events: reading.opened,
        reassembled: reading.complete,
        incomplete: reading.incomplete,
        dequeued: reading.delivered,
        overflowed: 0,
        bytes: reading.bytes,
        packets: reading.segments,
    };
    WorkerState { fill: reading.fill, totals, ..WorkerState::default() }
}

/// Returns the state of a bridge from its load. A bridge without workers is not ready.
pub(crate) fn bridge_state(load: &Load) -> WorkerState {
    let totals = Totals {
        events: load.events,
        reassembled: load.reassembled,
        incomplete: load.reassembly_errors,
        dequeued: load.dequeued,
        overflowed: load.enqueue_errors,
        bytes: load.bytes,
        packets: load.packets,
    };
    WorkerState { fill: load.fill, is_ready: load.workers > 0, totals, ..WorkerState::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_the_first_free_port_on_there_are_as_many_as_are_wanted() {
        for count in [1, 2, 4, 64] {
            let ports = PortRange::of(count).unwrap();
            let first = first_free(IpAddr::from([127, 0, 71, 90]), ports).unwrap();
            assert!(first > 0 && u32::from(first) + u32::from(count) <= 1 << 16, "{first}, {count}");
        }
    }
}
