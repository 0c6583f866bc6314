//! Names in a Delta log, and the paths in its actions.
//!
//! Parses names of files below `_delta_log/` to a [`LogFileName`] and `path` fields of actions to a [`DataPath`]. Does
//! not read storage. Unknown names are `None`, not an error: other writers store their own files beside the log.

use std::borrow::Cow;

use crate::percent;

/// The directory of the log, relative to the table's root.
pub const LOG_DIRECTORY: &str = "_delta_log";
/// The directory of sidecars, relative to the log's directory.
pub const SIDECARS: &str = "_sidecars";
/// The directory of staged commits, relative to the log's directory.
pub const STAGED_COMMITS: &str = "_staged_commits";
/// The hint to a recent checkpoint, in the log's directory.
pub const LAST_CHECKPOINT: &str = "_last_checkpoint";

/// Returns the path of a file in the log, by its name or that of a sidecar with its directory.
#[must_use]
pub fn log_file_path(root: &str, name: &str) -> String {
    join(root, &format!("{LOG_DIRECTORY}/{name}"))
}

const VERSION_DIGITS: usize = 20;
const PART_DIGITS: usize = 10;

/// The parsed name of a file in `_delta_log/` (PROTOCOL, section File Types).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFileName {
    /// `<version>.json`, or `_staged_commits/<version>.<uuid>.json` that a catalog has ratified
    Commit(i64),
    /// `<version>.crc`
    Checksum(i64),
    /// `<version>.checkpoint.parquet`
    ClassicCheckpoint(i64),
    /// `<version>.checkpoint.<part>.<of>.parquet`
    MultiPartCheckpoint {
        /// The version that it rebuilds.
        version: i64,
        /// The number of the part, from 1.
        part: u32,
        /// The number of all parts.
        of: u32,
    },
    /// `<version>.checkpoint.<uuid>.json` or `.parquet`
    UuidCheckpoint {
        /// The version that it rebuilds.
        version: i64,
        /// The unique part of the name.
        uuid: String,
        /// Whether the top file is JSON; otherwise it is Parquet.
        json: bool,
    },
}

impl LogFileName {
    /// Reads a file's name, without its directory. Listings have no staged commit but by the answer of a catalog.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(staged) = name.strip_prefix(STAGED_COMMITS).and_then(|name| name.strip_prefix('/')) {
            let (version, rest) = split_number(staged, VERSION_DIGITS)?;
            let unique = rest.strip_suffix(".json")?;
            let is_one_word = unique.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            return (is_one_word && !unique.is_empty()).then_some(Self::Commit(version));
        }
        let (version, rest) = split_number(name, VERSION_DIGITS)?;
        match rest {
            "json" => return Some(Self::Commit(version)),
            "crc" => return Some(Self::Checksum(version)),
            "checkpoint.parquet" => return Some(Self::ClassicCheckpoint(version)),
            _ => {}
        }
        parse_checkpoint(version, rest.strip_prefix("checkpoint.")?)
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> i64 {
        match self {
            Self::Commit(version)
            | Self::Checksum(version)
            | Self::ClassicCheckpoint(version)
            | Self::MultiPartCheckpoint { version, .. }
            | Self::UuidCheckpoint { version, .. } => *version,
        }
    }

    /// Returns the version of a checkpoint or of its part.
    #[must_use]
    pub fn checkpoint_version(&self) -> Option<i64> {
        match self {
            Self::Commit(_) | Self::Checksum(_) => None,
            checkpoint => Some(checkpoint.version()),
        }
    }
}

/// The name of a version's commit.
#[must_use]
pub fn commit_name(version: i64) -> String {
    format!("{version:020}.json")
}

/// The smallest name of a log file of `version`: a listing from here holds everything of that version on.
#[must_use]
pub fn first_name_of(version: i64) -> String {
    format!("{version:020}.")
}

/// `root` and a path below it, with one slash between them; an empty root is the top of a bucket.
#[must_use]
pub fn join(root: &str, relative: &str) -> String {
    match root.strip_suffix('/').unwrap_or(root) {
        "" if root.starts_with('/') => format!("/{relative}"),
        "" => relative.to_owned(),
        root => format!("{root}/{relative}"),
    }
}

