//! A call as its function sees it: regions as slices, while no peer can reach them.

use std::{
    borrow::Cow,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use mrsp::{RegionFlags, ReturnCode, U24, catalogue::Direction, plan::Prefix};

use naa_kernels::SessionProcess;
use verbs::peer::Peer;

use crate::{
    arena::{ArenaError, Quota, Reservation, Scratch},
    function::Function,
    kernel,
    pool::Refusal,
};

/// The direction of a region from the function's view. A single-send parameter counts as sent. A region without flags
/// can still be read.
pub fn direction(flags: RegionFlags) -> Direction {
    let sent = flags.intersects(RegionFlags::INPUT | RegionFlags::SINGLE_SEND);
    match (flags.contains(RegionFlags::INTERNAL), flags.contains(RegionFlags::OUTPUT)) {
        (true, _) => Direction::Internal,
        (_, true) if sent => Direction::InOut,
        (_, true) => Direction::Output,
        _ => Direction::Input,
    }
}

pub use crate::regions::{Region, Regions, View};

/// A region during a call. No two regions of a call overlap.
#[derive(Debug)]
pub struct RegionRef<'a> {
    pub direction: Direction,
    pub bytes: &'a mut [u8],
}

/// The regions of a call, each of which can be taken once as a slice. Input i is the i-th region that is sent, output i
/// the i-th that is returned; an in-out region counts as both.
#[derive(Debug)]
pub struct Parts<'a>(Vec<(Direction, Option<&'a mut [u8]>)>);

impl<'a> Parts<'a> {
    fn index(&self, is_meant: fn(Direction) -> bool, index: usize) -> Option<usize> {
        self.0
            .iter()
            .enumerate()
            .filter(|(_, (direction, _))| is_meant(*direction))
            .nth(index)
            .map(|(at, _)| at)
    }

    /// The bytes of input `index` without taking it, if there is such an input and it was not taken.
    pub fn peek_input(&self, index: usize) -> Option<&[u8]> {
        self.0[self.index(is_input, index)?].1.as_deref()
    }

    pub fn take_input(&mut self, index: usize) -> Option<&'a mut [u8]> {
        let at = self.index(is_input, index)?;
        self.0[at].1.take()
    }

    pub fn take_output(&mut self, index: usize) -> Option<&'a mut [u8]> {
        let at = self.index(is_output, index)?;
        self.0[at].1.take()
    }

    pub fn take_internal(&mut self, index: usize) -> Option<&'a mut [u8]> {
        let at = self.index(|direction| direction == Direction::Internal, index)?;
        self.0[at].1.take()
    }

    /// Whether both are the same region.
    pub fn is_in_place(&self, input: usize, output: usize) -> bool {
        let input = self.index(is_input, input);
        input.is_some() && input == self.index(is_output, output)
    }
}

fn is_input(direction: Direction) -> bool {
    matches!(direction, Direction::Input | Direction::InOut)
}

fn is_output(direction: Direction) -> bool {
    matches!(direction, Direction::Output | Direction::InOut)
}

