//! The answer to a `HEAD` request, which has no body.

use chrono::DateTime;

use super::Unexpected;
use crate::storage::properties::{FileProperties, plain_tag};

const MAX_HEADERS: usize = 64;
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A complete answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// `None` for an absent object.
    pub(super) properties: Option<FileProperties>,
    /// Whether the store keeps the connection.
    pub(super) is_kept: bool,
}

impl Head {
    /// Returns `None` if bytes are missing.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, Unexpected> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut answer = httparse::Response::new(&mut headers);
        let length = match answer.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
            Ok(httparse::Status::Partial) | Err(_) => return Err(Unexpected),
        };
        // Bytes after the head would belong to another answer.
        if length != bytes.len() || answer.version != Some(1) {
            return Err(Unexpected);
        }
        let is_kept = all_of(answer.headers, "connection").all(|value| {
            value
                .split(|byte| *byte == b',')
                .all(|option| !option.trim_ascii().eq_ignore_ascii_case(b"close"))
        });
        let properties = match answer.code {
            Some(404) => None,
            Some(200) => Some(properties(answer.headers).ok_or(Unexpected)?),
            _ => return Err(Unexpected),
        };
        Ok(Some(Self { properties, is_kept }))
    }
}

fn properties(headers: &[httparse::Header<'_>]) -> Option<FileProperties> {
    let modified = DateTime::parse_from_rfc2822(only(headers, "last-modified")?).ok()?;
    let entity_tag = match all_of(headers, "etag").next() {
        Some(_) => plain_tag(only(headers, "etag")?).map(Box::from),
        None => None,
    };
    let size = only(headers, "content-length")?.parse().ok()?;
    Some(FileProperties { size, modified_s: modified.timestamp(), entity_tag, identity: 0 })
}

fn all_of<'a>(headers: &'a [httparse::Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

/// Returns the value of a header that occurs once.
fn only<'a>(headers: &'a [httparse::Header<'a>], name: &'a str) -> Option<&'a str> {
    let mut values = all_of(headers, name);
    let value = values.next()?;
    values.next().is_none().then(|| std::str::from_utf8(value).ok().map(str::trim)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: &str = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nETag: \"a1\"\r\n\
                         Last-Modified: Sun, 22 Nov 2026 17:32:17 GMT\r\n";

    fn parse(text: &str) -> Result<Option<Head>, Unexpected> {
        Head::parse(text.as_bytes())
    }

    fn kept(text: &str) -> bool {
        parse(&format!("{text}\r\n")).unwrap().unwrap().is_kept
    }

    #[test]
    fn an_answer_has_the_properties_of_an_object_or_its_absence() {
        let found = parse(&format!("{FOUND}\r\n")).unwrap().unwrap();
        let entity_tag = Some("a1".into());
        let expected = FileProperties { size: 12, modified_s: 1_795_368_737, entity_tag, identity: 0 };
        assert_eq!(found, Head { properties: Some(expected.clone()), is_kept: true });
        let untagged = FOUND.replace("ETag: \"a1\"\r\n", "");
        let found = parse(&format!("{untagged}\r\n")).unwrap().unwrap();
        assert_eq!(found.properties, Some(FileProperties { entity_tag: None, ..expected }));
        let absent = "HTTP/1.1 404 Not Found\r\nContent-Length: 300\r\nContent-Type: application/xml\r\n\r\n";
        assert_eq!(parse(absent).unwrap(), Some(Head { properties: None, is_kept: true }));
    }

    #[test]
    fn an_answer_is_complete_at_the_end_of_its_head() {
        let whole = format!("{FOUND}\r\n");
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]).unwrap(), None, "{length}");
        }
        assert!(parse(&format!("{FOUND}X-Long: {}", "x".repeat(MAX_HEAD_BYTES))).is_err());
    }

    #[test]
    fn a_connection_is_kept_unless_the_answer_closes_it() {
        assert!(kept(FOUND) && kept(&format!("{FOUND}Connection: keep-alive\r\n")));
        assert!(!kept(&format!("{FOUND}Connection: close\r\n")));
        assert!(!kept(&format!("{FOUND}connection: Keep-Alive, Close\r\n")));
    }

    #[test]
    fn any_other_answer_is_unexpected() {
        for status in ["200 OK", "206 Partial", "301 Moved", "304 Not", "403 Forbidden", "503 Slow Down"] {
            assert!(parse(&format!("HTTP/1.1 {status}\r\nContent-Length: 12\r\n\r\n")).is_err(), "{status}");
        }
        for text in [
            "HTTP/1.0 404 Not Found\r\n\r\n".to_owned(),
            "HTTP/1.1 404 Not Found\r\n\r\n<Error/>".to_owned(),
            "SSH-2.0-server\r\n\r\n".to_owned(),
            format!("{FOUND}Content-Length: 13\r\n\r\n"),
            format!("{}\r\n", FOUND.replace("12", "-1")),
            format!("{}\r\n", FOUND.replace("Nov", "Now")),
        ] {
            assert!(parse(&text).is_err(), "{text}");
        }
    }
}
