//! URLs that a service signs, against a service of the test with a real key.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use deltalog::Error;
use deltalog::column_cache::ColumnCache;
use deltalog::ndjson::ResponseFormat;
use deltalog::pool::Pool;
use deltalog::query::{self, FilesRequest, LineOptions};
use deltalog::sign::{GcsKey, GcsOptions, Signer, SignerSet, SigningRoot, SigningService};
use deltalog::stop::Stop;
use deltalog::storage::{IamSigner, Storage};
use deltalog::stream::{Buffers, NdjsonStream, Next, StreamOptions};
use deltalog::table::Table;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;

/// A key that was made for the tests.
const PRIVATE_KEY: &str = include_str!("../src/sign/gcs/test_key.pem");
const EMAIL: &str = "signer@project.iam.gserviceaccount.com";
const NOW_MS: i64 = 1_709_251_198_000;

/// How the service answers its next requests.
#[derive(Clone, Copy)]
enum Mood {
    Signs,
    /// With a status, and with signatures after this many requests.
    Fails(&'static str, usize),
    ShortSignature,
    NoAnswer,
    /// With signatures, but of the text `throttled`.
    Throttles,
}

struct Service {
    endpoint: String,
    requests: Arc<AtomicUsize>,
    most_in_flight: Arc<AtomicUsize>,
    heads: Arc<Mutex<String>>,
}

impl Service {
    fn start(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Self {
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            requests: Arc::default(),
            most_in_flight: Arc::default(),
            heads: Arc::default(),
        };
        let der = PrivatePkcs8KeyDer::from_pem_slice(PRIVATE_KEY.as_bytes()).unwrap();
        let key = Arc::new(RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap());
        let (requests, heads) = (Arc::clone(&service.requests), Arc::clone(&service.heads));
        let (most, in_flight) = (Arc::clone(&service.most_in_flight), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (key, requests, heads) = (Arc::clone(&key), Arc::clone(&requests), Arc::clone(&heads));
                let (most, in_flight) = (Arc::clone(&most), Arc::clone(&in_flight));
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(connection.try_clone().unwrap());
                    while let Some((head, body)) = read_request(&mut reader) {
                        let number = requests.fetch_add(1, Ordering::SeqCst);
                        most.fetch_max(in_flight.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        *heads.lock().unwrap() = head;
                        std::thread::sleep(Duration::from_millis(5));
                        in_flight.fetch_sub(1, Ordering::SeqCst);
                        answer(&connection, mood, number, &key, &body);
                    }
                });
            }
        });
        service
    }

    fn signer(&self, max_signatures: Option<u64>) -> Signer {
        let service = Arc::new(IamSigner::new(EMAIL, "a-token", Some(&self.endpoint)).unwrap());
        gcs(GcsKey::Remote { email: EMAIL.to_owned(), service, max_signatures })
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn answer(mut connection: &TcpStream, mood: Mood, number: usize, key: &RsaKeyPair, body: &[u8]) {
    let (status, content) = match mood {
        Mood::NoAnswer => return std::thread::sleep(Duration::from_secs(60)),
        Mood::Fails(status, times) if number < times => {
            (status, r#"{"error":{"message":"hint for the operator","details":"hush"}}"#.into())
        }
        Mood::ShortSignature => ("200 OK", r#"{"signedBlob":"AAAA"}"#.into()),
        Mood::Throttles if payload(body) == b"throttled" => ("429 Too Many Requests", String::new()),
        Mood::Signs | Mood::Fails(..) | Mood::Throttles => {
            let text = payload(body);
            let mut signature = vec![0; key.public().modulus_len()];
            key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), &text, &mut signature).unwrap();
            ("200 OK", format!(r#"{{"keyId":"k","signedBlob":"{}"}}"#, STANDARD.encode(signature)))
        }
    };
    let length = content.len();
    // The client may be gone.
    let _ = write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{content}");
}

fn payload(body: &[u8]) -> Vec<u8> {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    STANDARD.decode(body["payload"].as_str().unwrap()).unwrap()
}

fn gcs(key: GcsKey) -> Signer {
    Signer::gcs(GcsOptions::new("bu_cket", key)).unwrap()
}

fn with_private_key() -> Signer {
    gcs(GcsKey::ServiceAccount { email: EMAIL.to_owned(), private_key: PRIVATE_KEY.to_owned() })
}

struct Log {
    directory: tempfile::TempDir,
    pool: Pool,
}

impl Log {
    /// A table with one file in each commit.
    fn of(files: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("_delta_log");
        std::fs::create_dir(&log).unwrap();
        for version in 0..files {
            let add = format!(
                r#"{{"add":{{"path":"{}%20{version}","partitionValues":{{}},"size":1,"modificationTime":1,"dataChange":true}}}}"#,
                "x".repeat(version % 20)
            );
            let first = concat!(
                r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#,
                "\n",
                r#"{"metaData":{"id":"t","format":{"provider":"parquet"},"#,
                r#""schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":[],"configuration":{}}}"#,
                "\n"
            );
            let text = if version == 0 { format!("{first}{add}") } else { add };
            std::fs::write(log.join(format!("{version:020}.json")), text).unwrap();
        }
        Self { directory, pool: Pool::new(2).unwrap() }
    }

    fn stream(&self, signer: Signer, with_limit: bool) -> NdjsonStream {
        let root = self.directory.path().to_str().unwrap().to_owned();
        let table = Arc::new(Table::new(Storage::local(), root, Arc::new(ColumnCache::new(1 << 20))));
        let signers = SignerSet::new(SigningRoot::new("gs://bu_cket/t", signer).unwrap(), vec![]);
        let lines = LineOptions {
            format: ResponseFormat::Parquet,
            ids: ResponseFormat::Parquet.id_scheme(),
            now_ms: NOW_MS,
            lifetime_seconds: 3600,
            history_shared: true,
        };
        let snapshot = table.latest(Duration::MAX, &self.pool).unwrap();
        table.totals(&snapshot, &Stop::default()).unwrap();
        let request = FilesRequest { limit_hint: with_limit.then_some(u64::MAX), ..FilesRequest::default() };
        let source = query::files(&table, &snapshot, &request, &signers, lines, &self.pool).unwrap();
        // Answers of few files in memory are made on the calling thread, but never with requests.
        let inline = query::is_made_inline(&table, &snapshot, &request, &signers);
        let options = StreamOptions { inline, ..StreamOptions::default() };
        NdjsonStream::start(&self.pool, &Arc::<Buffers>::default(), Box::new(source), options).unwrap()
    }

    fn answer(&self, signer: Signer) -> Result<String, Error> {
        let mut stream = self.stream(signer, false);
        let mut text = String::new();
        loop {
            match stream.take()? {
                Next::Chunk(chunk) => text.push_str(std::str::from_utf8(chunk.bytes()).unwrap()),
                Next::Pending => std::thread::sleep(Duration::from_millis(1)),
                Next::Done => return Ok(text),
            }
        }
    }
}

#[test]
fn urls_by_a_service_are_those_of_its_private_key_with_bounded_requests_in_flight() {
    let (log, service) = (Log::of(300), Service::start(Mood::Signs));
    let expected = log.answer(with_private_key()).unwrap();
    assert_eq!(expected.matches("X-Goog-Signature=").count(), 300);
    assert_eq!(log.answer(service.signer(Some(300))).unwrap(), expected);
    assert_eq!(service.requests(), 300);
    let most = service.most_in_flight.load(Ordering::SeqCst);
    assert!((4..=64).contains(&most), "{most}");

    let head = service.heads.lock().unwrap().clone();
    let path = "/v1/projects/-/serviceAccounts/signer%40project.iam.gserviceaccount.com:signBlob";
    assert!(head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{head}");
    assert!(head.to_ascii_lowercase().contains("\r\nauthorization: bearer a-token\r\n"), "{head}");

    let (one, expires_ms) = service.signer(None).sign("a b/%41", NOW_MS, 7 * 86_400).unwrap();
    assert_eq!(one, with_private_key().sign("a b/%41", NOW_MS, 12 * 3600).unwrap().0);
    assert_eq!(expires_ms, NOW_MS + 12 * 3_600_000);
    let shown = format!("{:?}", service.signer(None));
    assert!(!shown.contains("a-token"), "{shown}");
}

#[test]
fn more_files_than_are_signed_are_refused_before_the_first_request_or_at_the_limit() {
    let (log, service) = (Log::of(100), Service::start(Mood::Signs));
    let refused = log.answer(service.signer(Some(99))).unwrap_err();
    assert!(matches!(refused, Error::TooManySignatures { most: 99 }));
    assert!(refused.to_string().contains("HMAC key"), "{refused}");
    assert_eq!(service.requests(), 0);

    // A limit on rows: the number of files is known when they are found.
    let mut stream = log.stream(service.signer(Some(70)), true);
    let error = loop {
        match stream.take() {
            Ok(Next::Done) => panic!("more files than are signed"),
            Ok(_) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::TooManySignatures { most: 70 }));
    assert!(service.requests() <= 70, "{}", service.requests());
}

#[test]
fn failures_of_the_service_are_errors_of_the_storage_and_passing_ones_are_repeated() {
    let log = Log::of(3);
    let service = Service::start(Mood::Fails("503 Service Unavailable", 2));
    assert_eq!(log.answer(service.signer(None)).unwrap(), log.answer(with_private_key()).unwrap());
    assert_eq!(service.requests(), 5);

    for (mood, is_denied) in [
        (Mood::Fails("403 Forbidden", 99), true),
        (Mood::Fails("401 Unauthorized", 99), true),
        (Mood::Fails("404 Not Found", 99), true),
        (Mood::Fails("400 Bad Request", 99), false),
        (Mood::ShortSignature, false),
    ] {
        let error = log.answer(Service::start(mood).signer(None)).unwrap_err();
        assert_eq!(matches!(error, Error::StorageDenied { .. }), is_denied, "{error:?}");
        assert_eq!(matches!(error, Error::StorageUnavailable { .. }), !is_denied, "{error:?}");
        assert!(!format!("{error:?} {error}").contains("a-token"), "{error:?}");
        let detail = error.detail().unwrap();
        assert!(!detail.contains("hush"), "{detail}");
        if let Mood::Fails(status, _) = mood {
            assert_eq!(detail, format!("signBlob of IAM answered {status}: hint for the operator"));
        }
    }
}

#[test]
fn requests_end_when_they_are_cancelled_or_late() {
    let service = Service::start(Mood::NoAnswer);
    let signer = IamSigner::new(EMAIL, "a-token", Some(&service.endpoint)).unwrap();
    let began = Instant::now();
    let stop = Stop::default();
    let cancelled = std::thread::scope(|scope| {
        let signing = scope.spawn(|| signer.sign(vec![b"text".to_vec()], &stop));
        while service.requests() == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "no request was sent");
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.cancel();
        signing.join().unwrap()
    });
    assert!(matches!(cancelled, Err(Error::Cancelled)));
    let late = signer.sign(vec![b"text".to_vec()], &Stop::at(Some(Instant::now())));
    assert!(matches!(late, Err(Error::DeadlineExceeded)));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// Signs `text` as often as an account has requests in flight, and then once by `other`, before the first ones end.
fn signs_while_another_waits(service: &Service, text: &[u8], other: &Service) {
    let signer = |service: &Service| IamSigner::new(EMAIL, "a-token", Some(&service.endpoint)).unwrap();
    let (stop, began) = (Stop::default(), Instant::now());
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let signer = signer(service);
                let stop = &stop;
                scope.spawn(move || signer.sign(vec![text.to_vec(); 32], stop))
            })
            .collect();
        while service.requests() < 64 {
            assert!(began.elapsed() < Duration::from_secs(20), "{} requests", service.requests());
            std::thread::sleep(Duration::from_millis(1));
        }
        let result = signer(other).sign(vec![b"text".to_vec()], &Stop::default());
        assert!(waiting.iter().all(|thread| !thread.is_finished()), "the signature had to wait");
        stop.cancel();
        assert_eq!(result.unwrap().len(), 1);
        for thread in waiting {
            assert!(matches!(thread.join().unwrap(), Err(Error::Cancelled)));
        }
    });
}

