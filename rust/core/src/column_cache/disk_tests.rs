use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use ::parquet::file::properties::WriterProperties;
use proptest::prelude::*;

use super::columns_file::{MappedFile, OpenError};
use super::*;
use crate::actions::{FileBatch, SourceId};
use crate::checkpoint::tests::writer::{Log, parquet, schema};
use crate::checkpoint::tests::{add, rows_of as checkpoint_rows};
use crate::checkpoint::{Checkpoint, Needs, ReadOptions};
use crate::file_id::IdScheme;
use crate::partition::PartitionInterner;
use crate::storage::Storage;

const CHILD_DIRECTORY: &str = "DELTALOG_TEST_COLUMNS_DIRECTORY";

fn key(number: u8) -> ColumnsKey {
    ColumnsKey { table: u64::from(number), digest: [number; 32] }
}

/// Batches of sixteen files with values in every column.
fn batches(files: usize) -> Vec<Arc<CachedBatch>> {
    let log = Log::new();
    let mut rows = checkpoint_rows(files);
    for (number, row) in rows[2..].iter_mut().enumerate() {
        if number.is_multiple_of(3) {
            row["add"]["tags"] =
                serde_json::json!({"number": number.to_string(), "a long name of a tag": null});
            row["add"]["baseRowId"] = serde_json::Value::Null;
        }
        row["add"]["stats"] = format!("{{\"numRecords\":{number},\"min\":\"é\\n{number}\"}}").into();
    }
    let small_groups = WriterProperties::builder().set_max_row_group_row_count(Some(16)).build();
    let checkpoint = log.classic(&parquet(&schema(), &rows, small_groups));
    let checkpoint = Checkpoint::open(&Storage::local(), log.root(), &checkpoint).unwrap();
    let needs = Needs { stats: true, delta_fields: true };
    let options = ReadOptions { needs, first_source: SourceId(1 << 31), ..ReadOptions::default() };
    let batches = checkpoint.batches(PartitionInterner::new(&["day", "city"]), options);
    let cached = batches.map(|batch| {
        let mut batch = batch.unwrap();
        batch.prepare_for_cache();
        Arc::new(CachedBatch::cached(Arc::new(batch), &Arc::new(StatsBudget::new(usize::MAX))))
    });
    cached.collect()
}

fn rows_of(batch: &FileBatch) -> Rows {
    (0..batch.len()).map(|file| add(batch, file)).collect()
}

fn all_rows(columns: &CachedColumns) -> Result<Rows, DamagedBatch> {
    let mut rows = Vec::new();
    for index in 0..columns.len() {
        rows.extend(rows_of(&columns.batch(index)?.unwrap().files));
    }
    Ok(rows)
}

struct Disk {
    directory: tempfile::TempDir,
    cache: Arc<ColumnCache>,
}

impl Disk {
    fn new(bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = with_disk(&directory.path().join("columns"), bytes);
        Self { directory, cache }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("columns")
    }

    fn file(&self, number: u8) -> PathBuf {
        self.path().join(format!("{}.columns", key(number).file_name()))
    }

    fn counts(&self) -> DiskCounts {
        self.cache.disk().unwrap().counts()
    }

    fn write(&self, number: u8, batches: &[Arc<CachedBatch>]) {
        write(&self.cache, number, None, batches);
    }

