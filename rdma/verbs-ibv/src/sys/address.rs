//! Conversion between Rust's socket addresses and those of C.

use std::{
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::bindings::{sockaddr, sockaddr_storage};

/// Converts `address` to a structure that has room for IPv4 and IPv6 addresses.
pub(super) fn to_c(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: `sockaddr_storage` has only numbers as fields, and zero is a valid value of every number.
    let mut storage: sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    let place: *mut sockaddr_storage = &mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let c = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: `place` points to the local variable `storage`. A `sockaddr_storage` is large enough and
            // sufficiently aligned for every socket address.
            unsafe { place.cast::<libc::sockaddr_in>().write(c) };
        }
        SocketAddr::V6(v6) => {
            let c = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: `place` points to the local variable `storage`, which is large enough and sufficiently aligned
            // for every socket address.
            unsafe { place.cast::<libc::sockaddr_in6>().write(c) };
        }
    }
    storage
}

/// Returns the address at `c`, or `None` if the address is not an IP address.
///
/// # Safety
/// `c` must point to a readable `sockaddr_storage`.
pub(super) unsafe fn from_c(c: *const sockaddr) -> Option<SocketAddr> {
    // SAFETY: the caller guarantees that `c` points to a readable `sockaddr_storage`. The address family says which
    // structure the storage contains.
    unsafe {
        match i32::from((*c).sa_family) {
            libc::AF_INET => {
                let v4 = c.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = c.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(SocketAddr::new(IpAddr::V6(ip), u16::from_be(v6.sin6_port)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["10.9.0.1:7174", "[fd00:9::1]:12345", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let c = to_c(address);
            // SAFETY: the local variable `c` is a `sockaddr_storage` that outlives the call.
            let back = unsafe { from_c((&raw const c).cast()) };
            assert_eq!(back, Some(address));
        }
    }
}