/// Why a call did not succeed. [`Failure::code`] is what the host learns of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The host's regions or arguments do not fit the function.
    #[error("bad arguments: {0}")]
    Arguments(Cow<'static, str>),
    /// The function cannot read its input data, though its arguments are right.
    #[error("malformed input: {0}")]
    Input(Cow<'static, str>),
    /// `needed` bytes would be enough, if that number is known.
    #[error("output {output} is too small{}; map a larger one", .needed.map_or(String::new(), |n| format!(", {n} bytes are needed")))]
    OutputTooSmall { output: usize, needed: Option<u64> },
    /// The function needs memory beside the call's regions, which exceeds the session's quota or the memory of the
    /// machine.
    #[error("the call needs {needed} bytes of memory beside its regions: {why}")]
    OverLimit { needed: u64, why: Cow<'static, str> },
    #[error("not finished in time; raise the time allowed for a call or give it less to do")]
    TimedOut,
    #[error("abandoned: the session or the server ends")]
    Abandoned,
    /// The pool did not run the call.
    #[error("{0}")]
    Refused(Refusal),
    /// A return code of the function itself.
    #[error("the function returned {}{}", .code.get(), if .text.is_empty() { String::new() } else { format!(": {}", .text) })]
    Returned { code: ReturnCode, text: String },
    /// A kernel returned `code`, or its process ended; `why` begins with a verb.
    #[error("kernel {name} {why}")]
    Kernel { name: String, code: ReturnCode, why: String },
    /// A defect in the server.
    #[error("failed inside: {0}")]
    Internal(Cow<'static, str>),
}

impl Failure {
    /// Whether the operator of the server should know: the return code does not tell the host what happened, the
    /// function wrote a text for the log, or the server refused the call.
    pub fn is_for_the_log(&self) -> bool {
        match self {
            Self::TimedOut
            | Self::Returned { .. }
            | Self::Kernel { .. }
            | Self::Internal(_)
            | Self::Refused(_) => true,
            Self::Arguments(_)
            | Self::Input(_)
            | Self::OutputTooSmall { .. }
            | Self::OverLimit { .. }
            | Self::Abandoned => false,
        }
    }

    /// The return code for the host.
    pub fn code(&self) -> ReturnCode {
        match self {
            Self::Arguments(_) => ReturnCode::BAD_ARGUMENTS,
            Self::Input(_) => ReturnCode::MALFORMED_INPUT,
            Self::OutputTooSmall { .. } => ReturnCode::OUTPUT_TOO_SMALL,
            Self::OverLimit { .. } => ReturnCode::OVER_LIMIT,
            Self::TimedOut => ReturnCode::KERNEL_TIMEOUT,
            Self::Abandoned => ReturnCode::ABANDONED,
            Self::Refused(_) => ReturnCode::BUSY,
            Self::Returned { code, .. } | Self::Kernel { code, .. } => *code,
            Self::Internal(_) => ReturnCode::INTERNAL,
        }
    }
}

/// Why a call failed, and how many status bytes are sent all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub why: Failure,
    /// The number of bytes in the first output that hold a status.
    pub status_bytes: u32,
}

impl From<Failure> for Failed {
    fn from(why: Failure) -> Self {
        Self { why, status_bytes: 0 }
    }
}

impl From<&Failed> for mrsp::naa::Failure {
    fn from(failed: &Failed) -> Self {
        Self { code: failed.why.code(), status_bytes: failed.status_bytes }
    }
}

/// When a function is to give up. Functions that take long check it now and then.
#[derive(Debug)]
pub struct Stop {
    deadline: Option<Instant>,
    abandoned: AtomicBool,
}

impl Stop {
    pub const fn at(deadline: Instant) -> Self {
        Self { deadline: Some(deadline), abandoned: AtomicBool::new(false) }
    }

    pub const fn never() -> Self {
        Self { deadline: None, abandoned: AtomicBool::new(false) }
    }

    /// Marks the call as abandoned: nobody waits for its result any more.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// [`Failure::TimedOut`] or [`Failure::Abandoned`] if the function should give up.
    pub fn check(&self) -> Result<(), Failure> {
        if self.abandoned.load(Ordering::Relaxed) {
            Err(Failure::Abandoned)
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Err(Failure::TimedOut)
        } else {
            Ok(())
        }
    }
}

/// The quota that pays for memory which a function takes beside the regions of a call. There is none where a program
/// computes for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Purse<'a>(Option<&'a Quota>);

impl Purse<'_> {
    /// No quota: memory is charged to nobody, and is not limited.
    pub const UNLIMITED: Self = Self(None);

    /// Charges `bytes` until the result is dropped. Call this before allocating the memory.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] with the bytes that are left and a remedy.
    pub fn reserve(self, bytes: u64) -> Result<Option<Reservation>, Failure> {
        self.0.map(|quota| quota.reserve(bytes)).transpose().map_err(|why| over_limit(bytes, &why))
    }

    /// Allocates `bytes` zeroed bytes, charged until they are dropped.
    ///
    /// # Errors
    /// [`Failure::OverLimit`], also if the machine has not enough memory.
    pub fn scratch(self, bytes: usize) -> Result<Scratch, Failure> {
        Scratch::new(self.0, bytes).map_err(|why| over_limit(bytes as u64, &why))
    }

    /// Reserves as [`reserve`](Self::reserve) does, for a library that aborts the process if an allocation fails. It
    /// also refuses sizes for which the address space has no room at this moment; to find out, it maps the memory and
    /// unmaps it.
    ///
    /// # Errors
    /// The same errors as [`scratch`](Self::scratch).
    pub fn reserve_for_library(self, bytes: usize) -> Result<Option<Reservation>, Failure> {
        let reservation = self.reserve(bytes as u64)?;
        if bytes >= LEAST_PROBED {
            // The double size leaves room for what other threads allocate meanwhile, and for the allocator's own data.
            let room = bytes.saturating_mul(2);
            drop(Scratch::new(None, room).map_err(|why| over_limit(bytes as u64, &why))?);
        }
        Ok(reservation)
    }
}

/// Allocators keep this many bytes ready, so smaller sizes are not checked.
const LEAST_PROBED: usize = 256 << 10;

fn over_limit(needed: u64, why: &ArenaError) -> Failure {
    let text = match why {
        ArenaError::Map(error) => format!(
            "the server's machine: {error}; give the call less to do, or give the server more memory \
             (`ulimit -v`, memory cgroup)"
        ),
        other => other.to_string(),
    };
    Failure::OverLimit { needed, why: text.into() }
}

/// A call as its function sees it.
#[derive(Debug)]
pub struct Call<'a> {
    regions: Vec<RegionRef<'a>>,
    purse: Purse<'a>,
    user: U24,
    stop: &'a Stop,
    prefixes: Vec<Prefix>,
    status_bytes: u32,
}

