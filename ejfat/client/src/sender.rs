//! A sender that a load balancer lets in.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::{ClientError, Connection, RouteError, Syncs, source_towards};

/// A sender that is not let in.
#[derive(Debug, thiserror::Error)]
pub enum AllowedSenderError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error(transparent)]
    Sync(#[from] ejfat_udp::Error),
}

/// This machine's addresses in a reservation's list of senders, until it is closed or dropped. Only addresses that were not in
/// it before are taken off again: those may be another sender's.
#[derive(Debug)]
pub struct AllowedSender {
    connection: Connection,
    lb: String,
    addresses: Vec<IpAddr>,
    added: Vec<IpAddr>,
    syncs: Option<Syncs>,
}

impl AllowedSender {
    /// Adds the addresses from which this machine sends to each data address. An IP version without a route is left out if
    /// there is another one.
    ///
    /// # Errors
    /// If there is no route, or the control plane does not add them.
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
        // Without the right to read, none is known to be there.
        let there: Vec<IpAddr> = connection.status(lb).map_or_else(
            |_| Vec::new(),
            |status| status.sender_addresses.iter().filter_map(|text| text.parse().ok()).collect(),
        );
        connection.add_senders(lb, &addresses)?;
        let added = addresses.iter().copied().filter(|ip| !there.contains(ip)).collect();
        let (connection, lb) = (connection.clone(), lb.to_owned());
        Ok(Self { connection, lb, addresses, added, syncs: None })
    }

    /// The addresses that are let in.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Sends sync messages from now on.
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

    /// Sends the last sync, then takes off the addresses that it added.
    ///
    /// # Errors
    /// If the control plane does not take them off.
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
            tracing::warn!("{error} (this sender stays in the list)");
        }
    }
}
