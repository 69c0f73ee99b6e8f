//! Tests with made-up machines, whose sysfs and procfs are ordinary files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use naa_udp::InterfaceAddress;

use crate::{
    Report,
    check::{Check, CheckLevel},
    machine::{Machine, Socket},
    providers::ProviderReport,
    rules::Rules,
};

/// Files that are removed at the end of the test.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Files {
    /// A machine with one interface and no RDMA, on which an ordinary user runs the command.
    fn plain(test: &str) -> Self {
        let files = Self(std::env::temp_dir().join(format!("naa-doctor-{test}-{}", std::process::id())));
        files.user("1000", "0000000000000000", "unlimited unlimited");
        files.with("proc/self/uid_map", "         0          0 4294967295\n");
        files.with("proc/loadavg", "0.10 0.20 0.30 1/100 1000\n");
        files.with("proc/modules", "");
        files.with("proc/sys/kernel/osrelease", "6.1.0-9\n");
        files.with("proc/sys/net/core/rmem_max", "4194304\n");
        files.with("proc/sys/net/core/wmem_default", "212992\n");
        files.with(
            "lib/modules/6.1.0-9/modules.dep",
            "kernel/infiniband/rdma_rxe.ko.xz: a b\nib_uverbs.ko:\nrdma_ucm.ko:\n",
        );
        files.with("lib/modules/6.1.0-9/modules.builtin", "kernel/x/nf_tables.ko\n");
        files.with("etc/os-release", "ID=debian\n");
        files.with("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        files.interface("lo", "65536", "unknown");
        files.interface("eth0", "1500", "up");
        files
    }

    /// A machine with a soft-RoCE device over eth0, which has the address 10.0.0.5.
    fn rxe(test: &str) -> Self {
        let files = Self::plain(test);
        files.interface("eth0", "4200", "up");
        let port = "sys/class/infiniband/rxe0/ports/1";
        files.with("sys/class/infiniband/rxe0/parent", "eth0\n");
        files.with(&format!("{port}/state"), "4: ACTIVE\n");
        files.with(&format!("{port}/link_layer"), "Ethernet\n");
        for (index, gid) in ["fe80::1", "::ffff:10.0.0.5"].iter().enumerate() {
            files.with(&format!("{port}/gids/{index}"), gid);
            files.with(&format!("{port}/gid_attrs/types/{index}"), "RoCE v2\n");
            files.with(&format!("{port}/gid_attrs/ndevs/{index}"), "eth0\n");
        }
        files.with("sys/module/rdma_rxe/refcnt", "1");
        files.with("sys/class/infiniband_verbs/abi_version", "6\n");
        files.with("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
        files.with("sys/class/misc/rdma_cm/dev", "10:1\n");
        files.with("dev/infiniband/uverbs0", "");
        files.with("dev/infiniband/rdma_cm", "");
        files.with("etc/libibverbs.d/rxe.driver", "driver rxe\n");
        // This is the socket of the kernel itself.
        files.with("proc/thread-self/net/udp", &table("00000000", 7));
        files.with("proc/thread-self/net/udp6", &table(&"0".repeat(32), 8));
        files
    }

    fn with(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn without(&self, path: &str) {
        let path = self.0.join(path);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }

    fn interface(&self, name: &str, mtu: &str, state: &str) {
        self.with(&format!("sys/class/net/{name}/mtu"), mtu);
        self.with(&format!("sys/class/net/{name}/operstate"), state);
    }

    /// Sets the user and the capabilities of the process, and the soft and the hard limit of locked memory.
    fn user(&self, uid: &str, capabilities: &str, memlock: &str) {
        let status = format!(
            "Name:\tnaa\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities}\nCpus_allowed_list:\t0-3\n"
        );
        self.with("proc/self/status", &status);
        self.with("proc/self/limits", &format!("Limit Soft Hard\nMax locked memory  {memlock}  bytes\n"));
    }

    fn machine(&self) -> Machine {
        let mut machine = Machine::below(&self.0);
        machine.addresses = [("lo", "127.0.0.1"), ("eth0", "10.0.0.5"), ("eth0", "fe80::1")]
            .map(|(interface, address)| InterfaceAddress {
                interface: interface.into(),
                address: address.parse().expect("an address"),
            })
            .into();
        machine.rules = Rules::Read(String::new());
        machine
    }
}

/// The text of `/proc/net/udp` with a socket on port 4791.
fn table(address: &str, inode: u32) -> String {
    format!("  sl local\n  1: {address}:12B7 00000000:0000 07 0:0 00:0 0     0        0 {inode} 2 0 0\n")
}

const ROOT: &str = "000001ffffffffff";

#[track_caller]
fn check<'a>(report: &'a Report, name: &str) -> &'a Check {
    report.checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no check {name}"))
}

