//! SHA-256 and MD5 of many short messages at once.
//!
//! Takes groups of at most [`GROUP`] messages, padded to whole blocks, and returns their digests. An [`Engine`] is
//! selected once for the CPU: sixteen or eight messages in parallel lanes, or one after another by the `sha2` and `md-5`
//! crates. Every engine returns the same digests for messages of any lengths. Lanes are fast if the messages of a group
//! have about the same number of blocks.

pub(crate) mod block;
mod hmac_key;
mod shared_suffix;

use md5::block_api::compress as md5_compress;
use sha2::block_api::compress256;

#[cfg(target_arch = "x86_64")]
use crate::simd::Lanes;

pub(crate) use block::{
    BLOCK_BYTES, Block, MD5_INITIAL, SHA256_INITIAL, Sha256State, blocks, pad_md5, pad_sha256,
};
pub(crate) use hmac_key::{HmacKey, outer_block};
pub(crate) use shared_suffix::SharedSuffix;

/// Maximum messages of a group.
pub(crate) const GROUP: usize = 16;

/// A hash implementation, selected once and cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// One or two messages at a time, with hashing instructions if the CPU has them.
    Portable,
    /// Many messages in parallel.
    #[cfg(target_arch = "x86_64")]
    Wide(Lanes),
}

// All lanes together take about as long as this many messages without them.
#[cfg(target_arch = "x86_64")]
const SHA256_PAYS_FROM: usize = 9;
#[cfg(target_arch = "x86_64")]
const MD5_PAYS_FROM: usize = 3;

impl Engine {
    /// Returns the fastest engine of this CPU; `portable` disables wide registers.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn detect(portable: bool) -> Self {
        match Lanes::detect() {
            Some(lanes) if !portable => Self::Wide(lanes),
            _ => Self::Portable,
        }
    }

    /// Returns the fastest engine of this CPU.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn detect(_portable: bool) -> Self {
        Self::Portable
    }

    /// Hashes padded `messages` with the state `initial`; writes the digest of `messages[i]` to `digests[i]`.
    pub(crate) fn sha256(self, initial: &Sha256State, messages: &[&[Block]], digests: &mut [[u8; 32]]) {
        self.sha256_with_suffix(initial, messages, &SharedSuffix::default(), digests);
    }

    /// As [`Self::sha256`], of messages followed by the blocks of `suffix`. Fast for messages of equal length.
    pub(crate) fn sha256_with_suffix(
        self,
        initial: &Sha256State,
        messages: &[&[Block]],
        suffix: &SharedSuffix,
        digests: &mut [[u8; 32]],
    ) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Wide(lanes)
                if messages.len() >= SHA256_PAYS_FROM
                    && lanes.beat_sha_instructions()
                    && (suffix.is_empty() || are_equally_long(messages)) =>
            {
                lanes.sha256(initial, messages, suffix.schedules(), digests);
            }
            _ => sha256_portably(initial, messages, suffix, digests),
        }
    }

    /// Hashes `messages` padded by [`pad_md5`]; the digest of `messages[i]` goes to `digests[i]`.
    pub(crate) fn md5(self, messages: &[&[Block]], digests: &mut [[u8; 16]]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Wide(lanes) if messages.len() >= MD5_PAYS_FROM => lanes.md5(messages, digests),
            _ => md5_one_by_one(messages, digests),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn are_equally_long(messages: &[&[Block]]) -> bool {
    messages.windows(2).all(|pair| pair[0].len() == pair[1].len())
}

fn sha256_portably(
    initial: &Sha256State,
    messages: &[&[Block]],
    suffix: &SharedSuffix,
    digests: &mut [[u8; 32]],
) {
    #[cfg(target_arch = "x86_64")]
    if crate::simd::sha256_by_instructions(initial, messages, suffix.schedules(), digests) {
        return;
    }
    sha256_one_by_one(initial, messages, suffix, digests);
}

fn sha256_one_by_one(
    initial: &Sha256State,
    messages: &[&[Block]],
    suffix: &SharedSuffix,
    digests: &mut [[u8; 32]],
) {
    for (message, digest) in messages.iter().zip(digests) {
        let mut state = *initial;
        compress256(&mut state, message);
        compress256(&mut state, suffix.blocks());
        *digest = big_endian(&state);
    }
}

fn md5_one_by_one(messages: &[&[Block]], digests: &mut [[u8; 16]]) {
    for (message, digest) in messages.iter().zip(digests) {
        let mut state = MD5_INITIAL;
        md5_compress(&mut state, message);
        for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
            *bytes = word.to_le_bytes();
        }
    }
}