/// The last part of a path: what an error may name.
#[must_use]
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The parsed `path` of an action (add, remove, change data file, deletion vector, sidecar) or location of the
/// configuration. Its parts are not decoded.
///
/// By RFC 3986 a path with a scheme and without `/` after the colon (`a-b:c/d`) would be absolute. No store has such
/// locations, and writers that do not escape a colon in a partition's directory make such paths, so it is relative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPath<'a> {
    /// Below the table's root.
    Relative(&'a str),
    /// On this machine: an absolute path, with one slash at its beginning. `file:/p`, `file:///p`, `file:////p`,
    /// `file://localhost/p` and `/p` are one.
    Local(&'a str),
    /// Anywhere else.
    Uri {
        /// The scheme, such as `s3`, in its original case. Empty if a path begins with `//`.
        scheme: &'a str,
        /// The bucket or host.
        authority: &'a str,
        /// The path after the authority's slash.
        key: &'a str,
    },
}

impl<'a> DataPath<'a> {
    /// Reads a path. What it names is checked by those who open or sign it.
    #[must_use]
    pub fn parse(path: &'a str) -> Self {
        if let Some(rest) = path.strip_prefix('/') {
            return match rest.strip_prefix('/') {
                // RFC 3986, section 4.2: a network-path reference, whose first segment is a host.
                Some(rest) => Self::uri("", rest),
                None => Self::Local(path),
            };
        }
        let Some((scheme, rest)) = split_scheme(path).filter(|(_, rest)| rest.starts_with('/')) else {
            return Self::Relative(path);
        };
        let is_file = scheme.eq_ignore_ascii_case("file");
        match rest.strip_prefix("//").map(|rest| (rest, Self::uri(scheme, rest))) {
            Some((rest, Self::Uri { authority, .. })) if is_file && is_this_host(authority) => {
                Self::Local(one_leading_slash(rest.get(authority.len()..).unwrap_or_default()))
            }
            Some((_, uri)) => uri,
            None if is_file => Self::Local(rest),
            None => Self::Uri { scheme, authority: "", key: rest.get(1..).unwrap_or_default() },
        }
    }

    /// The last segment.
    #[must_use]
    pub fn file_name(self) -> &'a str {
        let (Self::Relative(path) | Self::Local(path) | Self::Uri { key: path, .. }) = self;
        file_name(path)
    }

    fn uri(scheme: &'a str, rest: &'a str) -> Self {
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        Self::Uri { scheme, authority, key }
    }
}

/// Returns the normal form of a path. Actions with equal normal forms refer to one file.
///
/// Another encoding of a path is another file, as to Spark and deltalake: a remove of `%C3%A9` by deltalake leaves the add of
/// `é` by Spark in force for both.
#[must_use]
#[inline]
pub fn normal_path(path: &str) -> &str {
    // Nearly all paths are relative, and this runs for every row of a checkpoint.
    if !matches!(path.as_bytes().first(), Some(b'/' | b'f' | b'F')) {
        return path;
    }
    if let DataPath::Local(local) = DataPath::parse(path) { local } else { path }
}

/// Percent-decodes exactly once; `None` if the result is not UTF-8. A `%` that begins no escape is kept.
#[must_use]
pub fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    percent::append_decoded(text.as_bytes(), &mut decoded);
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// The scheme of a URI and what follows its colon (RFC 3986, section 3.1).
fn split_scheme(path: &str) -> Option<(&str, &str)> {
    let colon = memchr::memchr(b':', path.as_bytes())?;
    let (scheme, rest) = (path.get(..colon)?, path.get(colon + 1..)?);
    let mut letters = scheme.bytes();
    let starts_well = letters.next().is_some_and(|first| first.is_ascii_alphabetic());
    let goes_well = letters.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    (starts_well && goes_well).then_some((scheme, rest))
}

fn is_this_host(authority: &str) -> bool {
    authority.is_empty() || authority.eq_ignore_ascii_case("localhost")
}

/// `path` begins with a slash or is empty.
fn one_leading_slash(path: &str) -> &str {
    let rest = path.trim_start_matches('/');
    path.get((path.len() - rest.len()).saturating_sub(1)..).unwrap_or(path)
}

/// A number of exactly `digits` digits and what follows its dot.
fn split_number(text: &str, digits: usize) -> Option<(i64, &str)> {
    let (number, rest) = text.split_once('.')?;
    (number.len() == digits && number.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| number.parse().ok())?
        .map(|number| (number, rest))
}

