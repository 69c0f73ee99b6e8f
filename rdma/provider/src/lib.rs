//! Decides which provider serves a local address, and gives the reason for the decision.
//!
//! [`choose`] decides and gives the reason, but opens no device. If the verbs provider was chosen and then fails to
//! open the device, the embedded provider is not used instead. The provider that is chosen depends only on the RDMA
//! devices of the machine, on whether rdma-core can be used, on the local address, and on the choice of the user.
//! [`Chosen::why`] and [`Opened::why`] contain the reason for the choice.
//!
//! ```rust
//! use naa_provider::{DeviceConfig, ProviderChoice, free_loopback, open};
//!
//! let local = free_loopback()?;
//! let opened = open(local, ProviderChoice::Auto, &DeviceConfig::default())?;
//! println!("{}", opened.why);
//! assert_eq!(opened.context.attr().address, local);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

mod choice;
mod config;
mod decide;
mod route;

use std::net::IpAddr;

use verbs::{Context, Error};

pub use choice::{BadChoice, ProviderChoice, VARIABLE};
pub use config::DeviceConfig;
pub use decide::Provider;
pub use roce_udp::{LossInjection, RefusedPacket, Trace, free_loopback};
pub use route::source_for;

use decide::{Decision, Machine, decide};
use verbs_ibv::Owner;

/// The decision which provider serves a local address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The provider that serves the address.
    pub provider: Provider,
    /// The name of the provider and the reason why it was chosen, as a text for people: "verbs: rxe0 has 10.9.0.1".
    pub why: String,
    /// True if the program should report the decision to the user even though the user did not request a report. A
    /// decision is surprising only if the user chose no provider and the embedded provider was chosen. There are two
    /// such cases. In the first case, a soft-RoCE device has the address, so the user expects the verbs provider, but
    /// rdma-core cannot be used. In the second case, the machine has RDMA devices, but none of them can serve the
    /// address, and the address is not a loopback address.
    pub is_surprising: bool,
    local: IpAddr,
    choice: ProviderChoice,
    owner: Option<Owner>,
}

/// An opened device, and the reason why its provider was chosen.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The opened device.
    pub context: Context,
    /// The name of the provider and the reason why it was chosen, as a text for people: "verbs: rxe0 has 10.9.0.1".
    pub why: String,
    /// True if the program should report the choice of the provider to the user even though the user did not request a
    /// report. [`Chosen::is_surprising`] describes when this is the case.
    pub is_surprising: bool,
}

/// Decides on the provider for `local`, which must be one address of this machine, and not a wildcard address such as
/// 0.0.0.0.
///
/// # Errors
/// The verbs provider is required if the user chose it, or if a NIC has the address and the user chose no provider.
/// Fails with [`Error::NoDevice`] if the verbs provider is required but cannot serve the address. The text of the error
/// contains a remedy.
pub fn choose(local: IpAddr, choice: ProviderChoice) -> Result<Chosen, Error> {
    let local = local.to_canonical();
    let machine = Machine::look(local, choice);
    let Decision { provider, why, is_surprising } =
        decide(local, choice, &machine).map_err(Error::NoDevice)?;
    let why = format!("{provider}: {why}");
    Ok(Chosen { provider, why, is_surprising, local, choice, owner: machine.owner })
}

/// Decides on the provider and opens the device.
///
/// # Errors
/// Fails with the errors of [`choose`] and of [`Chosen::open`].
pub fn open(local: IpAddr, choice: ProviderChoice, config: &DeviceConfig) -> Result<Opened, Error> {
    choose(local, choice)?.open(config)
}

impl Chosen {
    /// Opens the device.
    ///
    /// # Errors
    /// Fails with the errors of the provider, and with [`Error::Invalid`] if `config` requests something that the
    /// chosen provider cannot do.
    pub fn open(self, config: &DeviceConfig) -> Result<Opened, Error> {
        let context = match self.provider {
            Provider::Embedded => roce_udp::open(self.local, &config.embedded())?,
            Provider::Verbs => {
                let opened = verbs_ibv::open(self.local, self.owner.as_ref(), &config.verbs()?);
                opened.map_err(|error| self.failed(error))?
            }
        };
        Ok(Opened { context, why: self.why, is_surprising: self.is_surprising })
    }

    /// Returns the error that [`open`](Self::open) reports if the verbs provider fails with `error`. If the user chose
    /// no provider, the error text also says how to use the embedded provider.
    fn failed(&self, error: Error) -> Error {
        if self.choice != ProviderChoice::Auto {
            return error;
        }
        let problem = decide::words(&error);
        Error::NoDevice(format!("{}, but {problem}; or take --provider embedded", self.reason()))
    }

    /// Returns the reason why the provider was chosen, without the name of the provider.
    pub fn reason(&self) -> &str {
        self.why.split_once(": ").map_or(&self.why, |(_, reason)| reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(choice: ProviderChoice) -> Chosen {
        let why = "verbs: rxe0 has 10.9.0.1".into();
        let local = "10.9.0.1".parse().unwrap();
        Chosen { provider: Provider::Verbs, why, is_surprising: false, local, choice, owner: None }
    }

    #[test]
    fn a_device_that_fails_is_never_replaced_but_the_other_provider_is_named() {
        let error = || Error::NoDevice("/dev/infiniband/rdma_cm cannot be opened".into());
        let auto = chosen(ProviderChoice::Auto).failed(error()).to_string();
        let expected = "no device: rxe0 has 10.9.0.1, but /dev/infiniband/rdma_cm cannot be opened; \
                        or take --provider embedded";
        assert_eq!(auto, expected);
        assert_eq!(chosen(ProviderChoice::Verbs).failed(error()).to_string(), error().to_string());
    }

    #[test]
    fn what_only_the_embedded_provider_does_is_refused_by_verbs() {
        let config = DeviceConfig::default;
        for (config, remedy) in [
            (DeviceConfig { max_path_mtu: Some(1024), ..config() }, "ip link set"),
            (DeviceConfig { loss: Some(LossInjection { per_million: 1, seed: 0 }), ..config() }, "netem"),
            (DeviceConfig { trace: Some(Trace::default()), ..config() }, "tcpdump"),
        ] {
            let error = chosen(ProviderChoice::Auto).open(&config).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains(remedy), "{error}");
        }
    }
}
