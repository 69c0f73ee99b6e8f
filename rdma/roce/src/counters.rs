//! The counters of a device. A counter that rxe's hw_counters have, too, has the same name (rxe_hw_counters.c).

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64),* }

        impl Counters {
            /// Every counter with its name, in a stable order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    sent_pkts,
    rcvd_pkts,
    /// Requests whose PSN had been executed before.
    duplicate_request,
    /// Requests ahead of the expected PSN.
    out_of_seq_request,
    /// RNR NAKs received.
    rcvd_rnr_err,
    /// RNR NAKs sent.
    send_rnr_err,
    /// Sequence NAKs received.
    rcvd_seq_err,
    /// Sequence NAKs sent.
    send_seq_err,
    /// NAKs sent for invalid requests.
    send_invalid_request,
    /// NAKs sent for refused access.
    send_access_err,
    /// Requests that ran out of retries.
    retry_exceeded_err,
    retry_rnr_exceeded_err,
    /// Retransmission timer expiries.
    local_ack_timeout_err,
    /// READ responses that were missed although later ones arrived.
    implied_nak_seq_err,
    /// Datagrams with a wrong invariant CRC.
    rx_icrc_encapsulated,
    /// Datagrams that are not packets of this stack.
    rx_malformed,
    /// Packets for queue pairs that do not exist or are not connected.
    rx_unknown_qp,
    /// Packets from an address that is not the connection's.
    rx_wrong_source,
    /// Acknowledgements outside the window of outstanding requests.
    rx_stray_ack,
    /// Congestion notification packets received.
    rx_cnp,
    /// Completions lost because their queue was full; the queue pair fails.
    cq_overrun,
    rdma_sends,
    rdma_recvs,
}
