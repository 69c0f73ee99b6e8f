//! `naa doctor --trace` runs a server, and prints the packets that its device refuses.

use std::{
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use naa_doctor::Traced;
use naa_provider::RefusedPacket;

use crate::{show, signals};

/// The time between two looks at the trace.
const PERIOD: Duration = Duration::from_millis(100);
/// The most packets that are printed per period. A peer decides how many packets are refused.
const LINES: usize = 20;

/// Runs the server for `time`, or until Ctrl-C.
pub(super) fn run(address: IpAddr, time: Option<Duration>, json: bool) -> anyhow::Result<()> {
    let mut traced = Traced::start(address)?;
    signals::on_terminate(|| {})?;
    let at = traced.address();
    show::note(&format!(
        "a server listens on {at}; call it, for example with `naa ping --server {at}`. Each packet that it refuses \
         becomes a line."
    ));
    let end = time.map(|time| Instant::now() + time);
    while !signals::is_ending() && end.is_none_or(|end| Instant::now() < end) {
        thread::sleep(PERIOD);
        let refused = traced.take(LINES);
        for packet in &refused.packets {
            show::line(&if json { object(packet) } else { text(packet) })?;
        }
        if refused.more > 0 {
            show::note(&format!("{} more packets were refused at this time", refused.more));
        }
    }
    let counts: Vec<_> = traced.end().iter().map(|(cause, count)| format!("{cause} {count}")).collect();
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
