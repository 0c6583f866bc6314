//! The canonical form of an absolute location in a log or in the configuration.
//!
//! `s3a:` and `s3n:` become `s3:`; [`DataPath`] recognises local files.

use crate::log_path::DataPath;

/// Appends the canonical form of a location, with its path written by `append_path`.
pub(super) fn append_canonical(
    location: DataPath<'_>,
    out: &mut Vec<u8>,
    append_path: fn(&[u8], &mut Vec<u8>),
) {
    match location {
        DataPath::Relative(path) => append_path(path.as_bytes(), out),
        DataPath::Local(path) => {
            out.extend_from_slice(b"file://");
            append_path(path.as_bytes(), out);
        }
        DataPath::Uri { scheme, authority, key } => {
            let is_s3 = ["s3", "s3a", "s3n"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
            if is_s3 {
                out.extend_from_slice(b"s3");
            } else {
                out.extend(scheme.bytes().map(|byte| byte.to_ascii_lowercase()));
            }
            out.extend_from_slice(b"://");
            out.extend_from_slice(authority.as_bytes());
            out.push(b'/');
            append_path(key.as_bytes(), out);
        }
    }
}