    /// Another process with the same directory.
    fn reopened(&self) -> Arc<ColumnCache> {
        with_disk(&self.path(), 1 << 30)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn pushed(mut builder: ColumnsBuilder, batches: &[Arc<CachedBatch>]) -> ColumnsBuilder {
    assert!(batches.iter().all(|batch| builder.push(batch, true) == Pushed::Yes));
    builder
}

fn write(cache: &Arc<ColumnCache>, number: u8, files: Option<u64>, batches: &[Arc<CachedBatch>]) {
    pushed(cache.claim_build(&key(number), files).unwrap(), batches).finish();
    cache.disk().unwrap().wait_until_written();
}

type Rows = Vec<(u32, u32, serde_json::Value)>;

/// The content of a file that is large enough to be mapped, and its rows.
fn mapped_content() -> &'static (Vec<u8>, Rows) {
    static CONTENT: OnceLock<(Vec<u8>, Rows)> = OnceLock::new();
    CONTENT.get_or_init(|| {
        let disk = Disk::new(1 << 30);
        disk.write(1, &batches(1200));
        let rows = all_rows(&disk.cache.get(&key(1)).unwrap()).unwrap();
        let content = std::fs::read(disk.file(1)).unwrap();
        assert!(content.len() > 256 << 10);
        (content, rows)
    })
}

fn write_private(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn with_disk(path: &Path, bytes: u64) -> Arc<ColumnCache> {
    let cache = Arc::new(ColumnCache::new(1 << 30));
    cache.set_disk(Some(Arc::new(DiskCache::open(path, bytes).unwrap())));
    cache
}

#[test]
fn columns_of_a_file_equal_those_that_were_written() {
    // The second file is large enough to be mapped.
    for files in [70, 3000] {
        let disk = Disk::new(1 << 30);
        let batches = batches(files);
        disk.write(1, &batches);
        let expected: Vec<_> = batches.iter().flat_map(|batch| rows_of(&batch.files)).collect();
        assert_eq!(expected.len(), files);
        for cache in [Arc::clone(&disk.cache), disk.reopened()] {
            let columns = cache.get(&key(1)).unwrap();
            assert!(columns.is_mapped());
            assert_eq!(all_rows(&columns).unwrap(), expected);
            assert_eq!(columns.files(), files as u64);
            let size_bytes = (0..files as u64).map(|number| number * 10).sum::<u64>();
            assert_eq!(columns.known_totals().unwrap().size_bytes, size_bytes);
            for (index, written) in batches.iter().enumerate() {
                let read = columns.batch(index).unwrap().unwrap();
                for scheme in [IdScheme::Parquet, IdScheme::Delta] {
                    let count = read.files.len();
                    let ids = |batch: &CachedBatch| batch.ids(scheme, count).unwrap().bytes().to_vec();
                    assert_eq!(ids(&read), ids(written));
                }
                let first = (written.files.source, written.files.row[0]);
                assert_eq!(columns.positions(index).unwrap()[0], first);
            }
            assert!(columns.bytes() < 120 * files + (72 << 10), "columns of a file count little");
            assert!(columns.content_bytes() > 100 * files);
        }
        assert_eq!(disk.counts().written, 1);
    }
}

#[test]
fn a_file_and_its_directory_are_private() {
    let disk = Disk::new(1 << 30);
    disk.write(1, &batches(20));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&disk.path()), mode(&disk.file(1))), (0o700, 0o600));
    for mode in [0o640, 0o604, 0o660] {
        disk.write(2, &batches(20));
        std::fs::set_permissions(disk.file(2), std::fs::Permissions::from_mode(mode)).unwrap();
        let other = disk.reopened();
        assert!(other.get(&key(2)).is_none());
        assert_eq!(other.disk().unwrap().counts().invalid, 1);
        disk.cache.forget_columns(2);
    }
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (mode, is_accepted) in [(0o700, true), (0o755, true), (0o770, false), (0o707, false)] {
        let path = directory.path().join(mode.to_string());
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(DiskCache::open(&path, 1).is_ok(), is_accepted, "{mode:o}");
    }
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    assert!(DiskCache::open(&link, 1).is_err());
    std::fs::write(directory.path().join("file"), "").unwrap();
    assert!(DiskCache::open(&directory.path().join("file"), 1).is_err());
}

#[test]
fn a_link_in_the_place_of_a_file_is_never_followed() {
    let disk = Disk::new(1 << 30);
    disk.write(1, &batches(20));
    let outside = disk.directory.path().join("outside");
    std::fs::rename(disk.file(1), &outside).unwrap();
    let content = std::fs::read(&outside).unwrap();
    symlink(&outside, disk.file(1)).unwrap();
    symlink(&outside, disk.path().join(format!("{}.partial", key(2).file_name()))).unwrap();
    let other = disk.reopened();
    assert!(other.get(&key(1)).is_none());
    // A build falls back to memory.
    let mut builder = other.claim_build(&key(2), None).unwrap();
    assert_eq!(builder.push(&batches(5)[0], false), Pushed::Yes);
    builder.finish();
    assert!(other.get(&key(2)).is_some_and(|columns| !columns.is_mapped()));
    assert_eq!(std::fs::read(&outside).unwrap(), content);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 16))]
    #[test]
    fn a_flipped_bit_anywhere_is_a_miss_or_in_the_padding(position in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let (mut content, expected) = mapped_content().clone();
        let position = position.index(content.len());
        content[position] ^= 1 << bit;
        let disk = Disk::new(1 << 30);
        write_private(&disk.file(1), &content);
        let other = disk.reopened();
        match other.get(&key(1)) {
            None => prop_assert_eq!(other.disk().unwrap().counts().invalid, 1),
            Some(columns) => {
                if let Ok(rows) = all_rows(&columns) {
                    prop_assert_eq!(rows, expected);
                } else {
                    other.discard(&key(1), &columns);
                    prop_assert_eq!(other.disk().unwrap().counts().invalid, 1);
                    prop_assert!(!disk.file(1).exists() && other.get(&key(1)).is_none());
                }
            }
        }
    }

    #[test]
    fn a_torn_file_is_a_miss(length in any::<prop::sample::Index>()) {
        let (content, _) = mapped_content();
        let disk = Disk::new(1 << 30);
        write_private(&disk.file(1), &content[..length.index(content.len())]);
        let other = disk.reopened();
        prop_assert!(other.get(&key(1)).is_none());
        prop_assert_eq!(other.disk().unwrap().counts().invalid, 1);
        prop_assert!(!disk.file(1).exists());
    }
}

