//! Vector code for x86-64, selected at run time: hashing of many messages in lanes, and escaping.
//!
//! The functions of the submodules are safe except that they require a CPU with the instructions they are compiled for.
//! Only this module may use `unsafe`, and only for calls behind a CPU check. The calls are out of line on purpose: when
//! inlined beside wide vectors, the hashing instructions of the portable path become many times slower, because the
//! compiler cannot clear the upper halves of the registers in between.

#![allow(unsafe_code)]

#[macro_use]
mod hash;
mod avx2;
mod avx512;
mod sha_ni;
mod sse2;
mod ssse3;

use crate::hashing::block::{Block, Schedule, Sha256State};

/// The number of lanes. A value exists only if this CPU supports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lanes(Width);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    /// Eight, in AVX2.
    Eight,
    /// Sixteen, in AVX-512.
    Sixteen,
}

impl Lanes {
    /// Returns the maximum of this CPU.
    pub(crate) fn detect() -> Option<Self> {
        Self::available().pop()
    }

    /// Returns all widths of this CPU in ascending order.
    pub(crate) fn available() -> Vec<Self> {
        let mut available = Vec::new();
        if is_x86_feature_detected!("avx2") {
            available.push(Self(Width::Eight));
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            available.push(Self(Width::Sixteen));
        }
        available
    }

    /// Returns whether there are sixteen lanes, in AVX-512.
    pub(crate) fn are_sixteen(self) -> bool {
        self.0 == Width::Sixteen
    }

    /// Returns whether SHA-256 is faster in these lanes than with SHA instructions, which are faster than eight
    /// lanes.
    pub(crate) fn beat_sha_instructions(self) -> bool {
        self.are_sixteen() || !is_x86_feature_detected!("sha")
    }

    /// Hashes padded `messages` with the state `initial`. With a `suffix`, messages must have equal lengths.
    #[inline(never)]
    pub(crate) fn sha256(
        self,
        initial: &Sha256State,
        messages: &[&[Block]],
        suffix: &[Schedule],
        digests: &mut [[u8; 32]],
    ) {
        // SAFETY: a value of this type is only made where the CPU's features were seen.
        match self.0 {
            Width::Sixteen => unsafe { avx512::sha256(initial, messages, suffix, digests) },
            Width::Eight => unsafe { avx2::sha256(initial, messages, suffix, digests) },
        }
    }

    /// Hashes padded `messages`.
    #[inline(never)]
    pub(crate) fn md5(self, messages: &[&[Block]], digests: &mut [[u8; 16]]) {
        // SAFETY: a value of this type is only made where the CPU's features were seen.
        match self.0 {
            Width::Sixteen => unsafe { avx512::md5(messages, digests) },
            Width::Eight => unsafe { avx2::md5(messages, digests) },
        }
    }
}

/// Hashes padded `messages` and the `suffix` with the state `initial` by SHA instructions; returns false without
/// them.
#[inline(never)]
pub(crate) fn sha256_by_instructions(
    initial: &Sha256State,
    messages: &[&[Block]],
    suffix: &[Schedule],
    digests: &mut [[u8; 32]],
) -> bool {
    let can = is_x86_feature_detected!("sha")
        && is_x86_feature_detected!("sse4.1")
        && is_x86_feature_detected!("ssse3");
    if can {
        // SAFETY: the CPU's features were seen on the lines before.
        unsafe { sha_ni::sha256(initial, messages, suffix, digests) };
    }
    can
}

/// Escapes quotes and backslashes of the leading blocks of sixteen bytes without other characters to escape; returns
/// the bytes of `text` consumed, `None` without the instructions.
pub(crate) fn append_escaped_blocks(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    if !(is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("popcnt")) {
        return None;
    }
    // SAFETY: the CPU's features were seen on the line before.
    Some(unsafe { ssse3::append_escaped_blocks(text, out) })
}

/// Unescapes the leading blocks of sixteen bytes of `text` whose only escapes are quotes into `out`, which is as
/// long as `text`; returns the bytes consumed and written, `None` without the instructions.
pub(crate) fn unescape_blocks(text: &[u8], out: &mut [u8]) -> Option<(usize, usize)> {
    if !(is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("popcnt")) {
        return None;
    }
    // SAFETY: the CPU's features were seen on the line before.
    Some(unsafe { ssse3::unescape_blocks(text, out) })
}

/// Returns the number of leading bytes of `block` that are literal in a URL's path.
pub(crate) fn url_plain_run(block: &[u8; 16]) -> usize {
    // SAFETY: there is no CPU of this architecture without SSE2.
    unsafe { sse2::url_plain_run(block) }
}

pub(crate) fn has_two_dots(text: &[u8]) -> bool {
    // SAFETY: there is no CPU of this architecture without SSE2.
    unsafe { sse2::has_two_dots(text) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::Digest;

    use super::*;
    use crate::hashing::block::{SHA256_INITIAL, blocks, pad_md5, pad_sha256};

    fn padded(messages: &[Vec<u8>], pad: impl Fn(&mut Vec<u8>)) -> Vec<Vec<u8>> {
        let mut messages = messages.to_vec();
        messages.iter_mut().for_each(pad);
        messages
    }

    proptest! {
        #[test]
        fn all_lanes_of_this_cpu_agree_with_the_hash_crates(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 0..40),
        ) {
            let for_sha256 = padded(&messages, |message| pad_sha256(message, 0));
            let for_sha256: Vec<&[Block]> = for_sha256.iter().map(|message| blocks(message)).collect();
            let for_md5 = padded(&messages, pad_md5);
            let for_md5: Vec<&[Block]> = for_md5.iter().map(|message| blocks(message)).collect();
            for lanes in Lanes::available() {
                let mut sha256 = vec![[0; 32]; messages.len()];
                lanes.sha256(&SHA256_INITIAL, &for_sha256, &[], &mut sha256);
                let mut md5 = vec![[0; 16]; messages.len()];
                lanes.md5(&for_md5, &mut md5);
                for (index, message) in messages.iter().enumerate() {
                    prop_assert_eq!(&sha256[index][..], &sha2::Sha256::digest(message)[..]);
                    prop_assert_eq!(&md5[index][..], &md5::Md5::digest(message)[..]);
                }
            }
            let mut sha256 = vec![[0; 32]; messages.len()];
            if sha256_by_instructions(&SHA256_INITIAL, &for_sha256, &[], &mut sha256) {
                for (digest, message) in sha256.iter().zip(&messages) {
                    prop_assert_eq!(&digest[..], &sha2::Sha256::digest(message)[..]);
                }
            }
        }

        #[test]
        fn two_dots_are_found_wherever_they_stand(text in "[.a]{0,3}[a/]{0,40}[.a]{0,2}[a/]{0,40}[.a]{0,3}") {
            prop_assert_eq!(has_two_dots(text.as_bytes()), text.contains(".."));
        }

        #[test]
        fn a_plain_run_ends_at_the_first_other_byte(block: [u8; 16], plain in "[a-zA-Z0-9/~_.-]{0,16}") {
            let mut block = block;
            block[..plain.len()].copy_from_slice(plain.as_bytes());
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
            prop_assert_eq!(url_plain_run(&block), block.iter().take_while(|byte| is_plain(byte)).count());
        }
    }
}
