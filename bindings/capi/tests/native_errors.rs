//! Programs that use naa.h wrongly, or in a wrong environment.

#[path = "../../../naa-host/tests/model/mod.rs"]
mod model;
mod native_support;

use model::{AcceleratorModel, Action};
use mrsp::{
    ReturnCode,
    builtin::{StatusBlock, ZSTD_DECOMPRESS},
};
use native_support::{Library, Program, server};

#[test]
fn wrong_uses_are_refused() {
    let server = server("127.0.8.11");
    for standard in ["c11", "c++17"] {
        let program = Program::build("tests/c/native_errors.c", standard, Library::Shared);
        program.run(&[&server.address().ip().to_string()], &[]);
    }
}

#[test]
fn entries_of_naa_spec_are_used_once_each() {
    let servers = ["127.0.8.12", "127.0.8.13"].map(server);
    let [first, second] = servers.each_ref().map(|server| server.address().ip().to_string());
    Program::c("native_spec.c").run(&[&first, &second], &[]);
}

/// Starts an accelerator whose first call brings a status block, and whose later calls bring none. All calls fail.
fn failing(ip: &str) -> AcceleratorModel {
    let code = ReturnCode::OUTPUT_TOO_SMALL;
    let mut calls = 0;
    AcceleratorModel::start(ip, move |regions, _| {
        calls += 1;
        if calls > 1 {
            return Action::Respond(Err(code));
        }
        let (function, produced) = (ZSTD_DECOMPRESS, [64, 0, 0, 0, 0, 0]);
        // The internal region comes behind the others, so the status block is in region 1.
        regions[1].write(&StatusBlock { function, code: Some(code), detail: 4321, produced }.encode());
        Action::Fail(code, 64)
    })
}

#[test]
fn a_failure_without_a_status_block_has_no_detail_of_an_earlier_call() {
    Program::c("native_status.c").run(&[&failing("127.0.8.14").address.to_string()], &[]);
}

#[test]
fn a_built_in_function_that_fails_in_the_dialect_next_is_an_error() {
    let model = failing("127.0.8.15");
    Program::c("native_status.c").run(&[&model.address.to_string(), "next"], &[]);
}
