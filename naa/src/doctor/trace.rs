//! `naa doctor --trace` runs a server, and prints the packets that its device refuses.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use naa_host::Choice;
use naa_provider::{RefusedPacket, Trace};
use naa_server::{Config, Server, functions};

use crate::{show, signals};

/// The time between two looks at the trace.
const PERIOD: Duration = Duration::from_millis(100);
/// The most packets that are printed per period. A peer decides how many packets are refused.
const LINES: usize = 20;

/// Runs the server for `time`, or until Ctrl-C.
pub(super) fn run(address: IpAddr, time: Option<Duration>, json: bool) -> anyhow::Result<()> {
    let trace = Trace::default();
    let mut config = Config::new(SocketAddr::new(address, 0));
    config.provider = Some(Choice::Embedded);
    config.device.trace = Some(trace.clone());
    let server = Server::start(config, functions::registry([])?)?;
    signals::on_terminate(|| {})?;
    let at = server.address();
    show::note(&format!(
        "a server listens on {at}; call it, for example with `naa ping --server {at}`. Each packet that it refuses \
         becomes a line."
    ));
    let end = time.map(|time| Instant::now() + time);
    let mut counts = BTreeMap::<&'static str, u64>::new();
    while !signals::is_told() && end.is_none_or(|end| Instant::now() < end) {
        thread::sleep(PERIOD);
        let taken = trace.take();
        for packet in &taken.packets {
            *counts.entry(packet.cause.name()).or_default() += 1;
        }
        for packet in taken.packets.iter().take(LINES) {
            show::line(&if json { object(packet) } else { text(packet) })?;
        }
        let more = taken.packets.len().saturating_sub(LINES) as u64 + taken.missed;
        if more > 0 {
            *counts.entry("not recorded").or_default() += taken.missed;
            show::note(&format!("{more} more packets were refused at this time"));
        }
    }
    server.shutdown(Duration::from_secs(1));
    let counts: Vec<_> = counts.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    let found = if counts.is_empty() { "none".into() } else { counts.join(", ") };
    show::note(&format!("refused packets: {found}"));
    Ok(())
}

fn text(packet: &RefusedPacket) -> String {
    let mut text = format!("{:9.3} s  {}", packet.at.as_secs_f64(), packet.from);
    if let Some(header) = packet.header {
        text += &format!("  {} QP {:#08x} PSN {}", header.operation(), header.dest_qp, header.psn);
        if let Some(remote) = header.remote {
            text +=
                &format!(" RKey {:#010x} address {:#x} length {}", remote.rkey, remote.addr, remote.length);
        }
    }
    format!("{text}: {} ({})", packet.cause, packet.cause.name())
}

fn object(packet: &RefusedPacket) -> String {
    let header = packet.header;
    let remote = header.and_then(|header| header.remote);
    serde_json::json!({
        "seconds": packet.at.as_secs_f64(),
        "from": packet.from,
        "cause": packet.cause.name(),
        "why": packet.cause.to_string(),
        "opcode": header.map(|header| header.operation()),
        "qp": header.map(|header| header.dest_qp),
        "psn": header.map(|header| header.psn),
        "rkey": remote.map(|remote| remote.rkey),
        "address": remote.map(|remote| remote.addr),
        "length": remote.map(|remote| remote.length),
    })
    .to_string()
}
