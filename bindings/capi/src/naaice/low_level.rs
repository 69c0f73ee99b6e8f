//! `naaice.h`, function by function. What each is for stands there; here only how C's arguments become Rust's.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::{
    cm_event::{self, RdmaCmEvent},
    context::HeaderVersion,
    error::Error,
    host::{self, Addresses, ContextConfig, HostContext, RdmaCmEventType},
    layout::CommContext,
    outcome::{number, on_host},
    registry,
};
use crate::{boundary, last_error};

/// Arguments that both constructors have.
struct Sides {
    local: *const c_char,
    remote: *const c_char,
    port: u16,
}

/// The parts of a request that C passes as arrays.
struct Arrays {
    params: *const *mut c_char,
    param_sizes: *const usize,
    params_amount: c_uint,
    internal_sizes: *const usize,
    internals_amount: c_uint,
}

/// # Safety
/// The contract is that of the constructors.
unsafe fn create(
    out: *mut *mut CommContext,
    version: HeaderVersion,
    arrays: &Arrays,
    addresses: Addresses,
    function: u8,
    sides: &Sides,
) -> Result<(), Error> {
    // SAFETY: the contracts of the constructors.
    let out = unsafe { boundary::exclusive(out) }.ok_or(Error::Pointer { what: "comm_ctx" })?;
    *out = std::ptr::null_mut();
    host::check_amounts(arrays.params_amount as usize, arrays.internals_amount as usize)?;
    // SAFETY: the contracts of the constructors: each pointer is null or leads to as many elements, or to text.
    let (params, sizes, internals, local, remote) = unsafe {
        (
            boundary::elements(arrays.params, arrays.params_amount as usize),
            boundary::elements(arrays.param_sizes, arrays.params_amount as usize),
            boundary::elements(arrays.internal_sizes, arrays.internals_amount as usize),
            boundary::text(sides.local),
            boundary::text(sides.remote),
        )
    };
    let params = params.ok_or(Error::Pointer { what: "params" })?;
    let sizes = sizes.ok_or(Error::Pointer { what: "param_sizes" })?;
    let internals = internals.ok_or(Error::Pointer { what: "internal_mr_sizes" })?;
    let local = local.map_err(|_| Error::Text { what: "local_address" })?;
    let remote = remote.map_err(|_| Error::Text { what: "remote_address" })?;
    let host = HostContext::create(ContextConfig {
        version,
        parameters: params.iter().map(|param| param.cast()).zip(sizes.iter().copied()).collect(),
        internals: internals.to_vec(),
        addresses,
        function,
        local,
        remote: remote.ok_or(Error::Pointer { what: "remote_address" })?,
        port: sides.port,
    })?;
    *out = keep(host);
    Ok(())
}

/// Gives the context to the program, which holds it from now on.
pub(super) fn keep(host: HostContext) -> *mut CommContext {
    let pointer = host.public().as_ptr();
    registry::insert(pointer, host);
    pointer
}

macro_rules! constructor {
    ($(#[$doc:meta])* $name:ident: $version:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or lead to as much as `naaice.h` says; parameters are the program's until the clean-up.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            comm_ctx: *mut *mut CommContext,
            addr_offset: u64,
            param_sizes: *const usize,
            params: *const *mut c_char,
            params_amount: c_uint,
            internal_mr_amount: c_uint,
            internal_mr_sizes: *const usize,
            fncode: u8,
            local_address: *const c_char,
            remote_address: *const c_char,
            remote_cm_port: u16,
        ) -> c_int {
            let arrays = Arrays {
                params,
                param_sizes,
                params_amount,
                internal_sizes: internal_mr_sizes,
                internals_amount: internal_mr_amount,
            };
            let sides = Sides { local: local_address, remote: remote_address, port: remote_cm_port };
            number("naaice_init_communication_context", || {
                // SAFETY: this function's contract.
                unsafe { create(comm_ctx, $version, &arrays, Addresses::From(addr_offset), fncode, &sides) }
            })
        }
    };
}

constructor! {
    /// Makes a context for programs with the struct of branch `main`.
    naaice_init_communication_context: HeaderVersion::Main
}

constructor! {
    /// Makes a context for programs with the struct of branch `next`.
    naaice_next_init_communication_context: HeaderVersion::Next
}

