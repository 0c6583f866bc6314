use super::*;
use crate::log_path::LOG_DIRECTORY;

struct Log(tempfile::TempDir);

impl Log {
    fn new(names: &[&str]) -> Self {
        let log = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(log.0.path().join(LOG_DIRECTORY)).unwrap();
        for name in names {
            log.write(name, "x");
        }
        log
    }

    fn root(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(log_file_path(self.root(), &full_name(name)), content).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(log_file_path(self.root(), &full_name(name))).unwrap();
    }

    fn find(&self, version: Option<i64>) -> Result<LogSegment> {
        LogSegment::find(&Storage::local(), self.root(), version, None)
    }

    fn described(&self, version: Option<i64>) -> String {
        describe(&self.find(version).unwrap())
    }
}

/// `3.json` as `00000000000000000003.json`.
fn full_name(name: &str) -> String {
    if name.starts_with('_') {
        return name.to_owned();
    }
    let (version, rest) = name.split_once('.').unwrap();
    let rest = match rest.split_once('.') {
        Some((end, "compacted.json")) => format!("{end:0>20}.compacted.json"),
        _ => rest.to_owned(),
    };
    format!("{version:0>20}.{rest}")
}

fn describe(segment: &LogSegment) -> String {
    let commits: Vec<_> = segment.commits.iter().map(|commit| commit.version.to_string()).collect();
    let checkpoint = segment.checkpoint.as_ref().map_or("-".to_owned(), |checkpoint| {
        format!("{}{:?}x{}", checkpoint.version, checkpoint.kind, checkpoint.files.len())
    });
    format!("{} of [{}] on {checkpoint}", segment.version, commits.join(" "))
}

const UUID: &str = "80a083e8-7026-4e79-81be-64bd76c43a11";

#[test]
fn without_a_checkpoint_all_commits_are_taken_newest_first() {
    let log = Log::new(&["0.json", "1.json", "2.json", "2.crc", "1.crc"]);
    assert_eq!(log.described(None), "2 of [2 1 0] on -");
    assert_eq!(log.described(Some(1)), "1 of [1 0] on -");
    assert_eq!(log.find(None).unwrap().checksum.unwrap().name, full_name("2.crc"));
}

#[test]
fn the_newest_checkpoint_that_is_not_newer_is_the_base() {
    let log =
        Log::new(&["0.json", "1.json", "2.json", "3.json", "1.checkpoint.parquet", "3.checkpoint.parquet"]);
    assert_eq!(log.described(None), "3 of [] on 3Classicx1");
    assert_eq!(log.described(Some(2)), "2 of [2] on 1Classicx1");
    assert_eq!(log.described(Some(0)), "0 of [0] on -");
}

#[test]
fn an_incomplete_or_empty_checkpoint_is_not_there() {
    let log =
        Log::new(&["0.json", "1.json", "1.checkpoint.0000000001.0000000002.parquet", "0.checkpoint.parquet"]);
    assert_eq!(log.described(None), "1 of [1] on 0Classicx1");
    log.write("1.checkpoint.0000000002.0000000002.parquet", "");
    assert_eq!(log.described(None), "1 of [1] on 0Classicx1");
    log.write("1.checkpoint.0000000002.0000000002.parquet", "x");
    assert_eq!(log.described(None), "1 of [] on 1MultiPartx2");
    // A part of another set does not complete it.
    log.remove("1.checkpoint.0000000001.0000000002.parquet");
    log.write("1.checkpoint.0000000001.0000000003.parquet", "x");
    assert_eq!(log.described(None), "1 of [1] on 0Classicx1");
}

#[test]
fn of_several_checkpoints_of_a_version_one_is_chosen_the_same_everywhere() {
    let log = Log::new(&["0.json", &format!("0.checkpoint.{UUID}.json")]);
    assert_eq!(log.described(None), "0 of [] on 0UuidJsonx1");
    log.write(&format!("0.checkpoint.{}.parquet", UUID.replace('8', "0")), "x");
    assert_eq!(log.described(None), "0 of [] on 0UuidParquetx1");
    log.write("0.checkpoint.0000000001.0000000001.parquet", "x");
    assert_eq!(log.described(None), "0 of [] on 0MultiPartx1");
    log.write("0.checkpoint.parquet", "x");
    assert_eq!(log.described(None), "0 of [] on 0Classicx1");
}

