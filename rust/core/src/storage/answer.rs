//! The failure of a request to a store, as its detail shows it: status, code, hints and a short message.
//!
//! The body of an answer may repeat what the store received: the string that was signed, the signature, and the whole
//! session token of expired credentials.

use std::error::Error as StdError;
use std::{fmt, io};

use serde_json::Value;

/// Maximum length of the text about a request.
const MAX_CONTEXT_CHARS: usize = 500;
/// Maximum length of the store's message.
const MAX_MESSAGE_CHARS: usize = 200;
/// Maximum length of a word of the store's message. Tokens are longer.
const MAX_WORD_BYTES: usize = 128;
/// The length of the shortest secret: an access key of S3. Signatures and account keys are longer.
const SECRET_BYTES: usize = 40;

/// Texts of `object_store` before the status and the body, and before the body of an answer with status 200.
const STATUS: &str = "Server returned non-2xx status code: ";
pub(super) const RESPONSE: &str = "Server returned error response: ";

/// Begins the text of a request that failed.
const REQUEST: &str = "Error performing ";

/// The parts of an error's body that are shown: `<Code>ExpiredToken</Code> The provided token has expired.`
#[derive(Default, PartialEq)]
struct Reason {
    code: Option<String>,
    /// The region and the host of the bucket, if the request was sent to others.
    region: Option<String>,
    endpoint: Option<String>,
    message: Option<String>,
}

impl Reason {
    /// Reads a body in XML or JSON. Nothing of another one is shown.
    fn of(body: &str) -> Self {
        let body = body.trim_start_matches('\u{feff}').trim();
        if body.starts_with('{') { Self::of_json(body) } else { Self::of_xml(body) }
    }

    fn of_xml(body: &str) -> Self {
        Self {
            code: element(body, "Code").and_then(code),
            region: element(body, "Region").and_then(|text| plain(text, 32, b"-")),
            endpoint: element(body, "Endpoint").and_then(|text| plain(text, 253, b"-.:")),
            message: element(body, "Message").and_then(message),
        }
    }

    /// `{"error": {"code": ..., "message": ..., "status": ...}}` of Azure and Google, or
    /// `{"error": ..., "error_description": ...}` of OAuth.
    fn of_json(body: &str) -> Self {
        let Ok(body) = serde_json::from_str::<Value>(body) else { return Self::default() };
        let error = body.get("error").unwrap_or(&body);
        let text = |key: &str| error.get(key).and_then(Value::as_str);
        let description = body.get("error_description").and_then(Value::as_str);
        Self {
            // The code of Google is a number.
            code: text("code").or_else(|| text("status")).or(error.as_str()).and_then(code),
            message: text("message").or(description).and_then(message),
            ..Self::default()
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tagged = [("Code", &self.code), ("Region", &self.region), ("Endpoint", &self.endpoint)];
        for (name, value) in tagged {
            if let Some(value) = value {
                write!(formatter, "<{name}>{value}</{name}>")?;
            }
        }
        match &self.message {
            Some(message) if self.code.is_some() => write!(formatter, " {message}"),
            Some(message) => formatter.write_str(message),
            None => Ok(()),
        }
    }
}

/// The answer to a failed request: `answered 403 Forbidden: ` and the parts of its body.
pub(super) struct Answer {
    /// `403 Forbidden`; empty for an error with status 200.
    status: String,
    reason: Reason,
}

impl Answer {
    pub(super) fn new(status: impl Into<String>, body: &str) -> Self {
        Self { status: status.into(), reason: Reason::of(body) }
    }

    /// Returns the answer that an error is about; `None` if there was none.
    pub(super) fn of(error: &object_store::Error) -> Option<Self> {
        causes(error).find_map(|error| {
            let text = error.to_string();
            if let Some(answer) = text.strip_prefix(STATUS) {
                let (status, body) = answer.split_once(": ").unwrap_or((answer, ""));
                return Some(Self::new(status, body));
            }
            text.strip_prefix(RESPONSE).map(|body| Self::new("", body))
        })
    }

    /// Returns the status; `None` for an error with status 200.
    pub(super) fn status(&self) -> Option<u16> {
        self.status.get(..3)?.parse().ok()
    }

