//! Loopback addresses for processes of their own.

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::socket::ROCE_PORT;

/// Addresses looked at for one free one.
const CANDIDATES: u32 = 64;

/// There is none to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "UDP port {ROCE_PORT} is taken on every loopback address tried; where kernel soft-RoCE holds it, \
     `modprobe -r rdma_rxe` frees it, or use another network namespace: `unshare -rn`, `ip link set lo up`"
)]
pub struct NoFreeLoopback;

/// A loopback address without a RoCEv2 stack, another one with every call. Where the search begins differs from
/// process to process. Until it is bound another process may take it.
///
/// # Errors
/// If none of a few dozen is free.
pub fn free_loopback() -> Result<IpAddr, NoFreeLoopback> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(CANDIDATES);
    let mut candidates = (0..CANDIDATES).map(|_| {
        let index = NEXT.fetch_add(1, Ordering::Relaxed);
        // From 127.8.0.0 on: apart from the machine's names, and from where servers usually are.
        let [_, second, third, last] = (first.wrapping_add(index) % (120 << 16) + (8 << 16)).to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(127, second, third, last))
    });
    candidates.find(|address| UdpSocket::bind((*address, ROCE_PORT)).is_ok()).ok_or(NoFreeLoopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_gives_another_address_of_loopback() {
        let (one, other) = (free_loopback().unwrap(), free_loopback().unwrap());
        assert!(one != other && one.is_loopback() && other.is_loopback(), "{one} {other}");
    }
}