/// Makes a context for programs with the struct of branch `next`, which alone has this function.
///
/// # Safety
/// The same as of `naaice_init_communication_context`; there are as many addresses as regions, internal ones first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_init_communication_context_with_addresses(
    comm_ctx: *mut *mut CommContext,
    naa_addresses: *const u64,
    params: *const *mut c_char,
    params_amount: c_uint,
    mr_sizes: *const usize,
    internal_mr_amount: c_uint,
    fncode: u8,
    local_address: *const c_char,
    remote_address: *const c_char,
    remote_cm_port: u16,
) -> c_int {
    number("naaice_init_communication_context_with_addresses", || {
        // SAFETY: this function's contract.
        if let Some(out) = unsafe { boundary::exclusive(comm_ctx) } {
            *out = std::ptr::null_mut();
        }
        host::check_amounts(params_amount as usize, internal_mr_amount as usize)?;
        let regions = (params_amount as usize).saturating_add(internal_mr_amount as usize);
        // SAFETY: this function's contract.
        let (addresses, sizes) =
            unsafe { (boundary::elements(naa_addresses, regions), boundary::elements(mr_sizes, regions)) };
        let addresses = addresses.ok_or(Error::Pointer { what: "naa_addresses" })?;
        let sizes = sizes.ok_or(Error::Pointer { what: "mr_sizes" })?;
        let (internals, parameters) = sizes.split_at(internal_mr_amount as usize);
        let arrays = Arrays {
            params,
            param_sizes: parameters.as_ptr(),
            params_amount,
            internal_sizes: internals.as_ptr(),
            internals_amount: internal_mr_amount,
        };
        let sides = Sides { local: local_address, remote: remote_address, port: remote_cm_port };
        let addresses = Addresses::These(addresses.to_vec());
        // SAFETY: this function's contract; the sizes are slices.
        unsafe { create(comm_ctx, HeaderVersion::Next, &arrays, addresses, fncode, &sides) }
    })
}

/// Functions that take a context only.
macro_rules! on_context {
    ($($name:ident: $method:expr;)*) => {$(
        /// # Safety
        /// None is needed for the pointer, which is looked up; for the program's memory what `naaice.h` says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(comm_ctx: *mut CommContext) -> c_int {
            on_host(stringify!($name), comm_ctx, $method)
        }
    )*};
}

on_context! {
    naaice_init_rdma_resources: HostContext::address_resolved;
    naaice_setup_connection: HostContext::connect;
    naaice_poll_and_handle_connection_event: |host| {
        let event = host.next_event()?;
        host.handle_event(event)
    };
    naaice_register_mrs: HostContext::register;
    naaice_init_mrsp: HostContext::start_agreeing;
    naaice_do_mrsp: HostContext::agree;
    naaice_init_data_transfer: HostContext::invoke;
    naaice_do_data_transfer: HostContext::call;
    naaice_poll_cq_nonblocking: HostContext::poll;
    naaice_poll_cq_blocking: HostContext::wait;
    naaice_poll_cq_busy: HostContext::spin;
    naaice_post_recv_mrsp: HostContext::receives_are_posted;
    naaice_post_recv_data: HostContext::receives_are_posted;
}

/// # Safety
/// The pointer is null, or leads to an event to be filled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_poll_connection_event(
    comm_ctx: *mut CommContext,
    _ev: *mut RdmaCmEvent,
    ev_cp: *mut RdmaCmEvent,
) -> c_int {
    on_host("naaice_poll_connection_event", comm_ctx, |host| {
        if ev_cp.is_null() || !ev_cp.is_aligned() {
            return Err(Error::Pointer { what: "ev_cp" });
        }
        let event = RdmaCmEvent::of(host.next_event()?);
        // SAFETY: this function's contract; what is written is the start of the program's struct.
        unsafe { ev_cp.write(event) };
        Ok(())
    })
}

/// Handlers of one event each, which leave others alone.
macro_rules! handlers {
    ($($name:ident: $($event:path)|+;)*) => {$(
        /// # Safety
        /// The pointer is null, or leads to an event.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(comm_ctx: *mut CommContext, ev: *mut RdmaCmEvent) -> c_int {
            on_host(stringify!($name), comm_ctx, |host| {
                // SAFETY: this function's contract.
                let event = unsafe { cm_event::read(ev) }?;
                match event.filter(|event| matches!(event, $($event)|+)) {
                    Some(event) => host.handle_event(event),
                    None => Ok(()),
                }
            })
        }
    )*};
}

handlers! {
    naaice_handle_addr_resolved: RdmaCmEventType::AddrResolved;
    naaice_handle_route_resolved: RdmaCmEventType::RouteResolved;
    naaice_handle_connection_established: RdmaCmEventType::Established;
    naaice_handle_error: RdmaCmEventType::AddrError | RdmaCmEventType::RouteError
        | RdmaCmEventType::ConnectError | RdmaCmEventType::Unreachable | RdmaCmEventType::Rejected
        | RdmaCmEventType::Disconnected | RdmaCmEventType::DeviceRemoval;
}

/// # Safety
/// The pointer is null, or leads to an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_handle_other(comm_ctx: *mut CommContext, ev: *mut RdmaCmEvent) -> c_int {
    on_host("naaice_handle_other", comm_ctx, |_| {
        // SAFETY: this function's contract.
        unsafe { cm_event::read(ev) }?;
        Err(Error::Refused("no event that a host handles; rdma_cm.h has their names"))
    })
}

