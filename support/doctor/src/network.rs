//! Checks what the embedded provider needs: interfaces, UDP port 4791, socket buffers, an open firewall.

use std::collections::HashSet;

use naa_udp::{Held, Holder};

use crate::{
    check::{Check, CheckGroup::Network, CheckLevel},
    machine::Machine,
    rules::{self, Rules},
};

/// `CHARGE` is the number of bytes that the Linux kernel charges to a receive buffer for a packet of 4 KiB. `IN_FLIGHT`
/// is the number of packets that a peer with soft-RoCE keeps in flight (RXE_MAX_UNACKED_PSNS).
const CHARGE: usize = 8600;
const IN_FLIGHT: usize = 128;
/// The receive buffer for which the provider asks: room for seven such peers.
const WANTED: u64 = 4 << 20;
/// The least send buffer: room for two super-packets of 64 KiB, as the kernel charges them.
const LEAST_SEND: u64 = 160 << 10;

pub(crate) fn checks(machine: &Machine) -> Vec<Check> {
    let mut checks = interfaces(machine);
    checks.extend(port(machine));
    checks.push(receive_buffer(machine));
    checks.extend(send_buffer(machine));
    checks.push(batches(machine));
    checks.push(firewall(machine));
    checks
}

fn interfaces(machine: &Machine) -> Vec<Check> {
    let mut names: Vec<&str> = machine.usable_addresses().map(|entry| entry.interface.as_str()).collect();
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(*name));
    if names.is_empty() {
        let remedy = format!("{}ip link set lo up", machine.sudo());
        let finding = "no interface has an address";
        return vec![Network.check("interface", CheckLevel::Bad, finding).remedy(remedy)];
    }
    names.into_iter().map(|name| interface(machine, name)).collect()
}

fn interface(machine: &Machine, name: &str) -> Check {
    let sudo = machine.sudo();
    let interface = machine.interface(name);
    let Some(mtu) = interface.mtu else {
        return Network.check("interface", CheckLevel::Note, format!("{name}: its MTU is not told"));
    };
    if !interface.up {
        let remedy = format!("{sudo}ip link set {name} up");
        return Network.check("interface", CheckLevel::Warn, format!("{name}: is down")).remedy(remedy);
    }
    match roce_udp::path_mtu(mtu, None) {
        Ok(4096) => Network.check("interface", CheckLevel::Ok, format!("{name}: MTU {mtu}, path MTU 4096")),
        Ok(path) => {
            let finding =
                format!("{name}: MTU {mtu}, so packets carry {path} bytes; 4096 need an MTU of 4192");
            let remedy = format!("where network and peers have it too: {sudo}ip link set {name} mtu 4200");
            Network.check("interface", CheckLevel::Note, finding).remedy(remedy)
        }
        Err(_) => {
            let remedy = format!("{sudo}ip link set {name} mtu 1500");
            let finding = format!("{name}: MTU {mtu} has no room for RoCE packets");
            Network.check("interface", CheckLevel::Warn, finding).remedy(remedy)
        }
    }
}

/// The name of the holder of a port. If no process is known, the list of RDMA devices tells whether the Linux kernel's
/// soft-RoCE holds it.
pub(crate) fn holder(machine: &Machine, held: &Held) -> String {
    let Some(device) = machine.soft_roce().filter(|_| held.address.is_unspecified()) else {
        return held.holder.to_string();
    };
    match held.holder {
        Holder::Process { .. } => held.holder.to_string(),
        Holder::Hidden | Holder::NoProcess => format!("the kernel's soft-RoCE ({device})"),
    }
}

fn port(machine: &Machine) -> Vec<Check> {
    let held = machine.holders();
    if held.is_empty() {
        return vec![Network.check("port-4791", CheckLevel::Ok, "UDP port 4791 is free on every address")];
    }
    let mut found: Vec<Check> = Vec::new();
    for held in &held {
        let who = holder(machine, held);
        let soft = machine.soft_roce().is_some() && !matches!(held.holder, Holder::Process { .. });
        let check = if !held.address.is_unspecified() {
            let finding = format!("UDP port 4791 on {} is held by {who}", held.address);
            Network.check("port-4791", CheckLevel::Note, finding)
        } else if soft {
            let finding = format!("UDP port 4791 is held by {who}: embedded servers cannot listen here");
            Network.check("port-4791", CheckLevel::Note, finding)
        } else {
            let finding = format!("UDP port 4791 is held on every address by {who}");
            Network
                .check("port-4791", CheckLevel::Warn, finding)
                .remedy("stop it, or use another network namespace")
        };
        if !found.contains(&check) {
            found.push(check);
        }
    }
    found
}

