//! Extracts the bounds of a few columns from the JSON of `add.stats` in one pass, without building a tree.
//!
//! Takes the text of one file's statistics and the physical paths that a predicate needs; returns slices of that text.
//! Time is linear in the text, skipped values need no recursion, and no input panics. Text that is not valid statistics
//! yields nothing, which keeps the file.
//!
//! A writer gives most files the same keys. So the first texts are scanned and become [`Shape`]s, and a text of a shape is
//! compared with it in place of a scan, which takes four times as long.

mod shape;

use self::shape::Shape;

use crate::json_scanner::{JsonText, Scanner};
use crate::predicate::values::keys::Scalar;

/// Statistics of one column in one file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ColumnStats<'a> {
    pub(crate) min: Option<Scalar<'a>>,
    pub(crate) max: Option<Scalar<'a>>,
    pub(crate) null_count: Option<i64>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct FileStats<'a> {
    pub(crate) num_records: Option<i64>,
    pub(crate) columns: Vec<ColumnStats<'a>>,
}

/// Texts with other keys than the first ones are scanned: each comparison that fails costs, too.
const MOST_SHAPES: usize = 4;

/// Extracts the statistics of selected paths.
#[derive(Debug)]
pub(crate) struct Extractor {
    root: Vec<Branch>,
    count: usize,
    /// The last one that a text had is the first.
    shapes: Vec<Shape>,
    /// Texts that may still become shapes.
    samples_left: usize,
    /// The values of the last scanned text.
    places: Vec<Place>,
}

/// The position of a value in a text, and what it is.
type Place = (usize, Target);

#[derive(Debug)]
struct Branch {
    name: Box<str>,
    column: Option<usize>,
    inner: Vec<Branch>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Min,
    Max,
    NullCount,
}

/// What a value of a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    NumRecords,
    /// Of the column with this number.
    Column(usize, Section),
}

impl<'a> FileStats<'a> {
    fn reset(&mut self, columns: usize) {
        self.num_records = None;
        self.columns.clear();
        self.columns.resize(columns, ColumnStats::default());
    }

    fn set(&mut self, target: Target, value: Option<Scalar<'a>>) {
        let (column, section) = match target {
            Target::NumRecords => {
                self.num_records = value.and_then(integer);
                return;
            }
            Target::Column(column, section) => (column, section),
        };
        let Some(column) = self.columns.get_mut(column) else { return };
        match section {
            Section::Min => column.min = value,
            Section::Max => column.max = value,
            Section::NullCount => column.null_count = value.and_then(integer),
        }
    }
}

/// Takes the values of a text while it is scanned.
struct Found<'s, 'a> {
    stats: &'s mut FileStats<'a>,
    places: &'s mut Vec<Place>,
}

impl<'a> Found<'_, 'a> {
    fn take(&mut self, target: Target, scanner: &mut Scanner<'a>) -> Option<()> {
        scanner.peek()?;
        self.places.push((scanner.position, target));
        self.stats.set(target, scalar(scanner)?);
        Some(())
    }
}

impl Extractor {
    /// Looks for the columns of these physical paths; [`FileStats::columns`] has their order.
    pub(crate) fn new<'a>(paths: impl IntoIterator<Item = &'a [String]>) -> Self {
        let (shapes, places) = (Vec::new(), Vec::new());
        let mut extractor = Self { root: Vec::new(), count: 0, shapes, samples_left: MOST_SHAPES, places };
        for path in paths {
            extractor.add(path);
        }
        extractor
    }

    fn add(&mut self, path: &[String]) {
        let mut branches = &mut self.root;
        for (depth, name) in path.iter().enumerate() {
            let position = branches.iter().position(|branch| *branch.name == **name).unwrap_or_else(|| {
                branches.push(Branch { name: name.as_str().into(), column: None, inner: Vec::new() });
                branches.len() - 1
            });
            if depth + 1 == path.len() {
                branches[position].column = Some(self.count);
            }
            branches = &mut branches[position].inner;
        }
        self.count += 1;
    }

    /// Reads `json` into `stats`, which is reset first.
    pub(crate) fn extract<'a>(&mut self, json: &'a str, stats: &mut FileStats<'a>) {
        let has_shape = |shape: &Shape| {
            stats.reset(self.count);
            shape.read(json, stats)
        };
        if let Some(found) = self.shapes.iter().position(has_shape) {
            self.shapes.swap(0, found);
        } else if self.scan(json, stats)
            && let Some(left) = self.samples_left.checked_sub(1)
        {
            self.samples_left = left;
            self.shapes.extend(Shape::of(json, &self.places, self.count));
        }
    }

    /// Reads `json` from its first byte to its last; returns false for a broken text.
    fn scan<'a>(&mut self, json: &'a str, stats: &mut FileStats<'a>) -> bool {
        self.places.clear();
        stats.reset(self.count);
        let mut found = Found { stats, places: &mut self.places };
        let is_whole = object(&self.root, &mut Scanner { json, position: 0 }, &mut found).is_some();
        if !is_whole {
            // Half of a broken text is not to be trusted.
            stats.reset(self.count);
        }
        is_whole
    }
}

