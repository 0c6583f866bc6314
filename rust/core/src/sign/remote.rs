//! Signatures by a service, one request for each URL.
//!
//! The digests of the URLs of a chunk are collected first, so that many requests are in flight. A stream counts its
//! requests, and ends with an error at a limit.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hashing::{hex, write_hex};
use crate::stop::Stop;
use crate::{Error, Result};

/// The bytes of a signature: services sign by RSA keys of 2048 bits.
const BYTES: usize = 256;

/// A service that holds a private key.
pub trait SigningService: Send + Sync {
    /// Returns the signatures of texts, in order. Blocks. Ends with an error at `stop`.
    fn sign(&self, texts: Vec<Vec<u8>>, stop: &Stop) -> Result<Vec<Vec<u8>>>;
}

/// Signs strings that end in the hex digits of a digest.
pub(super) struct RemoteSignature {
    service: Arc<dyn SigningService>,
    /// The string before the digits.
    head: Vec<u8>,
    most: Option<u64>,
}

impl RemoteSignature {
    /// The length of a signature in hex digits.
    pub(super) const DIGITS: usize = 2 * BYTES;

    /// `most` is the maximum number of signatures of a stream.
    pub(super) fn new(service: Arc<dyn SigningService>, head: Vec<u8>, most: Option<u64>) -> Self {
        Self { service, head, most }
    }

    /// Returns an error if an answer has more URLs than are signed.
    pub(super) fn check(&self, count: u64) -> Result<()> {
        match self.most {
            Some(most) if count > most => Err(Error::TooManySignatures { most }),
            _ => Ok(()),
        }
    }

    /// Writes the signatures of digests to their places in `out`.
    pub(super) fn write(&self, pending: &[Pending], requests: &Requests, out: &mut [u8]) -> Result<()> {
        let count = pending.len() as u64;
        self.check(requests.count.fetch_add(count, Ordering::Relaxed).saturating_add(count))?;
        let text = |pending: &Pending| [self.head.as_slice(), hex(&pending.digest).as_flattened()].concat();
        let signatures = self.service.sign(pending.iter().map(text).collect(), &requests.stop)?;
        let is_expected = |signature: &Vec<u8>| signature.len() == BYTES;
        if signatures.len() != pending.len() || !signatures.iter().all(is_expected) {
            return Err(Error::StorageUnavailable {
                detail: "the service that signs URLs answered with a signature of another length".into(),
            });
        }
        for (Pending { at, .. }, signature) in pending.iter().zip(&signatures) {
            write_hex(signature, out.get_mut(*at..*at + Self::DIGITS).unwrap_or_default());
        }
        Ok(())
    }
}

/// A digest whose signature is pending.
pub(super) struct Pending {
    /// The place of the signature in the output.
    pub(super) at: usize,
    pub(super) digest: [u8; 32],
}

/// The requests of one stream, shared by its threads.
#[derive(Default)]
pub(super) struct Requests {
    count: AtomicU64,
    pub(super) stop: Stop,
}

impl fmt::Debug for dyn SigningService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningService(***)")
    }
}
