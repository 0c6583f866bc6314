//! Names in a Delta log, and the paths that its actions hold.
//!
//! In: names of files below `_delta_log/` and `path` fields of actions. Out: what the name says
//! ([`LogFileName`]) and what the path points to ([`DataPath`]). Nothing here reads storage. Names that
//! PROTOCOL does not know are `None`, never an error: other writers leave their own files beside the log.

use std::borrow::Cow;

use crate::error::{Error, Result};

/// The directory of the log, relative to the table's root.
pub const LOG_DIRECTORY: &str = "_delta_log";
/// The directory of sidecars, relative to the table's root.
pub const SIDECAR_DIRECTORY: &str = "_delta_log/_sidecars";
/// The hint to a recent checkpoint, in the log's directory.
pub const LAST_CHECKPOINT: &str = "_last_checkpoint";

const VERSION_DIGITS: usize = 20;
const PART_DIGITS: usize = 10;

/// What the name of a file in `_delta_log/` says (PROTOCOL, section File Types).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFileName {
    /// `<version>.json`
    Commit(i64),
    /// `<start>.<end>.compacted.json`, the actions of the commits `start..=end`.
    Compaction {
        /// The first commit that it covers.
        start: i64,
        /// The last commit that it covers.
        end: i64,
    },
    /// `<version>.crc`
    Checksum(i64),
    /// `<version>.checkpoint.parquet`
    ClassicCheckpoint(i64),
    /// `<version>.checkpoint.<part>.<of>.parquet`
    MultiPartCheckpoint {
        /// The version that it rebuilds.
        version: i64,
        /// Which part, from 1.
        part: u32,
        /// How many parts make it whole.
        of: u32,
    },
    /// `<version>.checkpoint.<uuid>.json` or `.parquet`
    UuidCheckpoint {
        /// The version that it rebuilds.
        version: i64,
        /// What makes the name unique.
        uuid: String,
        /// Whether the top file is JSON; otherwise it is Parquet.
        json: bool,
    },
}

impl LogFileName {
    /// Reads a file's name, without its directory.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (version, rest) = split_number(name, VERSION_DIGITS)?;
        match rest {
            "json" => return Some(Self::Commit(version)),
            "crc" => return Some(Self::Checksum(version)),
            "checkpoint.parquet" => return Some(Self::ClassicCheckpoint(version)),
            _ => {}
        }
        if let Some(checkpoint) = rest.strip_prefix("checkpoint.") {
            return parse_checkpoint(version, checkpoint);
        }
        let (end, rest) = split_number(rest, VERSION_DIGITS)?;
        (rest == "compacted.json" && version < end).then_some(Self::Compaction { start: version, end })
    }
}

/// The name of a version's commit.
#[must_use]
pub fn commit_name(version: i64) -> String {
    format!("{version:020}.json")
}

/// The name of a version's checksum file.
#[must_use]
pub fn checksum_name(version: i64) -> String {
    format!("{version:020}.crc")
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

/// `file:/p`, `file:///p` and `file://localhost/p` as `/p`; every other spelling as it is. Two actions speak
/// of one file if their normal paths are equal.
#[must_use]
pub fn normal_path(path: &str) -> &str {
    let Some(scheme) = path.get(..5) else { return path };
    if !scheme.eq_ignore_ascii_case("file:") {
        return path;
    }
    let rest = &path[5..];
    match rest.strip_prefix("//") {
        // `file://host/p` with another host is kept whole: it is not a file of this machine.
        Some(authority) => match authority.strip_prefix("localhost").unwrap_or(authority) {
            local if local.starts_with('/') => one_leading_slash(local),
            _ => path,
        },
        None if rest.starts_with('/') => rest,
        None => path,
    }
}

/// Where an action's `path` points, percent-decoded exactly once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataPath {
    /// Below the table's root: the unencoded key relative to it.
    Relative(String),
    /// An absolute URI or an absolute path of the local file system (`file` with an empty authority).
    Absolute {
        /// In lower case, such as `s3`, `s3a` or `file`.
        scheme: String,
        /// The bucket or host.
        authority: String,
        /// The unencoded key, without its leading slash.
        key: String,
    },
}

impl DataPath {
    /// Reads the `path` of an add, remove or cdc action. A path that climbs (`..`), holds NUL or is not UTF-8
    /// once decoded is [`Error::ForbiddenPath`]: no writer makes such paths, and none of them may be signed.
    pub fn parse(path: &str) -> Result<Self> {
        let path = normal_path(path);
        if let Some(key) = path.strip_prefix('/') {
            return Ok(Self::Absolute {
                scheme: "file".to_owned(),
                authority: String::new(),
                key: decode_key(key)?,
            });
        }
        let Some((scheme, rest)) = split_scheme(path) else {
            return Ok(Self::Relative(decode_key(path)?));
        };
        let Some(rest) = rest.strip_prefix("//") else {
            // A colon in a relative path (`time=12:30/part-0`): RFC 2396 wants it escaped, some writers do not.
            return Ok(Self::Relative(decode_key(path)?));
        };
        let (authority, key) = rest.split_once('/').ok_or(Error::ForbiddenPath)?;
        Ok(Self::Absolute {
            scheme: scheme.to_ascii_lowercase(),
            authority: authority.to_owned(),
            key: decode_key(key)?,
        })
    }
}

