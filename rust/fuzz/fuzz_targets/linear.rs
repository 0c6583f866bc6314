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

const LENGTH: usize = 1 << 14;
const RUNS: usize = 6;
const SAME_REST: usize = 12;
/// Shorter times are too noisy to compare.
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
    // With some numbers of units a text is whole, with others it is not and costs less: those of one rest are alike.
    let units = (LENGTH / unit.len()).next_multiple_of(SAME_REST);
    let texts = [1, 2, 4].map(|times| hints(format!("{prefix}{}{suffix}", unit.repeat(times * units))));
    let mut least = texts.each_ref().map(clocked);
    for _ in 1..RUNS {
        if least[2] < WORTH_A_LOOK || !is_steep(least) {
            return;
        }
        for (least, text) in least.iter_mut().zip(&texts) {
            *least = (*least).min(clocked(text));
        }
    }
    assert!(!is_steep(least), "{prefix:?}, {unit:?} repeated, {suffix:?}: {least:?}");
});

/// Whether each time the double length takes more than two and a half times as long. Once may be a step.
fn is_steep(times: [Duration; 3]) -> bool {
    times.windows(2).all(|pair| pair[1] > pair[0] * 5 / 2)
}

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
    // SAFETY: the clock exists, and `time` is a local variable.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "this system has no clock of a thread");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
