//! The headers of servers, alone and misused.

mod swnaa_support;

use std::{fs, path::Path, process::Command};

use swnaa_support::{Library, PORT, compile};

#[test]
fn the_headers_compile_in_every_language_programs_are_written_in() {
    let languages = [
        ("cc", "c", "c11"),
        ("cc", "c", "c17"),
        ("cc", "c", "gnu17"),
        ("c++", "c++", "c++17"),
        ("c++", "c++", "c++20"),
    ];
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for (compiler, language, standard) in languages {
        for dialect in ["-UNAAICE_NEXT", "-DNAAICE_NEXT"] {
            for header in ["naaice_swnaa.h", "swnaa_kernels.h"] {
                let output = Command::new(compiler)
                    .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", dialect, "-I"])
                    .arg(&include)
                    .arg(format!("-std={standard}"))
                    .args(["-include", header, "-x", language, "/dev/null"])
                    .output()
                    .unwrap();
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{header} as {standard} {dialect}: {text}");
            }
        }
    }
}

#[test]
fn misuse_is_refused_with_a_reason() {
    for (library, address) in [(Library::Shared, "127.0.22.1"), (Library::Static, "127.0.22.2")] {
        let program = compile("swnaa_misuse.c", "cc", &["-std=gnu17", "-Wno-pedantic"], library);
        let mut command = Command::new(&program);
        command.args([&PORT.to_string(), address]).env("NAA_PROVIDER", "embedded");
        let status = command.status().unwrap();
        fs::remove_file(program).unwrap();
        assert!(status.success(), "{library:?}: {status}");
    }
}

/// Programs that know only the symbol: kernels are found by the linker, or missed with a text.
#[test]
fn kernels_are_found_without_the_header() {
    for (library, last) in [(Library::Shared, 3), (Library::Static, 4)] {
        for (flag, expected) in [("-DWITH_KERNELS", 0), ("-UWITH_KERNELS", 5)] {
            let program = compile("swnaa_symbol.c", "cc", &["-std=gnu17", flag], library);
            let mut command = Command::new(&program);
            command.env("NAA_LOCAL_IP", format!("127.0.22.{last}")).env("NAA_PROVIDER", "embedded");
            let status = command.status().unwrap();
            fs::remove_file(program).unwrap();
            assert_eq!(status.code(), Some(expected), "{library:?} {flag}");
        }
    }
}
