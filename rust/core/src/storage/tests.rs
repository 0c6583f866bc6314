use std::path::{Path, PathBuf};

use super::*;

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_local_listing_starts_at_the_given_name_and_is_in_order() {
    let root = tempfile::tempdir().unwrap();
    let log = root.path().join(LOG_DIRECTORY);
    std::fs::create_dir_all(log.join("00000000000000000002.crc")).unwrap();
    for name in [
        "00000000000000000010.json",
        "_last_checkpoint",
        "00000000000000000009.json",
        "00000000000000000001.crc",
    ] {
        std::fs::write(log.join(name), name).unwrap();
    }
    let listed = Storage::local().list_log(&text(root.path()), &log_path::first_name_of(2)).unwrap();
    let names: Vec<_> = listed.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["00000000000000000009.json", "00000000000000000010.json", "_last_checkpoint"]);
    assert_eq!(listed[0].size, 25);
    assert!(listed[0].modified_ms > 1_600_000_000_000);
}

#[test]
fn a_directory_that_is_dropped_while_it_is_listed_shows_all_that_it_has_or_nothing() {
    const COUNT: usize = 40;
    let place = tempfile::tempdir().unwrap();
    let (root, aside) = (place.path().join("table"), place.path().join("aside"));
    let log = root.join(LOG_DIRECTORY);
    let check = |make: &dyn Fn(usize), list: &dyn Fn() -> usize| {
        for _ in 0..200 {
            (0..COUNT).for_each(make);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    std::fs::rename(&root, &aside).unwrap();
                    std::fs::remove_dir_all(&aside).unwrap();
                });
                while let listed @ 1.. = list() {
                    assert_eq!(listed, COUNT);
                }
            });
        }
    };
    let make_directory = |number: usize| std::fs::create_dir_all(root.join(number.to_string())).unwrap();
    check(&make_directory, &|| Storage::local().list_directories(&text(&root)).unwrap().names.len());
    let make_commit = |version: usize| {
        std::fs::create_dir_all(&log).unwrap();
        std::fs::write(log.join(format!("{version:020}.json")), "{}").unwrap();
    };
    check(&make_commit, &|| Storage::local().list_log(&text(&root), "").unwrap().len());
}

#[test]
fn a_local_file_that_was_replaced_by_one_of_equal_length_since_its_listing_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    let log = root.path().join(LOG_DIRECTORY);
    std::fs::create_dir_all(&log).unwrap();
    let path = log.join("00000000000000000001.checkpoint.parquet");
    std::fs::write(&path, "one").unwrap();
    let list = || Storage::local().list_log(&text(root.path()), "").unwrap().remove(0);
    let open = |entry: &LogFileEntry| Storage::local().open_listed(&text(&path), entry);
    let read = |entry: &LogFileEntry| Storage::local().read_log_file(&text(root.path()), entry);
    let first = list();
    assert_eq!(open(&first).unwrap().size(), 3);
    let file = std::fs::File::create(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"two").unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_000_000_001)).unwrap();
    let second = list();
    assert_eq!((second.size, second.modified_ms), (3, 1000));
    assert_ne!(second.entity_tag, first.entity_tag);
    assert!(matches!(open(&first), Err(Error::FileReplaced { .. })));
    assert!(matches!(read(&first), Err(Error::FileReplaced { .. })));
    assert_eq!((open(&second).unwrap().size(), &*read(&second).unwrap()), (3, &b"two"[..]));
    // A directory that is made again in place may have equal times and sizes.
    let copy = log.join("copy");
    std::fs::write(&copy, "new").unwrap();
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    let third = list();
    assert_eq!((third.size, &third.entity_tag), (second.size, &second.entity_tag));
    assert_ne!(third, second);
    assert!(matches!(open(&second), Err(Error::FileReplaced { .. })));
    assert!(matches!(read(&second), Err(Error::FileReplaced { .. })));
    assert_eq!(read(&third).unwrap(), b"new"[..]);
    // Of a digest that is not known, the time counts.
    assert!(open(&LogFileEntry { identity: 0, ..second }).is_ok());
}

/// A log file with the content `one`, opened as it is listed.
fn opened_as_listed(root: &Path) -> (PathBuf, StoredFile) {
    let log = root.join(LOG_DIRECTORY);
    std::fs::create_dir_all(&log).unwrap();
    let path = log.join("00000000000000000001.checkpoint.parquet");
    std::fs::write(&path, "one").unwrap();
    let entry = Storage::local().list_log(&text(root), "").unwrap().remove(0);
    let open = Storage::local().open_listed(&text(&path), &entry).unwrap();
    (path, open)
}

#[test]
fn a_local_file_that_changes_while_it_is_read_is_not_the_listed_one() {
    let root = tempfile::tempdir().unwrap();
    let (path, open) = opened_as_listed(root.path());
    assert_eq!(open.read_range(0, 3).unwrap(), b"one"[..]);
    std::fs::write(&path, "tw").unwrap();
    assert!(matches!(open.read_range(0, 3), Err(Error::FileReplaced { .. })));
    std::fs::write(&path, "two").unwrap();
    assert!(matches!(open.read_range(0, 3), Err(Error::FileReplaced { .. })));
}

