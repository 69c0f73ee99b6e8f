//! The hardware counters of an RDMA port (`hw_counters` in sysfs), with the names that the Linux kernel gives them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::devices::Owner;

pub(crate) fn read(owner: &Owner) -> Vec<(&'static str, u64)> {
    let mut folder = PathBuf::from("/sys/class/infiniband").join(&owner.device).join("ports");
    folder.push(owner.port.to_string());
    folder.push("hw_counters");
    read_folder(&folder)
}

fn read_folder(folder: &Path) -> Vec<(&'static str, u64)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let counter = |entry: fs::DirEntry| {
        let value = fs::read_to_string(entry.path()).ok()?.trim().parse().ok()?;
        Some((interned(entry.file_name().to_str()?), value))
    };
    let mut counters: Vec<_> = entries.flatten().filter_map(counter).collect();
    counters.sort_unstable();
    counters
}

/// Returns `name` with a static lifetime, which the driver interface requires. Each name is allocated once and never
/// freed. All names together need little memory, because the Linux kernel has only a few dozen counter names.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let known: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(known);
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let folder = std::env::temp_dir().join(format!("naa-counters-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("rcvd_pkts"), "12\n").unwrap();
        fs::write(folder.join("lifespan"), "x\n").unwrap();
        let counters = read_folder(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(counters, [("rcvd_pkts", 12)]);
        assert_eq!(read_folder(&folder), []);
    }
}
