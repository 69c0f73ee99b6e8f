//! `check-icrc` checks captured RoCEv2 packets: the invariant CRC of each, its headers, and whether it fits the packets
//! before it on its connection. It shares no code with the crate that makes the packets, so that an error in one of them
//! shows. If tshark is installed, it must read the same opcodes, PSNs and lengths.
//!
//! The rules for the CRC are those of InfiniBand Architecture annex A17 (RoCEv2), as Linux `rxe_icrc.c` has them: CRC-32 of
//! IEEE 802.3 over eight bytes of ones (the link header a RoCEv2 packet has not), the IP and UDP headers with the
//! fields ones that routers may change, and the rest of the packet; stored with the least significant byte first.

mod flows;
mod packet;
mod tshark;

use anyhow::{Context, Error, Result};
use flows::Flows;
use packet::{Packet, ROCE_PORT};
use simnet::pcap::{self, Datagram, datagram};
use std::{fmt, fs, path::Path, path::PathBuf, process::ExitCode};
use tshark::Compared;

/// Base transport header and ICRC.
const LEAST_PAYLOAD: usize = 12 + 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Classic pcap files of Ethernet frames (tcpdump -w)
    #[arg(required = true, value_name = "PCAP")]
    files: Vec<PathBuf>,
}

/// What a capture held.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) checked: usize,
    /// RoCEv2 packets of which the capture has a part only.
    pub(crate) truncated: usize,
    /// Frames whose ICRC is wrong, by their numbers from 1 as tcpdump and Wireshark count.
    pub(crate) wrong: Vec<usize>,
    /// Frames with other faults, and which.
    pub(crate) faults: Vec<(usize, String)>,
    /// Requests that were sent more than once.
    pub(crate) repeated: usize,
    /// Packets of connections whose beginning the capture has not; only their headers were judged.
    pub(crate) unknown: usize,
    /// Packets that must have passed and that the capture has not: a busy machine misses some.
    pub(crate) missed: usize,
    /// What tshark says; `None`: not installed.
    pub(crate) compared: Option<Compared>,
}

/// One of so many packets may be missing.
const MOST_MISSED: usize = 200;

impl Report {
    pub(crate) fn passed(&self) -> bool {
        let agreed = self.compared.as_ref().is_none_or(|compared| compared.differ.is_empty());
        let complete = self.missed * MOST_MISSED <= self.checked;
        self.checked > 0 && complete && self.wrong.is_empty() && self.faults.is_empty() && agreed
    }
}

/// How many frames of a kind are named.
const NAMED: usize = 10;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets checked, {} wrong ICRCs", self.checked, self.wrong.len())?;
        write!(f, ", {} other faults, {} requests repeated", self.faults.len(), self.repeated)?;
        if self.unknown > 0 {
            write!(f, ", {} of connections that began before the capture", self.unknown)?;
        }
        if self.missed > 0 {
            write!(f, ", {} missed by the capture", self.missed)?;
        }
        if self.truncated > 0 {
            write!(f, ", {} truncated by the capture and not checked", self.truncated)?;
        }
        match &self.compared {
            Some(compared) => {
                write!(f, "; tshark reads {} of {} otherwise", compared.differ.len(), compared.packets)?;
            }
            None => write!(f, "; tshark is not installed, so there is no second opinion")?,
        }
        if !self.wrong.is_empty() {
            let some: Vec<_> = self.wrong.iter().take(NAMED).map(usize::to_string).collect();
            let more = if self.wrong.len() > some.len() { " ..." } else { "" };
            write!(f, "; wrong frames: {}{more}", some.join(" "))?;
        }
        let differ = self.compared.iter().flat_map(|compared| compared.differ.iter().take(NAMED));
        for (frame, what) in self.faults.iter().take(NAMED).chain(differ) {
            write!(f, "; frame {frame}: {what}")?;
        }
        Ok(())
    }
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let mut passed = true;
    for path in &options.files {
        let report = check_file(path)?;
        println!("{}: {report}", path.display());
        if report.checked == 0 {
            println!("    no RoCEv2 packet (UDP port {ROCE_PORT}): was the capture made where they pass?");
        }
        passed &= report.passed();
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn check_file(path: &Path) -> Result<Report> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut report, ours) =
        check_capture(&bytes).with_context(|| format!("cannot read {}", path.display()))?;
    report.compared = ours.compare(path)?;
    Ok(report)
}