#[test]
fn a_hint_of_any_kind_gives_the_same_answer() {
    let log =
        Log::new(&["0.json", "1.json", "2.json", "3.json", "1.checkpoint.parquet", "2.checkpoint.parquet"]);
    let versions = [Some(0), Some(1), Some(2), Some(3), None];
    let expected = versions.map(|version| log.described(version));
    for hint in [
        r#"{"version":2,"size":1}"#,
        r#"{"version":1,"size":1,"parts":7,"checksum":"wrong","checkpointSchema":{"type":"struct"}}"#,
        r#"{"version":3}"#,
        r#"{"version":99}"#,
        r#"{"version":-1}"#,
        r#"{"version":9223372036854775807}"#,
        r#"{"version":"2"}"#,
        r#"{"version":nonsense"#,
        "{}",
        "",
        "\u{0}",
    ] {
        log.write(LAST_CHECKPOINT, hint);
        assert_eq!(versions.map(|version| log.described(version)), expected, "{hint}");
    }
}

#[test]
fn a_hint_to_a_checkpoint_that_is_gone_falls_back_to_a_listing() {
    let log = Log::new(&["1.checkpoint.parquet", "2.json", "3.json"]);
    log.write(LAST_CHECKPOINT, r#"{"version":2}"#);
    assert_eq!(log.described(None), "3 of [3 2] on 1Classicx1");
    for (hint, is_bad) in [(r#"{"version":1}"#, false), (r#"{"version":99}"#, true), ("nonsense", true)] {
        log.write(LAST_CHECKPOINT, hint);
        assert_eq!(log.find(None).unwrap().has_bad_hint, is_bad, "{hint}");
    }
}

#[test]
fn versions_in_a_gap_before_a_later_checkpoint_were_cleaned_up() {
    let log = Log::new(&["1.checkpoint.parquet", "4.json", "5.json", "5.checkpoint.parquet", "6.json"]);
    for requested in [2, 3, 4] {
        let error = log.find(Some(requested)).unwrap_err();
        assert!(matches!(error, Error::VersionNotFound { earliest: 5, latest: 6, .. }), "{error:?}");
    }
    assert_eq!(log.described(Some(1)), "1 of [] on 1Classicx1");
}

#[test]
fn errors_of_cleaned_up_versions_name_available_ones() {
    let log = Log::new(&["4.json", "5.json", "5.checkpoint.parquet", "6.json"]);
    assert_eq!(log.described(None), "6 of [6] on 5Classicx1");
    for requested in [0, 4, 7, i64::MAX] {
        let error = log.find(Some(requested)).unwrap_err();
        assert!(
            matches!(error, Error::VersionNotFound { requested: found, earliest: 5, latest: 6 } if found == requested),
            "{error:?}"
        );
    }
    log.write(LAST_CHECKPOINT, r#"{"version":5}"#);
    assert!(matches!(log.find(Some(7)), Err(Error::VersionNotFound { earliest: 5, latest: 6, .. })));
}

#[test]
fn a_missing_commit_is_corrupt_and_named() {
    let log = Log::new(&["0.json", "1.json", "3.json"]);
    let error = log.find(None).unwrap_err();
    assert!(error.to_string().contains("00000000000000000002.json"), "{error}");
    assert!(matches!(error, Error::CorruptLog { .. }));
    assert_eq!(log.described(Some(1)), "1 of [1 0] on -");
    log.remove("0.json");
    assert!(matches!(log.find(Some(1)), Err(Error::CorruptLog { .. })));
}

#[test]
fn a_log_with_nothing_but_a_hint_is_no_table() {
    for names in [&[][..], &[LAST_CHECKPOINT], &["0.crc", "0.checkpoint.0000000001.0000000002.parquet"]] {
        let log = Log::new(names);
        log.write(LAST_CHECKPOINT, r#"{"version":0}"#);
        assert!(matches!(log.find(None), Err(Error::TableNotFound { .. })));
        assert!(matches!(log.find(Some(3)), Err(Error::TableNotFound { .. })));
    }
    assert!(matches!(
        LogSegment::find(&Storage::local(), "/no/such/table", None, None),
        Err(Error::TableNotFound { .. })
    ));
}

#[test]
fn compaction_files_are_not_listed() {
    let log = Log::new(&["0.json", "1.json", "2.json", "1.2.compacted.json", "0.2.compacted.json"]);
    assert_eq!(log.described(None), "2 of [2 1 0] on -");
    log.remove("1.json");
    assert!(matches!(log.find(None), Err(Error::CorruptLog { .. })));
}

#[test]
fn an_identity_finds_the_same_files_after_later_writes() {
    let log = Log::new(&["0.json", "1.json", "2.json", "3.json", "1.checkpoint.parquet"]);
    let before = log.find(None).unwrap();
    assert_eq!(describe(&before), "3 of [3 2] on 1Classicx1");
    let text = before.identity().to_string();
    assert!(text.starts_with("3@1c1."), "{text}");
    for name in ["4.json", "3.checkpoint.parquet", "2.checkpoint.parquet"] {
        log.write(name, "x");
    }
    log.write(&format!("1.checkpoint.{UUID}.parquet"), "x");
    let identity = before.identity().to_string().parse().unwrap();
    let again = LogSegment::find_identity(&Storage::local(), log.root(), &identity).unwrap();
    assert_eq!(LogSegment { has_newer_checkpoint: false, ..again }, before);
    log.remove("1.checkpoint.parquet");
    let found = LogSegment::find_identity(&Storage::local(), log.root(), &identity);
    assert!(matches!(found, Err(Error::InvalidCursor)));
    for gone in
        ["0.json", "1.json", "2.json", "3.json", "1.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"]
    {
        log.remove(gone);
    }
    log.remove("2.checkpoint.parquet");
    log.remove("3.checkpoint.parquet");
    log.write("4.checkpoint.parquet", "x");
    let found = LogSegment::find_identity(&Storage::local(), log.root(), &identity);
    assert!(matches!(found, Err(Error::VersionNotFound { requested: 3, earliest: 4, latest: 4 })));
}

/// A log whose files were written again with content of equal length.
fn written_again(names: &[&str], again: &str) -> (Log, LogIdentity, LogIdentity) {
    let log = Log::new(names);
    let before = log.find(None).unwrap().identity();
    log.write(again, "y");
    let file = std::fs::File::open(log_file_path(log.root(), &full_name(again))).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_nanos(100)).unwrap();
    let after = log.find(None).unwrap().identity();
    (log, before, after)
}

#[test]
fn a_log_that_was_written_again_in_its_place_has_another_identity_though_all_lengths_are_equal() {
    let parts = ["1.checkpoint.0000000001.0000000002.parquet", "1.checkpoint.0000000002.0000000002.parquet"];
    for (names, again) in [
        (&["0.json", "1.json", "1.checkpoint.parquet"][..], "1.checkpoint.parquet"),
        (&["0.json", "1.json", parts[0], parts[1]], parts[1]),
        (&["0.json", "1.json"], "1.json"),
        (&["0.json", "1.json", "2.json", "1.checkpoint.parquet"], "2.json"),
    ] {
        let (log, before, after) = written_again(names, again);
        assert_ne!(before, after, "{again}");
        let found = |identity| LogSegment::find_identity(&Storage::local(), log.root(), identity);
        assert!(matches!(found(&before), Err(Error::InvalidCursor)), "{again}");
        assert_eq!(found(&after).unwrap().identity(), after);
        // A replica finds the same.
        assert_eq!(log.find(None).unwrap().identity().to_string(), after.to_string());
    }
}

#[test]
fn an_identity_of_an_earlier_release_is_an_invalid_cursor() {
    let with_checkpoint = Log::new(&["0.json", "1.json", "1.checkpoint.parquet"]);
    let commits_alone = Log::new(&["0.json", "1.json"]);
    for (log, text) in [(with_checkpoint, "1@1c1"), (commits_alone, "1")] {
        let found = LogSegment::find_identity(&Storage::local(), log.root(), &text.parse().unwrap());
        assert!(matches!(found, Err(Error::InvalidCursor)), "{text}");
    }
}

#[test]
fn identities_survive_their_text_and_other_texts_are_refused() {
    // Earlier releases wrote identities without a digest.
    let (uuid, json) = (format!("12@10u{UUID}"), format!("1@0j{UUID}"));
    for text in
        ["0", "0~0123456789abcdef", "12@10c4096", "12@10c4096.0123456789abcdef", &uuid, &json, "12@5m2.8192"]
    {
        assert_eq!(text.parse::<LogIdentity>().unwrap().to_string(), text);
    }
    for text in ["", "-1", "x", "1@", "1@c3", "01", "1+2-3", "1 ", "99999999999999999999"] {
        assert!(matches!(text.parse::<LogIdentity>(), Err(Error::InvalidCursor)), "{text}");
    }
}

#[test]
fn a_known_segment_is_continued_and_keeps_its_checkpoint() {
    let log = Log::new(&["0.json", "1.json", "1.checkpoint.parquet", "2.json"]);
    let known = log.find(None).unwrap();
    let next = |known| LogSegment::find(&Storage::local(), log.root(), None, Some(known));
    assert_eq!(next(&known).unwrap(), known);
    for name in ["3.json", "4.json", "3.checkpoint.parquet", "4.crc"] {
        log.write(name, "x");
    }
    let advanced = next(&known).unwrap();
    assert_eq!(describe(&advanced), "4 of [4 3 2] on 1Classicx1");
    assert!(advanced.has_newer_checkpoint && !known.has_newer_checkpoint);
    assert_eq!(advanced.checksum.as_ref().unwrap().name, full_name("4.crc"));
    let versions: Vec<_> = advanced.modified_ms.iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, [0, 1, 2, 3, 4]);
    let older = LogSegment::find(&Storage::local(), log.root(), Some(1), Some(&advanced)).unwrap();
    assert_eq!(describe(&older), "1 of [] on 1Classicx1");
}

#[test]
fn a_recreated_table_is_searched_from_the_start() {
    let log = Log::new(&["0.json", "1.json"]);
    let known = log.find(None).unwrap();
    log.write("1.json", "another commit");
    log.write("0.checkpoint.parquet", "x");
    let found = LogSegment::find(&Storage::local(), log.root(), None, Some(&known)).unwrap();
    assert_eq!(describe(&found), "1 of [1] on 0Classicx1");
    log.remove("1.json");
    log.remove("0.json");
    let found = LogSegment::find(&Storage::local(), log.root(), None, Some(&known)).unwrap();
    assert_eq!(describe(&found), "0 of [] on 0Classicx1");
}

#[test]
fn versions_at_the_ends_of_their_range_are_versions() {
    let last = i64::MAX.to_string();
    let log = Log::new(&[&format!("{last}.checkpoint.parquet"), &format!("{last}.json")]);
    assert_eq!(log.described(None), format!("{last} of [] on {last}Classicx1"));
    for requested in [i64::MIN, -1, 0] {
        assert!(matches!(log.find(Some(requested)), Err(Error::VersionNotFound { .. })));
    }
    let known = log.find(None).unwrap();
    assert_eq!(LogSegment::find(&Storage::local(), log.root(), None, Some(&known)).unwrap(), known);
    log.remove(&format!("{last}.checkpoint.parquet"));
    for requested in [None, Some(-1), Some(i64::MAX)] {
        assert!(matches!(log.find(requested), Err(Error::CorruptLog { .. })));
    }
}

#[test]
fn the_timestamps_of_a_log_with_many_commits_a_second_need_a_part_of_it() {
    for step_ms in [20, 50, 300, 1000] {
        let listed: Vec<_> =
            (90_000..91_024).map(|version| (version, 1_000_000 + version * step_ms)).collect();
        let adjusted: Vec<_> = times::adjusted(&listed, false).collect();
        assert_eq!(adjusted, listed[listed.len() - adjusted.len()..], "{step_ms}");
        assert!(adjusted.len() >= 512, "{step_ms}: {}", adjusted.len());
    }
}
