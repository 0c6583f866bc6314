//! The HTTP of the clients of stores. Answers are checked and completed before a client reads them.
//!
//! The clients read any XML as a listing: an answer with other elements is one without objects. Here an answer to a
//! listing is a whole listing or an error. Listings do not say that they end early where a store leaves out the token
//! of the next page, so [`PageEnd`] does.
//!
//! The clients refuse objects whose heads lack a length or have a time in another form than the usual one, and retry
//! by status alone. Here such heads are completed, and an error that passes gets a status that is retried. What a store
//! unpacks before it sends it is an error. An answer that states a range, as rclone's, or a whole object that is the
//! range of a request, is that range, also with the status 200.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use chrono::{DateTime, NaiveDateTime, Utc};
use futures::TryStreamExt;
use memchr::memmem;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED, RANGE,
};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, Method, StatusCode};

use super::addresses::Resolver;
use super::answer::{Answer, RESPONSE};
use crate::percent;
use crate::sign::USER_AGENT;

/// Maximum size of one page of a listing. Azure sends 5000 entries of up to 4 KiB.
const MAX_PAGE_BYTES: usize = 32 << 20;

/// Maximum number of bytes of an error that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The length of an answer that does not say it.
pub(super) const UNKNOWN_LENGTH: u64 = u64::MAX;

/// Codes of errors with the status 409 that pass, of S3 and of Azure.
const BUSY_CODES: [&str; 3] =
    ["OperationAborted", "ConditionalRequestConflict", "SnapshotOperationRateExceeded"];

/// Names the region of a bucket in a redirect of S3, which has no other address.
const BUCKET_REGION: &str = "x-amz-bucket-region";

/// Names the coding in which Google stores an object; it sends the object without it.
const STORED_CODING: &str = "x-goog-stored-content-encoding";

/// The code of an object that comes in another coding than it is stored in.
const UNPACKED_CODE: &str = "DecompressiveTranscoding";

/// Marks a request for a listing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listing;

/// What a page of a listing says about its end, beside a token.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageEnd {
    /// Whether it says that there are more names.
    pub(super) is_truncated: bool,
    /// Whether it says that there are no more.
    pub(super) is_last: bool,
}

/// Connects clients whose answers are checked.
#[derive(Debug)]
pub(super) struct Connector(Client);

impl Connector {
    /// Completes a client of HTTP/1.1. It follows no redirect: the signature is of one host and path, and another host
    /// would receive the session token.
    pub(super) fn new(client: ClientBuilder) -> object_store::Result<Self> {
        let unusable = |error: reqwest::Error| unusable(error.into());
        let authorities = Certificate::from_pem_bundle(&authorities()?).map_err(unusable)?;
        let client = client
            .tls_certs_merge(authorities)
            .redirect(Policy::none())
            .user_agent(USER_AGENT)
            .http1_only()
            .dns_resolver(Resolver)
            // A feature that another crate enables must not change the lengths of objects.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .build()
            .map_err(unusable)?;
        Ok(Self(client))
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Transport(HttpClient::new(self.0.clone()))))
    }
}

/// The variable of AWS's own tools that names a file of authorities, in addition to the system's.
const CA_BUNDLE: &str = "AWS_CA_BUNDLE";

/// Reads the authorities of [`CA_BUNDLE`] in PEM, none if it is not set.
pub(super) fn ca_bundle() -> std::io::Result<Vec<u8>> {
    match std::env::var_os(CA_BUNDLE).filter(|path| !path.is_empty()) {
        Some(path) => std::fs::read(path),
        None => Ok(Vec::new()),
    }
}

/// As [`ca_bundle`], with an error that names the variable.
pub(super) fn authorities() -> object_store::Result<Vec<u8>> {
    ca_bundle().map_err(|error| unusable(format!("the file of {CA_BUNDLE} cannot be read: {error}").into()))
}

fn unusable(source: Box<dyn std::error::Error + Send + Sync>) -> object_store::Error {
    object_store::Error::Generic { store: "TLS", source }
}

#[derive(Debug)]
struct Transport(HttpClient);

