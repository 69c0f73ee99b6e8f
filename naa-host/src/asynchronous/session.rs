//! A session whose calls are awaited.

use std::{
    net::SocketAddr,
    ops::Deref,
    time::{Duration, Instant},
};

use mrsp::{FunctionCode, U24, immediate::CallResponse, plan::Part};
use tokio::runtime::Handle;
use verbs::WaitMode;

use super::readiness::Readiness;
use crate::{
    Buffer, CallOutcome, Device, Error, Param, SessionConfig, SessionSetup, SetupStage, any::SPIN, clock,
    device,
};

/// Says whether a session has a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// No call is running, and the program can use the parameters.
    Idle,
    /// A call is running: either a task awaits its end, or the future that awaited it was dropped. The parameters belong
    /// to the call until [`Session::outcome`] has returned.
    InCall,
    /// An error has ended the session. The parameters can still be read.
    Over,
}

/// The result of a call whose function has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The address of the accelerator.
    pub peer: SocketAddr,
    /// The code of the function that was called.
    pub function: FunctionCode,
    /// The meaning of the accelerator's response immediate.
    pub answer: CallResponse,
    /// The number of bytes that the accelerator wrote to the last output.
    pub last_write_bytes: u32,
}

/// A session, as [`naa_host::Session`](crate::Session), whose methods that wait are `async`.
///
/// The methods of the blocking session that take `&self` and do not wait are available by `Deref`, for example
/// [`bytes`](crate::Session::bytes) and [`values`](crate::Session::values).
///
/// # Cancellation
///
/// | future that is dropped before it is ready | what becomes of the session |
/// |---|---|
/// | [`connect`](Self::connect), [`connect_with`](Self::connect_with) | there is none; the connection is closed, and buffers are dropped after it |
/// | [`call`](Self::call), [`call_with`](Self::call_with), never polled | nothing was posted; the session is [`Idle`](SessionState::Idle) |
/// | [`call`](Self::call), [`call_with`](Self::call_with), polled | the call goes on; the session is [`InCall`](SessionState::InCall) |
/// | [`outcome`](Self::outcome) | the call goes on; the session is [`InCall`](SessionState::InCall) |
///
/// A session that is [`InCall`](SessionState::InCall) refuses other calls, and access to its parameters, with
/// [`Error::InCall`]. [`outcome`](Self::outcome) awaits the end of the call, after which the session can be used again. A
/// session that is dropped or closed gives its call up: the queue pair is destroyed before the memory of the parameters
/// is freed or returned, so that the accelerator cannot write to memory that somebody else uses.
///
/// # Where the work is done
///
/// The session has no thread. A task that awaits a call looks for the response as
/// [`SessionConfig::wait`](crate::SessionConfig::wait) says, and then sleeps until the session's file descriptor becomes
/// readable. With [`WaitMode::Adaptive`], the task looks for 50 us and lets other tasks run between two looks; with
/// [`WaitMode::Block`], the task sleeps at once; with [`WaitMode::Spin`], it never sleeps. Memory is allocated and
/// registered, and devices are closed, on the threads that the runtime has for blocking work.
#[derive(Debug)]
pub struct Session {
    ready: Readiness,
    session: crate::Session,
    // This field is the last, because the device is closed after the session.
    _device: LastDevice,
}

impl SessionState {
    /// Returns the state of a session.
    pub(super) fn of(session: &crate::Session) -> Self {
        match session {
            session if session.is_in_call() => Self::InCall,
            session if session.is_over() => Self::Over,
            _ => Self::Idle,
        }
    }
}

impl Session {
    /// Connects to the accelerator `peer` and agrees with it on regions for `params`.
    ///
    /// # Errors
    /// Fails with the same errors as [`Session::connect`](crate::Session::connect). If the process has no free file
    /// descriptor, the error is [`Error::Device`], and its text names the limit.
    ///
    /// # Panics
    /// Panics outside of a runtime of tokio, and in a runtime that was built without `enable_io`.
    pub async fn connect(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        Self::establish(device, peer, params, None, config).await
    }

    /// Connects as [`connect`](Self::connect) does, but uses `buffers` as the memory of the parameters, as
    /// [`Session::connect_with`](crate::Session::connect_with) does.
    ///
    /// # Errors
    /// Fails with [`Error::Buffers`] or [`Error::Buffer`] if the number or a length of the buffers is wrong, and with
    /// the same errors as [`connect`](Self::connect).
    ///
    /// # Panics
    /// Panics in the same cases as [`connect`](Self::connect).
    pub async fn connect_with(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        buffers: Vec<Buffer>,
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        Self::establish(device, peer, params, Some(buffers), config).await
    }