#[track_caller]
fn provider<'a>(report: &'a Report, name: &str) -> &'a ProviderReport {
    report.providers.iter().find(|provider| provider.name == name).expect("two providers")
}

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

fn remedy(check: &Check) -> &str {
    check.remedy.as_deref().unwrap_or_default()
}

#[test]
fn without_rdma_embedded_is_ready_and_verbs_names_the_remedy() {
    let files = Files::plain("none");
    let report = Report::of(&files.machine());
    assert_eq!(check(&report, "device").level, CheckLevel::Note);
    let embedded = provider(&report, "embedded");
    assert!(embedded.ready);
    assert_eq!(embedded.why, "ready on 127.0.0.1 (lo), 10.0.0.5 (eth0)");
    let verbs = provider(&report, "verbs");
    assert!(!verbs.ready && verbs.addresses.is_empty());
    assert_eq!(verbs.why, "not available: no RDMA device");
    let typed = "sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev eth0";
    assert_eq!(verbs.remedy.as_deref(), Some(typed));
    assert!(report.checks.iter().all(|check| check.level != CheckLevel::Bad), "{:?}", report.checks);
}

#[test]
fn the_way_to_a_device_fits_the_kernel() {
    let files = Files::plain("kernel");
    let remedy = || crate::rdma::how_to_get_one(&files.machine());
    files.user("0", ROOT, "unlimited unlimited");
    assert_says(&remedy(), &["modprobe rdma_rxe && rdma link add"]);
    files.with("lib/modules/6.1.0-9/modules.dep", "");
    assert_says(&remedy(), &["linux-modules-extra"]);
    files.with("sys/module/rdma_rxe/refcnt", "0");
    assert_eq!(remedy(), "rdma link add rxe0 type rxe netdev eth0");
    files.without("sys/module");
    files.without("proc/modules");
    assert_says(&remedy(), &["cargo xtask rxe-vm"]);
}

#[test]
fn with_rxe_verbs_is_ready_and_the_kernel_holds_the_port() {
    let files = Files::rxe("rxe");
    let report = Report::of(&files.machine());
    assert_eq!(check(&report, "device").level, CheckLevel::Ok);
    assert_eq!(check(&report, "device").finding, "rxe0 port 1 over eth0: ACTIVE, RoCE v2 on 10.0.0.5");
    let verbs = provider(&report, "verbs");
    assert!(verbs.ready, "{verbs:?}");
    assert_eq!(verbs.why, "ready on 10.0.0.5 (rxe0)");
    let embedded = provider(&report, "embedded");
    assert!(!embedded.ready && embedded.cannot_listen.len() == 2);
    assert_says(&embedded.why, &["127.0.0.1, 10.0.0.5", "held by the kernel's soft-RoCE (rxe0)"]);
    assert_says(embedded.remedy.as_deref().unwrap_or_default(), &["--provider verbs", "network namespace"]);
    assert_says(&check(&report, "interface").finding, &["lo: MTU 65536, path MTU 4096"]);
}

#[test]
fn a_small_memlock_keeps_users_from_verbs_but_not_root() {
    let files = Files::rxe("memlock");
    files.user("1000", "0", "65536 65536");
    let report = Report::of(&files.machine());
    let memlock = check(&report, "memlock");
    assert_eq!(memlock.level, CheckLevel::Bad);
    assert_says(&memlock.finding, &["only 64 KiB may be locked", "1 GiB"]);
    assert_says(remedy(memlock), &["ulimit -l unlimited", "limits.d", "LimitMEMLOCK=infinity"]);
    assert!(!provider(&report, "verbs").ready);
    assert_says(&provider(&report, "verbs").why, &["only 64 KiB"]);
    assert_says(
        provider(&report, "embedded").remedy.as_deref().unwrap_or_default(),
        &["modprobe -r rdma_rxe"],
    );

    files.user("0", ROOT, "65536 65536");
    let report = Report::of(&files.machine());
    assert_eq!(check(&report, "memlock").level, CheckLevel::Note);
    assert_says(&check(&report, "memlock").finding, &["you are root: it does not bind"]);
    assert!(provider(&report, "verbs").ready);

    files.with("proc/self/uid_map", "0 100000 65536\n");
    let report = Report::of(&files.machine());
    assert_eq!(check(&report, "memlock").level, CheckLevel::Bad);
    assert_says(&check(&report, "memlock").finding, &["root in a container is not exempt"]);

    files.user("1000", "0", "8388608 unlimited");
    let report = Report::of(&files.machine());
    assert_eq!(check(&report, "memlock").level, CheckLevel::Warn);
    assert!(remedy(check(&report, "memlock")).starts_with("ulimit -l unlimited;"));
    assert!(provider(&report, "verbs").ready);
}

