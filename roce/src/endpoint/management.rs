//! Queue pair 1: the communication manager's datagrams.

use super::{Endpoint, Received};
use crate::{time::Time, transmit::Transmit, wire::Packet};

impl Endpoint {
    pub(super) fn handle_ud(&mut self, _now: Time, _meta: &Received, _packet: &Packet<'_>, _datagram: &[u8]) {
    }

    pub(super) fn data_arrived(&mut self, _now: Time, _qpn: u32) {}

    pub(super) fn poll_cm_transmit(&mut self, _out: &mut Transmit) -> bool {
        false
    }

    pub(super) fn cm_timeout(&self) -> Option<Time> {
        None
    }

    pub(super) fn handle_cm_timeout(&mut self, _now: Time) {}
}
