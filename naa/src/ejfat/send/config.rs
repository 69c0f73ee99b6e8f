//! Settings from the command line, otherwise from an INI file, otherwise defaults.

use std::{net::SocketAddr, time::Duration};

use ejfat_udp::SenderConfig;

use super::{Args, version};
use crate::ejfat::ini::{Ini, Role, flag, number};

const GENERAL: &str = "general";
const CONTROL: &str = "control-plane";
const DATA: &str = "data-plane";

pub(super) struct SendConfig {
    /// The settings of the sender. Its destination and its data id are never taken from the file.
    pub(super) sender: SenderConfig,
    pub(super) use_cp: Option<bool>,
    pub(super) warm_up: Duration,
    pub(super) sync_period: Duration,
    pub(super) v6: bool,
    pub(super) first: u64,
}

impl SendConfig {
    pub(super) fn of(args: &Args) -> anyhow::Result<Self> {
        let ini = Ini::read(args.ini.as_deref(), Role::Sender)?;
        // All keys of the file are checked, even those that the command line overrides.
        let use_cp = ini.get(GENERAL, "useCP", flag)?;
        let warm_up = ini.get(CONTROL, "warmUpMS", number(0..=3_600_000))?;
        let sync_period = ini.get(CONTROL, "syncPeriodMS", number(1..=10_000))?;
        let v6 = ini.get(DATA, "dpV6", flag)?;
        let ticks = ini.get(DATA, "ticksAsREEventNum", flag)?;
        let mtu = ini.get(DATA, "mtu", number(576..=u16::MAX))?;
        let sockets = ini.get(DATA, "numSendSockets", number(1..=128))?;
        let buffer = ini.get(DATA, "sndSocketBufSize", number(1..=u32::MAX))?;
        let rate = ini.get(DATA, "rateGbps", rate)?;
        let lb_version = ini.get(DATA, "lbHdrVersion", version)?;
        let usual = SenderConfig::new(SocketAddr::from(([0; 4], 0)));
        let rate = args.rate.or(rate).unwrap_or(1.0);
        let sender = SenderConfig {
            mtu: args.mtu.or(mtu).unwrap_or(usual.mtu),
            version: args.lb_version.or(lb_version).unwrap_or(usual.version),
            sockets: args.sockets.or(sockets).map_or(usual.sockets, usize::from),
            buffer: args.buffer.or(buffer).map(|bytes| bytes as usize),
            rate: (rate > 0.0).then_some(rate * 1e9),
            // A number on the command line overrides the file's setting for ticks.
            ticks_as_events: args.ticks_as_events.or(ticks.filter(|_| args.first.is_none())).unwrap_or(false),
            ..usual
        };
        Ok(Self {
            sender,
            use_cp,
            warm_up: Duration::from_millis(args.warm_up.or(warm_up).unwrap_or(1000)),
            sync_period: Duration::from_millis(args.sync_period.or(sync_period).unwrap_or(1000)),
            v6: args.v6.or(v6).unwrap_or(false),
            first: args.first.unwrap_or(0),
        })
    }
}

/// Reads a rate as E2SAR does: 0 and less means as fast as possible.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate <= 1e6);
    rate.map(|rate| rate.max(0.0)).ok_or_else(|| "write Gbit/s, or -1 for as fast as it goes".into())
}
