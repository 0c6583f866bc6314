//! Hashes sixteen messages in parallel.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_ror_epi32, _mm512_set1_epi32, _mm512_set4_epi32, _mm512_shuffle_epi8,
    _mm512_shuffle_i32x4, _mm512_srli_epi32, _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use super::hash::{MD5_K, NO_BLOCK, ended_after, ends_after, longest};
use crate::hashing::block::{Block, MD5_INITIAL, SHA256_K, Schedule, Sha256State};

type V = __m512i;
const LANES: usize = 16;

hash_functions!("avx512f,avx512bw");

#[target_feature(enable = "avx512f")]
#[inline]
fn splat(word: u32) -> V {
    _mm512_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx512f")]
#[inline]
fn add(a: V, b: V) -> V {
    _mm512_add_epi32(a, b)
}

// The constants are truth tables: the three input bits are the index of the result bit.

#[target_feature(enable = "avx512f")]
#[inline]
fn xor3(a: V, b: V, c: V) -> V {
    _mm512_ternarylogic_epi32::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn choose(if_set: V, then: V, otherwise: V) -> V {
    _mm512_ternarylogic_epi32::<0xca>(if_set, then, otherwise)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn majority(a: V, b: V, c: V) -> V {
    _mm512_ternarylogic_epi32::<0xe8>(a, b, c)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn md5_i(x: V, y: V, z: V) -> V {
    _mm512_ternarylogic_epi32::<0x39>(x, y, z)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn rotate_right<const RIGHT: i32, const LEFT: i32>(a: V) -> V {
    _mm512_ror_epi32::<RIGHT>(a)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn shift_right<const BITS: u32>(a: V) -> V {
    _mm512_srli_epi32::<BITS>(a)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn swap_bytes(words: V) -> V {
    _mm512_shuffle_epi8(words, _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203))
}

/// Returns a vector for each index with that word of every row.
#[target_feature(enable = "avx512f")]
#[inline]
fn transposed(rows: [&Block; LANES]) -> [V; 16] {
    // Each quarter of `quads[4 * group + i]` has word `4 * quarter + i` of the group's four rows.
    let mut quads = [splat(0); 16];
    for group in 0..4 {
        let row = |index: usize| bytemuck::cast::<Block, V>(*rows[4 * group + index]);
        let (low01, low23) = (_mm512_unpacklo_epi32(row(0), row(1)), _mm512_unpacklo_epi32(row(2), row(3)));
        let (high01, high23) = (_mm512_unpackhi_epi32(row(0), row(1)), _mm512_unpackhi_epi32(row(2), row(3)));
        quads[4 * group] = _mm512_unpacklo_epi64(low01, low23);
        quads[4 * group + 1] = _mm512_unpackhi_epi64(low01, low23);
        quads[4 * group + 2] = _mm512_unpacklo_epi64(high01, high23);
        quads[4 * group + 3] = _mm512_unpackhi_epi64(high01, high23);
    }
    let mut words = [splat(0); 16];
    for index in 0..4 {
        let [a, b, c, d] = [quads[index], quads[4 + index], quads[8 + index], quads[12 + index]];
        let (ab_low, cd_low) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
        let (ab_high, cd_high) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
        words[index] = _mm512_shuffle_i32x4::<0x88>(ab_low, cd_low);
        words[4 + index] = _mm512_shuffle_i32x4::<0xdd>(ab_low, cd_low);
        words[8 + index] = _mm512_shuffle_i32x4::<0x88>(ab_high, cd_high);
        words[12 + index] = _mm512_shuffle_i32x4::<0xdd>(ab_high, cd_high);
    }
    words
}
