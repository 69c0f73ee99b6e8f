//! The commands of the README do what it says, in network namespaces of their own.

use std::{
    path::Path,
    process::{Command, Stdio},
};

const MARK: &str = "<!-- Run by naa/tests/readme.rs. -->\n```sh\n";
/// Root in new namespaces needs no sudo, and what it makes below /run goes with them.
const BEFORE: &str = "set -eu; ip link set lo up; mount -t tmpfs none /run; sudo() { \"$@\"; }\n";

/// Whether this machine lets us have namespaces.
fn has_namespaces() -> bool {
    let mut probe = Command::new("unshare");
    probe.args(["-rnm", "sh", "-c", "mount -t tmpfs none /run && ip link set lo up"]);
    probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// What the marked commands and those after them print; `None` if this machine refuses namespaces.
fn run(nth: usize, after: &str) -> Option<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    let rest = readme.split(MARK).nth(nth + 1).expect("the marked commands");
    let (commands, _) = rest.split_once("```").expect("their end");
    if !has_namespaces() {
        eprintln!("not run: this machine refuses `unshare -rnm` or has no iproute2");
        return None;
    }
    let folder = Path::new(env!("CARGO_BIN_EXE_naa")).parent().expect("a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let scratch = std::env::temp_dir().join(format!("naa-readme-{nth}-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a folder");
    let script = format!("{BEFORE}{commands}{after}").replace("/tmp/", &format!("{}/", scratch.display()));
    let mut shell = Command::new("unshare");
    shell.args(["-rnm", "--pid", "--fork", "--kill-child", "bash", "-c", &script]);
    let output = shell.env("PATH", path).current_dir(root).output().expect("unshare runs");
    let _ = std::fs::remove_dir_all(&scratch);
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{wrong}");
    Some((said.into_owned(), wrong.into_owned()))
}

#[test]
fn offloading_between_namespaces() {
    let after = "cmp README.md /tmp/README.md\nsha256sum README.md LICENSE-MIT\nkill $!\nwait\n";
    let Some((said, wrong)) = run(0, after) else { return };
    // naa's digests and sha256sum's.
    for file in ["  README.md", "  LICENSE-MIT"] {
        let lines: Vec<_> = said.lines().filter(|line| line.ends_with(file)).collect();
        assert!(matches!(lines[..], [ours, theirs] if ours == theirs), "{lines:?}\n{wrong}");
    }
    assert!(said.contains("1000 calls of 64 B to 10.99.0.2:12345"), "{said}");
}

#[test]
fn streaming_events() {
    let after = "cmp README.md /tmp/events/4321-0\ncmp LICENSE-MIT /tmp/events/4321-1\n";
    let Some((said, _)) = run(1, after) else { return };
    assert!(said.contains("2 events to 127.0.0.1:19522"), "{said}");
}

#[test]
fn balancing_events() {
    let after = "kill %1\nls /tmp/one /tmp/two | grep -c 4321-\n";
    let Some((said, wrong)) = run(2, after) else { return };
    assert!(said.contains("they apply from tick "), "{said}\n{wrong}");
    assert!(said.contains("load balancer 0"), "{said}");
    assert_eq!(said.lines().last(), Some("200"), "{said}\n{wrong}");
}

#[test]
fn events_in_memory() {
    let after = "kill %1\nls /tmp/here /tmp/there | grep -c 4321-\ncat /tmp/here/* /tmp/there/* | wc -c\ncat README.md LICENSE-MIT README.md LICENSE-MIT | wc -c\n";
    let Some((said, wrong)) = run(3, after) else { return };
    let last: Vec<_> = said.lines().rev().take(3).collect();
    assert!(matches!(last[..], [sent, taken, "4"] if sent == taken), "{said}\n{wrong}");
    assert!(said.contains("this machine") && said.contains("store"), "{said}");
}