/// Hashes the whole blocks of `text` into `state`; returns the rest.
pub(crate) fn absorb_whole_blocks<'text>(state: &mut Sha256State, text: &'text [u8]) -> &'text [u8] {
    let (blocks, rest) = text.as_chunks::<BLOCK_BYTES>();
    compress256(state, blocks);
    rest
}

fn big_endian(state: &Sha256State) -> [u8; 32] {
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    digest
}

/// Lower-case hex.
pub(crate) fn hex<const BYTES: usize>(bytes: &[u8; BYTES]) -> [[u8; 2]; BYTES] {
    let mut text = [[0; 2]; BYTES];
    for (pair, byte) in text.iter_mut().zip(bytes) {
        *pair = hex_pair(*byte);
    }
    text
}

/// Writes the hex of `bytes` to `text`, which has twice the length.
pub(crate) fn write_hex(bytes: &[u8], text: &mut [u8]) {
    for (pair, byte) in text.as_chunks_mut().0.iter_mut().zip(bytes) {
        *pair = hex_pair(*byte);
    }
}

/// The same as a `String`.
pub(crate) fn hex_text<const BYTES: usize>(bytes: &[u8; BYTES]) -> String {
    hex(bytes).as_flattened().iter().map(|digit| char::from(*digit)).collect()
}

/// A digest of texts in their order, each with its length, which keeps ("ab","c") from ("a","bc").
#[derive(Default)]
pub(crate) struct SequenceDigest(sha2::Sha256);

impl SequenceDigest {
    pub(crate) fn add(&mut self, text: impl AsRef<[u8]>) {
        use sha2::Digest;
        self.0.update((text.as_ref().len() as u64).to_le_bytes());
        self.0.update(text);
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        sha2::Digest::finalize(self.0).into()
    }
}

// Arithmetic on both digits instead of a table, so that the loop above is vectorized on every CPU.
fn hex_pair(byte: u8) -> [u8; 2] {
    let wide = u16::from(byte);
    let digits = (wide >> 4 | wide << 8) & 0x0f0f;
    let is_letter = (digits + 0x0606) >> 4 & 0x0101;
    (digits + 0x3030 + is_letter * u16::from(b'a' - b'0' - 10)).to_le_bytes()
}

