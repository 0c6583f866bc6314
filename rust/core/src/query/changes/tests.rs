use serde_json::{Value, json};

use super::*;
use crate::changes::{ChangeKind, Changes};
use crate::checkpoint::tests::protocol_row;
use crate::checkpoint::tests::writer::Log;
use crate::sign::{Signer, SignerSet, SigningRoot};
use crate::stop::Stop;
use crate::storage::Storage;

fn metadata(partition_columns: &[&str]) -> Value {
    let field = |name: &str| json!({"name": name, "type": "string", "nullable": true, "metadata": {}});
    let schema = json!({"type": "struct", "fields": [field("p"), field("q"), field("x")]});
    json!({"metaData": {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema.to_string(),
        "partitionColumns": partition_columns, "configuration": {"delta.enableChangeDataFeed": "true"},
    }})
}

fn file(action: &str, path: &str, partition_values: &Value) -> Value {
    json!({action: {
        "path": path, "partitionValues": partition_values, "size": 10, "modificationTime": 1, "deletionTimestamp": 1,
        "dataChange": true,
    }})
}

/// The kind, path and partition values of each file of a range that `hint` keeps.
fn answered(
    log: &Log,
    kind: ChangeKind,
    start: i64,
    format: ResponseFormat,
    hint: &str,
) -> Vec<(String, String, Value)> {
    let mut changes = Changes::open(&Storage::local(), log.root(), kind, start, None, None).unwrap();
    changes.survey(&Stop::default()).unwrap();
    let mut batches = changes.batches(start).unwrap();
    if format == ResponseFormat::Parquet {
        batches = batches.with_complete_removes(&Stop::default());
    }
    let signer = Signer::local("http://f/t", &[7; 32]).unwrap();
    let signers = SignerSet::new(SigningRoot::new(log.root(), signer).unwrap(), vec![]);
    let urls = signers.stream(1_700_000_000_000, 60).unwrap();
    let options = ChangeOptions {
        rule: None,
        format,
        include_historical_metadata: false,
        include_historical_protocol: false,
        hints: Hints { sql: vec![hint.to_owned()], json: None },
        max_files: None,
        access: Arc::default(),
    };
    let writer = LineWriter::new(format, format.id_scheme(), urls);
    let from = ChangeCursor { version: start, skip: 0 };
    let heading = changes.heading().metadata();
    let mut source = ChangeLines::new(Vec::new(), heading, batches, from, options, writer);
    let mut out = Vec::new();
    while let Turn::Lines(work) = source.next_turn().unwrap() {
        work(&mut out).unwrap();
    }
    let text = String::from_utf8(out).unwrap();
    text.lines().map(|line| described(&serde_json::from_str(line).unwrap())).collect()
}

fn described(line: &Value) -> (String, String, Value) {
    let action = line.get("file").map_or(line, |file| &file["deltaSingleAction"]);
    let (kind, file) = action.as_object().unwrap().iter().next().unwrap();
    let url = file.get("url").or_else(|| file.get("path")).unwrap().as_str().unwrap();
    let name = url.split('?').next().unwrap().rsplit('/').next().unwrap();
    (kind.clone(), name.to_owned(), file["partitionValues"].clone())
}

fn expected(files: &[(&str, &str, Value)]) -> Vec<(String, String, Value)> {
    let owned = |(kind, name, values): &(&str, &str, Value)| ((*kind).into(), (*name).into(), values.clone());
    files.iter().map(owned).collect()
}

const KINDS: [ChangeKind; 2] = [ChangeKind::Files, ChangeKind::ChangeDataFeed];

#[test]
fn a_predicate_on_a_new_partition_column_keeps_files_of_the_old_partitioning() {
    let bare = json!({"remove": {"path": "bare", "deletionTimestamp": 1, "dataChange": true}});
    let log = Log::of(&[
        vec![
            protocol_row(),
            metadata(&["p"]),
            file("add", "old", &json!({"p": "1\u{2028}"})),
            file("add", "bare", &json!({"p": "2"})),
        ],
        vec![
            metadata(&["q"]),
            file("remove", "old", &json!({"p": "1\u{2028}"})),
            bare,
            file("add", "new", &json!({"q": "z"})),
            file("add", "other", &json!({"q": "y"})),
            file("remove", "null", &json!({"q": null})),
        ],
    ]);
    for kind in KINDS {
        assert_eq!(
            answered(&log, kind, 1, ResponseFormat::Delta, "q = 'z'"),
            expected(&[
                ("add", "new", json!({"q": "z"})),
                ("remove", "old", json!({"p": "1\u{2028}"})),
                ("remove", "bare", Value::Null),
            ])
        );
        assert_eq!(
            answered(&log, kind, 1, ResponseFormat::Parquet, "q = 'z'"),
            expected(&[
                ("add", "new", json!({"q": "z"})),
                ("remove", "old", json!({"q": null})),
                ("remove", "bare", json!({"q": null})),
            ])
        );
    }
    let known = answered(&log, ChangeKind::Files, 1, ResponseFormat::Delta, "q IS NULL");
    assert!(known.contains(&("remove".into(), "null".into(), json!({"q": null}))), "{known:?}");
}

#[test]
fn a_remove_after_a_change_of_some_partition_columns_is_kept_and_handed_on_as_logged() {
    let old = json!({"p": "1", "q": "2"});
    for columns in [vec!["q", "x"], vec!["p"], vec![]] {
        let log = Log::of(&[
            vec![protocol_row(), metadata(&["p", "q"]), file("add", "old", &old)],
            vec![metadata(&columns), file("remove", "old", &old)],
        ]);
        let found = answered(&log, ChangeKind::Files, 1, ResponseFormat::Delta, "x = 'none'");
        assert_eq!(found, expected(&[("remove", "old", old.clone())]), "{columns:?}");
        let found = answered(&log, ChangeKind::Files, 1, ResponseFormat::Parquet, "x = 'none'");
        let values: serde_json::Map<String, Value> = columns
            .iter()
            .map(|name| ((*name).to_owned(), old.get(*name).cloned().unwrap_or_default()))
            .collect();
        assert_eq!(found, expected(&[("remove", "old", Value::Object(values))]), "{columns:?}");
    }
}

/// Partition columns with the physical names `c2` and `c3`.
fn mapped(names: [&str; 2]) -> Value {
    let field = |(number, name): (usize, &str)| {
        let column = json!({
            "delta.columnMapping.id": number, "delta.columnMapping.physicalName": format!("c{number}"),
        });
        json!({"name": name, "type": "string", "nullable": true, "metadata": column})
    };
    let fields: Vec<_> = (2..).zip(names).map(field).collect();
    json!({"metaData": {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": names,
        "schemaString": json!({"type": "struct", "fields": fields}).to_string(),
        "configuration": {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"},
    }})
}

#[test]
fn a_hint_means_the_columns_at_the_head_of_the_answer_in_every_version() {
    let (x, y) = (json!({"c2": "x", "c3": "y"}), json!({"c2": "y", "c3": "x"}));
    let log = Log::of(&[
        vec![json!({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}), mapped(["day", "shipped"])],
        vec![file("add", "a", &x), file("add", "b", &y)],
        vec![mapped(["ordered", "day"])],
        vec![file("add", "c", &x), file("add", "d", &y)],
    ]);
    for kind in KINDS {
        let names = |start| -> Vec<_> {
            let found = answered(&log, kind, start, ResponseFormat::Delta, "day = 'x'").into_iter();
            found.map(|(_, name, _)| name).collect()
        };
        assert_eq!(names(1), ["a", "c", "d"]);
        assert_eq!(names(3), ["d"]);
    }
}
