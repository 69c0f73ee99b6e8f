//! Waits for the file descriptor of a session, a session setup or a worker without blocking the runtime's thread.

#![allow(unsafe_code)]

use std::{
    os::fd::OwnedFd,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{Interest, unix::AsyncFd};

use crate::Error;

/// A file descriptor of which the runtime says when it becomes readable.
#[derive(Debug)]
pub struct Readiness(AsyncFd<Arc<OwnedFd>>);

impl Readiness {
    /// Registers `descriptor` with the runtime of the calling task.
    ///
    /// # Errors
    /// Fails with [`Error::Device`] if the operating system cannot watch the file descriptor.
    ///
    /// # Panics
    /// Panics outside of a runtime of tokio, and in a runtime that was built without `enable_io`.
    pub fn new(descriptor: Arc<OwnedFd>) -> Result<Self, Error> {
        // SAFETY: the reference keeps the file descriptor open for as long as the `AsyncFd` exists. An `OwnedFd` always
        // has the same number, and nobody else can replace the file behind the number.
        let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        let registered = registered.map_err(|error| failed("cannot watch a descriptor", error.into()))?;
        Ok(Self(registered))
    }

    /// Calls `test` now and whenever the file descriptor has become readable, until `test` returns a value or an error.
    /// Each call of `test` that returns `None` must have armed the file descriptor.
    ///
    /// # Errors
    /// Fails with the error of `test`, and with [`Error::Device`] if the runtime shuts down.
    pub async fn until<T, E: From<Error>>(
        &self,
        mut test: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<T, E> {
        let mut tested = false;
        std::future::poll_fn(|context| self.poll(context, &mut tested, &mut test)).await
    }

    /// Does the same as [`until`](Self::until) for code that implements a future or a stream itself. `tested` must be
    /// false at the first poll and keep its value until the result is [`Poll::Ready`].
    ///
    /// # Errors
    /// Fails with the same errors as [`until`](Self::until).
    pub fn poll<T, E: From<Error>>(
        &self,
        context: &mut Context<'_>,
        tested: &mut bool,
        mut test: impl FnMut() -> Result<Option<T>, E>,
    ) -> Poll<Result<T, E>> {
        loop {
            // The waker is registered before `test` arms the file descriptor, so that no notification is missed.
            let readable = match self.0.poll_read_ready(context) {
                Poll::Pending if *tested => return Poll::Pending,
                Poll::Pending => None,
                Poll::Ready(readable) => Some(
                    readable.map_err(|error| failed("cannot sleep until a descriptor is readable", error))?,
                ),
            };
            if let Some(value) = test()? {
                return Poll::Ready(Ok(value));
            }
            *tested = true;
            match readable {
                // If the file descriptor has become readable again meanwhile, the runtime keeps it marked as readable.
                Some(mut readable) => readable.clear_ready(),
                None => return Poll::Pending,
            }
        }
    }
}

fn failed(what: &'static str, error: std::io::Error) -> Error {
    Error::Device(verbs::Error::io(what, error))
}
