//! A sender whose segments a load balancer takes.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::{ClientError, Connection, RouteError, Syncs, source_towards};

/// An error: the sender's addresses are not in the reservation's list.
#[derive(Debug, thiserror::Error)]
pub enum AllowedSenderError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error(transparent)]
    Sync(#[from] ejfat_udp::Error),
}

/// This machine's addresses in a reservation's list of senders. When it is closed or dropped, it removes the addresses that it
/// added. Addresses that were in the list before stay, because another sender may use them.
#[derive(Debug)]
pub struct AllowedSender {
    connection: Connection,
    lb: String,
    addresses: Vec<IpAddr>,
    added: Vec<IpAddr>,
    syncs: Option<Syncs>,
}

impl AllowedSender {
    /// Adds the addresses from which this machine sends to the data addresses. A data address without a route is left out if
    /// there is a route to another one.
    ///
    /// # Errors
    /// If there is no route to any of the data addresses, or the control plane does not add the addresses.
    pub fn open(connection: &Connection, lb: &str, data: &[SocketAddr]) -> Result<Self, AllowedSenderError> {
        let (mut addresses, mut problem) = (Vec::new(), None);
        for &to in data {
            match source_towards(to) {
                Ok(ip) if addresses.contains(&ip) => {}
                Ok(ip) => addresses.push(ip),
                Err(error) => problem = Some(error),
            }
        }
        if let Some(error) = problem.filter(|_| addresses.is_empty()) {
            return Err(error.into());
        }
        // A token without the right to read the list cannot tell which addresses are in it; then all count as added here.
        let there: Vec<IpAddr> = connection.status(lb).map_or_else(
            |_| Vec::new(),
            |status| status.sender_addresses.iter().filter_map(|text| text.parse().ok()).collect(),
        );
        connection.add_senders(lb, &addresses)?;
        let added = addresses.iter().copied().filter(|ip| !there.contains(ip)).collect();
        let (connection, lb) = (connection.clone(), lb.to_owned());
        Ok(Self { connection, lb, addresses, added, syncs: None })
    }

    /// Returns the addresses of this machine that are in the list.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Starts to send sync datagrams to the addresses `to`, one in each `period`.
    ///
    /// # Errors
    /// As [`Syncs::start`].
    pub fn keep_in_sync(
        &mut self,
        to: &[SocketAddr],
        source: u32,
        period: Duration,
    ) -> Result<(), AllowedSenderError> {
        self.syncs = Some(Syncs::start(to, source, period)?);
        Ok(())
    }

    /// Sends the last sync datagram, then removes the addresses that [`open`](Self::open) added.
    ///
    /// # Errors
    /// If the control plane does not remove the addresses.
    pub fn close(mut self) -> Result<(), ClientError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ClientError> {
        self.syncs.take();
        let added = std::mem::take(&mut self.added);
        if added.is_empty() { Ok(()) } else { self.connection.remove_senders(&self.lb, &added) }
    }
}

impl Drop for AllowedSender {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(
                "{error} (the addresses of this sender stay in the reservation's list; `naa lb senders remove` takes them off)"
            );
        }
    }
}
