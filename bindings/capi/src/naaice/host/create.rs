//! A new context: arguments looked at, names resolved, the device opened.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use naa_host::{Device, SessionConfig};

use super::{
    super::{
        context::{HeaderVersion, Public},
        error::Error,
        layout::{MrInternal, MrLocal, MrPeer},
    },
    HostContext, Phase, polling, regions,
};
use crate::log;

/// A parameter of the program's: where it is and how long.
pub(crate) type ProgramMemory = (*mut u8, usize);

/// What a context is made of.
pub(crate) struct ContextConfig<'a> {
    pub(crate) version: HeaderVersion,
    pub(crate) parameters: Vec<ProgramMemory>,
    /// Sizes of regions that only the accelerator has.
    pub(crate) internals: Vec<usize>,
    pub(crate) addresses: Addresses,
    pub(crate) function: u8,
    pub(crate) local: Option<&'a str>,
    pub(crate) remote: &'a str,
    pub(crate) port: u16,
}

/// Where on the accelerator the regions are asked for.
pub(crate) enum Addresses {
    /// Addresses are counted up in whole pages, internal regions first.
    From(u64),
    /// The addresses of internal regions, then those of parameters.
    These(Vec<u64>),
}

impl HostContext {
    pub(crate) fn create(config: ContextConfig<'_>) -> Result<Self, Error> {
        log::start();
        let ContextConfig { version, parameters, internals, addresses, function, local, remote, port } =
            config;
        function_code(function.into())?;
        check_regions(&parameters, &internals)?;
        let addresses = match addresses {
            Addresses::From(start) => {
                let sizes = internals.iter().copied().chain(parameters.iter().map(|&(_, size)| size));
                sequential(start, sizes)
            }
            Addresses::These(addresses) => addresses,
        };
        let (peer, device) = resolve(local.filter(|local| !local.is_empty()), remote, port)?;
        let public = Public::new(version);
        public.set_fncode(function);
        public.set_immediate([function, 0, 0, 0]);
        let mut host = Self {
            public,
            peer,
            phase: Phase::Fresh,
            bytes_to_send: Vec::new(),
            registered: None,
            give_up: None,
            polling: polling::PollPacing::default(),
            _claim: None,
            device,
        };
        let (for_internals, for_parameters) = addresses.split_at(internals.len());
        host.set_parameters(&parameters, for_parameters)?;
        host.set_internals(&internals, for_internals)?;
        Ok(host)
    }

    /// `naaice_set_parameter_mrs`: other parameters, without a part in the session.
    pub(crate) fn set_parameters(
        &mut self,
        parameters: &[ProgramMemory],
        addresses: &[u64],
    ) -> Result<(), Error> {
        self.before_agreeing("a change of parameters")?;
        let internals: Vec<_> = self.public.internals().iter().map(|region| region.size).collect();
        check_regions(parameters, &internals)?;
        regions::check_addresses(addresses)?;
        let local = |&(addr, size): &ProgramMemory| MrLocal {
            ibv: std::ptr::null_mut(),
            addr: addr.cast(),
            size,
            to_write: false,
            single_send: false,
        };
        let peer = |(&(_, size), &addr): (&ProgramMemory, &u64)| MrPeer {
            addr,
            rkey: 0,
            size,
            to_write: false,
            single_send: false,
        };
        self.public.set_locals(parameters.iter().map(local).collect());
        self.public.set_peers(parameters.iter().zip(addresses).map(peer).collect());
        self.public.set_inputs(0);
        self.public.set_outputs(0);
        self.bytes_to_send = vec![None; parameters.len()];
        Ok(())
    }

    /// `naaice_set_internal_mrs`: other internal regions.
    pub(crate) fn set_internals(&mut self, sizes: &[usize], addresses: &[u64]) -> Result<(), Error> {
        self.before_agreeing("a change of internal regions")?;
        let parameters: Vec<_> =
            self.public.locals().iter().map(|region| (region.addr.cast(), region.size)).collect();
        check_regions(&parameters, sizes)?;
        regions::check_addresses(addresses)?;
        let regions = addresses.iter().zip(sizes).map(|(&addr, &size)| MrInternal { addr, size });
        self.public.set_internals(regions.collect());
        Ok(())
    }
}

/// A function code as programs give it.
pub(crate) fn function_code(code: u32) -> Result<u8, Error> {
    let valid = u8::try_from(code).ok().filter(|&code| naa_host::FunctionCode::new(code).is_some());
    valid.ok_or(Error::FunctionCode(code))
}

