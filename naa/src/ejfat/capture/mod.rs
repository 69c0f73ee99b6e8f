//! Captures: pcap and pcapng files, and the UDP datagrams in them.
//!
//! The file may contain anything. Damaged packets are counted, or reading ends with an error; [`LONGEST`] bounds the
//! memory.

mod link;
mod message;

use std::{
    fs::File,
    io::{Read, stdin},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use pcap_parser::{
    Block, InterfaceDescriptionBlock, Linktype, PcapBlockOwned, PcapError, PcapHeader,
    traits::{PcapNGPacketBlock as _, PcapReaderIterator},
};

pub(super) use message::{CapturedSegment, Kind, look, parts};

/// The size of the read buffer, and of the longest block of a capture, in bytes.
const BUFFER: usize = 1 << 18;
const LONGEST: usize = 1 << 24;
/// The most interfaces in one section of a pcapng file.
const INTERFACES: usize = 4096;

/// Which datagrams of which capture.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CaptureSelection {
    /// A capture: pcap or pcapng; -: standard input
    #[arg(value_name = "PCAP")]
    pub(super) pcap: PathBuf,
    /// Only datagrams to these UDP ports. There, whatever looks like a segment is one
    #[arg(long, value_name = "PORT", value_delimiter = ',')]
    port: Vec<u16>,
    /// Only datagrams to this address
    #[arg(long, value_name = "ADDR")]
    host: Option<IpAddr>,
}

/// A UDP datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    /// The time in nanoseconds since the UNIX epoch.
    pub(super) time: u64,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// The captured part of the payload; `len` is the length of the payload on the wire.
    pub(super) bytes: &'a [u8],
    pub(super) len: usize,
}

/// Counts of packets with and without a datagram.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(super) struct Packets {
    pub(super) packets: u64,
    /// IP fragments, which have only a part of a UDP datagram.
    pub(super) fragments: u64,
    pub(super) not_udp: u64,
    /// Packets of interfaces with a link type that is not supported.
    pub(super) unknown_link: u64,
    /// Packets to other ports and addresses than those that were asked for.
    pub(super) left_out: u64,
    pub(super) datagrams: u64,
}

/// The properties of an interface in the capture.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Linktype,
    /// Units of time per second.
    resolution: u64,
    /// The offset of its times in seconds.
    offset: i64,
}

/// A capture that is being read.
pub(super) struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    source: CaptureSelection,
    interfaces: Vec<Interface>,
    packets: Packets,
    /// Whether the last packet is incomplete, because the capture was cut off or is still being written.
    cut_off: bool,
}

impl CaptureSelection {
    pub(super) fn is_stdin(&self) -> bool {
        self.pcap == Path::new("-")
    }

    /// Whether the command line names ports. Then each datagram to them counts as a segment, because segments without
    /// LB header have no magic number.
    pub(super) fn names_ports(&self) -> bool {
        !self.port.is_empty()
    }

    fn wants(&self, to: SocketAddr) -> bool {
        (self.port.is_empty() || self.port.contains(&to.port()))
            && self.host.is_none_or(|host| host == to.ip())
    }

    fn name(&self) -> String {
        if self.is_stdin() { "standard input".into() } else { self.pcap.display().to_string() }
    }

    pub(super) fn open(&self) -> anyhow::Result<Capture> {
        let input: Box<dyn Read + Send> = if self.is_stdin() {
            Box::new(stdin())
        } else {
            let file = File::open(&self.pcap);
            Box::new(file.with_context(|| format!("cannot read {}", self.pcap.display()))?)
        };
        self.read(input)
    }

    fn read(&self, input: Box<dyn Read + Send>) -> anyhow::Result<Capture> {
        let reader = pcap_parser::create_reader(BUFFER, input).map_err(|error| match error {
            PcapError::ReadError => anyhow!("cannot read {}", self.name()),
            _ => anyhow!("{} is neither pcap nor pcapng", self.name()),
        })?;
        let (interfaces, packets) = (Vec::new(), Packets::default());
        Ok(Capture { reader, source: self.clone(), interfaces, packets, cut_off: false })
    }
}

