//! `naa call` with several servers.

mod common;

use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use common::{ServerProcess, TempFolder, naa, run, stderr, text};

const FILES: usize = 30;

/// Writes files of different content. Compressing a file takes some hundredths of a second.
fn fill(folder: &TempFolder) -> String {
    let content = text(400_000);
    fs::create_dir_all(folder.file("data")).expect("a folder");
    for index in 0..FILES {
        fs::write(folder.file(&format!("data/{index:02}")), &content[index * 1000..]).expect("a file");
    }
    folder.file("data")
}

/// Waits until some results exist, or the command has ended.
fn wait_for_results(call: &mut Child, folder: &str) {
    while fs::read_dir(folder).map_or(0, Iterator::count) < 5 {
        if call.try_wait().expect("it runs").is_some() {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn servers() -> Vec<ServerProcess> {
    ["127.0.7.71", "127.0.7.72", "127.0.7.73"].map(ServerProcess::start).into()
}

#[test]
fn files_go_to_several_servers_of_which_one_is_killed() {
    let folder = TempFolder::new("several-servers");
    let (data, packed) = (fill(&folder), folder.file("packed"));
    let mut servers = servers();
    let names: Vec<_> = servers.iter().map(ServerProcess::name).collect();
    let to: Vec<_> = names.iter().flat_map(|name| ["--server", name]).collect();
    let call =
        ["call", "zstd-compress", "--level", "15", "--repeat-lost", "--in-dir", &data, "--out-dir", &packed];
    let mut call = naa(&[&call[..], &to].concat());
    let mut call = call.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // One of the servers is killed when some results exist.
    wait_for_results(&mut call, &packed);
    servers[1].process.kill();
    let output = call.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read_dir(&packed).expect("a folder").count(), FILES);
    // The command still names the dead server, and uses only the others.
    let unpacked = folder.file("unpacked");
    let call = ["call", "zstd-decompress", "--in-dir", &packed, "--out-dir", &unpacked];
    let output = run(&[&call[..], &to].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    for index in 0..FILES {
        let [was, is] = [&data, &unpacked].map(|of| fs::read(format!("{of}/{index:02}")).expect("a file"));
        assert_eq!(was, is, "file {index}");
    }
}

#[test]
fn without_repeat_lost_a_file_whose_server_dies_fails_and_the_others_do_not() {
    let folder = TempFolder::new("several-servers-never");
    let (data, packed) = (fill(&folder), folder.file("packed"));
    let mut servers: Vec<_> = ["127.0.7.74", "127.0.7.75"].map(ServerProcess::start).into();
    let names: Vec<_> = servers.iter().map(ServerProcess::name).collect();
    let call = [
        "call",
        "zstd-compress",
        "--level",
        "15",
        "--in-dir",
        &data,
        "--out-dir",
        &packed,
        "--sessions",
        "2",
    ];
    let mut call = naa(&[&call[..], &["--server", &names[0], "--server", &names[1]]].concat());
    let mut call = call.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_for_results(&mut call, &packed);
    servers[1].process.kill();
    let output = call.wait_with_output().expect("it ends");
    let said = stderr(&output);
    let there = fs::read_dir(&packed).expect("a folder").count();
    match output.status.success() {
        // The server had no call when it was killed.
        true => assert_eq!(there, FILES, "{said}"),
        false => {
            assert_eq!(there, FILES - 1, "{said}");
            assert!(said.contains("its results are lost, so connect and call again"), "{said}");
        }
    }
}

#[test]
fn servers_none_of_which_can_be_reached_are_named() {
    let folder = TempFolder::new("several-servers-none");
    let file = folder.with("file", b"content");
    let call = ["call", "sha256", "--in", &file, "--timeout", "1"];
    let to = ["--server", "127.0.7.76:1", "--server", "127.0.7.77:2"];
    let output = run(&[&call[..], &to].concat());
    let said = stderr(&output);
    assert!(
        !output.status.success() && said.contains("127.0.7.76:1") && said.contains("127.0.7.77:2"),
        "{said}"
    );
}
