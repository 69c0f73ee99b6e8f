//! Energy this machine uses, by the counters of its processors: Linux powercap (RAPL; AMD's driver has the same names).
//!
//! Counted are processor packages, with what is part of them, and memory (`dram`), which is listed below a package and
//! not part of it. Left out is `psys`, which covers both again and more.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// The folder of the Linux kernel's power-capping class.
const FOLDER: &str = "/sys/class/powercap";
/// Zones of the control type; `intel-rapl-mmio` has the packages a second time.
const ZONE: &str = "intel-rapl:";

/// A package's counter, or its memory's.
#[derive(Clone, Debug)]
struct Zone {
    name: String,
    energy: PathBuf,
    /// Microjoules after which it starts at zero again.
    range: u64,
}

/// The counters of a machine.
#[derive(Clone, Debug)]
pub struct Counters(Vec<Zone>);

/// Why there is nothing to count with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoneFound {
    /// The machine has no energy counters.
    Absent,
    /// They are listed, and what is listed leads nowhere: containers are made so.
    Hidden,
    /// This file cannot be read, by default by anybody but root: the counters tell about others' programs
    /// (CVE-2020-8694).
    Denied(PathBuf),
}

impl NoneFound {
    /// What to type, as root.
    pub const REMEDY: &str = "chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj";
}

impl fmt::Display for NoneFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("this machine has no energy counters (powercap)"),
            Self::Hidden => {
                f.write_str("energy counters are hidden from this process; run it outside of the container")
            }
            Self::Denied(path) => {
                let path = path.display();
                write!(f, "only root may read {path}; run as root, or type sudo {}", Self::REMEDY)
            }
        }
    }
}

impl std::error::Error for NoneFound {}

impl Counters {
    /// The energy counters of this machine.
    ///
    /// # Errors
    /// Fails if the machine has no energy counters, or if this process may not read them.
    pub fn open() -> Result<Self, NoneFound> {
        Self::under(Path::new(FOLDER))
    }

    /// The energy counters listed in `folder`, which is `/sys/class/powercap` or a made-up folder.
    ///
    /// # Errors
    /// Fails for the reasons for which [`Self::open`] fails.
    pub fn under(folder: &Path) -> Result<Self, NoneFound> {
        found(folder, number)
    }

    /// What is counted, as the kernel calls it: `package-0`, `dram`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|zone| zone.name.as_str())
    }

    /// All counters now; `None` if one went away.
    pub fn read(&self) -> Option<Reading> {
        let count = |zone: &Zone| Some(Count { microjoules: number(&zone.energy).ok()?, range: zone.range });
        self.0.iter().map(count).collect::<Option<_>>().map(Reading)
    }
}

#[derive(Clone, Copy, Debug)]
struct Count {
    microjoules: u64,
    range: u64,
}

/// All counters at one time.
#[derive(Clone, Debug)]
pub struct Reading(Vec<Count>);

impl Reading {
    /// Joules used between an earlier reading of the same counters and this one.
    ///
    /// A counter may have started over once, which at full load takes minutes at least.
    pub fn joules_since(&self, earlier: &Self) -> f64 {
        let pairs = self.0.iter().zip(&earlier.0);
        let used = |(now, then): (&Count, &Count)| match now.microjoules.checked_sub(then.microjoules) {
            Some(used) => used,
            None => (now.range.saturating_sub(then.microjoules)).saturating_add(now.microjoules),
        };
        pairs.map(|pair| used(pair) as f64 / 1e6).sum()
    }
}

fn found(folder: &Path, read: impl Fn(&Path) -> io::Result<u64>) -> Result<Counters, NoneFound> {
    let listed = zones_in(folder);
    let mut hidden = !listed.is_empty();
    let mut zones = Vec::new();
    for zone in listed {
        let path = folder.join(&zone);
        let Ok(name) = fs::read_to_string(path.join("name")) else { continue };
        hidden = false;
        let (name, energy) = (name.trim().to_owned(), path.join("energy_uj"));
        if !is_counted(&zone, &name) {
            continue;
        }
        match (read(&energy), read(&path.join("max_energy_range_uj"))) {
            (Ok(_), Ok(range)) => zones.push(Zone { name, energy, range }),
            (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(NoneFound::Denied(energy));
            }
            // A zone without a counter, of which there are some.
            _ => {}
        }
    }
    match zones.as_slice() {
        [_, ..] => Ok(Counters(zones)),
        [] if hidden => Err(NoneFound::Hidden),
        [] => Err(NoneFound::Absent),
    }
}

/// Names of a folder's zones, in order.
fn zones_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut zones: Vec<_> = names.filter(|name| name.starts_with(ZONE)).collect();
    zones.sort();
    zones
}

/// Whether a zone, `intel-rapl:0` or a part of it such as `intel-rapl:0:1`, is a package, or the memory beside it.
fn is_counted(zone: &str, name: &str) -> bool {
    let is_part = zone.strip_prefix(ZONE).is_some_and(|number| number.contains(':'));
    name == "dram" || (name.starts_with("package-") && !is_part)
}