    pub(super) fn code(&self) -> Option<&str> {
        self.reason.code.as_deref()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = if self.status.is_empty() { "with an error" } else { &self.status };
        write!(formatter, "answered {status}")?;
        if self.reason == Reason::default() { Ok(()) } else { write!(formatter, ": {}", self.reason) }
    }
}

/// Returns the text of an error without its answer and without queries of URLs.
pub(super) fn context(error: &object_store::Error) -> String {
    let text = error.to_string();
    // What the client says before this is about uploads: of a conflict, that the object exists.
    let text = text.find(REQUEST).map_or(&*text, |start| &text[start..]);
    let end = [STATUS, RESPONSE].iter().filter_map(|start| text.find(start)).min().unwrap_or(text.len());
    let text = text[..end].trim_end_matches([' ', '-', ':']);
    without_queries(text).chars().take(MAX_CONTEXT_CHARS).collect()
}

/// Returns why a connection failed, in words; `None` for a cause of no known kind, and for errors of answers.
pub(super) fn connection_problem(error: &object_store::Error) -> Option<&'static str> {
    causes(error).find_map(|error| {
        if let Some(problem) = error.downcast_ref::<io::Error>().and_then(problem_of_io) {
            return Some(problem);
        }
        // Of private types of the client, the words are all that is known.
        let text = error.to_string();
        let known = PROBLEMS.iter().find(|(word, _)| text.contains(word));
        known.filter(|_| error.source().is_none() || is_final(&text)).map(|(_, problem)| *problem)
    })
}

/// An error and its causes.
pub(super) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

fn problem_of_io(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(
            "nothing listens at the endpoint; look at its host and its port, and at whether the store runs",
        ),
        io::ErrorKind::TimedOut => Some(NO_ANSWER),
        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => Some(
            "the connection was cut, by the store or by something on the way; look at proxies and firewalls",
        ),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some("no network leads to the endpoint; look at the routes of this machine")
        }
        _ => None,
    }
}

/// Returns whether the causes below a text add nothing to it.
fn is_final(text: &str) -> bool {
    ["dns error", "operation timed out", "tunnel"].iter().any(|word| text.contains(word))
}

const NO_ANSWER: &str = "the endpoint does not answer in time; look for a firewall that drops packets";

const UNKNOWN_AUTHORITY: &str =
    "the certificate of the endpoint is of an unknown authority; SSL_CERT_FILE names a file with it";

/// Words of the client's errors, and what they mean.
const PROBLEMS: [(&str, &str); 11] = [
    ("dns error", "the name of the endpoint's host cannot be resolved; look at its spelling and at DNS"),
    ("UnknownIssuer", UNKNOWN_AUTHORITY),
    // By another authority with the name of a known one.
    ("BadSignature", UNKNOWN_AUTHORITY),
    (
        "CaUsedAsEndEntity",
        "the certificate of the endpoint is that of an authority; SSL_CERT_FILE names a file with it",
    ),
    (
        "not valid for name",
        "the certificate of the endpoint is of another host; look at the name in the endpoint, then for a proxy that \
         answers in its place",
    ),
    (
        "certificate expired",
        "the certificate of the endpoint has expired, or the clock of this machine is wrong; look at both",
    ),
    (
        "certificate not valid yet",
        "the certificate of the endpoint is not valid yet, or the clock of this machine is wrong; look at both",
    ),
    (
        "invalid peer certificate",
        "the certificate of the endpoint is not accepted; look at its authority, its uses and its revocation",
    ),
    ("InvalidContentType", "the endpoint speaks no TLS: its URL may have to begin with http://"),
    ("tunnel", "the proxy refuses the connection; NO_PROXY names hosts without a proxy"),
    ("timed out", NO_ANSWER),
];

/// Cuts off the queries of URLs, which may hold signatures.
pub(super) fn without_queries(text: &str) -> String {
    words(text, |word| match word.split_once('?') {
        Some((url, query)) if url.contains("://") || query.contains('=') => Some(format!("{url}?...")),
        _ => None,
    })
}

fn words(text: &str, replaced: impl Fn(&str) -> Option<String>) -> String {
    let words = text.split_whitespace().map(|word| replaced(word).unwrap_or_else(|| word.to_owned()));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the content of the first element with this name that contains no other.
fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (content, rest) = rest.split_once('<')?;
    rest.starts_with(&format!("/{name}>")).then_some(content)
}

fn code(text: &str) -> Option<String> {
    plain(text, 64, b".-_")
}

/// Returns a short text of letters, digits and some other characters.
fn plain(text: &str, max_bytes: usize, others: &[u8]) -> Option<String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte));
    (is_plain && (1..=max_bytes).contains(&text.len())).then(|| text.to_owned())
}

/// Returns the first line of a message without what may be a secret: no store is known to show one there.
fn message(text: &str) -> Option<String> {
    let line = text.trim().lines().next()?.replace(['<', '>'], " ");
    let line = words(&without_queries(&line), |word| is_secret(word).then(|| "...".to_owned()));
    let line: String = line.chars().filter(|letter| !letter.is_control()).take(MAX_MESSAGE_CHARS).collect();
    (!line.is_empty()).then_some(line)
}

