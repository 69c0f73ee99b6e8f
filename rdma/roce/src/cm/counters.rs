//! The counters of the connection manager.

use crate::{counters::counters, wire::mad::CmMessage};

counters! {
    /// The counters of a connection manager, which start at 0 when its device is opened.
    CmCounters, "cm_";
    /// The number of REQs that were sent, including repetitions.
    tx_req,
    /// The number of MRAs that were sent, including repetitions.
    tx_mra,
    /// The number of REJs that were sent, including repetitions.
    tx_rej,
    /// The number of REPs that were sent, including repetitions.
    tx_rep,
    /// The number of RTUs that were sent, including repetitions.
    tx_rtu,
    /// The number of DREQs that were sent, including repetitions.
    tx_dreq,
    /// The number of DREPs that were sent, including repetitions.
    tx_drep,
    /// The number of REQs that were received, including repetitions.
    rx_req,
    /// The number of MRAs that were received, including repetitions.
    rx_mra,
    /// The number of REJs that were received, including repetitions.
    rx_rej,
    /// The number of REPs that were received, including repetitions.
    rx_rep,
    /// The number of RTUs that were received, including repetitions.
    rx_rtu,
    /// The number of DREQs that were received, including repetitions.
    rx_dreq,
    /// The number of DREPs that were received, including repetitions.
    rx_drep,
    /// The number of times that a REQ, REP or DREQ was repeated because no response had arrived.
    tx_retries,
    /// The number of CM messages that were not sent because too many datagrams were queued.
    tx_dropped,
    /// The number of datagrams that are not CM messages.
    rx_malformed,
    /// The number of CM messages for communication IDs that do not exist.
    rx_unknown_id,
    /// The number of CM messages from an IP address that is not the address of the connection's peer.
    rx_wrong_source,
    /// The number of CM messages that do not fit the state of their connection. At most 15 MRAs are accepted for one
    /// REQ or REP, and each further MRA is also counted here.
    rx_unexpected,
    /// The number of REQs that were received again.
    rx_duplicate_req,
    /// The number of REQs and REPs that named a remote queue pair for which this device still had another connection.
    rx_stale_req,
    /// The number of REQs that were rejected because no listener had the TCP-space port (RDMA_PS_TCP) that the REQ
    /// named.
    no_listener,
    /// The number of REQs that were rejected because a backlog or a table was full, or because their source network
    /// already had too many half-open requests. A request is half-open until its connection is established or the
    /// request ends. One source network may have at most half of `CmConfig::max_half_open` half-open requests.
    no_room,
    /// The number of half-open requests that were removed to make room for a REQ from another source network.
    displaced,
    /// The number of received REQs that the application neither accepted nor rejected in time.
    unanswered,
    /// The number of connections that were established, on the active and the passive side together.
    established,
}

impl CmCounters {
    pub(super) fn sent(&mut self, message: &CmMessage) {
        *self.of(message).0 += 1;
    }

    pub(super) fn received(&mut self, message: &CmMessage) {
        *self.of(message).1 += 1;
    }

    /// Returns two counters of messages that have the same kind as `message`: first the sent messages, then the
    /// received messages.
    fn of(&mut self, message: &CmMessage) -> (&mut u64, &mut u64) {
        match message {
            CmMessage::Req(_) => (&mut self.tx_req, &mut self.rx_req),
            CmMessage::Mra(_) => (&mut self.tx_mra, &mut self.rx_mra),
            CmMessage::Rej(_) => (&mut self.tx_rej, &mut self.rx_rej),
            CmMessage::Rep(_) => (&mut self.tx_rep, &mut self.rx_rep),
            CmMessage::Rtu(_) => (&mut self.tx_rtu, &mut self.rx_rtu),
            CmMessage::Dreq(_) => (&mut self.tx_dreq, &mut self.rx_dreq),
            CmMessage::Drep(_) => (&mut self.tx_drep, &mut self.rx_drep),
        }
    }
}
