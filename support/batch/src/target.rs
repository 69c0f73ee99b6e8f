//! The function that is called, and what the accelerator's catalogue says of its parameters.

use anyhow::Context as _;
use mrsp::{
    FunctionCode,
    builtin::{self, FunctionGroup},
    catalogue::Direction,
};

use crate::{Accelerator, Refused, plan};

/// The function that is called.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name or the number by which the user called it.
    pub(crate) name: String,
    pub(crate) code: FunctionCode,
    /// The direction of each parameter in the catalogue. Empty if the function takes any, is built in, or was given by
    /// number.
    pub(crate) directions: Vec<Direction>,
}

impl Target {
    /// Finds the function with a name or number. Functions that are not built in are looked up in the catalogue of the
    /// accelerator, unless a number names them.
    ///
    /// # Errors
    /// [`Refused`] if no call can have this number; the errors of the catalogue's call; and an error if the accelerator has
    /// no such function.
    pub fn find(name: &str, peer: &Accelerator) -> anyhow::Result<Self> {
        let target = match (name.parse::<u8>(), builtin::by_name(name)) {
            (Ok(number), _) => {
                let code = FunctionCode::new(number).ok_or_else(|| {
                    Refused::error(format!("functions are numbered 1 to {}", FunctionCode::MAX))
                })?;
                Self { name: name.to_owned(), code, directions: Vec::new() }
            }
            (_, Some(code)) => Self { name: name.to_owned(), code, directions: Vec::new() },
            (Err(_), None) => Self::look_up(name, peer)?,
        };
        if target.code == builtin::CATALOGUE {
            return Err(Refused::error("use `naa functions`, which prints the catalogue"));
        }
        Ok(target)
    }

    fn look_up(name: &str, peer: &Accelerator) -> anyhow::Result<Self> {
        let (mut server, mut catalogue) =
            (peer.server, naa_host::functions_with(&peer.device, peer.server, &peer.config));
        for (device, other) in &peer.others {
            if catalogue.is_ok() {
                break;
            }
            (server, catalogue) = (*other, naa_host::functions_with(device, *other, &peer.config));
        }
        let catalogue = catalogue?;
        let found = catalogue.functions.into_iter().find(|offered| offered.name == name);
        let found = found.with_context(|| {
            format!("{server} has no function {name}; `naa functions --server {server}` lists them")
        })?;
        let is_builtin = builtin::name(found.code).is_some();
        let directions = found.parameters.iter().map(|parameter| parameter.direction);
        Ok(Self {
            name: name.to_owned(),
            code: found.code,
            directions: directions.filter(|_| !is_builtin).collect(),
        })
    }

    /// The numbers of input files and of results; `None` if any number may be.
    pub(crate) fn files(&self) -> Option<(usize, usize)> {
        if self.directions.is_empty() {
            return None;
        }
        let count = |one: Direction| {
            self.directions
                .iter()
                .filter(|&&direction| direction == one || direction == Direction::InOut)
                .count()
        };
        Some((count(Direction::Input), count(Direction::Output)))
    }

    /// Whether the result is a checksum, which needs no output file.
    pub fn is_checksum(&self) -> bool {
        plan::is_checksum(self.code)
    }

    /// Whether a call has one file and one result, if `sizes` sizes of outputs are given.
    pub fn takes_one(&self, sizes: usize) -> bool {
        match (plan::inputs_of(self.code), self.files()) {
            (Some(count), _) => count == 1,
            (None, Some(files)) => files == (1, 1),
            (None, None) => FunctionGroup::of(self.code) == FunctionGroup::Naaice || sizes == 1,
        }
    }
}
