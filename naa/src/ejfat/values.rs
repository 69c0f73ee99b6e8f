//! Numbers and addresses on the command line and in INI files.

use std::net::SocketAddr;

use crate::Usage;

pub(crate) fn size(text: &str) -> Result<u32, String> {
    let wrong = || "write a number of bytes below 4G, such as 65536, 64K or 1M".to_owned();
    bytes(text).and_then(|bytes| u32::try_from(bytes).ok()).ok_or_else(wrong)
}

pub(crate) fn memory(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| "write a number of bytes, such as 512M or 8G".into())
}

/// With K, M or G for the binary units.
fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}

pub(crate) fn gigabits(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|&rate: &f64| rate == 0.0 || (1e-6..=1e6).contains(&rate));
    rate.ok_or_else(|| "write Gbit/s, such as 0.5 or 10, or 0".into())
}

/// Without a port it is the customary one of a load balancer's data address.
pub(crate) fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let (ip, port) = ip_and_port(text)?;
    Ok(SocketAddr::new(ip, port.unwrap_or(ejfat::wire::DATA_PORT)))
}

pub(crate) fn ip_and_port(text: &str) -> anyhow::Result<(std::net::IpAddr, Option<u16>)> {
    let with_port = text.parse().ok().map(|at: SocketAddr| (at.ip(), Some(at.port())));
    let plain = || Some((text.trim_matches(['[', ']']).parse().ok()?, None));
    with_port
        .or_else(plain)
        .ok_or_else(|| Usage::error(format!("{text:?} is no IP address, with or without a port")))
}

/// For hash tables: from the system, by way of the standard library's hash tables.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}
