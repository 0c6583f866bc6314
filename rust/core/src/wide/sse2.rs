//! Sixteen bytes looked at in one step, with what every CPU of this architecture has.

use std::arch::x86_64::{
    __m128i, _mm_add_epi8, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
};

/// How many bytes at the beginning of `text` stand for themselves in a URL's path, looked at in whole blocks of
/// sixteen: there may be more of them where the last block ends.
#[target_feature(enable = "sse2")]
#[inline]
pub(super) fn url_plain_blocks(text: &[u8]) -> usize {
    let (blocks, _) = text.as_chunks::<16>();
    for (index, block) in blocks.iter().enumerate() {
        let plain = _mm_movemask_epi8(plain_set(bytemuck::cast(*block))).cast_unsigned();
        if plain != 0xffff {
            return index * 16 + plain.trailing_ones() as usize;
        }
    }
    blocks.len() * 16
}

/// Unreserved characters (RFC 3986, section 2.3) and `/`.
#[target_feature(enable = "sse2")]
#[inline]
fn plain_set(bytes: __m128i) -> __m128i {
    let letter = between(_mm_or_si128(bytes, splat(0x20)), b'a', b'z');
    // `-`, `.`, `/` and the digits stand in a row.
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