impl<'a> Call<'a> {
    /// # Errors
    /// [`Failure::Internal`] if a peer still has access to a region.
    pub fn new(regions: &'a mut Regions, user: U24, stop: &'a Stop) -> Result<Self, Failure> {
        let (regions, quota) =
            regions.slices().ok_or(Failure::Internal("a region of the call is open to peers".into()))?;
        let params = regions.iter().filter(|region| region.direction != Direction::Internal).count();
        Ok(Self { regions, purse: Purse(quota), user, stop, prefixes: vec![None; params], status_bytes: 0 })
    }

    /// Makes a call. Returns how much of each parameter is a result.
    pub(crate) fn make(
        regions: &mut Regions,
        user: U24,
        stop: &Stop,
        function: impl FnOnce(&mut Call<'_>) -> Result<(), Failure>,
    ) -> Result<Vec<Prefix>, Failed> {
        let mut call = Call::new(regions, user, stop)?;
        let result = match function(&mut call) {
            Ok(()) => Ok(call.prefixes),
            Err(why) => Err(Failed { why, status_bytes: call.status_bytes }),
        };
        // This is done after a failure too, since there may be a status.
        regions.settle();
        result
    }

    /// The 24 user bits, which the host chose.
    pub fn user(&self) -> U24 {
        self.user
    }

    /// The limits of the call. The reference outlives borrows of the call, so that it can be used while slices are held.
    pub fn stop(&self) -> &'a Stop {
        self.stop
    }

    /// The quota that pays for memory beside the regions. It outlives borrows of the call.
    pub fn purse(&self) -> Purse<'a> {
        self.purse
    }

    /// Charges the session for `bytes` of memory beside the regions until the result is dropped. Call this before
    /// allocating the memory.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] with the bytes that are left and a remedy.
    pub fn reserve(&self, bytes: u64) -> Result<Option<Reservation>, Failure> {
        self.purse.reserve(bytes)
    }

    pub fn should_stop(&self) -> bool {
        self.stop.check().is_err()
    }

    /// Parameters and internal regions, in the order in which the host described them.
    pub fn regions(&mut self) -> &mut [RegionRef<'a>] {
        &mut self.regions
    }

    pub fn parts(&mut self) -> Parts<'_> {
        Parts(self.regions.iter_mut().map(|region| (region.direction, Some(&mut *region.bytes))).collect())
    }

    /// Sets how many bytes of output 0 hold a status, which is sent even if the call fails or panics.
    pub fn set_status(&mut self, bytes: u32) {
        self.status_bytes = bytes;
    }

    /// Sets how many bytes of output `output` are a result; if this is not called, all are.
    ///
    /// # Panics
    /// If there is no such output, or it is shorter than `len`.
    pub fn set_produced(&mut self, output: usize, len: usize) {
        let params = self.regions.iter().filter(|region| region.direction != Direction::Internal);
        let mut outputs = params.enumerate().filter(|(_, region)| is_output(region.direction));
        let (param, region) = outputs.nth(output).expect("a function sets lengths of outputs it was given");
        let size = region.bytes.len();
        assert!(len <= size, "{len} bytes do not lie inside output {output} of {size}");
        self.prefixes[param] = Some(len as u64);
    }
}

/// A call to be made.
#[derive(Debug)]
pub struct Task {
    pub function: Arc<dyn Function>,
    pub regions: Regions,
    /// The peer that made the call.
    pub peer: Peer,
    /// The 24 user bits, which the host chose.
    pub user: U24,
    pub deadline: Instant,
    /// The session's process, if the function is a kernel or a kernel of the session may have run there.
    pub process: Option<Arc<SessionProcess>>,
}

impl Task {
    /// Runs the function on this thread. Returns how much of each parameter is a result.
    ///
    /// # Errors
    /// The failure of the function; [`Failure::Internal`] if it panics.
    pub fn run(&mut self, stop: &Stop) -> Result<Vec<Prefix>, Failed> {
        stop.check()?;
        let (function, user) = (&self.function, self.user);
        if let Some(kernel) = function.kernel() {
            let process = self.process.as_deref();
            return Ok(kernel::run(kernel, process, &mut self.regions, user, self.deadline)?);
        }
        // The process is stopped first, because no slices are made of memory that a process may write.
        if let Some(process) = &self.process {
            process.stop();
        }
        Call::make(&mut self.regions, user, stop, |call| {
            // Unwind-safe: after a panic only bytes of the call's own regions may be inconsistent.
            panic::catch_unwind(AssertUnwindSafe(|| function.run(call))).unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<&str>().copied();
                let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                let (name, text) = (&function.info().name, text.unwrap_or("it gave no text"));
                Err(Failure::Internal(format!("function {name} panicked: {text}").into()))
            })
        })
    }
}
