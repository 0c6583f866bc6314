//! Extracts the bounds of a few columns from the JSON of `add.stats` in one pass, without building a tree.
//!
//! Takes the text of one file's statistics and the physical paths that a predicate needs; returns slices of that text.
//! Time is linear in the text, skipped values need no recursion, and no input panics. Text that is not valid statistics
//! yields nothing, which keeps the file.

use memchr::{memchr2, memchr3};

use crate::predicate::values::keys::Scalar;

/// Statistics of one column in one file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ColumnStats<'a> {
    pub(crate) min: Option<Scalar<'a>>,
    pub(crate) max: Option<Scalar<'a>>,
    pub(crate) null_count: Option<i64>,
}

/// Statistics of one file.
#[derive(Debug, Default)]
pub(crate) struct FileStats<'a> {
    pub(crate) num_records: Option<i64>,
    pub(crate) columns: Vec<ColumnStats<'a>>,
}

/// Extracts the statistics of selected paths.
#[derive(Debug)]
pub(crate) struct Extractor {
    root: Vec<Branch>,
    count: usize,
}

#[derive(Debug)]
struct Branch {
    name: Box<str>,
    column: Option<usize>,
    inner: Vec<Branch>,
}

#[derive(Clone, Copy)]
enum Section {
    Min,
    Max,
    NullCount,
}

impl Extractor {
    /// Looks for the columns of these physical paths; [`FileStats::columns`] has their order.
    pub(crate) fn new<'a>(paths: impl IntoIterator<Item = &'a [String]>) -> Self {
        let mut extractor = Self { root: Vec::new(), count: 0 };
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
    pub(crate) fn extract<'a>(&self, json: &'a str, stats: &mut FileStats<'a>) {
        stats.num_records = None;
        stats.columns.clear();
        stats.columns.resize(self.count, ColumnStats::default());
        let mut scanner = Scanner { json, position: 0 };
        if self.object(&mut scanner, stats).is_none() {
            // Half of a broken text is not to be trusted.
            stats.num_records = None;
            stats.columns.fill(ColumnStats::default());
        }
    }

    fn object<'a>(&self, scanner: &mut Scanner<'a>, stats: &mut FileStats<'a>) -> Option<()> {
        let mut first = true;
        scanner.take(b'{')?;
        while let Some(key) = scanner.next_key(&mut first)? {
            let section = match key {
                Scalar::Text { json: "minValues", .. } => Section::Min,
                Scalar::Text { json: "maxValues", .. } => Section::Max,
                Scalar::Text { json: "nullCount", .. } => Section::NullCount,
                Scalar::Text { json: "numRecords", .. } => {
                    stats.num_records = scanner.scalar()?.and_then(integer);
                    continue;
                }
                _ => {
                    scanner.skip_value()?;
                    continue;
                }
            };
            section_of(&self.root, section, scanner, &mut stats.columns)?;
        }
        Some(())
    }
}

fn section_of<'a>(
    branches: &[Branch],
    section: Section,
    scanner: &mut Scanner<'a>,
    columns: &mut [ColumnStats<'a>],
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
        match branch.column.and_then(|column| columns.get_mut(column)) {
            Some(column) if scanner.peek()? != b'{' => {
                let value = scanner.scalar()?;
                match section {
                    Section::Min => column.min = value,
                    Section::Max => column.max = value,
                    Section::NullCount => column.null_count = value.and_then(integer),
                }
            }
            _ => section_of(&branch.inner, section, scanner, columns)?,
        }
        left = left.saturating_sub(1);
        if left == 0 {
            return scanner.skip_rest();
        }
    }
    Some(())
}

fn find<'b>(branches: &'b [Branch], key: Scalar<'_>) -> Option<&'b Branch> {
    if let Scalar::Text { json, escaped: false } = key {
        return branches.iter().find(|branch| *branch.name == *json);
    }
    let key = key.unescaped()?;
    branches.iter().find(|branch| *branch.name == *key)
}

fn integer(scalar: Scalar<'_>) -> Option<i64> {
    match scalar {
        Scalar::Number(text) => text.parse().ok(),
        _ => None,
    }
}

struct Scanner<'a> {
    json: &'a str,
    position: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a [u8] {
        self.json.as_bytes().get(self.position..).unwrap_or_default()
    }

    /// The next byte that is not a blank.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.json.as_bytes().get(self.position)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.position += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.position += 1)
    }

    /// The key of an object's next member and the colon after it; `Some(None)` at the object's end.
    #[allow(clippy::option_option)]
    fn next_key(&mut self, first: &mut bool) -> Option<Option<Scalar<'a>>> {
        match self.peek()? {
            b'}' => {
                self.position += 1;
                return Some(None);
            }
            b',' if !*first => self.position += 1,
            _ if *first => {}
            _ => return None,
        }
        *first = false;
        if self.peek()? != b'"' {
            return None;
        }
        let key = self.string()?;
        self.take(b':')?;
        Some(Some(key))
    }

    fn string(&mut self) -> Option<Scalar<'a>> {
        self.take(b'"')?;
        let start = self.position;
        let mut escaped = false;
        loop {
            self.position += memchr2(b'"', b'\\', self.rest())?;
            if self.rest().first() == Some(&b'"') {
                let json = self.json.get(start..self.position)?;
                self.position += 1;
                return Some(Scalar::Text { json, escaped });
            }
            escaped = true;
            self.position += 2;
        }
    }

    /// A value that is not a container; `Some(None)` for null and for containers, which are skipped.
    #[allow(clippy::option_option)]
    fn scalar(&mut self) -> Option<Option<Scalar<'a>>> {
        match self.peek()? {
            b'"' => self.string().map(Some),
            b'{' | b'[' => self.skip_value().map(|()| None),
            _ => match self.word()? {
                "null" => Some(None),
                "true" => Some(Some(Scalar::Boolean(true))),
                "false" => Some(Some(Scalar::Boolean(false))),
                number => Some(Some(Scalar::Number(number))),
            },
        }
    }

    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let length = rest
            .iter()
            .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'))
            .unwrap_or(rest.len());
        let word = self.json.get(self.position..self.position + length)?;
        self.position += length;
        (length > 0).then_some(word)
    }

    fn skip_value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'{' => {
                self.position += 1;
                self.skip_rest()
            }
            b'[' => self.skip_array(),
            _ => self.word().map(drop),
        }
    }

    /// Skips to the end of the current object.
    fn skip_rest(&mut self) -> Option<()> {
        let mut depth = 1_u32;
        while depth > 0 {
            self.position += memchr3(b'"', b'{', b'}', self.rest())?;
            match self.rest().first()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' => depth += 1,
                _ => depth -= 1,
            }
            self.position += 1;
        }
        Some(())
    }

    fn skip_array(&mut self) -> Option<()> {
        let mut depth = 0_u32;
        loop {
            self.position += memchr3(b'"', b'[', b']', self.rest())?;
            match self.rest().first()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' => depth += 1,
                _ => depth -= 1,
            }
            self.position += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}
