//! The same binary in a root that holds nothing but it and the libraries it is linked with: no rdma-core, no shell.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The dynamic linker and the libraries, as ldd names them.
fn libraries(program: &str) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// A root with `naa` at its top.
fn bare_root(folder: &Path) {
    let program = env!("CARGO_BIN_EXE_naa");
    let copy = |from: &Path, to: &Path| {
        let to = folder.join(to.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(from, to).expect("copied");
    };
    copy(Path::new(program), Path::new("/naa"));
    let libraries = libraries(program);
    assert!(!libraries.is_empty(), "naa is linked with the C library");
    for library in libraries {
        let name = library.to_string_lossy();
        assert!(!name.contains("ibverbs") && !name.contains("rdmacm"), "naa is linked with {name}");
        copy(&library, &library);
    }
}

/// Runs a line of shell outside of the root, in namespaces of its own; `None` where they are refused.
fn within(root: &Path, line: &str) -> Option<(String, String, Option<i32>)> {
    let unshare = |line: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rnm", "--pid", "--fork", "--kill-child", "sh", "-c", line]).env("ROOT", root);
        command.output().ok()
    };
    let may = unshare("ip link set lo up && chroot \"$ROOT\" /naa --version")?;
    if !may.status.success() {
        let said = String::from_utf8_lossy(&may.stderr).into_owned();
        eprintln!("not run: this machine refuses `unshare -rnm` or chroot, or has no iproute2: {said}");
        return None;
    }
    let output = unshare(&format!("ip link set lo up; {line}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&output.stdout), text(&output.stderr), output.status.code()))
}

#[test]
fn naa_runs_embedded_and_says_so() {
    let root = std::env::temp_dir().join(format!("naa-bare-root-{}", std::process::id()));
    bare_root(&root);
    let serve_and_ping = "chroot \"$ROOT\" /naa serve --bind 127.0.0.1 & sleep 1; \
         chroot \"$ROOT\" /naa call sha256 --server 127.0.0.1 --in /naa && \
         chroot \"$ROOT\" /naa ping --server 127.0.0.1 --count 20 --json; status=$?; kill $!; exit $status";
    let embedded = within(&root, serve_and_ping);
    let verbs = within(&root, "chroot \"$ROOT\" /naa ping --server 127.0.0.1 --provider verbs");
    fs::remove_dir_all(&root).expect("removed");
    if let Some((said, wrong, status)) = embedded {
        assert_eq!(status, Some(0), "{said}\n{wrong}");
        assert!(said.contains("\"provider\":\"embedded\""), "{said}");
        assert!(said.contains("\"why\":\"embedded: "), "{said}\n{wrong}");
    }
    if let Some((said, wrong, status)) = verbs {
        assert_eq!(status, Some(1), "{said}\n{wrong}");
        for part in ["librdmacm", "apt install librdmacm1 ibverbs-providers"] {
            assert!(wrong.contains(part), "{part}: {wrong}");
        }
    }
}
