//! Escaping and unescaping by shuffles: eight bytes become up to sixteen in one step.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8, _mm_shuffle_epi8,
    _mm_unpackhi_epi64, _mm_unpacklo_epi64,
};

/// The number of bytes per step.
const BLOCK_BYTES: usize = 16;

/// The shuffle for each set of the eight bytes that need a backslash. Its input is eight bytes of text and eight
/// backslashes.
static ORDER: [[u8; 16]; 256] = orders(Some(8));

/// The shuffle for each set of the eight bytes that are dropped.
static KEPT: [[u8; 16]; 256] = orders(None);

/// A shuffle for each set of eight bytes: puts byte `before` before each byte of the set, or drops the set if it is
/// `None`.
const fn orders(before: Option<u8>) -> [[u8; 16]; 256] {
    let mut orders = [[0; 16]; 256];
    let mut set = 0;
    while set < 256 {
        let (mut at, mut byte) = (0, 0);
        while byte < 8 {
            let is_plain = set >> byte & 1 == 0;
            if !is_plain && let Some(before) = before {
                orders[set][at] = before;
                at += 1;
            }
            if is_plain || before.is_some() {
                orders[set][at] = byte;
                at += 1;
            }
            byte += 1;
        }
        set += 1;
    }
    orders
}

/// Escapes quotes and backslashes up to the first block that holds a control character or may hold a Unicode line
/// separator; returns the number of bytes consumed.
#[target_feature(enable = "ssse3,popcnt")]
pub(super) fn append_escaped_blocks(text: &[u8], out: &mut Vec<u8>) -> usize {
    let (blocks, rest) = text.as_chunks::<BLOCK_BYTES>();
    let start = out.len();
    out.resize(start + 2 * text.len() + 2 * BLOCK_BYTES, 0);
    let escaped = &mut out[start..];
    let mut length = 0;
    let mut taken = 0;
    for block in blocks {
        let Some(end) = write_escaped(*block, escaped, length) else { break };
        length = end;
        taken += BLOCK_BYTES;
    }
    if taken + rest.len() == text.len() {
        // The filler is copied unchanged behind the text and cut off again.
        let mut block = [FILLER; BLOCK_BYTES];
        block[..rest.len()].copy_from_slice(rest);
        if let Some(end) = write_escaped(block, escaped, length) {
            length = end - (BLOCK_BYTES - rest.len());
            taken = text.len();
        }
    }
    out.truncate(start + length);
    taken
}

/// Needs no escape.
const FILLER: u8 = b' ';

/// Writes an escaped block to `out` at `length`, and up to 8 bytes past its end; returns its end, or `None` for a
/// block that needs another escape.
#[target_feature(enable = "ssse3,popcnt")]
#[inline]
fn write_escaped(block: [u8; BLOCK_BYTES], out: &mut [u8], mut length: usize) -> Option<usize> {
    let bytes: __m128i = bytemuck::cast(block);
    if has_odd_byte(bytes) {
        return None;
    }
    let set = escape_set(bytes);
    for (half, set) in [(low_half(bytes), set & 0xff), (high_half(bytes), set >> 8)] {
        let order: __m128i = bytemuck::cast(ORDER[set as usize]);
        let escaped: [u8; 16] = bytemuck::cast(_mm_shuffle_epi8(half, order));
        out.get_mut(length..length + 16)?.copy_from_slice(&escaped);
        length += 8 + set.count_ones() as usize;
    }
    Some(length)
}

/// Writes `text` without the backslashes before quotes to `out`, which is as long as `text`, up to the first block
/// with another escape; returns the numbers of bytes consumed and written.
#[target_feature(enable = "ssse3,popcnt")]
pub(super) fn unescape_blocks(text: &[u8], out: &mut [u8]) -> (usize, usize) {
    let (mut taken, mut length) = (0, 0);
    while let Some(block) = text[taken..].first_chunk::<BLOCK_BYTES>() {
        let bytes: __m128i = bytemuck::cast(*block);
        let backslashes = _mm_movemask_epi8(equal(bytes, b'\\')).cast_unsigned();
        let quotes = _mm_movemask_epi8(equal(bytes, b'"')).cast_unsigned();
        if backslashes << 1 & 0xffff & !quotes != 0 {
            break;
        }
        let Some(position) = out.get_mut(length..length + BLOCK_BYTES) else { break };
        let mut end = 0;
        for (half, left_out) in
            [(bytes, backslashes & 0xff), (_mm_unpackhi_epi64(bytes, bytes), backslashes >> 8)]
        {
            let order: __m128i = bytemuck::cast(KEPT[left_out as usize]);
            let [kept, _]: [[u8; 8]; 2] = bytemuck::cast(_mm_shuffle_epi8(half, order));
            position[end..end + 8].copy_from_slice(&kept);
            end += 8 - left_out.count_ones() as usize;
        }
        length += end;
        // A backslash at the end of a block escapes the first byte of the next one.
        taken += BLOCK_BYTES - (backslashes >> 15) as usize;
    }
    (taken, length)
}

/// Returns whether a byte is a control character or the first byte of U+0085, U+2028 or U+2029.
#[target_feature(enable = "ssse3")]
#[inline]
fn has_odd_byte(bytes: __m128i) -> bool {
    let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
    let separator = _mm_or_si128(equal(bytes, 0xc2), equal(bytes, 0xe2));
    _mm_movemask_epi8(_mm_or_si128(control, separator)) != 0
}

/// Returns a mask with a bit for each quote and backslash.
#[target_feature(enable = "ssse3")]
#[inline]
fn escape_set(bytes: __m128i) -> u32 {
    _mm_movemask_epi8(_mm_or_si128(equal(bytes, b'"'), equal(bytes, b'\\'))).cast_unsigned()
}

#[target_feature(enable = "ssse3")]
#[inline]
fn equal(bytes: __m128i, byte: u8) -> __m128i {
    _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed()))
}

#[target_feature(enable = "ssse3")]
#[inline]
fn low_half(bytes: __m128i) -> __m128i {
    _mm_unpacklo_epi64(bytes, _mm_set1_epi8(b'\\'.cast_signed()))
}

#[target_feature(enable = "ssse3")]
#[inline]
fn high_half(bytes: __m128i) -> __m128i {
    _mm_unpackhi_epi64(bytes, _mm_set1_epi8(b'\\'.cast_signed()))
}