#[async_trait]
impl HttpService for Transport {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_listing = request.extensions().get::<Listing>().is_some();
        if let Some(Ok(uri)) = as_signed(&request.uri().to_string()).map(|uri| uri.parse()) {
            *request.uri_mut() = uri;
        }
        let is_read = request.method() == Method::GET;
        let range = text(request.headers(), RANGE.as_str()).and_then(range_of);
        let answer = self.0.execute(request).await?;
        match answer.status() {
            status if status.is_success() && is_listing => checked_listing(answer).await,
            status if status.is_success() && is_read && is_unpacked(answer.headers()) => Ok(unpacked(answer)),
            status if status.is_success() => Ok(as_range(completed(answer), range)),
            StatusCode::NOT_MODIFIED => Ok(answer),
            _ => error_answer(answer).await,
        }
    }
}

/// Returns a URI with its query as it is signed. The clients write it as a form, and some stores verify a query as it
/// comes.
fn as_signed(uri: &str) -> Option<String> {
    let (path, query) = uri.split_once('?')?;
    Some(format!("{path}?{}", query.replace('+', "%20").replace('*', "%2A").replace("%7E", "~")))
}

/// Parses `bytes=0-11`.
fn range_of(header: &str) -> Option<(u64, u64)> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// Returns an answer with the status of no range as the range that a request is for, if it states one or is the whole
/// object. The clients compare a stated one with the request.
fn as_range(answer: HttpResponse, range: Option<(u64, u64)>) -> HttpResponse {
    let (mut parts, body) = answer.into_parts();
    let Some((first, last)) = range.filter(|_| parts.status == StatusCode::OK) else {
        return HttpResponse::from_parts(parts, body);
    };
    let length = text(&parts.headers, CONTENT_LENGTH.as_str()).and_then(|text| text.parse::<u64>().ok());
    if parts.headers.contains_key(CONTENT_RANGE) {
        parts.status = StatusCode::PARTIAL_CONTENT;
    } else if first == 0
        && let Some(length) = length
        && (1..=last.saturating_add(1)).contains(&length)
        && let Ok(whole) = HeaderValue::from_str(&format!("bytes 0-{}/{length}", length - 1))
    {
        parts.status = StatusCode::PARTIAL_CONTENT;
        parts.headers.insert(CONTENT_RANGE, whole);
    }
    HttpResponse::from_parts(parts, body)
}

/// Returns whether the store sends another content than it lists, by a header of Google.
fn is_unpacked(headers: &HeaderMap) -> bool {
    text(headers, STORED_CODING).is_some_and(|coding| !["", "identity"].contains(&coding))
        && !headers.contains_key(CONTENT_ENCODING)
}

/// Makes an error of a content that has neither the listed size nor ranges. It would look like an object that is replaced
/// all the time.
fn unpacked(answer: HttpResponse) -> HttpResponse {
    let (mut parts, _) = answer.into_parts();
    parts.status = StatusCode::BAD_REQUEST;
    HttpResponse::from_parts(parts, format!("<Error><Code>{UNPACKED_CODE}</Code></Error>").into())
}

/// Completes the head of an object, without headers that the clients refuse, such as a name of a file in Latin-1.
fn completed(mut answer: HttpResponse) -> HttpResponse {
    let headers = answer.headers_mut();
    let has_text = |name: &HeaderName, headers: &HeaderMap| {
        headers.get_all(name).iter().all(|value| value.to_str().is_ok())
    };
    let odd: Vec<_> = headers.keys().filter(|name| !has_text(name, headers)).cloned().collect();
    for name in odd {
        headers.remove(name);
    }
    let has_length = text(headers, CONTENT_LENGTH.as_str()).is_some_and(|text| text.parse::<u64>().is_ok());
    if !has_length {
        headers.insert(CONTENT_LENGTH, UNKNOWN_LENGTH.into());
    }
    // Zero if it is not known.
    let modified = text(headers, LAST_MODIFIED.as_str()).and_then(parse_time).unwrap_or_default();
    if let Ok(modified) = HeaderValue::from_str(&modified.to_rfc2822()) {
        headers.insert(LAST_MODIFIED, modified);
    }
    answer
}

