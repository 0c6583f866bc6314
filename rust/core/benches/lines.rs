//! Measures a line (URL, id, escaping and the rest) in nanoseconds of one thread per file.
//!
//! `cargo bench -p deltalog --bench lines`. Every figure is the median of many runs over one batch of files,
//! and the lines of every implementation are compared with those of the portable one before it is timed.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::StringViewArray;
use deltalog::actions::{FileBatch, PartitionColumn, PartitionTuple, SourceId};
use deltalog::ndjson::{FileIds, IdScheme, LineWriter, ResponseFormat};
use deltalog::sign::{
    AzureKey, AzureOptions, DelegationKey, GcsKey, GcsOptions, S3Options, Signer, SignerSet, SigningRoot,
    UrlStream,
};

const FILES: usize = 1024;
const RUNS: usize = 601;
const NOW_MS: i64 = 1_709_251_198_000;

fn urls(portable: bool) -> UrlStream {
    let (id, secret) = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
    let options = S3Options::new("example-bucket", "eu-central-1", id, secret);
    let signer = Signer::s3(S3Options { portable, ..options }).unwrap();
    let root = SigningRoot::new("s3://example-bucket/warehouse/events", signer).unwrap();
    SignerSet::new(root, vec![]).stream(NOW_MS, 3600).unwrap()
}

/// A key that was made for the tests.
const RSA_KEY: &str = include_str!("../src/sign/gcs/test_key.pem");

/// URLs by each other kind of signature.
fn other_urls() -> Vec<(&'static str, UrlStream)> {
    let azure = |key| AzureOptions::new("exampleaccount", "example-bucket", key);
    let value = "ZXhhbXBsZS1zZWNyZXQtb2YtdGhpcnR5LXR3by1ieXRlcw==".to_owned();
    let delegation = DelegationKey {
        object_id: "23657296-5cd5-45b0-a809-d972a7f4dfe1".to_owned(),
        tenant_id: "dd0d0df1-06c3-436c-8034-4b9a153097ce".to_owned(),
        start: "2024-02-29T00:00:00Z".to_owned(),
        expiry: "2024-03-05T00:00:00Z".to_owned(),
        service: "b".to_owned(),
        version: "2022-11-02".to_owned(),
        value: value.clone(),
    };
    let gcs = |key| GcsOptions::new("example-bucket", key);
    let hmac = GcsKey::Hmac { access_id: "GOOG1EXAMPLE".to_owned(), secret: "secret".to_owned() };
    let email = "signer@project.iam.gserviceaccount.com".to_owned();
    let rsa = GcsKey::ServiceAccount { email, private_key: RSA_KEY.to_owned() };
    let on_azure = "abfss://example-bucket@exampleaccount.dfs.core.windows.net/warehouse/events";
    let on_google = "gs://example-bucket/warehouse/events";
    [
        ("service SAS", Signer::azure(azure(AzureKey::Account(value))), on_azure),
        ("user delegation SAS", Signer::azure(azure(AzureKey::Delegation(delegation))), on_azure),
        ("GCS HMAC", Signer::gcs(gcs(hmac)), on_google),
        ("GCS RSA", Signer::gcs(gcs(rsa)), on_google),
    ]
    .into_iter()
    .map(|(name, signer, location)| {
        let root = SigningRoot::new(location, signer.unwrap()).unwrap();
        (name, SignerSet::new(root, vec![]).stream(NOW_MS, 3600).unwrap())
    })
    .collect()
}

