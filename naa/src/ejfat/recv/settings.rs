//! What the command line says, or else an INI file, or else what is usual.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::bail;
use ejfat::{
    listen::{Listen, PortChoice},
    reassembly::{Config, Numbering},
};
use ejfat_client::PortRange;
use ejfat_udp::{Error, Receiver, ReceiverConfig};

use super::Args;
use crate::{
    Usage,
    ejfat::{
        ini::{Ini, Role, flag, number},
        site::OfIni,
        values::{ip_and_port, listen, seed},
    },
    show,
};

const DATA: &str = "data-plane";
const PID: &str = "pid";

/// Returns what the INI file says of the control plane.
fn site(ini: &Ini) -> anyhow::Result<OfIni> {
    let factor = || number(0.0..=1e6_f32);
    Ok(OfIni {
        use_cp: ini.get("general", "useCP", flag)?,
        weight: ini.get(PID, "weight", number(1e-6..=1e6))?,
        min_factor: ini.get(PID, "min_factor", factor())?,
        max_factor: ini.get(PID, "max_factor", factor())?,
        state_period: ini.get(DATA, "periodMS", number(10..=1000))?,
    })
}

/// What the command line and the INI file say.
pub(super) struct Chosen {
    pub(super) config: ReceiverConfig,
    /// Consecutive ports that [`open`] chooses, if the configuration names none.
    pub(super) block: Option<(IpAddr, PortRange)>,
    pub(super) of_ini: OfIni,
}

/// Binds the ports. Those of a block are looked for: each try takes others.
///
/// # Errors
/// If a port cannot be bound, or no try found a block that is free.
pub(super) fn open(config: ReceiverConfig, block: Option<(IpAddr, PortRange)>) -> anyhow::Result<Receiver> {
    /// Ports below are often those of well-known services.
    const FIRST: u16 = 16_384;
    const TRIES: u64 = 64;
    let Some((ip, ports)) = block else { return Ok(Receiver::new(config)?) };
    let ports = ports.ports();
    let starts = u64::from(u16::MAX - FIRST - (ports - 1)) + 1;
    for attempt in 0..TRIES {
        let first = FIRST + (seed().wrapping_add(attempt) % starts) as u16;
        let listen = (first..=first + (ports - 1)).map(|port| Listen::Port(SocketAddr::new(ip, port)));
        match Receiver::new(ReceiverConfig { listen: listen.collect(), ..config.clone() }) {
            Err(Error::Busy { .. }) => {}
            receiver => return Ok(receiver?),
        }
    }
    bail!(
        "no {ports} consecutive ports of {ip} were found free in {TRIES} tries; name them by --listen {ip} --ports A-B"
    )
}

/// Returns the settings of the receiver, and what the INI file says of the control plane.
///
/// # Errors
/// If an option, the INI file or the URI is wrong.
pub(super) fn config(args: &Args) -> anyhow::Result<Chosen> {
    if u64::from(args.max_event) > args.memory {
        let [event, memory] = [u64::from(args.max_event), args.memory].map(show::bytes);
        return Err(Usage::error(format!(
            "--max-event, {event} (64 MiB unless told), is more than --memory, {memory} (1 GiB unless told): such an event could never \
             be complete; lower --max-event or raise --memory"
        )));
    }
    let ini = Ini::read(args.ini.as_deref(), Role::Worker)?;
    let of_ini = site(&ini)?;
    // All of the file is looked at, whatever the command line says.
    let ports = ini.get(DATA, "portRange", number(-1..=14))?.and_then(ports);
    let timeout = ini.get(DATA, "eventTimeoutMS", number(1..=3_600_000))?;
    let buffer = ini.get(DATA, "rcvSocketBufSize", number(1..=u32::MAX))?;
    let reassembly = Config {
        max_event: args.max_event,
        memory: args.memory,
        timeout: Duration::from_millis(args.timeout.or(timeout).unwrap_or(500)),
        numbering: if args.consecutive { Numbering::Consecutive } else { Numbering::Sparse },
        seed: seed(),
        ..Config::default()
    };
    // A complete event is released at once, so one slot for it is enough.
    let reassembly = args.limits.apply(reassembly, 1);
    let ports = args.ports.or(ports);
    let at = match &args.listen {
        Some(at) => at.clone(),
        None => args.site.own_listen(ports)?,
    };
    let block = match ports {
        Some(PortChoice::Count(count)) if args.listen.is_none() => {
            let range = PortRange::of(count).map_err(|error| Usage::error(format!("--ports: {error}")))?;
            Some((ip_and_port(&at)?.0, range))
        }
        _ => None,
    };
    let listen = listen(&[at], ports)?;
    let buffer = Some(args.buffer.or(buffer).unwrap_or(3 << 20) as usize);
    let config = ReceiverConfig { listen: listen.concat(), buffer, reassembly };
    Ok(Chosen { config, block, of_ini })
}

/// E2SAR's exponent; -1: as many as there are threads.
fn ports(exponent: i8) -> Option<PortChoice> {
    let ports = u32::try_from(exponent).ok().and_then(|exponent| 1_u16.checked_shl(exponent));
    ports.map(PortChoice::Count)
}