/// Reads the start of an error, and gives it a status that is retried if it passes.
async fn error_answer(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = answer.into_parts();
    let body = start_of(body).await?;
    let mut body = String::from_utf8_lossy(&body).into_owned();
    let code = Answer::new("", &body).code().unwrap_or_default().to_owned();
    match parts.status {
        StatusCode::BAD_REQUEST if code == "RequestTimeout" => parts.status = StatusCode::REQUEST_TIMEOUT,
        StatusCode::CONFLICT if BUSY_CODES.contains(&&*code) => {
            parts.status = StatusCode::SERVICE_UNAVAILABLE;
        }
        status if status.is_redirection() => {
            // The clients drop the body of a redirect.
            if let Some(region) = text(&parts.headers, BUCKET_REGION) {
                body = format!("<Error><Code>PermanentRedirect</Code><Region>{region}</Region></Error>");
            }
            parts.status = StatusCode::BAD_REQUEST;
        }
        _ => {}
    }
    Ok(HttpResponse::from_parts(parts, body.into()))
}

async fn start_of(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let mut chunks = body.bytes_stream();
    let mut start = BytesMut::new();
    while start.len() < MAX_ERROR_BYTES
        && let Some(chunk) = chunks.try_next().await?
    {
        start.extend_from_slice(&chunk);
    }
    start.truncate(MAX_ERROR_BYTES);
    Ok(start.freeze())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Parses a time of HTTP in one of its three forms (RFC 9110, section 5.6.7), or of RFC 3339, there also without a zone.
/// Days of the week are not compared with dates.
fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    if let Ok(time) = DateTime::parse_from_rfc2822(text).or_else(|_| DateTime::parse_from_rfc3339(text)) {
        return Some(time.to_utc());
    }
    if let Ok(time) = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f") {
        return Some(time.and_utc());
    }
    let after_day = text.split_once(' ')?.1.trim_start();
    let forms = ["%d %b %Y %H:%M:%S GMT", "%d-%b-%y %H:%M:%S GMT", "%b %e %H:%M:%S %Y"];
    forms
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(after_day, form).ok())
        .map(|time| time.and_utc())
}

async fn checked_listing(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = answer.into_parts();
    let body = page_of(body).await?;
    let page_end = PageEnd::of(&body).map_err(|problem| {
        // Retried, as an error of the store.
        HttpError::new(HttpErrorKind::Interrupted, problem)
    })?;
    parts.extensions.insert(page_end);
    Ok(HttpResponse::from_parts(parts, with_plain_names(with_plain_times(without_markers(body))).into()))
}

/// Returns a page of a listing of S3 and Google whose times have the form that the client reads, unless they have none of
/// the known ones. A store writes all times alike.
fn with_plain_times(page: Bytes) -> Bytes {
    let (begin, is_plain) = (b"<LastModified>", |time: &str| time.parse::<DateTime<Utc>>().is_ok());
    let first = element(&page, "LastModified").and_then(|time| std::str::from_utf8(time).ok());
    if first.is_none_or(is_plain) {
        return page;
    }
    let (mut plain, mut rest) = (BytesMut::with_capacity(page.len()), &*page);
    while let Some(start) = memmem::find(rest, begin) {
        let (before, time) = rest.split_at(start + begin.len());
        let (time, after) = time.split_at(memchr::memchr(b'<', time).unwrap_or(time.len()));
        plain.extend_from_slice(before);
        match std::str::from_utf8(time).ok().and_then(|time| parse_time(time.trim())) {
            Some(time) => plain.extend_from_slice(time.to_rfc3339().as_bytes()),
            None => plain.extend_from_slice(time),
        }
        rest = after;
    }
    plain.extend_from_slice(rest);
    plain.freeze()
}

/// Returns a page of a listing of S3 and Google without objects whose keys end with a slash: consoles, Hadoop and Google's
/// connector make them for directories. The clients cut the slash off, which makes files of them; some stores list them
/// without a size and a time. In Azure, directories have a type, by which its client leaves them out.
fn without_markers(page: Bytes) -> Bytes {
    let [begin, end, marker]: [&[u8]; 3] = [b"<Contents>", b"</Contents>", b"/</Key>"];
    if memmem::find(&page, marker).is_none() {
        return page;
    }
    let (mut kept, mut rest) = (BytesMut::with_capacity(page.len()), &*page);
    while let Some(start) = memmem::find(rest, begin)
        && let Some(length) = memmem::find(&rest[start..], end)
    {
        let (entry, after) = rest[start..].split_at(length + end.len());
        kept.extend_from_slice(&rest[..start]);
        if memmem::find(entry, marker).is_none() {
            kept.extend_from_slice(entry);
        }
        rest = after;
    }
    kept.extend_from_slice(rest);
    kept.freeze()
}

