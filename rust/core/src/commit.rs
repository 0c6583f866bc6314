//! One JSON file of the log: a commit, or the top file of a JSON checkpoint.
//!
//! Takes the bytes of the file. Returns the protocol, the metadata, the in-commit timestamp, and the file actions as
//! [`Columns`], whose strings are views into the file. Parses each byte once. Skips unknown actions and fields. A
//! malformed action is an [`Error::CorruptLog`] that names the file and the line.

mod columns;
mod json;
mod text;

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem::find;

use crate::actions::{Metadata, Protocol};
use crate::error::{Error, Result};
use crate::storage::MAX_LINE_BYTES;

pub(crate) use columns::FileFacts;
pub use columns::{Columns, FileColumns};
use json::Line;
pub(crate) use json::MetadataJson;

/// The actions of one file.
#[derive(Debug, Default)]
pub struct CommitFile {
    /// The name without the directory.
    pub name: Arc<str>,
    /// The last `protocol` action.
    pub protocol: Option<Protocol>,
    /// The last `metaData` action.
    pub metadata: Option<Metadata>,
    /// `commitInfo.inCommitTimestamp`, milliseconds since the epoch.
    pub in_commit_timestamp_ms: Option<i64>,
    /// Whether `commitInfo` states a merge that changed no row.
    is_merge_without_changes: bool,
    /// The number of lines that are not blank.
    pub actions: u32,
    /// The `add` actions.
    pub adds: Columns,
    /// The `remove` actions; `modificationTime` is their `deletionTimestamp`.
    pub removes: Columns,
    /// The `cdc` actions.
    pub cdc: Columns,
}

impl CommitFile {
    /// Parses a commit. Writers give each one an action, so one without any has lost its content.
    pub fn parse(name: &str, bytes: &Bytes) -> Result<Self> {
        let file = Self::parse_lines(name, bytes)?;
        if file.actions == 0 { Err(Error::corrupt(name, "it has no actions")) } else { Ok(file) }
    }

    /// Parses the lines of a file or of a part of it. Row numbers count lines that are not blank.
    pub(crate) fn parse_lines(name: &str, bytes: &Bytes) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|_| Error::corrupt(name, "it is not UTF-8"))?;
        let mut file = Self { name: name.into(), ..Self::default() };
        let mut row = 0;
        // Some Windows tools start a file with a byte order mark.
        for (index, line) in text.trim_start_matches('\u{feff}').split('\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            if line.len() > MAX_LINE_BYTES {
                return Err(Error::corrupt(name, format!("line {} is too long", index + 1)));
            }
            let actions = serde_json::from_str(line).map_err(|error| {
                let is_last = || text.trim_ascii_end().ends_with(line);
                let reason = if error.is_eof() && !is_last() {
                    "its JSON continues on the next line, but an action must be on a single line".to_owned()
                } else {
                    reason(&error)
                };
                Error::corrupt(name, format!("line {}: {reason}", index + 1))
            })?;
            file.take(bytes, row, actions).ok_or_else(|| Error::corrupt(name, "it has too many actions"))?;
            row += 1;
        }
        file.actions = row;
        for columns in [&mut file.adds, &mut file.removes, &mut file.cdc] {
            columns.seal();
        }
        if file.adds.has_sizes() && file.cdc.has_sizes() {
            Ok(file)
        } else {
            Err(Error::corrupt(name, "a file has no size or a negative one"))
        }
    }

    fn take(&mut self, bytes: &Bytes, row: u32, line: Line<'_>) -> Option<()> {
        row.checked_add(1)?;
        if let Some(add) = line.add {
            self.adds.push(bytes, row, *add);
        }
        if let Some(remove) = line.remove {
            self.removes.push(bytes, row, *remove);
        }
        if let Some(cdc) = line.cdc {
            self.cdc.push(bytes, row, *cdc);
        }
        if let Some(protocol) = line.protocol {
            self.protocol = Some(protocol);
        }
        if let Some(metadata) = line.meta_data {
            self.metadata = Some((*metadata).into());
        }
        if let Some(info) = line.commit_info {
            self.in_commit_timestamp_ms =
                self.in_commit_timestamp_ms.or_else(|| json::in_commit_timestamp_ms(info));
            self.is_merge_without_changes = json::is_merge_without_changes(info);
        }
        Some(())
    }

    /// Whether adds and removes are no changes of rows, for the change data feed: change files have these changes, or a
    /// merge wrote unchanged rows again.
    pub(crate) fn hides_files_from_feed(&self) -> bool {
        !self.cdc.is_empty() || self.is_merge_without_changes
    }
}

