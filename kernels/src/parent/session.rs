//! The process of one session: started at its first call of a kernel, kept until the session or the process ends.

use std::{
    fmt,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use mrsp::catalogue::Catalogue;

use super::{
    CallError, ChildAccess, Kernel, KernelResult, Kernels, LOAD_TIME, Library, RegionFile,
    process::{KernelProcess, kill},
    too_slow,
};

/// One at a time calls; anybody may end it meanwhile. Dropping it ends the process.
pub struct SessionProcess {
    kernels: Arc<Kernels>,
    process: Mutex<Option<Loaded>>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Loaded {
    process: KernelProcess,
    /// Libraries, by their places in [`Kernels`].
    libraries: Vec<usize>,
}

/// What is needed to end the process while somebody waits for it.
#[derive(Debug, Default)]
struct Current {
    ended: bool,
    pidfd: Option<Arc<OwnedFd>>,
}

impl fmt::Debug for SessionProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionProcess").field("current", &*lock(&self.current)).finish_non_exhaustive()
    }
}

impl SessionProcess {
    pub(super) fn new(kernels: Arc<Kernels>) -> Self {
        Self { kernels, process: Mutex::default(), current: Mutex::default() }
    }

    /// Calls `kernel`, and waits until it returns. A new process maps the files that `regions` returns, which must be
    /// the same files for all calls.
    ///
    /// # Errors
    /// Fails if the kernel did not return. After an error, the process has ended, so it has no access to the regions
    /// any more.
    pub fn call<'r>(
        &self,
        kernel: &Kernel,
        user: u32,
        deadline: Instant,
        regions: impl FnOnce(&Arc<ChildAccess>) -> Option<Vec<RegionFile<'r>>>,
    ) -> Result<KernelResult, CallError> {
        let mut place = lock(&self.process);
        let result = self.make(&mut place, kernel, user, deadline, regions);
        if result.is_err() {
            if let Some(gone) = place.take() {
                gone.process.kill_and_wait();
            }
            let mut current = lock(&self.current);
            current.pidfd = None;
            if current.ended {
                return Err(CallError::Ended);
            }
        }
        result
    }

    fn make<'r>(
        &self,
        place: &mut Option<Loaded>,
        kernel: &Kernel,
        user: u32,
        deadline: Instant,
        regions: impl FnOnce(&Arc<ChildAccess>) -> Option<Vec<RegionFile<'r>>>,
    ) -> Result<KernelResult, CallError> {
        let start_by = deadline.min(Instant::now() + LOAD_TIME);
        let in_time = |error| match error {
            CallError::TimedOut if start_by < deadline => CallError::Refused(too_slow()),
            other => other,
        };
        let mut fresh = None;
        if place.is_none() {
            let process = KernelProcess::start(&self.kernels.launcher)?;
            let loaded = place.insert(Loaded { process, libraries: Vec::new() });
            self.publish(loaded)?;
            fresh = Some(regions);
        }
        let Some(loaded) = place.as_mut() else { return Err(CallError::Ended) };
        if !loaded.libraries.contains(&kernel.library) {
            loaded.load(&self.kernels.libraries[kernel.library], start_by).map_err(in_time)?;
            loaded.libraries.push(kernel.library);
        }
        if let Some(regions) = fresh {
            let regions = regions(loaded.process.access()).ok_or(CallError::NoFiles)?;
            loaded.process.map(&regions, start_by).map_err(in_time)?;
        }
        loaded.process.call(user, kernel.function.code.get(), deadline)
    }

    /// Makes the process visible to [`Self::end`].
    fn publish(&self, loaded: &Loaded) -> Result<(), CallError> {
        let mut current = lock(&self.current);
        if current.ended {
            return Err(CallError::Ended);
        }
        current.pidfd = Some(loaded.process.pidfd().clone());
        Ok(())
    }

    /// Whether there is a process, which may write to the regions.
    pub fn is_alive(&self) -> bool {
        lock(&self.current).pidfd.is_some()
    }

    /// Ends the process for good, and a call with it. Does not wait.
    pub fn end(&self) {
        let mut current = lock(&self.current);
        current.ended = true;
        if let Some(pidfd) = &current.pidfd {
            kill(pidfd);
        }
    }

    /// Ends the process and waits until it has no memory any more. The next call gets another one.
    pub fn stop(&self) {
        let gone = lock(&self.process).take();
        if let Some(gone) = gone {
            gone.process.kill_and_wait();
        }
        lock(&self.current).pidfd = None;
    }
}

impl Loaded {
    fn load(&mut self, library: &Library, by: Instant) -> Result<(), CallError> {
        let found = self.process.load(&library.path, by)?;
        let same = Catalogue::decode(&found).is_ok_and(|table| table.functions == library.functions);
        if same {
            return Ok(());
        }
        let path = library.path.display();
        Err(CallError::Refused(format!("{path} was changed since the server started; restart the server")))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is whole after each assignment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
