//! The methods that connect a queue pair or move a queue pair to the error state.

use std::net::SocketAddr;

use verbs::{Error, EstablishedParam, QpNum};

use super::{Endpoint, verbs_calls::no_qp};
use crate::wire::mad::mtu_code;

/// The parameters on which both ends of a connection have agreed, by the CM or by other means (`ibv_modify_qp` to RTR
/// and RTS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttr {
    /// The address to which packets are sent: the peer's address and UDP port.
    pub peer: SocketAddr,
    /// The number of the peer's queue pair.
    pub remote_qpn: u32,
    /// The maximum number of payload bytes per packet: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u32,
    /// The first PSN that this end sends.
    pub send_psn: u32,
    /// The first PSN that the peer sends.
    pub recv_psn: u32,
    /// The number of retries after a time-out or sequence error, 0-7.
    pub retry_count: u8,
    /// The number of RNR retries, 0-6, or 7 for retries without limit.
    pub rnr_retry_count: u8,
    /// The code of the local ACK timeout, 0-31. A code n stands for 4.096 us * 2^n, and the code 0 for no timeout.
    pub ack_timeout: u8,
    /// The maximum number of READs that the peer may have outstanding at this end. The device limits
    /// `responder_resources` to `Config::max_responder_resources`.
    pub responder_resources: u8,
    /// The maximum number of READs that this end may have outstanding at the peer.
    pub initiator_depth: u8,
    /// True if the peer runs the embedded provider of this project.
    pub embedded_peer: bool,
    /// True if this end tells a peer of the embedded provider from its first packet on that it accepts carried
    /// acknowledgements ([`CarriedAck`](crate::wire::CarriedAck)). The active end of a connection does so. The passive
    /// end waits until the peer has told, so that embedded peers of before get exactly the packets that they know.
    pub offers_carried_acks: bool,
}

impl QpAttr {
    /// Returns the parameters that the CM event `Established` contains. `private_data` is the private data of the
    /// peer's REP, and is empty on the passive side.
    pub(crate) fn established(&self, private_data: Vec<u8>) -> EstablishedParam {
        EstablishedParam {
            private_data,
            path_mtu: self.path_mtu,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            embedded_peer: self.embedded_peer,
        }
    }
}

impl Endpoint {
    /// Connects a queue pair with the parameters `attr`, and sends no CM message.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no queue pair `qp`, and with [`Error::QpState`] if the queue pair was
    /// connected before. Fails with [`Error::Invalid`] if the path MTU is invalid or larger than the device's.
    pub fn connect_qp(&mut self, qp: QpNum, attr: &QpAttr) -> Result<(), Error> {
        if mtu_code(attr.path_mtu).is_none() || attr.path_mtu > self.max_path_mtu {
            return Err(Error::Invalid("the path MTU is none of 256 to 4096, or beyond the link's"));
        }
        let found = self.qps.get_mut(&qp.0).ok_or(no_qp(qp))?;
        if !found.connect(attr, &self.shared.config) {
            return Err(Error::QpState("already connected"));
        }
        Ok(())
    }

    /// Moves a queue pair to the error state; its work requests complete as flushed.
    pub fn fail_qp(&mut self, qp: QpNum) {
        if let Some(found) = self.qps.get_mut(&qp.0) {
            found.fail(None, &mut self.shared);
        }
    }
}
