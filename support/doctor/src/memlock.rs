//! Checks RLIMIT_MEMLOCK: registered memory is locked memory, and users may lock little.

use crate::{
    check::{Check, CheckGroup::Rdma, CheckLevel},
    machine::{Capability, Machine},
};

/// `ENOUGH` is the memory for a large buffer; `LEAST` is the memory for regions of one MiB with their room at both
/// ends.
const ENOUGH: u64 = 1 << 30;
const LEAST: u64 = 4 << 20;

/// A limit in bytes; `None` if there is no limit.
type Limit = Option<u64>;

fn limits(machine: &Machine) -> Option<(Limit, Limit)> {
    let limits = machine.read("proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let limit = |word: &str| if word == "unlimited" { Some(None) } else { word.parse().ok().map(Some) };
    let mut words = line.split_whitespace();
    Some((limit(words.next()?)?, limit(words.next()?)?))
}

pub(crate) fn check(machine: &Machine) -> Check {
    let Some((soft, hard)) = limits(machine) else {
        let finding = "the kernel does not tell how much memory may be locked";
        return Rdma.check("memlock", CheckLevel::Note, finding);
    };
    let Some(bytes) = soft else {
        return Rdma.check(
            "memlock",
            CheckLevel::Ok,
            "any amount of memory may be locked, so any may be registered",
        );
    };
    let size = naa_measure::bytes(bytes);
    if machine.has_capability(Capability::IpcLock) {
        let who = if machine.is_root() { "you are root" } else { "this process has CAP_IPC_LOCK" };
        let finding = format!("the limit is {size}, but {who}: it does not bind");
        let idle = machine.devices().is_empty();
        let check = Rdma.check("memlock", if idle { CheckLevel::Ok } else { CheckLevel::Note }, finding);
        return if idle || bytes >= ENOUGH {
            check
        } else {
            check.remedy(format!("for other users: {FOR_GOOD}"))
        };
    }
    let root = if machine.is_root() { " (root in a container is not exempt)" } else { "" };
    match bytes {
        _ if bytes >= ENOUGH => {
            let finding = format!("{size} may be locked, so that much may be registered");
            Rdma.check("memlock", CheckLevel::Ok, finding)
        }
        _ if machine.devices().is_empty() => {
            let finding = format!(
                "{size} may be locked{root}: verbs would need more; the embedded provider locks none"
            );
            Rdma.check("memlock", CheckLevel::Note, finding).remedy(remedy(bytes, hard))
        }
        _ => {
            let small = bytes < LEAST;
            let level = if small { CheckLevel::Bad } else { CheckLevel::Warn };
            let so = if small { ", so only small calls work over verbs" } else { "" };
            let finding = format!("only {size} may be locked{root}{so}; registering 1 GiB needs 1 GiB");
            Rdma.check("memlock", level, finding).remedy(remedy(bytes, hard))
        }
    }
}

const FOR_GOOD: &str = "`* - memlock unlimited` in /etc/security/limits.d/rdma.conf and a new login (systemd unit: \
                        LimitMEMLOCK=infinity; container: --ulimit memlock=-1)";

fn remedy(soft: u64, hard: Limit) -> String {
    let now = match hard {
        None => "ulimit -l unlimited".to_owned(),
        Some(hard) if hard >= ENOUGH => format!("ulimit -l {}", hard >> 10),
        Some(hard) if hard > soft => format!("ulimit -l {}, which is all you may", hard >> 10),
        Some(_) => "ulimit -l unlimited, in a shell of root's that starts yours".to_owned(),
    };
    format!("{now}; for good: {FOR_GOOD}")
}
