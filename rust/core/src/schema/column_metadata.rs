//! The metadata of columns in a `schemaString`, as recipients see it.
//!
//! Providers and writers keep private things there: expressions of generated columns, constraints, counters of identity
//! columns, tags. Recipients get what they read with, at every depth, and nothing else. The rest of the text stays byte
//! for byte.

use std::borrow::Cow;

use memchr::memmem;

use crate::json_scanner::Scanner;

const METADATA: &str = "metadata";

/// What the readers of a response format need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnMetadata {
    /// Comments, and the lengths of `char` and `varchar`: Spark pads the values of a `char` by them.
    CommentsAndLengths,
    /// The same and what Delta's reader features keep with a column: widened types and collations.
    ReaderFeatures,
    /// The same and mapped names and ids. Where column mapping is off, those that some writers leave behind make Delta
    /// Kernel refuse the table.
    MappedReaderFeatures,
}

impl ColumnMetadata {
    fn keeps(self, key: &str) -> bool {
        let is_mapping = || key.starts_with("delta.columnMapping.");
        match key {
            "comment" | "__CHAR_VARCHAR_TYPE_STRING" => true,
            "delta.typeChanges" | "__COLLATIONS" => self != Self::CommentsAndLengths,
            _ => self == Self::MappedReaderFeatures && is_mapping(),
        }
    }

    /// Returns a schema without the other metadata of its columns. A text that is not JSON, which no client reads, is
    /// returned unchanged.
    pub(crate) fn of(self, schema_string: &str) -> Cow<'_, str> {
        let finder = memmem::find_iter(schema_string.as_bytes(), METADATA.as_bytes());
        let is_empty = |at: usize| schema_string[at..].starts_with("metadata\":{}");
        let is_escaped = || schema_string.contains("\\u");
        if finder.into_iter().all(is_empty) && !is_escaped() {
            return Cow::Borrowed(schema_string);
        }
        self.rewritten(schema_string).map_or(Cow::Borrowed(schema_string), Cow::Owned)
    }

    /// Copies all but members of objects with the key `metadata`. A string before a colon is always a key.
    fn rewritten(self, text: &str) -> Option<String> {
        let mut scanner = Scanner { json: text, position: 0 };
        let mut out = String::with_capacity(text.len());
        let mut copied = 0;
        while scanner.skip_to(b'"') {
            let key = scanner.string()?;
            let is_found = scanner.take(b':').is_some() && key.unescaped().is_some_and(|key| key == METADATA);
            if !is_found || scanner.take(b'{').is_none() {
                continue;
            }
            out.push_str(text.get(copied..scanner.position)?);
            self.copy_members(&mut scanner, &mut out)?;
            copied = scanner.position;
        }
        out.push_str(text.get(copied..)?);
        Some(out)
    }

    /// Copies the members that are kept, and stops at the end of the object.
    fn copy_members(self, scanner: &mut Scanner<'_>, out: &mut String) -> Option<()> {
        let (mut is_first, mut is_first_kept) = (true, true);
        while scanner.peek()? != b'}' {
            if !is_first {
                scanner.take(b',')?;
            }
            is_first = false;
            scanner.peek()?;
            let start = scanner.position;
            let key = scanner.string()?;
            scanner.take(b':')?;
            scanner.skip_value()?;
            if key.unescaped().is_some_and(|key| self.keeps(&key)) {
                out.push_str(if is_first_kept { "" } else { "," });
                is_first_kept = false;
                out.push_str(scanner.json.get(start..scanner.position)?);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn field(name: &str, data_type: &Value, metadata: &Value) -> Value {
        json!({"name": name, "type": data_type, "nullable": true, "metadata": metadata})
    }

    fn private() -> Value {
        json!({
            "comment": "a \"comment\" of } and {", "delta.generationExpression": "salary * 2",
            "delta.invariants": "{\"expression\":{\"expression\":\"a > 1\"}}", "delta.identity.highWaterMark": 7,
            "tag": {"metadata": {"comment": "private"}, "list": [1, [2, {"a": "]}"}]]}, "CURRENT_DEFAULT": "secret()",
            "delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "col-1",
            "delta.typeChanges": [{"fromType": "short", "toType": "integer"}],
            "__CHAR_VARCHAR_TYPE_STRING": "char(5)", "__COLLATIONS": {"c": "icu.UNICODE"}, "none": null,
        })
    }

    fn schema(metadata: &Value) -> Value {
        let inner = json!({"type": "struct", "fields": [field("metadata", &json!("long"), metadata)]});
        let nested = json!({"type": "map", "keyType": "string", "valueContainsNull": true, "valueType":
            {"type": "array", "containsNull": true, "elementType": inner}});
        json!({"type": "struct", "fields": [
            field("a", &json!("long"), metadata), field("comment", &nested, metadata), field("b", &json!("date"), &json!({})),
        ]})
    }

    fn kept(kind: ColumnMetadata, schema: &str) -> Value {
        serde_json::from_str(&kind.of(schema)).unwrap()
    }

    #[test]
    fn recipients_see_comments_and_what_readers_need_at_every_depth() {
        let private = private();
        let only = |keys: &[&str]| {
            let members = keys.iter().map(|key| ((*key).to_owned(), private[*key].clone()));
            schema(&Value::Object(members.collect()))
        };
        let comments = only(&["comment", "__CHAR_VARCHAR_TYPE_STRING"]);
        let unmapped = only(&["comment", "delta.typeChanges", "__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS"]);
        let mapped = only(&[
            "comment",
            "delta.columnMapping.id",
            "delta.columnMapping.physicalName",
            "delta.typeChanges",
            "__CHAR_VARCHAR_TYPE_STRING",
            "__COLLATIONS",
        ]);
        let text = schema(&private).to_string();
        let pretty = serde_json::to_string_pretty(&schema(&private)).unwrap();
        let escaped =
            text.replace("\"metadata\":", "\"m\\u0065tadata\":").replace("\"tag\"", "\"t\\u0061g\"");
        for text in [text, pretty, escaped] {
            let comments_of = |value: Value| value.to_string().replace("m\\u0065tadata", "metadata");
            for (kind, expected) in [
                (ColumnMetadata::CommentsAndLengths, &comments),
                (ColumnMetadata::ReaderFeatures, &unmapped),
                (ColumnMetadata::MappedReaderFeatures, &mapped),
            ] {
                assert_eq!(comments_of(kept(kind, &text)), expected.to_string());
            }
        }
    }

    #[test]
    fn a_schema_without_metadata_and_a_text_without_json_stay_as_they_are() {
        let plain = json!({"type": "struct", "fields": [field("b", &json!("date"), &json!({}))]}).to_string();
        assert!(
            matches!(ColumnMetadata::CommentsAndLengths.of(&plain), Cow::Borrowed(same) if same == plain)
        );
        let whole = schema(&private()).to_string();
        for text in [
            "",
            "{",
            "metadata",
            "\"metadata\":{\"a\"",
            "{\"metadata\":{\"a\":1",
            "{\"metadata\":{\"a\" 1}}",
            "\\",
        ] {
            assert_eq!(ColumnMetadata::CommentsAndLengths.of(text), text);
        }
        for end in 0..whole.len() {
            let _ = ColumnMetadata::CommentsAndLengths.of(whole.get(..end).unwrap_or_default());
        }
        let deep = format!("{}{}", "{\"metadata\":".repeat(100_000), "[".repeat(100_000));
        let _ = ColumnMetadata::CommentsAndLengths.of(&deep);
    }
}