fn receive_buffer(machine: &Machine) -> Check {
    let sudo = machine.sudo();
    let most = machine.number("proc/sys/net/core/rmem_max");
    let limit = most.map_or("net.core.rmem_max is not told here".into(), |most| {
        format!("net.core.rmem_max is {}", naa_measure::bytes(most))
    });
    let remedy = format!("{sudo}sysctl -w net.core.rmem_max={WANTED}");
    let got = match &machine.socket {
        Ok(socket) => socket.receive_buffer,
        Err(why) => return Network.check("receive-buffer", CheckLevel::Bad, format!("no UDP socket: {why}")),
    };
    let packets = got / CHARGE;
    let room = format!(
        "a socket has room for {packets} packets of 4 KiB; a kernel peer keeps {IN_FLIGHT} in flight"
    );
    let finding = format!("{limit}: {room}");
    match most {
        _ if packets < IN_FLIGHT => Network
            .check("receive-buffer", CheckLevel::Warn, format!("{finding}, so some get lost"))
            .remedy(remedy),
        // A buffer above the limit means that this process has CAP_NET_ADMIN.
        Some(most) if most < WANTED && got as u64 > 2 * most => {
            let finding = format!("{finding}. Without root there is room for {}", 2 * most as usize / CHARGE);
            Network.check("receive-buffer", CheckLevel::Note, finding).remedy(remedy)
        }
        Some(most) if most < WANTED => {
            Network.check("receive-buffer", CheckLevel::Note, finding).remedy(remedy)
        }
        _ => Network.check("receive-buffer", CheckLevel::Ok, finding),
    }
}

/// Checks the send buffer. Packets wait until it has room, so a small buffer costs turns but loses no packets.
fn send_buffer(machine: &Machine) -> Option<Check> {
    let default = machine.number("proc/sys/net/core/wmem_default")?;
    let most = machine.number("proc/sys/net/core/wmem_max").map_or(String::new(), |most| {
        format!("; net.core.wmem_max ({}) is not asked for", naa_measure::bytes(most))
    });
    let finding = format!("net.core.wmem_default is {}{most}", naa_measure::bytes(default));
    Some(if default >= LEAST_SEND {
        Network.check("send-buffer", CheckLevel::Ok, finding)
    } else {
        let remedy = format!("{}sysctl -w net.core.wmem_default=212992", machine.sudo());
        let finding = format!("{finding}: little for packets that leave 64 KiB at a time");
        Network.check("send-buffer", CheckLevel::Warn, finding).remedy(remedy)
    })
}

fn batches(machine: &Machine) -> Check {
    const NAME: &str = "gso-gro";
    let Ok(socket) = &machine.socket else {
        return Network.check(NAME, CheckLevel::Note, "not looked at: no UDP socket");
    };
    let newer = "a kernel from 5.0 on has both";
    match (socket.gso, socket.gro) {
        (true, true) => {
            Network.check(NAME, CheckLevel::Ok, "the kernel takes and gives many packets in one call")
        }
        (gso, gro) => {
            let missing = match (gso, gro) {
                (false, false) => "UDP GSO and GRO are",
                (false, true) => "UDP GSO is",
                _ => "UDP GRO is",
            };
            let finding = format!("{missing} missing: the embedded provider is several times slower");
            Network.check(NAME, CheckLevel::Warn, finding).remedy(newer)
        }
    }
}

fn firewall(machine: &Machine) -> Check {
    const NAME: &str = "firewall";
    let text = match &machine.rules {
        Rules::NotLooked(why) => {
            let check = Network.check(NAME, CheckLevel::Note, format!("not looked at: {why}"));
            let needs_root = why == "needs root";
            return if needs_root { check.remedy("sudo naa doctor") } else { check };
        }
        Rules::Read(text) => text,
    };
    let verdict = rules::assess(text);
    let open = format!("{}nft insert rule TABLE CHAIN udp dport 4791 accept", machine.sudo());
    let list = |lines: &[String]| lines.join(" | ");
    match (verdict.named.as_slice(), verdict.closed.as_slice()) {
        ([], []) => Network.check(NAME, CheckLevel::Ok, "no rule drops or names UDP port 4791"),
        ([], closed) => {
            let finding =
                format!("{} drops what no rule accepts, and none names UDP port 4791", list(closed));
            Network.check(NAME, CheckLevel::Warn, finding).remedy(open)
        }
        (named, _) => {
            let text = list(named);
            let lower = text.to_lowercase();
            let refuses = ["drop", "reject"].iter().any(|word| lower.contains(word));
            let level = if refuses { CheckLevel::Warn } else { CheckLevel::Ok };
            Network.check(NAME, level, format!("rules for port 4791: {text}"))
        }
    }
}
