//! RoCEv2 on ordinary UDP sockets: the embedded provider.
//!
//! [`open`] opens a device on one local address. The crate `naa_udp` sends and receives datagrams. The crate
//! `roce` parses the packets and implements the protocol.
//!
//! In the example, one program connects two queue pairs of the same device with each other. If a connection leads to
//! another machine, a program on one machine listens and accepts, and a program on the other machine connects.
//!
//! ```rust
//! use roce_udp::{EmbeddedConfig, free_loopback, open};
//! use verbs::{CmEvent, ConnParam, QpCap, WaitMode};
//!
//! let device = open(free_loopback()?, &EmbeddedConfig::default())?;
//! let (channel, pd, cq) = (device.create_channel()?, device.alloc_pd()?, device.create_cq(16)?);
//! let active = pd.create_qp(&cq, &cq, QpCap::default())?;
//! let passive = pd.create_qp(&cq, &cq, QpCap::default())?;
//! let (_, port) = channel.listen(0, 1)?;
//! let remote = (device.attr().address, port).into();
//! channel.connect(&active, remote, &ConnParam::default())?;
//!
//! let mut established = 0;
//! while established < 2 {
//!     channel.wait(WaitMode::Block, None)?;
//!     match channel.next_event()? {
//!         Some(CmEvent::ConnectRequest { id, .. }) => channel.accept(id, &passive, &ConnParam::default())?,
//!         Some(CmEvent::Established { .. }) => established += 1,
//!         other => panic!("no connection: {other:?}"),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

mod device;
mod driver;
mod engine;
#[cfg(all(test, loom))]
mod loom_model;
mod loopback;
mod loss_injection;
mod memory;
mod notifiers;
mod progress_owner;
mod socket_error;
mod spin;
mod sync;
mod sys;
mod takeover_timer;
mod trace;
mod waiters;

pub use loopback::{NoFreeLoopback, free_loopback};
pub use loss_injection::LossInjection;
pub use naa_udp::PortConfig;
pub use roce::{Config as ProtocolConfig, RefusalCause, wire::ROCE_PORT};
pub use trace::{RefusedHeader, RefusedPacket, Taken, Trace};

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use naa_udp::{Port, local_mtu};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use roce::{Config, Endpoint};
use verbs::{Context, DeviceAttr, Error};

use crate::{device::EmbeddedDevice, driver::Embedded, engine::Engine, socket_error::socket_error};

/// The options with which [`open`] opens a device.
#[derive(Clone, Debug, Default)]
pub struct EmbeddedConfig {
    /// The limits and settings of the device's endpoint, which implements the RoCEv2 protocol.
    pub config: Config,
    /// The settings of the device's UDP socket.
    pub port: PortConfig,
    /// The maximum number of payload bytes per packet: one of the path MTUs from 256 to 4096. `None` stands for the
    /// largest path MTU that the interface's MTU allows.
    pub max_path_mtu: Option<u32>,
    /// True if `open` is to fail when another socket holds the UDP port 4791 of the address. If this is false and
    /// another socket holds the port, `open` opens a device that cannot listen.
    pub must_listen: bool,
    /// The artificial loss of received datagrams, for tests; `None` if no datagram is to be lost on purpose.
    pub loss: Option<LossInjection>,
    /// The trace to which the device writes the packets that it refuses.
    pub trace: Option<Trace>,
    /// True if a region always keeps the access rights with which it was registered, as a region of a NIC does.
    /// [`DeviceAttr::revokes`] is then false. Tests set this option to check programs against devices that cannot
    /// revoke access rights.
    pub keeps_access: bool,
}

/// The largest size of IP, UDP and RoCE headers in bytes, as rdma_cm counts them (iboe_get_mtu, IB_MAX_HEADERS).
const HEADERS: u32 = 96;

#[derive(Debug)]
struct SystemEntropy(ChaCha20Rng);

impl roce::Entropy for SystemEntropy {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
}

/// Opens the embedded device on `local`, an address of this machine that is not a wildcard address.
///
/// The first device on an address gets the UDP port 4791 of this address. A device with the UDP port 4791 can listen,
/// and can connect to any RoCEv2 peer. A later device on the same address gets an ephemeral UDP port. Such a device
/// cannot listen, and can connect only to peers that also use the embedded provider. `DeviceAttr::can_listen` is true
/// if the device has the UDP port 4791.
///
/// # Errors
/// Fails with [`Error::Invalid`] if `local` is a wildcard, multicast or broadcast address, with [`Error::NoDevice`] if
/// it is not an address of this machine, and with the errors of [`path_mtu`]. Fails with [`Error::Io`] if the operating
/// system refuses a socket, an eventfd or a thread. If the UDP port 4791 is in use, `open` fails only if
/// [`EmbeddedConfig::must_listen`] is true.
pub fn open(local: IpAddr, options: &EmbeddedConfig) -> Result<Context, Error> {
    let bind = |port| Port::bind(SocketAddr::new(local, port), &options.port).map_err(socket_error);
    let (port, cannot_listen) = match bind(ROCE_PORT) {
        Ok(port) => (port, None),
        Err(error @ Error::AddressInUse { .. }) if !options.must_listen => {
            (bind(0)?, Some(error.to_string()))
        }
        Err(error) => return Err(error),
    };
    let max_path_mtu = path_mtu(local_mtu(local).map_err(socket_error)?, options.max_path_mtu)?;
    let config = &options.config;
    let attr = DeviceAttr {
        provider: "embedded",
        name: format!("embedded RoCEv2 on {}", port.local_addr()),
        address: port.local_addr().ip(),
        max_path_mtu,
        max_inline_data: config.max_inline_data,
        max_sge: config.max_sge,
        max_qp: config.max_qp,
        max_qp_wr: config.max_wr,
        max_mr: config.max_mr,
        max_cq: config.max_cq,
        max_cqe: config.max_cq_depth,
        max_msg: 1 << 31,
        can_listen: cannot_listen.is_none(),
        revokes: !options.keeps_access,
    };
    // RKeys, PSNs and queue pair numbers are the protocol's only secrets, so attackers must not be able to guess them.
    // The generator of these random numbers therefore gets its seed from the operating system.
    let entropy = SystemEntropy(ChaCha20Rng::from_os_rng());
    let endpoint = Endpoint::new(config.clone(), max_path_mtu, Box::new(entropy));
    let device = EmbeddedDevice::start(Engine::new(endpoint, port, options), attr, cannot_listen)?;
    Ok(Context::new(Arc::new(Embedded(device))))
}

/// Returns the largest path MTU that fits an interface with the MTU `link`. If `wanted` is not `None`, the returned
/// path MTU is at most `wanted`. The returned path MTU, `link` and `wanted` are in bytes.
///
/// # Errors
/// Fails with [`Error::Invalid`] if the MTU `link` has no room for 256 bytes of payload, or if `wanted` is below 256.
pub fn path_mtu(link: u32, wanted: Option<u32>) -> Result<u32, Error> {
    let fits = |mtu: &u32| *mtu + HEADERS <= link && wanted.is_none_or(|wanted| *mtu <= wanted);
    [4096, 2048, 1024, 512, 256].into_iter().find(fits).ok_or(Error::Invalid(
        "no path MTU from 256 to 4096 fits the interface's MTU less 96 bytes of headers",
    ))
}