/// To be asked before C's arrays are looked at, which may be shorter than a number that is nonsense.
pub(crate) fn check_amounts(parameters: usize, internals: usize) -> Result<(), Error> {
    let limit = SessionConfig::default().max_regions.into();
    let possible = parameters > 0 && parameters.saturating_add(internals) <= limit;
    if possible { Ok(()) } else { Err(Error::Regions { parameters, internals, limit }) }
}

fn check_regions(parameters: &[ProgramMemory], internals: &[usize]) -> Result<(), Error> {
    check_amounts(parameters.len(), internals.len())?;
    for (index, &(addr, bytes)) in parameters.iter().enumerate() {
        check_size("parameter", index, bytes)?;
        if bytes > 0 && (addr.is_null() || addr.addr().checked_add(bytes).is_none()) {
            return Err(Error::Memory(index));
        }
    }
    internals.iter().enumerate().try_for_each(|(index, &bytes)| check_size("internal region", index, bytes))
}

fn check_size(what: &'static str, index: usize, bytes: usize) -> Result<(), Error> {
    let limit = mrsp::region::MAX_REGION_BYTES;
    if bytes as u64 > limit { Err(Error::TooLarge { what, index, bytes, limit }) } else { Ok(()) }
}

/// Addresses from `start` on, each region rounded up to whole pages of 4096 bytes.
pub(crate) fn sequential(start: u64, sizes: impl IntoIterator<Item = usize>) -> Vec<u64> {
    let next = |next: &mut u64, size: usize| {
        let bytes = (size as u64).checked_next_multiple_of(mrsp::region::PAGE_BYTES).unwrap_or(u64::MAX);
        Some(std::mem::replace(next, next.saturating_add(bytes)))
    };
    sizes.into_iter().scan(start, next).collect()
}

/// The accelerator's address, and the device to reach it from.
fn resolve(local: Option<&str>, remote: &str, port: u16) -> Result<(SocketAddr, Device), Error> {
    let remotes = look_up(remote, port)?;
    let Some(local) = local else {
        let peer = remotes.first().copied().ok_or_else(|| Error::Family { name: remote.to_owned() })?;
        return Ok((peer, Device::towards(peer)?));
    };
    let locals = look_up(local, 0)?;
    let pair = remotes.iter().find_map(|&peer| {
        let source = locals.iter().find(|source| source.is_ipv4() == peer.is_ipv4())?;
        Some((peer, source.ip()))
    });
    let (peer, source): (SocketAddr, IpAddr) =
        pair.ok_or_else(|| Error::Family { name: local.to_owned() })?;
    Ok((peer, Device::open(source)?))
}

fn look_up(name: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let addresses = (name, port).to_socket_addrs();
    Ok(addresses.map_err(|source| Error::Resolve { name: name.to_owned(), source })?.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_c_library() {
        // These are the regions of the capture: internal ones of 5000 and 64 bytes, then parameters of 256 and 4096.
        let addresses = sequential(0x1234_5678_9000, [5000, 64, 256, 4096]);
        assert_eq!(addresses, [0x1234_5678_9000, 0x1234_5678_b000, 0x1234_5678_c000, 0x1234_5678_d000]);
    }

    #[test]
    fn parameters_are_looked_at() {
        let some = std::ptr::without_provenance_mut::<u8>(8);
        let null = std::ptr::null_mut();
        assert!(check_regions(&[(some, 0), (null, 0), (some, 1 << 31)], &[0, 1 << 31]).is_ok());
        assert!(matches!(check_regions(&[], &[8]), Err(Error::Regions { .. })));
        assert!(matches!(check_regions(&[(some, 1); 31], &[1]), Err(Error::Regions { .. })));
        assert!(matches!(check_regions(&[(null, 1)], &[]), Err(Error::Memory(0))));
        assert!(matches!(check_regions(&[(some, (1 << 31) + 1)], &[]), Err(Error::TooLarge { .. })));
        let last = std::ptr::without_provenance_mut::<u8>(usize::MAX);
        assert!(matches!(check_regions(&[(last, 2)], &[]), Err(Error::Memory(0))));
    }

    #[test]
    fn codes_have_seven_bits() {
        assert_eq!(function_code(127).unwrap(), 127);
        for code in [0, 128, 257, u32::MAX] {
            assert!(matches!(function_code(code), Err(Error::FunctionCode(_))));
        }
    }
}
