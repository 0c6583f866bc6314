use std::sync::Arc;

use arrow_array::{Int64Array, StringViewArray};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::Digest as _;

use super::*;
use crate::Error;
use crate::actions::testing::files_named;
use crate::actions::{DeletionVectorDescriptor, PartitionColumn, PartitionTuple, RemoveFields};
use crate::hashing::slow_hex as hex;
use crate::log_path::percent_decode;
use crate::sign::{S3Options, Signer, SignerSet, SigningRoot};

const NOW_MS: i64 = 1_709_251_198_000;
const EXPIRES_MS: i64 = NOW_MS + 3_600_000;
const LINE_SEPARATORS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];
/// The example of PROTOCOL, section Deletion Vector Descriptor.
const UUID_TEXT: &str = "^-aqEH.-t@S}K{vb[*k^";

fn urls() -> UrlStream {
    let signer = Signer::local("http://gateway.test/files/t1", b"key").unwrap();
    let other = Signer::s3(S3Options {
        credentials_expire_ms: Some(NOW_MS + 160_000),
        ..S3Options::new("other", "r", "id", "secret")
    });
    let root = SigningRoot::new("/data/t1", signer).unwrap();
    let other = SigningRoot::new("s3://other/", other.unwrap()).unwrap();
    SignerSet::new(root, vec![other]).stream(NOW_MS, 3600).unwrap()
}

fn batch(paths: &[&str]) -> FileBatch {
    let tuple = PartitionTuple {
        values: [Some("x".into())].into(),
        json: (*b"{\"d\":\"x\"}").into(),
        logged_json: None,
    };
    let null = PartitionTuple { values: [None].into(), json: (*b"{\"d\":null}").into(), logged_json: None };
    let count = paths.len();
    FileBatch {
        size: (0..count as i64).map(|index| 1000 + index).collect(),
        modification_time_ms: vec![1_700_000_000_000; count].into(),
        partitions: PartitionColumn {
            dictionary: Arc::new(vec![Arc::new(tuple), Arc::new(null)]),
            keys: (0..count as u32).map(|index| index % 2).collect(),
        },
        ..files_named(paths)
    }
}

fn vector(storage_type: u8, path_or_inline: &str) -> DeletionVectorDescriptor {
    DeletionVectorDescriptor {
        storage_type,
        path_or_inline: path_or_inline.to_owned(),
        offset: (storage_type != b'i').then_some(1),
        size_in_bytes: 36,
        cardinality: 2,
    }
}

fn writer(format: ResponseFormat) -> LineWriter {
    LineWriter::new(format, format.id_scheme(), urls())
}

