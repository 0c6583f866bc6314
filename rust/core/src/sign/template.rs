//! What all URLs of one root have in common, and the groups in which their signatures are made.
//!
//! A signer prepares a [`UrlTemplate`] once per stream: the text around the object's path, and hash states that
//! have already taken in whatever does not depend on the path. A [`Group`] collects the texts of up to
//! [`GROUP`] URLs that stand in the output without a signature, hashes them together and fills the signatures
//! in. Nothing is allocated per URL once the buffers have grown to the longest path.

use crate::digest::{
    BLOCK_BYTES, Block, Engine, GROUP, HmacKey, Sha256State, absorb_whole_blocks, blocks, outer_block,
    pad_sha256, write_hex,
};

/// The length of a signature in hex digits.
pub(super) const SIGNATURE_BYTES: usize = 64;

/// Stands for a signature until it is there.
pub(super) const NO_SIGNATURE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The constant parts of one root's URLs. Secret: it can sign.
#[derive(Clone)]
pub(super) struct UrlTemplate {
    /// The URL up to the encoded path below the root.
    pub(super) head: Vec<u8>,
    /// The URL after the path, with zeros for the signature that ends it.
    pub(super) tail: Vec<u8>,
    /// The text whose digest or HMAC the path goes into.
    pub(super) text: PathText,
    /// The text that takes the digest of `text` as hex, where the scheme has one more step.
    pub(super) string_to_sign: Option<DigestText>,
    /// The state that the last digest goes into.
    pub(super) outer: Sha256State,
    /// When the URLs expire, milliseconds since the epoch.
    pub(super) expires_ms: i64,
    /// What hashes.
    pub(super) engine: Engine,
}

/// A text around a path, its beginning hashed as far as it fills blocks.
#[derive(Clone)]
pub(super) struct PathText {
    state: Sha256State,
    absorbed_bytes: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl PathText {
    /// `absorbed_bytes` are in `state` already.
    pub(super) fn new(mut state: Sha256State, absorbed_bytes: usize, head: &[u8], tail: &[u8]) -> Self {
        let rest = absorb_whole_blocks(&mut state, head).to_vec();
        let absorbed_bytes = absorbed_bytes + head.len() - rest.len();
        Self { state, absorbed_bytes, head: rest, tail: tail.to_vec() }
    }

    fn write(&self, path: &[u8], message: &mut PathMessage) {
        let path_at = self.head.len();
        // Most paths of a table are of one length: all around them stands there already.
        if message.path_bytes == Some(path.len()) {
            message.padded[path_at..path_at + path.len()].copy_from_slice(path);
            return;
        }
        message.path_bytes = Some(path.len());
        message.padded.clear();
        // Grown at once: step by step it would cost a small answer as much as its signatures.
        message.padded.reserve(path_at + path.len() + self.tail.len() + 2 * BLOCK_BYTES);
        message.padded.extend_from_slice(&self.head);
        message.padded.extend_from_slice(path);
        message.padded.extend_from_slice(&self.tail);
        pad_sha256(&mut message.padded, self.absorbed_bytes);
    }
}

/// What is left of a [`PathText`] with a path in it.
#[derive(Default)]
struct PathMessage {
    padded: Vec<u8>,
    path_bytes: Option<usize>,
}

/// A text that ends in the hex digits of a digest, hashed by a key as far as it fills blocks.
#[derive(Clone)]
pub(super) struct DigestText {
    state: Sha256State,
    /// What is left of the text, padded, the digits still to be filled in.
    padded: [Block; DIGEST_TEXT_BLOCKS],
    digits_at: usize,
    block_count: usize,
}

/// Less than a block of text, the digits, and the padding.
const DIGEST_TEXT_BLOCKS: usize = 3;

impl DigestText {
    pub(super) fn new(key: &HmacKey, head: &[u8]) -> Self {
        let mut state = key.inner();
        let mut message = absorb_whole_blocks(&mut state, head).to_vec();
        let absorbed_bytes = BLOCK_BYTES + head.len() - message.len();
        let digits_at = message.len();
        message.extend_from_slice(&[b'0'; SIGNATURE_BYTES]);
        pad_sha256(&mut message, absorbed_bytes);
        let mut padded = [[0; BLOCK_BYTES]; DIGEST_TEXT_BLOCKS];
        padded.as_flattened_mut()[..message.len()].copy_from_slice(&message);
        Self { state, padded, digits_at, block_count: message.len() / BLOCK_BYTES }
    }

    fn write(&self, digest: &[u8; 32]) -> [Block; DIGEST_TEXT_BLOCKS] {
        let mut message = self.padded;
        write_hex(digest, &mut message.as_flattened_mut()[self.digits_at..self.digits_at + SIGNATURE_BYTES]);
        message
    }
}

/// URLs of one template in an output that still wait for their signatures.
#[derive(Default)]
pub(super) struct Group {
    messages: [PathMessage; GROUP],
    signature_at: [usize; GROUP],
    count: usize,
}

impl Group {
    /// Appends a URL to `out`, whose encoded path `append_path` writes; its signature may come later.
    pub(super) fn append(
        &mut self,
        template: &UrlTemplate,
        out: &mut Vec<u8>,
        append_path: impl FnOnce(&mut Vec<u8>),
    ) {
        out.extend_from_slice(&template.head);
        let path_at = out.len();
        append_path(out);
        template.text.write(&out[path_at..], &mut self.messages[self.count]);
        out.extend_from_slice(&template.tail);
        self.signature_at[self.count] = out.len() - SIGNATURE_BYTES;
        self.count += 1;
        if self.count == GROUP {
            self.sign(template, out);
        }
    }

    /// Fills in the signatures that are missing in `out`.
    pub(super) fn sign(&mut self, template: &UrlTemplate, out: &mut [u8]) {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        let signatures = signatures(template, &self.messages[..count]);
        for (at, signature) in self.signature_at.iter().zip(&signatures[..count]) {
            if let Some(text) = out.get_mut(*at..*at + SIGNATURE_BYTES) {
                write_hex(signature, text);
            }
        }
    }

    /// Forgets the URLs at and after `length` in the output.
    pub(super) fn truncate(&mut self, length: usize) {
        while self.count > 0 && self.signature_at[self.count - 1] >= length {
            self.count -= 1;
        }
    }
}

fn signatures(template: &UrlTemplate, messages: &[PathMessage]) -> [[u8; 32]; GROUP] {
    let count = messages.len();
    let engine = template.engine;
    let mut digests = [[0; 32]; GROUP];

    let mut texts: [&[Block]; GROUP] = [&[]; GROUP];
    for (text, message) in texts.iter_mut().zip(messages) {
        *text = blocks(&message.padded);
    }
    engine.sha256(&template.text.state, &texts[..count], &mut digests);

    if let Some(string_to_sign) = &template.string_to_sign {
        let strings: [_; GROUP] = std::array::from_fn(|index| string_to_sign.write(&digests[index]));
        let texts: [&[Block]; GROUP] =
            std::array::from_fn(|index| &strings[index][..string_to_sign.block_count]);
        engine.sha256(&string_to_sign.state, &texts[..count], &mut digests);
    }

    let outers: [Block; GROUP] = std::array::from_fn(|index| outer_block(&digests[index]));
    let texts: [&[Block]; GROUP] = std::array::from_fn(|index| std::slice::from_ref(&outers[index]));
    engine.sha256(&template.outer, &texts[..count], &mut digests);
    digests
}
