//! How a session is set up.

use std::{ffi::c_char, net::IpAddr, time::Duration};

use naa_host::{CallTimeout, Dialect, Layout, LayoutChoice, ProviderChoice, SessionConfig, WaitMode};

use super::{
    naa_result,
    result::{Problem, guarded},
};
use crate::boundary;

/// As NAA_PROVIDER says, else the one that fits the local address.
pub const NAA_PROVIDER_DEFAULT: i32 = 0;
/// rdma-core: NICs, and the kernel's soft-RoCE.
pub const NAA_PROVIDER_VERBS: i32 = 1;
/// This library's own RoCEv2 on UDP sockets.
pub const NAA_PROVIDER_EMBEDDED: i32 = 2;

/// Poll for some 50 us, then sleep.
pub const NAA_WAIT_ADAPTIVE: i32 = 0;
/// Never sleep: lowest latency, one core.
pub const NAA_WAIT_SPIN: i32 = 1;
/// Sleep at once.
pub const NAA_WAIT_BLOCK: i32 = 2;

/// An accelerator's answer has a return code: the released NAAICE library, `naa serve`, the FPGA.
pub const NAA_DIALECT_MAIN: i32 = 0;
/// NAAICE's successor `next`: an answer has 24 bits for the user, and no return code. Only the status block of a
/// built-in function says that it failed.
pub const NAA_DIALECT_NEXT: i32 = 1;

/// Each region of the session has one on the accelerator, and is written by a WRITE of its own. What every accelerator
/// knows; the others are for accelerators of this project (`naa serve`). One that does not take the layout gets this
/// one; naa_session_describe() tells.
pub const NAA_LAYOUT_SYMMETRIC: i32 = 0;
/// One region on the accelerator, a WRITE each.
pub const NAA_LAYOUT_ASYMMETRIC: i32 = 1;
/// One region on the accelerator. Inputs go in one WRITE that gathers them, outputs come in a WRITE each.
pub const NAA_LAYOUT_GATHERED: i32 = 2;
/// One region on the accelerator. Outputs of up to `packed_bytes` are copied and come in one WRITE; so are inputs of up to a
/// sixteenth of that. Larger inputs go in the same WRITE without a copy, larger outputs come in a WRITE each.
pub const NAA_LAYOUT_PACKED: i32 = 3;
/// What NAA_LAYOUT_RULE says, or a rule that was fitted to measurements, finds best for the sizes of the regions. See
/// `naa bench layouts`.
pub const NAA_LAYOUT_AUTO: i32 = 4;

/// Options of naa_session_connect(). A member that is 0 stands for its default, so `{ .struct_size = sizeof options }`
/// will do, and so will naa_options_init(). Later versions may append members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct naa_options {
    /// sizeof(naa_options).
    pub struct_size: u32,
    /// NAA_PROVIDER_...
    pub provider: i32,
    /// The local address to use, "10.9.0.2" or "fd00::2". NULL: NAA_LOCAL_IP, and if that is not set where the route to
    /// the accelerator begins.
    pub local_address: *const c_char,
    /// Connecting and agreeing on regions must be done within this many milliseconds. Default: NAA_TIMEOUT, a number of
    /// seconds, and 10000 if that is not set.
    pub setup_timeout_ms: i32,
    /// During a call, the accelerator is asked for a sign of life every so many milliseconds. Default 1000; -1 for
    /// never: then its death during a call may go unnoticed for ever.
    pub probe_interval_ms: i32,
    /// An accelerator that acknowledges nothing for about this many milliseconds is given up: NAA_ERROR_GONE. That
    /// takes at least as long, and less than twice as long. Default 4300.
    pub silence_ms: i32,
    /// NAA_WAIT_...: how waiting threads wait.
    pub wait: i32,
    /// NAA_DIALECT_...: what the accelerator means by its answers.
    pub dialect: i32,
    /// NAA_LAYOUT_...: how regions lie on the accelerator and get there. A session may have
    /// up to 255 regions, except with the symmetric layout.
    pub layout: i32,
    /// The threshold of NAA_LAYOUT_PACKED in bytes. Default 65536.
    pub packed_bytes: u32,
    /// A call must be done within this many milliseconds, however the program waits for it; else it ends with
    /// NAA_ERROR_GONE and the session is over. Default: NAA_TIMEOUT, a number of seconds, and no limit if that is not set;
    /// -1 for no limit whatever NAA_TIMEOUT says. A call that takes more than 10 s is reported once, by a line on standard
    /// error that names the accelerator and the function and says whether the accelerator answers probes; NAA_LOG=off
    /// switches such lines off.
    pub call_timeout_ms: i32,
}

