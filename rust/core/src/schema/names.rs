//! Columns by name, for the many names that one request may have.

use std::collections::HashMap;

use super::{Column, StructField, StructType, Unresolved, find, find_path, may_be_alike, resolve_dotted};

/// Number of fields that are compared with names one by one. Few names need no index.
const FIELDS_COMPARED: usize = 20_000;

/// Resolves names as [`StructType`] does. After the first names it finds fields by an index of their struct.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    schema: &'a StructType,
    compared: usize,
    /// By the address of the fields.
    indexes: HashMap<*const StructField, Index<'a>>,
}

#[derive(Debug, Default)]
struct Index<'a> {
    exact: HashMap<&'a str, &'a StructField>,
    /// By the name in lower case; `None` for several fields.
    alike: HashMap<String, Option<&'a StructField>>,
    longest: &'a str,
}

impl<'a> Names<'a> {
    pub(crate) fn new(schema: &'a StructType) -> Self {
        Self { schema, compared: 0, indexes: HashMap::new() }
    }

    /// As [`StructType::resolve`].
    pub(crate) fn resolve(&mut self, parts: &[impl AsRef<str>]) -> Result<Column, Unresolved> {
        find_path(&self.schema.fields, parts, |fields, name| {
            if self.compared < FIELDS_COMPARED || fields.is_empty() {
                self.compared += fields.len();
                return find(fields, name);
            }
            self.indexes.entry(fields.as_ptr()).or_insert_with(|| Index::of(fields)).find(name)
        })
    }

    /// As [`StructType::resolve_dotted`].
    pub(crate) fn resolve_dotted(&mut self, name: &str) -> Result<Column, Unresolved> {
        resolve_dotted(name, |parts| self.resolve(parts))
    }
}

impl<'a> Index<'a> {
    fn of(fields: &'a [StructField]) -> Self {
        let mut index = Self::default();
        for field in fields {
            index.exact.entry(&field.name).or_insert(field);
            let alike = index.alike.entry(field.name.to_lowercase());
            alike.and_modify(|known| *known = None).or_insert(Some(field));
            if field.name.len() > index.longest.len() {
                index.longest = &field.name;
            }
        }
        index
    }

    fn find(&self, name: &str) -> Result<&'a StructField, Unresolved> {
        if let Some(field) = self.exact.get(name) {
            return Ok(field);
        }
        if name.len() > self.longest.len() && !may_be_alike(self.longest, name) {
            return Err(Unresolved::Missing);
        }
        let alike = self.alike.get(&name.to_lowercase()).ok_or(Unresolved::Missing)?;
        alike.ok_or(Unresolved::Ambiguous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnMapping;

    #[test]
    fn an_index_finds_what_a_comparison_with_all_fields_does() {
        let names = ["a", "A", "b", "é", "s", "Straße", "x.y", "K", "\u{212a}k", "ΟΔΟΣ"];
        let inner =
            r#"{"type":"struct","fields":[{"name":"In","type":"long","nullable":true,"metadata":{}}]}"#;
        let field = |name: &&str| {
            let data_type = if *name == "s" { inner } else { "\"long\"" };
            format!(r#"{{"name":"{name}","type":{data_type},"nullable":true,"metadata":{{}}}}"#)
        };
        let fields: Vec<_> = names.iter().map(field).collect();
        let text = format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","));
        let schema = StructType::parse(&text, ColumnMapping::None).unwrap();
        let mut indexed = Names { compared: FIELDS_COMPARED, ..Names::new(&schema) };
        for name in ["a", "A", "B", "É", "S", "STRASSE", "STRAßE", "X.Y", "k", "kK", "οδος", "οδοσ", "z", ""]
        {
            assert_eq!(indexed.resolve(&[name]), schema.resolve(&[name]), "{name}");
            assert_eq!(indexed.resolve_dotted(name), schema.resolve_dotted(name), "{name}");
        }
        let long = "É".repeat(1000);
        for name in ["s.in", "S.IN", "s.out", "a.in", "`s`.In", &long] {
            assert_eq!(indexed.resolve_dotted(name), schema.resolve_dotted(name), "{name}");
        }
        assert_eq!(indexed.resolve(&[] as &[&str]), Err(Unresolved::Missing));
        assert_eq!((indexed.indexes.len(), indexed.compared), (2, FIELDS_COMPARED));
    }
}
