//! The kept inputs of the fuzz targets, each run once: an input that broke a target breaks a test.
//!
//! The targets are those of `rust/fuzz`, compiled with the settings of these tests and without counters of coverage.
//! `linear` compares times and is left to the fuzzer.

// The targets begin with an attribute of their crates, and import the macro that this crate defines.
#![allow(unused_attributes, unused_imports)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::match_same_arms
)]

extern crate self as libfuzzer_sys;

use std::path::Path;

/// Stands in for the macro of libFuzzer: the closure becomes a function.
#[macro_export]
macro_rules! fuzz_target {
    (init: $init:expr, |$data:ident: &[u8]| $body:expr) => {
        pub(super) fn init() {
            $init;
        }
        pub(super) fn run($data: &[u8]) {
            $body
        }
    };
    (|$data:ident: &[u8]| $body:expr) => {
        $crate::fuzz_target!(init: (), |$data: &[u8]| $body);
    };
}

macro_rules! targets {
    ($($name:ident in $path:literal),*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            #[path = $path]
            mod $name;

            #[test]
            fn $name() {
                $name::init();
                let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(stringify!($name));
                let mut inputs = 0;
                for input in std::fs::read_dir(corpus).unwrap() {
                    $name::run(&std::fs::read(input.unwrap().path()).unwrap());
                    inputs += 1;
                }
                assert!(inputs > 0);
            }
        )*
    };
}

#[test]
fn every_target_is_here() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
    let mut names = Vec::from(["linear"]);
    names.extend(NAMES);
    names.sort_unstable();
    let files = std::fs::read_dir(sources).unwrap().map(|file| file.unwrap().path());
    let mut found: Vec<_> = files.map(|file| file.file_stem().unwrap().to_owned()).collect();
    found.sort_unstable();
    assert_eq!(found, names);
}

targets!(
    checkpoint in "../../../fuzz/fuzz_targets/checkpoint.rs",
    commit in "../../../fuzz/fuzz_targets/commit.rs",
    deletion_vector in "../../../fuzz/fuzz_targets/deletion_vector.rs",
    predicate in "../../../fuzz/fuzz_targets/predicate.rs",
    schema in "../../../fuzz/fuzz_targets/schema.rs"
);
