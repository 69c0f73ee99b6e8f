//! Which provider serves a local address, and why.
//!
//! [`choose`] decides and gives the reason, but opens no device. A verbs device that fails is never silently replaced
//! by the embedded provider. Only the machine's equipment or the user's choice changes the provider, and the reason is
//! always reported.

mod choice;
mod decide;

use std::net::IpAddr;

use verbs::{Context, Error};

pub use choice::{BadChoice, Choice, VARIABLE};
pub use decide::Provider;
pub use verbs_ibv::Options as VerbsOptions;

use decide::{Decision, Machine, decide};
use verbs_ibv::Owner;

/// The decision for a local address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub provider: Provider,
    /// The reason as a text for people: "verbs: rxe0 has 10.9.0.1".
    pub why: String,
    /// Whether the user should be told of the decision unasked. This is so if the user chose no provider, the machine
    /// has an RDMA device, and the embedded provider was chosen for an address other than loopback.
    pub is_surprising: bool,
    local: IpAddr,
    choice: Choice,
    owner: Option<Owner>,
}

/// An opened device, and why this provider was chosen.
#[derive(Clone, Debug)]
pub struct Opened {
    pub context: Context,
    /// The reason as a text for people: "verbs: rxe0 has 10.9.0.1".
    pub why: String,
    /// Whether the decision is surprising, as in [`Chosen`].
    pub is_surprising: bool,
}

/// Decides on the provider for `local`, a concrete address of this machine.
///
/// # Errors
/// [`Error::NoDevice`] with the remedy if the verbs provider is asked for and cannot serve the address.
pub fn choose(local: IpAddr, choice: Choice) -> Result<Chosen, Error> {
    let local = local.to_canonical();
    let machine = Machine::look(local, choice);
    let Decision { provider, why, is_surprising } =
        decide(local, choice, &machine).map_err(Error::NoDevice)?;
    let why = format!("{provider}: {why}");
    Ok(Chosen { provider, why, is_surprising, local, choice, owner: machine.owner })
}

/// Decides on the provider and opens the device. `embedded` has the options of the embedded provider, if that is
/// chosen.
///
/// # Errors
/// The errors of [`choose`] and [`Chosen::open`].
pub fn open(local: IpAddr, choice: Choice, embedded: &roce_udp::Options) -> Result<Opened, Error> {
    choose(local, choice)?.open(embedded, &VerbsOptions::default())
}

impl Chosen {
    /// Opens the device, with the options of its provider.
    ///
    /// # Errors
    /// The errors of the provider; [`Error::Invalid`] if the verbs provider is chosen and cannot do what `embedded`
    /// asks for.
    pub fn open(self, embedded: &roce_udp::Options, verbs: &VerbsOptions) -> Result<Opened, Error> {
        let context = match self.provider {
            Provider::Embedded => roce_udp::open(self.local, embedded)?,
            Provider::Verbs => {
                only_embedded(embedded)?;
                let opened = verbs_ibv::open(self.local, self.owner.as_ref(), verbs);
                opened.map_err(|error| self.failed(error))?
            }
        };
        Ok(Opened { context, why: self.why, is_surprising: self.is_surprising })
    }

    /// The error for the user. If the user chose no provider, the text also says how to use the embedded provider.
    fn failed(&self, error: Error) -> Error {
        if self.choice != Choice::Auto {
            return error;
        }
        let problem = decide::words(&error);
        Error::NoDevice(format!("{}, but {problem}; or take --provider embedded", self.reason()))
    }

    /// The reason, without the name of the provider.
    pub fn reason(&self) -> &str {
        self.why.split_once(": ").map_or(&self.why, |(_, reason)| reason)
    }
}

fn only_embedded(options: &roce_udp::Options) -> Result<(), Error> {
    if options.max_path_mtu.is_some() {
        return Err(Error::Invalid(
            "only the embedded provider takes a path MTU; set the interface's: `ip link set IF mtu N`, or take \
             --provider embedded",
        ));
    }
    if options.loss.is_some() {
        return Err(Error::Invalid(
            "only the embedded provider loses packets on request; netem does for others",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(choice: Choice) -> Chosen {
        let why = "verbs: rxe0 has 10.9.0.1".into();
        let local = "10.9.0.1".parse().unwrap();
        Chosen { provider: Provider::Verbs, why, is_surprising: false, local, choice, owner: None }
    }

    #[test]
    fn a_device_that_fails_is_never_replaced_but_the_other_provider_is_named() {
        let error = || Error::NoDevice("/dev/infiniband/rdma_cm cannot be opened".into());
        let auto = chosen(Choice::Auto).failed(error()).to_string();
        let expected = "no device: rxe0 has 10.9.0.1, but /dev/infiniband/rdma_cm cannot be opened; \
                        or take --provider embedded";
        assert_eq!(auto, expected);
        assert_eq!(chosen(Choice::Verbs).failed(error()).to_string(), error().to_string());
    }

    #[test]
    fn what_only_the_embedded_provider_does_is_refused_by_verbs() {
        let options = roce_udp::Options { max_path_mtu: Some(1024), ..roce_udp::Options::default() };
        let error = chosen(Choice::Auto).open(&options, &VerbsOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains("ip link set"), "{error}");
    }
}
