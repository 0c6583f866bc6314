//! Hashes eight messages in parallel.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_or_si256, _mm256_permute2x128_si256,
    _mm256_set1_epi32, _mm256_setr_epi32, _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
    _mm256_xor_si256,
};

use super::hash::{MD5_K, NO_BLOCK, ended_after, ends_after, longest};
use crate::hashing::block::{Block, MD5_INITIAL, SHA256_K, Schedule, Sha256State};

type V = __m256i;
const LANES: usize = 8;

hash_functions!("avx2");

#[target_feature(enable = "avx2")]
#[inline]
fn splat(word: u32) -> V {
    _mm256_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx2")]
#[inline]
fn add(a: V, b: V) -> V {
    _mm256_add_epi32(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor3(a: V, b: V, c: V) -> V {
    _mm256_xor_si256(_mm256_xor_si256(a, b), c)
}

#[target_feature(enable = "avx2")]
#[inline]
fn choose(if_set: V, then: V, otherwise: V) -> V {
    _mm256_xor_si256(otherwise, _mm256_and_si256(if_set, _mm256_xor_si256(then, otherwise)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn majority(a: V, b: V, c: V) -> V {
    _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(c, _mm256_or_si256(a, b)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn md5_i(x: V, y: V, z: V) -> V {
    _mm256_xor_si256(y, _mm256_or_si256(x, _mm256_xor_si256(z, splat(u32::MAX))))
}

#[target_feature(enable = "avx2")]
#[inline]
fn rotate_right<const RIGHT: i32, const LEFT: i32>(a: V) -> V {
    _mm256_or_si256(_mm256_srli_epi32::<RIGHT>(a), _mm256_slli_epi32::<LEFT>(a))
}

#[target_feature(enable = "avx2")]
#[inline]
fn shift_right<const BITS: i32>(a: V) -> V {
    _mm256_srli_epi32::<BITS>(a)
}

#[target_feature(enable = "avx2")]
#[inline]
fn swap_bytes(words: V) -> V {
    let order = [0x0001_0203, 0x0405_0607, 0x0809_0a0b, 0x0c0d_0e0f];
    let [a, b, c, d] = order;
    _mm256_shuffle_epi8(words, _mm256_setr_epi32(a, b, c, d, a, b, c, d))
}

/// Returns a vector for each index with that word of every row.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed(rows: [&Block; LANES]) -> [V; 16] {
    let mut words = [splat(0); 16];
    for half in 0..2 {
        let row = |index: usize| bytemuck::cast::<Block, [V; 2]>(*rows[index])[half];
        // Each half of `quads[4 * group + i]` has word `4 * half + i` of the group's four rows.
        let mut quads = [splat(0); 8];
        for group in 0..2 {
            let row = |index: usize| row(4 * group + index);
            let (low01, low23) =
                (_mm256_unpacklo_epi32(row(0), row(1)), _mm256_unpacklo_epi32(row(2), row(3)));
            let (high01, high23) =
                (_mm256_unpackhi_epi32(row(0), row(1)), _mm256_unpackhi_epi32(row(2), row(3)));
            quads[4 * group] = _mm256_unpacklo_epi64(low01, low23);
            quads[4 * group + 1] = _mm256_unpackhi_epi64(low01, low23);
            quads[4 * group + 2] = _mm256_unpacklo_epi64(high01, high23);
            quads[4 * group + 3] = _mm256_unpackhi_epi64(high01, high23);
        }
        for index in 0..4 {
            let (a, b) = (quads[index], quads[4 + index]);
            words[8 * half + index] = _mm256_permute2x128_si256::<0x20>(a, b);
            words[8 * half + 4 + index] = _mm256_permute2x128_si256::<0x31>(a, b);
        }
    }
    words
}