impl Capture {
    pub(super) fn packets(&self) -> Packets {
        self.packets
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Reads the next block, and passes on its datagram if there is one that was asked for. Returns false at the end.
    pub(super) fn next(
        &mut self,
        visit: impl FnOnce(&Datagram<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        let room = match self.reader.next() {
            Ok((offset, block)) => {
                let found = packet(&mut self.interfaces, &block);
                let seen = match found {
                    Ok(Some(packet)) => show(&self.source, &mut self.packets, packet, visit),
                    Ok(None) => Ok(()),
                    Err(problem) => Err(problem.context(self.source.name())),
                };
                self.reader.consume(offset);
                return seen.map(|()| true);
            }
            Err(PcapError::Eof) => return Ok(false),
            Err(PcapError::UnexpectedEof) => {
                self.cut_off = true;
                return Ok(false);
            }
            Err(PcapError::Incomplete(_)) => false,
            Err(PcapError::BufferTooSmall) => true,
            Err(PcapError::ReadError) => bail!("cannot read {}", self.source.name()),
            Err(_) => bail!("{} is damaged behind packet {}", self.source.name(), self.packets.packets),
        };
        if room {
            let most = 2 * self.reader.data().len().max(BUFFER);
            if most > LONGEST || !self.reader.grow(most) {
                let (name, packets) = (self.source.name(), self.packets.packets);
                bail!("{name} is damaged: what follows packet {packets} claims to be longer than any packet");
            }
        }
        match self.reader.refill() {
            Ok(()) => Ok(true),
            Err(_) => bail!("cannot read {}", self.source.name()),
        }
    }
}

struct CapturedPacket<'a> {
    time: u64,
    link: Linktype,
    bytes: &'a [u8],
}

fn packet<'a>(
    interfaces: &mut Vec<Interface>,
    block: &'a PcapBlockOwned<'_>,
) -> anyhow::Result<Option<CapturedPacket<'a>>> {
    let interface = |at: u32| {
        let known = interfaces.get(at as usize).copied();
        known.with_context(|| format!("a packet is of interface {at}, which was not described"))
    };
    Ok(match block {
        PcapBlockOwned::LegacyHeader(header) => {
            *interfaces = vec![Interface::of_file(header)];
            None
        }
        PcapBlockOwned::Legacy(packet) => {
            let Interface { link, resolution, .. } = interface(0)?;
            let part = u64::from(packet.ts_usec) * (1_000_000_000 / resolution);
            let time = u64::from(packet.ts_sec) * 1_000_000_000 + part;
            Some(CapturedPacket { time, link, bytes: packet.data })
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            None
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(described)) => {
            if interfaces.len() == INTERFACES {
                bail!("more than {INTERFACES} interfaces are described");
            }
            interfaces.push(Interface::described(described)?);
            None
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let interface = interface(packet.if_id)?;
            let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            Some(CapturedPacket {
                time: interface.time(units),
                link: interface.link,
                bytes: packet.packet_data(),
            })
        }
        // This kind of block has no time.
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            Some(CapturedPacket { time: 0, link: interface(0)?.link, bytes: packet.packet_data() })
        }
        PcapBlockOwned::NG(_) => None,
    })
}

fn show(
    source: &CaptureSelection,
    packets: &mut Packets,
    packet: CapturedPacket<'_>,
    visit: impl FnOnce(&Datagram<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    packets.packets += 1;
    match link::datagram(packet.link, packet.bytes) {
        Ok(link::Udp { from, to, .. }) if from.is_ipv4() != to.is_ipv4() => packets.not_udp += 1,
        Ok(link::Udp { to, .. }) if !source.wants(to) => packets.left_out += 1,
        Ok(link::Udp { from, to, bytes, len }) => {
            packets.datagrams += 1;
            return visit(&Datagram { time: packet.time, from, to, bytes, len });
        }
        Err(link::Other::NotUdp) => packets.not_udp += 1,
        Err(link::Other::Fragment) => packets.fragments += 1,
        Err(link::Other::Link) => packets.unknown_link += 1,
    }
    Ok(())
}

impl Interface {
    fn of_file(header: &PcapHeader) -> Self {
        let resolution = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
        // The bits above these may have the length of a checksum.
        let link = Linktype(header.network.0 & 0x03ff_ffff);
        Self { link, resolution, offset: 0 }
    }

    fn described(block: &InterfaceDescriptionBlock<'_>) -> anyhow::Result<Self> {
        let exponent = u32::from(block.if_tsresol & 0x7f);
        let base: u64 = if block.if_tsresol & 0x80 == 0 { 10 } else { 2 };
        let resolution = base.checked_pow(exponent).context("an interface has times finer than any")?;
        Ok(Self { link: block.linktype, resolution, offset: block.if_tsoffset })
    }

    fn time(&self, units: u64) -> u64 {
        let nanos = u128::from(units) * 1_000_000_000 / u128::from(self.resolution);
        let offset = i128::from(self.offset) * 1_000_000_000;
        u64::try_from(offset.saturating_add(i128::try_from(nanos).unwrap_or(i128::MAX)).max(0))
            .unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
