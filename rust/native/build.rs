//! Gives the crate the commit that it is built from, as the variable `DELTA_GATEWAY_COMMIT` of the compiler.
//!
//! The environment variable of the same name wins, for builds outside of a clone. Without either the commit is
//! `unknown`. A time of the build is left out: two builds of a commit are the same bytes.

#![allow(clippy::print_stdout)] // the interface of build scripts

use std::path::Path;
use std::process::Command;

const VARIABLE: &str = "DELTA_GATEWAY_COMMIT";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    // A file that never exists: the script runs for each build, and only another commit compiles the crate again.
    println!("cargo::rerun-if-changed=never");
    let given = std::env::var(VARIABLE).ok().filter(|commit| is_commit(commit));
    let commit = given.or_else(git_commit).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env={VARIABLE}={commit}");
}

/// Returns the commit of the clone, with `-dirty` if a tracked file differs. `None` outside of a clone.
fn git_commit() -> Option<String> {
    // An unpacked source distribution may lie inside of another project's clone.
    let is_own = Path::new("../../.git").exists();
    if !is_own {
        return None;
    }
    let arguments = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let output = Command::new("git").args(arguments).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && is_commit(&commit)).then_some(commit)
}

fn is_commit(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
