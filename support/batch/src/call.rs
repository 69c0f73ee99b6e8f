//! What is called, and how.

use std::{ops::Range, path::Path};

use mrsp::{
    ReturnCode,
    builtin::{self, Element},
    region::MAX_REGION_BYTES,
};

use crate::{
    Progress,
    files::InputFile,
    offload::{Accelerator, Caller, Times, room_needed},
    plan::{self, Plan},
    report::Report,
    target::Target,
};

/// What the function is to do with its inputs.
#[derive(Clone, Debug)]
pub struct CallConfig {
    /// The size of each output. If there is none, the sizes of outputs of built-in functions follow from the inputs.
    pub out_size: Vec<usize>,
    /// The compression level of zstd.
    pub level: i32,
    /// The number of rows of the first matrix and of the product.
    pub m: Option<u64>,
    /// The number of columns of the second matrix and of the product, or of complex numbers of a transform.
    pub n: Option<u64>,
    /// The number of columns of the first matrix and of rows of the second one.
    pub k: Option<u64>,
    /// Whether a transform goes back.
    pub inverse: bool,
    /// What the numbers are.
    pub element: Option<Element>,
    /// The number of bins of a histogram.
    pub bins: usize,
    /// The numbers that a histogram counts.
    pub range: Option<Range<f64>>,
    /// Whether the largest number comes first.
    pub descending: bool,
    /// Whether results are on disk before they get their names.
    pub sync: bool,
    /// How often the call of a file is made again, on the same or another accelerator, if its accelerator is lost. The lost
    /// accelerator may have executed the call.
    pub repeat_lost: u32,
}

impl Default for CallConfig {
    fn default() -> Self {
        Self {
            out_size: Vec::new(),
            level: 3,
            m: None,
            n: None,
            k: None,
            inverse: false,
            element: None,
            bins: 256,
            range: None,
            descending: false,
            sync: true,
            repeat_lost: 0,
        }
    }
}

/// The function that is called, the accelerator that executes it, and the settings of the call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The accelerator.
    pub peer: &'a Accelerator,
    /// The function.
    pub target: &'a Target,
    /// What the function is to do.
    pub settings: &'a CallConfig,
}

impl Call<'_> {
    /// Checks the settings that do not depend on the files.
    ///
    /// # Errors
    /// [`Refused`](crate::Refused) if the function needs other settings.
    pub fn check(&self) -> anyhow::Result<()> {
        plan::check(self.settings, self.target.code)
    }

    /// A report with the values that all calls share.
    pub(crate) fn report(&self) -> Report {
        Report {
            function: builtin::name(self.target.code).unwrap_or(&self.target.name).to_owned(),
            provider: self.peer.device.provider(),
            why: self.peer.device.why().to_owned(),
            ..Report::default()
        }
    }

    /// Makes the call. If the function says that the output was too small, the call is repeated with a larger one.
    pub(crate) fn make(
        &self,
        caller: &mut Caller<'_>,
        plan: &mut Plan,
        inputs: &mut [InputFile],
        times: &mut Times,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<()> {
        let function = self.target.code;
        loop {
            let error = match caller.call(function, plan, inputs, times, progress) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match plan {
                Plan::Builtin { room, .. } if plan::may_grow(self.settings, function) => {
                    match room_needed(&error, *room) {
                        Some(needed) if *room < MAX_REGION_BYTES as usize => {
                            *room = needed.min(MAX_REGION_BYTES as usize);
                        }
                        _ => return Err(of_file(error, inputs)),
                    }
                }
                _ => return Err(of_file(error, inputs)),
            }
        }
    }
}

/// The error of a call, which names its file if it is the file's content that cannot be read.
fn of_file(error: anyhow::Error, inputs: &[InputFile]) -> anyhow::Error {
    let code = error.downcast_ref().and_then(naa_host::Error::return_code);
    match inputs {
        [input] if code == Some(ReturnCode::MALFORMED_INPUT) => match input.path() {
            path if path == Path::new("-") => error.context("standard input"),
            path => error.context(path.display().to_string()),
        },
        _ => error,
    }
}
