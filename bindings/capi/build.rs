//! The library's name for programs at run time, which installing makes a link of.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let abi = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo tells the version");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnaa.so.{abi}");
    // It may have threads running when a program that loaded it at run time is done with it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
