//! Programs on naa.h with many sessions, threads and processes.

mod native_support;

use native_support::{Program, server};

#[test]
fn two_hundred_sessions_have_calls_in_flight_at_once() {
    let server = server("127.0.8.21");
    Program::c("native_many.c").run(&[&server.address().ip().to_string(), "200"], &[]);
}

#[test]
fn threads_have_sessions_of_their_own() {
    let server = server("127.0.8.22");
    Program::c("native_threads.c").run(&[&server.address().ip().to_string()], &[]);
}

#[test]
fn children_have_sessions_of_their_own() {
    let server = server("127.0.8.24");
    Program::c("native_fork.c").run(&[&server.address().ip().to_string()], &[]);
}