#[test]
fn a_service_account_that_hangs_does_not_delay_another() {
    signs_while_another_waits(&Service::start(Mood::NoAnswer), b"text", &Service::start(Mood::Signs));
}

#[test]
fn pauses_before_a_repetition_delay_no_other_request_of_the_service_account() {
    let service = Service::start(Mood::Throttles);
    signs_while_another_waits(&service, b"throttled", &service);
}

/// Signs nothing, and ends when it is stopped.
#[derive(Default)]
struct Waits {
    is_waiting: AtomicBool,
    has_ended: AtomicBool,
}

impl SigningService for Waits {
    fn sign(&self, _texts: Vec<Vec<u8>>, stop: &Stop) -> Result<Vec<Vec<u8>>, Error> {
        self.is_waiting.store(true, Ordering::SeqCst);
        loop {
            if let Err(error) = stop.check() {
                self.has_ended.store(true, Ordering::SeqCst);
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_stream_that_is_dropped_ends_its_requests() {
    let (log, service) = (Log::of(3), Arc::new(Waits::default()));
    let stream = log.stream(
        gcs(GcsKey::Remote { email: EMAIL.into(), service: Arc::clone(&service) as _, max_signatures: None }),
        false,
    );
    let wait_for = |flag: &AtomicBool| {
        let began = Instant::now();
        while !flag.load(Ordering::SeqCst) {
            assert!(began.elapsed() < Duration::from_secs(20), "the stream goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_for(&service.is_waiting);
    assert!(!service.has_ended.load(Ordering::SeqCst));
    drop(stream);
    wait_for(&service.has_ended);
}

#[test]
fn addresses_and_tokens_that_cannot_be_sent_are_refused() {
    for (email, token, endpoint) in [
        ("no-address", "t", None),
        (EMAIL, "", None),
        (EMAIL, "two\r\nlines", None),
        (EMAIL, "t", Some("ftp://iam")),
        (EMAIL, "t", Some("iam")),
    ] {
        assert!(matches!(IamSigner::new(email, token, endpoint), Err(Error::InvalidArgument(_))), "{email}");
    }
}
