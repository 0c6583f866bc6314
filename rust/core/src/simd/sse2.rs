//! Checks sixteen bytes per step, with the instructions of every x86-64 CPU.

use std::arch::x86_64::{
    __m128i, _mm_add_epi8, _mm_and_si128, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
    _mm_set1_epi8,
};

/// Returns the number of leading bytes of `block` that are literal in a URL's path.
#[target_feature(enable = "sse2")]
#[inline]
pub(super) fn url_plain_run(block: &[u8; 16]) -> usize {
    _mm_movemask_epi8(plain_set(bytemuck::cast(*block))).trailing_ones() as usize
}

#[target_feature(enable = "sse2")]
#[inline]
pub(super) fn has_two_dots(text: &[u8]) -> bool {
    let (Some(first), Some(second)) =
        (text.last_chunk::<17>().and_then(|last| last.first_chunk()), text.last_chunk())
    else {
        return text.windows(2).any(|pair| pair == b"..");
    };
    // The last pairs overlap pairs of the previous whole blocks.
    let mut found = two_dots(*first, *second);
    for (first, second) in text.as_chunks().0.iter().zip(text[1..].as_chunks().0) {
        found = _mm_or_si128(found, two_dots(*first, *second));
    }
    _mm_movemask_epi8(found) != 0
}

/// Returns a mask of the positions at which both blocks have a dot.
#[target_feature(enable = "sse2")]
#[inline]
fn two_dots(first: [u8; 16], second: [u8; 16]) -> __m128i {
    let is_dot = |block: [u8; 16]| _mm_cmpeq_epi8(bytemuck::cast(block), splat(b'.'));
    _mm_and_si128(is_dot(first), is_dot(second))
}

/// Returns a mask of the unreserved characters (RFC 3986, section 2.3) and `/`.
#[target_feature(enable = "sse2")]
#[inline]
fn plain_set(bytes: __m128i) -> __m128i {
    let letter = between(_mm_or_si128(bytes, splat(0x20)), b'a', b'z');
    // `-`, `.`, `/` and the digits are consecutive.
    let digit_or_mark = between(bytes, b'-', b'9');
    let other = _mm_or_si128(_mm_cmpeq_epi8(bytes, splat(b'_')), _mm_cmpeq_epi8(bytes, splat(b'~')));
    _mm_or_si128(letter, _mm_or_si128(digit_or_mark, other))
}

#[target_feature(enable = "sse2")]
#[inline]
fn between(bytes: __m128i, first: u8, last: u8) -> __m128i {
    let from_first = _mm_add_epi8(bytes, splat(first.wrapping_neg()));
    _mm_cmpeq_epi8(_mm_min_epu8(from_first, splat(last - first)), from_first)
}

#[target_feature(enable = "sse2")]
#[inline]
fn splat(byte: u8) -> __m128i {
    _mm_set1_epi8(byte.cast_signed())
}
