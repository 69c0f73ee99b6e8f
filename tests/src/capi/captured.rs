//! What a captured connection asks for, as a program is told it. Messages are read here by the catalogue's bytes, not
//! by this project's codec.

use std::fmt::Write;

use super::capture::{Connection, Message};

pub(super) const INTERNAL: u8 = 1;

const HEADER: usize = 4;
const REQUEST: usize = 24;
const ADVERTISED: usize = 16;

/// An entry of an AAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) flags: u8,
    /// On the accelerator, 56 bits.
    pub(super) wanted: u64,
    pub(super) addr: u64,
    pub(super) rkey: u32,
    pub(super) size: u32,
}

/// An entry of an A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) addr: u64,
    pub(super) rkey: u32,
    pub(super) size: u32,
}

fn be64(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn be32(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn entries(bytes: &[u8], kind: u8, each: usize) -> Result<Vec<&[u8]>, String> {
    let (header, rest) = bytes.split_at_checked(HEADER).ok_or("a message shorter than its header")?;
    if header[0] != kind || header[2..] != [0, 0] || rest.len() != usize::from(header[1]) * each {
        return Err(format!("no message of type {kind}: {:02x?}", &bytes[..bytes.len().min(32)]));
    }
    Ok(rest.chunks(each).collect())
}

/// The entries of an AAR.
pub(super) fn requested(bytes: &[u8]) -> Result<Vec<Region>, String> {
    let region = |e: &[u8]| Region {
        flags: e[0],
        wanted: be64(e) & ((1 << 56) - 1),
        addr: be64(&e[8..]),
        rkey: be32(&e[16..]),
        size: be32(&e[20..]),
    };
    Ok(entries(bytes, 1, REQUEST)?.into_iter().map(region).collect())
}

/// The entries of an A.
pub(super) fn advertised(bytes: &[u8]) -> Result<Vec<Placed>, String> {
    let placed = |e: &[u8]| Placed { addr: be64(e), rkey: be32(&e[8..]), size: be32(&e[12..]) };
    Ok(entries(bytes, 2, ADVERTISED)?.into_iter().map(placed).collect())
}

/// Both sides' regions of a connection.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    pub(super) requested: Vec<Region>,
    pub(super) placed: Vec<Placed>,
}

impl Agreement {
    pub(super) fn of(connection: &Connection) -> Result<Self, String> {
        let send = |from_host| {
            let found = connection.messages.iter().find(|m| m.is_send() && m.from_host == from_host);
            found.ok_or("a connection without MRSP")
        };
        Ok(Self { requested: requested(&send(true)?.bytes)?, placed: advertised(&send(false)?.bytes)? })
    }

    /// The number of the region on the accelerator that a WRITE is for.
    pub(super) fn on_accelerator(&self, (addr, rkey, _): (u64, u32, u32)) -> Option<usize> {
        self.placed.iter().position(|placed| (placed.addr, placed.rkey) == (addr, rkey))
    }

    /// The same on the host.
    pub(super) fn on_host(&self, (addr, rkey, _): (u64, u32, u32)) -> Option<usize> {
        self.requested.iter().position(|region| (region.addr, region.rkey) == (addr, rkey))
    }

    fn parameters(&self) -> impl Iterator<Item = &Region> {
        self.requested.iter().filter(|region| region.flags & INTERNAL == 0)
    }
}

fn hex(bytes: &[u8]) -> String {
    format!("-{}", crate::hex::encode(bytes))
}

/// The scenario for `wire_host.c`: what to ask for, what to send with each call, what must come back.
pub(super) fn scenario(connection: &Connection) -> Result<String, String> {
    let agreement = Agreement::of(connection)?;
    let mut text = String::new();
    let start = agreement.requested.iter().map(|region| region.wanted).min().unwrap_or(0);
    let _ = writeln!(text, "offset {start}");
    for region in agreement.parameters() {
        let _ = writeln!(text, "param {} {}", region.flags, region.size);
    }
    for region in agreement.requested.iter().filter(|region| region.flags & INTERNAL != 0) {
        let _ = writeln!(text, "internal {}", region.size);
    }
    let _ = writeln!(text, "connect");
    for message in connection.messages.iter().filter(|message| !message.is_send()) {
        let target = message.target.unwrap_or_default();
        if message.from_host {
            let index = agreement.on_accelerator(target).ok_or("a WRITE to no region of the accelerator")?;
            let _ = writeln!(text, "send {index} {}", hex(&message.bytes));
            if let Some(immediate) = message.immediate {
                let _ = writeln!(text, "call {immediate}");
            }
        } else {
            let index = agreement.on_host(target).ok_or("a WRITE to no region of the host")?;
            let _ = writeln!(text, "expect {index} {}", hex(&message.bytes));
        }
    }
    Ok(text)
}

/// In what `live` differs from `captured`, apart from addresses and keys.
pub(super) fn difference(captured: &Message, live: &Message) -> Option<String> {
    let same = captured.opcodes == live.opcodes
        && captured.solicited == live.solicited
        && captured.immediate == live.immediate
        && captured.target.map(|(_, _, length)| length) == live.target.map(|(_, _, length)| length)
        && (captured.is_send() || captured.bytes == live.bytes);
    let other_bytes = captured.bytes != live.bytes && !captured.is_send();
    let more = if other_bytes { ", other bytes" } else { "" };
    (!same).then(|| format!("{} instead of {}{more}", live.name(), captured.name()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::capi::capture;

    fn connections() -> Vec<Connection> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures/naaice-library-calls.pcap");
        capture::connections(&path).unwrap()
    }

    fn immediates(connection: &Connection, from_host: bool) -> Vec<u32> {
        let own = connection.messages.iter().filter(|message| message.from_host == from_host);
        own.filter_map(|message| message.immediate).collect()
    }

    /// What is held against this library is what the catalogue has.
    #[test]
    fn the_capture_has_the_golden_bytes() {
        let all = connections();
        // Where a program has its memory differs from run to run.
        let [request, answer] = [0, 1].map(|at| hex(&all[0].messages[at].bytes));
        assert!(
            request.starts_with("-010100000c00000000000000") && request.ends_with("00000040"),
            "{request}"
        );
        assert!(answer.starts_with("-02010000") && answer.ends_with("00000040"), "{answer}");
        assert_eq!((request.len(), answer.len()), (1 + 2 * 28, 1 + 2 * 20));
        assert_eq!((immediates(&all[0], true), immediates(&all[0], false)), (vec![0x83], vec![0]));
        let wanted = [0x1234_5678_c000_u64, 0x1234_5678_d000, 0x1234_5678_9000, 0x1234_5678_b000];
        let regions = Agreement::of(&all[2]).unwrap().requested;
        let flags: Vec<_> = regions.iter().map(|region| region.flags).collect();
        assert_eq!(flags, [0x0c, 0x0e, 1, 1]);
        assert!(regions.iter().zip(wanted).all(|(region, wanted)| region.wanted == wanted));
        assert_eq!(regions.iter().map(|region| region.size).collect::<Vec<_>>(), [256, 4096, 5000, 64]);
        assert_eq!(immediates(&all[2], true)[0], 0xc3b2_a182);
        // The single send is in the first call only.
        let writes: Vec<_> =
            all[2].messages.iter().filter(|m| m.from_host && !m.is_send()).map(|m| m.bytes.len()).collect();
        assert_eq!(writes, [256, 4096, 256]);
    }

    #[test]
    fn scenarios_are_told() {
        let text = scenario(&connections()[0]).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..3], ["offset 0", "param 12 64", "connect"]);
        assert!(lines[3].starts_with("send 0 -") && lines[4] == "call 131", "{text}");
        assert!(lines[5].starts_with("expect 0 -"), "{text}");
    }
}
