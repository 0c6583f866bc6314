//! The URLs of one stream: appended to an output immediately, signed in groups.

use std::fmt;
use std::sync::Arc;

use super::group::Group;
use super::location::append_canonical;
use super::remote::Requests;
use super::template::{Form, UrlTemplate};
use crate::log_path::DataPath;
use crate::percent::{self, Oddities};
use crate::stop::Stop;
use crate::{Error, Result};

/// A location prepared for a stream.
pub(super) struct StreamRoot {
    pub(super) location: Vec<u8>,
    /// The account of a location of Azure, with its domain.
    pub(super) account: Option<Box<str>>,
    pub(super) template: Result<UrlTemplate>,
}

impl StreamRoot {
    /// Returns whether a service signs.
    fn is_remote(&self) -> bool {
        matches!(&self.template, Ok(UrlTemplate { form: Form::Remote(_), .. }))
    }
}

/// Appends signed URLs. One per thread: clones share the prepared parts and have their own pending groups.
pub struct UrlStream {
    roots: Arc<[StreamRoot]>,
    /// The requests of a service that signs for a root, if there is one.
    requests: Option<Arc<Requests>>,
    /// The pending URLs of each root.
    groups: Vec<Group>,
    /// Buffer for a canonical absolute path.
    location: Vec<u8>,
    /// Buffer for a path without its encoding.
    decoded: Vec<u8>,
}

impl UrlStream {
    pub(super) fn over(roots: Arc<[StreamRoot]>) -> Self {
        let requests = roots.iter().any(StreamRoot::is_remote).then(Arc::default);
        Self::with_requests(roots, requests)
    }

    fn with_requests(roots: Arc<[StreamRoot]>, requests: Option<Arc<Requests>>) -> Self {
        let groups = roots.iter().map(|_| Group::default()).collect();
        Self { roots, requests, groups, location: Vec::new(), decoded: Vec::new() }
    }

    /// Appends the URL of the file with the log path `path` (a URI, relative or absolute), and returns its
    /// expiration in milliseconds since the epoch.
    ///
    /// The signature is pending until [`Self::finish`]; until then `out` may only grow. After an error `out` may
    /// contain part of a URL: see [`Self::truncate`].
    pub fn append(&mut self, path: &str, out: &mut Vec<u8>) -> Result<i64> {
        match DataPath::parse(path) {
            DataPath::Relative(mut path) => {
                // Clients resolve these segments of a URL, as of a relative reference (RFC 3986, section 5.2.4).
                // `trim_start_matches` would make a searcher for each path, a twentieth of a line's cost.
                while let Some(rest) = path.strip_prefix("./") {
                    path = rest;
                }
                self.append_below_root(path, PathForm::Uri, out)
            }
            location => self.append_absolute(location, out),
        }
    }

    /// Appends the URL of the object at `path` under the table's root, not percent-encoded.
    pub fn append_unencoded(&mut self, path: &str, out: &mut Vec<u8>) -> Result<i64> {
        self.append_below_root(path, PathForm::Key, out)
    }

    /// Writes all pending signatures into `out`, except the signatures of a service.
    pub fn finish(&mut self, out: &mut [u8]) {
        for (root, group) in self.roots.iter().zip(&mut self.groups) {
            if let Ok(template) = &root.template {
                group.sign(template, out);
            }
        }
    }

    /// After [`Self::finish`], writes the signatures of a service. Blocks if there are any.
    pub fn finish_by_service(&mut self, out: &mut [u8]) -> Result<()> {
        let Some(requests) = &self.requests else { return Ok(()) };
        for (root, group) in self.roots.iter().zip(&mut self.groups) {
            if let Ok(template) = &root.template {
                group.sign_by_service(template, requests, out)?;
            }
        }
        Ok(())
    }

    /// Returns an error if a service signs the URLs of the table's root, and fewer than `files`.
    pub fn check_files(&self, files: u64) -> Result<()> {
        match self.roots.first().map(|root| &root.template) {
            Some(Ok(UrlTemplate { form: Form::Remote(remote), .. })) => remote.check(files),
            _ => Ok(()),
        }
    }

