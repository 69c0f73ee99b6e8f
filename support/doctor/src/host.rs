//! Checks of what makes calls fast or slow with any provider (pages, clock, cores), and of energy counters.

use naa_measure::energy::{Counters, NoneFound};

use crate::{
    check::{Check, CheckGroup::Machine as Heading, CheckLevel},
    machine::Machine,
};

pub(crate) fn checks(machine: &Machine) -> Vec<Check> {
    let energy = energy(&Counters::under(&machine.path("sys/class/powercap")), machine.sudo());
    [huge_pages(machine), governor(machine), cores(machine), Some(energy)].into_iter().flatten().collect()
}

/// Checks huge pages, for which regions from 2 MiB on ask by `madvise`.
fn huge_pages(machine: &Machine) -> Option<Check> {
    const FILE: &str = "sys/kernel/mm/transparent_hugepage/enabled";
    let text = machine.read(FILE)?;
    let chosen = text.split_once('[')?.1.split_once(']')?.0;
    let finding = format!("transparent huge pages: {chosen}");
    Some(if chosen == "never" {
        let remedy = match machine.sudo() {
            "" => format!("echo madvise > /{FILE}"),
            _ => format!("echo madvise | sudo tee /{FILE}"),
        };
        let finding = format!("{finding}, so large regions take longer to set up");
        Heading.check("huge-pages", CheckLevel::Warn, finding).remedy(remedy)
    } else {
        Heading.check("huge-pages", CheckLevel::Ok, finding)
    })
}

fn governor(machine: &Machine) -> Option<Check> {
    let cpus = machine.names("sys/devices/system/cpu");
    let governor =
        |cpu: &String| machine.read(&format!("sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor"));
    let mut governors: Vec<_> = cpus.iter().filter_map(governor).collect();
    governors.sort();
    governors.dedup();
    if governors.is_empty() {
        let finding = "the clock is not this machine's to choose (no cpufreq)";
        return Some(Heading.check("governor", CheckLevel::Ok, finding));
    }
    let finding = format!("CPU governor: {}", governors.join(", "));
    Some(if governors == ["performance"] {
        Heading.check("governor", CheckLevel::Ok, finding)
    } else {
        let remedy = format!("{}cpupower frequency-set -g performance", machine.sudo());
        let finding = format!("{finding}; small calls are faster with performance");
        Heading.check("governor", CheckLevel::Note, finding).remedy(remedy)
    })
}

fn cores(machine: &Machine) -> Option<Check> {
    let cores = count(&machine.status("Cpus_allowed_list")?)?;
    let load = machine.read("proc/loadavg").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let words = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
    let finding = match load {
        Some(load) => format!("{words} for this process, load {load:.2}"),
        None => format!("{words} for this process"),
    };
    Some(match load {
        Some(load) if load >= cores as f64 => {
            Heading.check("cores", CheckLevel::Note, format!("{finding}: busy, so times will vary"))
        }
        _ if cores == 1 => {
            Heading.check("cores", CheckLevel::Note, format!("{finding}; waiting by spinning wants two"))
        }
        _ => Heading.check("cores", CheckLevel::Ok, finding),
    })
}

/// Checks energy counters. `naa bench offload` uses them, but works without them.
fn energy(counters: &Result<Counters, NoneFound>, sudo: &str) -> Check {
    const NAME: &str = "energy-counters";
    match counters {
        Ok(counters) => {
            let names = counters.names().collect::<Vec<_>>().join(", ");
            Heading.check(NAME, CheckLevel::Ok, format!("energy counters: {names}"))
        }
        Err(NoneFound::Denied(_)) => {
            let finding = "energy counters: for root only, since they tell about programs of others";
            Heading.check(NAME, CheckLevel::Note, finding).remedy(format!("{sudo}{}", NoneFound::REMEDY))
        }
        Err(none) => Heading.check(NAME, CheckLevel::Ok, none.to_string()),
    }
}

/// The number of CPUs in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        to.checked_sub(from)?.checked_add(1)
    };
    list.split(',').map(range).sum()
}

#[cfg(test)]
mod tests {
    use super::{CheckLevel, Counters, NoneFound, count, energy};

    #[test]
    fn counters_for_root_only_are_a_note_with_a_remedy() {
        // Root, who may run this test, can read all files, so the refusal is made by hand.
        let denied: Result<Counters, _> = Err(NoneFound::Denied("energy_uj".into()));
        let check = energy(&denied, "sudo ");
        let typed = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj";
        assert_eq!((check.level, check.remedy.as_deref()), (CheckLevel::Note, Some(typed)));
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count("0-1"), Some(2));
        assert_eq!(count("0-3,8"), Some(5));
        assert_eq!(count("5"), Some(1));
        assert_eq!(count("3-1"), None);
        assert_eq!(count(""), None);
    }
}
