//! Programs on naa.h whose accelerator dies.

mod native_support;

use native_support::{AcceleratorProcess, Program, serve_if_asked};

#[test]
fn the_death_of_an_accelerator_is_told_in_time() {
    serve_if_asked();
    let program = Program::c("native_killed.c");
    for (how, ip) in [
        ("wait", "127.0.8.31"),
        ("any", "127.0.8.32"),
        ("all", "127.0.8.33"),
        ("poll", "127.0.8.34"),
        ("test", "127.0.8.35"),
    ] {
        let mut accelerator = AcceleratorProcess::start("the_death_of_an_accelerator_is_told_in_time", ip);
        program.run_until(&[ip, how], "kill it", || accelerator.kill());
    }
}
