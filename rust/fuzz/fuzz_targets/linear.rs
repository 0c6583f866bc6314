//! Hints of clients with a clock: a text of twice the length takes at most two and a half times the time.
//!
//! The input is three lines: a prefix, a unit that is repeated, a suffix. The time is the CPU time of this
//! thread, the least of some runs, so that other work of the machine does not count.

#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use deltalog::predicate::{Hints, Predicate};
use deltalog::schema::{ColumnMapping, StructType};
use libfuzzer_sys::fuzz_target;

const SCHEMA: &str = r#"{"type":"struct","fields":[
    {"name":"id","type":"long","nullable":true,"metadata":{}},
    {"name":"name","type":"string","nullable":true,"metadata":{}},
    {"name":"point","type":{"type":"struct","fields":[
        {"name":"x","type":"integer","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}}]}"#;

const LENGTH: usize = 1 << 15;
const RUNS: usize = 6;
/// What takes less is not measured well enough.
const WORTH_A_LOOK: Duration = Duration::from_millis(4);

static TABLE: LazyLock<StructType> =
    LazyLock::new(|| StructType::parse(SCHEMA, ColumnMapping::None).expect("a schema"));

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let [prefix, unit, suffix] = [(); 3].map(|()| lines.next().unwrap_or_default());
    if unit.is_empty() {
        return;
    }
    let of_length = |length: usize| hints(format!("{prefix}{}{suffix}", unit.repeat(length / unit.len())));
    let (short, long) = (of_length(LENGTH), of_length(2 * LENGTH));
    let (mut once, mut twice) = (clocked(&short), clocked(&long));
    for _ in 1..RUNS {
        if twice < WORTH_A_LOOK || twice <= once * 5 / 2 {
            return;
        }
        once = once.min(clocked(&short));
        twice = twice.min(clocked(&long));
    }
    assert!(twice <= once * 5 / 2, "{prefix:?}, {unit:?} repeated, {suffix:?}: {once:?}, then {twice:?}");
});

/// A JSON tree if it begins with a brace, else SQL.
fn hints(text: String) -> Hints {
    if text.starts_with('{') {
        Hints { sql: Vec::new(), json: Some(text) }
    } else {
        Hints { sql: vec![text], json: None }
    }
}

fn clocked(hints: &Hints) -> Duration {
    let begun = thread_time();
    let _ = Predicate::bind(hints, &TABLE, &[]);
    thread_time() - begun
}

fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is known and the place to write to is ours.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "this system has no clock of a thread");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