/// Returns a page of a listing of Azure without encoded names: one with a character that XML cannot have comes
/// percent-encoded, also its slashes, and the client takes it as it comes.
fn with_plain_names(page: Bytes) -> Bytes {
    let encoded = b"<Name Encoded=\"true\">";
    let (mut plain, mut rest) = (BytesMut::new(), &*page);
    while let Some(start) = memmem::find(rest, encoded) {
        let (before, name) = (&rest[..start], &rest[start + encoded.len()..]);
        let (name, after) = name.split_at(memchr::memchr(b'<', name).unwrap_or(name.len()));
        plain.extend_from_slice(before);
        plain.extend_from_slice(b"<Name>");
        let mut decoded = Vec::with_capacity(name.len());
        percent::append_decoded(name, &mut decoded);
        for byte in decoded {
            match byte {
                b'&' => plain.extend_from_slice(b"&amp;"),
                b'<' => plain.extend_from_slice(b"&lt;"),
                byte => plain.extend_from_slice(&[byte]),
            }
        }
        rest = after;
    }
    if plain.is_empty() {
        return page;
    }
    plain.extend_from_slice(rest);
    plain.freeze()
}

async fn page_of(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let mut chunks = body.bytes_stream();
    let mut page = BytesMut::new();
    while let Some(chunk) = chunks.try_next().await? {
        if page.len() + chunk.len() > MAX_PAGE_BYTES {
            return Err(HttpError::new(HttpErrorKind::Decode, NoListing::TooLong));
        }
        page.extend_from_slice(&chunk);
    }
    Ok(page.freeze())
}

/// Why an answer is not a listing.
#[derive(Debug, PartialEq, thiserror::Error)]
enum NoListing {
    #[error("the answer to a listing is longer than {MAX_PAGE_BYTES} bytes")]
    TooLong,
    #[error("the answer to a listing is cut off")]
    CutOff,
    #[error("the answer to a listing has fewer names than it counts")]
    LacksNames,
    /// An error of the store with the status 200.
    #[error("{RESPONSE}{0}")]
    Error(String),
    #[error("the answer to a listing is none: it comes from another server than a store, such as a proxy")]
    Other,
}

impl PageEnd {
    /// Reads the answer to a listing of S3 and Google, or of Azure.
    fn of(page: &[u8]) -> Result<Self, NoListing> {
        match root_of(page) {
            Some(b"ListBucketResult") if ends_with(page, b"</ListBucketResult>") => {
                let is_false = |value: &[u8]| value.eq_ignore_ascii_case(b"false") || value == b"0";
                let (is_last, is_truncated) = match element(page, "IsTruncated") {
                    Some(value) => (is_false(value), !is_false(value)),
                    None => (false, false),
                };
                // Some stores leave it out, or do not count directories.
                let stated =
                    element(page, "KeyCount").and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
                if stated.is_some_and(|stated: usize| stated > names_in(page)) {
                    return Err(NoListing::LacksNames);
                }
                Ok(Self { is_truncated, is_last })
            }
            // Each page of Azure has the element, an empty one if it is the last page.
            Some(b"EnumerationResults")
                if ends_with(page, b"</EnumerationResults>")
                    && memmem::find(page, b"<NextMarker").is_some() =>
            {
                Ok(Self::default())
            }
            Some(b"ListBucketResult" | b"EnumerationResults") => Err(NoListing::CutOff),
            Some(b"Error") => Err(NoListing::Error(String::from_utf8_lossy(page).into_owned())),
            _ if page.trim_ascii().is_empty() => Err(NoListing::CutOff),
            _ => Err(NoListing::Other),
        }
    }
}

