//! The network interface that owns a local address.

use std::{
    ffi::CStr,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    ptr,
};

use super::{address::RawAddress, check, option};

/// An address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The name of the interface, for example `eth0`.
    pub interface: String,
    /// The IP address of the interface.
    pub address: IpAddr,
}

/// Returns all addresses of this machine's interfaces, in the order in which the Linux kernel lists them.
///
/// # Errors
/// Fails with the errors of getifaddrs(3).
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut found = Vec::new();
    first(|node| {
        if let Some(address) = address(node.ifa_addr) {
            // SAFETY: `ifa_name` points to a C string in the list of `getifaddrs`, which lives until `freeifaddrs`.
            let name = unsafe { CStr::from_ptr(node.ifa_name) };
            found.push(InterfaceAddress { interface: name.to_string_lossy().into_owned(), address });
        }
        None::<()>
    })?;
    Ok(found)
}

/// The MTU of the interface that owns `ip`; `None` if no interface owns `ip`.
pub(crate) fn mtu(ip: IpAddr) -> io::Result<Option<u32>> {
    first(|node| owns(node, ip).then(|| mtu_of(node, ip)))?.transpose()
}

/// Calls `visit` for the entries of the list of `getifaddrs` until `visit` returns a value, and returns this value.
fn first<T>(mut visit: impl FnMut(&libc::ifaddrs) -> Option<T>) -> io::Result<Option<T>> {
    let mut list = ptr::null_mut();
    // SAFETY: `list` is a live pointer, in which `getifaddrs` stores the start of a list.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut found = None;
    let mut at = list;
    // SAFETY: the nodes live until `freeifaddrs`, and the list ends with null.
    while let Some(node) = unsafe { at.as_ref() } {
        found = visit(node);
        if found.is_some() {
            break;
        }
        at = node.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs` and nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

fn owns(node: &libc::ifaddrs, ip: IpAddr) -> bool {
    let Some(own) = address(node.ifa_addr) else { return false };
    let loopback = node.ifa_flags & libc::IFF_LOOPBACK as u32 != 0;
    // A loopback interface owns every address of its networks: 127.0.0.2, for example, needs no configuration.
    own == ip || loopback && address(node.ifa_netmask).is_some_and(|mask| same_network(own, ip, mask))
}

fn same_network(a: IpAddr, b: IpAddr, mask: IpAddr) -> bool {
    match (a, b, mask) {
        (IpAddr::V4(a), IpAddr::V4(b), IpAddr::V4(mask)) => a & mask == b & mask,
        (IpAddr::V6(a), IpAddr::V6(b), IpAddr::V6(mask)) => a & mask == b & mask,
        _ => false,
    }
}

/// Returns the IP address at `raw`; `None` if `raw` is null or points to an address that is neither IPv4 nor IPv6.
fn address(raw: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: `raw` is null, or points to a socket address that has the length of its address family.
    let len = match unsafe { raw.as_ref() }.map(|raw| i32::from(raw.sa_family))? {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let mut copy = RawAddress::unspecified();
    // SAFETY: `len` bytes are readable at `raw`, and `copy` is at least as long.
    unsafe { ptr::copy_nonoverlapping(raw.cast::<u8>(), (&raw mut copy).cast(), len) };
    copy.get().map(|addr| addr.ip())
}

fn mtu_of(node: &libc::ifaddrs, ip: IpAddr) -> io::Result<u32> {
    let socket = option::open(SocketAddr::new(ip, 0))?;
    // SAFETY: `ifa_name` points to a C string in the list of `getifaddrs`, which lives until `freeifaddrs`.
    let name = unsafe { CStr::from_ptr(node.ifa_name) };
    // SAFETY: an `ifreq` consists of integers, pointers and arrays of integers, and zero is a valid value for all of
    // them.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The loop copies the whole name, because an interface name is always shorter than `ifr_name`. The last byte of
    // `ifr_name` stays zero and ends the name.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = *from as libc::c_char;
    }
    // SAFETY: `request` is a live `ifreq` with an interface name, which is what `SIOCGIFMTU` reads.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) })?;
    // SAFETY: the Linux kernel wrote this field.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}
