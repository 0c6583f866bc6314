//! Files that are cut, flipped or of other types.

use ::parquet::basic::Compression;
use ::parquet::file::properties::WriterProperties;
use arrow_schema::DataType;

use super::*;
use writer::{Log, add_fields, parquet, schema, schema_of};

fn properties() -> WriterProperties {
    WriterProperties::builder().set_compression(Compression::SNAPPY).build()
}

fn rows() -> Vec<Value> {
    let mut rows = vec![protocol_row(), metadata_row(&["day", "city"])];
    rows.extend((0..40).map(add_row));
    rows
}

/// Reads all of a classic checkpoint of these bytes.
fn outcome(content: &[u8]) -> Result<usize> {
    let log = Log::new();
    let checkpoint = open(log.root(), &log.classic(content))?;
    Ok(read(&checkpoint, everything())?.iter().map(FileBatch::len).sum())
}

#[test]
fn a_file_that_is_cut_anywhere_is_a_corrupt_log() {
    let content = parquet(&schema(), &rows(), properties());
    assert_eq!(outcome(&content).unwrap(), 40);
    for length in (0..content.len()).step_by(97) {
        let error = outcome(&content[..length]).unwrap_err();
        assert!(matches!(error, Error::CorruptLog { .. }), "{length}: {error:?}");
    }
}

#[test]
fn a_flipped_bit_gives_a_corrupt_log_or_other_values_but_never_a_panic() {
    let content = parquet(&schema(), &rows(), properties());
    let outcomes: Vec<_> = (0..content.len())
        .step_by(23)
        .map(|position| {
            let mut damaged = content.clone();
            damaged[position] ^= 1 << (position % 8);
            outcome(&damaged)
        })
        .collect();
    for outcome in &outcomes {
        assert!(matches!(outcome, Ok(_) | Err(Error::CorruptLog { .. })), "{outcome:?}");
    }
    assert!(outcomes.iter().filter(|outcome| outcome.is_err()).count() > 10);
}

#[test]
fn a_required_field_that_is_null_is_a_corrupt_log() {
    for field in ["path", "size", "modificationTime", "dataChange"] {
        let mut rows = rows();
        rows[9]["add"][field] = Value::Null;
        let error = outcome(&parquet(&schema(), &rows, properties())).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    let mut rows = rows();
    rows[6]["add"]["deletionVector"]["sizeInBytes"] = Value::Null;
    let error = outcome(&parquet(&schema(), &rows, properties())).unwrap_err();
    assert!(error.to_string().contains("deletionVector"), "{error}");
}

#[test]
fn a_column_of_another_type_is_a_corrupt_log() {
    for (column, wrong) in [
        ("path", DataType::Int64),
        ("partitionValues", DataType::Utf8),
        ("size", DataType::Utf8),
        ("modificationTime", DataType::Boolean),
        ("dataChange", DataType::Int64),
        ("stats", DataType::Int32),
        ("deletionVector", DataType::Utf8),
        ("baseRowId", DataType::Int32),
    ] {
        let mut columns = add_fields();
        for (name, data_type) in &mut columns {
            if *name == column {
                *data_type = wrong.clone();
            }
        }
        let value = match wrong {
            DataType::Utf8 => json!("x"),
            DataType::Boolean => json!(true),
            _ => json!(7),
        };
        let mut rows = rows();
        for row in &mut rows {
            if row.get("add").is_some() {
                row["add"][column] = value.clone();
            }
        }
        let error = outcome(&parquet(&schema_of(&columns), &rows, properties())).unwrap_err();
        assert!(matches!(error, Error::CorruptLog { .. }), "{column}: {error:?}");
    }
}

#[test]
fn a_missing_sidecar_is_named_without_its_directory_and_one_elsewhere_is_not_opened() {
    let log = Log::new();
    for (path, expected) in [
        ("gone.parquet", "gone.parquet"),
        ("../../../etc/gone.parquet", "gone.parquet"),
        ("s3://other/_delta_log/_sidecars/gone.parquet", "gone.parquet"),
    ] {
        let rows = [protocol_row(), metadata_row(&[]), json!({"sidecar": {"path": path, "sizeInBytes": 9}})];
        let files = log.classic(&parquet(&schema(), &rows, properties()));
        let error = read(&open(log.root(), &files).unwrap(), everything()).unwrap_err();
        assert!(matches!(&error, Error::FileNotFound { file } if file == expected), "{error:?}");
    }
    for path in ["", "a/..", "%2e%2e", "a%2f..%2f..%2fb", "dir/"] {
        let rows = [protocol_row(), metadata_row(&[]), json!({"sidecar": {"path": path, "sizeInBytes": 9}})];
        let files = log.classic(&parquet(&schema(), &rows, properties()));
        assert!(matches!(open(log.root(), &files), Err(Error::CorruptLog { .. })), "{path}");
    }
}

#[test]
fn a_page_that_would_fill_the_memory_is_a_corrupt_log() {
    // Honest by its header, and larger than any page of a checkpoint has to be.
    let stats = "x".repeat(257 << 20);
    let mut rows = rows();
    rows[2]["add"]["stats"] = json!(stats);
    let content = parquet(&schema(), &rows, properties());
    assert!(content.len() < 40 << 20);
    let error = outcome(&content).unwrap_err();
    assert!(matches!(&error, Error::CorruptLog { reason, .. } if reason.contains("too large")), "{error:?}");
}

#[test]
fn pages_that_are_large_together_and_texts_of_an_add_that_are_too_long_are_a_corrupt_log() {
    let refused = |fields: &[(&str, usize)]| {
        let mut rows = rows();
        for (field, mebibytes) in fields {
            rows[2]["add"][*field] = json!("x".repeat(mebibytes << 20));
        }
        outcome(&parquet(&schema(), &rows, properties())).map_err(|error| error.to_string())
    };
    assert_eq!(refused(&[("stats", 7)]).unwrap(), 40);
    assert!(refused(&[("stats", 9)]).unwrap_err().contains("the texts of an add are too long"));
    let together = refused(&[("stats", 30), ("clusteringProvider", 30), ("path", 30)]);
    assert!(together.unwrap_err().contains("the pages of a row are too large"));
}
