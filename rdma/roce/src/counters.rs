//! The counters of a device. If the driver rxe has the same counter in its hw_counters (rxe_hw_counters.c), the counter
//! has the name that rxe uses.

/// Makes a struct of counters with the name `$counters`. The method `list` of the struct puts `$prefix` before the name
/// of each counter.
macro_rules! counters {
    ($(#[$of:meta])* $counters:ident, $prefix:literal; $($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $counters { $($(#[$doc])* pub $name: u64),* }

        impl $counters {
            /// Returns every counter with its name, in a stable order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((concat!($prefix, stringify!($name)), self.$name)),*]
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// The counters of a device, which start at 0 when the device is opened.
    Counters, "";
    /// The number of packets that were built to be sent, including retransmissions and CM messages.
    sent_pkts,
    /// The number of packets that were received with a right ICRC.
    rcvd_pkts,
    /// The number of request packets whose PSN is earlier than the expected PSN. Such packets are regarded as
    /// repetitions.
    duplicate_request,
    /// The number of request packets whose PSN is later than the expected PSN.
    out_of_seq_request,
    /// The number of RNR NAKs that were received.
    rcvd_rnr_err,
    /// The number of RNR NAKs that were sent.
    send_rnr_err,
    /// The number of sequence NAKs that were received.
    rcvd_seq_err,
    /// The number of sequence NAKs that were sent.
    send_seq_err,
    /// The number of NAKs that were sent for invalid requests and for operational errors of this side.
    send_invalid_request,
    /// The number of NAKs that were sent because a request's access to memory was refused.
    send_access_err,
    /// The number of queue pairs that failed because the retries after time-outs were used up.
    retry_exceeded_err,
    /// The number of queue pairs that failed because the retries after RNR NAKs were used up.
    retry_rnr_exceeded_err,
    /// The number of expiries of retransmission timers.
    local_ack_timeout_err,
    /// The number of times that a later READ response or ACK showed that READ responses were lost.
    implied_nak_seq_err,
    /// The number of datagrams with a wrong ICRC.
    rx_icrc_encapsulated,
    /// The number of datagrams with a wrong length or wrong headers, for example a wrong opcode, P_Key or Q_Key.
    rx_malformed,
    /// The number of packets for queue pairs that do not exist or are not connected.
    rx_unknown_qp,
    /// The number of packets from an IP address that is not the address of the connection's peer.
    rx_wrong_source,
    /// The number of acknowledgements and READ responses for packets that are not outstanding. Repeated ACKs are not
    /// counted. This counter also includes acknowledgements with a reserved syndrome.
    rx_stray_ack,
    /// The number of congestion notification packets that were received.
    rx_cnp,
    /// The number of completions that were lost because the completion queue was full. If the completion of a work
    /// request is lost, the queue pair of this work request fails.
    cq_overrun,
    /// The number of SENDs, WRITEs and READs that were posted to connected queue pairs.
    rdma_sends,
    /// The number of posted receives that were completed by messages of peers.
    rdma_recvs,
    /// The number of acknowledgements that were sent in request packets instead of packets of their own.
    carried_acks,
}