fn number(path: &Path) -> io::Result<u64> {
    // 20 digits are all that a u64 has.
    let mut text = [0; 24];
    let len = File::open(path)?.read(&mut text)?;
    let digits = str::from_utf8(&text[..len]).ok().map(str::trim);
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up `/sys/class/powercap`, which goes with the test.
    struct TempFolder(PathBuf);

    impl Drop for TempFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl TempFolder {
        fn new(test: &str) -> Self {
            let folder = Self(std::env::temp_dir().join(format!("naa-energy-{test}-{}", std::process::id())));
            fs::create_dir_all(&folder.0).unwrap();
            folder
        }

        fn zone(&self, zone: &str, name: &str, microjoules: u64) {
            let path = self.0.join(zone);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("name"), format!("{name}\n")).unwrap();
            fs::write(path.join("energy_uj"), format!("{microjoules}\n")).unwrap();
            fs::write(path.join("max_energy_range_uj"), "262143328850\n").unwrap();
        }

        /// Two processors, and what such a machine lists besides.
        fn machine(test: &str) -> Self {
            let folder = Self::new(test);
            fs::create_dir_all(folder.0.join("intel-rapl")).unwrap();
            folder.zone("intel-rapl:0", "package-0", 10_000_000);
            folder.zone("intel-rapl:0:0", "core", 1);
            folder.zone("intel-rapl:0:1", "dram", 20_000_000);
            folder.zone("intel-rapl:1", "package-1-die-1", 30_000_000);
            folder.zone("intel-rapl:2", "psys", 1);
            folder.zone("intel-rapl-mmio:0", "package-0", 1);
            folder
        }

        fn counters(&self) -> Result<Counters, NoneFound> {
            Counters::under(&self.0)
        }
    }

    #[test]
    fn packages_and_memory_are_counted_and_nothing_twice() {
        let folder = TempFolder::machine("zones");
        let counters = folder.counters().unwrap();
        assert_eq!(counters.names().collect::<Vec<_>>(), ["package-0", "dram", "package-1-die-1"]);
        let before = counters.read().unwrap();
        assert_eq!(counters.read().unwrap().joules_since(&before), 0.0);
        folder.zone("intel-rapl:0", "package-0", 11_500_000);
        folder.zone("intel-rapl:0:0", "core", 1_000_001);
        folder.zone("intel-rapl:0:1", "dram", 20_250_000);
        folder.zone("intel-rapl:2", "psys", 9_000_001);
        assert_eq!(counters.read().unwrap().joules_since(&before), 1.75);
    }

    #[test]
    fn a_counter_that_starts_over_goes_on_counting() {
        let folder = TempFolder::new("wrap");
        folder.zone("intel-rapl:0", "package-0", 262_143_328_850 - 1_000_000);
        let counters = folder.counters().unwrap();
        let before = counters.read().unwrap();
        folder.zone("intel-rapl:0", "package-0", 500_000);
        assert_eq!(counters.read().unwrap().joules_since(&before), 1.5);
    }

    #[test]
    fn a_counter_out_of_its_range_is_no_panic() {
        let folder = TempFolder::new("range");
        folder.zone("intel-rapl:0", "package-0", u64::MAX);
        let counters = folder.counters().unwrap();
        let before = counters.read().unwrap();
        folder.zone("intel-rapl:0", "package-0", 2_000_000);
        assert_eq!(counters.read().unwrap().joules_since(&before), 2.0);
    }

    #[test]
    fn a_zone_that_goes_away_leaves_no_reading() {
        let folder = TempFolder::machine("gone");
        let counters = folder.counters().unwrap();
        fs::write(folder.0.join("intel-rapl:1/energy_uj"), "").unwrap();
        assert!(counters.read().is_none());
        fs::remove_dir_all(folder.0.join("intel-rapl:1")).unwrap();
        assert!(counters.read().is_none());
    }

    #[test]
    fn without_counters_the_reason_is_told() {
        let folder = TempFolder::new("none");
        let reason = |folder: &TempFolder| folder.counters().unwrap_err();
        let nowhere = Counters::under(&folder.0.join("nowhere")).unwrap_err();
        assert_eq!((nowhere, reason(&folder)), (NoneFound::Absent, NoneFound::Absent));
        folder.zone("intel-rapl:0", "psys", 1);
        assert_eq!(reason(&folder).to_string(), "this machine has no energy counters (powercap)");
        folder.zone("intel-rapl:0", "package-0", 1);
        fs::remove_file(folder.0.join("intel-rapl:0/energy_uj")).unwrap();
        assert_eq!(reason(&folder), NoneFound::Absent, "a package without a counter");
    }

    #[test]
    fn links_that_lead_nowhere_are_a_containers() {
        let folder = TempFolder::new("hidden");
        std::os::unix::fs::symlink("../../nowhere", folder.0.join("intel-rapl:0")).unwrap();
        let reason = folder.counters().unwrap_err();
        assert_eq!(reason, NoneFound::Hidden);
        assert!(reason.to_string().contains("outside of the container"), "{reason}");
    }

    #[test]
    fn counters_only_for_root_name_the_remedy() {
        // The test may run as root, who is never refused, so it makes up the refusal.
        let refused = |path: &Path| match path.file_name() {
            Some(file) if file == "energy_uj" => Err(io::ErrorKind::PermissionDenied.into()),
            _ => number(path),
        };
        let folder = TempFolder::machine("denied");
        let reason = found(&folder.0, refused).unwrap_err();
        let path = folder.0.join("intel-rapl:0/energy_uj");
        assert_eq!(reason, NoneFound::Denied(path.clone()));
        let text = format!(
            "only root may read {}; run as root, or type sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj",
            path.display()
        );
        assert_eq!(reason.to_string(), text);
    }
}
