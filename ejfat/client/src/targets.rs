//! The addresses to which segments and sync datagrams of a reservation are sent.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use ejfat::uri::{DataAddress, EjfatUri};
use proto::loadbalancer::ReserveLoadBalancerReply;

use crate::{ClientError, Connection};

/// The addresses of a reservation, from its URI or from the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// Where segments go: at most one address of each IP version.
    pub data: Vec<SocketAddr>,
    /// Where sync datagrams go.
    pub sync: Vec<SocketAddr>,
}

/// An error: the addresses of a reservation are not known.
#[derive(Debug, thiserror::Error)]
pub enum TargetsError {
    /// The EJFAT URI has no data address or no sync address, and the call that asks the control plane for the addresses
    /// of the reservation failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Neither the EJFAT URI nor the control plane has a data address of the reservation that can be used.
    #[error(
        "neither the EJFAT URI nor the control plane at {address} names a data address of reservation {lb}; add \
         ?data=ADDRESS to the URI, or let the operator of the control plane give the load balancer an address"
    )]
    Data {
        /// The text `HOST:PORT` of the control plane.
        address: String,
        /// The id of the reservation.
        lb: String,
    },
}

impl Targets {
    /// Returns the addresses that the URI names.
    pub fn of(uri: &EjfatUri) -> Self {
        let v4 = uri.data_v4.as_ref().map(DataAddress::address);
        let v6 = uri.data_v6.as_ref().map(DataAddress::address);
        let mut targets = Self { data: v4.into_iter().chain(v6).collect(), sync: uri.sync.clone() };
        targets.name_hosts(uri);
        targets
    }

    /// Returns the addresses that the URI names. If it names no data address or no sync address, this asks the control plane for
    /// them.
    ///
    /// # Errors
    /// If neither of the two names a data address, or the control plane has to be asked and the call fails.
    pub fn find(connection: &Connection, uri: &EjfatUri, lb: &str) -> Result<Self, TargetsError> {
        let mut targets = Self::of(uri);
        if targets.data.is_empty() || targets.sync.is_empty() {
            let reply = connection.get(lb)?;
            if targets.data.is_empty() {
                targets.data = data(&reply);
            }
            if targets.sync.is_empty() {
                targets.sync = sync(&reply);
            }
            targets.name_hosts(uri);
        }
        if targets.data.is_empty() {
            return Err(TargetsError::Data { address: connection.address().into(), lb: lb.into() });
        }
        Ok(targets)
    }

    /// Replaces the unspecified address (`0.0.0.0` or `::`) by the URI's host: a control plane that listens at all of its
    /// addresses may report it as its sync address.
    fn name_hosts(&mut self, uri: &EjfatUri) {
        if !self.sync.iter().any(|at| at.ip().is_unspecified()) {
            return;
        }
        let hosts: Vec<IpAddr> = match uri.host.parse() {
            Ok(ip) => vec![ip],
            Err(_) => {
                let found = (uri.host.as_str(), uri.port).to_socket_addrs();
                found.map(|found| found.map(|at| at.ip()).collect()).unwrap_or_default()
            }
        };
        for at in self.sync.iter_mut().filter(|at| at.ip().is_unspecified()) {
            if let Some(&host) = hosts.iter().find(|host| host.is_ipv4() == at.is_ipv4()) {
                at.set_ip(host);
            }
        }
        self.sync.retain(|at| !at.ip().is_unspecified());
        self.sync.dedup();
    }
}

/// Returns the port with this number, or `None` if nothing can be sent to it.
fn port(number: u32) -> Option<u16> {
    u16::try_from(number).ok().filter(|&port| port != 0)
}

/// Returns the socket addresses of an IPv4 and an IPv6 address, without those that cannot be read.
fn addresses(texts: [&str; 2], number: u32) -> Vec<SocketAddr> {
    let at = |text: &str| Some(SocketAddr::new(text.parse().ok()?, port(number)?));
    texts.into_iter().filter_map(at).collect()
}

fn data(reply: &ReserveLoadBalancerReply) -> Vec<SocketAddr> {
    // The first port of the range, as for a URI with a range.
    let number = port(reply.data_min_port).unwrap_or(ejfat::wire::DATA_PORT);
    addresses([&reply.data_ipv4_address, &reply.data_ipv6_address], number.into())
}

fn sync(reply: &ReserveLoadBalancerReply) -> Vec<SocketAddr> {
    addresses([&reply.sync_ipv4_address, &reply.sync_ipv6_address], reply.sync_udp_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> ReserveLoadBalancerReply {
        ReserveLoadBalancerReply {
            data_ipv4_address: "192.0.2.1".into(),
            data_ipv6_address: "2001:db8::1".into(),
            data_min_port: 16_384,
            data_max_port: 32_767,
            sync_ipv4_address: "0.0.0.0".into(),
            sync_udp_port: 19_531,
            ..Default::default()
        }
    }

    #[test]
    fn a_reply_names_addresses_of_both_ip_versions() {
        let at = |texts: [&str; 2]| texts.map(|text| text.parse::<SocketAddr>().unwrap()).to_vec();
        assert_eq!(data(&reply()), at(["192.0.2.1:16384", "[2001:db8::1]:16384"]));
        let silent = ReserveLoadBalancerReply { data_min_port: 0, ..reply() };
        assert_eq!(data(&silent), at(["192.0.2.1:19522", "[2001:db8::1]:19522"]));
        let silly =
            ReserveLoadBalancerReply { data_ipv4_address: "lb".into(), sync_udp_port: 65_536, ..reply() };
        assert_eq!((data(&silly).len(), sync(&silly).len()), (1, 0));
    }

    #[test]
    fn an_unspecified_sync_address_is_replaced_by_the_uris_host() {
        let uri: EjfatUri =
            "ejfat://t@192.0.2.9:19523/lb/1?sync=0.0.0.0:19531&sync=[::]:19531".parse().unwrap();
        assert_eq!(Targets::of(&uri).sync, ["192.0.2.9:19531".parse().unwrap()]);
    }
}