/// A slow reference for [`hex`], digit by digit.
#[cfg(test)]
pub(crate) fn slow_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::Digest;

    use super::*;

    fn engines() -> Vec<Engine> {
        let mut engines = vec![Engine::Portable, Engine::detect(false)];
        #[cfg(target_arch = "x86_64")]
        engines.extend(Lanes::available().into_iter().map(Engine::Wide));
        engines
    }

    fn padded(messages: &[Vec<u8>], pad: fn(&mut Vec<u8>)) -> Vec<Vec<u8>> {
        let mut padded = messages.to_vec();
        padded.iter_mut().for_each(pad);
        padded
    }

    fn sha256_of(engine: Engine, messages: &[Vec<u8>]) -> Vec<[u8; 32]> {
        let padded = padded(messages, |message| pad_sha256(message, 0));
        let messages: Vec<&[Block]> = padded.iter().map(|message| blocks(message)).collect();
        let mut digests = vec![[0; 32]; messages.len()];
        engine.sha256(&SHA256_INITIAL, &messages, &mut digests);
        digests
    }

    fn sha256_slowly(messages: &[Vec<u8>]) -> Vec<[u8; 32]> {
        let slowly = |message: &Vec<u8>| {
            let mut digest = [[0; 32]];
            let suffix = SharedSuffix::default();
            sha256_one_by_one(&SHA256_INITIAL, &[blocks(message)], &suffix, &mut digest);
            digest[0]
        };
        padded(messages, |message| pad_sha256(message, 0)).iter().map(slowly).collect()
    }

    fn md5_of(engine: Engine, messages: &[Vec<u8>]) -> Vec<[u8; 16]> {
        let padded = padded(messages, pad_md5);
        let messages: Vec<&[Block]> = padded.iter().map(|message| blocks(message)).collect();
        let mut digests = vec![[0; 16]; messages.len()];
        engine.md5(&messages, &mut digests);
        digests
    }

    proptest! {
        #[test]
        fn every_engine_agrees_with_the_hash_crates_for_messages_of_any_lengths(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..=GROUP),
        ) {
            prop_assert_eq!(sha256_slowly(&messages), sha256_of(Engine::Portable, &messages));
            for engine in engines() {
                for (message, digest) in messages.iter().zip(sha256_of(engine, &messages)) {
                    prop_assert_eq!(&sha2::Sha256::digest(message)[..], &digest[..]);
                }
                for (message, digest) in messages.iter().zip(md5_of(engine, &messages)) {
                    prop_assert_eq!(&md5::Md5::digest(message)[..], &digest[..]);
                }
            }
        }

        #[test]
        fn messages_that_end_alike_hash_as_those_written_out(
            heads in prop::collection::vec(prop::collection::vec(any::<u8>(), 3 * BLOCK_BYTES), 0..=GROUP),
            own_blocks in prop::collection::vec(0usize..=3, GROUP),
            are_equally_long in any::<bool>(),
            suffix in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let own_blocks = |index: usize| own_blocks[if are_equally_long { 0 } else { index }];
            let own: Vec<&[Block]> =
                heads.iter().enumerate().map(|(index, head)| &blocks(head)[..own_blocks(index)]).collect();
            for engine in engines() {
                // The padding includes the length, so only messages of equal length have the same suffix.
                let mut padded = suffix.clone();
                pad_sha256(&mut padded, own_blocks(0) * BLOCK_BYTES);
                let mut digests = vec![[0; 32]; own.len()];
                engine.sha256_with_suffix(&SHA256_INITIAL, &own, &SharedSuffix::of(blocks(&padded)), &mut digests);
                for (digest, own) in digests.iter().zip(&own) {
                    let mut state = SHA256_INITIAL;
                    compress256(&mut state, own);
                    compress256(&mut state, blocks(&padded));
                    prop_assert_eq!(digest, &big_endian(&state));
                    if are_equally_long {
                        let whole = [own.as_flattened(), &suffix].concat();
                        prop_assert_eq!(&digest[..], &sha2::Sha256::digest(whole)[..]);
                    }
                }
            }
        }

        #[test]
        fn hex_is_lower_case_and_most_significant_first(bytes: [u8; 32]) {
            let text = |pairs: &[[u8; 2]]| String::from_utf8_lossy(pairs.as_flattened()).into_owned();
            prop_assert_eq!(text(&hex(&bytes)), slow_hex(&bytes));
            let short: [u8; 16] = bytes.as_chunks().0[1];
            prop_assert_eq!(text(&hex(&short)), slow_hex(&short));
        }
    }

    #[test]
    fn messages_around_a_block_boundary_are_padded_right() {
        for length in 0..200 {
            let message = vec![b'x'; length];
            for engine in engines() {
                assert_eq!(
                    sha256_of(engine, std::slice::from_ref(&message))[0],
                    sha2::Sha256::digest(&message)[..]
                );
                assert_eq!(md5_of(engine, std::slice::from_ref(&message))[0], md5::Md5::digest(&message)[..]);
            }
        }
    }
}