/// Sets all of `options`, of `size` bytes (sizeof(naa_options)), to the defaults.
///
/// NAA_ERROR_ARGUMENT if `options` is NULL or `size` is not that of the struct.
///
/// # Safety
/// `options` points to `size` bytes, unless it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_options_init(options: *mut naa_options, size: usize) -> naa_result {
    // SAFETY: the caller's contract.
    guarded(|| unsafe { init(options, size, "naa_options") })
}

/// Sets a struct of options that begins with its size to 0, except the size.
///
/// # Safety
/// If `options` is not NULL, it points to `size` bytes.
pub(crate) unsafe fn init<T>(options: *mut T, size: usize, name: &str) -> Result<(), Problem> {
    let size_32 = u32::try_from(size).ok().filter(|_| (size_of::<T>()..=LARGEST).contains(&size));
    let size_32 = size_32
        .ok_or_else(|| Problem::argument(format!("size is not that of {name}; give sizeof({name})")))?;
    if options.is_null() {
        return Err(Problem::NoPlace("options"));
    }
    // SAFETY: the caller's contract; the size is at least that of the first member, which may be unaligned.
    unsafe {
        options.cast::<u8>().write_bytes(0, size);
        options.cast::<u32>().write_unaligned(size_32);
    }
    Ok(())
}

/// More than any version will have.
const LARGEST: usize = 4096;

/// Options that were read.
#[derive(Clone, Debug)]
pub(super) struct SessionOptions {
    pub(super) config: SessionConfig,
    pub(super) local: Option<IpAddr>,
    /// `None`: as the environment has it.
    pub(super) provider: Option<ProviderChoice>,
}

impl SessionOptions {
    /// # Safety
    /// If `options` is not NULL, it points to as many bytes as its first field says.
    pub(super) unsafe fn read(options: *const naa_options) -> Result<Self, Problem> {
        if options.is_null() {
            return Ok(Self { config: SessionConfig::default(), local: None, provider: None });
        }
        // SAFETY: the caller's contract.
        let given = unsafe { known(options, "naa_options") }?;
        // SAFETY: the caller's contract.
        let local = unsafe { local(given.local_address) }?;
        let provider = provider(given.provider)?;
        Ok(Self { config: config(&given)?, local, provider })
    }
}

/// # Safety
/// NULL, or it points to text that ends with a zero.
pub(crate) unsafe fn local(address: *const c_char) -> Result<Option<IpAddr>, Problem> {
    // SAFETY: the caller's contract.
    let text = unsafe { boundary::text(address) }.map_err(|_| bad("local_address", "is not UTF-8"))?;
    let remedy =
        |text| bad("local_address", &format!("{text:?} is no IP address; `ip addr` lists this machine's"));
    text.map(|text| text.trim().parse().map_err(|_| remedy(text))).transpose()
}

/// `None`: as the environment has it.
pub(crate) fn provider(number: i32) -> Result<Option<ProviderChoice>, Problem> {
    match number {
        NAA_PROVIDER_DEFAULT => Ok(None),
        NAA_PROVIDER_VERBS => Ok(Some(ProviderChoice::Verbs)),
        NAA_PROVIDER_EMBEDDED => Ok(Some(ProviderChoice::Embedded)),
        other => Err(bad("provider", &format!("{other} is no NAA_PROVIDER_..."))),
    }
}