/// Returns whether a word is a token, or has the length and the characters of a signature or of a key.
fn is_secret(word: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=%".contains(&byte);
    let mut runs = word.as_bytes().split(|byte| !is_base64(*byte));
    word.len() > MAX_WORD_BYTES
        || runs.any(|run| run.len() >= SECRET_BYTES && run.iter().any(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(body: &str) -> String {
        Reason::of(body).to_string()
    }

    #[test]
    fn a_certificate_that_is_not_accepted_has_its_reason() {
        for (text, reason) in [
            ("UnknownIssuer", "of an unknown authority"),
            ("BadSignature", "of an unknown authority"),
            ("certificate expired: verification time", "has expired"),
            ("Revoked", "is not accepted"),
        ] {
            let source = format!("invalid peer certificate: {text}").into();
            let problem = connection_problem(&object_store::Error::Generic { store: "S3", source });
            assert!(problem.is_some_and(|problem| problem.contains(reason)), "{text}: {problem:?}");
        }
    }

    #[test]
    fn code_region_endpoint_and_message_of_xml_are_shown() {
        assert_eq!(
            shown(
                "\u{feff}<?xml version=\"1.0\"?>\n<Error><Code>ExpiredToken</Code><Message>The token has expired.\
                 </Message><Token-0>FwoGZXIvhush</Token-0><RequestId>1</RequestId></Error>"
            ),
            "<Code>ExpiredToken</Code> The token has expired."
        );
        assert_eq!(
            shown(
                "<Error><Code>AuthorizationHeaderMalformed</Code><Message>expecting 'eu-west-9'</Message>\
                 <Region>eu-west-9</Region><Endpoint>b.s3.eu-west-9.amazonaws.com</Endpoint></Error>"
            ),
            "<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region>\
             <Endpoint>b.s3.eu-west-9.amazonaws.com</Endpoint> expecting 'eu-west-9'"
        );
        assert_eq!(
            shown(
                "<Error><Code>AuthenticationFailed</Code><Message>Server failed to authenticate.\nRequestId:1\n\
                 </Message><AuthenticationErrorDetail>The MAC signature 'hush' is not</AuthenticationErrorDetail></Error>"
            ),
            "<Code>AuthenticationFailed</Code> Server failed to authenticate."
        );
        assert_eq!(
            shown("<ErrorResponse><Error><Type>Sender</Type><Code>A.b</Code></Error>"),
            "<Code>A.b</Code>"
        );
    }

    #[test]
    fn code_and_message_of_json_are_shown() {
        for (body, expected) in [
            (
                r#"{"error":{"code":403,"message":"Permission denied","status":"PERMISSION_DENIED","details":"hush"}}"#,
                "<Code>PERMISSION_DENIED</Code> Permission denied",
            ),
            (
                r#"{"error":{"code":"ContainerNotFound","message":"No container.\nTime:1"}}"#,
                "<Code>ContainerNotFound</Code> No container.",
            ),
            (
                r#"{"error":"invalid_client","error_description":"AADSTS7000215: Invalid.","trace":"hush"}"#,
                "<Code>invalid_client</Code> AADSTS7000215: Invalid.",
            ),
            (
                r#"{"code":"AssumeRoleUnauthorizedAccess","message":"no"}"#,
                "<Code>AssumeRoleUnauthorizedAccess</Code> no",
            ),
            (r#"{"error":["hush"]}"#, ""),
            (r#"{"error":"hush"#, ""),
        ] {
            assert_eq!(shown(body), expected, "{body}");
        }
    }

    #[test]
    fn nothing_is_shown_of_another_body_or_of_other_values() {
        for body in [
            "",
            "<html><body>hush",
            "hush",
            "<Error><Code>hu sh</Code><Region>hush/</Region><Endpoint>h?sig=hush</Endpoint>",
            "<Error><Code><b>hush</b></Code><Message><b>hush</b></Message>",
            "<Error><Code>hush",
        ] {
            assert_eq!(shown(body), "", "{body}");
        }
    }

    #[test]
    fn a_message_has_no_token_no_signature_no_key_and_no_query() {
        let token = "eyJhbGciOi-".repeat(20);
        for secret in [
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "'lYrTTVZcW8eQhEH7xFDLYzqQ4zKPYcsMKdPhe+JBRUM='",
            "sig=lYrTTVZcW8eQhEH7xFDLYzqQ4zKPYcsMKdPhe%2BJBRUM%3D",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            token.as_str(),
        ] {
            assert_eq!(
                shown(&format!("<Message>The value {secret} is wrong</Message>")),
                "The value ... is wrong"
            );
        }
        assert_eq!(
            shown("<Message>no https://a/b?sv=1&amp;sig=x or /b?sig=x or what? ok</Message>"),
            "no https://a/b?... or /b?... or what? ok"
        );
        let known =
            "User: arn:aws:sts::123456789012:assumed-role/Reader/i-0123456789abcdef0 may not s3:ListBucket";
        assert_eq!(shown(&format!("<Message>{known}</Message>")), known);
        let long = format!("<Message>{}</Message>", "word ".repeat(100));
        assert_eq!(shown(&long).len(), MAX_MESSAGE_CHARS);
    }
}
