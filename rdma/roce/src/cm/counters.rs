//! Counters of the connection manager.

use crate::wire::mad::Message;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CmCounters { $($(#[$doc])* pub $name: u64),* }

        impl CmCounters {
            /// Every counter with its name, in a stable order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((concat!("cm_", stringify!($name)), self.$name)),*]
            }
        }
    };
}

counters! {
    tx_req,
    tx_mra,
    tx_rej,
    tx_rep,
    tx_rtu,
    tx_dreq,
    tx_drep,
    rx_req,
    rx_mra,
    rx_rej,
    rx_rep,
    rx_rtu,
    rx_dreq,
    rx_drep,
    /// Messages that were repeated because no answer came.
    tx_retries,
    /// Messages that were not sent because too many waited.
    tx_dropped,
    /// Datagrams that are not CM messages.
    rx_malformed,
    /// Messages for communication IDs that do not exist.
    rx_unknown_id,
    /// Messages from an address that is not the connection's.
    rx_wrong_source,
    /// Messages that do not fit the state of their connection.
    rx_unexpected,
    /// Requests received again.
    rx_duplicate_req,
    /// Requests from queue pairs that still have a connection here.
    rx_stale_req,
    /// Requests that were rejected because nobody listened.
    no_listener,
    /// Requests that were rejected because a backlog or table was full.
    no_room,
    /// Half-open requests that made room for a request of another source.
    displaced,
    /// Requests that the application did not answer in time.
    unanswered,
    established,
}

impl CmCounters {
    pub(super) fn sent(&mut self, message: &Message) {
        *match message {
            Message::Req(_) => &mut self.tx_req,
            Message::Mra(_) => &mut self.tx_mra,
            Message::Rej(_) => &mut self.tx_rej,
            Message::Rep(_) => &mut self.tx_rep,
            Message::Rtu(_) => &mut self.tx_rtu,
            Message::Dreq(_) => &mut self.tx_dreq,
            Message::Drep(_) => &mut self.tx_drep,
        } += 1;
    }

    pub(super) fn received(&mut self, message: &Message) {
        *match message {
            Message::Req(_) => &mut self.rx_req,
            Message::Mra(_) => &mut self.rx_mra,
            Message::Rej(_) => &mut self.rx_rej,
            Message::Rep(_) => &mut self.rx_rep,
            Message::Rtu(_) => &mut self.rx_rtu,
            Message::Dreq(_) => &mut self.rx_dreq,
            Message::Drep(_) => &mut self.rx_drep,
        } += 1;
    }
}