/// Returns whether text may have a key, given in quotes, without parsing it. Escapes may spell any key.
pub(crate) fn may_have_key(json: &[u8], key: &str) -> bool {
    find(json, key.as_bytes()).is_some() || find(json, b"\\u").is_some()
}

/// Returns `commitInfo.txnId` of a commit, if it has one.
pub(crate) fn transaction_id(bytes: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LineWithInfo {
        commit_info: Info,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Info {
        txn_id: String,
    }
    let is_info = |line: &&[u8]| may_have_key(line, "\"txnId\"") && may_have_key(line, "\"commitInfo\"");
    let mut infos = bytes.split(|byte| *byte == b'\n').filter(is_info);
    infos
        .find_map(|line| serde_json::from_slice::<LineWithInfo>(line).ok())
        .map(|line| line.commit_info.txn_id)
}

/// The protocol and the metadata of a commit, without its file actions.
#[derive(Debug, Default)]
pub(crate) struct CommitHeads {
    pub(crate) protocol: Option<Protocol>,
    pub(crate) metadata: Option<Metadata>,
}

impl CommitHeads {
    pub(crate) fn parse(name: &str, bytes: &Bytes) -> Result<Self> {
        let mut heads = Self::default();
        let is_head =
            |line: &[u8]| ["\"metaData\"", "\"protocol\""].iter().any(|key| may_have_key(line, key));
        if !is_head(bytes) {
            return Ok(heads);
        }
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| is_head(line)) {
            // The error of the whole file has the line's number in the file.
            let commit = CommitFile::parse(name, &bytes.slice_ref(line))
                .map_err(|error| CommitFile::parse(name, bytes).err().unwrap_or(error))?;
            heads.protocol = commit.protocol.or(heads.protocol);
            heads.metadata = commit.metadata.or(heads.metadata);
        }
        Ok(heads)
    }
}

