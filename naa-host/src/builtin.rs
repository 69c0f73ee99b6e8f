//! Sessions and calls for built-in functions, which have the codes 16 to 63. The argument block is the first input, and
//! the status block is the first output.
//!
//! [`call`] connects, calls a function and disconnects. With [`BuiltinSession`], a program can read a file directly
//! into the region of an input. The program can also write a file directly from the region of an output, if the device
//! revokes the accelerator's access after each call.

use std::{borrow::Cow, net::SocketAddr};

use mrsp::{
    U24,
    builtin::{BLOCK_BYTES, StatusBlock},
};

use crate::{Device, Error, Param, Session, SessionConfig};

pub use mrsp::builtin::{Arguments, Element, FftDirection, FunctionGroup, NAMES, SortOrder, by_name, name};

/// A session with the regions that a built-in function needs. Inputs and outputs are counted from 0; the argument block
/// and the status block are not counted.
#[derive(Debug)]
pub struct BuiltinSession {
    session: Session,
    inputs: usize,
    outputs: usize,
    /// The number of bytes that the function produced in each output.
    produced: Vec<usize>,
}

impl BuiltinSession {
    /// Connects to the accelerator `peer`. The session has a region for each input and output, and `inputs` and
    /// `outputs` are the sizes of these regions in bytes. The regions for the argument block and the status block are
    /// added.
    ///
    /// # Errors
    /// Fails with the same errors as [`Session::connect`].
    pub fn connect(
        device: &Device,
        peer: SocketAddr,
        inputs: &[usize],
        outputs: &[usize],
        config: &SessionConfig,
    ) -> Result<Self, Error> {
        let params: Vec<_> = [Param::input(BLOCK_BYTES)]
            .into_iter()
            .chain(inputs.iter().map(|&len| Param::input(len)))
            .chain([Param::output(BLOCK_BYTES)])
            .chain(outputs.iter().map(|&len| Param::output(len)))
            .collect();
        let session = Session::connect(device, peer, &params, config)?;
        let produced = vec![0; outputs.len()];
        Ok(Self { session, inputs: inputs.len(), outputs: outputs.len(), produced })
    }

    /// Returns the memory of input `index`, which the program must fill before the call.
    ///
    /// # Errors
    /// Fails with [`Error::NoSuchParam`] if there is no input `index`. The method can also fail with the errors of
    /// [`Session::slice_mut`].
    pub fn input(&mut self, index: usize) -> Result<&mut [u8], Error> {
        if index >= self.inputs {
            return Err(Error::NoSuchParam { index, params: self.inputs });
        }
        self.session.slice_mut(1 + index)
    }

    /// Lets later calls send only the first `bytes` bytes of input `index`, or the whole input if `bytes` is `None`.
    ///
    /// # Errors
    /// Fails with the same errors as [`Session::set_bytes_to_send`].
    pub fn set_bytes_to_send(&mut self, index: usize, bytes: Option<u64>) -> Result<(), Error> {
        if index >= self.inputs {
            return Err(Error::NoSuchParam { index, params: self.inputs });
        }
        self.session.set_bytes_to_send(1 + index, bytes)
    }

    /// Calls the function and waits for the end of the call.
    ///
    /// # Errors
    /// Fails with [`Error::Function`] if the function fails. [`Error::Function`] contains the detail of the status
    /// block, if a status block arrived. Fails with [`Error::Status`] or [`Error::Produced`] if the function succeeds,
    /// but the status block is not valid. In the dialect [`Dialect::Next`](crate::Dialect::Next), only the status block
    /// says that a function failed. The method therefore fails with [`Error::Status`] if no status block arrived. The
    /// method can also fail with the errors of [`Session::call`].
    pub fn run(&mut self, arguments: &Arguments) -> Result<(), Error> {
        let function = arguments.function();
        self.produced.fill(0);
        self.session.write(0, 0, &arguments.encode())?;
        // The status block is cleared before the call, so that the status block of an earlier call cannot be taken for
        // the status block of this call.
        self.session.write(1 + self.inputs, 0, &[0; BLOCK_BYTES])?;
        self.session.invoke(function, U24::ZERO)?;
        let outcome = self.session.wait()?;
        let status = self.session.status_block();
        let outcome = status.as_ref().map_or(outcome, |status| outcome.with_status(status));
        let _ = outcome.into_result().map_err(|error| self.session.with_detail(error))?;
        self.accept(&status?)
    }

    /// Returns the bytes that the function produced in output `index`. The method borrows or copies the bytes as
    /// [`Session::bytes`] does.
    ///
    /// # Errors
    /// Fails with [`Error::NoSuchParam`] if there is no output `index`. The method can also fail with the errors of
    /// [`Session::bytes`].
    pub fn output(&self, index: usize) -> Result<Cow<'_, [u8]>, Error> {
        let produced = *self.produced.get(index).ok_or(Error::NoSuchParam { index, params: self.outputs })?;
        self.session.bytes(2 + self.inputs + index, ..produced)
    }

    /// # Errors
    /// Fails with the same errors as [`Session::finalize`].
    pub fn finalize(self) -> Result<(), Error> {
        self.session.finalize()
    }

    fn accept(&mut self, status: &StatusBlock) -> Result<(), Error> {
        let peer = self.session.peer();
        // The first element of `status.produced` is the length of the status block itself.
        for (output, &produced) in status.produced.iter().skip(1).enumerate().take(self.outputs) {
            let size = self.session.param_len(2 + self.inputs + output)?;
            let fits = usize::try_from(produced).ok().filter(|&produced| produced <= size);
            self.produced[output] = fits.ok_or(Error::Produced { peer, output, produced, size })?;
        }
        Ok(())
    }
}

/// Calls a function once over a session of its own: sends `inputs` and returns the bytes that the function produced.
/// `outputs` has the maximum size in bytes of each output.
///
/// # Errors
/// Fails with the same errors as [`BuiltinSession::connect`] and [`BuiltinSession::run`].
pub fn call(
    device: &Device,
    peer: SocketAddr,
    arguments: &Arguments,
    inputs: &[&[u8]],
    outputs: &[usize],
) -> Result<Vec<Vec<u8>>, Error> {
    let sizes: Vec<_> = inputs.iter().map(|input| input.len()).collect();
    let mut session = BuiltinSession::connect(device, peer, &sizes, outputs, &SessionConfig::default())?;
    for (index, input) in inputs.iter().enumerate() {
        session.input(index)?.copy_from_slice(input);
    }
    session.run(arguments)?;
    let produced = (0..outputs.len()).map(|index| session.output(index).map(Cow::into_owned)).collect();
    session.finalize()?;
    produced
}