fn object<'a>(root: &[Branch], scanner: &mut Scanner<'a>, found: &mut Found<'_, 'a>) -> Option<()> {
    let mut first = true;
    scanner.take(b'{')?;
    while let Some(key) = scanner.next_key(&mut first)? {
        match key.json {
            "minValues" => section_of(root, Section::Min, scanner, found)?,
            "maxValues" => section_of(root, Section::Max, scanner, found)?,
            "nullCount" => section_of(root, Section::NullCount, scanner, found)?,
            "numRecords" => found.take(Target::NumRecords, scanner)?,
            _ => scanner.skip_value()?,
        }
    }
    Some(())
}

fn section_of<'a>(
    branches: &[Branch],
    section: Section,
    scanner: &mut Scanner<'a>,
    found: &mut Found<'_, 'a>,
) -> Option<()> {
    if branches.is_empty() || scanner.peek()? != b'{' {
        return scanner.skip_value();
    }
    scanner.take(b'{')?;
    let mut first = true;
    let mut left = branches.len();
    while let Some(key) = scanner.next_key(&mut first)? {
        let Some(branch) = find(branches, key) else {
            scanner.skip_value()?;
            continue;
        };
        match branch.column {
            Some(column) if scanner.peek()? != b'{' => {
                found.take(Target::Column(column, section), scanner)?;
            }
            _ => section_of(&branch.inner, section, scanner, found)?,
        }
        left = left.saturating_sub(1);
        if left == 0 {
            return scanner.skip_rest(b'{');
        }
    }
    Some(())
}

fn find<'b>(branches: &'b [Branch], key: JsonText<'_>) -> Option<&'b Branch> {
    let key = key.unescaped()?;
    branches.iter().find(|branch| *branch.name == *key)
}

fn integer(scalar: Scalar<'_>) -> Option<i64> {
    match scalar {
        Scalar::Number(text) => text.parse().ok(),
        _ => None,
    }
}

