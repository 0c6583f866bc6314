//! URLs of the gateway's own files route, for tables in storage that cannot sign URLs.
//!
//! `{base_url}/{percent-encoded key}?sp=r&expires={unix seconds}&signature={hex}`, where the signature is
//! HMAC-SHA256(key, "{path of the URL}\n{expires}"). The path contains the table, so a URL is valid for one table only.
//! The route verifies with [`verify_local_url`] before it uses the path. Clients re-encode paths (many send `=` for
//! `%3D`), so the signature covers the path decoded once and encoded once by this module's rules.

use hmac::{Hmac, KeyInit, Mac};

use super::template::{Form, PathText, UrlTemplate};
use crate::hashing::{BLOCK_BYTES, Engine, HmacKey};
use crate::percent;
use crate::{Error, Result};

/// Signs for one table.
pub(super) struct LocalSigner {
    base_url: String,
    /// Offset of the path in `base_url`.
    path_at: usize,
    key: HmacKey,
}

impl LocalSigner {
    pub(super) fn new(base_url: &str, key: &[u8]) -> Result<Self> {
        let invalid =
            || Error::InvalidArgument("the base of local URLs must be http(s)://host[:port]/path".to_owned());
        let base_url = base_url.trim_end_matches('/').to_owned();
        let url = url::Url::parse(&base_url).map_err(|_| invalid())?;
        // It is written into lines and signatures without encoding, so it must be a valid URL.
        let as_sent =
            base_url.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\<>^`{|}?#".contains(&byte));
        if !matches!(url.scheme(), "http" | "https") || !as_sent {
            return Err(invalid());
        }
        let host_at = url.scheme().len() + "://".len();
        let path_at =
            base_url.get(host_at..).and_then(|rest| rest.find('/')).map_or(base_url.len(), |at| host_at + at);
        if key.is_empty() {
            return Err(Error::InvalidArgument("the key of local URLs must not be empty".to_owned()));
        }
        Ok(Self { base_url, path_at, key: HmacKey::new(key) })
    }

    /// Signs keys below `prefix`.
    pub(super) fn template(&self, prefix: &str, now_ms: i64, lifetime_seconds: i64) -> Result<UrlTemplate> {
        if lifetime_seconds <= 0 {
            return Err(Error::InvalidArgument("a URL's lifetime must be at least one second".to_owned()));
        }
        let expires_seconds = now_ms.div_euclid(1000).saturating_add(lifetime_seconds);
        let mut head = format!("{}/", self.base_url).into_bytes();
        percent::append_key(prefix.as_bytes(), &mut head);
        let mut signed_head = Vec::with_capacity(head.len());
        percent::append_uri(&head[self.path_at..], &mut signed_head);
        let signed_tail = format!("\n{expires_seconds}");
        Ok(UrlTemplate {
            tail: format!("?sp=r&expires={expires_seconds}&signature={}", Form::Hex.pending()).into_bytes(),
            text: PathText::new(self.key.inner(), BLOCK_BYTES, &signed_head, signed_tail.as_bytes()),
            head,
            is_decoded: false,
            string_to_sign: None,
            outer: self.key.outer(),
            signature_bytes: Form::Hex.bytes(),
            form: Form::Hex,
            expires_ms: expires_seconds.saturating_mul(1000),
            // The first byte of a local table costs a disk read, which hides the effect of wide registers.
            engine: Engine::detect(false),
        })
    }
}

/// Returns whether a URL of the files route is valid. `path` is the percent-encoded path of the request; the
/// signature covers its decoded form.
///
/// The signature is compared in constant time, also if the URL has expired.
#[must_use]
pub fn verify_local_url(path: &str, expires: &str, signature: &str, key: &[u8], now_ms: i64) -> bool {
    let (Ok(mut hmac), Some(signature)) = (Hmac::<sha2::Sha256>::new_from_slice(key), decode_hex(signature))
    else {
        return false;
    };
    let mut signed_path = Vec::with_capacity(path.len());
    percent::append_uri(path.as_bytes(), &mut signed_path);
    hmac.update(&signed_path);
    hmac.update(b"\n");
    hmac.update(expires.as_bytes());
    let is_signed = hmac.verify_slice(&signature).is_ok();
    let is_alive = expires.parse::<i64>().is_ok_and(|seconds| seconds.saturating_mul(1000) > now_ms);
    is_signed && is_alive
}

/// Decodes 64 lower-case digits: a signature has exactly one form.
fn decode_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
        let digits = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use crate::sign::Signer;

    use super::*;

    const KEY: &[u8] = b"a key of the files route";
    const NOW_MS: i64 = 1_700_000_000_500;

    fn signed(key: &str) -> (String, String, String) {
        let signer = Signer::local("http://127.0.0.1:8080/files/t1/", KEY).unwrap();
        let (url, expires_ms) = signer.sign(key, NOW_MS, 60).unwrap();
        assert_eq!(expires_ms, 1_700_000_060_000);
        let rest = url.strip_prefix("http://127.0.0.1:8080").unwrap();
        let (path, query) = rest.split_once("?sp=r&expires=").unwrap();
        let (expires, signature) = query.split_once("&signature=").unwrap();
        (path.to_owned(), expires.to_owned(), signature.to_owned())
    }

    #[test]
    fn a_url_verifies_until_it_expires() {
        let (path, expires, signature) = signed("a b/é=1%.parquet");
        assert_eq!(path, "/files/t1/a%20b/%C3%A9%3D1%25.parquet");
        assert_eq!(expires, "1700000060");
        assert!(verify_local_url(&path, &expires, &signature, KEY, NOW_MS));
        assert!(verify_local_url(&path, &expires, &signature, KEY, 1_700_000_059_999));
        assert!(!verify_local_url(&path, &expires, &signature, KEY, 1_700_000_060_000));
    }

    #[test]
    fn another_spelling_of_the_same_path_verifies() {
        let signer = Signer::local("http://127.0.0.1:8080/files/a+b=c", KEY).unwrap();
        let (url, _) = signer.sign("d=1/x+y z%41", NOW_MS, 60).unwrap();
        let (path, query) =
            url.strip_prefix("http://127.0.0.1:8080").unwrap().split_once("?sp=r&expires=").unwrap();
        assert_eq!(path, "/files/a+b=c/d%3D1/x%2By%20z%2541");
        let (expires, signature) = query.split_once("&signature=").unwrap();
        let verifies = |path: &str| verify_local_url(path, expires, signature, KEY, NOW_MS);
        for same in [path, "/files/a%2Bb%3Dc/d=1/x+y%20z%2541", "/files/%61%2bb=c/d%3d1/x+y z%2541"] {
            assert!(verifies(same), "{same}");
        }
        for other in
            ["/files/a+b=c/d=1/x+y%20zA", "/files/a+b=c/d=1/x+y%20z%41", "/files/a+b=c/d=1/x%20y%20z%2541"]
        {
            assert!(!verifies(other), "{other}");
        }
    }

    #[test]
    fn an_altered_url_does_not_verify() {
        let (path, expires, signature) = signed("part-0.parquet");
        let verifies = |path: &str, expires: &str, signature: &str, key: &[u8]| {
            verify_local_url(path, expires, signature, key, NOW_MS)
        };
        assert!(verifies(&path, &expires, &signature, KEY));
        assert!(!verifies(&path.replace("t1", "t2"), &expires, &signature, KEY));
        assert!(!verifies(&path, "1700000061", &signature, KEY));
        assert!(!verifies(&path, &expires, &signature, b"another key"));
        assert!(!verifies(&path, &expires, &signature.to_uppercase(), KEY));
        assert!(!verifies(&path, &expires, &signature[..63], KEY));
        assert!(!verifies(&path, &expires, "", KEY));
        for at in 0..64 {
            let mut altered = signature.clone().into_bytes();
            altered[at] = if altered[at] == b'0' { b'1' } else { b'0' };
            assert!(!verifies(&path, &expires, &String::from_utf8(altered).unwrap(), KEY), "digit {at}");
        }
    }

    #[test]
    fn a_base_that_would_not_be_sent_as_it_is_is_refused() {
        for base_url in ["", "ftp://h/f", "http://h/a b", "http://h/a\"b", "http://h/?q=1", "/files/t1"] {
            assert!(Signer::local(base_url, KEY).is_err(), "{base_url}");
        }
        assert!(Signer::local("http://h/f", b"").is_err());
    }
}
