//! `--pcap`: sends a capture through the simulated load balancer, and compares the result with that of the Rust.

use crate::repo;
use anyhow::{Context, Error, Result, ensure};
use ejfat::{
    lb::{DataPlane, Epoch, Forward, LbId, Member, Rule, Rules, Tables, TickPrefix, calendar},
    segment::{EventFields, IpVersion, LbVersion, SegmentSize, Segments},
};
use naa_fpga::{Driver, LbTop, Macs, Module, Packet, Rates, Tools, frames};
use simnet::pcap;
use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

const HOP: [u8; 6] = [2, 0x4e, 0x41, 0x41, 0, 2];
const MEMBERS: u16 = 4;

/// Sends the frames of a capture through `lb_top`, writes those that leave into another capture, and compares them with those that
/// [`frames::forward`] makes.
///
/// # Errors
/// If a frame differs.
pub(super) fn run(input: &Path, output: &Path) -> Result<()> {
    let file = fs::read(input).with_context(|| format!("cannot read {}", input.display()))?;
    let capture = pcap::frames(&file).map_err(Error::msg).with_context(|| input.display().to_string())?;
    let whole = capture.map_while(Result::ok).filter(|frame| frame.caplen == frame.origlen);
    let all: Vec<_> = whole.map(|frame| frame.data.to_vec()).collect();
    let segments = all.iter().filter_map(|frame| CapturedSegment::of(frame)).collect::<Vec<_>>();
    let own = segments
        .first()
        .context("no frame of this capture carries an LB header; capture segments of a sender")?
        .own;
    let macs = Macs { own, hop: HOP };
    let mut balancer = DataPlane::new(&Tables::new(&rules(&segments)?), 0);

    let tools =
        Tools::find().context("the tools are missing; `cargo xtask fpga --only sim` installs them")?;
    let model = Module::new("lb_top").with("Width", 512).model(&tools)?;
    let mut driver = Driver::new(LbTop::new(model, [Rates::full(), Rates::full()]), macs)?;
    driver.load(balancer.image()?, &BTreeMap::new())?;
    let packets = all.iter().map(|bytes| Packet { bytes: bytes.clone(), ..Packet::default() });
    let left = driver.registers.pass(packets);
    let sent: Vec<_> = left.into_iter().filter(|frame| frame.last == 0).map(|frame| frame.bytes).collect();
    write(output, &sent)?;

    let expected: Vec<_> =
        all.iter().filter_map(|frame| frames::forward(&mut balancer, macs, frame, false)).collect();
    let forwarded: Vec<_> = sent.iter().filter(|frame| !is_answer(frame)).collect();
    let same = forwarded.iter().zip(&expected).take_while(|(a, b)| **a == *b).count();
    ensure!(
        forwarded.len() == expected.len() && same == expected.len(),
        "frame {same} of those that were forwarded differs: {} frames left, and the Rust makes {}",
        forwarded.len(),
        expected.len()
    );
    println!(
        "{} frames of {}: {} forwarded, equal to the Rust byte for byte, {} answered; {} has them",
        all.len(),
        input.display(),
        expected.len(),
        sent.len() - expected.len(),
        output.display()
    );
    Ok(())
}