    /// Returns the stop of the requests of a service.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        self.requests.as_ref().map(|requests| requests.stop.clone())
    }

    /// Forgets pending URLs after `length`, for an output truncated to it.
    pub fn truncate(&mut self, length: usize, out: &mut Vec<u8>) {
        out.truncate(length);
        for group in &mut self.groups {
            group.truncate(length);
        }
    }

    fn append_below_root(&mut self, path: &str, form: PathForm, out: &mut Vec<u8>) -> Result<i64> {
        match (self.roots.first(), self.groups.first_mut()) {
            (Some(root), Some(group)) => {
                append_checked(root, group, path.as_bytes(), form, &mut self.decoded, out)
            }
            _ => Err(Error::ForbiddenPath),
        }
    }

    fn append_absolute(&mut self, location: DataPath<'_>, out: &mut Vec<u8>) -> Result<i64> {
        self.location.clear();
        let own_account = self.roots.first().and_then(|root| root.account.as_deref());
        append_canonical(location, own_account, &mut self.location, percent::append_decoded);
        if std::str::from_utf8(&self.location).is_err() {
            return Err(NOT_UTF8);
        }
        let holds = |root: &StreamRoot| self.location.starts_with(&root.location);
        let index = (0..self.roots.len())
            .filter(|index| holds(&self.roots[*index]))
            .max_by_key(|index| self.roots[*index].location.len())
            .ok_or(Error::ForbiddenPath)?;
        let root = &self.roots[index];
        let path = &self.location[root.location.len()..];
        append_checked(root, &mut self.groups[index], path, PathForm::Key, &mut self.decoded, out)
    }
}

/// How a path is written.
#[derive(Clone, Copy)]
enum PathForm {
    /// As in a log.
    Uri,
    /// Not encoded.
    Key,
}

impl PathForm {
    fn append(self, path: &[u8], out: &mut Vec<u8>) -> Oddities {
        match self {
            Self::Uri => percent::append_uri(path, out),
            Self::Key => percent::append_key(path, out),
        }
    }

    /// Appends the path and returns it without its encoding, in `buffer` if that is another one.
    fn append_and_decode<'a>(
        self,
        path: &'a [u8],
        buffer: &'a mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> (Oddities, &'a [u8]) {
        match self {
            Self::Uri if memchr::memchr(b'%', path).is_some() => {
                buffer.clear();
                (percent::append_uri_and_decoded(path, out, buffer), buffer)
            }
            Self::Uri | Self::Key => (self.append(path, out), path),
        }
    }
}

fn append_checked(
    root: &StreamRoot,
    group: &mut Group,
    path: &[u8],
    form: PathForm,
    buffer: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<i64> {
    let template: &UrlTemplate = root.template.as_ref().map_err(Clone::clone)?;
    if path.is_empty() {
        return Err(Error::InvalidPath("names no file"));
    }
    let (mut is_allowed, mut is_ambiguous) = (true, false);
    let mut odd = Oddities::default();
    group.append(template, out, |out| {
        let path_at = out.len();
        let decoded = if template.is_decoded {
            let (found, decoded) = form.append_and_decode(path, buffer, out);
            odd = found;
            is_ambiguous = memchr::memchr2(b'\\', b'\n', decoded).is_some();
            Some(decoded)
        } else {
            odd = form.append(path, out);
            None
        };
        // In the encoded form, because a log may spell a dot or a slash of the key as an escape.
        is_allowed = !percent::has_parent_segment(&out[path_at..]);
        decoded
    });
    match odd {
        // Azure reads a backslash as a slash, also before `..`; lines separate the fields that it signs.
        _ if is_ambiguous => {
            Err(Error::InvalidPath("holds a backslash or a line break, which are not signed for Azure"))
        }
        _ if !is_allowed => Err(Error::ForbiddenPath),
        Oddities { nul: true, .. } => Err(Error::InvalidPath("holds NUL")),
        Oddities { high_escape: true, .. } if !percent::decodes_to_utf8(path) => Err(NOT_UTF8),
        Oddities { .. } => Ok(template.expires_ms),
    }
}

const NOT_UTF8: Error = Error::InvalidPath("is not UTF-8");

impl Clone for UrlStream {
    fn clone(&self) -> Self {
        Self::with_requests(Arc::clone(&self.roots), self.requests.clone())
    }
}

impl fmt::Debug for UrlStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlStream").field("roots", &self.roots.len()).finish_non_exhaustive()
    }
}
