//! Settings from the command line, otherwise from an INI file, otherwise defaults.

use std::time::Duration;

use ejfat::{
    listen::PortChoice,
    reassembly::{Config, Numbering},
};
use ejfat_udp::ReceiverConfig;

use super::Args;
use crate::ejfat::{
    ini::{Ini, Role, flag, number},
    site::OfIni,
    values::{check_max_event, listen, seed},
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

/// Returns the settings of the receiver, and what the INI file says of the control plane.
///
/// # Errors
/// If an option, the INI file or the URI is wrong.
pub(super) fn config(args: &Args) -> anyhow::Result<(ReceiverConfig, OfIni)> {
    check_max_event(args.max_event, args.memory)?;
    let ini = Ini::read(args.ini.as_deref(), Role::Worker)?;
    let of_ini = site(&ini)?;
    // All keys of the file are checked, even those that the command line overrides.
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
    let listen = listen(&[at], ports)?;
    let buffer = Some(args.buffer.or(buffer).unwrap_or(3 << 20) as usize);
    let config = ReceiverConfig { listen: listen.concat(), buffer, reassembly };
    Ok((config, of_ini))
}

/// The ports that E2SAR's exponent stands for. The exponent -1 means as many ports as threads.
fn ports(exponent: i8) -> Option<PortChoice> {
    let ports = u32::try_from(exponent).ok().and_then(|exponent| 1_u16.checked_shl(exponent));
    ports.map(PortChoice::Count)
}