#[test]
fn a_file_that_the_system_refuses_to_read_is_not_an_invalid_one() {
    let disk = Disk::new(1 << 30);
    disk.write(1, &batches(70));
    let open = |read: bool| std::fs::OpenOptions::new().read(read).write(true).open(disk.file(1)).unwrap();
    let opened = |file: &std::fs::File| MappedFile::open(file, &key(1).digest).map(|_| ());
    assert!(matches!(opened(&open(false)), Err(OpenError::Unreadable)));
    let readable = open(true);
    assert!(matches!(opened(&readable), Ok(())));
    for length in [readable.metadata().unwrap().len() - 1, 10, 0] {
        readable.set_len(length).unwrap();
        assert!(matches!(opened(&readable), Err(OpenError::Invalid)), "{length}");
    }
}

#[test]
fn a_file_of_another_format_version_or_of_another_key_is_a_miss() {
    let disk = Disk::new(1 << 30);
    disk.write(1, &batches(20));
    let content = std::fs::read(disk.file(1)).unwrap();
    let misses = |number: u8, content: &[u8]| {
        write_private(&disk.file(number), content);
        let other = disk.reopened();
        assert!(other.get(&key(number)).is_none());
        assert_eq!(other.disk().unwrap().counts().invalid, 1);
        assert!(!disk.file(number).exists(), "it is removed");
    };
    misses(2, &content);
    let mut older = content;
    older[8..12].copy_from_slice(&0_u32.to_le_bytes());
    // Valid in all else.
    let crc = crc32fast::hash(&older[..124]).to_le_bytes();
    older[124..128].copy_from_slice(&crc);
    misses(1, &older);
    misses(1, b"");
}

#[test]
fn the_least_recently_used_files_leave_for_others() {
    let disk = Disk::new(1 << 30);
    let batches = batches(500);
    disk.write(1, &batches);
    let bytes = std::fs::metadata(disk.file(1)).unwrap().len();
    let cache = with_disk(&disk.path(), 3 * bytes + bytes / 2);
    let hour = Duration::from_secs(3600);
    for number in 1..4 {
        if number > 1 {
            write(&cache, number, Some(500), &batches);
        }
        let file = std::fs::File::options().write(true).open(disk.file(number)).unwrap();
        file.set_modified(SystemTime::now() - hour * (10 - u32::from(number))).unwrap();
    }
    // A use makes the oldest one the newest.
    assert!(disk.reopened().get(&key(1)).is_some());
    write(&cache, 4, Some(500), &batches);
    assert!(disk.file(1).exists() && !disk.file(2).exists());
    assert!(disk.file(3).exists() && disk.file(4).exists());
    assert!(cache.disk().unwrap().used_bytes() <= 3 * bytes + bytes / 2);
    assert_eq!(cache.disk().unwrap().counts().evicted, 1);
    // The mapping of a file that another process has evicted is dropped at its next use.
    let columns = cache.get(&key(3)).unwrap();
    std::fs::remove_file(disk.file(3)).unwrap();
    let Some(long_ago) = Instant::now().checked_sub(hour) else { return };
    *columns.touched_at().unwrap().lock().unwrap() = long_ago;
    assert!(cache.get(&key(3)).is_some());
    cache.disk().unwrap().wait_until_written();
    assert!(cache.get(&key(3)).is_none());
}

