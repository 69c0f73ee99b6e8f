//! The pinned tools, in a Python of their own.

use crate::{repo, venv::Venv};
use anyhow::Result;
use std::fs;

/// A part of the tools.
#[derive(Debug, Clone, Copy)]
pub(super) enum Group {
    Sim,
    All,
}

impl Group {
    /// The list of the tools and their versions, in the folder `fpga/tools`.
    fn list(self) -> &'static str {
        match self {
            Self::Sim => "sim.txt",
            Self::All => "all.txt",
        }
    }
}

/// Installs the tools that are missing. The inner error is the reason why no package index can be reached.
pub(super) fn install(group: Group) -> Result<Result<Venv, String>> {
    let venv = Venv::new(repo::target_dir().join("fpga/tools"))?;
    let lists = repo::root().join("fpga/tools");
    let read = |group: Group| fs::read_to_string(lists.join(group.list()));
    let wanted = [read(Group::Sim)?, read(group)?].concat();
    let stamp = venv.folder().join(group.list());
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(Ok(venv));
    }
    println!("installing the tools of fpga/tools/{} into {}", group.list(), venv.folder().display());
    let list = lists.join(group.list());
    if let Some(why) = venv.pip(["install".as_ref(), "-r".as_ref(), list.as_os_str()])? {
        return Ok(Err(why));
    }
    fs::write(stamp, wanted)?;
    Ok(Ok(venv))
}
