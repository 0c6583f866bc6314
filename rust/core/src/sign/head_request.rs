//! Requests for the properties of an object: AWS Signature Version 4 in the headers of a `HEAD` request.
//!
//! See <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::sigv4::{S3Options, S3Signer};
use super::v4::utc_basic;
use crate::hashing::hex_text;
use crate::percent;
use crate::{Error, Result};

/// Names the gateway in requests to stores.
pub(crate) const USER_AGENT: &str = concat!("delta-sharing-gateway/", env!("CARGO_PKG_VERSION"));

/// The SHA-256 digest of an empty body.
const EMPTY_BODY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Signs `HEAD` requests for the objects of one bucket.
pub(crate) struct HeadSigner(S3Signer);

impl HeadSigner {
    /// Creates a signer. Options that cannot be written into a header are an error.
    pub(crate) fn new(options: S3Options) -> Result<Self> {
        let token = options.session_token.as_deref().unwrap_or_default();
        let is_visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if ![&*options.region, &*options.access_key_id, token].into_iter().all(is_visible) {
            return Err(Error::InvalidArgument(
                "the storage's options cannot be sent in a header".to_owned(),
            ));
        }
        Ok(Self(S3Signer::new(options)?))
    }

    /// `https://host[:port]`, with the bucket if it is a part of the host.
    pub(crate) fn origin(&self) -> &str {
        &self.0.address.origin
    }

    /// Returns the bytes of a request for the object `key`, which is not encoded.
    pub(crate) fn request(&self, key: &str, now_seconds: i64) -> Result<Vec<u8>> {
        let (options, host) = (&self.0.options, &self.0.address.host);
        let time = utc_basic(now_seconds)?;
        let scope = format!("{}/{}/s3/aws4_request", &time[..8], options.region);
        let mut path = self.0.address.path.clone().into_bytes();
        percent::append_key(key.as_bytes(), &mut path);
        let path = String::from_utf8(path).map_err(|error| Error::Internal { detail: error.to_string() })?;
        let (token, token_name) = match &options.session_token {
            Some(token) => (format!("x-amz-security-token:{token}\n"), ";x-amz-security-token"),
            None => (String::new(), ""),
        };
        let headers = format!("host:{host}\nx-amz-content-sha256:{EMPTY_BODY}\nx-amz-date:{time}\n{token}");
        let names = format!("host;x-amz-content-sha256;x-amz-date{token_name}");
        let canonical = format!("HEAD\n{path}\n\n{headers}\n{names}\n{EMPTY_BODY}");
        let digest = hex_text(&Sha256::digest(canonical).into());
        let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
        let signature = hex_text(&self.0.keys.of(&time[..8]).sign(to_sign.as_bytes()));

        let mut request = format!("HEAD {path} HTTP/1.1\r\n");
        for line in headers.lines() {
            request.push_str(line);
            request.push_str("\r\n");
        }
        // Writing to a string cannot fail.
        let _ = write!(
            request,
            "accept: */*\r\nuser-agent: {USER_AGENT}\r\nauthorization: AWS4-HMAC-SHA256 Credential={}/{scope}, \
             SignedHeaders={names}, Signature={signature}\r\n\r\n",
            options.access_key_id,
        );
        Ok(request.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(options: S3Options) -> HeadSigner {
        let (access_key_id, secret_access_key) =
            ("AKIAIOSFODNN7EXAMPLE".to_owned(), "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned());
        HeadSigner::new(S3Options { access_key_id, secret_access_key, ..options }).unwrap()
    }

    fn options() -> S3Options {
        S3Options::new("examplebucket", "us-east-1", "", "")
    }

    fn text(signer: &HeadSigner, key: &str) -> String {
        String::from_utf8(signer.request(key, 1_369_353_600).unwrap()).unwrap()
    }

    #[test]
    fn a_request_has_the_signature_that_another_client_computes() {
        let request = text(&signer(options()), "_delta_log/00000000000000000001.json");
        // By botocore's S3SigV4Auth at the same time.
        assert_eq!(
            request.lines().find_map(|line| line.split_once("Signature=")).unwrap().1,
            "229abe829a7f6ba511b453d5d59c86c04acbf3f5a2d393b94dd877848bf6aa6a"
        );
        assert!(
            request
                .starts_with("HEAD /_delta_log/00000000000000000001.json HTTP/1.1\r\nhost:examplebucket.s3.")
        );
        assert!(request.ends_with("\r\n\r\n"));
        let temporary = signer(S3Options {
            session_token: Some("a/token==".to_owned()),
            endpoint: Some("http://127.0.0.1:9000".to_owned()),
            ..options()
        });
        let request = text(&temporary, "a folder/ü");
        assert!(
            request.starts_with("HEAD /examplebucket/a%20folder/%C3%BC HTTP/1.1\r\nhost:127.0.0.1:9000\r\n")
        );
        assert!(request.contains("\r\nx-amz-security-token:a/token==\r\n"));
        assert_eq!(
            request.lines().find_map(|line| line.split_once("Signature=")).unwrap().1,
            "0c682c77022b29775c2e37a92bffdb87e77944bd9c32d507cfc4d354b792ea6f"
        );
    }

    #[test]
    fn options_that_would_end_a_header_are_refused() {
        for text in ["a\r\nx: y", "a b", "ü"] {
            let options = S3Options { session_token: Some(text.to_owned()), ..options() };
            assert!(matches!(HeadSigner::new(options), Err(Error::InvalidArgument(_))));
        }
    }
}
