//! What the regions are for, and their registration.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use naa_host::{Buffer, NaaAddress, Param, SessionSetup, SetupStage};
use verbs::Memory;

use super::{
    super::{context::State, error::Error},
    AGREE_LIMIT, AGREE_LIMIT_PER_GIB, HostContext, Phase,
};
use crate::native::mapped::{self, Use};

/// A region as it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RegionUse {
    addr: *mut u8,
    size: usize,
    input: bool,
    output: bool,
    single_send: bool,
    naa_addr: u64,
}

/// Parameters, then internal regions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Terms {
    parameters: Vec<RegionUse>,
    internals: Vec<(u64, usize)>,
}

// SAFETY: the pointers are compared and passed on, never read through.
unsafe impl Send for Terms {}

impl Terms {
    fn params(&self) -> Result<Vec<Param<'static>>, Error> {
        let address = |addr: u64| NaaAddress::new(addr).ok_or(Error::Address(addr));
        let parameters = self.parameters.iter().map(|role| {
            let param = match (role.input || role.single_send, role.output) {
                (true, true) => Param::in_out(role.size),
                (true, false) => Param::input(role.size),
                (false, true) => Param::output(role.size),
                (false, false) => Param::idle(role.size),
            };
            let param = if role.single_send { param.single_send() } else { param };
            Ok(param.at(address(role.naa_addr)?))
        });
        let internals =
            self.internals.iter().map(|&(addr, size)| Ok(Param::internal(size).at(address(addr)?)));
        parameters.chain(internals).collect()
    }

    /// How long the accelerator may take to agree.
    fn limit(&self) -> Duration {
        let parameters = self.parameters.iter().map(|role| role.size);
        let bytes: usize = parameters.chain(self.internals.iter().map(|&(_, size)| size)).sum();
        AGREE_LIMIT + AGREE_LIMIT_PER_GIB.mul_f64(bytes as f64 / f64::from(1 << 30))
    }

    /// What is not mapped would end the program as soon as the device looks at it.
    fn check_memory(&self) -> Result<(), Error> {
        let parameters = self.parameters.iter().enumerate().filter(|(_, role)| role.size > 0);
        for (index, role) in parameters {
            let usage = if role.output { Use::Write } else { Use::Read };
            mapped::check(role.addr.addr(), role.size, usage)
                .map_err(|problem| Error::Unmapped { index, problem })?;
        }
        Ok(())
    }

    fn buffers(&self) -> Result<Vec<Buffer>, Error> {
        let buffer = |role: &RegionUse| {
            if role.size == 0 {
                // Nothing of the program's is touched, and devices refuse regions of no bytes at some addresses.
                return Ok(Buffer::new(0)?);
            }
            // SAFETY: the program says that `size` bytes are its own at `addr` and stay so while the context lives
            // (naaice.h), and that nothing else touches them during a call.
            let memory = unsafe { Memory::from_raw_parts(role.addr, role.size, Arc::new(())) };
            // SAFETY: the same.
            Ok(unsafe { Buffer::from_memory(memory) })
        };
        self.parameters.iter().map(buffer).collect()
    }
}

pub(super) fn check_addresses(addresses: &[u64]) -> Result<(), Error> {
    match addresses.iter().find(|&&address| NaaAddress::new(address).is_none()) {
        Some(&address) => Err(Error::Address(address)),
        None => Ok(()),
    }
}

impl HostContext {
    /// What the struct says now.
    fn terms(&self) -> Terms {
        let both = self.public.locals().iter().zip(self.public.peers().iter());
        let role = |(local, peer): (super::super::layout::MrLocal, super::super::layout::MrPeer)| RegionUse {
            addr: local.addr.cast(),
            size: local.size,
            input: local.to_write,
            output: peer.to_write,
            single_send: local.single_send,
            naa_addr: peer.addr,
        };
        let internals = self.public.internals().iter().map(|region| (region.addr, region.size));
        Terms { parameters: both.map(role).collect(), internals: internals.collect() }
    }

    pub(super) fn before_agreeing(&self, call: &'static str) -> Result<(), Error> {
        match &self.phase {
            Phase::Fresh => Ok(()),
            Phase::Opening(opening) if opening.stage() < SetupStage::Agreeing => Ok(()),
            _ => {
                Err(self.not_now(call, "before the regions are agreed on (naaice_init_mrsp, naaice_do_mrsp)"))
            }
        }
    }

