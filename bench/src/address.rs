//! Loopback addresses for processes of their own.

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::bail;
use roce_udp::socket::ROCE_PORT;

/// Addresses looked at for one free one.
const CANDIDATES: u32 = 64;

/// A loopback address without a RoCEv2 stack, another one with every call. Where the search begins differs from
/// process to process.
pub(crate) fn free() -> anyhow::Result<IpAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(CANDIDATES);
    for _ in 0..CANDIDATES {
        let index = NEXT.fetch_add(1, Ordering::Relaxed);
        // From 127.8.0.0 on: apart from the machine's names, and from where servers usually are.
        let [_, second, third, last] = (first.wrapping_add(index) % (120 << 16) + (8 << 16)).to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(127, second, third, last));
        if UdpSocket::bind((address, ROCE_PORT)).is_ok() {
            return Ok(address);
        }
    }
    bail!(
        "UDP port {ROCE_PORT} is taken on every loopback address tried; where kernel soft-RoCE holds it, \
         `modprobe -r rdma_rxe` frees it, or use another network namespace: `unshare -rn`, `ip link set lo up`"
    )
}
