//! Sessions: a connection to an accelerator with its regions.

use std::{
    ffi::{CString, c_char},
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
};

use naa_host::{Claim, Device, Error, FunctionCode, Part, SessionConfig};

use super::{
    address,
    call::function_code,
    functions::Offered,
    naa_result,
    options::{SessionOptions, naa_options},
    regions::{RegionList, naa_region},
    result::{Problem, guarded},
};
use crate::{
    boundary,
    handles::{HandleTable, InUse, Misuse, WaitLimit},
    log, spec,
};

/// A connection to an accelerator with its regions. One call at a time runs on it; any number of sessions, also to
/// one accelerator, may run calls at once.
#[derive(Debug)]
pub struct naa_session(());

/// Calls may be started.
pub const NAA_SESSION_IDLE: i32 = 0;
/// A call is under way.
pub const NAA_SESSION_RUNNING: i32 = 1;
/// It ended by an error; close it.
pub const NAA_SESSION_OVER: i32 = 2;

static SESSIONS: HandleTable<SessionHandle> = HandleTable::new("a session", 0x4e41);

/// What a handle stands for.
#[derive(Debug)]
pub(super) struct SessionHandle {
    pub(super) host: naa_host::Session,
    /// The function of the last call.
    pub(super) function: Option<FunctionCode>,
    /// The device from which the accelerator is asked for its functions.
    pub(super) device: Device,
    pub(super) config: SessionConfig,
    /// `None`: the accelerator was not asked yet.
    pub(super) offered: Option<Offered>,
    description: CString,
    /// The number of each region when internal ones are not counted; `None` for an internal region.
    numbers: Vec<Option<usize>>,
    /// The number of the first output when internal regions are not counted; `None` if there is no output.
    pub(super) first_output: Option<usize>,
    _claim: Option<Claim>,
}

pub(super) fn get(session: *const naa_session) -> Result<InUse<'static, SessionHandle>, Misuse> {
    SESSIONS.get(session.addr())
}

/// Connects to an accelerator and agrees with it on regions. Returns when that is done, or has failed.
///
/// `address`: "10.9.0.1", "10.9.0.1:12345", "[fd00::1]:12345", "name" or "name:12345"; the port is 12345 if none is
/// given. `regions`: `count` of them, at most 31, internal ones included, or 255 with another
/// layout than the symmetric one; the array is not needed afterwards, the memory it names is needed until the session is closed. Functions see the regions in this order. `options`: NULL for
/// the defaults. `session`: where the handle goes; NULL goes there after an error.
///
/// NAA_ERROR_UNREACHABLE, NAA_ERROR_REFUSED and NAA_ERROR_TIMEOUT without a session; NAA_ERROR_ARGUMENT for regions,
/// address or options that cannot be used; NAA_ERROR_ENVIRONMENT, NAA_ERROR_DEVICE, NAA_ERROR_MEMORY, NAA_ERROR_GONE,
/// NAA_ERROR_PEER.
///
/// # Safety
/// The pointers lead to what is said above; the memory of regions stays mapped until the session is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_session_connect(
    address: *const c_char,
    regions: *const naa_region,
    count: usize,
    options: *const naa_options,
    session: *mut *mut naa_session,
) -> naa_result {
    guarded(|| {
        // SAFETY: the caller's contract.
        let (out, request) =
            unsafe { (HandleOut::new(session)?, SessionRequest::read(regions, count, options)?) };
        // SAFETY: the caller's contract.
        let text =
            unsafe { boundary::text(address) }.map_err(|_| Problem::argument("address is not UTF-8"))?;
        let text =
            text.ok_or_else(|| Problem::argument("address is NULL; give the accelerator's, \"10.9.0.1\""))?;
        let connected = request.connect(text.trim(), &address::resolve(text)?)?;
        out.fill(request.session(connected, None))
    })
}

/// Connects to a free accelerator that NAA_SPEC has for `function` with as many inputs as there are in `regions`. No
/// other session of this process gets that entry until this one is closed. Otherwise it does what
/// naa_session_connect() does.
///
/// NAA_SPEC is "address:port:function:inputs", several separated by commas, IPv6 addresses in brackets, an empty port
/// for 12345. NAA_ERROR_ENVIRONMENT if it is not set, cannot be read or has no entry free.
///
/// # Safety
/// The same as of naa_session_connect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_session_connect_spec(
    function: i32,
    regions: *const naa_region,
    count: usize,
    options: *const naa_options,
    session: *mut *mut naa_session,
) -> naa_result {
    guarded(|| {
        // SAFETY: the caller's contract.
        let (out, request) =
            unsafe { (HandleOut::new(session)?, SessionRequest::read(regions, count, options)?) };
        let claim = spec::claim(function_code(function)?, request.inputs).map_err(Error::Spec)?;
        let connected = request.connect("", &[claim.entry().peer])?;
        out.fill(request.session(connected, Some(claim)))
    })
}

