//! `naaice_ap2.h`: calls by function code, on accelerators that `NAA_SPEC` names.

use std::ffi::{c_int, c_uint, c_void};

use naa_host::{LOCAL_IP_VARIABLE, variable};

use super::{
    context::{HeaderVersion, Public, State},
    error::Error,
    host::{self, Addresses, ContextConfig, HostContext, ProgramMemory},
    layout::CommContext,
    low_level::keep,
    outcome::number,
    registry,
};
use crate::{boundary, spec};

/// `naa_param_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NaaParam {
    pub addr: *mut c_void,
    pub size: usize,
    pub single_send: bool,
}

/// `naa_handle`.
#[repr(C)]
#[derive(Debug)]
pub struct NaaHandle {
    pub function_code: u32,
    pub comm_ctx: *mut CommContext,
}

/// `naa_status`; `answer` is `naa_error` in branch `main`, `user_immediate` in `next`.
#[repr(C)]
#[derive(Debug)]
pub struct Status {
    pub state: c_int,
    pub answer: u32,
    pub bytes_received: u64,
}

const _: () =
    assert!(size_of::<NaaParam>() == 24 && size_of::<NaaHandle>() == 16 && size_of::<Status>() == 16);

/// What `naa_create` was given, as regions: an output at the address of an input is the same region.
#[derive(Debug, Default)]
struct MergedParams {
    memory: Vec<ProgramMemory>,
    /// What is sent of a region that is longer as an output.
    bytes_to_send: Vec<Option<usize>>,
    outputs: Vec<usize>,
    single_sends: Vec<usize>,
}

impl MergedParams {
    fn of(inputs: &[NaaParam], outputs: &[NaaParam]) -> Self {
        let mut regions = Self::default();
        for param in inputs {
            let index = regions.push(param);
            regions.note(index, param);
        }
        for param in outputs {
            let of_input = inputs.iter().position(|input| input.addr == param.addr && !param.addr.is_null());
            let index = match of_input {
                Some(index) => {
                    regions.widen(index, param.size);
                    index
                }
                None => regions.push(param),
            };
            regions.outputs.push(index);
            regions.note(index, param);
        }
        regions
    }

    fn push(&mut self, param: &NaaParam) -> usize {
        self.memory.push((param.addr.cast(), param.size));
        self.bytes_to_send.push(None);
        self.memory.len() - 1
    }

    fn note(&mut self, index: usize, param: &NaaParam) {
        if param.single_send {
            self.single_sends.push(index);
        }
    }

    fn widen(&mut self, index: usize, size: usize) {
        let (_, whole) = &mut self.memory[index];
        if size > *whole {
            self.bytes_to_send[index].get_or_insert(*whole);
            *whole = size;
        }
    }
}

fn create(
    version: HeaderVersion,
    function_code: u32,
    inputs: &[NaaParam],
    outputs: &[NaaParam],
) -> Result<*mut CommContext, Error> {
    let function = host::function_code(function_code)?;
    let code = naa_host::FunctionCode::new(function).ok_or(Error::FunctionCode(function_code))?;
    let regions = MergedParams::of(inputs, outputs);
    let claim = spec::claim(code, inputs.len())?;
    let local = variable(LOCAL_IP_VARIABLE)?;
    let peer = claim.entry().peer;
    let mut host = HostContext::create(ContextConfig {
        version,
        parameters: regions.memory,
        internals: Vec::new(),
        addresses: Addresses::From(0),
        function,
        local: local.as_deref().map(str::trim),
        remote: &peer.ip().to_string(),
        port: peer.port(),
    })?;
    host.hold(claim);
    host.connect()?;
    let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
    for index in 0..inputs.len() {
        host.set_input(number(index))?;
    }
    for index in regions.outputs {
        host.set_output(number(index))?;
    }
    for index in regions.single_sends {
        host.set_single_send(number(index))?;
    }
    for (index, bytes) in regions.bytes_to_send.iter().enumerate() {
        host.set_part_to_send(index, *bytes)?;
    }
    host.register()?;
    host.agree()?;
    Ok(keep(host))
}

