//! Builds the libraries that are preloaded into tools: those that are to stay warm (`preload/warm.rs`), those whose
//! calls are counted (`preload/calls.rs`), and those that read a file again for each record (`preload/reread.rs`). They
//! become a part of us.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Where the library can be built: they make system calls of their own, whose arguments differ from one to the other.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

fn main() {
    println!("cargo::rerun-if-changed=preload");
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["warm", "calls", "reread"] {
        build(name);
    }
}

/// Builds `preload/NAME.rs` as `NAME.so`.
fn build(name: &str) {
    let given = |name: &str| env::var(name).unwrap_or_default();
    let library = PathBuf::from(given("OUT_DIR")).join(name).with_extension("so");
    let is_known = ARCHITECTURES.contains(&given("CARGO_CFG_TARGET_ARCH").as_str());
    if !is_known || given("CARGO_CFG_TARGET_OS") != "linux" || given("CARGO_CFG_TARGET_ENV") != "gnu" {
        // Elsewhere nothing is preloaded: an empty library says so.
        fs::write(&library, []).expect("the folder of the build can be written");
        return;
    }
    let source = format!("preload/{name}.rs");
    let mut compiler = Command::new(given("RUSTC"));
    compiler.args(["--edition", "2024", "--crate-name", &format!("millrace_{name}"), "--crate-type", "cdylib"]);
    // As one piece: what is left of `core` has no use for the functions that unwind a stack, which nobody provides.
    compiler.args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "lto=fat", "-C", "strip=symbols"]);
    compiler.args(["--target", &given("TARGET")]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.arg("-C").arg(format!("linker={linker}"));
    }
    compiler.arg("-o").arg(&library).arg(&source);
    let done = compiler.output().expect("rustc can be started");
    assert!(done.status.success(), "{source}: {}", String::from_utf8_lossy(&done.stderr));
}