fn parse_checkpoint(version: i64, rest: &str) -> Option<LogFileName> {
    if let Some((part, rest)) = split_number(rest, PART_DIGITS) {
        let (of, extension) = split_number(rest, PART_DIGITS)?;
        let (part, of) = (u32::try_from(part).ok()?, u32::try_from(of).ok()?);
        return (extension == "parquet" && (1..=of).contains(&part))
            .then_some(LogFileName::MultiPartCheckpoint { version, part, of });
    }
    let (uuid, extension) = rest.split_once('.')?;
    let json = match extension {
        "json" => true,
        "parquet" => false,
        _ => return None,
    };
    let is_uuid = uuid.len() == 36 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uuid.then(|| LogFileName::UuidCheckpoint { version, uuid: uuid.to_owned(), json })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_protocol_are_distinguished() {
        let version = "00000000000000000010";
        let uuid = "80a083e8-7026-4e79-81be-64bd76c43a11";
        let cases = [
            (format!("{version}.json"), Some(LogFileName::Commit(10))),
            (format!("{version}.crc"), Some(LogFileName::Checksum(10))),
            (format!("{version}.checkpoint.parquet"), Some(LogFileName::ClassicCheckpoint(10))),
            (
                format!("{version}.checkpoint.0000000002.0000000003.parquet"),
                Some(LogFileName::MultiPartCheckpoint { version: 10, part: 2, of: 3 }),
            ),
            (
                format!("{version}.checkpoint.{uuid}.json"),
                Some(LogFileName::UuidCheckpoint { version: 10, uuid: uuid.to_owned(), json: true }),
            ),
            (
                format!("{version}.checkpoint.{uuid}.parquet"),
                Some(LogFileName::UuidCheckpoint { version: 10, uuid: uuid.to_owned(), json: false }),
            ),
            (format!("00000000000000000004.{version}.compacted.json"), None),
            (format!("{version}.checkpoint.0000000004.0000000003.parquet"), None),
            (format!("{version}.checkpoint.0000000000.0000000003.parquet"), None),
            (format!("{version}.checkpoint.nonsense.parquet"), None),
            (format!("{version}.{uuid}.json"), None),
            (format!(".{version}.json.crc"), None),
            ("0000000000000000001.json".to_owned(), None),
            ("99999999999999999999.json".to_owned(), None),
            (LAST_CHECKPOINT.to_owned(), None),
            (format!("_staged_commits/{version}.{uuid}.json"), Some(LogFileName::Commit(10))),
            (format!("_staged_commits/{version}.json"), None),
            (format!("_staged_commits/{version}..json"), None),
            (format!("_staged_commits/{version}.../{uuid}.json"), None),
            (format!("_staged_commits/{version}.checkpoint.parquet"), None),
            (String::new(), None),
        ];
        for (name, expected) in cases {
            assert_eq!(LogFileName::parse(&name), expected, "{name}");
        }
        assert_eq!(LogFileName::parse(&commit_name(7)), Some(LogFileName::Commit(7)));
        assert_eq!(LogFileName::parse("00000000000000000007.crc"), Some(LogFileName::Checksum(7)));
    }

    #[test]
    fn a_listing_from_the_first_name_of_a_version_holds_all_of_that_version() {
        let uuid = "00000000-0000-0000-0000-000000000000";
        for rest in ["json", "crc", "checkpoint.parquet", &format!("checkpoint.{uuid}.json")] {
            assert!(format!("{:020}.{rest}", 10) > first_name_of(10));
            assert!(format!("{:020}.{rest}", 9) < first_name_of(10));
        }
    }

    #[test]
    fn all_spellings_of_a_local_path_are_one_file() {
        for path in [
            "file:/p/a",
            "file:///p/a",
            "FILE:///p/a",
            "file://localhost/p/a",
            "file://LocalHost//p/a",
            "file:////p/a",
            "/p/a",
        ] {
            assert_eq!(DataPath::parse(path), DataPath::Local("/p/a"), "{path}");
            assert_eq!(normal_path(path), "/p/a", "{path}");
        }
        for path in
            ["p/a", "file:a", "file://host/p", "s3://bucket/p", "file", "a:b", "file:", "//host/p", ""]
        {
            assert_eq!(normal_path(path), path, "{path}");
        }
    }

    #[test]
    fn a_colon_makes_a_path_absolute_only_before_a_slash() {
        for path in
            ["c=a%20b/p", "t=12:30/p", "a-b:c/d", "2024-01-01T10:00/p", "hdfs:p", "file:a", ":/p", "1:/p", ""]
        {
            assert_eq!(DataPath::parse(path), DataPath::Relative(path), "{path}");
        }
        let uri = |scheme, authority, key| DataPath::Uri { scheme, authority, key };
        for (path, expected) in [
            ("S3A://bucket/k%20ey/p", uri("S3A", "bucket", "k%20ey/p")),
            ("s3://bucket", uri("s3", "bucket", "")),
            ("s3:///p", uri("s3", "", "p")),
            ("dbfs:/mnt/p", uri("dbfs", "", "mnt/p")),
            ("abfss://c@a.dfs.core.windows.net/p", uri("abfss", "c@a.dfs.core.windows.net", "p")),
            ("file://host/p", uri("file", "host", "p")),
            ("file://localhosts/p", uri("file", "localhosts", "p")),
            ("//host/p", uri("", "host", "p")),
            ("///p", uri("", "", "p")),
        ] {
            assert_eq!(DataPath::parse(path), expected, "{path}");
        }
        assert_eq!(DataPath::parse("s3://b/_sidecars/a%20b").file_name(), "a%20b");
        assert_eq!(DataPath::parse("s3://b").file_name(), "");
    }

    #[test]
    fn a_path_is_percent_decoded_exactly_once() {
        for (path, expected) in [
            ("c=a%20b/p.parquet", Some("c=a b/p.parquet")),
            ("c=a%253Db/é.parquet", Some("c=a%3Db/é.parquet")),
            ("100%/a+b%2", Some("100%/a+b%2")),
            ("%C3%a9", Some("é")),
            ("%ff", None),
        ] {
            assert_eq!(percent_decode(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_root_joins_with_one_slash() {
        assert_eq!(join("a/b", "c"), "a/b/c");
        assert_eq!(join("a/b/", "c"), "a/b/c");
        assert_eq!(join("", "c"), "c");
        assert_eq!(join("/", "c"), "/c");
        assert_eq!(file_name("a/b/c.json"), "c.json");
    }
}
