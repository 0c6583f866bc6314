//! Compares the timestamps of all ways to read a version with the sentence that defines them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{PROTOCOL, lines, metadata};
use super::*;
use crate::checkpoint::tests::writer::{Log, checkpoint_name};
use crate::history::History;

const BEGIN_MS: i64 = 1_700_000_000_000;

/// Milliseconds from one commit to the next, by runs: copied at once, copied quickly, written one after the other, also
/// many a second, by clocks that differ, and after a clock was set back.
fn steps() -> impl Strategy<Value = Vec<i64>> {
    let run = prop_oneof![
        3 => (1..90usize).prop_map(|count| vec![0; count]),
        2 => proptest::collection::vec(0..4i64, 1..60),
        4 => proptest::collection::vec(300..3000i64, 20..70),
        1 => proptest::collection::vec(20..300i64, 60..160),
        1 => proptest::collection::vec(-2500..3000i64, 1..40),
        1 => (-60_000..0i64).prop_map(|step| vec![step]),
    ];
    proptest::collection::vec(run, 1..5).prop_map(|runs| runs.concat())
}

/// The timestamps of commits, by their modification times: a version is at least as many milliseconds later than
/// each earlier version, back to one with 32 to 512 commits before it in ascending order, over at least ten seconds,
/// that do not make it later.
fn naive(times: &BTreeMap<i64, i64>) -> BTreeMap<i64, i64> {
    let all: Vec<_> = times.iter().map(|(version, ms)| (*version, *ms)).collect();
    let is_start = |index: usize| {
        let (version, ms) = all[index];
        let in_order = (0..index).rev().take(512).take_while(|earlier| {
            all[*earlier].1 <= all[earlier + 1].1 && all[*earlier].1 + version - all[*earlier].0 <= ms
        });
        index == 0 || in_order.skip(31).any(|first| ms - all[first].1 >= 10_000)
    };
    let timestamp = |index: usize| {
        let (version, _) = all[index];
        let start = (0..=index).rev().find(|index| is_start(*index)).unwrap();
        all[start..=index].iter().map(|(earlier, ms)| ms + version - earlier).max().unwrap()
    };
    (0..all.len()).map(|index| (all[index].0, timestamp(index))).collect()
}

