//! Calls of functions and kernels. A function gets the regions of its call as slices of memory that no peer can reach.

use std::{
    borrow::Cow,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use mrsp::{RegionFlags, ReturnCode, U24, catalogue::Direction, plan::Part};

use naa_kernels::{Kernel, SessionProcess};
use verbs::source_network::SourceNetwork;

use crate::{
    function::Function,
    kernel,
    memory_budget::{AllocationError, Quota, Reservation, Scratch},
    pool::PoolRefusal,
    regions::Lent,
};

/// Returns the direction of a region with `flags`: input, output, in-out or internal. A single-send parameter counts as
/// an input. A region without flags counts as an input, too, so that functions can read it.
pub fn direction(flags: RegionFlags) -> Direction {
    let sent = flags.intersects(RegionFlags::INPUT | RegionFlags::SINGLE_SEND);
    match (flags.contains(RegionFlags::INTERNAL), flags.contains(RegionFlags::OUTPUT)) {
        (true, _) => Direction::Internal,
        (_, true) if sent => Direction::InOut,
        (_, true) => Direction::Output,
        _ => Direction::Input,
    }
}

pub use crate::regions::{SessionRegion, SessionRegions, View};

/// A parameter or an internal region that the function of a call works on. No two regions of a call overlap.
#[derive(Debug)]
pub struct RegionRef<'a> {
    /// The direction of the region: input, output, in-out or internal.
    pub direction: Direction,
    /// The bytes of the region. The function may change all bytes, even if the region is an input.
    pub bytes: &'a mut [u8],
}

/// The regions of a call, each of which can be taken once as a slice. Inputs, outputs and internal regions are numbered
/// separately, from 0 on, in the order in which the host described them. An in-out region counts as both an input and
/// an output.
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

    /// Returns the bytes of input `index` without taking it. Returns `None` if the call has no such input, or the input
    /// was taken.
    pub fn peek_input(&self, index: usize) -> Option<&[u8]> {
        self.0[self.index(is_input, index)?].1.as_deref()
    }

    /// Takes the bytes of input `index`. Returns `None` if the call has no such input, or if the region of this input
    /// was taken before.
    pub fn take_input(&mut self, index: usize) -> Option<&'a mut [u8]> {
        let at = self.index(is_input, index)?;
        self.0[at].1.take()
    }

    /// Takes the bytes of output `index`. Returns `None` if the call has no such output, or if the region of this
    /// output was taken before.
    pub fn take_output(&mut self, index: usize) -> Option<&'a mut [u8]> {
        let at = self.index(is_output, index)?;
        self.0[at].1.take()
    }

    /// Takes the bytes of internal region `index`. Returns `None` if the call has no such internal region, or the
    /// region was taken before.
    pub fn take_internal(&mut self, index: usize) -> Option<&'a mut [u8]> {
        let at = self.index(|direction| direction == Direction::Internal, index)?;
        self.0[at].1.take()
    }

    /// Returns true if input `input` and output `output` are the same region.
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