    fn parameter(&self, index: i64) -> Result<usize, Error> {
        let parameters = self.public.locals().len();
        let valid = usize::try_from(index).ok().filter(|&index| index < parameters);
        valid.ok_or(Error::NoSuchParameter { index, parameters })
    }

    /// `naaice_set_input_mr`.
    pub(crate) fn set_input(&mut self, index: u32) -> Result<(), Error> {
        let index = self.role(index)?;
        self.public.locals().update(index, |region| {
            if !std::mem::replace(&mut region.to_write, true) {
                self.public.set_inputs(self.public.inputs().saturating_add(1));
            }
        });
        Ok(())
    }

    /// `naaice_set_output_mr`.
    pub(crate) fn set_output(&mut self, index: u32) -> Result<(), Error> {
        let index = self.role(index)?;
        self.public.peers().update(index, |region| {
            if !std::mem::replace(&mut region.to_write, true) {
                self.public.set_outputs(self.public.outputs().saturating_add(1));
            }
        });
        Ok(())
    }

    /// `naaice_set_singlesend_mr`: an input too.
    pub(crate) fn set_single_send(&mut self, index: u32) -> Result<(), Error> {
        self.set_input(index)?;
        let index = self.role(index)?;
        self.public.locals().update(index, |region| region.single_send = true);
        self.public.peers().update(index, |region| region.single_send = true);
        Ok(())
    }

    fn role(&self, index: u32) -> Result<usize, Error> {
        self.before_agreeing("a change of what a parameter is for")?;
        self.parameter(index.into())
    }

    /// `naaice_set_bytes_to_send`: negative for all of them.
    pub(crate) fn set_bytes_to_send(&mut self, index: i32, bytes: i32) -> Result<(), Error> {
        let index = self.parameter(index.into())?;
        self.set_part_to_send(index, usize::try_from(bytes).ok())
    }

    /// The same by the whole range of sizes; `None` for all bytes.
    pub(crate) fn set_part_to_send(&mut self, index: usize, bytes: Option<usize>) -> Result<(), Error> {
        let size = self.public.locals().get(index).map_or(0, |region| region.size);
        if let Some(bytes) = bytes.filter(|&bytes| bytes > size) {
            return Err(Error::TooMuchToSend { index, bytes, size });
        }
        if let Some(bytes_to_send) = self.bytes_to_send.get_mut(index) {
            *bytes_to_send = bytes.map(|bytes| bytes as u64);
        }
        Ok(())
    }

    /// `naaice_register_mrs`.
    pub(crate) fn register(&mut self) -> Result<(), Error> {
        self.before_agreeing("a registration of regions")?;
        let terms = self.terms();
        let Phase::Opening(opening) = &mut self.phase else {
            return Err(self.not_now("a registration of regions", "after naaice_setup_connection"));
        };
        terms.check_memory()?;
        opening.prepare(&terms.params()?, Some(terms.buffers()?))?;
        self.registered = Some(terms);
        Ok(())
    }

    /// `naaice_init_mrsp`: asks the accelerator for regions.
    pub(crate) fn start_agreeing(&mut self) -> Result<(), Error> {
        if !matches!(&self.phase, Phase::Opening(opening) if opening.stage() == SetupStage::Connected) {
            return Err(self.not_now("an agreement on regions", "once, after naaice_setup_connection"));
        }
        match &self.registered {
            None => return Err(self.not_now("an agreement on regions", "after naaice_register_mrs")),
            // What they are for was said after the registration.
            Some(registered) if *registered != self.terms() => self.register()?,
            Some(_) => {}
        }
        let limit = naa_host::timeout_from_env()?.unwrap_or_else(|| self.terms().limit());
        let Phase::Opening(opening) = &mut self.phase else { return Ok(()) };
        if let Err(error) = opening.agree() {
            return Err(self.fail(error.into()));
        }
        self.give_up = Instant::now().checked_add(limit);
        self.public.set_state(State::MrspSending);
        Ok(())
    }

    /// Everything a session needs but connection and regions.
    pub(super) fn open(&self) -> Result<SessionSetup, Error> {
        let mut params = self.terms().params()?;
        let config = self.config();
        // Internal regions may still become more.
        params.resize(config.max_regions.into(), Param::internal(0));
        Ok(SessionSetup::new(&self.device, self.peer, &params, &config)?)
    }
}