fn write(steps: &[i64]) -> (Log, BTreeMap<i64, i64>) {
    let table = Log::of(&[lines(&[PROTOCOL, &metadata(true)])]);
    let mut times = BTreeMap::from([(0, BEGIN_MS)]);
    for (version, step) in (1i64..).zip(steps) {
        times.insert(version, times[&(version - 1)] + step);
        table.write(&commit_name(version), r#"{"commitInfo":{}}"#);
    }
    for (version, modified_ms) in &times {
        table.touch(&commit_name(*version), *modified_ms as u64);
    }
    (table, times)
}

/// Writes a checkpoint of a version and deletes the commits before another one.
fn clean_up(table: &Log, times: &mut BTreeMap<i64, i64>, checkpoint: i64, first: i64) {
    let top = [r#"{"checkpointMetadata":{"version":1}}"#, PROTOCOL, &metadata(true)].join("\n");
    table.write(&checkpoint_name(checkpoint), &top);
    for version in 0..first {
        times.remove(&version);
        table.remove(&commit_name(version));
    }
}

fn snapshot(table: &Log, at: TimeTravel, known: Option<&Arc<Snapshot>>) -> Result<Arc<Snapshot>> {
    let known = known.map(|snapshot| Base { snapshot, is_cached: true });
    Snapshot::load(&Storage::local(), table.root(), at, known)
}

fn of_range(table: &Log, start: i64) -> Vec<(i64, i64)> {
    let changes = table.changes(ChangeKind::ChangeDataFeed, start, None).unwrap();
    let batches = changes.batches(start).unwrap().map(Result::unwrap);
    batches.map(|batch| (batch.version, batch.timestamp_ms.unwrap())).collect()
}

/// Compares all ways to read the versions from `first` on.
fn check(table: &Log, expected: &BTreeMap<i64, i64>, first: i64, starts: &[usize]) {
    let latest = *expected.last_key_value().unwrap().0;
    let newest = snapshot(table, TimeTravel::Latest, None).unwrap();
    let history =
        History::read(&Storage::local(), table.root(), newest.protocol(), newest.metadata()).unwrap();
    let mut continued = snapshot(table, TimeTravel::Version(first), None).unwrap();
    let readable: Vec<_> = expected.range(first..).map(|(version, ms)| (*version, *ms)).collect();
    for &(version, timestamp_ms) in &readable {
        assert_eq!(history.timestamp_ms(version).unwrap(), Some(timestamp_ms), "{version} of the history");
        let after = readable.iter().find(|(_, ms)| *ms >= timestamp_ms).unwrap().0;
        assert_eq!(history.version_at_or_after(timestamp_ms).unwrap(), after, "{version} by its time");
        let before = readable.iter().rfind(|(_, ms)| *ms <= timestamp_ms).unwrap().0;
        assert_eq!(history.version_at_or_before(timestamp_ms).unwrap(), before, "{version} by its time");
        if version % 16 == first % 16 || version == latest {
            let fresh = snapshot(table, TimeTravel::Version(version), None).unwrap();
            assert_eq!(fresh.timestamp_ms().unwrap(), Some(timestamp_ms), "{version}");
            continued = snapshot(table, TimeTravel::Version(version), Some(&continued)).unwrap();
            assert_eq!(continued.timestamp_ms().unwrap(), Some(timestamp_ms), "{version} continued");
            if timestamp_ms <= expected[&latest] {
                let found = snapshot(table, TimeTravel::Timestamp(timestamp_ms), None).unwrap();
                assert_eq!(found.version(), before, "{version} by its timestamp");
            }
        }
    }
    for start in starts {
        let start = first + (*start as i64) % (latest - first + 1);
        assert_eq!(of_range(table, start), readable[(start - first) as usize..], "from {start} on");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 16))]

    #[test]
    fn a_timestamp_is_one_function_of_the_log(
        steps in steps(),
        starts in proptest::collection::vec(0..1000usize, 6),
        (checkpoint, first) in (0..1000usize, 0..1000usize),
    ) {
        let (table, mut times) = write(&steps);
        check(&table, &naive(&times), 0, &starts);
        let checkpoint = checkpoint % times.len();
        let first = first % (checkpoint + 1);
        clean_up(&table, &mut times, checkpoint as i64, first as i64);
        let earliest = if first == 0 { 0 } else { checkpoint as i64 };
        check(&table, &naive(&times), earliest, &starts);
    }
}

#[test]
fn versions_of_a_copied_log_have_one_timestamp_each() {
    let (table, times) = write(&[vec![0; 110], vec![60_000; 40]].concat());
    let expected = naive(&times);
    assert_eq!((expected[&60], expected[&110]), (BEGIN_MS + 60, BEGIN_MS + 110));
    assert_eq!(expected[&150], times[&150]);
    check(&table, &expected, 0, &[110, 100, 70, 40]);
}

#[test]
fn a_range_in_which_in_commit_timestamps_end_has_the_times_of_its_log() {
    let enabled = |is_enabled: bool| {
        metadata(true).replace(
            r#""delta.enableCh"#,
            &format!(r#""delta.enableInCommitTimestamps":"{is_enabled}","delta.enableCh"#),
        )
    };
    let (table, _) = write(&[0; 80]);
    let protocol =
        r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["inCommitTimestamp"]}}"#;
    let rewrite = |version: i64, content: &[&str]| {
        table.write_commit(version, content);
        table.touch(&commit_name(version), BEGIN_MS as u64);
    };
    rewrite(0, &[r#"{"commitInfo":{"inCommitTimestamp":7}}"#, protocol, &enabled(true)]);
    for version in 1..70 {
        rewrite(version, &[&format!(r#"{{"commitInfo":{{"inCommitTimestamp":{}}}}}"#, 7 + version)]);
    }
    rewrite(70, &[&enabled(false)]);
    assert_eq!(of_range(&table, 68)[..4], [(68, 75), (69, 76), (70, BEGIN_MS + 70), (71, BEGIN_MS + 71)]);
}