/// The reason for which a call did not succeed. The host gets the reason as the return code [`CallFailure::code`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The server has no function with the function code of the call. Only the server itself makes an
    /// `UnknownFunction`, after it has logged the request. A function that fails returns another variant.
    #[error("unknown function")]
    UnknownFunction,
    /// The host's regions or arguments do not fit the function.
    #[error("bad arguments: {0}")]
    Arguments(Cow<'static, str>),
    /// The function cannot read its input data, although its arguments are right.
    #[error("malformed input: {0}")]
    Input(Cow<'static, str>),
    /// An output is too small for the result.
    #[error("output {output} is too small{}; map a larger one", .needed.map_or(String::new(), |n| format!(", {n} bytes are needed")))]
    OutputTooSmall {
        /// The index of the output among the outputs of the call.
        output: usize,
        /// The number of bytes that would be enough, or `None` if the function does not know it.
        needed: Option<u64>,
    },
    /// The function needs scratch memory that exceeds the session's quota or the memory of the machine.
    #[error("the call needs {needed} bytes of memory beside its regions: {why}")]
    OverLimit {
        /// The number of bytes of scratch memory that the function requested.
        needed: u64,
        /// The limit that is exceeded, and a remedy, as text for people.
        why: Cow<'static, str>,
    },
    /// The call did not end before its deadline.
    #[error("not finished in time; raise the time allowed for a call or give it less to do")]
    TimedOut,
    /// The call was given up, because its session or the server ends.
    #[error("abandoned: the session or the server ends")]
    Abandoned,
    /// The pool did not run the call.
    #[error("{0}")]
    Refused(PoolRefusal),
    /// The function returned a return code of its own.
    #[error("the function returned {}{}", .code.get(), if .text.is_empty() { String::new() } else { format!(": {}", .text) })]
    Returned {
        /// The return code for the host.
        code: ReturnCode,
        /// The text for the server's log, which may be empty.
        text: String,
    },
    /// A kernel failed, or its process did not complete the call.
    #[error("kernel {name} {why}")]
    Kernel {
        /// The name of the kernel.
        name: String,
        /// The return code for the host.
        code: ReturnCode,
        /// The description of the failure for the log. The text, for example "was killed", continues a sentence that
        /// begins with the kernel's name.
        why: String,
    },
    /// A defect in the server.
    #[error("failed inside: {0}")]
    Internal(Cow<'static, str>),
}

impl CallFailure {
    /// Returns true if the operator of the server should see the failure in the log.
    pub fn is_for_the_log(&self) -> bool {
        match self {
            Self::TimedOut
            | Self::Returned { .. }
            | Self::Kernel { .. }
            | Self::Internal(_)
            | Self::Refused(_) => true,
            Self::UnknownFunction
            | Self::Arguments(_)
            | Self::Input(_)
            | Self::OutputTooSmall { .. }
            | Self::OverLimit { .. }
            | Self::Abandoned => false,
        }
    }

    /// Returns the return code for the host.
    pub fn code(&self) -> ReturnCode {
        match self {
            Self::UnknownFunction => ReturnCode::UNKNOWN_FUNCTION,
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

/// The deadline of a call, and a flag that is set when the call is abandoned. A function that runs for a long
/// time calls [`Stop::check`] regularly.
#[derive(Debug)]
pub struct Stop {
    deadline: Option<Instant>,
    abandoned: AtomicBool,
}

impl Stop {
    /// Makes the `Stop` of a call that ends at `deadline` at the latest.
    pub const fn at(deadline: Instant) -> Self {
        Self { deadline: Some(deadline), abandoned: AtomicBool::new(false) }
    }

    /// Makes the `Stop` of a call without a deadline. Programs that run functions without a server use `Stop::never`.
    pub const fn never() -> Self {
        Self { deadline: None, abandoned: AtomicBool::new(false) }
    }

    /// Marks the call as abandoned: nobody waits for its result any more.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Checks if the function should stop, and returns `Ok` if the function may continue.
    ///
    /// # Errors
    /// Fails with [`CallFailure::TimedOut`] after the deadline of the call, and with [`CallFailure::Abandoned`] if the
    /// call was abandoned.
    pub fn check(&self) -> Result<(), CallFailure> {
        if self.abandoned.load(Ordering::Relaxed) {
            Err(CallFailure::Abandoned)
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Err(CallFailure::TimedOut)
        } else {
            Ok(())
        }
    }
}

/// The quota to which the scratch memory of a call is charged. A program that runs functions without a server has no
/// quota.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScratchQuota<'a>(Option<&'a Quota>);

impl ScratchQuota<'_> {
    /// No quota: memory is not charged and not limited.
    pub const UNLIMITED: Self = Self(None);

    /// Charges `bytes` bytes of scratch memory to the quota until the result is dropped. A function calls `reserve`
    /// before it allocates the scratch memory.
    ///
    /// # Errors
    /// Fails with [`CallFailure::OverLimit`] if the session, its source network or the server has fewer than `bytes`
    /// bytes left. The text of the error says how many bytes are left, and names a remedy.
    pub fn reserve(self, bytes: u64) -> Result<Option<Reservation>, CallFailure> {
        self.0.map(|quota| quota.reserve(bytes)).transpose().map_err(|why| over_limit(bytes, &why))
    }

    /// Allocates `bytes` zeroed bytes of scratch memory, which are charged to the quota until the result is dropped.
    ///
    /// # Errors
    /// Fails with [`CallFailure::OverLimit`] if the quota would be exceeded, or if the machine does not have enough
    /// memory.
    pub fn scratch(self, bytes: usize) -> Result<Scratch, CallFailure> {
        Scratch::new(self.0, bytes).map_err(|why| over_limit(bytes as u64, &why))
    }

    /// Charges `bytes` bytes as [`reserve`](Self::reserve) does, for a library that aborts the process if an allocation
    /// fails. If `bytes` is at least 256 KiB, the method also checks if the address space now has room for twice as
    /// many bytes. To check if there is room, `reserve_for_library` maps memory and unmaps it again.
    ///
    /// # Errors
    /// Fails with [`CallFailure::OverLimit`] if the quota would be exceeded, or if the address space has no room for
    /// twice as many bytes.
    pub fn reserve_for_library(self, bytes: usize) -> Result<Option<Reservation>, CallFailure> {
        let reservation = self.reserve(bytes as u64)?;
        if bytes >= LEAST_PROBED {
            // The check maps twice as many bytes as the library needs. Other threads may allocate memory before the
            // library does, and the allocator itself needs memory for its own data.
            let room = bytes.saturating_mul(2);
            drop(Scratch::new(None, room).map_err(|why| over_limit(bytes as u64, &why))?);
        }
        Ok(reservation)
    }
}

/// The least number of bytes for which [`ScratchQuota::reserve_for_library`] checks the room in the address space. If a
/// library needs fewer bytes, there is no check, because the allocator mostly has enough free memory that is already
/// mapped.
const LEAST_PROBED: usize = 256 << 10;

fn over_limit(needed: u64, why: &AllocationError) -> CallFailure {
    let text = match why {
        AllocationError::Map(error) => format!(
            "the server's machine: {error}; give the call less to do, or give the server more memory \
             (`ulimit -v`, memory cgroup)"
        ),
        other => other.to_string(),
    };
    CallFailure::OverLimit { needed, why: text.into() }
}

/// A call as its function sees it, with the regions, the user bits, the [`Stop`] and the quota for scratch memory.
#[derive(Debug)]
pub struct Call<'a> {
    regions: Vec<RegionRef<'a>>,
    scratch_quota: ScratchQuota<'a>,
    user: U24,
    stop: &'a Stop,
    /// The part of each output that is sent to the host. The vector has one element for each parameter. `None` stands
    /// for a whole output, and the element of an input is always `None`. Internal regions have no element.
    produced: Vec<Option<Part>>,
    /// The number of bytes at the start of output 0 that the host gets even if the call fails. The reference
    /// `status_bytes` points into the [`SessionRegions`] of the session, so the number outlives the call.
    status_bytes: &'a mut u32,
}

impl<'a> Call<'a> {
    /// Creates a call that works on `regions`. `user` are the 24 user bits of the host's request.
    ///
    /// # Errors
    /// Fails with [`CallFailure::Internal`] if a region cannot be used as a slice. For example, it cannot be used while
    /// a peer or another process has access to it, or while a send of the session has not completed.
    pub fn new(regions: &'a mut SessionRegions, user: U24, stop: &'a Stop) -> Result<Self, CallFailure> {
        let Lent { regions, quota, status_bytes } =
            regions.lend().ok_or(CallFailure::Internal("a region of the call is open to peers".into()))?;
        let params = regions.iter().filter(|region| region.direction != Direction::Internal).count();
        let scratch_quota = ScratchQuota(quota);
        Ok(Self { regions, scratch_quota, user, stop, produced: vec![None; params], status_bytes })
    }

    /// Runs `function` on a call with `regions`. Returns the part of each output that is sent to the host. The returned
    /// vector has one element for each parameter. `None` stands for a whole output, and the element of an input is
    /// always `None`.
    pub(crate) fn make(
        regions: &mut SessionRegions,
        user: U24,
        stop: &Stop,
        function: impl FnOnce(&mut Call<'_>) -> Result<(), CallFailure>,
    ) -> Result<Vec<Option<Part>>, CallFailure> {
        let mut call = Call::new(regions, user, stop)?;
        let result = function(&mut call).map(|()| call.into_produced());
        // Working copies are copied to the regions even after a failure. The host can get the first bytes of output 0
        // even if the call failed.
        regions.settle();
        result
    }

    /// Ends the call. Returns the part of each output that is sent to the host, as [`make`](Self::make) does. The caller must
    /// call [`SessionRegions::settle`] then.
    pub(crate) fn into_produced(self) -> Vec<Option<Part>> {
        self.produced
    }

    /// Returns the 24 user bits, which the host chose.
    pub fn user(&self) -> U24 {
        self.user
    }

    /// Returns the [`Stop`] of the call, by which the function checks if it should stop. The returned reference does
    /// not borrow the call, so it can be used together with slices of regions.
    pub fn stop(&self) -> &'a Stop {
        self.stop
    }

    /// Returns the quota to which scratch memory is charged. The returned value does not borrow the call.
    pub fn scratch_quota(&self) -> ScratchQuota<'a> {
        self.scratch_quota
    }

    /// Charges `bytes` bytes of scratch memory to the session until the result is dropped. A function calls `reserve`
    /// before it allocates the scratch memory.
    ///
    /// # Errors
    /// Fails with [`CallFailure::OverLimit`] if the session, its source network or the server has fewer than `bytes`
    /// bytes left. The text of the error says how many bytes are left, and names a remedy.
    pub fn reserve(&self, bytes: u64) -> Result<Option<Reservation>, CallFailure> {
        self.scratch_quota.reserve(bytes)
    }

    /// Returns true after the deadline of the call, and after the call was abandoned.
    pub fn should_stop(&self) -> bool {
        self.stop.check().is_err()
    }

    /// Returns parameters and internal regions in the order in which the host described them.
    pub fn regions(&mut self) -> &mut [RegionRef<'a>] {
        &mut self.regions
    }

    /// Returns the regions of the call as slices that the function can take one by one.
    pub fn parts(&mut self) -> Parts<'_> {
        Parts(self.regions.iter_mut().map(|region| (region.direction, Some(&mut *region.bytes))).collect())
    }

    /// Sets the number of bytes at the start of output 0 that the host gets even if the call fails or panics. These
    /// bytes are, for example, a status block.
    pub fn set_status(&mut self, bytes: u32) {
        *self.status_bytes = bytes;
    }

    /// Sets the number of bytes at the start of output `output` that are sent to the host. If the function does not
    /// call `set_produced` for an output, all bytes of this output are sent.
    ///
    /// # Panics
    /// Panics if the call has no output number `output`, or if this output is shorter than `len`.
    pub fn set_produced(&mut self, output: usize, len: usize) {
        let params = self.regions.iter().filter(|region| region.direction != Direction::Internal);
        let mut outputs = params.enumerate().filter(|(_, region)| is_output(region.direction));
        let (param, region) = outputs.nth(output).expect("a function sets lengths of outputs it was given");
        let size = region.bytes.len();
        assert!(len <= size, "{len} bytes do not lie inside output {output} of {size}");
        self.produced[param] = Some(Part::prefix(len as u64));
    }
}

/// What a call executes.
#[derive(Debug)]
pub enum CallWork {
    /// A function runs on a thread of the server.
    Function {
        /// The function that the call runs.
        function: Arc<dyn Function>,
        /// The running process of the session, which is stopped before the function runs. The value is `None` if the
        /// session has no running process.
        process: Option<Arc<SessionProcess>>,
    },
    /// A kernel runs in the process of the session.
    Kernel {
        /// The kernel that the call runs.
        kernel: Arc<Kernel>,
        /// The process that runs the session's kernels.
        process: Arc<SessionProcess>,
    },
}

/// A call that the server has to execute.
#[derive(Debug)]
pub struct ServerCall {
    /// What the call executes.
    pub work: CallWork,
    /// The regions of the session, which belong to the call until the call ends.
    pub regions: SessionRegions,
    /// The serial number of the session, by which the server finds the session when the call has ended.
    pub session: u64,
    /// The source network whose host made the call.
    pub peer: SourceNetwork,
    /// The 24 user bits, which the host chose.
    pub user: U24,
    /// The time at which the call has to end.
    pub deadline: Instant,
}

impl ServerCall {
    /// Runs the function of the call on this thread, or waits on this thread until the session's process has run the
    /// kernel of the call. Returns the part of each output that is sent to the host. The returned vector has one
    /// element for each parameter. `None` stands for a whole output, and the element of an input is always `None`.
    ///
    /// # Errors
    /// Fails with the failure of the function or kernel, or with [`CallFailure::Internal`] if the function panics.
    pub fn run(&mut self, stop: &Stop) -> Result<Vec<Option<Part>>, CallFailure> {
        stop.check()?;
        let (regions, user) = (&mut self.regions, self.user);
        match &self.work {
            CallWork::Function { function, process } => {
                // The session's process is stopped before slices of the regions are made, because slices are made only
                // of memory that no process may write.
                if let Some(process) = process {
                    process.stop();
                }
                Call::make(regions, user, stop, |call| run(&**function, call))
            }
            CallWork::Kernel { kernel, process } => {
                kernel::run(kernel, process, regions, user, self.deadline)
            }
        }
    }
}

/// Runs `function`. If the function panics, the result is [`CallFailure::Internal`].
fn run(function: &dyn Function, call: &mut Call<'_>) -> Result<(), CallFailure> {
    // Unwinding is safe here: after a panic, only bytes of the call's own regions may be inconsistent.
    panic::catch_unwind(AssertUnwindSafe(|| function.run(call))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let (name, text) = (&function.info().name, text.unwrap_or("it gave no text"));
        Err(CallFailure::Internal(format!("function {name} panicked: {text}").into()))
    })
}