/// Options of a struct that begins with its size, as far as this version knows them.
///
/// # Safety
/// `options` points to as many bytes as it says; every bit pattern is a `T`.
pub(crate) unsafe fn known<T: Copy>(options: *const T, name: &str) -> Result<T, Problem> {
    let smallest = size_of::<T>();
    // SAFETY: the first member is there whatever the version.
    let size = unsafe { options.cast::<u32>().read_unaligned() } as usize;
    if size < smallest {
        return Err(bad("struct_size", &format!("{size} is too small; set it to sizeof({name})")));
    }
    if size > LARGEST {
        return Err(bad("struct_size", &format!("{size} is nonsense; set it to sizeof({name})")));
    }
    // SAFETY: as many bytes are there (the caller's contract).
    let newer = unsafe { std::slice::from_raw_parts(options.cast::<u8>().add(smallest), size - smallest) };
    if newer.iter().any(|&byte| byte != 0) {
        return Err(Problem::argument(
            "options set members that this version of the library does not know; install the version of the header",
        ));
    }
    // SAFETY: the same.
    Ok(unsafe { options.read_unaligned() })
}

fn config(given: &naa_options) -> Result<SessionConfig, Problem> {
    let mut config = SessionConfig::default();
    waits(&mut config, given.setup_timeout_ms, given.probe_interval_ms, given.silence_ms, given.wait)?;
    config.call_timeout = match given.call_timeout_ms {
        0 => CallTimeout::Environment,
        -1 => CallTimeout::Never,
        ms => CallTimeout::After(positive("call_timeout_ms", ms)?),
    };
    config.dialect = match given.dialect {
        NAA_DIALECT_MAIN => Dialect::Main,
        NAA_DIALECT_NEXT => Dialect::Next,
        other => return Err(bad("dialect", &format!("{other} is no NAA_DIALECT_..."))),
    };
    config.layout = match given.layout {
        NAA_LAYOUT_SYMMETRIC => LayoutChoice::Fixed(Layout::Symmetric),
        NAA_LAYOUT_ASYMMETRIC => LayoutChoice::Fixed(Layout::Asymmetric),
        NAA_LAYOUT_GATHERED => LayoutChoice::Fixed(Layout::Gathered),
        NAA_LAYOUT_PACKED => LayoutChoice::Fixed(packed(given.packed_bytes)),
        NAA_LAYOUT_AUTO => LayoutChoice::Auto,
        other => return Err(bad("layout", &format!("{other} is no NAA_LAYOUT_..."))),
    };
    Ok(config)
}

/// Members that all options have.
pub(crate) fn waits(
    config: &mut SessionConfig,
    setup_timeout_ms: i32,
    probe_interval_ms: i32,
    silence_ms: i32,
    wait: i32,
) -> Result<(), Problem> {
    match setup_timeout_ms {
        0 => {}
        ms => config.setup_timeout = positive("setup_timeout_ms", ms)?,
    }
    match probe_interval_ms {
        0 => {}
        -1 => config.probe_interval = None,
        ms => config.probe_interval = Some(positive("probe_interval_ms", ms)?),
    }
    match silence_ms {
        0 => {}
        ms => config.ack_timeout = ack_timeout(positive("silence_ms", ms)?),
    }
    config.wait = match wait {
        NAA_WAIT_ADAPTIVE => WaitMode::Adaptive,
        NAA_WAIT_SPIN => WaitMode::Spin,
        NAA_WAIT_BLOCK => WaitMode::Block,
        other => return Err(bad("wait", &format!("{other} is no NAA_WAIT_..."))),
    };
    Ok(())
}

fn packed(threshold: u32) -> Layout {
    if threshold == 0 { Layout::PACKED } else { Layout::Packed { threshold } }
}

/// The smallest exponent that gives an accelerator as much time, see [`SessionConfig::ack_timeout`].
fn ack_timeout(silence: Duration) -> u8 {
    let given = |n: u8| Duration::from_nanos((8 * 4096) << n);
    (1..31).find(|&n| given(n) >= silence).unwrap_or(31)
}

pub(crate) fn positive(member: &str, ms: i32) -> Result<Duration, Problem> {
    let ms = u64::try_from(ms).map_err(|_| bad(member, &format!("{ms} is negative")))?;
    Ok(Duration::from_millis(ms))
}

pub(crate) fn bad(member: &str, problem: &str) -> Problem {
    Problem::argument(format!("options, {member}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_at_least_as_long_as_asked_for() {
        assert_eq!(ack_timeout(Duration::from_millis(4295)), 18);
        assert_eq!(ack_timeout(Duration::from_millis(4294)), 17);
        assert_eq!((ack_timeout(Duration::from_nanos(1)), ack_timeout(Duration::MAX)), (1, 31));
    }
}
