//! If a process gets no more memory, calls of built-in functions are refused and the process continues.

mod common;

use std::{env, process::Command};

use common::{calls, calls::TestCall};
use mrsp::{ReturnCode, builtin};

/// The limit of the child process's address space, in KiB.
const LIMIT: usize = 1 << 20;
const MIB: usize = 1 << 20;
/// The environment variable that is set for the child process, which runs this test program.
const CHILD: &str = "NAA_TEST_WITH_LITTLE_ADDRESS_SPACE";
const NAME: &str = "calls_are_refused_and_the_process_lives_where_the_address_space_is_full";

/// Maps memory until the address space has room only for `spare` bytes and for less than 128 KiB more. Returns the
/// mapped memory.
fn leave(spare: usize) -> Vec<verbs::Memory> {
    let place = region::alloc(spare).unwrap();
    let (mut all, mut size) = (Vec::new(), 1 << 30);
    while size >= 128 << 10 {
        match region::alloc(size) {
            Ok(memory) => all.push(memory),
            Err(_) => size /= 2,
        }
    }
    drop(place);
    all
}

fn all() -> Vec<TestCall> {
    let mut all: Vec<_> =
        builtin::NAMES.iter().flat_map(|(code, _)| calls::worst_of_size(*code, 8192)).collect();
    all.extend([60_000, 65_519, 65_537, 1 << 18, 300_007, 1 << 20, 1_000_003].map(calls::transform));
    all.push(calls::product([300; 3]));
    let data = calls::random_bytes(5 * MIB);
    all.push(calls::compress_lz4("lz4-compress", &data, 6 * MIB));
    all.extend([1, 3, 9, 12].map(|level| calls::compress_zstd("zstd-compress", level, &data, 6 * MIB)));
    all.push(calls::compress_zstd("zstd-compress", 19, &calls::random_bytes(MIB), 2 * MIB));
    all.extend(calls::lz4_frames(MIB));
    all
}

/// Makes each call that [`all`] returns, once for each of several small amounts of free address space. The child
/// process that [`in_child`] starts runs this function.
fn calls_without_memory_to_spare() {
    for mut call in all() {
        let before = call.quota.used();
        for spare in [1, 2, 5, 20, 80].map(|mib| mib * MIB) {
            let ballast = leave(spare);
            let result = call.make();
            drop(ballast);
            let code = result.err().map(|why| why.code());
            println!("{} with {spare} bytes to spare: {code:?}", call.what);
            // A call also fails if its compressed input decompresses to more bytes than its output has, even if there
            // is enough memory.
            let known = [ReturnCode::OVER_LIMIT, ReturnCode::OUTPUT_TOO_SMALL];
            assert!(code.is_none_or(|code| known.contains(&code)), "{} with {spare}: {code:?}", call.what);
            assert_eq!(call.quota.used(), before);
        }
    }
}

/// Runs the test `name` of this program in a child process with little address space. Returns what the child printed.
fn in_child(name: &str) -> String {
    let script = format!("ulimit -v {LIMIT} && exec \"$0\" \"$@\"");
    let program = env::current_exe().unwrap();
    let mut child = Command::new("sh");
    child.args(["-c", &script]).arg(program).args(["--exact", name]);
    let output = child.args(["--nocapture", "--test-threads=1"]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}: {text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text.into_owned()
}

#[test]
fn calls_are_refused_and_the_process_lives_where_the_address_space_is_full() {
    if env::var_os(CHILD).is_some() {
        return calls_without_memory_to_spare();
    }
    let text = in_child(NAME);
    // The child process makes the Fourier transform of 1,000,003 numbers with several amounts of free memory. It must
    // print that the transform was refused with at least one amount, and succeeded with at least one other amount.
    for end in ["Some(OVER_LIMIT)", "None"] {
        assert!(
            text.lines().any(|line| line.starts_with("fft 1000003 ") && line.ends_with(end)),
            "{end}: {text}"
        );
    }
}

#[test]
fn a_compressor_that_gets_no_memory_is_over_the_limit() {
    if env::var_os(CHILD).is_none() {
        in_child("a_compressor_that_gets_no_memory_is_over_the_limit");
        return;
    }
    // The allocator has reserved 64 MiB of address space for this thread, so small allocations could still succeed. The
    // compressor makes one allocation of more than 64 MiB. This allocation needs new address space and must fail.
    let mut call = calls::compress_zstd("zstd-compress", 19, &calls::random_bytes(5 * MIB), 6 * MIB);
    let ballast = leave(MIB);
    let result = call.make();
    drop(ballast);
    assert_eq!(result.map_err(|why| why.code()), Err(ReturnCode::OVER_LIMIT));
}