#[test]
fn an_open_file_is_read_on_after_cleanup_has_deleted_it() {
    let root = tempfile::tempdir().unwrap();
    let (path, open) = opened_as_listed(root.path());
    assert_eq!(open.read_range(0, 1).unwrap(), b"o"[..]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(open.read_range(0, 3).unwrap(), b"one"[..]);
}

#[test]
fn a_commit_behind_a_link_that_leads_nowhere_is_listed_and_not_read() {
    let root = tempfile::tempdir().unwrap();
    let log = root.path().join(LOG_DIRECTORY);
    std::fs::create_dir_all(&log).unwrap();
    let (absent, endless) = (log_path::commit_name(1), log_path::commit_name(2));
    let checksum = endless.replace("json", "crc");
    for (name, target) in
        [(&*absent, "nowhere"), (&endless, &endless), ("a", "nowhere"), ("b", "b"), (&checksum, &checksum)]
    {
        std::os::unix::fs::symlink(target, log.join(name)).unwrap();
    }
    let storage = Storage::local();
    let listed = storage.list_log(&text(root.path()), "").unwrap();
    assert_eq!(listed.iter().map(|entry| &*entry.name).collect::<Vec<_>>(), [&absent, &endless]);
    let paths = [absent, endless].map(|name| log_file_path(&text(root.path()), &name));
    let found = storage.properties(&paths).unwrap();
    assert!(
        listed
            .iter()
            .zip(&found)
            .all(|(entry, found)| { found.as_ref().is_some_and(|found| found.matches(entry) == Some(true)) })
    );
    let reads = storage.read_log_files(&text(root.path()), &listed.iter().collect::<Vec<_>>());
    assert!(
        matches!(&*reads, [Err(Error::FileNotFound { .. }), Err(Error::StorageUnavailable { .. })]),
        "{reads:?}"
    );
}

#[test]
fn a_file_that_is_not_listed_is_read_if_it_is_small() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("hint");
    let file = std::fs::File::create(&path).unwrap();
    for (size, is_read) in [(MAX_UNLISTED_BYTES, true), (MAX_UNLISTED_BYTES + 1, false)] {
        file.set_len(size).unwrap();
        match Storage::local().read(&text(&path)) {
            Ok(content) => assert!(is_read && content.len() as u64 == size),
            Err(error) => assert!(!is_read && matches!(error, Error::CorruptLog { .. }), "{error:?}"),
        }
    }
}

#[test]
fn a_directory_that_is_not_there_is_empty() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(Storage::local().list_log(&text(root.path()), "").unwrap(), []);
    assert_eq!(Storage::local().list_log(&text(&root.path().join("nowhere")), "").unwrap(), []);
}

#[test]
fn only_the_directories_directly_below_a_local_root_are_listed() {
    let root = tempfile::tempdir().unwrap();
    for name in ["orders/_delta_log", "customers", "\u{6771} 1=%"] {
        std::fs::create_dir_all(root.path().join(name)).unwrap();
    }
    std::fs::write(root.path().join("file"), "").unwrap();
    std::os::unix::fs::symlink(root.path().join("orders"), root.path().join("link")).unwrap();
    // Neither is a directory, but of the second one nobody can tell.
    std::os::unix::fs::symlink("nowhere", root.path().join("absent")).unwrap();
    std::os::unix::fs::symlink("unknown", root.path().join("unknown")).unwrap();
    let list = |path: &Path| Storage::local().list_directories(&text(path)).unwrap();
    let found = list(root.path());
    assert_eq!(found.names, ["customers", "link", "orders", "unknown", "\u{6771} 1=%"]);
    assert!(!found.is_truncated);
    assert!(list(&root.path().join("nowhere")).names.is_empty());
    assert!(list(&root.path().join("file")).names.is_empty());
}

#[test]
fn a_file_that_is_not_there_is_named_without_its_directory() {
    let root = tempfile::tempdir().unwrap();
    let missing = text(&root.path().join("secret-place").join("00000000000000000000.json"));
    let here = text(&root.path().join("here"));
    std::fs::write(&here, "bytes").unwrap();
    let storage = Storage::local();
    let entry = LogFileEntry {
        name: "00000000000000000000.json".into(),
        size: 3,
        modified_ms: 0,
        entity_tag: None,
        identity: 0,
    };
    let many = storage.read_log_files(&text(&root.path().join("secret-place")), &[&entry]).remove(0);
    for error in [
        storage.read(&missing).unwrap_err(),
        many.unwrap_err(),
        storage.open_listed(&missing, &entry).unwrap_err(),
        storage.open_stated(&missing, 3).unwrap_err(),
    ] {
        assert!(matches!(error, Error::FileNotFound { .. }), "{error:?}");
        assert_eq!(error.to_string(), "00000000000000000000.json is missing from the table's storage");
    }
    assert_eq!(storage.read(&here).unwrap(), b"bytes"[..]);
    assert_eq!(storage.open_stated(&here, 5).unwrap().size(), 5);
    assert!(matches!(storage.open_stated(&here, 4), Err(Error::CorruptLog { .. })));
}