/// # Safety
/// The pointers are null, or lead to as many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_set_parameter_mrs(
    comm_ctx: *mut CommContext,
    n_parameter_mrs: c_uint,
    local_addrs: *const u64,
    remote_addrs: *const u64,
    sizes: *const usize,
) -> c_int {
    on_host("naaice_set_parameter_mrs", comm_ctx, |context| {
        let count = n_parameter_mrs as usize;
        host::check_amounts(count, 0)?;
        // SAFETY: this function's contract.
        let (locals, remotes, sizes) = unsafe {
            (
                boundary::elements(local_addrs, count),
                boundary::elements(remote_addrs, count),
                boundary::elements(sizes, count),
            )
        };
        let locals = locals.ok_or(Error::Pointer { what: "local_addrs" })?;
        let remotes = remotes.ok_or(Error::Pointer { what: "remote_addrs" })?;
        let sizes = sizes.ok_or(Error::Pointer { what: "sizes" })?;
        let memory = |(&addr, &size)| (std::ptr::with_exposed_provenance_mut(addr as usize), size);
        context.set_parameters(&locals.iter().zip(sizes).map(memory).collect::<Vec<_>>(), remotes)
    })
}

/// # Safety
/// The pointers are null, or lead to as many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_set_internal_mrs(
    comm_ctx: *mut CommContext,
    n_internal_mrs: c_uint,
    addrs: *const u64,
    sizes: *const usize,
) -> c_int {
    on_host("naaice_set_internal_mrs", comm_ctx, |context| {
        let count = n_internal_mrs as usize;
        host::check_amounts(1, count)?;
        // SAFETY: this function's contract.
        let (addrs, sizes) = unsafe { (boundary::elements(addrs, count), boundary::elements(sizes, count)) };
        let addrs = addrs.ok_or(Error::Pointer { what: "addrs" })?;
        context.set_internals(sizes.ok_or(Error::Pointer { what: "sizes" })?, addrs)
    })
}

/// Functions that take a context and the number of a parameter.
macro_rules! on_parameter {
    ($($name:ident: $method:expr;)*) => {$(
        /// # Safety
        /// None is needed: the pointer is looked up.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(comm_ctx: *mut CommContext, index: c_uint) -> c_int {
            on_host(stringify!($name), comm_ctx, |host| $method(host, index))
        }
    )*};
}

on_parameter! {
    naaice_set_input_mr: HostContext::set_input;
    naaice_set_output_mr: HostContext::set_output;
    naaice_set_singlesend_mr: HostContext::set_single_send;
}

/// # Safety
/// None is needed: the pointer is looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_set_bytes_to_send(
    comm_ctx: *mut CommContext,
    mr_idx: c_int,
    number_bytes: c_int,
) -> c_int {
    on_host("naaice_set_bytes_to_send", comm_ctx, |host| host.set_bytes_to_send(mr_idx, number_bytes))
}

/// # Safety
/// The pointer is null, or leads to 3 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_set_immediate(comm_ctx: *mut CommContext, imm_bytes: *const u8) -> c_int {
    on_host("naaice_set_immediate", comm_ctx, |host| {
        // SAFETY: this function's contract.
        let bytes = unsafe { boundary::elements(imm_bytes, 3) };
        match bytes.ok_or(Error::Pointer { what: "imm_bytes" })? {
            &[a, b, c] => host.set_immediate([a, b, c]),
            _ => Ok(()),
        }
    })
}

/// The start of a `struct ibv_wc`: its number and its status.
#[repr(C)]
#[derive(Debug)]
pub struct WorkCompletion {
    wr_id: u64,
    status: c_int,
}

/// # Safety
/// The pointer is null, or leads to a `struct ibv_wc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_handle_work_completion(
    wc: *const WorkCompletion,
    comm_ctx: *mut CommContext,
) -> c_int {
    on_host("naaice_handle_work_completion", comm_ctx, |host| {
        // SAFETY: this function's contract.
        let wc = unsafe { boundary::reference(wc) }.ok_or(Error::Pointer { what: "wc" })?;
        host.handle_foreign_completion(wc.status == 0)
    })
}

/// # Safety
/// None is needed: the pointer is looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_send_message(
    comm_ctx: *mut CommContext,
    message_type: c_uint,
    _errorcode: u8,
) -> c_int {
    const ERROR: c_uint = 0;
    const REQUEST: c_uint = 1;
    on_host("naaice_send_message", comm_ctx, |host| match message_type {
        REQUEST => host.start_agreeing(),
        ERROR => host.send_error(),
        _ => Err(Error::Refused("a host sends MSG_MR_AAR and MSG_MR_ERR only")),
    })
}

/// # Safety
/// None is needed: the pointer is looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_write_data(comm_ctx: *mut CommContext, fncode: u8) -> c_int {
    on_host("naaice_write_data", comm_ctx, |host| host.write_data(fncode))
}

/// # Safety
/// None is needed: the pointer is looked up. The context is gone then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naaice_disconnect_and_cleanup(comm_ctx: *mut CommContext) -> c_int {
    number("naaice_disconnect_and_cleanup", || {
        registry::remove::<HostContext>(comm_ctx)?.leave_struct();
        Ok(())
    })
}

/// Why the last function of `naaice.h` or `naaice_ap2.h` failed on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn naaice_last_error() -> *const c_char {
    last_error::get()
}

const _: () = assert!(size_of::<*mut c_void>() == 8, "the structs are those of 64-bit machines");
