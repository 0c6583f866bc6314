//! The parts that all URLs of one root share.
//!
//! A signer prepares a [`UrlTemplate`] once per stream: the text around the object's path, and hash states that include
//! everything before the path.

use std::sync::Arc;

use super::remote::RemoteSignature;
use super::rsa::RsaSignature;
use crate::hashing::{
    BLOCK_BYTES, Block, Engine, HmacKey, Sha256State, absorb_whole_blocks, blocks, hex, pad_sha256,
};

/// The length of a SHA-256 in hex digits.
pub(super) const DIGEST_DIGITS: usize = 64;

/// The form of a signature in a URL.
#[derive(Clone)]
pub(super) enum Form {
    /// The hex digits of an HMAC.
    Hex,
    /// The Base64 of an HMAC, see [`base64::append`](super::base64).
    Base64,
    /// The hex digits of a signature by RSA.
    Rsa(Arc<RsaSignature>),
    /// The hex digits of a signature by a service.
    Remote(Arc<RemoteSignature>),
}

impl Form {
    /// Returns the length of a signature, which is equal for all URLs.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Hex => DIGEST_DIGITS,
            Self::Base64 => super::base64::SIGNATURE_BYTES,
            Self::Rsa(rsa) => rsa.digits(),
            Self::Remote(_) => RemoteSignature::DIGITS,
        }
    }

    /// Returns the placeholder of a pending signature.
    pub(super) fn pending(&self) -> String {
        "0".repeat(self.bytes())
    }
}

/// The constant parts of the URLs of one root. Secret, since it can sign.
#[derive(Clone)]
pub(super) struct UrlTemplate {
    /// The URL up to the encoded path below the root.
    pub(super) head: Vec<u8>,
    /// The URL after the path, with zeros for the signature at the end.
    pub(super) tail: Vec<u8>,
    /// The text whose digest or HMAC includes the path.
    pub(super) text: PathText,
    /// Whether `text` includes the path without its percent-encoding.
    pub(super) is_decoded: bool,
    /// The text that includes the hex digest of `text`, for schemes with a second step.
    pub(super) string_to_sign: Option<DigestText>,
    /// The state of the last hash. Not used by RSA and services.
    pub(super) outer: Sha256State,
    pub(super) form: Form,
    pub(super) signature_bytes: usize,
    /// When the URLs expire, milliseconds since the epoch.
    pub(super) expires_ms: i64,
    pub(super) engine: Engine,
}

/// A text around a path, with the whole blocks before the path hashed.
#[derive(Clone)]
pub(super) struct PathText {
    state: Sha256State,
    absorbed_bytes: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl PathText {
    /// `state` includes `absorbed_bytes`.
    pub(super) fn new(mut state: Sha256State, absorbed_bytes: usize, head: &[u8], tail: &[u8]) -> Self {
        let rest = absorb_whole_blocks(&mut state, head).to_vec();
        let absorbed_bytes = absorbed_bytes + head.len() - rest.len();
        Self { state, absorbed_bytes, head: rest, tail: tail.to_vec() }
    }

    /// The state in which the rest of the text is hashed.
    pub(super) fn state(&self) -> Sha256State {
        self.state
    }

    /// Number of blocks up to the end of a path of this length. The following blocks are equal for all paths of this
    /// length.
    pub(super) fn blocks_to_path_end(&self, path_bytes: usize) -> usize {
        (self.head.len() + path_bytes).div_ceil(BLOCK_BYTES)
    }

    pub(super) fn write(&self, path: &[u8], message: &mut PathMessage) {
        let path_at = self.head.len();
        // Most paths of a table have one length, and everything around them is already in the buffer.
        if message.path_bytes == Some(path.len()) {
            message.padded[path_at..path_at + path.len()].copy_from_slice(path);
            return;
        }
        message.path_bytes = Some(path.len());
        message.padded.clear();
        // One allocation: growth in steps would cost a small answer as much as its signatures.
        message.padded.reserve(path_at + path.len() + self.tail.len() + 2 * BLOCK_BYTES);
        message.padded.extend_from_slice(&self.head);
        message.padded.extend_from_slice(path);
        message.padded.extend_from_slice(&self.tail);
        pad_sha256(&mut message.padded, self.absorbed_bytes);
    }
}

/// The rest of a [`PathText`] with a path.
#[derive(Default)]
pub(super) struct PathMessage {
    padded: Vec<u8>,
    path_bytes: Option<usize>,
}

impl PathMessage {
    pub(super) fn blocks(&self) -> &[Block] {
        blocks(&self.padded)
    }

    /// Returns its first `own_blocks` (by default all) and the following ones.
    pub(super) fn split_at(&self, own_blocks: Option<usize>) -> (&[Block], &[Block]) {
        let blocks = self.blocks();
        blocks.split_at(own_blocks.unwrap_or(usize::MAX).min(blocks.len()))
    }
}

/// A text that ends in the hex digits of a digest, with its whole blocks hashed by a key.
#[derive(Clone)]
pub(super) struct DigestText {
    pub(super) state: Sha256State,
    /// The rest of the text, padded, without the digits.
    pub(super) blocks: [Block; DIGEST_TEXT_BLOCKS],
    digits_at: usize,
    pub(super) block_count: usize,
}

/// Less than a block of text, the digits, and the padding.
pub(super) const DIGEST_TEXT_BLOCKS: usize = 3;

impl DigestText {
    pub(super) fn new(key: &HmacKey, head: &[u8]) -> Self {
        let mut state = key.inner();
        let mut message = absorb_whole_blocks(&mut state, head).to_vec();
        let absorbed_bytes = BLOCK_BYTES + head.len() - message.len();
        let digits_at = message.len();
        message.extend_from_slice(&[b'0'; DIGEST_DIGITS]);
        pad_sha256(&mut message, absorbed_bytes);
        let mut blocks = [[0; BLOCK_BYTES]; DIGEST_TEXT_BLOCKS];
        blocks.as_flattened_mut()[..message.len()].copy_from_slice(&message);
        Self { state, blocks, digits_at, block_count: message.len() / BLOCK_BYTES }
    }

    /// Writes the digits into a copy of `self.blocks`.
    pub(super) fn write(&self, digest: &[u8; 32], blocks: &mut [Block; DIGEST_TEXT_BLOCKS]) {
        let digits = &mut blocks.as_flattened_mut()[self.digits_at..self.digits_at + DIGEST_DIGITS];
        digits.copy_from_slice(hex(digest).as_flattened());
    }
}