fn check_capture(capture: &[u8]) -> Result<(Report, tshark::Ours)> {
    let mut report = Report::default();
    let (mut flows, mut ours) = (Flows::default(), tshark::Ours::default());
    for (number, frame) in (1..).zip(pcap::frames(capture).map_err(Error::msg)?.map_while(Result::ok)) {
        if frame.caplen < frame.origlen {
            report.truncated += 1;
            continue;
        }
        let Some(datagram) = datagram(frame.data).filter(is_roce) else { continue };
        report.checked += 1;
        if !right(&datagram) {
            report.wrong.push(number);
        }
        let checked = Packet::read(&datagram).and_then(|packet| {
            ours.note(number, &packet, datagram.udp.len());
            flows.take(&packet)
        });
        if let Err(fault) = checked {
            report.faults.push((number, fault));
        }
    }
    (report.repeated, report.unknown, report.missed) = (flows.repeated, flows.unknown, flows.missed);
    Ok((report, ours))
}

fn is_roce(datagram: &Datagram<'_>) -> bool {
    datagram.to.port() == ROCE_PORT
}

fn right(datagram: &Datagram<'_>) -> bool {
    if datagram.udp.len() < 8 + LEAST_PAYLOAD {
        return false;
    }
    let (covered, stored) = datagram.udp.split_at(datagram.udp.len() - 4);
    icrc(datagram.ip, covered).to_le_bytes() == stored
}

/// The ICRC of a packet: its IP header, and its UDP header with everything behind up to the ICRC.
fn icrc(ip: &[u8], udp: &[u8]) -> u32 {
    let mut ip = ip.to_vec();
    if ip[0] >> 4 == 4 {
        // Type of service, time to live, header checksum.
        for at in [1, 8, 10, 11] {
            ip[at] = 0xff;
        }
    } else {
        // Traffic class and flow label, hop limit.
        ip[0] |= 0x0f;
        for at in [1, 2, 3, 7] {
            ip[at] = 0xff;
        }
    }
    let mut udp = udp.to_vec();
    // UDP checksum; FECN, BECN and the reserved bits of the base transport header.
    for at in [6, 7, 8 + 4] {
        udp[at] = 0xff;
    }
    crc32([0xff; 8].iter().chain(&ip).chain(&udp))
}