fn lines(out: &[u8]) -> Vec<Value> {
    assert!(out.is_empty() || out.ends_with(b"\n"));
    std::str::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn write(writer: &mut LineWriter, batch: &FileBatch) -> Vec<Value> {
    let (rows, mut out): (Vec<u32>, _) = ((0..batch.len() as u32).collect(), Vec::new());
    let counts = writer.write(batch, &rows, &mut out).unwrap();
    assert_eq!(counts.files, batch.len() as u64);
    lines(&out)
}

fn signed(path: &str) -> String {
    let (mut urls, mut out) = (urls(), Vec::new());
    urls.append(path, &mut out).unwrap();
    urls.finish(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_live_file_in_the_parquet_format() {
    let mut batch = batch(&["d=x/part-0.parquet"]);
    batch.stats = Some(
        StringViewArray::from_iter_values(["{\"numRecords\":1,\"maxValues\":{\"a\":\"\u{2028}\\n\"}}"])
            .into(),
    );
    let mut out = Vec::new();
    let mut writer = writer(ResponseFormat::Parquet);
    let counts = writer.write(&batch, &[0], &mut out).unwrap();
    assert_eq!(counts, LineCounts { files: 1, file_bytes: 1000, min_expiration_ms: Some(EXPIRES_MS) });
    let expected = format!(
        "{{\"file\":{{\"url\":\"{}\",\"id\":\"{}\",\"partitionValues\":{{\"d\":\"x\"}},\"size\":1000,\"stats\":\
         \"{{\\\"numRecords\\\":1,\\\"maxValues\\\":{{\\\"a\\\":\\\"\\u2028\\\\n\\\"}}}}\",\"expirationTimestamp\":{EXPIRES_MS}}}}}\n",
        signed("d=x/part-0.parquet"),
        hex(&md5::Md5::digest("d=x/part-0.parquet")),
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn actions_of_a_commit_in_the_parquet_format() {
    let mut batch = batch(&["d=x/part-0.parquet"]);
    batch.stats = Some(StringViewArray::from_iter_values(["{}"]).into());
    let mut writer = writer(ResponseFormat::Parquet);
    let stamp = Some(Stamp { version: 7, timestamp_ms: Some(1_650_000_000_000) });
    for (action, name) in [(FileAction::Add, "add"), (FileAction::Remove, "remove"), (FileAction::Cdc, "cdf")]
    {
        writer.set_action(action, stamp);
        let mut expected = json!({
            "url": signed("d=x/part-0.parquet"),
            "id": hex(&md5::Md5::digest("d=x/part-0.parquet")),
            "partitionValues": {"d": "x"},
            "size": 1000,
            "version": 7,
            "timestamp": 1_650_000_000_000_i64,
            "expirationTimestamp": EXPIRES_MS,
        });
        if action == FileAction::Add {
            expected["stats"] = json!("{}");
        }
        assert_eq!(write(&mut writer, &batch), [json!({ name: expected })]);
    }
}

#[test]
fn a_deletion_vector_is_refused_in_the_parquet_format() {
    let mut batch = batch(&["a", "b"]);
    batch.deletion_vector = Some(vec![None, Some(Box::new(vector(b'u', UUID_TEXT)))]);
    let mut out = Vec::new();
    let refused = writer(ResponseFormat::Parquet).write(&batch, &[0, 1], &mut out);
    assert!(matches!(refused, Err(Error::UnsupportedFeature(feature)) if feature == "deletionVectors"));
    assert_eq!(lines(&out)[0]["file"]["url"], signed("a"), "what was written before the error is whole");
}

#[test]
fn an_add_with_everything_in_the_delta_format() {
    let mut batch = batch(&["d=x/part-0.parquet"]);
    batch.stats = Some(StringViewArray::from_iter_values(["{\"numRecords\":3}"]).into());
    batch.data_change = Some(vec![false]);
    batch.deletion_vector = Some(vec![Some(Box::new(vector(b'u', &format!("ab{UUID_TEXT}"))))]);
    batch.base_row_id = Some(Int64Array::from(vec![40]));
    batch.default_row_commit_version = Some(Int64Array::from(vec![5]));
    batch.clustering_provider = Some(StringViewArray::from_iter_values(["liquid"]));
    let mut writer = writer(ResponseFormat::Delta);
    writer.set_action(FileAction::Live, Some(Stamp { version: 7, timestamp_ms: Some(8) }));
    let expected = json!({"file": {
        "id": hex(&sha2::Sha256::digest("d=x/part-0.parquet")),
        "deletionVectorFileId": hex(&sha2::Sha256::digest(format!("uab{UUID_TEXT}"))),
        "deltaSingleAction": {"add": {
            "path": signed("d=x/part-0.parquet"),
            "partitionValues": {"d": "x"},
            "size": 1000,
            "modificationTime": 1_700_000_000_000_i64,
            "dataChange": false,
            "stats": "{\"numRecords\":3}",
            "deletionVector": {
                "storageType": "p",
                "pathOrInlineDv": signed("ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
                "offset": 1,
                "sizeInBytes": 36,
                "cardinality": 2,
            },
            "baseRowId": 40,
            "defaultRowCommitVersion": 5,
            "clusteringProvider": "liquid",
        }},
        "version": 7,
        "timestamp": 8,
        "expirationTimestamp": EXPIRES_MS,
    }});
    assert_eq!(write(&mut writer, &batch), [expected]);
}

#[test]
fn vectors_of_one_file_share_its_id() {
    let mut batch = batch(&["a", "b", "c"]);
    let at = |offset, path: &str| {
        Some(Box::new(DeletionVectorDescriptor { offset: Some(offset), ..vector(b'u', path) }))
    };
    let other = UUID_TEXT.replace('q', "r");
    batch.deletion_vector = Some(vec![at(1, UUID_TEXT), at(60, UUID_TEXT), at(1, &other)]);
    let lines = write(&mut writer(ResponseFormat::Delta), &batch);
    let id = |line: usize| lines[line]["file"]["deletionVectorFileId"].as_str().unwrap();
    assert_eq!(id(0), id(1));
    assert_ne!(id(0), id(2));
}

#[test]
fn absent_fields_of_a_file_are_omitted() {
    let mut batch = batch(&["a", "b"]);
    batch.stats = Some(StringViewArray::from(vec![None, Some("")]).into());
    batch.deletion_vector = Some(vec![None, None]);
    batch.base_row_id = Some(Int64Array::from(vec![None, Some(0)]));
    batch.clustering_provider = Some(StringViewArray::from(vec![Option::<&str>::None, None]));
    let lines = write(&mut writer(ResponseFormat::Delta), &batch);
    let add = |path: &str, partition: Value, size: i64| {
        json!({
            "path": signed(path),
            "partitionValues": {"d": partition},
            "size": size,
            "modificationTime": 1_700_000_000_000_i64,
            "dataChange": true,
        })
    };
    assert_eq!(lines[0]["file"]["deltaSingleAction"]["add"], add("a", json!("x"), 1000));
    let mut second = add("b", Value::Null, 1001);
    second["baseRowId"] = json!(0);
    assert_eq!(lines[1]["file"]["deltaSingleAction"]["add"], second);
    assert_eq!(lines[1]["file"].as_object().unwrap().len(), 3);
}

#[test]
fn a_remove_and_a_change_data_file_in_the_delta_format() {
    let mut batch = batch(&["a"]);
    batch.deletion_vector =
        Some(vec![Some(Box::new(vector(b'i', "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L")))]);
    let whole = RemoveFields {
        partition_values: true,
        size: true,
        deletion_timestamp: true,
        extended_file_metadata: Some(true),
    };
    batch.remove_fields = Some(vec![whole]);
    let mut writer = writer(ResponseFormat::Delta);
    let stamp = Some(Stamp { version: 7, timestamp_ms: Some(8) });
    writer.set_action(FileAction::Remove, stamp);
    let expected = json!({"remove": {
        "path": signed("a"),
        "deletionTimestamp": 1_700_000_000_000_i64,
        "dataChange": true,
        "extendedFileMetadata": true,
        "partitionValues": {"d": "x"},
        "size": 1000,
        "deletionVector": {
            "storageType": "i",
            "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
            "sizeInBytes": 36,
            "cardinality": 2,
        },
    }});
    let lines = write(&mut writer, &batch);
    assert_eq!(lines[0]["file"]["deltaSingleAction"], expected);
    assert_eq!(lines[0]["file"].get("deletionVectorFileId"), None, "an inline vector has no file");

    writer.set_action(FileAction::Cdc, stamp);
    let expected = json!({"cdc": {
        "path": signed("a"), "partitionValues": {"d": "x"}, "size": 1000, "dataChange": false,
    }});
    assert_eq!(write(&mut writer, &batch)[0]["file"]["deltaSingleAction"], expected);
}

#[test]
fn a_remove_in_the_delta_format_has_the_fields_of_the_log() {
    let mut batch = batch(&["a", "b", "c"]);
    batch.data_change = Some(vec![true, false, true]);
    let part = RemoveFields { size: true, extended_file_metadata: Some(false), ..RemoveFields::default() };
    let values = RemoveFields { partition_values: true, deletion_timestamp: true, ..RemoveFields::default() };
    batch.remove_fields = Some(vec![RemoveFields::default(), part, values]);
    batch.stats = Some(StringViewArray::from(vec![None, Some("{\"numRecords\":1}"), None]).into());
    batch.tags = Some(StringViewArray::from(vec![None, Some("{}"), Some("{\"a\":\r\"\u{2028}\\n\"}")]));
    let mut writer = writer(ResponseFormat::Delta);
    writer.set_action(FileAction::Remove, Some(Stamp { version: 7, timestamp_ms: None }));
    let lines = write(&mut writer, &batch);
    assert_eq!(lines[0]["file"].get("timestamp"), None);
    let removes: Vec<_> = lines.iter().map(|line| &line["file"]["deltaSingleAction"]["remove"]).collect();
    assert_eq!(*removes[0], json!({"path": signed("a"), "dataChange": true}));
    assert_eq!(
        *removes[1],
        json!({"path": signed("b"), "dataChange": false, "extendedFileMetadata": false, "size": 1001,
            "stats": "{\"numRecords\":1}", "tags": {}})
    );
    assert_eq!(
        *removes[2],
        json!({"path": signed("c"), "dataChange": true, "deletionTimestamp": 1_700_000_000_000_i64,
            "partitionValues": {"d": "x"}, "tags": {"a": "\u{2028}\n"}})
    );
}

#[test]
fn tags_are_handed_on_in_the_delta_format_alone() {
    let mut batch = batch(&["a", "b"]);
    batch.tags = Some(StringViewArray::from(vec![Some("{\"k\": \"v\", \"n\":null}"), None]));
    for (action, name) in [
        (FileAction::Live, "add"),
        (FileAction::Add, "add"),
        (FileAction::Remove, "remove"),
        (FileAction::Cdc, "cdc"),
    ] {
        let mut writer = writer(ResponseFormat::Delta);
        writer.set_action(action, Some(Stamp { version: 7, timestamp_ms: Some(8) }));
        let lines = write(&mut writer, &batch);
        let tags = |line: usize| lines[line]["file"]["deltaSingleAction"][name].get("tags").cloned();
        assert_eq!((tags(0), tags(1)), (Some(json!({"k": "v", "n": null})), None));
    }
    let line = write(&mut writer(ResponseFormat::Parquet), &batch).remove(0);
    assert_eq!(line["file"].get("tags"), None);
}

#[test]
fn a_line_expires_with_the_first_of_its_urls() {
    let mut batch = batch(&["a", "s3://other/b", "c"]);
    batch.deletion_vector = Some(vec![Some(Box::new(vector(b'p', "s3://other/dv%20.bin"))), None, None]);
    let (mut writer, mut out) = (writer(ResponseFormat::Delta), Vec::new());
    let counts = writer.write(&batch, &[0, 1, 2], &mut out).unwrap();
    let lines = lines(&out);
    let expiry = |index: usize| lines[index]["file"]["expirationTimestamp"].as_i64().unwrap();
    assert_eq!([expiry(0), expiry(1), expiry(2)], [NOW_MS + 100_000, NOW_MS + 100_000, EXPIRES_MS]);
    assert_eq!(counts.min_expiration_ms, Some(NOW_MS + 100_000));
    let url = &lines[0]["file"]["deltaSingleAction"]["add"]["deletionVector"]["pathOrInlineDv"];
    assert_eq!(*url, signed("s3://other/dv%20.bin"));
}

#[test]
fn vectors_that_break_the_protocol_are_corrupt_or_forbidden() {
    for (storage_type, path, is_forbidden) in [
        (b'x', "a", false),
        (b'u', "short", false),
        (b'u', "é234567890123456789", false),
        (b'u', "~~~~~~~~~~~~~~~~~~~~", false),
        (b'p', "s3://elsewhere/dv.bin", true),
        (b'u', &format!("../x{UUID_TEXT}"), true),
    ] {
        let mut batch = batch(&["a"]);
        batch.deletion_vector = Some(vec![Some(Box::new(vector(storage_type, path)))]);
        match writer(ResponseFormat::Delta).write(&batch, &[0], &mut Vec::new()) {
            Err(Error::CorruptLog { .. }) => assert!(!is_forbidden, "{path}"),
            Err(Error::ForbiddenPath) => assert!(is_forbidden, "{path}"),
            other => panic!("{path}: {other:?}"),
        }
    }
}

#[test]
fn a_forbidden_file_ends_the_answer_after_whole_lines() {
    let paths: Vec<String> = (0..40).map(|index| format!("part-{index}")).collect();
    let mut paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    paths[37] = "../secret";
    let batch = batch(&paths);
    let (rows, mut out): (Vec<u32>, _) = ((0..40).collect(), Vec::new());
    let mut writer = writer(ResponseFormat::Parquet);
    assert!(matches!(writer.write(&batch, &rows, &mut out), Err(Error::ForbiddenPath)));
    let lines = lines(&out);
    assert_eq!(lines.len(), 37);
    for (line, path) in lines.iter().zip(&paths) {
        assert_eq!(line["file"]["url"], signed(path));
    }
}

#[test]
fn only_the_chosen_rows_are_written_in_their_order() {
    let paths: Vec<String> = (0..100).map(|index| format!("part-{index}")).collect();
    let batch = batch(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    let rows: Vec<u32> = (0..100).filter(|row| row % 3 == 0).collect();
    let mut out = Vec::new();
    let counts = writer(ResponseFormat::Delta).write(&batch, &rows, &mut out).unwrap();
    assert_eq!(counts.files, 34);
    for (line, row) in lines(&out).iter().zip(rows) {
        assert_eq!(line["file"]["deltaSingleAction"]["add"]["path"], signed(&paths[row as usize]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_written_file_parses_back(
        files in prop::collection::vec(
            ("[a-z0-9=%é/ \"\\\\]{1,80}", prop::option::of("([a-z{}:\"\\\\]|[\u{7f}-\u{8f}]|[\u{2027}-\u{202a}]){0,200}")),
            0..50,
        ),
        delta in any::<bool>(),
    ) {
        let is_name = |path: &str| percent_decode(path).is_some_and(|key| !key.contains('\0'));
        let files: Vec<_> =
            files.into_iter().filter(|(path, _)| !path.starts_with('/') && is_name(path)).collect();
        let mut batch = batch(&files.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>());
        batch.stats = Some(files.iter().map(|(_, stats)| stats.as_deref()).collect::<StringViewArray>().into());
        let rows: Vec<u32> = (0..files.len() as u32).collect();
        let format = if delta { ResponseFormat::Delta } else { ResponseFormat::Parquet };
        let (mut out, mut again) = (Vec::new(), Vec::new());
        let mut writer = writer(format);
        let counts = writer.write(&batch, &rows, &mut out).unwrap();
        prop_assert_eq!(counts.files as usize, files.len());
        let ids = FileIds::of(format.id_scheme(), &batch.path);
        writer.clone().write_with_ids(&batch, Some(&ids), &rows, &mut again).unwrap();
        prop_assert_eq!(&out, &again);
        batch.prepare_for_cache();
        again.clear();
        writer.write(&batch, &rows, &mut again).unwrap();
        prop_assert!(out == again, "a batch that stays is written alike");
        let text = std::str::from_utf8(&out).unwrap();
        prop_assert!(!text.contains(LINE_SEPARATORS), "a raw separator");
        for (index, (line, (path, stats))) in lines(&out).iter().zip(&files).enumerate() {
            let file = &line["file"];
            let fields = if delta { &file["deltaSingleAction"]["add"] } else { file };
            let url = &fields[if delta { "path" } else { "url" }];
            prop_assert_eq!(url, &signed(path));
            let expected = stats.as_ref().filter(|stats| !stats.is_empty());
            prop_assert_eq!(fields.get("stats").and_then(Value::as_str), expected.map(String::as_str));
            prop_assert_eq!(&fields["size"], &json!(1000 + index));
            let id = if delta { hex(&sha2::Sha256::digest(path)) } else { hex(&md5::Md5::digest(path)) };
            prop_assert_eq!(&file["id"], &id);
        }
    }
}