/// A value that is not a container; `Some(None)` for null and for containers, which are skipped.
#[allow(clippy::option_option)]
fn scalar<'a>(scanner: &mut Scanner<'a>) -> Option<Option<Scalar<'a>>> {
    match scanner.peek()? {
        b'"' => scanner.string().map(|text| Some(Scalar::Text(text))),
        b'{' | b'[' => scanner.skip_value().map(|()| None),
        _ => match scanner.word()? {
            "null" => Some(None),
            "true" => Some(Some(Scalar::Boolean(true))),
            "false" => Some(Some(Scalar::Boolean(false))),
            number => Some(Some(Scalar::Number(number))),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extractor() -> Extractor {
        let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let paths = [path(&["a"]), path(&["s", "b"]), path(&["s", "é"]), path(&["a.b"]), path(&["s"])];
        Extractor::new(paths.iter().map(Vec::as_slice))
    }

    fn usual(file: usize) -> String {
        let name = "n".repeat(file % 40);
        format!(
            "{{\"numRecords\":{file},\"minValues\":{{\"a\":-{file}.5,\"x\":\"{name}\",\"s\":{{\"b\":\"{name}\"}}}},\
             \"maxValues\":{{\"a\":{file}e3,\"x\":\"}},{name}\",\"s\":{{\"b\":null}}}},\
             \"nullCount\":{{\"a\":{file},\"x\":0,\"s\":{{\"b\":0}}}},\"tightBounds\":true}}"
        )
    }

    /// Reads texts by one extractor, which learns, and each by another one, which has learned nothing.
    fn assert_reads_as_scanned<T: AsRef<str>>(texts: &[T]) -> Extractor {
        let mut learning = extractor();
        for text in texts {
            let (mut read, mut scanned) = (FileStats::default(), FileStats::default());
            learning.extract(text.as_ref(), &mut read);
            extractor().scan(text.as_ref(), &mut scanned);
            assert_eq!(read, scanned, "{}", text.as_ref());
        }
        learning
    }

    #[test]
    fn texts_with_the_keys_of_the_first_one_are_not_scanned() {
        let texts: Vec<_> = (0..100).map(usual).collect();
        let mut learned = assert_reads_as_scanned(&texts);
        learned.places.clear();
        let (text, mut stats) = (usual(7), FileStats::default());
        learned.extract(&text, &mut stats);
        assert_eq!((stats.num_records, learned.places.as_slice()), (Some(7), [].as_slice()));
        assert_eq!(stats.columns[1].min, Some(Scalar::Text(JsonText { json: "nnnnnnn", escaped: false })));
        assert_eq!(learned.shapes.len(), 1);
    }

    #[test]
    fn texts_that_look_like_a_shape_are_scanned() {
        // The second text of each pair has the literals of the first one's shape, in another meaning.
        for (first, second) in [
            (r#"{"minValues":{"x":"1","a":2}}"#, r#"{"minValues":{"x":"\","a":2}}"#),
            (r#"{"minValues":{"x":1,"a":2}}"#, r#"{"minValues":{"x":{"y":1,"a":2}}"#),
            (r#"{"minValues":{"x":1,"a":2}}"#, r#"{"minValues":{"x":[1,"a":2}}"#),
            (r#"{"minValues":{"a":1},"x":2}"#, r#"{"minValues":{"a":1 },"x":}"#),
            (r#"{"minValues":{"x" :"a","y":1}}"#, r#"{"minValues":{"a" :"a","y":1}}"#),
            (r#"{"minValues":{"x":"a"5}}"#, r#"{"minValues":{"x":"a"{},"a":1}}"#),
            (r#"{"minValues":{"a":1,"x":"a"5}}"#, r#"{"minValues":{"a":1,"x":"a"{}}"#),
            (r#"{"minValues":{"a":1,"a":2},"y":3}"#, r#"{"minValues":{"a":3,"a":4},"y":5}"#),
            (r#"{"minValues":{"s":[1,2],"a":2}}"#, r#"{"minValues":{"s":[3,4],"a":4}}"#),
            (r#"{"minValues":{"s":[],"a":2}}"#, r#"{"minValues":{"s":[],"a":4}}"#),
            (r#"{"numRecords":1}"#, r#"{"numRecords":}"#),
            (r#"{"numRecords":1}"#, r#"{"numRecords":1} "#),
        ] {
            assert_reads_as_scanned(&[first, second, first]);
        }
    }

    /// An object of statistics with few names, blanks in places, and values of all kinds.
    fn json_text() -> impl Strategy<Value = String> {
        let value = r#"[0-9]{1,4}|-1\.5e3|null|true|NaN|"[a-z]{0,9}"|"[ -!#-\[\]-~é]{0,5}"|"a\\"b"|"x{126,130}"|\[\]|\[1,"a"\]"#;
        let name = prop::sample::select(vec!["a", "s", "b", "é", "x", "a.b", "\\u0061", "s"]);
        let blank = prop::sample::select(vec!["", "", "", "", "", " ", "\n"]);
        let object = |member: BoxedStrategy<String>| {
            let member = (name.clone(), blank.clone(), blank.clone(), member)
                .prop_map(|(name, before, after, value)| format!("\"{name}\"{before}:{after}{value}"));
            prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(",")))
        };
        let inner = object(value.boxed());
        let values = object(prop_oneof![3 => value.boxed(), 1 => inner.boxed()].boxed());
        let section = prop::sample::select(vec!["minValues", "maxValues", "nullCount", "other"]);
        let member = prop_oneof![
            6 => (section, values).prop_map(|(section, values)| format!("\"{section}\":{values}")),
            1 => value.prop_map(|value| format!("\"numRecords\":{value}")),
        ];
        prop::collection::vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(",")))
    }

    /// Texts that differ from the first one in a few characters, in which another value is the most frequent outcome.
    fn alike_texts() -> impl Strategy<Value = Vec<String>> {
        let characters = "\"\"\\{}[],,:: \n0123e-.+anulé".chars().collect::<Vec<_>>();
        let change = (any::<prop::sample::Index>(), prop::sample::select(characters), 0..4_usize);
        let changes = prop::collection::vec(change, 0..4);
        (json_text(), prop::collection::vec(changes, 1..20)).prop_map(|(text, all)| {
            let altered = all.into_iter().map(|changes| {
                let mut characters: Vec<char> = text.chars().collect();
                for (at, character, replaced) in changes {
                    let at = at.index(characters.len() + 1);
                    let end = (at + replaced).min(characters.len());
                    characters.splice(at..end, [character].into_iter().filter(|_| replaced < 3));
                }
                characters.into_iter().collect()
            });
            let altered: Vec<String> = altered.collect();
            [text].into_iter().chain(altered).collect()
        })
    }

    proptest! {
        #[test]
        fn altered_texts_are_read_as_they_are_scanned(texts in alike_texts()) {
            assert_reads_as_scanned(&texts);
        }
    }
}