/// Disconnects, without waiting for the accelerator, and frees the session; NULL is allowed. A call that is under way is
/// given up: its outputs may hold part of its results. Afterwards, the memory of the regions is the program's alone.
///
/// NAA_ERROR_ARGUMENT if `session` is none, or was closed; NAA_ERROR_STATE if another thread is using it. After
/// NAA_ERROR_DEVICE, the accelerator could not be told, it is closed all the same.
///
/// # Safety
/// None: `session` is not looked through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_session_close(session: *mut naa_session) -> naa_result {
    guarded(|| {
        if session.is_null() {
            return Ok(());
        }
        let session = SESSIONS.remove(session.addr(), WaitLimit::Brief)?;
        Ok(session.host.finalize()?)
    })
}

/// Sets `state` to NAA_SESSION_IDLE, NAA_SESSION_RUNNING or NAA_SESSION_OVER.
///
/// NAA_ERROR_ARGUMENT, NAA_ERROR_STATE if another thread is using the session.
///
/// # Safety
/// `state` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_session_state(session: *const naa_session, state: *mut i32) -> naa_result {
    guarded(|| {
        let session = get(session)?;
        let is = match &session.host {
            host if host.is_in_call() => NAA_SESSION_RUNNING,
            host if host.is_over() => NAA_SESSION_OVER,
            _ => NAA_SESSION_IDLE,
        };
        // SAFETY: the caller's contract.
        unsafe { give(state, is, "state") }
    })
}

/// Which provider serves the session, on which address, and why, and the layout, for people: "embedded on 10.9.0.2
/// (...); symmetric layout". Valid until
/// the session is closed; NULL if `session` is none or another thread is using it.
///
/// # Safety
/// None: `session` is not looked through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_session_describe(session: *const naa_session) -> *const c_char {
    let mut text = std::ptr::null();
    guarded(|| {
        text = get(session)?.description.as_ptr();
        Ok(())
    });
    text
}

/// Sets `fd` to a descriptor for poll(), epoll or an event loop. After naa_call_test() said that the call has not
/// ended, the descriptor becomes readable when it is time to call naa_call_test() again: the call ended, its session did, or
/// the accelerator is to be asked for a sign of life. Read nothing from it, and do not close it: it is the session's, and
/// goes when the session is closed.
///
/// NAA_ERROR_ARGUMENT, NAA_ERROR_STATE if another thread is using the session, NAA_ERROR_DEVICE.
///
/// # Safety
/// `fd` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_session_fd(session: *mut naa_session, fd: *mut i32) -> naa_result {
    guarded(|| {
        let mut session = get(session)?;
        let descriptor = session.host.descriptor()?.as_raw_fd();
        // SAFETY: the caller's contract.
        unsafe { give(fd, descriptor, "fd") }
    })
}

/// Sends only `bytes` bytes from `offset` on of an input with the calls to come, to the same place of the accelerator's
/// region. The rest of that keeps what it has there. 0 bytes are allowed. `region` counts as in naa_session_connect().
///
/// NAA_ERROR_ARGUMENT if the region is no input or has no such bytes; NAA_ERROR_STATE if another thread is using the
/// session. During a call it is for the next one.
///
/// # Safety
/// None: `session` is not looked through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_session_set_range(
    session: *mut naa_session,
    region: usize,
    offset: u64,
    bytes: u64,
) -> naa_result {
    guarded(|| set_part(session, region, Some(Part { offset, bytes })))
}

/// Sends all of an input again with the calls to come: undoes naa_session_set_range().
///
/// NAA_ERROR_ARGUMENT, NAA_ERROR_STATE as there.
///
/// # Safety
/// None: `session` is not looked through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_session_set_range_all(session: *mut naa_session, region: usize) -> naa_result {
    guarded(|| set_part(session, region, None))
}