/// Times each kind of signature in turn, so that the noise of a machine is that of all, and compares with `SigV4`.
fn compare_signatures(paths: &str, batch: &FileBatch, out: &mut Vec<u8>) {
    let mut kinds = other_urls();
    kinds.insert(0, ("SigV4", urls(false)));
    let name = |kind: &str| format!("sign, {kind}{paths}");
    let wanted =
        |word: String| word.starts_with('-') || kinds.iter().any(|(kind, _)| name(kind).contains(&word));
    if !std::env::args().skip(1).all(wanted) {
        return;
    }
    let mut times = vec![Vec::new(); kinds.len()];
    for run in 0..RUNS {
        for ((kind, urls), times) in kinds.iter_mut().zip(&mut times) {
            // A run of RSA takes half a second.
            if *kind == "GCS RSA" && run % 100 != 0 {
                continue;
            }
            let start = Instant::now();
            sign_all(urls, black_box(batch), out);
            times.push(start.elapsed().as_nanos() as f64 / FILES as f64);
        }
    }
    let medians: Vec<f64> = times
        .iter_mut()
        .map(|times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
        .collect();
    for ((kind, _), median) in kinds.iter().zip(&medians) {
        println!("{:<44} {median:7.1} ns   ({:.3} of SigV4)", name(kind), median / medians[0]);
    }
}

fn batch(with_stats: bool) -> FileBatch {
    let path = |index: usize| {
        format!(
            "date=2024-02-{:02}/region=eu/part-{index:05}-61d16c75-6994-46b7-a15b-{index:012x}.c000.snappy.parquet",
            index % 28 + 1
        )
    };
    let stats = |index: usize| {
        format!(
            "{{\"numRecords\":{},\"minValues\":{{\"id\":{index},\"event_time\":\"2024-02-01T00:00:00.000Z\",\
             \"name\":\"aardvark\",\"price\":0.99}},\"maxValues\":{{\"id\":{},\"event_time\":\
             \"2024-02-01T23:59:59.999Z\",\"name\":\"zebra\",\"price\":999.5}},\"nullCount\":{{\"id\":0,\
             \"event_time\":0,\"name\":12,\"price\":3}}}}",
            1000 + index,
            index + 1000
        )
    };
    let tuple = PartitionTuple {
        values: [Some("2024-02-01".into()), Some("eu".into())].into(),
        json: (*b"{\"date\":\"2024-02-01\",\"region\":\"eu\"}").into(),
        logged_json: None,
    };
    FileBatch {
        source: SourceId(0),
        row: (0..FILES as u32).collect(),
        path: StringViewArray::from_iter_values((0..FILES).map(path)),
        size: (0..FILES as i64).map(|index| 10_000_000 + index).collect(),
        modification_time_ms: vec![1_700_000_000_000; FILES].into(),
        data_change: None,
        partitions: PartitionColumn {
            dictionary: Arc::new(vec![Arc::new(tuple)]),
            keys: vec![0; FILES].into(),
        },
        stats: with_stats.then(|| StringViewArray::from_iter_values((0..FILES).map(stats)).into()),
        deletion_vector: None,
        base_row_id: None,
        default_row_commit_version: None,
        clustering_provider: None,
        tags: None,
        remove_fields: None,
    }
}

/// Files with paths as Delta writes partitions by a timestamp.
fn with_escapes() -> FileBatch {
    let path = |index: usize| {
        format!("time=2024-02-29%2010%253A{:02}%253A00/part-{index:05}-61d16c75.c000.parquet", index % 60)
    };
    FileBatch { path: StringViewArray::from_iter_values((0..FILES).map(path)), ..batch(false) }
}

/// Times what is named by all words of the command line.
fn time(name: &str, mut run: impl FnMut()) {
    let wanted = |word: String| word.starts_with('-') || name.contains(&word);
    if !std::env::args().skip(1).all(wanted) {
        return;
    }
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_nanos() as f64 / FILES as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let median = times[RUNS / 2];
    println!("{name:<44} {median:7.1} ns   (one in twenty: {:.1})", times[RUNS / 20]);
}

fn sign_all(urls: &mut UrlStream, batch: &FileBatch, out: &mut Vec<u8>) {
    out.clear();
    for index in 0..FILES {
        urls.append(batch.path.value(index), out).unwrap();
    }
    urls.finish(out);
}

fn main() {
    if cfg!(debug_assertions) {
        println!("refused: a debug build says nothing about speed");
        return;
    }
    let (plain, full) = (batch(false), batch(true));
    let rows: Vec<u32> = (0..FILES as u32).collect();
    let mut prepared = batch(true);
    prepared.prepare_for_cache();
    println!("{FILES} files");

    let (mut portable, mut wide) = (Vec::new(), Vec::new());
    sign_all(&mut urls(true), &plain, &mut portable);
    sign_all(&mut urls(false), &plain, &mut wide);
    assert!(portable == wide, "the engines sign alike");
    println!("URL of {} bytes", wide.len() / FILES);

    let mut out = Vec::with_capacity(16 << 20);
    for portable in [true, false] {
        let engine = if portable { "portable" } else { "widest" };
        let mut urls = urls(portable);
        time(&format!("sign, {engine}"), || sign_all(&mut urls, black_box(&plain), &mut out));
    }
    compare_signatures("", &plain, &mut out);
    compare_signatures(", escaped paths", &with_escapes(), &mut out);
    for scheme in [IdScheme::Parquet, IdScheme::Delta] {
        time(&format!("ids, {scheme:?}, widest"), || {
            black_box(FileIds::of(scheme, black_box(&plain.path)));
        });
    }
    for format in [ResponseFormat::Parquet, ResponseFormat::Delta] {
        let mut expected = Vec::new();
        LineWriter::new(format, format.id_scheme(), urls(true)).write(&full, &rows, &mut expected).unwrap();
        println!("{format:?} line of {} bytes", expected.len() / FILES);
        for portable in [true, false] {
            let engine = if portable { "portable" } else { "widest" };
            let mut writer = LineWriter::new(format, format.id_scheme(), urls(portable));
            out.clear();
            writer.write(&full, &rows, &mut out).unwrap();
            assert!(out == expected, "the engines write alike");
            for (kind, batch) in
                [("without stats", &plain), ("with stats", &full), ("stats kept escaped", &prepared)]
            {
                time(&format!("line, {format:?}, {kind}, {engine}"), || {
                    out.clear();
                    writer.write(black_box(batch), &rows, &mut out).unwrap();
                });
            }
        }
        let ids = FileIds::of(format.id_scheme(), &full.path);
        let mut writer = LineWriter::new(format, format.id_scheme(), urls(false));
        time(&format!("line, {format:?}, stats kept escaped, ids kept, widest"), || {
            out.clear();
            writer.write_with_ids(black_box(&prepared), Some(&ids), &rows, &mut out).unwrap();
        });
    }
}
