//! Chooses an address of an accelerator whose name has several addresses.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use crate::{Device, Error, SessionConfig, SessionSetup, SetupStage, clock};

/// Returns the addresses of the machine with the name `host`, each with the port `port`, in the order in which the
/// operating system recommends them.
///
/// # Errors
/// Fails with the error of the operating system if the operating system does not know the name.
pub fn addresses_of(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Chooses an address of `host`, and calls `open` to open a device for this address. The function calls `resolve` to
/// look up the addresses of the name `host`. Programs pass [`addresses_of`] as `resolve`, and tests pass a function
/// that returns other addresses. If the name has several addresses, the function sets up a trial connection to one
/// address after the other, and closes each trial connection at once. The first address that accepts a trial connection
/// is used.
///
/// The accelerator counts and logs each of these trial connections as a session. The accelerator notices the end of a
/// trial connection only some time after this function has closed it. Until then, an accelerator with room for only one
/// session can refuse the program's next connection. The time limit of all trial connections together is the
/// `setup_timeout` of `config`. A session that the program connects afterwards has the whole `setup_timeout` again.
///
/// # Errors
/// Fails with [`Error::Name`] if the name is not known. If the name has one address, the function can fail with the
/// error of `open`. If the name has several addresses, the function can fail with the errors of [`try_each`].
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
            let mut setup = SessionSetup::new(&device, address, &[], &config)?;
            setup.connect()?;
            setup.reach(SetupStage::Connected, clock::after(limit))?;
            drop(setup);
            Ok((device, address))
        }),
    }
}

/// Calls `attempt` with one address after the other, until a call of `attempt` succeeds. Each attempt gets a time
/// limit: the time that is left of `limit`, divided by the number of addresses that were not tried yet. An error that
/// does not concern the tried address ends the search at once. `name` is the name of the accelerator, for log lines and
/// errors.
///
/// # Errors
/// Fails with the error of `attempt` if there is only one address, or if the error does not concern the tried address.
/// If there are several addresses and all attempts fail, the function fails with [`Error::NoneReached`], which contains
/// the error of each address. If all these errors are [`Error::Environment`], the function returns the last of them
/// instead of [`Error::NoneReached`]. Fails with [`Error::Name`] if `addresses` is empty.
pub fn try_each<T>(
    name: &str,
    addresses: &[SocketAddr],
    limit: Duration,
    mut attempt: impl FnMut(SocketAddr, Duration) -> Result<T, Error>,
) -> Result<T, Error> {
    let deadline = clock::after(limit);
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

/// Returns true if the error concerns the address that was tried, so that another address may work.
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