fn set_part(session: *mut naa_session, region: usize, part: Option<Part>) -> Result<(), Problem> {
    let mut session = get(session)?;
    let count = session.numbers.len();
    let bad = |what: String| Problem::argument(format!("region {region}: {what}"));
    let number = session.numbers.get(region).copied();
    let number =
        number.ok_or_else(|| bad(format!("there is none; the session has {count}, counted from 0")))?;
    let number = number.ok_or_else(|| bad("it is internal, so nothing of it is sent".to_owned()))?;
    session.host.set_part_to_send(number, part).map_err(|error| match error {
        // Their text counts without internal regions.
        Error::NotInput { .. } => bad("it is no input, so nothing of it is sent".to_owned()),
        Error::OutOfBounds { offset, len, size, .. } => {
            bad(format!("it has {size} bytes; {len} at {offset} do not lie inside"))
        }
        error => error.into(),
    })
}

/// # Safety
/// If `to` is not NULL, it points to a place for a `T`.
pub(crate) unsafe fn give<T>(to: *mut T, value: T, name: &'static str) -> Result<(), Problem> {
    if to.is_null() {
        return Err(Problem::NoPlace(name));
    }
    // SAFETY: the caller's contract; programs in other languages may not align it.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Where a new handle goes.
struct HandleOut(*mut *mut naa_session);

impl HandleOut {
    /// # Safety
    /// If `place` is not NULL, it points to a pointer.
    unsafe fn new(place: *mut *mut naa_session) -> Result<Self, Problem> {
        // SAFETY: the caller's contract.
        unsafe { give(place, std::ptr::null_mut(), "session") }?;
        Ok(Self(place))
    }

    fn fill(self, session: SessionHandle) -> Result<(), Problem> {
        let handle = SESSIONS.insert(session)?;
        // SAFETY: contract of `new`.
        unsafe { give(self.0, std::ptr::without_provenance_mut(handle), "session") }
    }
}

/// What a session is asked for with.
struct SessionRequest {
    regions: RegionList,
    inputs: usize,
    options: SessionOptions,
}

impl SessionRequest {
    /// # Safety
    /// The contract is that of [`naa_session_connect`].
    unsafe fn read(
        regions: *const naa_region,
        count: usize,
        options: *const naa_options,
    ) -> Result<Self, Problem> {
        // SAFETY: the caller's contract.
        let (options, regions) =
            unsafe { (SessionOptions::read(options)?, boundary::elements(regions, count)) };
        let regions = regions.ok_or_else(|| {
            Problem::argument("regions is NULL or not aligned; it is an array of naa_region")
        })?;
        Ok(Self { regions: RegionList::read(regions)?, inputs: RegionList::inputs(regions), options })
    }

    /// Tries the addresses of `name` in turn, each for its share of the time.
    fn connect(&self, name: &str, addresses: &[SocketAddr]) -> Result<(naa_host::Session, Device), Problem> {
        log::start();
        let (all, local) = (&self.options.config, self.options.local);
        let may_be = |peer: &SocketAddr| local.is_none_or(|local| same_family(local, *peer));
        let near: Vec<_> = addresses.iter().copied().filter(may_be).collect();
        if let (Some(local), Some(peer), []) = (local, addresses.first(), &near[..]) {
            return Err(Problem::argument(format!(
                "options, local_address: {local} is not of the family of {peer}; choose another"
            )));
        }
        let connected = naa_host::try_each(name, &near, all.setup_timeout, |address, setup_timeout| {
            self.connect_to(address, &SessionConfig { setup_timeout, ..all.clone() })
        });
        Ok(connected?)
    }

    fn connect_to(
        &self,
        peer: SocketAddr,
        config: &SessionConfig,
    ) -> Result<(naa_host::Session, Device), Error> {
        let device = self.device(peer)?;
        let RegionList { params, .. } = &self.regions;
        let session = naa_host::Session::connect_with(&device, peer, params, self.regions.buffers(), config)?;
        Ok((session, device))
    }

    fn session(self, (host, device): (naa_host::Session, Device), claim: Option<Claim>) -> SessionHandle {
        // No text of ours has a zero byte.
        let description = format!("{}; {} layout", device.describe(), host.layout());
        SessionHandle {
            host,
            function: None,
            device,
            config: self.options.config,
            offered: None,
            description: CString::new(description).unwrap_or_default(),
            numbers: self.regions.numbers,
            first_output: self.regions.first_output,
            _claim: claim,
        }
    }

    fn device(&self, peer: SocketAddr) -> Result<Device, Error> {
        let SessionOptions { local, provider, .. } = &self.options;
        match (*local, *provider) {
            (Some(local), Some(provider)) => Device::open_with(local, provider),
            (Some(local), None) => Device::open(local),
            (None, Some(provider)) => Device::towards_with(peer, provider),
            (None, None) => Device::towards(peer),
        }
    }
}

fn same_family(local: IpAddr, peer: SocketAddr) -> bool {
    local.is_ipv4() == peer.is_ipv4()
}