#[test]
fn memlock_without_a_device_is_a_note() {
    let files = Files::plain("memlock-none");
    files.user("1000", "0", "65536 65536");
    let report = Report::of(&files.machine());
    assert_eq!(check(&report, "memlock").level, CheckLevel::Note);
    assert_says(
        &check(&report, "memlock").finding,
        &["64 KiB may be locked", "embedded provider locks none"],
    );
    assert!(provider(&report, "embedded").ready);
}

#[test]
fn missing_libraries_name_the_packages() {
    let files = Files::rxe("libraries");
    let mut machine = files.machine();
    machine.libraries = Err("librdmacm.so.1 cannot be loaded".into());
    let report = Report::of(&machine);
    let libraries = check(&report, "libraries");
    assert_eq!(libraries.level, CheckLevel::Bad);
    assert_eq!(remedy(libraries), "sudo apt install librdmacm1 ibverbs-providers");
    assert!(!provider(&report, "verbs").ready);
    assert_eq!(provider(&report, "verbs").remedy.as_deref(), Some(remedy(libraries)));

    machine.libraries = Ok(());
    files.without("etc/libibverbs.d");
    assert_eq!(check(&Report::of(&machine), "libraries").level, CheckLevel::Warn);

    files.without("sys/class");
    machine.libraries = Err("librdmacm.so.1 cannot be loaded".into());
    assert_eq!(check(&Report::of(&machine), "libraries").level, CheckLevel::Note);
}

#[test]
fn modules_and_device_files_that_are_missing_are_told() {
    let files = Files::rxe("files");
    files.without("dev/infiniband/rdma_cm");
    let report = Report::of(&files.machine());
    let missing = check(&report, "device-files");
    assert_eq!(missing.level, CheckLevel::Bad);
    assert_says(&missing.finding, &["/dev/infiniband/rdma_cm cannot be opened"]);
    assert_says(remedy(missing), &["--device=/dev/infiniband"]);

    files.without("sys/class/misc");
    let report = Report::of(&files.machine());
    let modules = check(&report, "modules");
    assert_eq!((modules.level, remedy(modules)), (CheckLevel::Bad, "sudo modprobe -a rdma_ucm"));
}

