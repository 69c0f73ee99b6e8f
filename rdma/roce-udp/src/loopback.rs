//! Finds free loopback addresses. The address at which a process starts its search depends on the process id.

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    sync::atomic::{AtomicU32, Ordering},
};

use roce::wire::ROCE_PORT;

/// The number of addresses that one call of [`free_loopback`] tries.
const CANDIDATES: u32 = 64;

/// The error if no free loopback address was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "UDP port {ROCE_PORT} is taken on every loopback address tried; where kernel soft-RoCE holds it, \
     `modprobe -r rdma_rxe` frees it, or use another network namespace: `unshare -rn`, `ip link set lo up`"
)]
pub struct NoFreeLoopback;

/// Finds a loopback address whose UDP port 4791 is free. Each call returns an address that no earlier call in the same
/// process has returned. The search starts at an address that depends on the process id, so processes rarely try the
/// same addresses. Another process may take the address before the caller binds it.
///
/// # Errors
/// Fails with [`NoFreeLoopback`] if none of 64 addresses is free.
pub fn free_loopback() -> Result<IpAddr, NoFreeLoopback> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(CANDIDATES);
    let mut candidates = (0..CANDIDATES).map(|_| {
        let index = NEXT.fetch_add(1, Ordering::Relaxed);
        // The addresses start at 127.8.0.0, because local servers and the names in `/etc/hosts` usually have lower
        // loopback addresses.
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
