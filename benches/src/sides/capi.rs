//! Calls as a program in C makes them: the same functions, by the same pointers.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_int},
    mem::MaybeUninit,
    net::SocketAddr,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicI32, Ordering},
    time::{Duration, Instant},
};

use anyhow::ensure;
use mrsp::{FunctionCode, builtin};
use naa_c::{
    naaice::{
        layout::CommContext,
        low_level::{naaice_last_error, naaice_poll_cq_busy, naaice_poll_cq_nonblocking},
        middleware::{NaaHandle, NaaParam, Status, naa_create, naa_invoke, naa_wait},
    },
    native::{
        NAA_INOUT, NAA_WAIT_ADAPTIVE, NAA_WAIT_BLOCK, NAA_WAIT_SPIN, naa_call_start, naa_call_wait,
        naa_last_error, naa_options, naa_options_init, naa_region, naa_result, naa_session,
        naa_session_connect,
    },
};
use serde::{Deserialize, Serialize};

use super::{
    Wait,
    call::{BYTES, SLEEP, check, time_calls},
};
use crate::{
    cpu,
    side::{Effort, Measure, Work},
};

/// The C functions that make the calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Calls {
    /// naaice_ap2.h: `naa_invoke`, `naa_wait`.
    Middleware,
    /// `naa_invoke`, then `naaice_poll_cq_nonblocking` until the state says that it is over.
    Polling,
    /// `naa_invoke`, `naaice_poll_cq_busy`, which spins.
    Busy,
    /// naa.h: `naa_call_start`, `naa_call_wait`.
    Native(Wait),
}

/// NAAICE_FINISHED of naaice.h.
const FINISHED: i32 = 30;
/// The offset of `state` in the context of naaice.h.
const STATE_OFFSET: usize = 68;

/// The one region. The network writes it, so it is never a reference while there may be a call; it is there as
/// long as the process, which ends without finalizing.
#[derive(Clone, Copy, Debug)]
struct Data(NonNull<[u8; BYTES]>);

impl Data {
    fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new([0; BYTES]))))
    }

    fn read(self) -> [u8; BYTES] {
        // SAFETY: it lives for ever, and between calls nobody writes it.
        unsafe { self.0.read() }
    }

    fn write(self, bytes: [u8; BYTES]) {
        // SAFETY: it lives for ever, and between calls nobody else looks at it.
        unsafe { self.0.write(bytes) }
    }
}

/// Checks the result of a function of NAAICE's headers.
fn zero(result: c_int) -> anyhow::Result<()> {
    // SAFETY: a text of this thread's, until the next failure.
    ensure!(result == 0, "{}", unsafe { CStr::from_ptr(naaice_last_error()) }.to_string_lossy());
    Ok(())
}

/// Checks the result of a function of naa.h.
fn ok(result: naa_result) -> anyhow::Result<()> {
    // SAFETY: a text of this thread's, until the next failure.
    let text = || unsafe { CStr::from_ptr(naa_last_error()) }.to_string_lossy();
    ensure!(result == naa_result::NAA_OK, "{}", text());
    Ok(())
}

/// A handle of naaice_ap2.h, for the accelerator in `NAA_SPEC`.
#[derive(Debug)]
struct Middleware(NaaHandle);

impl Middleware {
    fn create(function: FunctionCode, data: Data) -> anyhow::Result<Self> {
        let mut handle = NaaHandle { function_code: 0, comm_ctx: null_mut() };
        let param = NaaParam { addr: data.0.as_ptr().cast(), size: BYTES, single_send: false };
        // SAFETY: pointers to one element each, and memory that stays; as an output it is the input's region.
        zero(unsafe { naa_create(function.get().into(), &param, 1, &param, 1, &mut handle) })?;
        Ok(Self(handle))
    }

    fn invoke(&mut self) -> anyhow::Result<()> {
        // SAFETY: a handle.
        zero(unsafe { naa_invoke(&mut self.0) })
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let mut status = Status { state: 0, answer: 0, bytes_received: 0 };
        // SAFETY: a handle and a status.
        zero(unsafe { naa_wait(&mut self.0, &mut status) })?;
        ensure!((status.state, status.answer) == (FINISHED, 0), "the call failed: {status:?}");
        Ok(())
    }

    /// By one of the functions of naaice.h, until the state says that it is over.
    fn poll(&self, by: Poll) -> anyhow::Result<()> {
        let context = self.0.comm_ctx;
        // SAFETY: the struct of a context that lives as long as the handle; the field is aligned.
        let state = unsafe { AtomicI32::from_ptr(context.cast::<u8>().add(STATE_OFFSET).cast()) };
        while state.load(Ordering::Relaxed) < FINISHED {
            // SAFETY: a context.
            zero(unsafe { by(context) })?;
        }
        Ok(())
    }
}

