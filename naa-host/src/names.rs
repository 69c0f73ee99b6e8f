//! Finds an address that works for an accelerator whose name has several addresses.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use crate::{Device, Error, Opening, SessionConfig, Stage};

/// The addresses that the operating system knows for the name of a machine, with `port`, in the order in which they are to be
/// tried.
///
/// # Errors
/// The operating system's error, if it does not know the name.
pub fn addresses_of(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Finds the address of `host` to use, and opens a device for this address with `open`. `resolve` looks the name up, as
/// [`addresses_of`] does. If the name has several addresses, they are tried in order by connections that are closed at once.
/// The first address that accepts a connection is used.
///
/// So an accelerator whose name has several addresses counts and logs one session more. An accelerator with room for a single
/// session may refuse the next connection until it has noticed the end of the first. Finding the address takes up to the
/// `setup_timeout` of `config`, and connecting takes up to the same time again.
///
/// # Errors
/// [`Error::Name`] if the name is not known; the error of `open`, if the name has one address; else the same errors as
/// [`try_each`].
pub fn find(
    resolve: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>>,
    (host, port): (&str, u16),
    config: &SessionConfig,
    open: impl Fn(SocketAddr) -> Result<Device, Error>,
) -> Result<(Device, SocketAddr), Error> {
    let unknown = |source| Error::Name { name: host.into(), source };
    let addresses = resolve(host, port).map_err(unknown)?;
    match addresses[..] {
        [] => Err(unknown(io::Error::other("it has no address"))),
        [only] => Ok((open(only)?, only)),
        _ => try_each(host, &addresses, config.setup_timeout, |address, limit| {
            let device = open(address)?;
            let config = SessionConfig { setup_timeout: limit, ..config.clone() };
            let mut opening = Opening::new(&device, address, &[], &config)?;
            opening.connect()?;
            opening.reach(Stage::Connected, Instant::now() + limit)?;
            drop(opening);
            Ok((device, address))
        }),
    }
}

/// Calls `attempt` with one address after the other, until it succeeds. Each attempt gets an equal part of the time left. An
/// error that is not about the address ends the search at once. `name` is the name that has these addresses.
///
/// # Errors
/// The error of `attempt` if there is one address, or if all errors are about the environment; else [`Error::NoneReached`],
/// which has the error of each address. [`Error::Name`] if there is no address.
pub fn try_each<T>(
    name: &str,
    addresses: &[SocketAddr],
    limit: Duration,
    mut attempt: impl FnMut(SocketAddr, Duration) -> Result<T, Error>,
) -> Result<T, Error> {
    let deadline = Instant::now() + limit;
    let mut tried = Vec::new();
    for (number, &address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - number).unwrap_or(u32::MAX);
        match attempt(address, share) {
            Ok(reached) => return Ok(reached),
            Err(error) if is_of_the_address(&error) => {
                tracing::info!("{name}: {address} is not used: {error}");
                tried.push((address, error));
            }
            Err(error) => return Err(error),
        }
    }
    let is_environment = |(_, error): &(_, Error)| matches!(error, Error::Environment { .. });
    let is_one = tried.len() == 1 || tried.iter().all(is_environment);
    match tried.pop() {
        Some((_, error)) if is_one => Err(error),
        Some(last) => {
            tried.push(last);
            Err(Error::NoneReached { name: name.into(), tried })
        }
        None => Err(Error::Name { name: name.into(), source: io::Error::other("it has no address") }),
    }
}

/// Whether the error is about this address, so that another address may work.
fn is_of_the_address(error: &Error) -> bool {
    matches!(
        error,
        Error::ConnectionRefused { .. }
            | Error::Unreachable { .. }
            | Error::SetupTimedOut { .. }
            | Error::PeerGone { .. }
            | Error::Device(_)
            | Error::Environment { .. }
    )
}