    async fn establish(
        device: &Device,
        peer: SocketAddr,
        params: &[Param<'_>],
        buffers: Option<Vec<Buffer>>,
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        let deadline = clock::after(config.setup_timeout);
        let shapes: Vec<_> = params.iter().map(Param::without_content).collect();
        let last = LastDevice::new(device.clone());
        let (its_device, its_config) = (device.clone(), config.clone());
        // Registering memory with a NIC takes a third of a millisecond for each MiB.
        let setup = blocking(move || {
            let mut setup = SessionSetup::new(&its_device, peer, &shapes, &its_config)?;
            setup.prepare(&shapes, buffers)?;
            Ok(setup)
        });
        let mut connecting = Connecting { ready: None, setup: setup.await?, _device: last };
        connecting.setup.fill(params)?;
        connecting.setup.connect()?;
        connecting.reach(SetupStage::Connected, deadline).await?;
        connecting.setup.agree()?;
        connecting.reach(SetupStage::Agreed, deadline).await?;
        let Connecting { ready, setup, _device } = connecting;
        let late = setup.late();
        let (Some(ready), Some(session)) = (ready, setup.into_session()) else { return Err(late) };
        Ok(Self { ready, session, _device })
    }

    /// Turns a blocking session into a session whose calls are awaited. If the blocking session has a call,
    /// [`outcome`](Self::outcome) awaits its end.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the process has no free file descriptor, or if the operating system cannot watch
    /// the session's file descriptor.
    ///
    /// # Panics
    /// Panics in the same cases as [`connect`](Self::connect).
    pub fn from_blocking(mut session: crate::Session) -> Result<Self, Error> {
        let ready = Readiness::new(session.shared_descriptor()?)?;
        let device = LastDevice::new(session.device().clone());
        Ok(Self { ready, session, _device: device })
    }

    /// Makes a blocking session of this one. If the session has a call, the methods of the blocking session wait for
    /// its end.
    pub fn into_blocking(self) -> crate::Session {
        let Self { ready, session, _device } = self;
        drop(ready);
        session
    }

    /// Calls a function and awaits the end of the call. If the future is dropped before it is ready, the call goes on;
    /// see [Cancellation](Self#cancellation).
    ///
    /// # Errors
    /// Fails with [`Error::Function`] if the function fails. Fails with [`Error::InCall`] while another call runs, and
    /// with [`Error::Over`] if the session is over. Fails with [`Error::PeerGone`], [`Error::Peer`],
    /// [`Error::CallTimedOut`] or [`Error::Device`] if the call cannot be finished, and each of these four errors ends
    /// the session. If the runtime shuts down, the error is [`Error::Device`], too, and the call goes on.
    pub async fn call(&mut self, function: FunctionCode) -> Result<Outcome, Error> {
        self.call_with(function, U24::ZERO).await
    }

    /// Calls a function as [`call`](Self::call) does, with the 24 user bits `user`, which the function can read.
    ///
    /// # Errors
    /// Fails with the same errors as [`call`](Self::call).
    pub async fn call_with(&mut self, function: FunctionCode, user: U24) -> Result<Outcome, Error> {
        self.session.invoke(function, user)?;
        let CallOutcome { peer, function, answer, last_write_bytes } = self.outcome().await?.into_result()?;
        Ok(Outcome { peer, function, answer, last_write_bytes })
    }

    /// Awaits the end of the running call. The future can be dropped and the method called again any number of times.
    /// Unlike [`call`](Self::call), the method also returns the outcome of a function that failed.
    ///
    /// # Errors
    /// Fails with [`Error::NoCall`] if no call was posted, and with the errors of [`call`](Self::call) that end the
    /// session.
    pub async fn outcome(&mut self) -> Result<CallOutcome, Error> {
        if let Some(outcome) = self.look_for_a_while().await? {
            return Ok(outcome);
        }
        let Self { ready, session, .. } = self;
        ready.until(|| session.test()).await
    }

    /// Looks for the end of the call for the time that the session's [`WaitMode`] gives. Returns `None` if the task must
    /// sleep then.
    async fn look_for_a_while(&mut self) -> Result<Option<CallOutcome>, Error> {
        let mode = self.session.wait_mode();
        if mode == WaitMode::Block || !self.session.is_in_call() {
            return Ok(None);
        }
        let start = Instant::now();
        loop {
            let now = Instant::now();
            self.session.turn(now);
            if let Some(outcome) = self.session.look()? {
                return Ok(Some(outcome));
            }
            if mode == WaitMode::Adaptive && now - start >= SPIN {
                return Ok(None);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Says whether the session has a call.
    pub fn state(&self) -> SessionState {
        SessionState::of(&self.session)
    }

    /// Disconnects without waiting for the accelerator's confirmation. If a call is running, the call is given up.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the accelerator cannot be notified.
    pub fn finalize(self) -> Result<(), Error> {
        let Self { ready, session, _device } = self;
        drop(ready);
        session.finalize()
    }

    /// Disconnects and returns the memory of the parameters, as
    /// [`Session::into_buffers`](crate::Session::into_buffers) does.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the accelerator's access to the memory cannot be taken back.
    pub fn into_buffers(self) -> Result<Vec<Buffer>, Error> {
        let Self { ready, session, _device } = self;
        drop(ready);
        session.into_buffers()
    }

    /// Copies `bytes` into parameter `index`, as [`Session::write`](crate::Session::write) does.
    ///
    /// # Errors
    /// Fails with the same errors as [`Session::write`](crate::Session::write).
    pub fn write(&mut self, index: usize, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.session.write(index, offset, bytes)
    }

    /// Returns the bytes of parameter `index` as a mutable slice, as
    /// [`Session::slice_mut`](crate::Session::slice_mut) does.
    ///
    /// # Errors
    /// Fails with the same errors as [`Session::slice_mut`](crate::Session::slice_mut).
    pub fn slice_mut(&mut self, index: usize) -> Result<&mut [u8], Error> {
        self.session.slice_mut(index)
    }

    /// Returns the values of parameter `index` as a mutable slice, as
    /// [`Session::values_mut`](crate::Session::values_mut) does.
    ///
    /// # Errors
    /// Fails with the same errors as [`Session::values_mut`](crate::Session::values_mut).
    pub fn values_mut<T: bytemuck::Pod>(&mut self, index: usize) -> Result<&mut [T], Error> {
        self.session.values_mut(index)
    }

    /// Copies `values` into parameter `index`, as [`Session::write_values`](crate::Session::write_values) does.
    ///
    /// # Errors
    /// Fails with the same errors as [`Session::write_values`](crate::Session::write_values).
    pub fn write_values<T: bytemuck::Pod>(
        &mut self,
        index: usize,
        first: usize,
        values: &[T],
    ) -> Result<(), Error> {
        self.session.write_values(index, first, values)
    }

    /// Lets later calls send only `part` of input `index`, as
    /// [`Session::set_part_to_send`](crate::Session::set_part_to_send) does.
    ///
    /// # Errors
    /// Fails with the same errors as [`Session::set_part_to_send`](crate::Session::set_part_to_send).
    pub fn set_part_to_send(&mut self, index: usize, part: Option<Part>) -> Result<(), Error> {
        self.session.set_part_to_send(index, part)
    }

    /// Lets later calls send only the first `bytes` bytes of input `index`, as
    /// [`Session::set_bytes_to_send`](crate::Session::set_bytes_to_send) does.
    ///
    /// # Errors
    /// Fails with the same errors as [`Session::set_bytes_to_send`](crate::Session::set_bytes_to_send).
    pub fn set_bytes_to_send(&mut self, index: usize, bytes: Option<u64>) -> Result<(), Error> {
        self.session.set_bytes_to_send(index, bytes)
    }

    /// Sets the time limit of later calls and of the running call, as
    /// [`Session::set_call_timeout`](crate::Session::set_call_timeout) does. When the limit is reached, the session is
    /// over. A limit by `tokio::time::timeout` drops the future instead: then the call goes on, and the session can be
    /// used again after the call has ended.
    pub fn set_call_timeout(&mut self, limit: Option<Duration>) {
        self.session.set_call_timeout(limit);
    }

    /// Sets the mode in which tasks wait for this session.
    pub fn set_wait_mode(&mut self, wait: WaitMode) {
        self.session.set_wait_mode(wait);
    }
}

impl Deref for Session {
    type Target = crate::Session;

    fn deref(&self) -> &crate::Session {
        &self.session
    }
}

/// A session that is being set up.
struct Connecting {
    ready: Option<Readiness>,
    setup: SessionSetup,
    _device: LastDevice,
}

impl Connecting {
    /// Awaits a stage of the setup.
    async fn reach(&mut self, stage: SetupStage, deadline: Instant) -> Result<(), Error> {
        let Self { ready, setup, .. } = self;
        let ready = match ready {
            Some(ready) => ready,
            none => none.insert(Readiness::new(setup.descriptor()?)?),
        };
        ready.until(|| setup.test(stage, deadline)).await
    }
}

/// Runs `work` on a thread that the runtime has for blocking work.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => {
            let error = std::io::Error::other(error);
            Err(verbs::Error::io("the runtime shuts down", error).into())
        }
    }
}

/// A reference to a device, for structures that tasks may drop. If it is the last one, the device is closed on a thread for blocking work, because a device
/// waits for its peers' confirmations of disconnects, for up to 300 ms.
#[derive(Debug)]
pub(super) struct LastDevice(Option<Device>);

impl LastDevice {
    pub(super) fn new(device: Device) -> Self {
        Self(Some(device))
    }

    pub(super) fn get(&self) -> &Device {
        self.0.as_ref().expect("only `drop` takes the device")
    }
}

impl Drop for LastDevice {
    fn drop(&mut self) {
        let Some(last) = self.0.take().and_then(Device::into_last) else { return };
        close(last);
    }
}

fn close(last: device::LastReference) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn_blocking(move || drop(last));
    }
}
