//! Storage against a real S3 server that verifies signatures (versitygw).
//!
//! Runs where `DELTA_GATEWAY_VERSITYGW` names its binary, or where the test command has installed it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use deltalog::Error;
use deltalog::snapshot::{Base, Snapshot, TimeTravel};
use deltalog::storage::{LogFileEntry, RequestTimes, S3Credentials, S3Options, Storage};
use object_store::ObjectStoreExt;
use object_store::aws::AmazonS3Builder;

const BUCKET: &str = "bucket";

struct Server {
    process: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Server {
    /// Starts the server. Prints the reason and returns `None` if this machine has none.
    fn start() -> Option<Self> {
        let Some(binary) = binary() else {
            eprintln!("skipped: DELTA_GATEWAY_VERSITYGW names no S3 server");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(BUCKET)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(binary)
            .args([
                "--access",
                "AK",
                "--secret",
                "SK",
                "--port",
                &format!("127.0.0.1:{port}"),
                "--iam-dir",
                "",
                "posix",
            ])
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, port, directory };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "the S3 server did not start");
            std::thread::yield_now();
        }
        Some(server)
    }

    fn put(&self, key: &str, content: &[u8]) {
        let path = self.directory.path().join(BUCKET).join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Uploads through the server, which gives the object an entity tag.
    fn upload(&self, key: &str, content: Vec<u8>) {
        // An error means that another test has installed the provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store = AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true)
            .with_bucket_name(BUCKET)
            .with_region("us-east-1")
            .with_access_key_id("AK")
            .with_secret_access_key("SK")
            .build()
            .unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(store.put(&key.into(), content.into())).unwrap();
    }

    fn storage(&self, secret: &str) -> Storage {
        Storage::s3(&self.options(secret)).unwrap()
    }

    fn options(&self, secret: &str) -> S3Options {
        S3Options {
            endpoint: Some(format!("http://127.0.0.1:{}", self.port)),
            path_style: true,
            credentials: Some(S3Credentials {
                access_key_id: "AK".into(),
                secret_access_key: secret.into(),
                session_token: None,
            }),
            times: RequestTimes {
                request: Duration::from_secs(5),
                retries: Duration::from_secs(2),
                ..RequestTimes::default()
            },
            ..S3Options::new(BUCKET, "us-east-1")
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn binary() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("DELTA_GATEWAY_VERSITYGW") {
        return Some(PathBuf::from(named));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")))?;
    let installed = std::fs::read_dir(cache.join("delta-sharing-gateway/bin")).ok()?;
    installed
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("versitygw-")))
}

const FIRST_COMMIT: &str = concat!(
    r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#,
    "\n",
    r#"{"metaData":{"id":"t","schemaString":"{}","partitionColumns":[]}}"#,
);

fn commit(path: &str) -> String {
    format!(
        r#"{{"add":{{"path":"{path}","partitionValues":{{}},"size":1,"modificationTime":1,"dataChange":true}}}}"#
    )
}

#[test]
fn a_log_in_a_bucket_is_listed_and_read_like_a_local_one() {
    let Some(server) = Server::start() else { return };
    let root = "some where/with%20odd/täble=1";
    let log = |name: &str| format!("{root}/_delta_log/{name}");
    server.put(&log("00000000000000000000.json"), FIRST_COMMIT.as_bytes());
    for version in 1..=60 {
        server.put(&log(&format!("{version:020}.json")), commit(&format!("f{version}")).as_bytes());
    }
    server.put(&log("_last_checkpoint"), br#"{"version":50}"#);
    server.put(&log("_sidecars/x.parquet"), b"x");
    server.put(&log("_staged_commits/00000000000000000061.x.json"), b"x");
    let storage = server.storage("SK");

    let names = |from: &str| -> Vec<String> {
        storage.list_log(root, from).unwrap().into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(names("00000000000000000059."), ["00000000000000000059.json", "00000000000000000060.json"]);
    assert_eq!(names("").len(), 61);
    let listed = storage.list_log(root, "00000000000000000060.").unwrap();
    assert!(listed[0].size > 50 && listed[0].modified_ms > 1_600_000_000_000);
    assert_eq!(storage.list_log("no/such/table", "").unwrap(), []);

    let snapshot = Snapshot::load(&storage, root, TimeTravel::Latest, None).unwrap();
    assert_eq!((snapshot.version(), snapshot.totals().unwrap().files), (60, 60));
    server.put(&log("00000000000000000061.json"), commit("f61").as_bytes());
    let advanced = Snapshot::load(
        &storage,
        root,
        TimeTravel::Latest,
        Some(Base { snapshot: &snapshot, is_cached: true }),
    )
    .unwrap();
    assert_eq!((advanced.version(), advanced.totals().unwrap().files), (61, 61));

    let first = storage.list_log(root, "").unwrap().remove(0);
    let missing = LogFileEntry { name: "missing.json".into(), ..first.clone() };
    let files = vec![first, missing];
    let read = storage.read_log_files(root, &files.iter().collect::<Vec<_>>());
    for results in [read, storage.start_log_reads(root, files).wait()] {
        assert_eq!(results[0].as_deref().unwrap(), FIRST_COMMIT.as_bytes());
        assert!(matches!(&results[1], Err(Error::FileNotFound { file }) if file == "missing.json"));
    }
    assert_eq!(storage.read(&log("_last_checkpoint")).unwrap(), br#"{"version":50}"#[..]);
}

#[test]
fn a_large_file_is_read_in_pieces_that_are_those_of_the_file() {
    let Some(server) = Server::start() else { return };
    let content: Vec<u8> =
        (0..25_u32 << 18).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    server.put("t/large.parquet", &content);
    let storage = server.storage("SK");
    let file = storage.open_stated("t/large.parquet", content.len() as u64).unwrap();
    assert_eq!(file.size(), content.len() as u64);
    let columns = [0, 1 << 20, 3 << 20];
    std::thread::scope(|scope| {
        for start in columns {
            let (file, content) = (&file, &content);
            scope.spawn(move || {
                for at in (start..content.len()).step_by(700_001) {
                    let length = (content.len() - at).min(300_000);
                    assert_eq!(file.read_range(at as u64, length).unwrap(), content[at..at + length]);
                }
            });
        }
    });
    assert!(file.read_range(17, content.len() - 17).unwrap() == content[17..]);
    let missing = storage.open_stated("t/missing.parquet", 9).unwrap().read_range(0, 9);
    assert!(matches!(missing, Err(Error::FileNotFound { .. })), "{missing:?}");
}

#[test]
fn a_file_that_is_replaced_while_it_is_read_is_not_mixed() {
    let Some(server) = Server::start() else { return };
    let length = 12 << 20;
    let path = "t/_delta_log/00000000000000000007.checkpoint.parquet";
    server.upload(path, vec![1; length]);
    let storage = server.storage("SK");
    let listed = storage.list_log("t", "").unwrap().remove(0);
    let file = storage.open_listed(path, &listed).unwrap();
    assert_eq!(file.read_range(0, 10).unwrap(), [1; 10][..]);
    server.upload(path, vec![2; length]);
    let behind = file.read_range(length as u64 - 10, 10);
    assert!(matches!(behind, Err(Error::FileReplaced { .. })), "{behind:?}");
    let listed = LogFileEntry { size: length as u64 + 1, ..listed };
    let file = storage.open_listed(path, &listed).unwrap();
    assert!(
        matches!(file.read_range(0, 10), Err(Error::FileReplaced { .. })),
        "another size than was listed"
    );
}

#[test]
fn a_file_that_was_replaced_by_one_of_equal_length_since_it_was_listed_is_not_read() {
    let Some(server) = Server::start() else { return };
    let name = "00000000000000000007.checkpoint.parquet";
    let path = format!("t/_delta_log/{name}");
    let storage = server.storage("SK");
    let listed = || storage.list_log("t", "").unwrap().remove(0);
    let open = |entry: &LogFileEntry| storage.open_listed(&path, entry).unwrap().read_range(0, 1000);
    server.upload(&path, vec![1; 1000]);
    // Modification times distinguish the two if a store lists other tags than it sends.
    let stored = std::fs::File::open(server.directory.path().join(BUCKET).join(&path)).unwrap();
    stored.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    let first = listed();
    assert!(first.entity_tag.is_some());
    assert_eq!(open(&first).unwrap(), [1; 1000][..]);
    server.upload(&path, vec![2; 1000]);
    let second = listed();
    assert_ne!(second.entity_tag, first.entity_tag);
    assert_eq!(open(&second).unwrap(), [2; 1000][..]);
    let replaced = open(&first);
    assert!(matches!(replaced, Err(Error::FileReplaced { .. })), "{replaced:?}");
    let read = storage.read_log_file("t", &first);
    assert!(matches!(read, Err(Error::FileReplaced { .. })), "{read:?}");
}

#[test]
fn refused_credentials_and_an_unreachable_store_are_distinct_errors() {
    let Some(server) = Server::start() else { return };
    server.put("t/_delta_log/00000000000000000000.json", FIRST_COMMIT.as_bytes());
    let refused = server.storage("wrong");
    for error in [
        refused.list_log("t", "").unwrap_err(),
        refused.read("t/_delta_log/00000000000000000000.json").unwrap_err(),
        refused
            .open_stated("t/_delta_log/00000000000000000000.json", 9)
            .unwrap()
            .read_range(0, 9)
            .unwrap_err(),
        Snapshot::load(&refused, "t", TimeTravel::Latest, None).unwrap_err(),
    ] {
        assert!(matches!(error, Error::StorageDenied { .. }), "{error:?}");
        let shown = error.to_string();
        assert!(
            !shown.contains("127.0.0.1") && !shown.contains(BUCKET) && !shown.contains("_delta_log"),
            "{shown}"
        );
    }
    let right =
        S3Credentials { access_key_id: "AK".into(), secret_access_key: "SK".into(), session_token: None };
    refused.replace_credentials(&right).unwrap();
    assert_eq!(Snapshot::load(&refused, "t", TimeTravel::Latest, None).unwrap().version(), 0);
    let storage = server.storage("SK");
    let elsewhere = Storage::s3(&S3Options { bucket: "nowhere".into(), ..server.options("SK") }).unwrap();
    assert!(matches!(
        Snapshot::load(&elsewhere, "t", TimeTravel::Latest, None),
        Err(Error::TableNotFound { .. })
    ));
    drop(server);
    let error = Snapshot::load(&storage, "t", TimeTravel::Latest, None).unwrap_err();
    assert!(matches!(error, Error::StorageUnavailable { .. }), "{error:?}");
}