/// Returns the name of the first element of an XML document.
fn root_of(page: &[u8]) -> Option<&[u8]> {
    let mut rest = page.strip_prefix(b"\xef\xbb\xbf").unwrap_or(page).trim_ascii_start();
    loop {
        let end: &[u8] = if rest.starts_with(b"<?") {
            b"?>"
        } else if rest.starts_with(b"<!--") {
            b"-->"
        } else {
            break;
        };
        rest = rest.get(memmem::find(rest, end)? + end.len()..)?.trim_ascii_start();
    }
    let rest = rest.strip_prefix(b"<")?;
    let end = rest.iter().position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/'))?;
    rest.get(..end)
}

fn ends_with(page: &[u8], tag: &[u8]) -> bool {
    page.trim_ascii_end().ends_with(tag)
}

/// Returns the number of objects and directories of a page of S3 and Google.
fn names_in(page: &[u8]) -> usize {
    let ends: [&[u8]; 2] = [b"</Contents>", b"</CommonPrefixes>"];
    ends.into_iter().map(|end| memmem::find_iter(page, end).count()).sum()
}

/// Returns the text of the first element whose name begins so, unless it is empty. In other texts of XML a tag is escaped.
fn element<'a>(page: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let rest = page.get(memmem::find(page, format!("<{name}").as_bytes())?..)?;
    let rest = rest.get(memchr::memchr(b'>', rest)? + 1..)?;
    let text = rest.get(..memchr::memchr(b'<', rest)?).map(<[u8]>::trim_ascii);
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(page: &str) -> Result<bool, NoListing> {
        PageEnd::of(page.as_bytes()).map(|end| end.is_truncated)
    }

    #[test]
    fn a_listing_says_whether_there_are_more_names() {
        for (page, is_truncated) in [
            ("<ListBucketResult></ListBucketResult>", false),
            (
                "\u{feff}<?xml version=\"1.0\"?>\n<!-- <a> -->\n<ListBucketResult xmlns=\"x\"><Name>b</Name>\
              <IsTruncated> true </IsTruncated></ListBucketResult>\n",
                true,
            ),
            ("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", false),
            ("<ListBucketResult><IsTruncated xmlns=\"\">yes</IsTruncated></ListBucketResult>", true),
            ("<ListBucketResult><IsTruncated/></ListBucketResult>", false),
            ("<EnumerationResults ContainerName=\"c\"><Blobs/><NextMarker/></EnumerationResults>", false),
        ] {
            assert_eq!(end_of(page), Ok(is_truncated), "{page}");
        }
    }

    #[test]
    fn times_of_all_forms_are_one_time() {
        for text in [
            "Fri, 24 May 2013 00:00:00 GMT",
            "Mon, 24 May 2013 00:00:00 GMT",
            "Fri, 24 May 2013 02:00:00 +0200",
            "Friday, 24-May-13 00:00:00 GMT",
            "Fri May 24 00:00:00 2013",
            "2013-05-24T00:00:00Z",
            "2013-05-24T00:00:00.000",
        ] {
            assert_eq!(parse_time(text).map(|time| time.timestamp()), Some(1_369_353_600), "{text}");
        }
        for text in ["", "yesterday", "Fri, 24 May", "1369353600"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn any_other_answer_is_no_listing() {
        for page in [
            "<html><body>ok</body></html>",
            "{\"items\": []}",
            "ok",
            "<!DOCTYPE html><html/>",
            "<ListBucketResults/>",
        ] {
            assert_eq!(end_of(page), Err(NoListing::Other), "{page}");
        }
        for page in [
            "",
            " \n",
            "<ListBucketResult><Contents><Key>a",
            "<ListBucketResult/>",
            "<EnumerationResults><Blobs>",
            "<EnumerationResults><Blobs/></EnumerationResults>",
        ] {
            assert_eq!(end_of(page), Err(NoListing::CutOff), "{page}");
        }
        for (count, is_whole) in [("3", false), ("2", true), ("1", true), ("", true), ("many", true)] {
            let page = format!(
                "<ListBucketResult><KeyCount>{count}</KeyCount><Contents><Key>a</Key></Contents>\
                 <CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes></ListBucketResult>"
            );
            assert_eq!(
                end_of(&page),
                if is_whole { Ok(false) } else { Err(NoListing::LacksNames) },
                "{page}"
            );
        }
        let error = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code></Error>";
        assert_eq!(end_of(error), Err(NoListing::Error(error.into())));
    }
}
