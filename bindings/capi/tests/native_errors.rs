//! Programs that use naa.h wrongly, or in a wrong environment.

mod native_support;

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
