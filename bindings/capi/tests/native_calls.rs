//! Programs on naa.h that use every function as it is meant to be used.

mod native_support;

use native_support::{Library, Program, server};

const SOURCE: &str = "tests/c/native_calls.c";

#[test]
fn every_function_from_c() {
    let server = server("127.0.8.1");
    for standard in ["c11", "c17"] {
        Program::build(SOURCE, standard, Library::Shared).run(&[&server.address().ip().to_string()], &[]);
    }
}

#[test]
fn every_function_from_cpp() {
    let server = server("127.0.8.2");
    Program::build(SOURCE, "c++17", Library::Shared).run(&[&server.address().to_string()], &[]);
}

#[test]
fn every_function_from_the_static_library() {
    let server = server("127.0.8.3");
    Program::build(SOURCE, "c11", Library::Static).run(&[&server.address().to_string()], &[]);
}

#[test]
fn the_example_computes_what_this_machine_does() {
    let servers = ["127.0.8.4", "127.0.8.5"].map(server);
    let [first, second] = servers.each_ref().map(|server| server.address().ip().to_string());
    let program = Program::build("../../examples/c/dgemm.c", "c11", Library::Shared);
    let said = program.run(&["200", &first, &second, &first], &[]);
    assert_eq!(said.matches("are there").count(), 3, "{said}");
}

/// The program in the comment at the top of naa.h.
#[test]
fn the_example_of_the_header_runs() {
    let server = server("127.0.8.6");
    let header = include_str!("../include/naa.h");
    let lines = header.lines().skip_while(|line| !line.contains("#include <naa.h>"));
    let lines = lines.take_while(|line| !line.contains("Build:")).map(|line| line.trim_start_matches(" *"));
    let program: String = lines.map(|line| format!("{line}\n")).collect();
    let program = program.replace("10.9.0.1", &server.address().ip().to_string());
    let program = program.replace("return naa_session", "puts(\"ok\"); return naa_session");
    let said = Program::of("header", &program).run(&[], &[]);
    assert_eq!(said, "2 3 4 5\nok\n");
}

/// The program in C of the README at the root.
#[test]
fn the_example_of_the_readme_runs() {
    let server = server("127.0.8.7");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (_, block) = readme.split_once("```c\n").expect("a block in C");
    let (program, _) = block.split_once("```").expect("its end");
    let program = program.replace("127.0.0.1", &server.address().ip().to_string());
    let said = Program::of("readme", &program).said(&[]);
    assert_eq!(said, "2 3 4 5\n");
}