#[test]
fn columns_that_exceed_the_bound_are_kept_in_memory() {
    let disk = Disk::new(1 << 30);
    disk.write(1, &batches(20));
    let bytes = std::fs::metadata(disk.file(1)).unwrap().len();
    let cache = with_disk(&disk.path(), 2 * bytes);
    for (number, files) in [(2, Some(2000)), (3, None)] {
        write(&cache, number, files, &batches(2000));
        assert!(cache.get(&key(number)).is_some_and(|columns| !columns.is_mapped()));
        assert!(cache.disk().unwrap().used_bytes() <= 2 * bytes);
        if files.is_some() {
            assert!(disk.file(1).exists(), "others leave only for columns that may fit");
        }
        assert!(!disk.file(number).exists());
    }
    assert_eq!(cache.disk().unwrap().counts().too_large, 2);
}

#[test]
fn of_two_processes_one_writes_a_file() {
    let disk = Disk::new(1 << 30);
    let other = disk.reopened();
    let batches = batches(20);
    let first = disk.cache.claim_build(&key(1), None).unwrap();
    assert!(other.claim_build(&key(1), None).is_none());
    pushed(first, &batches).finish();
    disk.cache.disk().unwrap().wait_until_written();
    let columns = other.get(&key(1)).unwrap();
    // Both may use it while it is replaced.
    disk.cache.forget_columns(1);
    disk.write(1, &batches);
    assert_eq!(all_rows(&columns).unwrap(), all_rows(&disk.cache.get(&key(1)).unwrap()).unwrap());
}

#[test]
fn a_build_that_is_dropped_leaves_no_file() {
    let disk = Disk::new(1 << 30);
    let mut builder = disk.cache.claim_build(&key(1), None).unwrap();
    assert_eq!(builder.push(&batches(20)[0], true), Pushed::Yes);
    drop(builder);
    disk.cache.disk().unwrap().wait_until_written();
    assert_eq!(disk.names(), ["lock"]);
    assert!(disk.cache.claim_build(&key(1), None).is_some());
}

#[test]
fn columns_are_built_again_after_their_directory_was_left_during_a_build() {
    let disk = Disk::new(1 << 30);
    let builder = disk.cache.claim_build(&key(1), None).unwrap();
    // They are in the file only.
    disk.cache.set_budget(1);
    let builder = pushed(builder, &batches(40));
    disk.cache.set_disk(None);
    builder.finish();
    disk.cache.set_budget(1 << 30);
    assert!(disk.cache.claim_build(&key(1), None).is_some());
    assert_eq!(disk.names(), ["lock"]);
}

#[test]
fn a_build_in_a_file_that_fails_ends_no_later_build_of_its_columns() {
    let disk = Disk::new(1 << 30);
    let batches = batches(40);
    let build = || pushed(disk.cache.claim_build(&key(1), None).unwrap(), &batches);
    let first = build();
    disk.cache.set_disk(None);
    disk.cache.forget_columns(1);
    let second = build();
    first.finish();
    second.finish();
    assert!(disk.cache.has(&key(1)));
}

#[test]
fn an_answer_does_not_wait_for_a_writer_that_is_behind() {
    let disk = Disk::new(1 << 30);
    let batches = batches(500);
    let mut builder = disk.cache.claim_build(&key(1), None).unwrap();
    let mut pushed = 0_usize;
    while builder.push(&batches[pushed % batches.len()], false) == Pushed::Yes {
        pushed += 1;
        assert!(pushed < 1_000_000);
        if pushed > 100_000 {
            // The writer is faster than this thread.
            return;
        }
    }
    assert_eq!(builder.push(&batches[0], true), Pushed::Yes);
}

/// Writes without end; only in the process that the next test starts.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD_DIRECTORY) else { return };
    let cache = with_disk(Path::new(&path), 1 << 30);
    let batches = batches(500);
    let mut builder = cache.claim_build(&key(1), None).unwrap();
    loop {
        builder = pushed(builder, &batches);
    }
}

#[test]
fn a_process_that_is_killed_while_it_writes_leaves_nothing_that_is_used() {
    let disk = Disk::new(1 << 30);
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "column_cache::disk_tests::child_that_writes_until_it_is_killed"])
        .env(CHILD_DIRECTORY, disk.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let partial = disk.path().join(format!("{}.partial", key(1).file_name()));
    while std::fs::metadata(&partial).map_or(0, |metadata| metadata.len()) < 1 << 20 {
        std::thread::sleep(Duration::from_millis(5));
        assert!(child.try_wait().unwrap().is_none());
    }
    assert!(disk.cache.claim_build(&key(1), None).is_none(), "the other process writes");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(disk.cache.get(&key(1)).is_none());
    drop(disk.reopened());
    assert_eq!(disk.names(), ["lock"], "the next start removes it");
    disk.write(1, &batches(20));
    assert!(disk.reopened().get(&key(1)).is_some());
}
