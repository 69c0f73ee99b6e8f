//! Where a reservation's segments and syncs go.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use ejfat::uri::{Data, EjfatUri};
use proto::loadbalancer::ReserveLoadBalancerReply;

use crate::{ClientError, Connection};

/// The addresses of a reservation: those of its URI, and what that lacks from the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// At most one of each IP version.
    pub data: Vec<SocketAddr>,
    pub sync: Vec<SocketAddr>,
}

/// A reservation whose addresses are not known.
#[derive(Debug, thiserror::Error)]
pub enum TargetsError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(
        "neither the EJFAT URI nor the control plane at {address} names a data address of reservation {lb}"
    )]
    Data { address: String, lb: String },
}

impl Targets {
    /// What the URI itself says.
    pub fn of(uri: &EjfatUri) -> Self {
        let v4 = uri.data_v4.as_ref().map(Data::address);
        let v6 = uri.data_v6.as_ref().map(Data::address);
        let mut targets = Self { data: v4.into_iter().chain(v6).collect(), sync: uri.sync.clone() };
        targets.name_hosts(uri);
        targets
    }

    /// What the URI says; if it lacks a data address or a sync address, the control plane is asked.
    ///
    /// # Errors
    /// If it has to be asked and does not tell.
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

    /// A control plane that listens everywhere may say so instead of naming its address: then it is the URI's host.
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

/// A port that one can send to.
fn port(number: u32) -> Option<u16> {
    u16::try_from(number).ok().filter(|&port| port != 0)
}

fn addresses(texts: [&str; 2], number: u32) -> Vec<SocketAddr> {
    let at = |text: &str| Some(SocketAddr::new(text.parse().ok()?, port(number)?));
    texts.into_iter().filter_map(at).collect()
}

fn data(reply: &ReserveLoadBalancerReply) -> Vec<SocketAddr> {
    // The first of the range, as of a URI's.
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
    fn a_sync_address_that_is_everywhere_is_the_control_planes() {
        let uri: EjfatUri =
            "ejfat://t@192.0.2.9:19523/lb/1?sync=0.0.0.0:19531&sync=[::]:19531".parse().unwrap();
        assert_eq!(Targets::of(&uri).sync, ["192.0.2.9:19531".parse().unwrap()]);
    }
}
