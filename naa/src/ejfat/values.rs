//! Numbers and addresses on the command line and in INI files.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use ejfat::listen::{self, Listen, PortChoice};

use crate::{Usage, kernel_process::raise_file_limit, show};

pub(crate) fn size(text: &str) -> Result<u32, String> {
    let wrong = || "write a number of bytes below 4G, such as 65536, 64K or 1M".to_owned();
    bytes(text).and_then(|bytes| u32::try_from(bytes).ok()).ok_or_else(wrong)
}

pub(crate) fn memory(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| "write a number of bytes, such as 512M or 8G".into())
}

fn bytes(text: &str) -> Option<u64> {
    crate::size::bytes(text).filter(|&bytes| bytes > 0)
}

pub(crate) fn gigabits(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|&rate: &f64| rate == 0.0 || (1e-6..=1e6).contains(&rate));
    rate.ok_or_else(|| "write Gbit/s, such as 0.5 or 10, or 0".into())
}

/// Reads an address. If it has no port, it gets the usual port of a load balancer's data address.
pub(crate) fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let (ip, port) = ip_and_port(text)?;
    Ok(SocketAddr::new(ip, port.unwrap_or(ejfat::wire::DATA_PORT)))
}

pub(crate) fn ip_and_port(text: &str) -> anyhow::Result<(IpAddr, Option<u16>)> {
    listen::ip_and_port(text).map_err(|error| Usage::error(error.to_string()))
}

/// The ports at which to listen for segments. Each address has a list of its own, which one reader serves.
pub(crate) fn listen(addresses: &[String], ports: Option<PortChoice>) -> anyhow::Result<Vec<Vec<Listen>>> {
    let of = |text: &String| listen::listen(text, ports).map_err(|error| Usage::error(error.to_string()));
    let listen = addresses.iter().map(of).collect::<anyhow::Result<Vec<_>>>()?;
    if ports.is_some() {
        // Each port is an open file.
        raise_file_limit();
    }
    Ok(listen)
}

/// Checks that the memory for events has room for the longest one.
///
/// # Errors
/// If the longest event is longer than the memory for all events.
pub(crate) fn check_max_event(max_event: u32, memory: u64) -> anyhow::Result<()> {
    if u64::from(max_event) > memory {
        let [event, memory] = [u64::from(max_event), memory].map(show::bytes);
        return Err(Usage::error(format!(
            "--max-event, {event} (64 MiB unless told), is more than --memory, {memory} (1 GiB unless told): such an event could never \
             be complete; lower --max-event or raise --memory"
        )));
    }
    Ok(())
}

/// Reads the seconds of the option `what`.
pub(crate) fn seconds(seconds: f64, what: &str) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Usage::error(format!("{what} {seconds} is no time in seconds")))
}

/// Reads the seconds of an option, as [`seconds`] does, with a shorter error.
pub(crate) fn wanted_seconds(seconds: f64, option: &str) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| Usage::error(format!("{option} wants seconds")))
}

/// Warns if the system granted a smaller receive buffer than was asked for.
pub(crate) fn report_buffer(granted: u64, wanted: u64) {
    if granted < wanted {
        let (shown, granted) = (show::bytes(wanted), show::bytes(granted));
        tracing::warn!(
            "the receive buffer is {granted} instead of {shown}: bursts may be lost; raise it with \
             `sysctl net.core.rmem_max={wanted}`"
        );
    }
}

/// Warns of ports of a range that another process holds: segments to them are not received.
pub(crate) fn report_skipped(skipped: &[SocketAddr]) {
    if !skipped.is_empty() {
        let (count, at) = (show::count(skipped.len() as u64, "port"), addresses(skipped));
        tracing::warn!("other programs have {count}, so segments to them do not come here: {at}");
    }
}

/// Writes addresses briefly: consecutive ports of one IP address become a range.
pub(crate) fn addresses(all: &[SocketAddr]) -> String {
    let follows =
        |a: &SocketAddr, b: &SocketAddr| a.ip() == b.ip() && a.port().checked_add(1) == Some(b.port());
    let run = |run: &[SocketAddr]| match run {
        [first, .., last] => format!("{first}-{}", last.port()),
        run => run.iter().map(ToString::to_string).collect(),
    };
    all.chunk_by(follows).map(run).collect::<Vec<_>>().join(", ")
}

/// A random seed for hash tables. The system's random numbers come through the standard library's hash tables.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ports_are_told_as_a_range() {
        let all = ["10.0.0.1:19522", "10.0.0.1:16384", "10.0.0.1:16385", "[fd00::1]:16386"];
        let all = all.map(|at| at.parse().unwrap());
        assert_eq!(addresses(&all), "10.0.0.1:19522, 10.0.0.1:16384-16385, [fd00::1]:16386");
    }
}