/// CRC-32 of IEEE 802.3, a bit at a time.
fn crc32<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let low = crc & 1;
            crc >>= 1;
            if low == 1 {
                crc ^= 0xedb8_8320;
            }
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn captures() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures")
    }

    #[test]
    fn crc_has_its_published_check_value() {
        assert_eq!(crc32(b"123456789".iter()), 0xcbf4_3926);
    }

    #[test]
    fn kernel_peers_are_right() {
        for name in ["rxe-rping-v4-v6-perftest-write.pcap", "naaice-library-calls.pcap"] {
            let report = check_file(&captures().join(name)).expect("a capture");
            assert!(report.passed(), "{name}: {report}");
            assert!(report.checked > 100, "{name}: {report}");
            assert_eq!(report.unknown, 0, "{name}: {report}");
        }
    }

    #[test]
    fn every_covered_bit_counts_and_masked_ones_do_not() {
        let bytes = fs::read(captures().join("rxe-rping-v4-v6-perftest-write.pcap")).expect("a capture");
        let masked_v4 = |at: usize| [14 + 1, 14 + 8, 14 + 10, 14 + 11, 34 + 6, 34 + 7, 42 + 4].contains(&at);
        let frame = frames(&bytes).into_iter().find(|frame| frame[12..14] == [8, 0]).expect("IPv4");
        let whole = frame.len();
        // Bytes that only say where things are would make it another packet.
        let structure = [14, 14 + 2, 14 + 3, 14 + 6, 14 + 7, 14 + 9, 36, 37, 38, 39];
        for bit in (14 * 8..whole * 8).filter(|bit| !structure.contains(&(bit / 8))) {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let datagram = datagram(&changed).expect("still UDP");
            assert_eq!(right(&datagram), masked_v4(bit / 8), "bit {bit}");
        }
    }

    fn frames(capture: &[u8]) -> Vec<Vec<u8>> {
        pcap::frames(capture).expect("a capture").map(|frame| frame.expect("a frame").data.to_vec()).collect()
    }

    fn file(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = pcap::Writer::new(&mut file).expect("a capture");
        frames.iter().try_for_each(|frame| writer.frame(0, frame)).expect("a capture");
        file
    }

    /// What is said of a capture whose frames were changed.
    fn report_of(change: impl Fn(&mut Vec<Vec<u8>>)) -> Report {
        let bytes = fs::read(captures().join("rxe-rping-v4-v6-perftest-write.pcap")).expect("a capture");
        let mut frames = frames(&bytes);
        change(&mut frames);
        check_capture(&file(&frames)).expect("a capture").0
    }

    /// Where the base transport header begins in frames over IPv4.
    const BTH: usize = 42;

    /// The first frame over IPv4 with this opcode.
    fn first(frames: &[Vec<u8>], opcode: u8) -> usize {
        let found = frames.iter().position(|frame| frame[12..14] == [8, 0] && frame[BTH] == opcode);
        found.expect("the capture has one")
    }

    #[test]
    fn packets_that_do_not_fit_are_found() {
        const READ_ONLY: u8 = 0x10;
        const WRITE_FIRST: u8 = 0x06;
        const ACK: u8 = 0x11;
        let plain = report_of(|_| {});
        assert!(plain.faults.is_empty() && plain.missed == 0 && plain.repeated == 0, "{plain}");
        let changed = |opcode: u8, at: usize, to: u8| {
            let report = report_of(|frames| {
                let frame = first(frames, opcode);
                frames[frame][BTH + at] = to;
            });
            assert!(!report.faults.is_empty(), "byte {at} of opcode {opcode:#04x}: {report}");
        };
        changed(WRITE_FIRST, 0, 0x07);
        changed(WRITE_FIRST, 0, 0x18);
        changed(WRITE_FIRST, 1, 0x01);
        changed(WRITE_FIRST, 3, 0x12);
        // More bytes announced than come.
        changed(WRITE_FIRST, 12 + 12, 0x7f);
        changed(READ_ONLY, 0, 0x0f);
        changed(ACK, 12, 0x7f);
        // An MSN of messages to come.
        changed(ACK, 13, 0x70);
    }

    #[test]
    fn missing_and_repeated_packets_are_counted() {
        let missing = report_of(|frames| drop(frames.remove(first(frames, 0x06))));
        assert_eq!(missing.missed, 1, "{missing}");
        assert!(!missing.passed());
        let repeated = report_of(|frames| {
            let at = first(frames, 0x06);
            frames.insert(at + 1, frames[at].clone());
        });
        assert_eq!((repeated.repeated, repeated.faults.len()), (1, 0), "{repeated}");
    }

    #[test]
    fn wrong_and_empty_captures_do_not_pass() {
        let folder = std::env::temp_dir().join(format!("check-icrc-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("wrong.pcap");
        let mut file = file(&[b"x".to_vec()]);
        let [from, to]: [SocketAddr; 2] =
            ["10.9.0.1:4791", "10.9.0.2:4791"].map(|address| address.parse().expect("an address"));
        let mut datagrams = Vec::new();
        let mut writer = pcap::Writer::new(&mut datagrams).expect("a capture");
        for payload in [&[0; 20][..], b"short"] {
            writer.datagram(0, from, to, 0, payload).expect("a capture");
        }
        file.extend_from_slice(&datagrams[24..]);
        fs::write(&path, file).expect("written");
        let report = check_file(&path).expect("a capture");
        assert_eq!((report.checked, report.wrong.as_slice()), (2, [2, 3].as_slice()));
        fs::write(&path, &datagrams[..24]).expect("written");
        assert!(!check_file(&path).expect("a capture").passed());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
