//! The settings of a device, for both providers.

use verbs::Error;

/// The settings with which a device is opened. The comment of each field says which provider uses it;
/// [`Chosen::open`](crate::Chosen::open) fails if a field requests something that the chosen provider cannot do.
#[derive(Clone, Debug, Default)]
pub struct DeviceConfig {
    /// Says what happens if another socket already holds the RoCE port of the device's address. If `must_listen` is
    /// true, opening the device then fails. If `must_listen` is false, the embedded provider then opens a device that
    /// cannot listen. The verbs provider ignores this field, because several processes can listen on one RDMA device.
    pub must_listen: bool,
    /// The maximum number of payload bytes per packet: one of the path MTUs from 256 to 4096. `None` stands for the
    /// largest path MTU that the interface's MTU allows. Only the embedded provider can limit the path MTU.
    pub max_path_mtu: Option<u32>,
    /// If true, memory stays registered after the program has deregistered it, so that a new registration of the same
    /// buffer is cheap. Peers can use the RKey of a deregistered region as long as the program keeps the memory mapped,
    /// so servers do not set this field. Only the verbs provider uses this field, because the embedded provider
    /// registers memory cheaply.
    pub keep_registrations: bool,
    /// The artificial loss of received datagrams, for tests. Only the embedded provider can lose datagrams on purpose.
    pub loss: Option<roce_udp::LossInjection>,
    /// The trace to which the device writes the packets that it refuses. Only the embedded provider can record refused
    /// packets.
    pub trace: Option<roce_udp::Trace>,
    /// If true, the device ignores changes of access rights, as NICs do. Only the embedded provider uses this setting,
    /// which is for tests.
    pub keeps_access: bool,
    /// The limits of the embedded provider. A NIC has its own limits, so the verbs provider ignores this field.
    pub limits: roce_udp::ProtocolConfig,
}

impl DeviceConfig {
    pub(crate) fn embedded(&self) -> roce_udp::EmbeddedConfig {
        roce_udp::EmbeddedConfig {
            config: self.limits.clone(),
            max_path_mtu: self.max_path_mtu,
            must_listen: self.must_listen,
            loss: self.loss,
            trace: self.trace.clone(),
            keeps_access: self.keeps_access,
            ..roce_udp::EmbeddedConfig::default()
        }
    }

    /// # Errors
    /// Fails with [`Error::Invalid`] if a field requests something that the verbs provider cannot do.
    pub(crate) fn verbs(&self) -> Result<verbs_ibv::VerbsConfig, Error> {
        let refusals = [
            (
                self.max_path_mtu.is_some(),
                "only the embedded provider takes a path MTU; set the interface's: `ip link set IF mtu N`, or take \
                 --provider embedded",
            ),
            (
                self.loss.is_some(),
                "only the embedded provider loses packets on request; netem does for others",
            ),
            (
                self.trace.is_some(),
                "only the embedded provider sees the packets that it refuses; for others, capture with `tcpdump -i \
                 IF udp port 4791`, or take --provider embedded",
            ),
        ];
        match refusals.into_iter().find(|(asked, _)| *asked) {
            Some((_, why)) => Err(Error::Invalid(why)),
            None => Ok(verbs_ibv::VerbsConfig { keep_registrations: self.keep_registrations }),
        }
    }
}