/// Makes a capture of the segments of senders, with both versions of the LB header and of IP, and with an ARP request among them. Sends
/// it through `lb_top`.
pub(super) fn senders() -> Result<()> {
    let folder = repo::target_dir().join("fpga");
    let [input, output] = ["segments.pcap", "forwarded.pcap"].map(|name| folder.join(name));
    let mut all_frames = vec![who_has(Ipv4Addr::new(10, 0, 0, 9))];
    let versions = [LbVersion::V2, LbVersion::V3].into_iter().cycle();
    let lengths = [1, 900, 1437, 5000, 20_000, 100_000];
    let ips = [IpVersion::V4, IpVersion::V6];
    let all = ips.into_iter().flat_map(|ip| [1500, 9000].map(|mtu| (ip, mtu))).cycle();
    for ((tick, version), (ip, mtu)) in (1000..).zip(versions).zip(all).take(48) {
        let name = EventFields { tick, event: tick, data_id: 7, entropy: (tick * 31) as u16 };
        let length = lengths[tick as usize % lengths.len()];
        let event: Vec<_> = (0..length).map(|at| (at * 7 + tick as usize) as u8).collect();
        for segment in Segments::new(version, SegmentSize::of_mtu(mtu, ip)?, name, length as u64)? {
            let datagram = [&segment.headers[..], &event[segment.payload]].concat();
            let addresses: [IpAddr; 2] = match ip {
                IpVersion::V4 => [1, 9].map(|host| Ipv4Addr::new(10, 0, 0, host).into()),
                IpVersion::V6 => [1, 9].map(|host| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host).into()),
            };
            let frame = frames::of_datagram([SENDER, OWN], addresses, &datagram);
            all_frames.push(frame.context("a segment fits into a frame")?);
        }
    }
    fs::create_dir_all(&folder)?;
    write(&input, &all_frames)?;
    run(&input, &output)
}

fn write(path: &Path, frames: &[Vec<u8>]) -> Result<()> {
    let mut file = Vec::new();
    let mut writer = pcap::Writer::new(&mut file)?;
    frames.iter().try_for_each(|frame| writer.frame(0, frame))?;
    fs::write(path, file).with_context(|| format!("cannot write {}", path.display()))
}

const OWN: [u8; 6] = [2, 0x4e, 0x41, 0x41, 0, 1];
const SENDER: [u8; 6] = [2, 0x4e, 0x41, 0x41, 0, 3];

/// The frame of a sender that asks for the MAC address of a host.
fn who_has(host: Ipv4Addr) -> Vec<u8> {
    let arp = [0, 1, 8, 0, 6, 4, 0, 1];
    [
        &[0xff; 6][..],
        &SENDER,
        &frames::TYPE_ARP,
        &arp,
        &SENDER,
        &[10, 0, 0, 1],
        &[0; 6],
        &host.octets(),
        &[0; 18],
    ]
    .concat()
}

/// Whether a frame is an answer to ARP, neighbour discovery or ping.
fn is_answer(frame: &[u8]) -> bool {
    frame[12..14] == frames::TYPE_ARP || pcap::datagram(frame).is_none()
}

/// A segment in a capture.
struct CapturedSegment {
    own: [u8; 6],
    from: IpAddr,
    to: IpAddr,
}

impl CapturedSegment {
    fn of(frame: &[u8]) -> Option<Self> {
        let datagram = pcap::datagram(frame)?;
        if !datagram.udp[8..].starts_with(b"LB") {
            return None;
        }
        let (from, to) = (datagram.from.ip(), datagram.to.ip());
        Some(Self { own: frame[..6].try_into().ok()?, from, to })
    }
}

/// Tables that forward what was seen: all ticks to members in turn, half of which keep the LB header.
fn rules(segments: &[CapturedSegment]) -> Result<Rules> {
    let lb = LbId::new(0)?;
    let ids: Vec<_> = (0..MEMBERS).collect();
    let mut all = calendar(lb, 0, &ids);
    all.push(Rule::Epoch { lb, ticks: TickPrefix::ALL, epoch: Epoch::new(0) });
    for id in ids {
        for ip in [IpVersion::V4, IpVersion::V6] {
            let address = match ip {
                IpVersion::V4 => Ipv4Addr::new(192, 0, 2, id as u8 + 1).into(),
                IpVersion::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, id + 1).into(),
            };
            let keep_lb_header = id % 2 == 1;
            let forward = Forward { mac: None, address, port: 10_000, port_bits: 4, keep_lb_header };
            all.push(Rule::Member { lb, ip, id, member: Member::Forward(forward) });
        }
    }
    for CapturedSegment { from, to, .. } in segments {
        all.extend([Rule::Source { lb, address: *from }, Rule::Destination { address: *to, lb }]);
    }
    let mut rules = Rules::default();
    all.into_iter().try_for_each(|rule| rules.insert(rule, true))?;
    Ok(rules)
}