#[test]
fn other_files_than_regular_ones_are_absent() {
    let root = tempfile::tempdir().unwrap();
    let pipe = text(&root.path().join("pipe"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe, text(root.path())] {
        assert!(matches!(Storage::local().read(&path), Err(Error::FileNotFound { .. })));
        assert!(matches!(Storage::local().open_stated(&path, 0), Err(Error::FileNotFound { .. })));
    }
}

#[test]
fn debug_shows_no_secret() {
    let storage = Storage::s3(&S3Options {
        credentials: Some(S3Credentials {
            access_key_id: "AKIAVISIBLE".into(),
            secret_access_key: "hush-secret".into(),
            session_token: Some("hush-token".into()),
        }),
        ..S3Options::new("bucket", "us-east-1")
    })
    .unwrap();
    let shown = format!("{storage:?}");
    assert!(shown.contains("bucket") && !shown.contains("hush"), "{shown}");
}

#[test]
fn options_that_cannot_work_are_refused_by_name() {
    let options = S3Options { endpoint: Some("not a url".into()), ..S3Options::new("bucket", "us-east-1") };
    assert!(matches!(Storage::s3(&options), Err(Error::InvalidArgument(_))));
    assert!(matches!(Storage::s3(&S3Options::new("", "us-east-1")), Err(Error::InvalidArgument(_))));
}

fn of_other_clouds() -> [Storage; 2] {
    // Nothing listens there: a request would be StorageUnavailable.
    let endpoint = Some("http://127.0.0.1:1".to_owned());
    [
        Storage::azure(&AzureOptions {
            endpoint: endpoint.clone(),
            ..AzureOptions::new("account1", "container-1")
        })
        .unwrap(),
        Storage::gcs(&GcsOptions { endpoint, ..GcsOptions::new("bu_cket.x") }).unwrap(),
    ]
}

#[test]
fn requests_are_denied_until_credentials_are_set() {
    for storage in of_other_clouds() {
        for error in [
            storage.read("t/_delta_log/00000000000000000000.json").unwrap_err(),
            storage.list_log("t", "").unwrap_err(),
            storage.list_directories("t").unwrap_err(),
            storage.properties(&["a".to_owned(), "b".to_owned()]).unwrap_err(),
        ] {
            assert!(matches!(error, Error::StorageDenied { .. }), "{error:?}");
        }
    }
}

#[test]
fn credentials_of_another_kind_of_store_are_refused() {
    let keys =
        S3Credentials { access_key_id: "id".into(), secret_access_key: "hush".into(), session_token: None };
    let [azure, gcs] = of_other_clouds();
    let s3 = Storage::s3(&S3Options { credentials: Some(keys.clone()), ..S3Options::new("b", "r") }).unwrap();
    for result in [
        azure.replace_credentials(&keys),
        gcs.replace_credentials(&keys),
        gcs.replace_account_key("aHVzaA=="),
        s3.replace_account_key("aHVzaA=="),
        s3.replace_bearer_token("hush"),
        azure.replace_account_key("hush, this is no Base64"),
        azure.replace_bearer_token("hush\r\nx: y"),
        gcs.replace_bearer_token(""),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
    azure.replace_account_key("aHVzaA==").unwrap();
    azure.replace_bearer_token("hush-token").unwrap();
    gcs.replace_bearer_token("hush-token").unwrap();
    assert_eq!(format!("{azure:?} {gcs:?}"), r#"Storage::azure("container-1") Storage::gcs("bu_cket.x")"#);
}

#[test]
fn addresses_of_no_container_or_bucket_are_refused() {
    let azure = AzureOptions::new("account1", "container-1");
    for options in [
        AzureOptions { account: "Account".into(), ..azure.clone() },
        AzureOptions { account: "evil.example/x".into(), ..azure.clone() },
        AzureOptions { container: "a/b/c".into(), ..azure.clone() },
        AzureOptions { container: "$".into(), ..azure.clone() },
        AzureOptions { endpoint: Some("ftp://store".into()), ..azure.clone() },
        AzureOptions { endpoint: Some("https://store/?sig=x".into()), ..azure },
    ] {
        assert!(matches!(Storage::azure(&options), Err(Error::InvalidArgument(_))), "{options:?}");
    }
    let gcs = GcsOptions::new("bucket");
    for options in [
        GcsOptions { bucket: String::new(), ..gcs.clone() },
        GcsOptions { bucket: "a/b".into(), ..gcs.clone() },
        GcsOptions { endpoint: Some("not a url".into()), ..gcs.clone() },
        GcsOptions { user_project: Some("a\r\nb".into()), ..gcs },
    ] {
        assert!(matches!(Storage::gcs(&options), Err(Error::InvalidArgument(_))), "{options:?}");
    }
}