/// Percent-decodes exactly once. A `%` that begins no escape stands for itself.
#[must_use]
pub fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        let escape = (byte == b'%').then(|| hex_pair(bytes, index + 1)).flatten();
        decoded.push(escape.unwrap_or(byte));
        index += if escape.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

fn decode_key(encoded: &str) -> Result<String> {
    let key = percent_decode(encoded).ok_or(Error::ForbiddenPath)?;
    let climbs = key.split('/').any(|segment| segment == "..");
    if key.is_empty() || climbs || key.contains('\0') {
        Err(Error::ForbiddenPath)
    } else {
        Ok(key.into_owned())
    }
}

fn hex_pair(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |index: usize| char::from(*bytes.get(index)?).to_digit(16);
    u8::try_from(digit(at)? * 16 + digit(at + 1)?).ok()
}

fn split_scheme(path: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = path.split_once(':')?;
    let mut letters = scheme.bytes();
    let starts_well = letters.next().is_some_and(|first| first.is_ascii_alphabetic());
    let goes_well = letters.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    (starts_well && goes_well).then_some((scheme, rest))
}

fn one_leading_slash(path: &str) -> &str {
    let rest = path.trim_start_matches('/');
    path.get(path.len() - rest.len() - 1..).unwrap_or(path)
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
    fn names_of_the_protocol_are_told_apart() {
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
            (
                format!("00000000000000000004.{version}.compacted.json"),
                Some(LogFileName::Compaction { start: 4, end: 10 }),
            ),
            (format!("{version}.{version}.compacted.json"), None),
            (format!("{version}.checkpoint.0000000004.0000000003.parquet"), None),
            (format!("{version}.checkpoint.0000000000.0000000003.parquet"), None),
            (format!("{version}.checkpoint.nonsense.parquet"), None),
            (format!("{version}.{uuid}.json"), None),
            (format!(".{version}.json.crc"), None),
            ("0000000000000000001.json".to_owned(), None),
            ("99999999999999999999.json".to_owned(), None),
            (LAST_CHECKPOINT.to_owned(), None),
            (String::new(), None),
        ];
        for (name, expected) in cases {
            assert_eq!(LogFileName::parse(&name), expected, "{name}");
        }
        assert_eq!(LogFileName::parse(&commit_name(7)), Some(LogFileName::Commit(7)));
        assert_eq!(LogFileName::parse(&checksum_name(7)), Some(LogFileName::Checksum(7)));
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
    fn three_spellings_of_a_local_path_are_one_file() {
        for path in
            ["file:/p/a", "file:///p/a", "FILE:///p/a", "file://localhost/p/a", "file:////p/a", "/p/a"]
        {
            assert_eq!(normal_path(path), "/p/a", "{path}");
        }
        for path in ["p/a", "file:a", "file://host/p", "s3://bucket/p", "file", "a:b", "file:"] {
            assert_eq!(normal_path(path), path, "{path}");
        }
    }

    #[test]
    fn a_path_is_percent_decoded_exactly_once() {
        let relative = |key: &str| DataPath::Relative(key.to_owned());
        assert_eq!(DataPath::parse("c=a%20b/p.parquet").unwrap(), relative("c=a b/p.parquet"));
        assert_eq!(DataPath::parse("c=a%253Db/é.parquet").unwrap(), relative("c=a%3Db/é.parquet"));
        assert_eq!(DataPath::parse("100%/a+b%2").unwrap(), relative("100%/a+b%2"));
        assert_eq!(DataPath::parse("t=12:30/p").unwrap(), relative("t=12:30/p"));
        assert_eq!(
            DataPath::parse("S3A://bucket/k%20ey/p").unwrap(),
            DataPath::Absolute { scheme: "s3a".into(), authority: "bucket".into(), key: "k ey/p".into() }
        );
        assert_eq!(DataPath::parse("file:///d/p").unwrap(), DataPath::parse("/d/p").unwrap());
    }

    #[test]
    fn a_path_that_climbs_is_refused_however_it_is_written() {
        for path in
            ["../a", "a/../../b", "a/%2e%2e/b", "%2E%2E/b", "/a/../b", "s3://b/../c", "a%00b", "", "/", "%ff"]
        {
            assert!(matches!(DataPath::parse(path), Err(Error::ForbiddenPath)), "{path}");
        }
        assert_eq!(DataPath::parse("a/..b/c").unwrap(), DataPath::Relative("a/..b/c".to_owned()));
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