macro_rules! create {
    ($(#[$doc:meta])* $name:ident: $version:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or lead to as much as `naaice_ap2.h` says; parameters are the program's until `naa_finalize`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            function_code: u32,
            input_params: *const NaaParam,
            input_amount: c_uint,
            output_params: *const NaaParam,
            output_amount: c_uint,
            handle: *mut NaaHandle,
        ) -> c_int {
            number("naa_create", || {
                // SAFETY: this function's contract.
                let handle = unsafe { boundary::exclusive(handle) }.ok_or(Error::Pointer { what: "handle" })?;
                *handle = NaaHandle { function_code: 0, comm_ctx: std::ptr::null_mut() };
                // Each for itself: an output may be an input's region.
                for amount in [input_amount, output_amount] {
                    host::check_amounts(amount.max(1) as usize, 0)?;
                }
                // SAFETY: this function's contract.
                let (inputs, outputs) = unsafe {
                    (
                        boundary::elements(input_params, input_amount as usize),
                        boundary::elements(output_params, output_amount as usize),
                    )
                };
                let inputs = inputs.ok_or(Error::Pointer { what: "input_params" })?;
                let outputs = outputs.ok_or(Error::Pointer { what: "output_params" })?;
                let comm_ctx = create($version, function_code, inputs, outputs)?;
                *handle = NaaHandle { function_code, comm_ctx };
                Ok(())
            })
        }
    };
}

create! {
    /// Makes a handle for programs with the structs of branch `main`.
    naa_create: HeaderVersion::Main
}

create! {
    /// Makes a handle for programs with the structs of branch `next`.
    naa_next_create: HeaderVersion::Next
}

/// Uses the context of a handle.
///
/// # Safety
/// The pointer is null, or leads to a handle.
unsafe fn on_handle(
    name: &'static str,
    handle: *const NaaHandle,
    f: impl FnOnce(&mut HostContext) -> Result<(), Error>,
) -> c_int {
    number(name, || {
        // SAFETY: this function's contract.
        let handle = unsafe { boundary::reference(handle) }.ok_or(Error::Pointer { what: "handle" })?;
        registry::with(handle.comm_ctx, f)
    })
}

/// # Safety
/// The pointer is null, or leads to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_invoke(handle: *mut NaaHandle) -> c_int {
    // SAFETY: this function's contract.
    unsafe { on_handle("naa_invoke", handle, HostContext::invoke) }
}

/// # Safety
/// The pointers are null, or lead to a handle, a bool and a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_test(handle: *mut NaaHandle, flag: *mut bool, status: *mut Status) -> c_int {
    // SAFETY: this function's contract.
    unsafe {
        on_handle("naa_test", handle, |host| {
            if flag.is_null() {
                return Err(Error::Pointer { what: "flag" });
            }
            flag.write(false);
            let polled = host.poll();
            flag.write(host.public().state().is_some_and(|state| state >= State::Finished));
            write_status(host.public(), status);
            polled
        })
    }
}

/// # Safety
/// The pointers are null, or lead to a handle and a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_wait(handle: *mut NaaHandle, status: *mut Status) -> c_int {
    // SAFETY: this function's contract.
    unsafe {
        on_handle("naa_wait", handle, |host| {
            let waited = host.wait();
            write_status(host.public(), status);
            waited
        })
    }
}

/// # Safety
/// The pointer is null, or leads to a handle. Its context is gone then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_finalize(handle: *mut NaaHandle) -> c_int {
    number("naa_finalize", || {
        // SAFETY: this function's contract.
        let handle = unsafe { boundary::exclusive(handle) }.ok_or(Error::Pointer { what: "handle" })?;
        drop(registry::remove::<HostContext>(handle.comm_ctx)?);
        handle.comm_ctx = std::ptr::null_mut();
        Ok(())
    })
}

/// # Safety
/// The pointer is null, for programs that do not ask, or leads to a status.
unsafe fn write_status(public: &Public, status: *mut Status) {
    if status.is_null() || !status.is_aligned() {
        return;
    }
    let state = public.state().unwrap_or(State::Error) as c_int;
    let bytes_received = public.bytes_received().into();
    // SAFETY: this function's contract.
    unsafe { status.write(Status { state, answer: public.answer(), bytes_received }) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(addr: usize, size: usize, single_send: bool) -> NaaParam {
        NaaParam { addr: std::ptr::without_provenance_mut(addr), size, single_send }
    }

    #[test]
    fn an_output_at_an_inputs_address_is_the_same_region() {
        let inputs = [param(0x1000, 8, false), param(0x2000, 8, true)];
        let outputs = [param(0x2000, 4, false), param(0x1000, 16, false), param(0x3000, 8, true)];
        let regions = MergedParams::of(&inputs, &outputs);
        let sizes: Vec<_> = regions.memory.iter().map(|&(_, size)| size).collect();
        assert_eq!(sizes, [16, 8, 8], "as long as the longer of both");
        assert_eq!(regions.bytes_to_send, [Some(8), None, None], "but no more is sent than the input has");
        assert_eq!((regions.outputs, regions.single_sends), (vec![1, 0, 2], vec![1, 2]));
    }
}