/// A session of naa.h.
#[derive(Debug)]
struct Native(*mut naa_session);

impl Native {
    fn connect(far: SocketAddr, wait: Wait, data: Data) -> anyhow::Result<Self> {
        let mut options = MaybeUninit::<naa_options>::uninit();
        // SAFETY: room for options of this size.
        ok(unsafe { naa_options_init(options.as_mut_ptr(), size_of::<naa_options>()) })?;
        // SAFETY: all of it was set.
        let mut options = unsafe { options.assume_init() };
        options.wait = match wait {
            Wait::Spin => NAA_WAIT_SPIN,
            Wait::Block => NAA_WAIT_BLOCK,
            Wait::Adaptive => NAA_WAIT_ADAPTIVE,
        };
        let region = naa_region { addr: data.0.as_ptr().cast(), size: BYTES as u64, flags: NAA_INOUT };
        let address = CString::new(far.to_string())?;
        let mut session = null_mut();
        // SAFETY: a text, one region of memory that stays, options and a place for the session.
        ok(unsafe { naa_session_connect(address.as_ptr(), &region, 1, &options, &mut session) })?;
        Ok(Self(session))
    }

    fn call(&self) -> anyhow::Result<()> {
        let function = builtin::INCREMENT.get().into();
        let mut outcome = MaybeUninit::uninit();
        // SAFETY: the memory of the region stays.
        ok(unsafe { naa_call_start(self.0, function, 0) })?;
        // SAFETY: room for an outcome.
        ok(unsafe { naa_call_wait(self.0, -1, outcome.as_mut_ptr()) })
    }
}

/// One of the functions of naaice.h that look for the response.
type Poll = unsafe extern "C" fn(*mut CommContext) -> c_int;

#[derive(Debug)]
enum Connected {
    /// Without a function that polls, it waits by `naa_wait`.
    Middleware(Middleware, Option<Poll>),
    Native(Native),
}

/// Something connected, and how many calls it has made.
#[derive(Debug)]
pub(super) struct Caller {
    by: Connected,
    data: Data,
    calls: u64,
}

impl Caller {
    /// Connects to the far end. The functions of NAAICE's headers find its address in `NAA_SPEC`.
    pub(super) fn connect(calls: Calls, far: SocketAddr) -> anyhow::Result<Self> {
        let data = Data::new();
        let middleware = || Middleware::create(builtin::INCREMENT, data);
        let by = match calls {
            Calls::Middleware => Connected::Middleware(middleware()?, None),
            Calls::Polling => Connected::Middleware(middleware()?, Some(naaice_poll_cq_nonblocking)),
            Calls::Busy => Connected::Middleware(middleware()?, Some(naaice_poll_cq_busy)),
            Calls::Native(wait) => Connected::Native(Native::connect(far, wait, data)?),
        };
        Ok(Self { by, data, calls: 0 })
    }

    fn call(&mut self) -> anyhow::Result<()> {
        self.calls += 1;
        match &mut self.by {
            Connected::Middleware(handle, None) => handle.invoke().and_then(|()| handle.wait()),
            Connected::Middleware(handle, Some(by)) => handle.invoke().and_then(|()| handle.poll(*by)),
            Connected::Native(session) => session.call(),
        }
    }
}

impl Measure for Caller {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let work = time_calls(effort.calls, || self.call())?;
        check(&self.data.read(), self.calls)?;
        Ok(work)
    }
}

/// A program in `naa_wait`, for a function that takes long.
#[derive(Debug)]
pub(super) struct Blocked {
    handle: Middleware,
    data: Data,
}

impl Blocked {
    pub(super) fn connect() -> anyhow::Result<Self> {
        let data = Data::new();
        Ok(Self { handle: Middleware::create(SLEEP, data)?, data })
    }

    /// Per cent of a core.
    fn wait(&mut self, time: Duration) -> anyhow::Result<Work> {
        let mut bytes = [0; BYTES];
        bytes[..size_of::<u64>()].copy_from_slice(&(time.as_micros() as u64).to_le_bytes());
        self.data.write(bytes);
        let (before, start) = (cpu::time()?, Instant::now());
        self.handle.invoke()?;
        self.handle.wait()?;
        let (cpu, took) = (cpu::time()? - before, start.elapsed());
        ensure!(took >= time, "the function took {took:?} of {time:?}");
        Ok(Work { value: cpu / took.as_secs_f64() * 100.0, amount: took.as_secs_f64() })
    }
}

impl Measure for Blocked {
    fn warm_up(&mut self, _: &Effort) -> anyhow::Result<String> {
        self.wait(Duration::from_millis(50)).map(|_| String::new())
    }

    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        self.wait(Duration::from_secs_f64(effort.idle_seconds))
    }
}
