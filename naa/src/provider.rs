//! `--provider`: the provider whose device a command opens, and the message that names it.

use std::net::{IpAddr, Ipv4Addr};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use naa_provider::{BadChoice, ProviderChoice, VARIABLE};
use verbs_ibv::RdmaDevice;

use crate::{Usage, show};

#[derive(Clone, Copy, Debug, clap::Args)]
#[group(id = "provider_options")]
pub(crate) struct Args {
    /// verbs: NICs and soft-RoCE through rdma-core; embedded: our own stack on UDP; auto: verbs where an RDMA device has
    /// the local address, else embedded [default: NAA_PROVIDER, else auto]
    #[arg(long, value_name = "PROVIDER", hide_possible_values = true, value_parser = choices())]
    provider: Option<ProviderChoice>,
}

fn choices() -> impl TypedValueParser<Value = ProviderChoice> {
    let names =
        [ProviderChoice::Auto, ProviderChoice::Verbs, ProviderChoice::Embedded].map(ProviderChoice::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<ProviderChoice>())
}

impl Args {
    /// # Errors
    /// The errors of [`from_env`], if no option names a provider.
    pub(crate) fn choice(self) -> anyhow::Result<ProviderChoice> {
        self.provider.map_or_else(from_env, Ok)
    }
}

/// The provider that `NAA_PROVIDER` names.
///
/// # Errors
/// [`Usage`] if the variable names no provider.
pub(crate) fn from_env() -> anyhow::Result<ProviderChoice> {
    ProviderChoice::from_env().map_err(|BadChoice { value }| {
        Usage::error(format!("{VARIABLE}={value}: no provider; {}", BadChoice::REMEDY))
    })
}

/// An address of this machine for a process that this program starts: a free one on loopback, or that of an RDMA device.
pub(crate) fn own_address(choice: ProviderChoice) -> anyhow::Result<IpAddr> {
    let of_device = || rdma_address(&verbs_ibv::devices());
    match choice {
        ProviderChoice::Embedded => Ok(naa_provider::free_loopback()?),
        // Soft-RoCE holds the UDP port on loopback, too, so there may be no free address.
        ProviderChoice::Auto => naa_provider::free_loopback().or_else(|none| Ok(of_device().ok_or(none)?)),
        // If there is no RDMA device, opening the provider fails with an error that names the remedy.
        ProviderChoice::Verbs => Ok(of_device().unwrap_or(Ipv4Addr::LOCALHOST.into())),
    }
}

/// The first address of an RDMA device that RoCE v2 can use and that needs no scope.
fn rdma_address(devices: &[RdmaDevice]) -> Option<IpAddr> {
    let ports = devices.iter().flat_map(|device| &device.ports).filter(|port| port.is_active());
    let mut gids = ports.flat_map(|port| &port.gids).filter(|gid| gid.kind == "RoCE v2");
    let is_local = |address: IpAddr| matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local());
    gids.find(|gid| !is_local(gid.address)).map(|gid| gid.address)
}

/// Prints on standard error which provider is used and why, if `is_surprising` is set. Otherwise only the log has it.
pub(crate) fn report(why: &str, is_surprising: bool) {
    if is_surprising {
        show::note(&format!("naa: {why}"));
    } else {
        tracing::info!("{why}");
    }
}
