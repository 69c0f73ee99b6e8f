//! How a worker subscribes.

use std::{ffi::c_char, time::Duration};

use naa_events::{Config, Filter, Geometry, WorkerName};

use crate::{
    boundary,
    native::{
        naa_result,
        options::{bad, init, known, local, positive, provider, waits},
        result::{Problem, guarded},
    },
};

/// Options of naa_worker_open(). A member that is 0 stands for its default, so `{ .struct_size = sizeof options }` will do,
/// and so will naa_worker_options_init(). Later versions may append members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct naa_worker_options {
    /// sizeof(naa_worker_options).
    pub struct_size: u32,
    /// Slots of the ring, 1 to 65536. Default 64. An event takes as many as it needs, side by side; one that is larger than
    /// the ring never comes.
    pub slots: u32,
    /// Bytes of a slot, a multiple of 64. Default 1048576. The ring is shorter than 4 GiB.
    pub slot_bytes: u32,
    /// If events are routed by data id: the first data id of which this worker gets events,
    pub first_data_id: u32,
    /// and the number of data ids from that one on. 0: all further ones.
    pub data_ids: u32,
    /// If events are routed by load-balancer tables: whether this worker is a member of them (not 0),
    pub has_member: u32,
    /// and which member it is, 0 to 65535.
    pub member: u32,
    /// The bridge must have answered within this many milliseconds. Default: NAA_TIMEOUT, a number of seconds, and 10000 if
    /// that is not set.
    pub setup_timeout_ms: i32,
    /// While naa_worker_next() waits, a bridge on another host is asked for a sign of life every so many milliseconds.
    /// Default 1000; -1 for never: then its death may go unnoticed for ever.
    pub probe_interval_ms: i32,
    /// One that acknowledges nothing for about this many milliseconds is taken for dead. At least as long, and at
    /// most some three times. Default 2100.
    pub silence_ms: i32,
    /// A bridge that ended is looked for so many milliseconds, then it is NAA_ERROR_GONE. Default 30000; -1 for not at all.
    pub reconnect_ms: i32,
    /// NAA_WAIT_... of naa.h: how waiting threads wait.
    pub wait: i32,
    /// NAA_PROVIDER_... of naa.h.
    pub provider: i32,
    /// 1: the bridge may also give this worker events that another worker had when it ended, and naa_event_delivered_again()
    /// says which these are. Set it in every worker, also in those that may end or be killed: the bridge keeps what a worker had only
    /// if that worker set it, or if another worker that set it is subscribed when the first one ends. An event that is kept, and
    /// whose bytes the bridge has (not in cut-through), is delivered to the next worker that set this and has room, within the
    /// bridge's --hold, and again at most twice. A bridge that does not know this option refuses. 0, the default: this worker gets
    /// each event at most once.
    pub again: u32,
    /// The local address to use, "10.9.0.2" or "fd00::2". NULL: NAA_LOCAL_IP, and if that is not set where the route to
    /// the bridge begins.
    pub local_address: *const c_char,
    /// For people, up to 32 bytes of printable ASCII: the bridge shows it. NULL for none.
    pub name: *const c_char,
}

/// Sets all of `options`, of `size` bytes (sizeof(naa_worker_options)), to the defaults.
///
/// NAA_ERROR_ARGUMENT if `options` is NULL or `size` is not that of the struct.
///
/// # Safety
/// `options` points to `size` bytes, unless it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_worker_options_init(
    options: *mut naa_worker_options,
    size: usize,
) -> naa_result {
    // SAFETY: the caller's contract.
    guarded(|| unsafe { init(options, size, "naa_worker_options") })
}

/// # Safety
/// If `options` is not NULL, it points to as many bytes as its first field says.
pub(super) unsafe fn read(options: *const naa_worker_options) -> Result<Config, Problem> {
    let mut config = Config::default();
    if options.is_null() {
        return Ok(config);
    }
    // SAFETY: the caller's contract.
    let (given, name, local) = unsafe {
        let given = known(options, "naa_worker_options")?;
        (given, boundary::text(given.name), local(given.local_address)?)
    };
    config.again = match given.again {
        0 => false,
        1 => true,
        _ => return Err(bad("again", "is neither 0 nor 1; use naa_worker_options_init()")),
    };
    (config.local, config.provider) = (local, provider(given.provider)?);
    let name = name.map_err(|_| bad("name", "is not ASCII"))?.unwrap_or_default();
    let printable = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    config.name = WorkerName::from(name)
        .ok()
        .filter(|_| printable)
        .ok_or_else(|| bad("name", "has more than 32 bytes, or other characters than printable ASCII"))?;
    config.geometry = geometry(&given, config.geometry)?;
    config.filter = filter(&given)?;
    waits(
        &mut config.session,
        given.setup_timeout_ms,
        given.probe_interval_ms,
        given.silence_ms,
        given.wait,
    )?;
    config.reconnect = match given.reconnect_ms {
        0 => config.reconnect,
        -1 => None,
        ms => Some(positive("reconnect_ms", ms)?),
    };
    Ok(config)
}

fn geometry(given: &naa_worker_options, default: Geometry) -> Result<Geometry, Problem> {
    let or = |value, default| if value == 0 { default } else { value };
    let slots = or(given.slots, default.slots());
    Geometry::new(slots, or(given.slot_bytes, default.slot_bytes()))
        .map_err(|e| bad("slots, slot_bytes", &e.to_string()))
}

fn filter(given: &naa_worker_options) -> Result<Filter, Problem> {
    let id = |value: u32| u16::try_from(value).ok();
    let first = id(given.first_data_id);
    let last = match given.data_ids {
        0 => Some(u16::MAX),
        count => given.first_data_id.checked_add(count - 1).and_then(id),
    };
    let beyond = || bad("first_data_id, data_ids", "ids are numbers up to 65535");
    let data_ids = first.zip(last).ok_or_else(beyond)?;
    let member = match given.has_member {
        0 if given.member == 0 => None,
        0 => return Err(bad("member", "has_member is 0; set it to 1")),
        _ => Some(id(given.member).ok_or_else(|| bad("member", "members are numbers up to 65535"))?),
    };
    Ok(Filter { data_ids, member })
}

/// How long naa_worker_next() waits; `None`: without limit.
pub(super) fn limit(timeout_ms: i32) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}
