//! One spelling for each location that a log or the configuration may name.
//!
//! `s3a:` and `s3n:` are `s3:`, and `file:/p`, `file:///p` and `/p` are one file.

/// Whether a log's path is absolute: it begins with `/` or with a URI's scheme.
pub(super) fn is_absolute(path: &[u8]) -> bool {
    path.first() == Some(&b'/') || scheme(path).is_some()
}

/// The scheme of a URI and what follows the colon (RFC 3986, section 3.1).
fn scheme(uri: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', uri)?;
    let (scheme, rest) = (&uri[..colon], &uri[colon + 1..]);
    let is_scheme = scheme.first()?.is_ascii_alphabetic()
        && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    is_scheme.then_some((scheme, rest))
}

/// Appends the one spelling of an absolute location.
pub(super) fn append_canonical(location: &[u8], out: &mut Vec<u8>) {
    let Some((scheme, rest)) = scheme(location) else {
        out.extend_from_slice(b"file://");
        out.extend_from_slice(location);
        return;
    };
    let is = |name: &str| scheme.eq_ignore_ascii_case(name.as_bytes());
    if is("file") {
        let path = rest.strip_prefix(b"//localhost/").or_else(|| rest.strip_prefix(b"///"));
        out.extend_from_slice(b"file:///");
        out.extend_from_slice(path.or_else(|| rest.strip_prefix(b"/")).unwrap_or(rest));
    } else if is("s3") || is("s3a") || is("s3n") {
        out.extend_from_slice(b"s3:");
        out.extend_from_slice(rest);
    } else {
        out.extend(scheme.iter().map(u8::to_ascii_lowercase));
        out.push(b':');
        out.extend_from_slice(rest);
    }
}
