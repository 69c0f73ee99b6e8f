//! The simulated load balancer as the engine of a data plane.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use ejfat::lb::{Engine, EngineCounters, EngineError, Image, LbId};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use crate::{
    BuildError, Driver, LbTop, Lengths, Macs, Model, Module, Packet, Rates, Tools, VersionError, frames,
};

const MACS: Macs = Macs { own: [2, 0x4e, 0x41, 0x41, 0, 1], hop: [2, 0x4e, 0x41, 0x41, 0, 2] };
/// The source MAC address of all frames.
const SENDER: [u8; 6] = [2, 0x4e, 0x41, 0x41, 0, 3];
/// A frame leaves less than so many cycles after its last beat came, if it is forwarded.
const MOST_CYCLES: u32 = 80;

/// Why there is no simulated engine.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedError {
    #[error(
        "the engine rtl needs Verilator, in a checkout of naa: `cargo xtask fpga --only sim` installs it into target/fpga/tools, and NAA_FPGA_TOOLS names another folder"
    )]
    NoTools,
    #[error("cannot make a model of the load balancer's RTL")]
    Build(#[from] BuildError),
    #[error(transparent)]
    Version(#[from] VersionError),
}

/// The module `lb_top` in simulation, with 512 bits per cycle. It forwards some thousand datagrams per second.
#[derive(Debug)]
pub struct Simulated {
    driver: Driver<LbTop>,
    /// Whether a datagram passed since the counters were taken. Without one they are all 0, and reading them takes thousands of cycles.
    has_counted: bool,
}

impl Simulated {
    /// Makes the model of the RTL, unless there is one of the same RTL. It takes half a minute.
    pub fn prepare() -> Result<(), SimulatedError> {
        Self::model().map(drop)
    }

    fn model() -> Result<Model, SimulatedError> {
        let tools = Tools::find().ok_or(SimulatedError::NoTools)?;
        Ok(Module::new("lb_top").with("Width", 512).model(&tools)?)
    }

    /// Starts a load balancer without tables. Makes its model first if there is none.
    pub fn start() -> Result<Self, SimulatedError> {
        let model = Self::model()?;
        let top = LbTop::new(model, [Rates::full(), Rates::full()]);
        Ok(Self { driver: Driver::new(top, MACS)?, has_counted: false })
    }
}

impl Engine for Simulated {
    fn load(&mut self, image: Image, guards: &BTreeMap<LbId, u64>) -> Result<(), EngineError> {
        self.driver.load(image, guards)
    }

    fn set_horizon(&mut self, lb: LbId, horizon: u64) {
        self.driver.set_horizon(lb, horizon);
    }

    fn forward(&mut self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Option<(SocketAddr, Vec<u8>)> {
        self.has_counted = true;
        let top = &mut self.driver.registers;
        top.source.push(Packet {
            bytes: frames::of_datagram([SENDER, MACS.own], [from, to], datagram)?,
            ..Packet::default()
        });
        while !top.source.is_empty() {
            top.cycle();
        }
        let mut cycles = 0;
        while cycles < MOST_CYCLES || !top.sink.is_between_packets() {
            if let Some(sent) = top.sink.pop() {
                return datagram_of(&sent.bytes, to).filter(|_| sent.last == 0);
            }
            top.cycle();
            cycles += 1;
        }
        None
    }

    fn take(&mut self) -> EngineCounters {
        if std::mem::take(&mut self.has_counted) {
            self.driver.take(Lengths::Datagrams)
        } else {
            EngineCounters::default()
        }
    }
}

/// Where the datagram in a frame goes, and its bytes. Returns `None` if the frame is not one that the load balancer at this address
/// should send: each field that it changes is checked, and both checksums.
fn datagram_of(frame: &[u8], own: IpAddr) -> Option<(SocketAddr, Vec<u8>)> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(TransportSlice::Udp(udp)) = packet.transport else { return None };
    let header = udp.to_header();
    let (to, checksum) = match packet.net? {
        NetSlice::Ipv4(ip) => {
            let ip = ip.header();
            let is_sound = ip.header_checksum() == ip.to_header().calc_header_checksum();
            let is_ours = IpAddr::from(ip.source_addr()) == own && ip.ttl() == frames::HOPS - 1;
            let checksum = header.calc_checksum_ipv4(&ip.to_header(), udp.payload()).ok()?;
            (is_sound && is_ours).then_some((ip.destination_addr().into(), checksum))?
        }
        NetSlice::Ipv6(ip) => {
            let ip = ip.header();
            let is_ours = IpAddr::from(ip.source_addr()) == own && ip.hop_limit() == frames::HOPS - 1;
            let checksum = header.calc_checksum_ipv6(&ip.to_header(), udp.payload()).ok()?;
            is_ours.then_some((ip.destination_addr().into(), checksum))?
        }
        NetSlice::Arp(_) => return None,
    };
    (header.checksum == checksum)
        .then(|| (SocketAddr::new(to, header.destination_port), udp.payload().to_vec()))
}
