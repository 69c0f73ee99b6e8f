//! Socket addresses in the Linux kernel's format.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An IPv4 or IPv6 socket address. If all bytes of a raw address are zero, its family is `AF_UNSPEC`, and it contains
/// no address.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    pub(super) const LEN: libc::socklen_t = size_of::<Self>() as libc::socklen_t;

    pub(super) fn unspecified() -> Self {
        // SAFETY: every field consists of integers, and zero is a valid value for all of them.
        unsafe { std::mem::zeroed() }
    }

    /// Converts `addr` into the Linux kernel's format. Returns the raw address and its length in bytes, which depends
    /// on the address family.
    pub(super) fn new(addr: SocketAddr) -> (Self, libc::socklen_t) {
        let mut raw = Self::unspecified();
        match addr {
            SocketAddr::V4(addr) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: addr.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (raw, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(addr) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: addr.port().to_be(),
                    sin6_flowinfo: addr.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                    sin6_scope_id: addr.scope_id(),
                };
                (raw, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// Converts the raw address back to a `SocketAddr`; returns `None` if the Linux kernel did not fill in an address.
    pub(super) fn get(&self) -> Option<SocketAddr> {
        // SAFETY: all bytes are initialised, every bit pattern is valid in every field, and all variants begin
        // with the family.
        unsafe {
            match i32::from(self.family) {
                libc::AF_INET => {
                    let ip = self.v4.sin_addr.s_addr.to_ne_bytes().into();
                    Some(SocketAddrV4::new(ip, u16::from_be(self.v4.sin_port)).into())
                }
                libc::AF_INET6 => {
                    let (ip, port) =
                        (Ipv6Addr::from(self.v6.sin6_addr.s6_addr), u16::from_be(self.v6.sin6_port));
                    // A received flow label is not part of the peer's address.
                    Some(SocketAddrV6::new(ip, port, 0, self.v6.sin6_scope_id).into())
                }
                _ => None,
            }
        }
    }
}