#[test]
fn a_device_that_is_down_or_elsewhere_is_not_ready() {
    let files = Files::rxe("down");
    files.with("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN\n");
    let report = Report::of(&files.machine());
    let verbs = provider(&report, "verbs");
    assert!(!verbs.ready);
    assert_eq!(verbs.remedy.as_deref(), Some("sudo ip link set eth0 up"));

    files.with("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
    let mut machine = files.machine();
    machine.addresses.retain(|entry| entry.interface == "lo");
    let report = Report::of(&machine);
    assert_says(&provider(&report, "verbs").why, &["another network namespace"]);
}

#[test]
#[cfg(target_endian = "little")]
fn a_held_port_names_its_holder() {
    let files = Files::plain("held");
    files.with("proc/thread-self/net/udp", &table("0500000A", 4711));
    files.with("proc/42/comm", "naa\n");
    fs::create_dir_all(files.0.join("proc/42/fd")).expect("a folder");
    std::os::unix::fs::symlink("socket:[4711]", files.0.join("proc/42/fd/3")).expect("a link");
    let report = Report::of(&files.machine());
    let port = check(&report, "port-4791");
    assert_eq!(port.level, CheckLevel::Note);
    assert_eq!(port.finding, "UDP port 4791 on 10.0.0.5 is held by process 42 (naa)");
    let embedded = provider(&report, "embedded");
    assert!(embedded.ready);
    let why = "ready on 127.0.0.1 (lo); cannot listen on 10.0.0.5: UDP port 4791 is held by process 42 (naa)";
    assert_eq!(embedded.why, why);
}

#[test]
fn small_buffers_and_missing_offloads_are_told() {
    let files = Files::plain("buffers");
    files.with("proc/sys/net/core/rmem_max", "212992\n");
    let mut machine = files.machine();
    machine.socket = Ok(Socket { receive_buffer: 425_984, gso: false, gro: true });
    let report = Report::of(&machine);
    let buffer = check(&report, "receive-buffer");
    assert_eq!(
        (buffer.level, remedy(buffer)),
        (CheckLevel::Warn, "sudo sysctl -w net.core.rmem_max=4194304")
    );
    assert_says(&buffer.finding, &["208 KiB", "49 packets", "128 in flight"]);
    assert_says(&check(&report, "gso-gro").finding, &["UDP GSO is missing"]);
    // Root gets a larger buffer than others are permitted.
    machine.socket = Ok(Socket { receive_buffer: 8 << 20, gso: true, gro: true });
    let report = Report::of(&machine);
    assert_eq!(check(&report, "receive-buffer").level, CheckLevel::Note);
    assert_says(&check(&report, "receive-buffer").finding, &["Without root there is room for 49"]);
}

#[test]
fn a_firewall_is_read_or_not_guessed_at() {
    let files = Files::plain("firewall");
    let mut machine = files.machine();
    let mut checked = |rules: Rules| {
        machine.rules = rules;
        check(&Report::of(&machine), "firewall").clone()
    };
    assert_eq!(checked(Rules::Read(String::new())).level, CheckLevel::Ok);
    let unseen = checked(Rules::NotLooked("needs root".into()));
    assert_eq!((unseen.level, &*unseen.finding), (CheckLevel::Note, "not looked at: needs root"));
    let closed = "table inet filter {\nchain input {\ntype filter hook input priority filter; policy drop;\n";
    let warned = checked(Rules::Read(closed.into()));
    assert_eq!(warned.level, CheckLevel::Warn);
    assert_says(&warned.finding, &["inet filter input"]);
    let open = checked(Rules::Read(format!("{closed}udp dport 4791 accept\n")));
    assert_eq!(open.level, CheckLevel::Ok);
    let shut = checked(Rules::Read("-A INPUT -p udp -m udp --dport 4791 -j DROP\n".into()));
    assert_eq!(shut.level, CheckLevel::Warn);
}

#[test]
fn links_without_room_and_slow_pages_and_clocks_are_told() {
    let files = Files::plain("rest");
    files.interface("eth0", "300", "up");
    files.with("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    files.with("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    files.with("proc/loadavg", "9.10 0.20 0.30 1/100 1000\n");
    let report = Report::of(&files.machine());
    assert_eq!(provider(&report, "embedded").why, "ready on 127.0.0.1 (lo)");
    assert_eq!(check(&report, "huge-pages").level, CheckLevel::Warn);
    assert_says(&check(&report, "governor").finding, &["powersave"]);
    assert_says(&check(&report, "cores").finding, &["4 cores", "load 9.10", "busy"]);
    let eth0 = report.checks.iter().find(|check| check.finding.starts_with("eth0")).expect("a check of eth0");
    assert_says(&eth0.finding, &["MTU 300 has no room"]);
}

#[test]
fn energy_counters_are_named_or_said_to_be_missing() {
    let files = Files::plain("energy");
    let checked = || check(&Report::of(&files.machine()), "energy-counters").clone();
    let none = checked();
    assert_eq!(
        (none.level, &*none.finding),
        (CheckLevel::Ok, "this machine has no energy counters (powercap)")
    );
    for (zone, name) in
        [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:0:1", "dram")]
    {
        files.with(&format!("sys/class/powercap/{zone}/name"), &format!("{name}\n"));
        files.with(&format!("sys/class/powercap/{zone}/energy_uj"), "1000\n");
        files.with(&format!("sys/class/powercap/{zone}/max_energy_range_uj"), "262143328850\n");
    }
    let found = checked();
    assert_eq!((found.level, &*found.finding), (CheckLevel::Ok, "energy counters: package-0, dram"));
}
