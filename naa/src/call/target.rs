//! The function that is called, and what the accelerator's catalogue says of its parameters.

use anyhow::Context as _;
use mrsp::{
    FunctionCode,
    builtin::{self, Group},
    catalogue::Direction,
};

use super::offload::Peer;
use crate::{Usage, show};

/// A function, as the command line names it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) code: FunctionCode,
    /// The direction of each parameter in the catalogue. Empty if the function takes any, is built in, or was given by
    /// number.
    pub(super) directions: Vec<Direction>,
}

impl Target {
    /// Functions that are not built in are looked up in the catalogue of the accelerator, unless a number names them.
    pub(super) fn find(name: &str, peer: &Peer) -> anyhow::Result<Self> {
        let target = match (name.parse::<u8>(), builtin::by_name(name)) {
            (Ok(number), _) => {
                let code = FunctionCode::new(number).ok_or_else(|| {
                    Usage::error(format!("functions are numbered 1 to {}", FunctionCode::MAX))
                })?;
                Self { code, directions: Vec::new() }
            }
            (_, Some(code)) => Self { code, directions: Vec::new() },
            (Err(_), None) => Self::look_up(name, peer)?,
        };
        if target.code == builtin::CATALOGUE {
            return Err(Usage::error("use `naa functions`, which prints the catalogue"));
        }
        Ok(target)
    }

    fn look_up(name: &str, peer: &Peer) -> anyhow::Result<Self> {
        let server = peer.server;
        let waiting = show::waiting(format!("connecting to {server}"));
        let catalogue = naa_host::functions_with(&peer.device, server, &peer.config)?;
        drop(waiting);
        let found = catalogue.functions.into_iter().find(|offered| offered.name == name);
        let found = found.with_context(|| {
            format!("{server} has no function {name}; `naa functions --server {server}` lists them")
        })?;
        let is_builtin = builtin::name(found.code).is_some();
        let directions = found.parameters.iter().map(|parameter| parameter.direction);
        Ok(Self { code: found.code, directions: directions.filter(|_| !is_builtin).collect() })
    }

    /// The numbers of input files and of results; `None` if any number may be.
    pub(super) fn files(&self) -> Option<(usize, usize)> {
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

    /// Whether a call has one file and one result.
    pub(super) fn takes_one(&self, sizes: usize) -> bool {
        match (super::plan::inputs_of(self.code), self.files()) {
            (Some(count), _) => count == 1,
            (None, Some(files)) => files == (1, 1),
            (None, None) => Group::of(self.code) == Group::Naaice || sizes == 1,
        }
    }
}
