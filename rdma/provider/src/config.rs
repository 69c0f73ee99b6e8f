//! The settings of a device, for both providers.

use verbs::Error;

/// How to open a device. Each field says which provider takes it; [`Chosen::open`](crate::Chosen::open) fails if the
/// chosen provider cannot do what a field asks for.
#[derive(Clone, Debug, Default)]
pub struct DeviceConfig {
    /// Opening fails if another process holds the RoCE port of the address. Otherwise the embedded provider opens a
    /// device that cannot listen. The verbs provider shares its devices among processes.
    pub must_listen: bool,
    /// The most payload bytes per packet: one of the path MTUs from 256 to 4096. `None` takes the largest that the
    /// interface allows. Only the embedded provider can set it.
    pub max_path_mtu: Option<u32>,
    /// Memory stays registered after the end of its registration, so that registering the same buffer again is cheap.
    /// Peers may use the old key while the owner of the memory lives, so servers do not set this. Only the verbs
    /// provider needs it.
    pub keep_registrations: bool,
    /// Loses received datagrams on purpose. Only the embedded provider can do so.
    pub loss: Option<roce_udp::Loss>,
    /// Records the packets that the device refuses. Only the embedded provider can do so.
    pub trace: Option<roce_udp::Trace>,
    /// The device keeps the access rights of peers as they are, like a NIC. This is a setting of the embedded provider
    /// for tests.
    pub keeps_access: bool,
    /// The limits of the embedded provider. A NIC has its own limits, so the verbs provider ignores this field.
    pub limits: roce_udp::ProtocolConfig,
}

impl DeviceConfig {
    pub(crate) fn embedded(&self) -> roce_udp::Options {
        roce_udp::Options {
            config: self.limits.clone(),
            max_path_mtu: self.max_path_mtu,
            must_listen: self.must_listen,
            loss: self.loss,
            trace: self.trace.clone(),
            keeps_access: self.keeps_access,
            ..roce_udp::Options::default()
        }
    }

    /// # Errors
    /// [`Error::Invalid`] if a field asks for what the verbs provider cannot do.
    pub(crate) fn verbs(&self) -> Result<verbs_ibv::Options, Error> {
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
            None => Ok(verbs_ibv::Options { keep_registrations: self.keep_registrations }),
        }
    }
}