/// Returns the message of serde without the position, which is relative to the line.
fn reason(error: &serde_json::Error) -> String {
    let words = error.to_string();
    match words.rfind(" at line ") {
        Some(at) => words.get(..at).unwrap_or(&words).to_owned(),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use proptest::prelude::*;

    use super::*;
    use crate::actions::{FileBatch, SourceId, Stats};
    use crate::partition::PartitionInterner;

    fn parse(text: &str) -> CommitFile {
        CommitFile::parse("00000000000000000000.json", &Bytes::from(text.to_owned())).unwrap()
    }

    fn adds(text: &str) -> FileBatch {
        parse(text).adds.batch(SourceId(0), "f", &mut PartitionInterner::new::<&str>(&[])).unwrap()
    }

    fn refused(text: &str) -> String {
        let error =
            CommitFile::parse("00000000000000000000.json", &Bytes::from(text.to_owned())).unwrap_err();
        assert!(matches!(error, Error::CorruptLog { .. }), "{error:?}");
        error.to_string()
    }

    #[test]
    fn all_actions_of_a_commit_are_read_in_one_pass() {
        let file = parse(concat!(
            r#"{"commitInfo":{"timestamp":1,"inCommitTimestamp":77,"operation":"WRITE","x":{"y":[1]}}}"#,
            "\n",
            r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["b","a"],"writerFeatures":["w"]}}"#,
            "\n",
            r#"{"metaData":{"id":"i","format":{"provider":"parquet","options":{"z":"1","a":"2"}},"schemaString":"{\"a\":1}","partitionColumns":["p"],"configuration":{"z":"1","a":null,"b":"2"},"createdTime":5}}"#,
            "\n",
            r#"{"txn":{"appId":"x","version":1}}"#,
            "\n",
            r#"{"add":{"path":"a%20b","partitionValues":{"p":"1"},"size":10,"modificationTime":20,"dataChange":false,"stats":"{\"n\":\"\\u00e9\"}","tags":{"t":"1"},"baseRowId":3,"defaultRowCommitVersion":4,"clusteringProvider":"liquid"}}"#,
            "\n",
            r#"{"remove":{"path":"old","deletionTimestamp":9,"dataChange":true,"extendedFileMetadata":true,"partitionValues":{},"size":7,"deletionVector":{"storageType":"u","pathOrInlineDv":"ab","offset":1,"sizeInBytes":40,"cardinality":6}}}"#,
            "\n",
            r#"{"cdc":{"path":"_change_data/c","partitionValues":{"p":"2"},"size":8,"dataChange":false}}"#,
        ));
        assert_eq!(file.in_commit_timestamp_ms, Some(77));
        let protocol = file.protocol.unwrap();
        assert_eq!(protocol.reader_features.unwrap(), ["b", "a"]);
        let metadata = file.metadata.unwrap();
        assert_eq!(metadata.format_options, [("z".into(), "1".into()), ("a".into(), "2".into())]);
        assert_eq!(metadata.configuration, [("z".into(), "1".into()), ("b".into(), "2".into())]);
        assert_eq!(metadata.schema_string.as_deref(), Some(r#"{"a":1}"#));

        let mut interner = PartitionInterner::new(&["p"]);
        let adds = file.adds.batch(SourceId(3), &file.name, &mut interner).unwrap();
        assert_eq!((adds.source, &adds.row[..]), (SourceId(3), &[4][..]));
        assert_eq!(adds.path.value(0), "a%20b");
        assert_eq!(adds.stats.unwrap().into_raw().value(0), r#"{"n":"\u00e9"}"#);
        assert_eq!((adds.size[0], adds.modification_time_ms[0]), (10, 20));
        assert_eq!(adds.data_change, Some(vec![false]));
        assert_eq!(adds.base_row_id.unwrap().value(0), 3);
        assert_eq!(adds.default_row_commit_version.unwrap().value(0), 4);
        assert_eq!(adds.clustering_provider.unwrap().value(0), "liquid");
        assert_eq!(adds.partitions.dictionary[0].json.as_ref(), br#"{"p":"1"}"#);

        let removes = file.removes.batch(SourceId(0), &file.name, &mut interner).unwrap();
        assert_eq!(removes.deletion_vector_at(0).unwrap().unique_id(), "uab@1");
        assert_eq!((removes.size[0], removes.modification_time_ms[0]), (7, 9));
        assert_eq!(
            file.cdc.batch(SourceId(0), &file.name, &mut interner).unwrap().path.value(0),
            "_change_data/c"
        );
    }

    #[test]
    fn a_commit_of_one_line_takes_little_memory() {
        let line = r#"{"add":{"path":"part-0","size":1,"stats":"{\"numRecords\":1}"}}"#;
        let unescaped = line.replace(r#""{\"numRecords\":1}""#, r#"{"numRecords":1}"#);
        for text in [line, &unescaped] {
            let adds = adds(text);
            let Some(Stats::Raw(stats) | Stats::EscapedViews(stats)) = adds.stats else {
                panic!("{text}");
            };
            let bytes = [&adds.path, &stats].map(Array::get_array_memory_size);
            assert!(bytes.iter().all(|bytes| *bytes < 512), "{bytes:?} {text}");
        }
    }

    #[test]
    fn crlf_blank_lines_a_missing_last_newline_and_explicit_nulls_are_read() {
        let file = parse(
            "\u{feff}\r\n{\"add\":{\"path\":\"a\",\"size\":1,\"deletionVector\":null,\"stats\":null},\"remove\":null}\r\n\n   \n { \"add\" : {\"path\":\"b\",\"size\":1} } ",
        );
        let adds =
            file.adds.batch(SourceId(0), &file.name, &mut PartitionInterner::new::<&str>(&[])).unwrap();
        assert_eq!(adds.row, [0, 1]);
        assert_eq!(adds.path.iter().flatten().collect::<Vec<_>>(), ["a", "b"]);
        assert!(adds.stats.is_none() && adds.deletion_vector.is_none() && adds.data_change.is_none());
        assert!(file.removes.is_empty());
    }

    #[test]
    fn a_commit_without_any_action_is_refused() {
        for text in ["", "\n", "\u{feff} \r\n\n"] {
            assert!(refused(text).contains("it has no actions"), "{text:?}");
        }
    }

    #[test]
    fn numbers_are_read_as_real_writers_spell_them() {
        for (size, expected) in [("1.0", 1), ("1E3", 1000), ("\"12\"", 12), ("9223372036854775807", i64::MAX)]
        {
            let adds = adds(&format!(r#"{{"add":{{"path":"a","size":{size}}}}}"#));
            assert_eq!(adds.size, [expected], "{size}");
        }
        for size in ["1.5", "1e30", "9223372036854775808", "\"\"", "\"x\"", "true", "[]"] {
            refused(&format!(r#"{{"add":{{"path":"a","size":{size}}}}}"#));
        }
    }

    #[test]
    fn keys_with_escapes_are_found_by_those_who_look_for_single_actions() {
        let text = concat!(
            r#"{"commitInf\u006f":{"txnI\u0064":"x","inCommitTimest\u0061mp":7}}"#,
            "\n",
            r#"{"pr\u006ftocol":{"minReaderVersion":1,"minWriterVersion":2}}"#,
            "\n",
            r#"{"met\u0061Data":{"id":"i"}}"#,
        );
        assert_eq!(transaction_id(text.as_bytes()).as_deref(), Some("x"));
        assert_eq!(parse(text).in_commit_timestamp_ms, Some(7));
        let heads = CommitHeads::parse("f", &Bytes::from_static(text.as_bytes())).unwrap();
        assert!(heads.protocol.is_some() && heads.metadata.is_some());
    }

    #[test]
    fn numbers_of_32_bits_and_properties_are_read_in_any_notation_too() {
        let file = parse(concat!(
            r#"{"protocol":{"minReaderVersion":1.0,"minWriterVersion":"2"}}"#,
            "\n",
            r#"{"metaData":{"id":"i","configuration":{"a":1,"b":true,"c":1.50,"d":null}}}"#,
            "\n",
            r#"{"add":{"path":"a","size":1,"deletionVector":{"storageType":"u","pathOrInlineDv":"ab","offset":"1","sizeInBytes":36.0,"cardinality":2}}}"#,
        ));
        let protocol = file.protocol.as_ref().unwrap();
        assert_eq!((protocol.min_reader_version, protocol.min_writer_version), (1, 2));
        let expected =
            [("a", "1"), ("b", "true"), ("c", "1.50")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(file.metadata.as_ref().unwrap().configuration, expected);
        let vector = file.adds.deletion_vector(0).unwrap();
        assert_eq!((vector.offset, vector.size_in_bytes), (Some(1), 36));
        refused(r#"{"protocol":{"minReaderVersion":2147483648,"minWriterVersion":2}}"#);
        refused(r#"{"metaData":{"id":"i","configuration":{"a":{}}}}"#);
    }

    #[test]
    fn partition_values_that_are_no_strings_keep_their_text() {
        let file = parse(
            r#"{"add":{"path":"a","size":1,"partitionValues":{"s":"x\"\u00e9","n":12,"b":true,"z":null,"e":"","other":"y"}}}"#,
        );
        let names = ["s", "n", "b", "z", "e", "absent"];
        let adds = file.adds.batch(SourceId(0), &file.name, &mut PartitionInterner::new(&names)).unwrap();
        let values: Vec<_> = adds.partitions.dictionary[0].values.iter().map(Option::as_deref).collect();
        assert_eq!(values, [Some("x\"é"), Some("12"), Some("true"), None, None, None]);
    }

    #[test]
    fn a_deletion_vector_without_any_value_is_none_and_one_with_some_of_them_is_refused() {
        let add = |vector: &str| format!(r#"{{"add":{{"path":"a","size":1,"deletionVector":{vector}}}}}"#);
        let empty = r#"{"storageType":"","pathOrInlineDv":"","offset":0,"sizeInBytes":0,"cardinality":0}"#;
        for vector in ["{}", empty] {
            assert!(adds(&add(vector)).deletion_vector.is_none(), "{vector}");
        }
        for vector in [
            r#"{"storageType":"u"}"#,
            r#"{"cardinality":3}"#,
            r#"{"storageType":"","pathOrInlineDv":"ab","sizeInBytes":4,"cardinality":6}"#,
            r#"{"storageType":"u","pathOrInlineDv":"ab","sizeInBytes":4}"#,
            r#"{"storageType":"u","pathOrInlineDv":"ab","sizeInBytes":4,"cardinality":-1}"#,
            r#"{"storageType":"u","pathOrInlineDv":"ab","sizeInBytes":-4,"cardinality":1}"#,
            r#"{"storageType":"u","pathOrInlineDv":"ab","offset":-1,"sizeInBytes":4,"cardinality":1}"#,
        ] {
            assert!(refused(&add(vector)).contains("a deletionVector is incomplete"), "{vector}");
        }
    }

    #[test]
    fn tags_are_texts_or_left_out() {
        for (tags, expected) in [
            (r#"{ "a" : "x\u00e9" , "n":null}"#, Some(r#"{"a":"xé","n":null}"#)),
            (r#"{"a":1e999999,"b":true}"#, Some(r#"{"a":"1e999999","b":"true"}"#)),
            ("{}", Some("{}")),
            ("null", None),
            (r#"{"a":"\ud800"}"#, None),
            (r#"{"a":{"b":"c"}}"#, None),
            (r#"["a"]"#, None),
            ("1", None),
            (&format!(r#"{{"a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000)), None),
        ] {
            let adds = adds(&format!(r#"{{"add":{{"path":"a","size":1,"tags":{tags}}}}}"#));
            assert_eq!(adds.tags.as_ref().map(|tags| tags.value(0)), expected, "{tags:.40}");
        }
    }

    #[test]
    fn commit_info_may_be_any_json() {
        for info in [
            "1",
            "\"inCommitTimestamp\"",
            "[]",
            "null",
            r#"{"inCommitTimestamp":"soon"}"#,
            r#"{"a":{"inCommitTimestamp":1}}"#,
        ] {
            assert_eq!(parse(&format!(r#"{{"commitInfo":{info}}}"#)).in_commit_timestamp_ms, None, "{info}");
        }
    }

    #[test]
    fn an_action_over_several_lines_is_named_as_one() {
        let action = "{\n  \"add\": {\n    \"path\": \"a\",\n    \"size\": 1\n  }\n}\n";
        let several = "line 1: its JSON continues on the next line";
        assert!(refused(action).contains(several), "{}", refused(action));
        assert!(refused(&action.replace('\n', "\r\n")).contains(several));
        let later = format!("{{\"commitInfo\":{{}}}}\n\n{action}");
        assert!(refused(&later).contains("line 3: its JSON continues"), "{}", refused(&later));
        // A file that a writer has not finished.
        assert!(refused("{\"commitInfo\":{}}\n{\"add\":{").contains("line 2: EOF"));
        let heads = "{\"commitInfo\":{}}\n{\n\"metaData\": {\n}}\n";
        let error = CommitHeads::parse("x.json", &Bytes::from(heads.to_owned())).unwrap_err();
        assert!(error.to_string().contains("line 2: its JSON continues"), "{error}");
    }

    #[test]
    fn a_line_that_is_longer_than_any_action_is_refused() {
        let line = |bytes: usize| format!(r#"{{"txn":{{"appId":"{}"}}}}"#, "x".repeat(bytes));
        parse(&line(MAX_LINE_BYTES / 2));
        assert!(refused(&format!("{{}}\n{}", line(MAX_LINE_BYTES))).contains("line 2 is too long"));
    }

    #[test]
    fn a_broken_line_is_named_by_its_number() {
        let message = refused("{\"add\":{\"path\":\"a\",\"size\":1}}\n\n{\"add\":");
        assert!(message.contains("00000000000000000000.json") && message.contains("line 3"), "{message}");
        for text in [
            "{",
            "[]",
            "1",
            "null",
            "\"add\"",
            r#"{"add":{}}"#,
            r#"{"add":{"path":"a"}}"#,
            r#"{"add":{"path":1,"size":1}}"#,
            "{}{}",
            r#"{"add":[]}"#,
            r#"{"protocol":{}}"#,
        ] {
            refused(text);
        }
        let bytes = Bytes::from_static(b"{\"add\":{\"path\":\"\xff\",\"size\":1}}");
        assert!(matches!(CommitFile::parse("a.json", &bytes), Err(Error::CorruptLog { .. })));
    }

    #[test]
    fn json_of_any_depth_ends_in_an_answer() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let unknown =
            parse(&format!(r#"{{"unknown":{},"commitInfo":{{"x":{}}}}}"#, deep(100_000), deep(100_000)));
        assert!(unknown.adds.is_empty());
        refused(&"{\"add\":".repeat(100_000));
        refused(&format!(r#"{{"metaData":{{"configuration":{}}}}}"#, deep(100_000)));
        let values =
            format!(r#"{{"add":{{"path":"a","size":1,"partitionValues":{{"p":{}}}}}}}"#, deep(100_000));
        let file = parse(&values);
        assert!(file.adds.batch(SourceId(0), "f", &mut PartitionInterner::new(&["p"])).is_err());
    }

    const WHOLE: &str = concat!(
        r#"{"commitInfo":{"inCommitTimestamp":77}}"#,
        "\n",
        r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["a"],"writerFeatures":["w"]}}"#,
        "\n",
        r#"{"metaData":{"id":"i","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":["p"],"configuration":{"a":"b"}}}"#,
        "\n",
        r#"{"add":{"path":"é","partitionValues":{"p":"\u00e9"},"size":1,"modificationTime":2,"dataChange":true,"stats":"{\"n\":\"\\u00e9\"}","deletionVector":{"storageType":"u","pathOrInlineDv":"ab","offset":1,"sizeInBytes":4,"cardinality":6}}}"#,
        "\n",
        r#"{"remove":{"path":"a\nb","deletionTimestamp":3,"dataChange":true,"partitionValues":{"p":null},"size":1}}"#,
    );

    proptest! {
        #[test]
        fn any_damage_ends_in_an_error_or_in_readable_columns(
            damage in proptest::collection::vec((0..WHOLE.len(), any::<u8>()), 1..6),
            cut in 0..WHOLE.len(),
        ) {
            let mut bytes = WHOLE.as_bytes().to_vec();
            for (at, byte) in damage {
                bytes[at] = byte;
            }
            for bytes in [bytes.clone(), bytes[cut..].to_vec(), bytes[..cut].to_vec()] {
                let Ok(file) = CommitFile::parse("c.json", &Bytes::from(bytes)) else { continue };
                for columns in [&file.adds, &file.removes, &file.cdc] {
                    if let Ok(batch) = columns.batch(SourceId(0), "c.json", &mut PartitionInterner::new(&["p"])) {
                        prop_assert_eq!(batch.path.iter().count(), batch.len());
                        prop_assert!((0..batch.len()).all(|file| batch.path.value(file) == columns.path(file)));
                    }
                }
            }
        }
    }
}
